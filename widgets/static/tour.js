// Lab 00: what happens between a prompt and the next token. Four panels, read clockwise: the text goes in, every weight
// is read once, K and V go into a page, the logits give the next token, which joins the text.
// trace = {tokens: [{text, label}], promptTokens, pages, numPages, planes, slotBytes, reference, steps: […]}; widgets/tour_data.py makes it.
import { circle, fit, line, linear, middle, move, number, percent, rect, tag, text } from "./marks.js";
import { textColumns, textPieces } from "./token_text.js";
import { playground } from "./kit.js";

const SLOTS = 16;
const GAP = 24;
const WIDE = 760;
const LINE = 16;
const ROW = 18;
const stageNames = ["embed", "qkv", "attention", "o", "gate_up", "down", "lm_head"];
const stageHue = (name) => ({ attention: "c3", embed: "c4" })[name] ?? "c1";

// The four panels' places. Wide: two columns; narrow: text and next token share a row, the rest lies below.
export function tourLayout(trace, width, measure) {
  const wide = width > WIDE;
  const left = wide ? 300 : Math.floor((width - GAP) / 2);
  const right = width - left - GAP;
  const textHeight = 32 + LINE * lineCount(trace, left, measure);
  const [stagesHeight, pagesHeight, nextHeight] = [212, 188, 156];
  if (wide) {
    const second = Math.max(textHeight, stagesHeight) + GAP;
    const places = { text: [0, 0, left], stages: [left + GAP, 0, right], next: [0, second, left], pages: [left + GAP, second, right] };
    return { places, height: second + Math.max(nextHeight, pagesHeight) };
  }
  const second = Math.max(textHeight, nextHeight) + GAP;
  const third = second + stagesHeight + GAP;
  const places = { text: [0, 0, left], next: [left + GAP, 0, right], stages: [0, second, width], pages: [0, third, width] };
  return { places, height: third + pagesHeight };
}

function heading(number_, title, note, width, here, measure) {
  const titled = fit(title, width - 26 - (note ? measure(note, "s") + 12 : 0), measure, "b");
  const badge = [circle(8, 8, 8, here ? "tag" : "empty"), middle(8, 8, number_, here ? "c s b ontag" : "c s b")];
  return [...badge, text(24, 12, titled, "b"), text(width, 12, note, "e s mu")];
}

// ---- 1 text ----

const piecesOf = (trace, width, measure) => textPieces(trace.tokens.map((token) => token.text), textColumns(width, measure));
const lineCount = (trace, width, measure) => 1 + piecesOf(trace, width, measure).at(-1).row;

export function textPanel(trace, step, width, measure, here) {
  const letter = measure("0", "m");
  const next = step.start + step.fed;
  const shown = piecesOf(trace, width, measure).filter(({ token }) => token <= next);
  const marks = heading(1, "Text", `${next} tokens in the cache`, width, here, measure);
  shown.forEach(({ token, row, column, string }) => {
    const [x, y, run] = [column * letter, 32 + row * LINE, Array.from(string).length * letter];
    const hidden = string.replaceAll("↵", " ");
    if (token === next) marks.push(rect(x, y, Math.max(2, run), LINE, "tag"), middle(x, y + 8, string, "m ontag pre"));
    else if (hidden.trim()) marks.push(middle(x, y + 8, hidden, token < trace.promptTokens ? "m pre mu" : "m pre"));
    if (token >= step.start && token < next) marks.push(line(x, y + LINE - 1, x + run, y + LINE - 1, "under"));
  });
  return marks;
}

// ---- 2 stages ----

export const stageBytes = (step) => stageNames.map((name) => step.stages.reduce((sum, [stage, , bytes]) => sum + (stage === name ? bytes : 0), 0));
export const totalBytes = (step) => step.stages.reduce((sum, [, , bytes]) => sum + bytes, 0);

// One segment for each stage in the order of the pass, as wide as its share of the bytes: {stage, layer, x, width}.
export function stripSegments(step, width) {
  const scale = width / totalBytes(step);
  let read = 0;
  return step.stages.map(([stage, layer, bytes]) => {
    const x = read * scale;
    read += bytes;
    return { stage, layer, x, width: bytes * scale };
  });
}

// The stretch of every layer, and of lm_head, on the strip: {label, x, width}.
export function stripSpans(segments) {
  const spans = [];
  segments.forEach(({ stage, layer, x, width }) => {
    const label = layer === null ? stage : `layer ${layer}`;
    const last = spans.at(-1);
    if (last?.label === label) last.width = x + width - last.x;
    else spans.push({ label, x, width });
  });
  return spans;
}

export function byteText(bytes) {
  const [unit, size, digits] = bytes < 1024 ? ["B", 1, 0] : bytes < 1e6 ? ["kB", 1e3, 1] : ["MB", 1e6, 2];
  return `${number(bytes / size, digits)} ${unit}`;
}

const strip = { y: 42, height: 18 };
const rowY = (row) => 86 + row * ROW;

export function stagesPanel(trace, step, width, measure, here) {
  const total = totalBytes(step);
  const marks = heading(2, "Bytes read, stage by stage", `${byteText(total)} in this pass`, width, here, measure);
  const segments = stripSegments(step, width);
  segments.forEach(({ stage, layer, x, width: wide }, at) => marks.push(rect(x, strip.y, wide, strip.height, `${stageHue(stage)} fill`, { key: `strip ${at}`, title: layer === null ? stage : `layer ${layer}: ${stage}` })));
  stripSpans(segments).forEach(({ label, x, width: wide }) => {
    if (measure(label, "s") < wide - 4) marks.push(text(x + wide / 2, 34, label, "c s mu"));
    marks.push(line(x, strip.y - 4, x, strip.y + strip.height, "axis"));
  });
  marks.push(line(width, strip.y - 4, width, strip.y + strip.height, "axis"));
  return [...marks, ...stageTable(trace, step, width)];
}

function stageTable(trace, step, width) {
  const [barX, barEnd, bytesX, shareX] = [84, width - 172, width - 104, width - 56];
  const total = totalBytes(step);
  const scale = linear(0, trace.largestShare, 0, barEnd - barX);
  const marks = [text(barX, 80, "share of the bytes; line: in the 7B", "s mu"), text(bytesX, 80, "bytes", "e s mu"), text(shareX, 80, "here", "e s mu"), text(width, 80, "7B", "e s mu")];
  stageBytes(step).forEach((bytes, row) => {
    const [name, y, other] = [stageNames[row], rowY(row), trace.reference[stageNames[row]]];
    marks.push(line(0, y, width, y, "rule"), middle(0, y + ROW / 2, name));
    marks.push(rect(barX, y + 4, Math.max(1, scale(bytes / total)), 10, `${stageHue(name)} fill`, { key: `stage ${name}` }));
    marks.push(line(barX + scale(other), y + 2, barX + scale(other), y + ROW - 2, "strong"));
    marks.push(middle(bytesX, y + ROW / 2, byteText(bytes), "e"), middle(shareX, y + ROW / 2, percent(bytes / total), "e b"), middle(width, y + ROW / 2, percent(other), "e mu"));
  });
  return marks;
}

// The playhead on the strip and the stage it is in, `part` of the way through the pass.
export function stageAt(step, width, part) {
  const x = Math.min(part, 0.9999) * width;
  const segment = stripSegments(step, width).find((one) => x < one.x + one.width) ?? stripSegments(step, width).at(-1);
  return { x, row: stageNames.indexOf(segment.stage) };
}

// ---- 3 pages ----

// Slots of all pages on one axis: x of a position's slot. `pages` pages side by side, 8 px apart.
export function slotAxis(pages, width) {
  const slot = (width - 8 * (pages - 1)) / (SLOTS * pages);
  const pageX = (page) => page * (SLOTS * slot + 8);
  return { slot, pageWidth: SLOTS * slot, pageX, x: (position) => pageX(Math.floor(position / SLOTS)) + (position % SLOTS) * slot };
}

const plot = { y: 60, height: 44 };
const slots = { y: 104, height: 20 };

export function pagesPanel(trace, step, width, measure, here) {
  const axis = slotAxis(trace.pages, width);
  const free = trace.numPages - step.pageTable.length;
  const marks = heading(3, "KV pages: what is read and where it is written", `${free} of ${trace.numPages} page ids free`, width, here, measure);
  for (let page = 0; page < trace.pages; page += 1) marks.push(...pageMarks(trace, step, page, axis, measure));
  step.attention.forEach((share, position) => {
    const high = (share / step.attention[step.strongest]) * plot.height;
    marks.push(rect(axis.x(position) + 1, plot.y + plot.height - high, Math.max(1, axis.slot - 2), high, "c3 solid", { key: `attention ${position}` }));
  });
  step.pageTable.forEach((_, page) => marks.push(attentionLabel(step, page, axis), ...slotNumbers(step, page, axis)));
  return [...marks, ...writtenSlots(trace, step, axis, width, measure)];
}

function pageMarks(trace, step, page, axis, measure) {
  const [x, wide, id] = [axis.pageX(page), axis.pageWidth, step.pageTable[page]];
  const header = (string, cls) => text(x + wide / 2, 34, fit(string, wide, measure, cls), `c ${cls}`);
  if (id === undefined) return [header(`page ${page}: not taken yet`, "s mu"), line(x, 40, x + wide, 40, "axis dash"), rect(x, slots.y, wide, slots.height, "empty dash")];
  const here = page === step.page;
  const marks = [header(`page ${page} → id ${id}`, here ? "b" : ""), here ? rect(x, 38, wide, 3, "tag") : line(x, 40, x + wide, 40, "axis")];
  const tokens = step.start + step.fed;
  for (let slot = 0; slot < SLOTS; slot += 1) {
    const position = page * SLOTS + slot;
    const held = position < tokens;
    const more = held ? { title: `token ${position}: ${trace.tokens[position].label}`, set: { step: Math.max(0, position - trace.promptTokens + 1) } } : {};
    marks.push(rect(x + slot * axis.slot, slots.y, axis.slot, slots.height, held ? "c1 fill" : "hatch", more));
  }
  if (step.taken.includes(id)) marks.push(...takenTag(x + wide, (page + 1) * SLOTS - tokens, axis, measure));
  return marks;
}

// "taken now" lies on the slots that hold no token yet, as far as they have room for it.
function takenTag(end, free, axis, measure) {
  const width = (word) => Math.ceil(measure(word, "s b")) + 14;
  const word = ["taken now", "taken"].find((one) => width(one) + 4 < free * axis.slot);
  return word ? tag(end - width(word) - 2, slots.y, word, measure) : [];
}

function attentionLabel(step, page, axis) {
  const share = step.attention.slice(page * SLOTS, (page + 1) * SLOTS).reduce((sum, one) => sum + one, 0);
  return text(axis.pageX(page) + axis.pageWidth / 2, plot.y - 5, `attention ${percent(share)}`, "c s ink c3");
}

// The slots written in this pass, outlined, and their address, joined to the last one.
function writtenSlots(trace, step, axis, width, measure) {
  const first = axis.x(step.page * SLOTS + step.firstSlot);
  const last = axis.x(step.start + step.fed - 1);
  const middleX = last + axis.slot / 2;
  const tagWidth = Math.ceil(measure(step.bytes, "s b")) + 14;
  const tagX = Math.max(0, Math.min(width - tagWidth, middleX - tagWidth / 2));
  const outline = rect(first, slots.y, last + axis.slot - first, slots.height, "sel");
  const own = slotNumber(step.page, step.slot, axis, "s b ink ca");
  const joined = [line(middleX, 142, middleX, 148, "sel"), ...tag(tagX, 148, step.bytes, measure)];
  const strongest = `tallest bar: token ${step.strongest}, ${percent(step.attention[step.strongest])}`;
  const room = width - measure(step.address, "s") - 12;
  return [outline, own, ...joined, text(0, 184, fit(strongest, room, measure, "s"), "s mu"), text(width, 184, step.address, "e s mu")];
}

// Slot numbers under a page, less the one that would touch the written slot's own.
function slotNumbers(step, page, axis) {
  const shown = [0, 5, 10, 15].filter((slot) => page !== step.page || Math.abs(slot - step.slot) > 2);
  return shown.map((slot) => slotNumber(page, slot, axis, "s mu"));
}

// Under its slot; at a page's ends it keeps to the page.
function slotNumber(page, slot, axis, cls) {
  const [at, anchor] = slot === 0 ? [0, ""] : slot === SLOTS - 1 ? [1, "e "] : [0.5, "c "];
  return text(axis.pageX(page) + (slot + at) * axis.slot, 138, slot, anchor + cls);
}

// ---- 4 next token ----

export function nextPanel(trace, step, width, measure, here) {
  const [barX, barEnd] = [124, width - 44];
  const scale = linear(0, 1, 0, barEnd - barX);
  const marks = heading(4, "Next token", `margin ${number(step.margin, 2)}`, width, here, measure);
  step.top.forEach(({ label, share, chosen }, row) => {
    const y = 28 + row * 22;
    const cls = chosen ? "m b" : "m";
    marks.push(middle(0, y + 11, fit(label, barX - 8, measure, cls), chosen ? "m b ink ca" : "m"));
    marks.push(rect(barX, y + 4, Math.max(1, scale(share)), 14, chosen ? "tag" : "c4 fill", { key: `next ${row}` }));
    marks.push(middle(width, y + 11, percent(share), chosen ? "e b" : "e"));
  });
  return [...marks, line(barX, 28, barX, 28 + 22 * step.top.length, "axis"), text(0, 152, "margin: best logit less the second best", "s mu")];
}

// ---- the picture ----

const panels = { text: textPanel, stages: stagesPanel, pages: pagesPanel, next: nextPanel };

export function drawTour(trace, state, width, measure) {
  const step = trace.steps[state.step];
  const { places, height } = tourLayout(trace, width, measure);
  const marks = Object.entries(panels).flatMap(([name, panel]) => {
    const [x, y, wide] = places[name];
    return move(panel(trace, step, wide, measure, trace.looks[state.preset] === name), x, y);
  });
  return { marks, height, label: `Text, bytes of each stage, KV pages and next token: ${step.sentence}` };
}

export function movingTour(trace, state, width, measure, part) {
  const [x, y, wide] = tourLayout(trace, width, measure).places.stages;
  const at = stageAt(trace.steps[state.step], wide, part);
  const head = line(at.x, strip.y - 4, at.x, strip.y + strip.height + 4, "sel");
  return move([head, rect(-2, rowY(at.row), wide + 4, ROW, "sel")], x, y);
}

export default playground({
  draw: drawTour,
  moving: movingTour,
  sentence: (trace, state) => trace.steps[state.step].sentence,
  count: (trace, state) => (state.step === 0 ? "prefill" : `step ${state.step} of ${trace.steps.length - 1}`),
});
