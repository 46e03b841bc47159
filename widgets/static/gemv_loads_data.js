// The loads of a warp, from the kernels' own index expressions: trees such as ["+", ["*", "row", ["/", "k", 2]], 16] in the
// trace, evaluated here for any lane and iteration. The words are those of widgets/gemv_loads_text.py. No DOM.
import { number, percent } from "./marks.js";

export const REQUESTS_SHOWN = 2;

const operations = {
  "+": (a, b) => a + b,
  "-": (a, b) => a - b,
  "*": (a, b) => a * b,
  "/": (a, b) => Math.floor(a / b),
  "%": (a, b) => a % b,
  "<": (a, b) => Number(a < b),
  "<=": (a, b) => Number(a <= b),
  ">": (a, b) => Number(a > b),
  ">=": (a, b) => Number(a >= b),
  "==": (a, b) => Number(a === b),
};

// The value of an expression, for numbers by its names; `/` rounds down, as in C for numbers that are not negative.
export function evaluate(tree, at) {
  if (typeof tree === "number") return tree;
  if (typeof tree === "string") return at[tree];
  return operations[tree[0]](evaluate(tree[1], at), evaluate(tree[2], at));
}

const range = (first, end) => Array.from({ length: end - first }, (_, place) => first + place);

// ---- one iteration of one warp ----

function loadOf(trace, pattern, at) {
  const row = evaluate(pattern.row, at);
  const place = { ...at, row };
  if (!evaluate(pattern.active.tree, place) || row >= trace.n) return null;
  const start = evaluate(pattern.byte.tree, place);
  const offset = start - row * evaluate(trace.rowBytes, at);
  return { lane: at.lane, row, start, size: evaluate(pattern.size, place), offset, group: evaluate(trace.group.tree, { offset }), weight: evaluate(trace.weight, { offset }) };
}

function requestOf(trace, loads, shift) {
  const touched = loads.flatMap(({ start, size }) => range(Math.floor((start + shift) / trace.sector), Math.floor((start + shift + size - 1) / trace.sector) + 1));
  return { loads, sectors: [...new Set(touched)].sort((a, b) => a - b) };
}

// A new pattern or k comes a message before its step, so that a step may be past the end for a moment.
export function loadScene(trace, given) {
  const pattern = trace.patterns[given.pattern];
  const state = { ...given, step: Math.min(given.step, pattern.iterations[given.k] - 1) };
  const at = { k: state.k, n: trace.n, blocks: trace.blocks, round: 0, i: state.step, chunk: state.step, block: Math.floor(state.warp / pattern.warps), warp: state.warp % pattern.warps };
  const lanes = range(0, pattern.bulk ? 1 : trace.lanes);
  const requests = pattern.rows[state.k]
    .map((j) => requestOf(trace, lanes.map((lane) => loadOf(trace, pattern, { ...at, lane, j })).filter(Boolean), state.shift))
    .filter(({ loads }) => loads.length);
  const lane = pattern.bulk ? 0 : state.lane;
  const all = requests.flatMap(({ loads }) => loads);
  const chosen = all.filter((load) => load.lane === lane);
  const shown = chosen[0] ?? all[0];
  return {
    trace, state, pattern, at, lane, requests, chosen, shown,
    inRow: all.filter(({ row }) => row === shown.row),
    moved: trace.sector * requests.reduce((sum, { sectors }) => sum + sectors.length, 0),
    used: all.reduce((sum, { size }) => sum + size, 0),
  };
}

// ---- words ----

const between = (first, last) => (first === last ? `${first}` : `${first}–${last}`);
const short = (value, digits) => String(Number(number(value, digits)));
const inBytes = (count) => (count < 1e6 ? `${number(count / 1e3, 1)} kB` : `${number(count / 1e6, 2)} MB`);

export const shareWords = ({ used, moved }) => percent(used / moved, 1).replace(".0 %", " %");
export const iterationWords = ({ pattern, state }) => `${pattern.bulk ? "chunk" : "iteration"} ${state.step}`;
export const laneCalled = ({ pattern, lane }) => (pattern.bulk ? "producer" : `lane ${lane}`);

// An expression with the numbers put in for its names.
export const numbersIn = (text, at) => text.replace(/[a-z]\w*/g, (name) => at[name]);

export function sectorsWords({ requests }) {
  const [{ sectors }] = requests;
  return requests.length === 1 ? `${sectors.length} sectors` : `${requests.length} × ${sectors.length} sectors`;
}

export function loadWords(scene, loads) {
  if (!loads.length) return `${laneCalled(scene)}: idle, past the end of the row`;
  const [{ row, start, size, group }] = loads;
  const again = loads.length > 1 ? `, and ${loads.length - 1} more` : "";
  if (scene.pattern.bulk) return `${laneCalled(scene)}: ${size} bytes from byte ${start}, row ${row}${again}`;
  return `${laneCalled(scene)}: row ${row}, bytes ${between(start, start + size - 1)}, group ${group}${again}`;
}

export function loadsSentence(trace, state) {
  const scene = loadScene(trace, state);
  const kind = `${state.pattern}, K ${state.k}${state.shift ? `, + ${state.shift} B` : ""}`;
  return [kind, iterationWords(scene), loadWords(scene, scene.chosen), `${sectorsWords(scene)}, ${shareWords(scene)} used`].join(" · ");
}

// Three rows [name, text]: the byte's expression, it with its numbers, the group; or why the lane idles.
export function formulaWords({ trace, pattern, at, lane, chosen, shown }) {
  const place = { ...at, lane, row: shown.row };
  if (!chosen.length) return [["reads if", pattern.active.text], ["", `${numbersIn(pattern.active.text, place)} is false`], ["", "the row has ended"]];
  const { offset, group, weight, size, start } = shown;
  return [
    ["byte", pattern.byte.text],
    ["", `${numbersIn(pattern.byte.text, place)} = ${start}`],
    ["group", `${trace.group.text} = ${numbersIn(trace.group.text, { offset })} = ${group}, weights ${weight}–${weight + 2 * Math.min(size, evaluate(trace.rowBytes, at) - offset) - 1} of the row`],
  ];
}

// [start, end) of what this iteration reads of the row on view.
export function partOfRow({ trace, at, inRow }) {
  const end = Math.max(...inRow.map(({ offset, size }) => offset + size));
  return [Math.min(...inRow.map(({ offset }) => offset)), Math.min(end, evaluate(trace.rowBytes, at))];
}

// Under the sectors of a request: which rows, how many sectors and lines; and where it begins.
export function requestWords({ trace, state, pattern }, { loads, sectors }) {
  const lines = new Set(sectors.map((sector) => Math.floor((sector * trace.sector) / trace.line))).size;
  const [{ row, start, size }] = loads;
  const last = pattern.bulk ? Math.floor((start + size - 1) / evaluate(trace.rowBytes, state)) : loads.at(-1).row;
  const rows = row === last ? `row ${row}` : `rows ${row} to ${last}`;
  const late = state.shift ? ` · the matrix begins ${state.shift} B late` : "";
  return [`${rows}: ${sectors.length} sectors of ${trace.sector} B in ${lines} line${lines > 1 ? "s" : ""} of ${trace.line} B`, `from byte ${start}${late}`];
}

// Over the bar: what was used and what moved for nobody.
export function barWords({ used, moved }) {
  return `${used} B used of ${moved} B moved${moved > used ? `, ${moved - used} B for nobody` : ""}`;
}

// In place of the lanes, where none of them reads.
export const producerWords = ({ requests: { length }, shown }) => `one thread asks for ${length} ${length === 1 ? "copy" : "copies"} of ${shown.size} B; no lane of a warp reads this memory`;

// How the matrix is read, and how many requests are drawn where that is not all.
export const patternWords = ({ pattern, requests }) => `${pattern.words}${requests.length > REQUESTS_SHOWN ? `, ${REQUESTS_SHOWN} of ${requests.length} shown` : ""}`;

export function rowWords(scene) {
  const { trace, state, pattern, shown } = scene;
  const [bytes, [start, end]] = [evaluate(trace.rowBytes, state), partOfRow(scene)];
  const count = pattern.bulk ? String(pattern.iterations[state.k]) : short(bytes / pattern.stride, 3);
  const unit = `${pattern.bulk ? "chunk" : "iteration"}${count === "1" ? "" : "s"}`;
  return [`row ${shown.row}: ${bytes} bytes, ${count} ${unit}`, `${iterationWords(scene)}: ${between(start, end - 1)}`];
}

export function totalWords({ trace, state, pattern }) {
  const [used, moved] = pattern.totals[state.k][state.shift];
  return `${trace.n} × ${state.k} without a cache: ${inBytes(used)} used, ${inBytes(moved)} moved, ${short(moved / used, 2)} ×`;
}

// ---- keys and buttons ----

const nextOf = (list, value, by = 1) => list[(list.indexOf(value) + by + list.length) % list.length];

// A change of pattern or row length keeps the iteration where there is one.
function kept(trace, state, values) {
  const { pattern, k, step } = { ...state, ...values };
  return { ...values, step: Math.min(step, trace.patterns[pattern].iterations[k] - 1) };
}

export function loadTools(trace, state) {
  const names = Object.keys(trace.patterns);
  const pattern = nextOf(names, state.pattern);
  const [k, shift, warp] = [nextOf(trace.ks, state.k), nextOf(trace.shifts, state.shift), (state.warp + 1) % trace.warps];
  return [
    { label: "Next pattern", key: "p", title: `now ${trace.patterns[state.pattern].words}; next ${trace.patterns[pattern].words}`, values: kept(trace, state, { pattern }) },
    { label: "Next K", key: "k", title: `now ${state.k} weights a row; next ${k}`, values: kept(trace, state, { k }) },
    { label: "Shift by 16 B", key: "s", title: state.shift ? "shifted; let it begin at a line again" : "let the matrix begin 16 bytes later", values: { shift } },
    { label: "Next warp", key: "w", title: `now ${trace.patterns[state.pattern].bulk ? "block" : "warp"} ${state.warp}; next ${warp}`, values: { warp } },
  ];
}

export function keyLoads(trace, state, key) {
  const by = { ArrowUp: -1, ArrowDown: 1 }[key];
  if (by) return { lane: Math.max(0, Math.min(trace.lanes - 1, state.lane + by)) };
  return loadTools(trace, state).find((tool) => tool.key === key)?.values ?? null;
}
