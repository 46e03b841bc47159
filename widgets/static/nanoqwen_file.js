// Lab 02: a .nanoqwen file as a map of five levels. From the top: the path, the whole file, what the level shows in it,
// the level's own picture, then bytes and their meaning side by side.
// trace = {bytes, size, page, group, groupBytes, scaleBytes, preamble, layouts, stepPages, parts, sections: [{name, label, kind, offset, length, rows,
// shape, step, entry, layout?, scales?}]}; widgets/nanoqwen_file_data.py makes it. The state is a level and the path on which it lies.
import { fit, grouped, line, middle, move, path, rect, text } from "./marks.js";
import { DUMP, LEVELS, PART, afterSection, chosenOf, counts, dumpStart, groupOf, groupsOf, hexOf, inSection, isHeader, isMatrix, meaningOf, pageCount, pagesOf, pagesPerRow, region, rowOf, rowWords, scaleOf, sectionAt, sectionOf, sentenceOf, spanWords, wholeOf } from "./nanoqwen_bytes.js";
import { byteLevel, fileLevel, groupLevel, headerLevel, hueOf, rowLevel, sectionLevel, shownPages } from "./nanoqwen_levels.js";
import { playground } from "./kit.js";

const WIDE = 760;
const LINE = 16;
const bar = { labels: 34, y: 40, height: 12, below: 64, belowHeight: 20, caption: 100 };

// Places of the level's picture and of the two texts: [x, y, width]. Wide: the texts side by side.
export function mapLayout(width) {
  const wide = width > WIDE;
  const picture = { y: 114, height: wide ? 170 : 200 };
  const texts = picture.y + picture.height + 12;
  const left = wide ? 432 : width;
  const meaning = wide ? [left + 24, texts, width - left - 24] : [0, texts + 100, width];
  return { picture, hex: [0, texts, left], meaning, height: meaning[1] + 102 };
}

// ---- where the stepper stands and what it, a click and a key set ----

export const stepsOf = (trace, state) => counts(trace, state)[PART[state.level]];
export const stepOf = (trace, state) => (state.level === "file" ? sectionAt(trace, state.section) : state[PART[state.level]]);

export function valuesAt(trace, state, step) {
  const part = PART[state.level];
  return part === "section" ? inSection(trace, state, trace.sections[step].name) : { [part]: step };
}

// The level further in or out; null at the last one.
export function zoomed(trace, state, by) {
  const at = LEVELS.indexOf(state.level) + by;
  const deepest = isMatrix(sectionOf(trace, state)) ? LEVELS.length - 1 : 1;
  return at < 0 || at > deepest ? null : { level: LEVELS[at] };
}

export const keyValues = (trace, state, key) => ({ Enter: zoomed(trace, state, 1), Backspace: zoomed(trace, state, -1) })[key] ?? null;

// ---- path ----

export function pathMarks(trace, state, width, measure) {
  const section = sectionOf(trace, state);
  const names = ["file", section.label, rowWords(trace, state), `group ${state.group}`, `byte ${state.byte}`].slice(0, isMatrix(section) ? 5 : 3);
  const marks = [];
  let x = 0;
  names.forEach((name, at) => {
    const [level, here] = [LEVELS[at], LEVELS[at] === state.level];
    const cls = here ? "b" : at > LEVELS.indexOf(state.level) ? "mu" : "";
    if (at) {
      marks.push(text(x, 14, "›", "mu"));
      x += measure("›") + 8;
    }
    const shown = fit(name, width - x, measure, cls);
    const wide = measure(shown, cls);
    const open = here || (at === 2 && !isMatrix(section)) ? {} : { set: { level } };
    marks.push(rect(x - 2, 0, wide + 4, 20, "hit", open), text(x, 14, shown, cls, open));
    if (here) marks.push(line(x, 20, x + wide, 20, "sel"));
    x += wide + 8;
  });
  const hint = "Enter or second click: in · Backspace: out";
  return measure(hint, "s") < width - x - 8 ? [...marks, text(width, 14, hint, "e s mu")] : marks;
}

// ---- the file, and what the level shows in it ----

// Neighbours that belong together: header, embedding, each layer, the rest one by one.
export function fileGroups(trace) {
  const groups = [];
  trace.sections.forEach((section, at) => {
    const layer = section.label.match(/^layer \d+/)?.[0];
    const name = layer ?? (section.name.startsWith("model.embed_tokens") ? "embedding" : section.name.replace(/^model\.|\.(weight|scales)$/g, ""));
    if (groups.at(-1)?.name === name) groups.at(-1).last = at;
    else groups.push({ name, first: at, last: at });
  });
  return groups.map(({ name, first, last }) => {
    const { offset } = trace.sections[first];
    const largest = trace.sections.slice(first, last + 1).reduce((most, one) => (one.length > most.length ? one : most));
    return { first, last, ...region(offset, afterSection(trace, last) - offset, largest.kind, name) };
  });
}

const groupAt = (trace, state) => fileGroups(trace).find(({ last }) => sectionAt(trace, state.section) <= last);

// The stretch of the file that the second bar magnifies.
export function stretchOf(trace, state) {
  const at = sectionAt(trace, state.section);
  if (state.level === "file") return groupAt(trace, state);
  if (state.level === "section") return region(trace.sections[at].offset, afterSection(trace, at) - trace.sections[at].offset);
  return rowOf(trace, trace.sections[at], state.row);
}

function fileBar(trace, state, width, measure) {
  const scale = width / trace.size;
  const own = groupAt(trace, state);
  const marks = fileGroups(trace).map((one) => {
    const again = state.level === "file" && one.name === own.name;
    const set = again ? { level: "section" } : { ...inSection(trace, state, trace.sections[one.first].name), level: "file" };
    return rect(one.offset * scale, bar.y, Math.max(1, one.length * scale), bar.height, `${hueOf(one.kind)} fill`, { title: `${one.name}: bytes ${spanWords(one.offset, one.stop - 1)}`, set });
  });
  if (LEVELS.indexOf(state.level) > 1) marks.push(rect(chosenScale(trace, state).offset * scale - 1, bar.y - 2, 3, bar.height + 4, "c2 solid", { title: "the group's scale" }));
  const chosen = state.level === "file" ? own : chosenOf(trace, state);
  const wide = Math.max(3, chosen.length * scale);
  marks.push(rect(Math.min(chosen.offset * scale, width - wide), bar.y - 2, wide, bar.height + 4, "sel", { key: "in file" }));
  return [...marks, ...groupLabels(trace, own, width, measure)];
}

const chosenScale = (trace, state) => scaleOf(trace, sectionOf(trace, state), state.row, state.group);

// The chosen group's name stands in any case, another where it fits over its stretch and touches none.
function groupLabels(trace, own, width, measure) {
  const scale = width / trace.size;
  const place = (one, cls) => {
    const wide = measure(one.name, cls);
    const left = Math.max(0, Math.min(width - wide, (one.offset + one.length / 2) * scale - wide / 2));
    return { ...one, cls, left, right: left + wide };
  };
  const here = place(own, "s b");
  const others = fileGroups(trace).map((one) => place(one, "s mu")).filter((one) => one.name !== own.name && one.length * scale > one.right - one.left && (one.right + 6 < here.left || one.left - 6 > here.right));
  return [here, ...others].map(({ left, name, cls }) => text(left, bar.labels, name, cls));
}

function connectors(trace, state, width) {
  const [scale, stretch] = [width / trace.size, stretchOf(trace, state)];
  const [top, bottom] = [bar.y + bar.height + 2, bar.below];
  return [line(stretch.offset * scale, top, 0, bottom, "axis"), line(Math.min(width, stretch.stop * scale), top, width, bottom, "axis")].map((one) => ({ ...one, class: "axis round" }));
}

function segments(trace, state) {
  const at = sectionAt(trace, state.section);
  const section = trace.sections[at];
  if (LEVELS.indexOf(state.level) > 1) {
    const zoom = { level: state.level === "row" ? "group" : "row" };
    return Array.from({ length: groupsOf(trace, section) }, (_, group) => {
      const chosen = group === state.group;
      return { ...groupOf(trace, section, state.row, group), kind: "INT4", label: `group ${group}`, set: chosen ? zoom : { group }, chosen };
    });
  }
  const group = groupAt(trace, state);
  const [first, last] = state.level === "file" ? [group.first, group.last] : [at, at];
  return trace.sections.slice(first, last + 1).flatMap((one, place) => {
    const chosen = one === section;
    const zoom = chosen && state.level === "file" ? { level: "section" } : inSection(trace, state, one.name);
    const padding = afterSection(trace, first + place) - wholeOf(one).stop;
    const own = { ...wholeOf(one), label: one.label.replace(/^layer \d+ (self_attn\.|mlp\.)?|^model\./, ""), set: state.level === "file" ? zoom : undefined, chosen: chosen && state.level === "file" };
    return padding ? [own, { ...region(own.stop, padding, "padding"), label: "padding" }] : [own];
  });
}

function stretchBar(trace, state, width, measure) {
  const stretch = stretchOf(trace, state);
  const scale = width / stretch.length;
  const x = (offset) => (offset - stretch.offset) * scale;
  const [y, height] = [bar.below, bar.belowHeight];
  const [marks, outlines] = [[], []];
  segments(trace, state).forEach(({ offset, length, kind, label, set, chosen }) => {
    const wide = length * scale;
    marks.push(rect(x(offset), y, Math.max(1, wide), height, kind === "padding" ? "hatch" : `${hueOf(kind)} fill`, { title: label, ...(set ? { set } : {}) }));
    const short = [label, label.replace(/\.(weight|bias)$/, "")].find((one) => measure(one, "s") + 8 <= wide);
    if (short && kind !== "padding" && state.level !== "section") marks.push(middle(x(offset) + wide / 2, y + height / 2, short, "c s", set ? { set } : {}));
    if (chosen) outlines.push(rect(x(offset), y, Math.max(3, wide), height, "sel", { key: "in stretch" }));
  });
  return [...marks, ...pageBorders(trace, state, stretch, scale), ...outlines];
}

// Borders of pages in the second bar: thin lines where they are many, thick ones inside a row.
function pageBorders(trace, state, stretch, scale) {
  const [y, height] = [bar.below, bar.belowHeight];
  const inRow = LEVELS.indexOf(state.level) > 1;
  const marks = [];
  if (inRow || (state.level === "section" && trace.page * scale >= 5)) {
    const first = Math.floor(stretch.offset / trace.page) + 1;
    for (let page = first; page * trace.page < stretch.stop; page += 1) {
      const x = (page * trace.page - stretch.offset) * scale;
      marks.push(line(x, y - (inRow ? 4 : 0), x, y + height + (inRow ? 4 : 0), inRow ? "strong" : "axis"));
    }
  }
  if (state.level !== "section") return marks;
  const [from, to] = shownPages(trace, state).map((page) => (Math.max(stretch.offset, Math.min(stretch.stop, page * trace.page)) - stretch.offset) * scale);
  const row = chosenOf(trace, state);
  const wide = Math.max(3, row.length * scale);
  const left = Math.min((row.offset - stretch.offset) * scale, stretch.length * scale - wide);
  return [...marks, path(`M${from} ${y + height + 2}V${y + height + 5}H${to}V${y + height + 2}`, "axis"), rect(left, y, wide, height, "sel", { key: "in stretch" })];
}

const kinds = [["INT4", "nibbles"], ["F16", "scales"], ["F32", "norms, biases"], ["JSON", "text"], ["padding", "padding"]];

function caption(trace, state, width, measure) {
  const marks = [text(0, bar.caption, captionWords(trace, state), "s mu")];
  if (LEVELS.indexOf(state.level) > 1) {
    const scale = chosenScale(trace, state);
    return [...marks, text(width, bar.caption, `its scale: ${grouped(scale.offset - chosenOf(trace, state).offset)} bytes further on, page ${grouped(pagesOf(trace, scale)[0])}`, "e s ink c2")];
  }
  if (state.level !== "file") return marks;
  let x = width;
  [...kinds].reverse().forEach(([kind, word]) => {
    x -= measure(word, "s");
    marks.push(text(x, bar.caption, word, "s mu"), rect(x - 14, bar.caption - 9, 10, 10, kind === "padding" ? "hatch" : `${hueOf(kind)} fill`));
    x -= 26;
  });
  return marks;
}

export function captionWords(trace, state) {
  const section = sectionOf(trace, state);
  const stretch = stretchOf(trace, state);
  const pages = pageCount(pagesOf(trace, stretch));
  const onPages = `on ${grouped(pages)} page${pages > 1 ? "s" : ""}`;
  if (state.level === "file") return `${stretch.name}: ${grouped(stretch.length)} bytes ${onPages}`;
  if (LEVELS.indexOf(state.level) > 1) return `row ${state.row}: ${grouped(stretch.length)} bytes ${onPages}${pages > 1 ? "; thick: the border" : ""}`;
  if (isHeader(section)) return `${grouped(section.length)} bytes, then ${grouped(stretch.length - section.length)} of padding, ${onPages}`;
  if (section.shape.length < 2) return `${grouped(section.rows)} ${section.kind === "F32" ? "numbers of 4 bytes" : "bytes of text"} ${onPages}`;
  const pattern = pagesPerRow(trace, section.length / section.rows);
  const least = Math.min(...pattern);
  let more = 0;
  for (let row = 0; row < section.rows; row += 1) more += pattern[row % pattern.length] > least;
  return `${grouped(section.rows)} rows of ${grouped(section.length / section.rows)} bytes ${onPages}; ${grouped(more)} of them lie${more === 1 ? "s" : ""} on ${least + 1}`;
}

// ---- bytes and their meaning ----

export function hexMarks(trace, state, measure) {
  const [start, chosen] = [dumpStart(trace, state), chosenOf(trace, state)];
  const bytes = hexOf(trace, region(start, Math.min(DUMP, trace.size - start))).split(" ");
  const letter = measure("0", "m");
  const x = (at) => 72 + (at % 16) * 3 * letter;
  const y = (at) => 20 + LINE * Math.floor(at / 16);
  const marks = [text(0, 12, `Bytes ${spanWords(start, start + bytes.length - 1)} in hex`, "b")];
  const all = chosen.offset <= start && chosen.stop >= start + bytes.length;
  bytes.forEach((byte, at) => {
    const inside = chosen.offset <= start + at && start + at < chosen.stop;
    if (at % 16 === 0) marks.push(middle(0, y(at) + LINE / 2, grouped(start + at), "s mu"));
    if (inside && !all) marks.push(rect(x(at) - letter / 2, y(at), 3 * letter, LINE, "ca tint"));
    marks.push(middle(x(at), y(at) + LINE / 2, byte, inside ? "m" : "m mu"));
    if (at && (start + at) % trace.page === 0) marks.push(line(x(at) - letter / 2, y(at), x(at) - letter / 2, y(at) + LINE, "strong"));
  });
  return marks;
}

export function meaningMarks(trace, state, width, measure) {
  const { title, lines, code } = meaningOf(trace, state);
  const cls = code ? "m" : "";
  const shown = code ? wrapped(lines[0], Math.floor(width / measure("0", "m")), 5) : lines.map((one) => fit(one, width, measure));
  return [text(0, 12, fit(title, width, measure, "b"), "b"), ...shown.map((one, at) => middle(0, 20 + LINE * at + LINE / 2, one, cls))];
}

// Pieces of so many letters; what does not fit into the last line is cut with an ellipsis.
export function wrapped(string, columns, most) {
  const letters = Array.from(string);
  const pieces = [];
  for (let at = 0; at < letters.length && pieces.length < most; at += columns) pieces.push(letters.slice(at, at + columns).join(""));
  if (letters.length > columns * most) pieces[most - 1] = `${letters.slice(columns * (most - 1), columns * most - 1).join("")}…`;
  return pieces;
}

// ---- the picture ----

const pictures = { file: fileLevel, row: rowLevel, group: groupLevel, byte: byteLevel };

export function drawFile(trace, state, width, measure) {
  const { picture, hex, meaning, height } = mapLayout(width);
  const section = state.level === "section" ? (isHeader(sectionOf(trace, state)) ? headerLevel : sectionLevel) : null;
  const marks = [
    ...pathMarks(trace, state, width, measure),
    ...connectors(trace, state, width),
    ...fileBar(trace, state, width, measure),
    ...stretchBar(trace, state, width, measure),
    ...caption(trace, state, width, measure),
    ...move((section ?? pictures[state.level])(trace, state, width, picture.height, measure), 0, picture.y),
    ...move(hexMarks(trace, state, measure), hex[0], hex[1]),
    ...move(meaningMarks(trace, state, meaning[2], measure), meaning[0], meaning[1]),
  ];
  return { marks, height, label: `The file, the ${state.level}, its bytes and their meaning: ${sentenceOf(trace, state)}` };
}

// The number keeps its width, so that the scrubber beside it does.
export function countWords(trace, state) {
  const [part, last] = [PART[state.level], stepsOf(trace, state) - 1];
  const word = part === "row" ? { F32: "number", JSON: "byte", header: "part" }[sectionOf(trace, state).kind] ?? part : part;
  return `${word} ${String(stepOf(trace, state)).padStart(String(last).length, "\u2007")} of 0–${last}`;
}

export default playground({
  draw: drawFile,
  steps: stepsOf,
  stepOf,
  stepTo: valuesAt,
  key: keyValues,
  keys: "arrow keys step, Enter zooms in, Backspace out",
  sentence: sentenceOf,
  count: countWords,
  pace: 250,
});
