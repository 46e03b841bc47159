// The tail lens's rows and words, as widgets/paged_attention_data.py has them: NaN is "NaN", infinity "∞", null is −∞.
// trace = {heads, lengths, tokens, prompt, table, former, rights: {key: [length][head][page]}, runs: {name: {label, cause, right,
// workers, unwritten, rows, errors, text, departs, modelHas}}}; a page is [worker, id, scores, m, rescale, l, weights, off].
import { percent, significant } from "./marks.js";

const SLOTS = 16;
const lensStep = ([worker, id, scores, m, rescale, l, weights, off]) => ({ worker, id, scores, m, rescale, l, weights, off });

export const pagesOf = (length) => Math.ceil(length / SLOTS);

// The rows of a state; a step beyond the last page counts as the last.
export function lensView(trace, { bug, length, head, step }) {
  const [at, run] = [trace.lengths.indexOf(length), trace.runs[bug]];
  const right = trace.rights[run.right][at][head];
  const wrong = run.rows ? run.rows[at][head] : right;
  const page = Math.min(step, wrong.length - 1);
  const upTo = (steps) => steps.slice(0, page + 1).map(lensStep);
  return { run, bug, length, page, head, pages: wrong.length, last: page === wrong.length - 1, table: trace.table, wrong: upTo(wrong), right: upTo(right) };
}

export const validSlots = (view, page) => Math.max(0, Math.min(SLOTS, view.length - SLOTS * page));

// Whether a slot of the row holds a token of this sequence.
export const isOwn = (view, slot, steps) => slot < view.length && steps[Math.floor(slot / SLOTS)].id === view.table[Math.floor(slot / SLOTS)];

// The weight of every slot so far: workers' own shares until all pages are read.
export function lensShares(view, steps) {
  if (view.last || view.run.workers === 1) return steps.at(-1).weights;
  return steps.flatMap(({ weights }, page) => weights.slice(SLOTS * page));
}

// The weight on slots that hold no token of this sequence.
export function leak(view, steps) {
  const found = lensShares(view, steps);
  return found.includes("NaN") ? "NaN" : found.reduce((sum, weight, slot) => sum + (isOwn(view, slot, steps) ? 0 : weight ?? 0), 0);
}

// What a slot holds: {text, from: "own" | "former" | "nothing"}.
export function slotHolds(trace, view, page, slot) {
  const [token, id] = [SLOTS * page + slot, view.wrong[page].id];
  if (isOwn(view, token, view.wrong)) return { text: trace.tokens[token], from: "own" };
  return view.run.unwritten ? { text: "NaN", from: "nothing" } : { text: trace.former[id][slot], from: "former" };
}

// ---- words ----

export const lensNumber = (value, digits = 3) => (value === null ? "−∞" : typeof value === "string" ? value : significant(value, digits));
export const shareWords = (share, digits = 0) => (typeof share === "string" ? share : percent(share, digits));

export function offWords(off) {
  if (typeof off === "string" || off === null) return "NaN";
  return off < 1e-5 ? "right" : `off ${percent(off, off < 0.0995 ? 1 : 0)}`;
}

export function lensSentence(trace, state) {
  const view = lensView(trace, state);
  const here = view.wrong.at(-1);
  return [
    view.run.label,
    `${view.length} tokens, head ${state.head}`,
    `page ${view.page} → id ${here.id}, ${validSlots(view, view.page)} valid`,
    `m ${lensNumber(here.m)}, l ${lensNumber(here.l)}`,
    `leak ${shareWords(leak(view, view.wrong))}`,
    `${view.last ? "output" : "so far"} ${offWords(here.off)}`,
  ].join(" · ");
}

// A token as the lens shows it: no spaces around, ↵ for a newline.
export function tokenCell(string) {
  const plain = string.replaceAll("\n", "↵").replace(/^ +| +$/g, "");
  return plain || "␣".repeat(Math.min(3, string.length));
}

// Tokens of a text that runs on in one line: ↵ for a newline, one space for several.
export function flatTokens(texts) {
  const flat = texts.map((string) => string.replaceAll("\n", "↵").replace(/ +/g, " "));
  const first = Math.max(0, flat.findIndex((string) => string.trim()));
  return flat.map((string, at) => (at < first ? "" : at === first ? string.trimStart() : string));
}
