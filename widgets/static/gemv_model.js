// Lab 03's roofline without a picture: the engine's model of a product (lab_engine/gemv.py), its words, and what keys change.
// tests/widgets/js/gemv.json holds what Python makes of the same settings.
import { number, percent, significant } from "./marks.js";

const OPS_ENDS = [0.25, 8];
export const BATCHES = 256;
export const partWords = { memory: "reading", instructions: "unpacking", arithmetic: "multiplying" };
export const formatChoices = { bits: [4, 8, 16], group: [32, 64, 128, 256], activation: ["fp16", "int8"] };

// Bytes and seconds of one product (n, k) at `ops` integer instructions a weight.
export function gemvTime(gpu, state, n, k, ops) {
  const { bits, group, activation, batch } = state;
  const bytes = {
    weights: (n * k * bits) / 8, scales: bits === 16 ? 0 : (2 * n * k) / group,
    activation: batch * k * (activation === "fp16" ? 2 : 1), output: batch * n * 4,
  };
  bytes.total = bytes.weights + bytes.scales + bytes.activation + bytes.output;
  const memory = bytes.total / gpu.bandwidth;
  const instructions = bits === 16 ? 0 : (n * k * ops) / gpu.intRate;
  const arithmetic = (2 * n * k * batch) / gpu[activation];
  const edge = state.edge * 1e-6;
  return { bytes, memory, instructions, arithmetic, edge, seconds: Math.max(memory, instructions, arithmetic) + edge };
}

// All products of the chosen stage, one after another.
export function stageTime(trace, state, ops = state.ops) {
  const sum = { bytes: { weights: 0, scales: 0, activation: 0, output: 0, total: 0 }, memory: 0, instructions: 0, arithmetic: 0, edge: 0, seconds: 0 };
  trace.stages[state.stage].forEach(([count, n, k]) => {
    const { bytes, ...parts } = gemvTime(trace.gpus[state.gpu], state, n, k, ops);
    Object.keys(bytes).forEach((name) => { sum.bytes[name] += count * bytes[name]; });
    Object.keys(parts).forEach((name) => { sum[name] += count * parts[name]; });
  });
  return sum;
}

export const unpacks = (state) => state.bits < 16;
export const shownRungs = (trace, state) => (state.bits === 4 && state.group === 128 && state.batch === 1 ? trace.rungs : []);
export const chosenRung = (trace, state) => shownRungs(trace, state).find(({ name }) => name === state.rung);
export const recordedSeconds = (state, rung) => (state.gpu === "H200" && rung.us[state.stage] !== undefined ? rung.us[state.stage] * 1e-6 : null);
export const rungSeconds = (trace, state, rung) => recordedSeconds(state, rung) ?? stageTime(trace, state, rung.slots).seconds;
export const rateOf = (trace, state, seconds) => stageTime(trace, state).bytes.total / seconds / 1e12;

// ---- words ----

export const micros = (seconds) => significant(seconds * 1e6);

export function longestPart(time) {
  return Object.keys(partWords).reduce((best, part) => (time[part] > time[best] ? part : best), "memory");
}

export const limitWords = (time) => (time.edge > time[longestPart(time)] ? "edge" : partWords[longestPart(time)]);

const timeWords = (time) => `limit ${limitWords(time)}: ${micros(time.seconds)} µs = ${micros(time.seconds - time.edge)} + ${micros(time.edge)} edge`;

export function offWords(model, recorded) {
  const off = Number(number(100 * (model / recorded - 1)).replace("−", "-"));
  return `${off > 0 ? "+" : ""}${number(off)} %`;
}

export function shareWords(trace, state, seconds) {
  const bandwidth = trace.gpus[state.gpu].bandwidth / 1e12;
  return `${percent(rateOf(trace, state, seconds) / bandwidth)} of ${significant(bandwidth)} TB/s`;
}

const formatWords = (state) => `${unpacks(state) ? `INT${state.bits} g${state.group}` : "FP16"} × ${state.activation}, batch ${state.batch}`;

export function rooflineSentence(trace, state) {
  const [where, rung] = [`${state.stage} on ${state.gpu}`, chosenRung(trace, state)];
  if (rung) return [`${rung.number} ${rung.name}: ${where}`, ...rungWords(trace, state, rung)].join(" · ");
  const time = stageTime(trace, state);
  return [
    where, formatWords(state), unpacks(state) ? `${significant(state.ops, 2)} instr.` : "nothing to unpack",
    timeWords(time), shareWords(trace, state, time.seconds),
  ].join(" · ");
}

export function rungWords(trace, state, rung) {
  const [recorded, model] = [recordedSeconds(state, rung), stageTime(trace, state, rung.slots).seconds];
  const told = `model ${micros(model)} µs${recorded ? ` (${offWords(model, recorded)})` : ""}`;
  const found = recorded ? [`recorded ${micros(recorded)} µs`, told] : [told];
  return [`${significant(rung.integer, 2)} integer of ${significant(rung.total, 2)} instr.`, ...found, shareWords(trace, state, recorded ?? model)];
}

// What the counters of the GPU say of the chosen kernel, in the two lines below the roofline.
export function counterLines(trace, state) {
  const rung = chosenRung(trace, state);
  if (!rung) return ["choose a kernel: what kept it busy, and what did it wait for?"];
  const [first, ...more] = rung.counters;
  return [`${rung.number} ${rung.name}: ${first}`, ...more.map((one) => `${one} (gate_up, Nsight Compute)`)];
}

// A number of bytes in B, kB or MB, as widgets/words.py writes it.
export const bytesOf = (count) => (count < 1024 ? `${count} B` : count < 1e6 ? `${number(count / 1e3, 1)} kB` : `${number(count / 1e6, 2)} MB`);

export function byteRows(trace, state) {
  const { weights, scales, activation, output, total } = stageTime(trace, state).bytes;
  return Object.entries({ weights, scales, x: activation, y: output }).map(([name, count]) => [name, bytesOf(count), percent(count / total, 2)]);
}

// ---- what keys and buttons change ----

const after = (list, value) => list[(list.indexOf(value) + 1) % list.length];

export function rooflineTools(trace, state) {
  const lists = { gpu: Object.keys(trace.gpus), stage: Object.keys(trace.stages), ...formatChoices, edge: trace.edges.map(({ us }) => us) };
  const tool = (label, key, name) => ({ label, key, title: `${name}: ${after(lists[name], state[name])} is next`, values: { [name]: after(lists[name], state[name]) } });
  return [tool("GPU", "g", "gpu"), tool("Stage", "s", "stage"), tool("Weights", "b", "bits"), tool("Group", "r", "group"), tool("Activation", "a", "activation"), tool("Edge", "e", "edge")];
}

// Three decimals: what the copied line needs to say.
export const clampOps = (ops) => Math.min(OPS_ENDS[1], Math.max(OPS_ENDS[0], Math.round(ops * 1000) / 1000));

export function keyRoofline(trace, state, key) {
  const tool = rooflineTools(trace, state).find((one) => one.key === key);
  if (tool) return tool.values;
  const factor = { ArrowLeft: 1.1, ArrowRight: 1 / 1.1 }[key];
  if (factor) return { ops: clampOps(state.ops * factor), rung: "" };
  const times = { PageUp: 2, PageDown: 0.5 }[key];
  if (times) return { batch: Math.min(BATCHES, Math.max(1, Math.floor(state.batch * times))) };
  const down = { ArrowUp: -1, ArrowDown: 1 }[key];
  const names = ["", ...shownRungs(trace, state).map(({ name }) => name)];
  return down ? { rung: names[(Math.max(0, names.indexOf(state.rung)) + down + names.length) % names.length] } : null;
}
