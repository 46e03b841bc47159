// The tail lens's row: 64 slots on one x axis for scores, mask, right weights, wrong weights and the numbers of each page.
import { fit, line, linear, middle, move, path, rect, text } from "./marks.js";
import { isOwn, leak, lensNumber, lensShares, offWords, shareWords, slotHolds, validSlots } from "./paged_attention_data.js";

const ROW_PAGES = [0, 1, 2, 3];
const PAGE_GAP = 12;
const rowPlaces = { heads: 0, scores: 26, mask: 120, right: 138, wrong: 204, numbers: 286, end: 374 };
const [SCORE_HEIGHT, SCORE_TOP, WEIGHT_HEIGHT] = [86, 20, 34];
const NUMBER_ROW = 16;
export const ROW_HEIGHT = rowPlaces.end;

// The columns: x of a slot and of a page.
export function rowGrid(width) {
  const left = width > 760 ? 132 : 84;
  const slot = (width - left - 3 * PAGE_GAP) / 64;
  const pageX = (page) => left + page * (16 * slot + PAGE_GAP);
  return { width, left, slot, pageWidth: 16 * slot, pageX, x: (at) => pageX(Math.floor(at / 16)) + (at % 16) * slot };
}

const column = (grid, at, y, height, cls, more) => rect(grid.x(at) + 0.5, y, grid.slot - 1, height, cls, more);

export function pageHeads(trace, view, grid) {
  return ROW_PAGES.flatMap((page) => {
    const [x, here] = [grid.pageX(page), page === view.page];
    const id = view.wrong[page]?.id ?? trace.table[page];
    const stale = id !== trace.table[page];
    const who = view.run.workers > 1 ? `worker ${page}` : `page ${page}`;
    const name = page < view.pages ? `${who} · id ${id}${stale ? `, not ${trace.table[page]}` : ""}` : view.run.workers > 1 ? `${who}: no page` : "no page";
    const cls = page < view.pages ? `${here ? "b " : ""}${stale ? "ink cw" : ""}` : view.run.workers > 1 ? "ink cw" : "mu";
    const bar = here ? rect(x, 18, grid.pageWidth, 3, "tag") : line(x, 20, x + grid.pageWidth, 20, "axis");
    return [text(x + grid.pageWidth / 2, 12, name, `c ${cls}`), bar, rect(x, 0, grid.pageWidth, 24, "hit", { set: page < view.pages ? { step: page } : undefined })];
  });
}

// ---- scores ----

const finite = (values) => values.filter((value) => typeof value === "number");

export function scoreScale(view) {
  const all = finite([...view.wrong, ...view.right].flatMap(({ scores, m }) => [...scores, m]));
  const [low, high] = [Math.min(0, ...all), Math.max(0, ...all)];
  const y = linear(high, low === high ? low - 1 : low, SCORE_TOP, SCORE_HEIGHT - 6);
  return { low, high, y };
}

export function scoreMarks(trace, view, grid) {
  const { low, high, y } = scoreScale(view);
  const marks = [text(0, 34, "score"), text(0, 50, "q·k / √128", "s mu")];
  [low, 0, high].filter((value, at) => at === 1 || Math.abs(y(value) - y(0)) > 14).forEach((value) => {
    marks.push(line(grid.left, y(value), grid.width, y(value), value ? "rule" : "axis"), middle(grid.left - 8, y(value), lensNumber(value, 2), "e s mu"));
  });
  view.wrong.forEach((step, page) => step.scores.forEach((score, slot) => marks.push(...scoreBar(view, grid, page, slot, score, y, trace))));
  view.wrong.forEach(({ m }, page) => {
    if (typeof m !== "number") return;
    const [from, to] = [grid.pageX(page), grid.pageX(page) + grid.pageWidth];
    marks.push(line(from, y(m), to, y(m), "sel"));
    if (page === view.page) marks.push(middle(to - 2, y(m) - 9, `max m ${lensNumber(m)}`, "e s b ink ca over"));
  });
  return [...marks, ...waiting(view, grid, 0, SCORE_HEIGHT)];
}

function scoreBar(view, grid, page, slot, score, y, trace) {
  const at = 16 * page + slot;
  const right = view.right[page].scores[slot];
  const title = `slot ${slot}: ${slotHolds(trace, view, page, slot).text.trim() || "spaces"}, score ${lensNumber(score)}${right === score ? "" : `, right ${lensNumber(right)}`}`;
  if (score === null) return [column(grid, at, 0, SCORE_HEIGHT, right === null ? "hatch" : "hatchw", { title })];
  if (typeof score === "string") return [column(grid, at, 0, SCORE_HEIGHT, "hatchw", { title })];
  const [top, bottom] = [Math.min(y(score), y(0)), Math.max(y(score), y(0))];
  const same = right !== null && Math.abs(right - score) < 0.006 * Math.max(1, Math.abs(right));
  return [column(grid, at, top, Math.max(same ? 1 : 3, bottom - top), same ? "c4 solid" : "hatchw", { title })];
}

// Pages that are not read yet.
function waiting(view, grid, y, height) {
  return ROW_PAGES.filter((page) => page > view.page && page < view.pages).map((page) => rect(grid.pageX(page), y, grid.pageWidth, height, "wait"));
}

export function maskMarks(view, grid) {
  const marks = [middle(0, 6, "mask")];
  for (let page = 0; page < view.pages; page += 1) {
    const valid = validSlots(view, page);
    if (valid) marks.push(rect(grid.pageX(page), 0, valid * grid.slot, 12, "c4 fill"));
    if (valid < 16) marks.push(rect(grid.pageX(page) + valid * grid.slot, 0, (16 - valid) * grid.slot, 12, "hatch"));
  }
  return marks;
}

// ---- weights ----

// The largest finite weight of both rows, so that they have one scale.
export const topWeight = (view) => Math.max(0.01, ...finite([...lensShares(view, view.right), ...lensShares(view, view.wrong)]));

export function weightMarks(view, grid, steps, top) {
  const marks = [line(grid.left, WEIGHT_HEIGHT, grid.width, WEIGHT_HEIGHT, "axis"), line(grid.left, 0, grid.width, 0, "rule"), middle(grid.left - 8, 4, shareWords(top), "e s mu")];
  marks.push(text(0, WEIGHT_HEIGHT - 14, "weight"), text(0, WEIGHT_HEIGHT, grid.left > 100 ? "e^(s − m) / l" : "e^(s−m)/l", "s mu"));
  lensShares(view, steps).forEach((weight, slot) => {
    const own = isOwn(view, slot, steps);
    if (weight === "NaN") marks.push(column(grid, slot, 0, WEIGHT_HEIGHT, "hatchw"));
    else if (weight > 0) marks.push(column(grid, slot, WEIGHT_HEIGHT * (1 - weight / top), (WEIGHT_HEIGHT * weight) / top, own ? "c4 solid" : "hatchw", { title: `slot ${slot % 16}: ${shareWords(weight, 1)}` }));
  });
  return [...marks, ...waiting(view, grid, 0, WEIGHT_HEIGHT)];
}

const cross = path("M1 7l9 9m0 -9l-9 9", "cw stroke round");
const check = path("M1 12l4 4 7 -9", "c2 stroke round");

// Where the weight goes that no token of this sequence gets.
const leakWords = (share, grid) => share === "NaN" ? "every weight is NaN" : `${shareWords(share)} ${grid.left > 100 ? "of the weight " : ""}leaks to slots that are not its own`;

export function rightBlock(view, grid, top) {
  const here = view.right.at(-1);
  const words = view.last ? leakWords(0, grid) : `so far ${offWords(here.off)}`;
  return [check, text(20, 16, "right", "b ink c2"), text(grid.width, 16, words, "e"), ...move(weightMarks(view, grid, view.right, top), 0, 24)];
}

export function wrongBlock(view, grid, top, measure) {
  if (view.bug === "right") return [text(20, 16, "switch a bug on above, and its row is drawn here", "mu")];
  const [here, share] = [view.wrong.at(-1), leak(view, view.wrong)];
  const words = `${leakWords(share, grid)} · ${view.last ? "output" : "so far"} ${offWords(here.off)}`;
  const fine = !view.last || offWords(here.off) === "right";
  const cause = fit(view.run.cause, grid.width - 20, measure, "s");
  return [cross, text(20, 16, view.run.label, "b ink cw"), text(grid.width, 16, words, fine ? "e" : "e b ink cw"), text(20, 32, cause, "s mu"), ...move(weightMarks(view, grid, view.wrong, top), 0, 42)];
}

// ---- the numbers of each page ----

const numberRows = [["max m", "m"], ["× rescale", "rescale"], ["sum l", "l"], ["acc/l off by", "off"]];

export function numberMarks(view, grid) {
  const both = view.bug !== "right";
  const marks = numberRows.map(([name], row) => middle(0, 22 + row * NUMBER_ROW, name));
  view.right.forEach((right, page) => {
    const x = (part) => grid.pageX(page) + grid.pageWidth * (both ? part : 0.5);
    if (both) marks.push(middle(x(0.25), 4, "right", "c s mu"), middle(x(0.75), 4, "bug", "c s mu"));
    numberRows.forEach(([, name], row) => {
      const [a, b] = [right, view.wrong[page]].map((step) => cellWords(name, step, combines(view, page)));
      const y = 22 + row * NUMBER_ROW;
      marks.push(middle(x(0.25), y, a, "c s m"));
      if (both) marks.push(middle(x(0.75), y, b, a === b ? "c s m mu" : "c s m b ink cw"));
      if (both && a !== b) marks.push(line(x(0.75) - 22, y + 8, x(0.75) + 22, y + 8, "cw stroke"));
    });
  });
  return [...marks, ...idleWorkers(view, grid)];
}

// A worker without a page has the state that it began with.
function idleWorkers(view, grid) {
  const idle = ROW_PAGES.filter((page) => page >= view.pages && view.run.workers > 1 && view.last);
  return idle.flatMap((page) => ["−∞", "–", "0", "0 / 0 = NaN"].map((words, row) => middle(grid.pageX(page) + grid.pageWidth / 2, 22 + row * NUMBER_ROW, words, "c s m ink cw")));
}

// The last of several workers shows what all of them give together.
const combines = (view, page) => view.run.workers > 1 && view.last && page === view.pages - 1;

function cellWords(name, step, combined) {
  if (name === "off") return (combined ? "all: " : "") + offWords(step.off).replace("off ", "").replace("right", "0 %");
  return name === "rescale" && step.rescale === 0 ? "–" : lensNumber(step[name]);
}

export function rowMarks(trace, view, width, measure) {
  const [grid, top] = [rowGrid(width), topWeight(view)];
  const parts = { heads: pageHeads(trace, view, grid), scores: scoreMarks(trace, view, grid), mask: maskMarks(view, grid), right: rightBlock(view, grid, top), wrong: wrongBlock(view, grid, top, measure), numbers: numberMarks(view, grid) };
  return Object.entries(parts).flatMap(([name, marks]) => move(marks, 0, rowPlaces[name]));
}
