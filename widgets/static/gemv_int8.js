// Lab 03: FP16 against INT8 activations. Above a bar a variant, parted by what takes the time; below how much longer than FP16
// each takes, over the cost of a launch, which one drags. The model is gemv_int8_model.js.
import { circle, line, linear, middle, move, path, rect, significant, tag, text } from "./marks.js";
import { againstWords, clampLaunch, crossoverOf, fastestVariant, int8Parts, int8Segments, int8Sentence, int8Stage, int8Tools, keyInt8, longestTime, variantTime } from "./gemv_int8_model.js";
import { playground } from "./kit.js";

const WIDE_INT8 = 760;
const [KEY_TOP, BARS_TOP, INT8_ROW, INT8_BAR] = [40, 68, 36, 20];
const INT8_COLUMNS = [136, 68, 0]; // right ends of time, difference, error: px from the right
const launchPlot = { top: 236, head: 44, height: 150, left: 52, names: 72, below: 56 };
const int8Hues = { launch: "c4", quantize: "c2", read: "c1", unpack: "c3" };

export const INT8_HEIGHT = launchPlot.top + launchPlot.head + launchPlot.height + launchPlot.below;

// Where bars begin and end.
export const int8BarSpan = (width) => [width > WIDE_INT8 ? 148 : 132, width - INT8_COLUMNS[0] - 64];

// ---- the stage, and what a colour stands for ----

function stageMarks(trace, state, measure) {
  let x = 40;
  const chips = Object.keys(trace.stages).flatMap((stage) => {
    const [start, on, wide] = [x, stage === state.stage, Math.ceil(measure(stage, "s b")) + 12];
    const { products } = trace.stages[stage];
    const more = { set: { stage }, title: products > 1 ? `all ${products} products of a token` : `${stage}, one product` };
    x += wide + 4;
    return [rect(start, 0, wide, 24, on ? "ca fill" : "empty", more), middle(start + wide / 2, 12, stage, `c s ${on ? "b ink ca" : ""}`, more), rect(start, 0, wide, 24, "hit", more)];
  });
  return [middle(0, 12, "stage", "s mu"), ...chips];
}

function keyMarks(width, measure) {
  let x = 0;
  const marks = Object.entries(int8Parts).flatMap(([part, words]) => {
    const start = x;
    x += measure(words, "s") + 32;
    return [rect(start, KEY_TOP + 2, 12, 12, `${int8Hues[part]} fill`), middle(start + 18, KEY_TOP + 8, words, "s mu")];
  });
  const heads = ["µs", "to FP16", "error"].map((head, at) => middle(width - INT8_COLUMNS[at], KEY_TOP + 8, head, "e s mu"));
  return [...marks, ...heads];
}

// ---- a bar a variant ----

function variantRow(trace, state, name, width, measure) {
  const [title, words] = trace.names[name];
  const bold = name === fastestVariant(trace, state) ? "b" : "";
  const values = [significant(variantTime(trace, state, name)), againstWords(trace, state, name), significant(int8Stage(trace, state).errors[name], 2)];
  return [
    line(0, 0, width, 0, "rule"), text(0, 15, `${title}${bold ? ": fastest" : ""}`, bold), text(0, 29, words, "s mu"),
    ...barMarks(trace, state, name, width, measure), ...values.map((value, at) => middle(width - INT8_COLUMNS[at], INT8_ROW / 2, value, `e ${bold}`)),
  ];
}

// One scale for every cost of a launch, so that a longer bar is a longer time.
function barMarks(trace, state, name, width, measure) {
  const [left, right] = int8BarSpan(width);
  let x = left;
  return int8Segments(trace, state, name).flatMap(([part, us]) => {
    const [start, wide] = [x, (us / longestTime(trace, state)) * (right - left)];
    x += wide;
    const words = significant(us);
    const label = wide > measure(words, "s") + 8 ? [middle(start + wide / 2, INT8_ROW / 2, words, `c s ink ${int8Hues[part]}`)] : [];
    return [rect(start, (INT8_ROW - INT8_BAR) / 2, wide, INT8_BAR, `${int8Hues[part]} fill`, { title: `${int8Parts[part]}: ${words} µs` }), ...label];
  });
}

// ---- over the cost of a launch ----

const LINES = ["dp4a_separate", "dp4a_fused", "dp4a_limbs"];
const moreThanFp16 = (trace, state, name, launch) => variantTime(trace, state, name, launch) - variantTime(trace, state, "fp16", launch);

// 1, 2 or 5 times a power of ten, so that few steps cover `range`.
const roundStep = (range) => {
  const size = 10 ** Math.floor(Math.log10(range / 3));
  return [1, 2, 5, 10].find((times) => times * size >= range / 3) * size;
};

export function launchAxes(trace, state, width) {
  const { top, head, height, left, names } = launchPlot;
  const values = [0, ...LINES.flatMap((name) => [0, trace.most].map((launch) => moreThanFp16(trace, state, name, launch)))];
  const step = roundStep(Math.max(...values) - Math.min(...values));
  const [low, high] = [Math.floor(Math.min(...values) / step) * step, Math.ceil(Math.max(...values) / step) * step];
  const [start, end] = [top + head, top + head + height];
  const [right, count] = [width - names, Math.round((high - low) / step)];
  return {
    left, right, top: start, bottom: end, x: linear(0, trace.most, left, right), y: linear(low, high, end, start),
    launchAt: linear(left, right, 0, trace.most), ticks: Array.from({ length: count + 1 }, (_, at) => Number((low + at * step).toPrecision(6))),
  };
}

const signedTick = (value) => `${value > 0 ? "+" : ""}${value}`.replace("-", "−");

function plotFrame(trace, state, axes, width) {
  const { left, right, top, bottom } = axes;
  const marks = [text(0, launchPlot.top + 12, "µs more than FP16", "b"), text(width, launchPlot.top + 12, "below 0: faster than FP16", "e s mu")];
  axes.ticks.forEach((tick) => marks.push(line(left, axes.y(tick), right, axes.y(tick), tick ? "rule" : "strong"), middle(left - 8, axes.y(tick), signedTick(tick), "e s mu")));
  for (let us = 0; us <= trace.most; us += 1) marks.push(line(axes.x(us), bottom, axes.x(us), bottom + 4, "axis"), text(axes.x(us), bottom + 16, us, "c s mu"));
  trace.launches.forEach(({ name, us }, at) => {
    const more = { set: { launch: us }, title: `${name}: ${significant(us)} µs${name === "eager" ? ", quoted" : ", recorded"}` };
    marks.push(line(axes.x(us), top, axes.x(us), bottom, "axis dash"), text(axes.x(us) + [-2, 2, 0][at], bottom + 32, name, `${["e", "", "c"][at]} s`, more));
  });
  return [...marks, text(left, bottom + 50, "cost of a launch, µs; every kernel adds it", "s mu")];
}

// Names at the right ends of the lines, moved apart where they would touch.
export function spread(places, gap, low, high) {
  const order = places.map((y, at) => ({ y, at })).sort((a, b) => a.y - b.y);
  order.forEach((one, at) => { one.y = Math.max(one.y, at ? order[at - 1].y + gap : low); });
  order.reverse().forEach((one, at) => { one.y = Math.min(one.y, at ? order[at - 1].y - gap : high); });
  return places.map((_, at) => order.find((one) => one.at === at).y);
}

function plotLines(trace, state, axes) {
  const at = (name, launch) => axes.y(name === "fp16" ? 0 : moreThanFp16(trace, state, name, launch));
  const marks = LINES.map((name) => path(`M${axes.left} ${at(name, 0).toFixed(1)}L${axes.right} ${at(name, trace.most).toFixed(1)}`, `strong round${name === "dp4a_limbs" ? " dash" : ""}`));
  const names = ["fp16", ...LINES];
  const places = spread(names.map((name) => at(name, trace.most)), 14, axes.top, axes.bottom);
  const fastest = fastestVariant(trace, state);
  names.forEach((name, place) => marks.push(middle(axes.right + 8, places[place], trace.names[name][0], name === fastest ? "b" : "")));
  return marks;
}

function plotPlayhead(trace, state, axes, measure) {
  const x = axes.x(state.launch);
  const words = `launch ${significant(state.launch)} µs`;
  const wide = Math.ceil(measure(words, "s b")) + 14;
  const left = Math.min(axes.right - wide, Math.max(axes.left, x - wide / 2));
  const marks = [line(x, axes.top - 4, x, axes.bottom, "sel"), ...tag(left, axes.top - 24, words, measure, wide)];
  LINES.forEach((name) => marks.push(circle(x, axes.y(moreThanFp16(trace, state, name, state.launch)), 4, "tag")));
  return marks;
}

// Where FP16 and the separate kernel take the same time.
function evenMark(trace, state, axes, measure) {
  const even = crossoverOf(trace, state);
  if (even <= 0 || even >= trace.most) return [];
  const more = { set: { launch: clampLaunch(trace, even) }, title: `FP16 and separate are even at ${significant(even)} µs` };
  const [x, y, words] = [axes.x(even), axes.y(0), `even at ${significant(even)} µs`];
  const wide = Math.ceil(measure(words, "s")) + 8;
  const left = Math.min(axes.right - wide, Math.max(axes.left, x - wide / 2));
  return [circle(x, y, 7, "strong round", more), rect(left, y - 26, wide, 16, "paper"), middle(left + wide / 2, y - 18, words, "c s over")];
}

function plotMarks(trace, state, width, measure) {
  const axes = launchAxes(trace, state, width);
  const hit = rect(axes.left, axes.top - 24, axes.right - axes.left, axes.bottom - axes.top + 24, "hit ew", { drag: "launch", title: "drag the cost of a launch" });
  return [...plotFrame(trace, state, axes, width), ...plotLines(trace, state, axes), ...plotPlayhead(trace, state, axes, measure), hit, ...evenMark(trace, state, axes, measure)];
}

// ---- the picture ----

export function drawInt8(trace, state, width, measure) {
  const rows = Object.keys(trace.names).flatMap((name, at) => move(variantRow(trace, state, name, width, measure), 0, BARS_TOP + at * INT8_ROW));
  const marks = [...stageMarks(trace, state, measure), ...keyMarks(width, measure), ...rows, ...plotMarks(trace, state, width, measure)];
  return { marks, height: INT8_HEIGHT, label: `Time of each variant by its parts, and what it takes longer than FP16 over the cost of a launch. ${int8Sentence(trace, state)}` };
}

export function dragInt8(trace, state, width, measure, { x }) {
  return { launch: clampLaunch(trace, launchAxes(trace, state, width).launchAt(x)) };
}

export default playground({
  draw: drawInt8,
  drag: dragInt8,
  key: keyInt8,
  keys: "left and right change the cost of a launch, page up and down ten times as much, up and down choose a stage; letters act as the buttons say",
  tools: int8Tools,
  lines: 2,
  steps: () => 0,
  sentence: int8Sentence,
  count: () => "",
});
