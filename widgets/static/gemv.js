// Lab 03: a product under its limits. Left the roofline (gemv_roof.js), right what is multiplied where, the time of each part
// and the bytes; below the ladder's kernels. The model is gemv_model.js.
import { fit, line, middle, move, rect, significant, text } from "./marks.js";
import { BATCHES, byteRows, chosenRung, clampOps, formatChoices, keyRoofline, longestPart, micros, offWords, partWords, recordedSeconds, rooflineSentence, rooflineTools, shownRungs, stageTime, unpacks } from "./gemv_model.js";
import { ROOF_HEIGHT, roofAxes, roofPanel } from "./gemv_roof.js";
import { playground } from "./kit.js";

const WIDE_ROOF = 760;
const SIDE_ROOF = 376;
const ROOF_GAP = 32;
const CHOICE_ROW = 28;
const [BAR_LEFT, BAR_RIGHT, BAR_ROW] = [84, 64, 20];
const [LADDER_HEAD, LADDER_ROW] = [24, 20];
const partHues = { memory: "c1", instructions: "c3", arithmetic: "c2", edge: "c4" };

// Where the parts lie: [x, y, width].
export function roofLayout(trace, width) {
  const wide = width > WIDE_ROOF;
  const plot = wide ? width - SIDE_ROOF - ROOF_GAP : width;
  const below = ROOF_HEIGHT;
  const [side, half] = [plot + ROOF_GAP, Math.floor((width - 24) / 2)];
  const choices = wide ? [side, 0, SIDE_ROOF] : [0, below + 8, width];
  const top = choices[1] + 4 * CHOICE_ROW + 12;
  const bars = wide ? [side, top, SIDE_ROOF] : [0, top, half];
  const bytes = wide ? [side, top + 118, SIDE_ROOF] : [half + 24, top, half];
  const ladder = wide ? below : top + 116;
  const rows = Math.ceil(trace.rungs.length / (wide ? 2 : 1));
  return { wide, plot, choices, bars, bytes, ladder: [0, ladder, width], rows, height: ladder + LADDER_HEAD + rows * LADDER_ROW + 4 };
}

// ---- what is multiplied where ----

export function choicesPanel(trace, state, width, measure) {
  const edges = trace.edges.map(({ us }) => us);
  const rows = [[["GPU", "gpu", Object.keys(trace.gpus)]], [["stage", "stage", Object.keys(trace.stages)]], [["bits", "bits", formatChoices.bits], ["group", "group", formatChoices.group]], [["x", "activation", formatChoices.activation], ["edge, µs", "edge", edges]]];
  return rows.flatMap((row, at) => {
    let left = 0;
    return row.flatMap(([label, name, options], place) => {
      const start = place ? left + 14 : 0;
      const chips = choiceMarks(start + (place ? measure(label, "s mu") + 8 : 40), at * CHOICE_ROW, name, options, state, measure, trace);
      left = chips.end;
      return [middle(start, at * CHOICE_ROW + 12, label, "s mu"), ...chips.marks];
    });
  });
}

function choiceMarks(left, y, name, options, state, measure, trace) {
  let x = left;
  const idle = name === "group" && !unpacks(state);
  const marks = options.flatMap((option) => {
    const [on, wide] = [option === state[name], Math.ceil(measure(String(option), "s b")) + 12];
    const more = { set: { [name]: option }, title: titleOf(trace, name, option) };
    const start = x;
    x += wide + 4;
    return [rect(start, y, wide, 24, on && !idle ? "ca fill" : idle ? "empty dash" : "empty", more), middle(start + wide / 2, y + 12, option, `c s ${idle ? "mu" : on ? "b ink ca" : ""}`, more), rect(start, y, wide, 24, "hit", more)];
  });
  return { marks, end: x - 4 };
}

function titleOf(trace, name, option) {
  if (name === "gpu") return trace.gpus[option].source;
  if (name === "edge") return trace.edges.find(({ us }) => us === option).name;
  if (name === "stage") return trace.stages[option].map(([count, n, k]) => `${count > 1 ? `${count} × ` : ""}${n} × ${k}`).join(", ");
  return { bits: `${option} bits a weight`, group: `a scale for ${option} weights; FP16 weights have none`, activation: `x in ${option}` }[name];
}

// ---- time and bytes ----

// Of the chosen kernel, else of the model's point.
export function barsPanel(trace, state, width) {
  const time = stageTime(trace, state, chosenRung(trace, state)?.slots ?? state.ops);
  const [longest, room] = [longestPart(time), width - BAR_LEFT - BAR_RIGHT];
  const marks = [text(0, 12, "Time by the model", "b"), text(width, 12, `${micros(time.seconds)} µs`, "e b")];
  Object.entries({ ...partWords, edge: "edge" }).forEach(([part, word], at) => {
    const y = 20 + at * BAR_ROW;
    const start = part === "edge" ? ((time.seconds - time.edge) / time.seconds) * room : 0;
    const bold = part === longest ? "b" : "";
    marks.push(line(0, y, width, y, "rule"), middle(0, y + 10, word, bold), middle(width, y + 10, micros(time[part]), `e ${bold}`));
    marks.push(rect(BAR_LEFT + start, y + 5, (time[part] / time.seconds) * room, 10, `${partHues[part]} solid`));
  });
  return marks;
}

export function bytesPanel(trace, state, width) {
  const { bytes } = stageTime(trace, state);
  const marks = [text(0, 12, "Bytes", "b"), text(width, 12, `${significant(bytes.total / 1e6)} MB`, "e b")];
  byteRows(trace, state).forEach(([name, count, share], at) => {
    const y = 20 + at * BAR_ROW;
    marks.push(line(0, y, width, y, "rule"), middle(0, y + 10, name), middle(width - 72, y + 10, count, "e"), middle(width, y + 10, share, "e mu"));
  });
  return marks;
}

// ---- the ladder ----

const ladderColumns = (width) => [width - 176, width - 112, width - 48, width];

export function ladderPanel(trace, state, width, measure, layout) {
  const columns = layout.wide ? 2 : 1;
  const wide = Math.floor((width - 24 * (columns - 1)) / columns);
  const heads = ["instr.", "model, µs", "H200, µs", "off"];
  const head = Array.from({ length: columns }, (_, at) => move([text(24, 12, "kernel", "s mu"), ...ladderColumns(wide).map((x, column) => text(x, 12, heads[column], "e s mu"))], at * (wide + 24), 0));
  const rows = trace.rungs.map((rung, at) => move(ladderRow(trace, state, rung, wide, measure), Math.floor(at / layout.rows) * (wide + 24), LADDER_HEAD + (at % layout.rows) * LADDER_ROW));
  return [...head.flat(), ...rows.flat()];
}

function ladderRow(trace, state, rung, width, measure) {
  const on = chosenRung(trace, state) === rung;
  const shown = shownRungs(trace, state).length > 0;
  const [recorded, model] = [shown ? recordedSeconds(state, rung) : null, stageTime(trace, state, rung.slots).seconds];
  const values = [significant(rung.slots, 2), shown ? micros(model) : "–", recorded ? micros(recorded) : "–", recorded ? offWords(model, recorded) : "–"];
  const x = ladderColumns(width);
  const more = { set: { rung: on ? "" : rung.name }, title: shown ? "choose this kernel" : "kernels were recorded with INT4, groups of 128 and one column" };
  const cls = on ? "b" : shown ? "" : "mu";
  return [
    ...(on ? [rect(0, -4, width, LADDER_ROW, "ca tint")] : []), line(0, -4, width, -4, "rule"),
    middle(18, 6, rung.number, "e s b"), middle(24, 6, fit(rung.name, x[0] - 56, measure), cls), ...values.map((value, at) => middle(x[at], 6, value, `e ${cls}`)),
    rect(0, -4, width, LADDER_ROW, "hit", shown ? more : { title: more.title }),
  ];
}

// ---- the picture ----

export function drawRoofline(trace, state, width, measure) {
  const layout = roofLayout(trace, width);
  const marks = roofPanel(trace, state, layout.plot, measure);
  Object.entries({ choices: choicesPanel, bars: barsPanel, bytes: bytesPanel, ladder: ladderPanel }).forEach(([name, panel]) => {
    const [x, y, wide] = layout[name];
    marks.push(...move(panel(trace, state, wide, measure, layout), x, y));
  });
  return { marks, height: layout.height, label: `Roofline: TB/s over instructions a weight. ${rooflineSentence(trace, state)}` };
}

export function dragRoofline(trace, state, width, measure, { x }) {
  return { ops: clampOps(roofAxes(roofLayout(trace, width).plot).opsAt(x)), rung: "" };
}

export default playground({
  draw: drawRoofline,
  drag: dragRoofline,
  key: keyRoofline,
  keys: "left and right change the instructions a weight, up and down choose a kernel, page up and down double and halve the batch; letters act as the buttons say",
  tools: rooflineTools,
  pace: 60,
  lines: 2,
  steps: () => BATCHES,
  stepOf: (trace, state) => state.batch - 1,
  stepTo: (trace, state, step) => ({ batch: step + 1 }),
  sentence: rooflineSentence,
  count: (trace, state) => `batch ${state.batch} of ${BATCHES}`,
});
