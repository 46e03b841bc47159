// The roofline itself: TB/s over integer instructions a weight, the limits as lines, the model's point and the ladder's kernels.
import { circle, fit, line, linear, middle, path, rect, significant, text } from "./marks.js";
import { chosenRung, counterLines, micros, rateOf, recordedSeconds, rungSeconds, rungWords, shownRungs, stageTime, unpacks } from "./gemv_model.js";

const roofPlot = { left: 36, top: 24, height: 250, ops: [8, 0.25], rates: [0.1, 8], below: 78 };
const wayNames = { shift_mask: "I2F", prmt: "prmt", lop3: "lop3", int8: "int8" };
const WAYS_HEIGHT = 34; // the names of the ways stand above the axis
export const ROOF_HEIGHT = roofPlot.top + roofPlot.height + roofPlot.below;

export function roofAxes(width) {
  const { left, top, height, ops, rates } = roofPlot;
  const place = ([from, to], start, end) => { const map = linear(Math.log(from), Math.log(to), start, end); return (value) => map(Math.log(value)); };
  const [x, y] = [place(ops, left, width), place(rates, top + height, top)];
  return {
    left, right: width, top, bottom: top + height,
    x: (value) => (value > 0 ? x(value) : width),
    y: (rate) => Math.max(top, Math.min(top + height, y(rate))),
    opsAt: (at) => Math.exp(linear(left, width, Math.log(ops[0]), Math.log(ops[1]))(at)),
  };
}

// Where reading, unpacking and multiplying meet, and the ends: with `edge` a curve needs more places.
function roofPath(trace, state, axes, edge) {
  const time = stageTime(trace, state);
  const knee = (Math.max(time.memory, time.arithmetic) / time.instructions) * state.ops;
  const places = Array.from({ length: 97 }, (_, at) => axes.opsAt(axes.left + (at / 96) * (axes.right - axes.left)));
  if (knee > roofPlot.ops[1] && knee < roofPlot.ops[0]) places.push(knee);
  const points = places.sort((a, b) => b - a).map((ops) => {
    const one = stageTime(trace, state, ops);
    return `${axes.x(ops).toFixed(1)} ${axes.y(one.bytes.total / (one.seconds - (edge ? 0 : one.edge)) / 1e12).toFixed(1)}`;
  });
  return `M${points.join("L")}`;
}

export function roofPanel(trace, state, width, measure) {
  const axes = roofAxes(width);
  const counters = counterLines(trace, state).map((words, at) => text(0, axes.bottom + 54 + 15 * at, fit(words, width, measure), chosenRung(trace, state) ? "s" : "s mu"));
  return [...roofFrame(trace, state, axes, measure), ...counters, ...roofLimits(trace, state, axes, measure), rect(axes.left, axes.top, width - axes.left, roofPlot.height, "hit ew", { drag: "ops" }), ...roofPoints(trace, state, axes, measure)];
}

function roofFrame(trace, state, axes) {
  const { left, right, bottom } = axes;
  const marks = [text(0, 12, "TB/s that move", "s mu")];
  [5, 2, 1, 0.5, 0.2, 0.1].forEach((rate) => marks.push(line(left, axes.y(rate), right, axes.y(rate), rate === 0.1 ? "axis" : "rule"), middle(left - 8, axes.y(rate), rate, "e s mu")));
  [8, 4, 2, 1, 0.5, 0.25].forEach((ops) => marks.push(line(axes.x(ops), bottom, axes.x(ops), bottom + 4, "axis"), text(axes.x(ops), bottom + 16, ops, `${ops === 0.25 ? "e" : "c"} s mu`)));
  marks.push(text(left, bottom + 34, "integer instructions a weight, or half of all", "s mu"), text(right, bottom + 34, "fewer →", "e s mu"));
  Object.entries(trace.ways).forEach(([way, ops]) => {
    const more = { set: { ops, rung: "" }, title: `${wayNames[way]}: as long as ${significant(ops, 4)} integer instructions a weight` };
    marks.push(line(axes.x(ops), bottom - 6, axes.x(ops), bottom, "axis"), text(axes.x(ops), bottom - 10, wayNames[way], "c s mu over", more));
  });
  return marks;
}

function roofLimits(trace, state, axes, measure) {
  const gpu = trace.gpus[state.gpu];
  const time = stageTime(trace, state);
  const flat = time.arithmetic > time.memory ? "arithmetic" : "memory";
  const rate = time.bytes.total / time[flat] / 1e12;
  const marks = [path(roofPath(trace, state, axes, false), "strong round")];
  if (state.edge) marks.push(path(roofPath(trace, state, axes, true), "axis dash round"));
  const reading = axes.y(gpu.bandwidth / 1e12);
  if (flat === "arithmetic") marks.push(line(axes.left, reading, axes.right, reading, "axis dash"));
  if (axes.y(rate) - reading > 22) marks.push(text(axes.right, reading - 6, `reading: ${significant(gpu.bandwidth / 1e12)} TB/s`, "e s mu over"));
  const words = flat === "memory" ? `reading: ${significant(rate)} TB/s` : `multiplying: ${significant(gpu[state.activation] / 1e12)} TFLOP/s`;
  marks.push(text(axes.right, axes.y(rate) - 8, words, "e b over"));
  if (!unpacks(state)) return marks;
  const knee = (time[flat] / time.instructions) * state.ops;
  const label = [`unpacking: ${significant(gpu.intRate / 1e12)} T instr./s`, "unpacking"].find((one) => measure(one, "b") < axes.x(knee) - axes.left - 40);
  if (knee < roofPlot.ops[0] && label) marks.push(text(axes.left + 6, axes.y(rate) + 8, label, "b over"));
  return marks;
}

// Where the numbers of the kernels stand: at their points, or as near below (at the bottom: above) as there is room.
export function kernelPlaces(trace, state, axes, taken) {
  const all = [...taken];
  return shownRungs(trace, state).map((rung) => {
    const rate = rateOf(trace, state, rungSeconds(trace, state, rung));
    const point = { x: axes.x(Math.min(roofPlot.ops[0], Math.max(roofPlot.ops[1], rung.slots))), y: axes.y(rate) };
    const low = point.y > axes.bottom - WAYS_HEIGHT;
    const place = { x: point.x, y: low ? axes.bottom - WAYS_HEIGHT : point.y };
    while (all.some(({ x, y }) => Math.hypot(x - place.x, y - place.y) < 20)) place.y += low ? -4 : 4;
    all.push(place);
    return { rung, point, place, below: rate < roofPlot.rates[0] };
  });
}

function roofPoints(trace, state, axes, measure) {
  const [chosen, time] = [chosenRung(trace, state), stageTime(trace, state)];
  const [x, y] = [axes.x(unpacks(state) ? state.ops : 0), axes.y(rateOf(trace, state, time.seconds))];
  const roof = axes.y(rateOf(trace, state, time.seconds - time.edge));
  const words = `${micros(time.seconds)} µs`;
  const [side, wide] = [x + 14 + measure(words, "b") > axes.right ? -1 : 1, measure(words, "b")];
  const label = [0, 0.33, 0.67, 1].map((part) => ({ x: x + side * (13 + part * wide), y: y + 15 }));
  const marks = [];
  if (!chosen && y - roof > 10) marks.push(line(x, y - 8, x, roof, "sel dash"));
  if (!chosen && y - roof > 28) marks.push(middle(x + (x > axes.right - 60 ? -8 : 8), (y + roof) / 2, "edge", `${x > axes.right - 60 ? "e " : ""}s b ink ca over`));
  if (!chosen) marks.push(middle(x + 13 * side, y + 15, words, `${side < 0 ? "e " : ""}b ink ca over`));
  const kernels = kernelPlaces(trace, state, axes, [{ x, y }, ...(chosen ? [] : label)]);
  marks.push(...kernels.flatMap((kernel) => leaderMarks(trace, state, kernel, axes, kernel.rung === chosen)));
  marks.push(...kernels.flatMap((kernel) => kernelMarks(trace, state, kernel, kernel.rung === chosen)));
  return [...marks, circle(x, y, 7, chosen ? "ca stroke" : "tag", { set: { rung: "" }, title: "the model's point; drag it" })];
}

function leaderMarks(trace, state, { rung, point, place, below }, axes, on) {
  const roof = axes.y(rateOf(trace, state, stageTime(trace, { ...state, edge: 0 }, rung.slots).seconds));
  const drop = on && point.y - roof > 6 ? [line(point.x, point.y, point.x, roof, "sel dash")] : [];
  if (Math.abs(place.y - point.y) < 1) return drop;
  const end = below ? [text(point.x + 12, place.y + 4, "↓", "s b")] : [circle(point.x, point.y, 3, `${on ? "ca" : "c4"} solid`)];
  return [...drop, line(point.x, point.y, place.x, place.y, "axis"), ...end];
}

function kernelMarks(trace, state, { rung, place: { x, y } }, on) {
  const more = { set: { rung: rung.name }, title: `${rung.number} ${rung.name}: ${rungWords(trace, state, rung).join(", ")}` };
  const rim = on ? [] : [circle(x, y, 9, recordedSeconds(state, rung) ? "strong round" : "axis dash", more)];
  return [circle(x, y, 9, on ? "tag" : "paper", more), ...rim, middle(x, y, rung.number, `c s b ${on ? "ontag" : ""}`, more)];
}
