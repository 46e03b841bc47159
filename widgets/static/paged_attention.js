// Lab 05: the tail lens. A board of bugs, the row of the chosen head (paged_attention_row.js), the page under the lens, the error
// by context length, and what the model writes. widgets/paged_attention_data.py makes the trace.
import { fit, line, middle, move, number, path, rect, text } from "./marks.js";
import { flatTokens, isOwn, lensNumber, lensSentence, lensShares, lensView, offWords, pagesOf, shareWords, slotHolds, tokenCell, validSlots } from "./paged_attention_data.js";
import { ROW_HEIGHT, rowGrid, rowMarks } from "./paged_attention_row.js";
import { textColumns, textPieces } from "./token_text.js";
import { playground } from "./kit.js";

const CONTROLS = 36;
const [SWITCH, SWITCH_GAP] = [36, 6];
const [LENS_HEIGHT, LENS_ROW] = [120, 17];
const [ERRORS_HEIGHT, ERROR_BARS, ERROR_TOP] = [100, 44, 1.25];
const TEXT_ROW = 16;

const atTail = (length) => ({ length, step: pagesOf(length) - 1 });

// Where each part stands; it depends on the width and the longest text, never on the state.
export function lensLayout(trace, width, measure) {
  const across = width > 760 ? 6 : 4;
  const board = CONTROLS;
  const row = board + Math.ceil(Object.keys(trace.runs).length / across) * (SWITCH + SWITCH_GAP) + 10;
  const lens = row + ROW_HEIGHT;
  const errors = lens + LENS_HEIGHT;
  const texts = errors + ERRORS_HEIGHT;
  const columns = textColumns(width - rowGrid(width).left, measure);
  const rows = Object.values(trace.runs).map((run) => 1 + Math.max(...textPieces(flatTokens(run.text), columns).map((piece) => piece.row)));
  const most = Math.max(...rows);
  return { across, board, row, lens, errors, texts, textRows: most, height: texts + 24 + 2 * most * TEXT_ROW + 8 };
}

// ---- what is chosen: context, head, bug ----

function choices(x, y, name, options, chosen, set, measure) {
  const marks = [middle(x, y + 12, name, "mu")];
  let left = x + measure(name, "mu") + 10;
  options.forEach((option) => {
    const [on, wide] = [option === chosen, measure(String(option), "b") + 16];
    marks.push(rect(left, y, wide, 24, on ? "ca fill" : "empty", { set: set(option) }), middle(left + wide / 2, y + 12, option, `c ${on ? "b ink ca" : ""}`, { set: set(option) }));
    left += wide + 4;
  });
  return { marks, end: left };
}

export function controlMarks(trace, state, width, measure) {
  const lengths = choices(0, 0, "context", trace.lengths, state.length, atTail, measure);
  const heads = choices(lengths.end + 20, 0, "head", Array.from({ length: trace.heads }, (_, head) => head), state.head, (head) => ({ head }), measure);
  const words = `layer ${trace.layer}; what each switch does here:`;
  return [...lengths.marks, ...heads.marks, ...(heads.end + measure(words, "s") + 20 < width ? [middle(width, 12, words, "e s mu")] : [])];
}

export function boardMarks(trace, state, width, across, measure) {
  const wide = (width - (across - 1) * SWITCH_GAP) / across;
  return Object.entries(trace.runs).flatMap(([bug, run], at) => {
    const [x, y] = [(at % across) * (wide + SWITCH_GAP), Math.floor(at / across) * (SWITCH + SWITCH_GAP)];
    const [on, off] = [bug === state.bug, offWords(run.errors[state.head][state.length - 1])];
    const more = { set: { bug }, title: run.cause };
    const label = fit(run.label, wide - 14, measure, "s b");
    const said = off === "right" ? (bug === "right" ? "the right row" : "✓ right here") : `✕ ${off}`;
    return [
      rect(x, y, wide, SWITCH, on ? "ca fill" : "empty", more),
      ...(on ? [rect(x, y, wide, SWITCH, "sel", more)] : []),
      text(x + 8, y + 14, label, `s b ${on ? "ink ca" : ""}`, more),
      text(x + 8, y + 30, said, `s ${off === "right" ? "mu" : "ink cw"}`, more),
    ];
  });
}

// ---- one page under the lens ----

export function lensMarks(trace, view, width, measure) {
  const grid = rowGrid(width);
  const [left, cell] = [grid.left, (width - grid.left) / 16];
  const [from, to] = [grid.pageX(view.page), grid.pageX(view.page) + grid.pageWidth];
  const marks = [path(`M${from} 0L${left} 18M${to} 0L${width} 18`, "ca stroke"), middle(0, 10, `page ${view.page}`, "b ink ca")];
  ["holds", "score", "weight", view.bug === "right" ? "" : "with the bug"].forEach((name, row) => marks.push(middle(0, 27 + row * LENS_ROW, name, row === 3 ? "ink cw" : "")));
  const [right, wrong] = [lensShares(view, view.right), lensShares(view, view.wrong)];
  for (let slot = 0; slot < 16; slot += 1) marks.push(...lensCell(trace, view, slot, left + slot * cell, cell, right, wrong, measure));
  return [...marks, text(left, 104, lensNote(view), "s mu"), rect(left, 18, width - left, 70, "sel")];
}

function lensCell(trace, view, slot, x, wide, right, wrong, measure) {
  const at = 16 * view.page + slot;
  const { text: held, from } = slotHolds(trace, view, view.page, slot);
  const [a, b] = [shareCell(right[at]), shareCell(wrong[at])];
  const own = isOwn(view, at, view.wrong);
  const marks = [rect(x, 18, wide, 18, own ? "c4 fill" : "hatch", { title: `slot ${slot} holds ${held.trim() || "spaces"}${from === "former" ? ", of a former owner" : ""}` })];
  marks.push(middle(x + wide / 2, 27, fit(tokenCell(held), wide - 4, measure, "s"), `c s ${own ? "" : "over b"}`));
  const score = view.wrong[view.page].scores[slot];
  const same = scoreCell(score) === scoreCell(view.right[view.page].scores[slot]);
  marks.push(middle(x + wide / 2, 27 + LENS_ROW, measure(scoreCell(score), "s b") < wide - 2 ? scoreCell(score) : lensNumber(score, 2), `c s ${same ? (score === null ? "mu" : "") : "b ink cw"}`), middle(x + wide / 2, 27 + 2 * LENS_ROW, a, `c s ${a === "0" ? "mu" : ""}`));
  if (view.bug !== "right") marks.push(middle(x + wide / 2, 27 + 3 * LENS_ROW, b, `c s ${a === b ? "mu" : "b ink cw"}`));
  return marks;
}

const scoreCell = (score) => (typeof score === "number" && Math.abs(score) < 100 ? number(Math.abs(score) < 0.05 ? 0 : score, 1) : lensNumber(score, 4));
const shareCell = (weight) => (typeof weight === "string" ? weight : weight ? (weight < 5e-4 ? "0.0" : (100 * weight).toFixed(weight < 0.0995 ? 1 : 0)) : "0");

export function lensNote(view) {
  const [valid, own] = [validSlots(view, view.page), isOwn(view, 16 * view.page, view.wrong)];
  if (!own) return "The whole page is another request's. Weights in %.";
  if (valid === 16) return "A full page: all 16 slots hold tokens. Weights in %.";
  const rest = view.run.unwritten ? "were never written" : "hold what a former owner left";
  return `${valid} of 16 slots ${valid === 1 ? "holds a token" : "hold tokens"}; the other ${16 - valid} ${rest}. Weights in %.`;
}

// ---- the error by context length ----

export function errorMarks(trace, state, width) {
  const grid = rowGrid(width);
  const errors = trace.runs[state.bug].errors[state.head];
  const bottom = 28 + ERROR_BARS;
  const marks = [text(0, 12, "Error of the output, had the text ended there", "b"), middle(0, bottom - 20, "off"), text(0, bottom + 17, "context", "s mu")];
  [0, 1].forEach((share) => {
    const y = bottom - (ERROR_BARS * share) / ERROR_TOP;
    marks.push(line(grid.left, y, width, y, share ? "rule" : "axis"), middle(grid.left - 8, y, shareWords(share), "e s mu"));
  });
  errors.forEach((error, at) => marks.push(...errorBar(grid, error, at, bottom)));
  [1, 16, 32, 48, 64].filter((length) => Math.abs(length - state.length) > 2).forEach((length) => marks.push(text(grid.x(length - 1) + grid.slot / 2, bottom + 17, length, "c s mu")));
  const x = grid.x(state.length - 1);
  marks.push(rect(x - 1, 26, grid.slot + 2, ERROR_BARS + 4, "sel"), rect(x + grid.slot / 2 - 13, bottom + 6, 26, 18, "tag"), middle(x + grid.slot / 2, bottom + 15, state.length, "c s b ontag"));
  return [...marks, rect(grid.left, 20, width - grid.left, ERROR_BARS + 30, "hit spot", { drag: "length" })];
}

function errorBar(grid, error, at, bottom) {
  const more = { title: `${at + 1} tokens: ${offWords(error)}` };
  if (typeof error !== "number") return [rect(grid.x(at) + 0.5, bottom - ERROR_BARS, grid.slot - 1, ERROR_BARS, "hatchw", more)];
  const high = (ERROR_BARS * Math.min(ERROR_TOP, error)) / ERROR_TOP;
  return error < 1e-5 ? [rect(grid.x(at) + 0.5, bottom - 2, grid.slot - 1, 2, "c2 solid", more)] : [rect(grid.x(at) + 0.5, bottom - Math.max(1, high), grid.slot - 1, Math.max(1, high), "cw solid", more)];
}

// The context nearest to a pointer, among those that are shown slot by slot.
export function lengthAt(trace, width, x) {
  const grid = rowGrid(width);
  const distance = (length) => Math.abs(grid.x(length - 1) + grid.slot / 2 - x);
  return trace.lengths.reduce((best, length) => (distance(length) < distance(best) ? length : best));
}

// ---- what the model writes ----

export function textMarks(trace, view, width, rows, measure) {
  const left = rowGrid(width).left;
  const prompt = trace.tokens.slice(0, trace.prompt).join("").trim();
  const title = view.run.modelHas ? `What the model writes after “${prompt}”` : "The shipped model has no such K; without it the text is";
  const one = (name, run, y, hue) => {
    const wrong = run.departs ?? run.text.length;
    const letter = measure("0", "m");
    const pieces = textPieces(flatTokens(run.text), textColumns(width - left, measure));
    return [middle(0, y + 8, name, hue), ...pieces.map(({ token, row, column: at, string }) => middle(left + at * letter, y + 8 + row * TEXT_ROW, string, `m pre ${token >= wrong ? "ink cw" : ""}`))];
  };
  const { right } = trace.runs;
  const marks = [text(0, 12, title, "b"), ...one("right", right, 22, "ink c2")];
  if (view.bug === "right") return marks;
  const said = view.run.departs === null ? "✓ the same" : "with the bug";
  return [...marks, ...one(said, view.run, 26 + rows * TEXT_ROW, view.run.departs === null ? "ink c2" : "ink cw")];
}

// ---- the picture ----

export function drawLens(trace, state, width, measure) {
  const [view, layout] = [lensView(trace, state), lensLayout(trace, width, measure)];
  const parts = [
    [controlMarks(trace, state, width, measure), 0],
    [boardMarks(trace, state, width, layout.across, measure), layout.board],
    [rowMarks(trace, view, width, measure), layout.row],
    [lensMarks(trace, view, width, measure), layout.lens],
    [errorMarks(trace, state, width), layout.errors],
    [textMarks(trace, view, width, layout.textRows, measure), layout.texts],
  ];
  return { marks: parts.flatMap(([marks, y]) => move(marks, 0, y)), height: layout.height, label: `Scores, mask and attention weights, right above wrong: ${lensSentence(trace, state)}` };
}

// Up and down choose a bug, + and − the context, h the head; left and right step the pages.
export function keyLens(trace, state, key) {
  const around = (list, chosen, by) => list[(list.indexOf(chosen) + by + list.length) % list.length];
  const up = { ArrowUp: -1, ArrowDown: 1 }[key];
  if (up) return { bug: around(Object.keys(trace.runs), state.bug, up) };
  const longer = { "+": 1, "-": -1 }[key];
  if (longer) return atTail(around(trace.lengths, state.length, longer));
  return key === "h" ? { head: (state.head + 1) % trace.heads } : null;
}

export default playground({
  draw: drawLens,
  drag: (trace, state, width, measure, { x }) => {
    const length = lengthAt(trace, width, x);
    return length === state.length ? null : atTail(length);
  },
  key: keyLens,
  keys: "up and down choose a bug, left and right a page, plus and minus the context, h the head",
  steps: (trace, state) => pagesOf(state.length),
  sentence: lensSentence,
  count: (trace, state) => `page ${lensView(trace, state).page + 1} of ${pagesOf(state.length)}`,
});
