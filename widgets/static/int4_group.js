// Lab 01: one group of 128 weights, the levels of its one scale, and the line where the levels end, which one drags.
// At the top the weights (int4_levels.js), then what becomes of the chosen one; the error by clip and the numbers beside them.
import { circle, fit, line, linear, middle, move, number, percent, rect, significant, text } from "./marks.js";
import { chosenGroup, clipAt, clipText, errorAxis, groupSentence, isMoved, rounded, wordOf } from "./int4_group_data.js";
import { columnAt, groupAxes, levelsHeight, weightsPanel } from "./int4_levels.js";
import { playground } from "./kit.js";

const WIDE_GROUP = 760;
const SIDE = 228;
const COLUMN_SPACE = 24;
const CHAIN_LEFT = 40;
const STAT_ROW = 22;
const errorCurve = { left: 44, right: 8, y: 28, height: 116 };
const CURVE_END = errorCurve.y + errorCurve.height;

// Where the panels lie: [x, y, width]. Wide: curve and numbers stand at the right. Narrow: they lie below, side by side.
export function groupLayout(width) {
  const [chainY, curveHeight] = [levelsHeight + 16, CURVE_END + 24];
  if (width > WIDE_GROUP) {
    const [left, x] = [width - SIDE - COLUMN_SPACE, width - SIDE];
    return { weights: [0, 0, left], chain: [CHAIN_LEFT, chainY, left - CHAIN_LEFT], curve: [x, 0, SIDE], stats: [x, curveHeight + 16, SIDE], height: chainY + 36 };
  }
  const [half, below] = [Math.floor((width - COLUMN_SPACE) / 2), chainY + 56];
  return { weights: [0, 0, width], chain: [CHAIN_LEFT, chainY, width - CHAIN_LEFT], curve: [0, below, half], stats: [half + COLUMN_SPACE, below, half], height: below + curveHeight };
}

// ---- what becomes of the chosen weight ----

export function chainPanel(group, state, width) {
  const clip = clipAt(group, state.step);
  const one = clip.codes ? rounded(group, clip, state.weight) : null;
  const shown = (value, digits) => (one && Number.isFinite(value) ? significant(value, digits) : "–");
  const cells = [
    [`weight ${state.weight}`, significant(group.weights[state.weight], 4), "b"], ["÷ scale", shown(one?.ratio, 3), ""],
    ["nearest code", one ? number(one.code) : "–", "b ink ca"], ["× scale", shown(one?.level, 4), "b"], ["error", shown(one?.error, 3), one?.cut ? "ink cw" : ""],
  ];
  return cells.flatMap(([label, value, cls], at) => [text((at * width) / 5, 12, label, "s mu"), text((at * width) / 5, 30, value, cls)]);
}

// ---- error by clip ----

const curveX = (step, width) => errorCurve.left + (step / 100) * (width - errorCurve.left - errorCurve.right);

// The curve as pairs of neighbouring points that the axis can show: [x1, y1, x2, y2].
export function curveLines(group, width, y, high) {
  const found = group.clips.map(([, , error]) => error);
  return found.slice(1).flatMap((to, at) => {
    const from = found[at];
    return to === null || from === null || Math.min(from, to) > high ? [] : [[curveX(at, width), y(from), curveX(at + 1, width), y(to)]];
  });
}

export function curvePanel(group, state, width, measure) {
  const { low, high, ticks, digits } = errorAxis(group);
  const y = (error) => Math.max(errorCurve.y, linear(low, high, CURVE_END, errorCurve.y)(error));
  const [start, end, best] = [curveX(0, width), curveX(100, width), group.clips[group.best][2]];
  const marks = [text(0, 12, "Error by clip", "b")];
  ticks.forEach((error) => marks.push(line(start, y(error), end, y(error), "rule"), middle(start - 6, y(error), percent(error, digits), "e s mu")));
  marks.push(line(start, CURVE_END, end, CURVE_END, "axis"));
  [0, 0.25, 0.5, 0.75, 1].forEach((clip) => {
    const x = curveX(100 * clip, width);
    marks.push(line(x, CURVE_END, x, CURVE_END + 4, "axis"), text(x, CURVE_END + 18, clip, "c s mu"));
  });
  marks.push(...curveLines(group, width, y, high).map((ends) => line(...ends, "c4 stroke round")), ...hereMarks(group, state, width, y, high, measure));
  if (isMoved(group, state.step)) marks.push(text(width, 12, `least ${percent(best, 1)} at ${clipText(group.best)}`, "e s mu"), circle(curveX(group.best, width), y(best), 5, "c4 stroke"));
  return [...marks, rect(start - 8, errorCurve.y, end - start + 16, errorCurve.height + 20, "hit ew", { drag: "curve" })];
}

function hereMarks(group, state, width, y, high, measure) {
  const [x, error] = [curveX(state.step, width), group.clips[state.step][2]];
  const at = error === null ? errorCurve.y : y(error);
  const words = error === null ? "refused" : `${percent(error, 1)}${error > high ? " ↑" : ""}`;
  const end = x - measure(words, "s b") - 8 > errorCurve.left;
  const above = at > CURVE_END - 18 || (state.step > group.best && at > errorCurve.y + 20); // off the curve and its least point
  const label = middle(x + (end ? -8 : 8), at + (above ? -12 : 11), words, `${end ? "e " : ""}s b ink ca over`);
  return [line(x, at, x, CURVE_END, "sel dash"), circle(x, at, 4, "tag"), label];
}

// ---- numbers ----

export function statsPanel(group, state, width, measure) {
  const clip = clipAt(group, state.step);
  const all = clip.codes?.map((_, index) => rounded(group, clip, index));
  const word = Math.floor(state.weight / 8);
  const rows = [["scale, fp16", `${all ? significant(clip.scale, 4) : "inf"} · 0x${clip.bits}`], ...(all ? groupNumbers(clip, all) : refusedNumbers), [`word of ${8 * word}–${8 * word + 7}`, all ? wordOf(group, clip.codes, word) : "–", "m"]];
  return rows.flatMap(([label, value, cls = ""], row) => {
    const y = row * STAT_ROW;
    const name = fit(label, width - measure(value, cls) - 8, measure);
    return [line(0, y, width, y, "rule"), middle(0, y + STAT_ROW / 2, name), middle(width, y + STAT_ROW / 2, value, `e ${cls}`)];
  });
}

const refusedNumbers = ["error, relative rms", "mean squared error", "worst", "code 0", "off by over ½ step"].map((label) => [label, "–"]);

function groupNumbers(clip, all) {
  const [worst, zeros] = [all[clip.worst], all.filter(({ code }) => code === 0).length];
  const values = [percent(clip.error, 1), significant(clip.mse), `${clip.worst}: ${significant(worst.weight)} → ${significant(worst.level)}`];
  values.push(`${zeros} of ${all.length}, ${percent(zeros / all.length)}`, `${all.filter(({ cut }) => cut).length} of ${all.length}`);
  return refusedNumbers.map(([label], row) => [label, values[row], row ? "" : "b"]);
}

// ---- the picture ----

const groupPanels = { weights: weightsPanel, chain: chainPanel, curve: curvePanel, stats: statsPanel };

export function drawGroup(trace, state, width, measure) {
  const [group, layout] = [chosenGroup(trace, state), groupLayout(width)];
  const marks = Object.entries(groupPanels).flatMap(([name, panel]) => {
    const [x, y, wide] = layout[name];
    return move(panel(group, state, wide, measure), x, y);
  });
  return { marks, height: layout.height, label: `128 weights, the levels of their scale and the error of each: ${groupSentence(trace, state)}` };
}

// The line keeps its distance to the pointer; a column, and a place on the curve, are where the pointer is.
export function dragGroup(trace, state, width, measure, { name, x, y, start }) {
  const [group, layout] = [chosenGroup(trace, state), groupLayout(width)];
  const axes = groupAxes(group, layout.weights[2]);
  if (name === "weight") return { weight: columnAt(group, axes, x) };
  if (name === "clip") return { step: start.state.step + (start.y - y) / axes.stepHeight };
  const [left, , wide] = layout.curve;
  return { step: linear(curveX(0, wide), curveX(100, wide), 0, 100)(x - left) };
}

// Up and down move the clip as a drag does: up is larger.
export function keyGroup(trace, state, key) {
  const up = { ArrowUp: 1, ArrowDown: -1 }[key];
  if (up) return { step: state.step + up };
  const by = { ArrowLeft: -1, ArrowRight: 1 }[key];
  return by ? { weight: Math.max(0, Math.min(chosenGroup(trace, state).weights.length - 1, state.weight + by)) } : null;
}

export default playground({
  draw: drawGroup,
  drag: dragGroup,
  key: keyGroup,
  keys: "drag the line, or step the clip with up and down; left and right choose a weight",
  pace: 70,
  lines: 2,
  steps: (trace, state) => chosenGroup(trace, state).clips.length,
  sentence: groupSentence,
  count: (trace, state) => `clip ${clipText(state.step)}`,
});
