// Recorded parts of a product's time at any cost of a launch: times, words, keys and buttons. The same as lab_engine/gemv_int8.py
// and widgets/gemv_int8_text.py. tests/widgets/js/gemv_int8.json holds what Python makes of the same settings.
import { percent, significant } from "./marks.js";

export const int8Parts = { launch: "launch", quantize: "quantizing x", read: "reading", unpack: "unpacking, multiplying" };
const [FINE_STEP, COARSE_STEP, EVEN] = [0.05, 0.5, 0.0005];

export const int8Stage = (trace, state) => trace.stages[state.stage];
export const workTime = (work, launch) => work.launches * launch + (work.quantize + work.read + work.unpack);
export const variantTime = (trace, state, name, launch = state.launch) => workTime(int8Stage(trace, state).work[name], launch);
export const longestTime = (trace, state) => Math.max(...Object.values(int8Stage(trace, state).work).map((work) => workTime(work, trace.most)));

export function fastestVariant(trace, state) {
  return Object.keys(trace.names).reduce((best, name) => (variantTime(trace, state, name) < variantTime(trace, state, best) ? name : best));
}

// The cost of a launch below which the separate kernel is faster than FP16.
export function crossoverOf(trace, state) {
  const { fp16, dp4a_separate: separate } = int8Stage(trace, state).work;
  return (workTime(fp16, 0) - workTime(separate, 0)) / (separate.launches - fp16.launches);
}

// [part, µs] in the order of a bar: of two kernels a product, the quantizing one comes first, after its launch.
export function int8Segments(trace, state, name) {
  const { products, work } = int8Stage(trace, state);
  const { launches, quantize, read, unpack } = work[name];
  const once = ["launch", products * state.launch];
  const second = launches > products ? [once] : [];
  return [once, ["quantize", quantize], ...second, ["read", read], ["unpack", unpack]];
}

// ---- words ----

export function againstWords(trace, state, name) {
  if (name === "fp16") return "";
  const more = variantTime(trace, state, name) / variantTime(trace, state, "fp16") - 1;
  return Math.abs(more) < EVEN ? "even" : `${more > 0 ? "+" : "−"}${percent(Math.abs(more), 1)}`;
}

export function crossoverWords(trace, state) {
  const even = crossoverOf(trace, state);
  return even <= 0 ? "separate never wins" : `separate wins below ${significant(even)} µs`;
}

export function int8Sentence(trace, state) {
  const times = Object.entries(trace.names).map(([name, [title]]) => `${title} ${significant(variantTime(trace, state, name))}${name === "fp16" ? " µs" : ""}`);
  return [state.stage, `launch ${significant(state.launch)} µs`, times.join(", "), `fastest: ${trace.names[fastestVariant(trace, state)][0]}`, crossoverWords(trace, state)].join(" · ");
}

// ---- what keys, buttons and drags change ----

// Two decimals: what the copied line needs to say.
export const clampLaunch = (trace, launch) => Math.min(trace.most, Math.max(0, Math.round(launch * 100) / 100));

const nextStage = (trace, state, by) => {
  const names = Object.keys(trace.stages);
  return names[(names.indexOf(state.stage) + by + names.length) % names.length];
};

// The named cost above the present one, else the lowest.
const nextLaunch = (trace, state) => {
  const costs = [...trace.launches].sort((a, b) => a.us - b.us);
  return costs.find(({ us }) => us > state.launch) ?? costs[0];
};

export function int8Tools(trace, state) {
  const [stage, { name, us }] = [nextStage(trace, state, 1), nextLaunch(trace, state)];
  return [
    { label: "Stage", key: "s", title: `${stage} is next`, values: { stage } },
    { label: "Launch", key: "l", title: `${name}, ${significant(us)} µs, is next`, values: { launch: us } },
  ];
}

export function keyInt8(trace, state, key) {
  const tool = int8Tools(trace, state).find((one) => one.key === key);
  if (tool) return tool.values;
  const by = { ArrowLeft: -FINE_STEP, ArrowRight: FINE_STEP, PageDown: -COARSE_STEP, PageUp: COARSE_STEP }[key];
  if (by) return { launch: clampLaunch(trace, state.launch + by) };
  const ends = { Home: 0, End: trace.most }[key];
  if (ends !== undefined) return { launch: ends };
  const step = { ArrowUp: -1, ArrowDown: 1 }[key];
  return step ? { stage: nextStage(trace, state, step) } : null;
}
