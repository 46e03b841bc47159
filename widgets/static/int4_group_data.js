// One group's data, as the pictures of int4_group.js and int4_levels.js read it; widgets/int4_group.py makes it.
// trace = {groups: {preset: {weights, order, reach, codes: ["88f…"], clips: [[bits, scale, error, mse, worst, at]], best, refusal}}}.
// A step is a clip in percent; `at` is the place of its codes, one hex digit n = q + 8 a weight. reach is the value at which
// the levels end at clip 1. Nibble i of a word holds weight order[i] of its eight.
import { hexWord, number, percent, significant } from "./marks.js";

export const chosenGroup = (trace, state) => trace.groups[state.preset] ?? Object.values(trace.groups)[0];

// One clip position: {bits, scale, error, mse, worst, codes}. A refused scale has no codes.
export function clipAt(group, step) {
  const [bits, scale, error, mse, worst, at] = group.clips[step];
  const codes = at === null ? null : Array.from(group.codes[at], (digit) => parseInt(digit, 16) - 8);
  return { bits, scale, error, mse, worst, codes };
}

// A weight under a clip; `cut` says that it is off by more than half a step, because the levels end before it.
export function rounded(group, clip, index) {
  const [weight, code] = [group.weights[index], clip.codes[index]];
  const error = code * clip.scale - weight;
  return { weight, code, ratio: weight / clip.scale, level: code * clip.scale, error, cut: Math.abs(error) > 0.50001 * Math.abs(clip.scale) };
}

// Eight codes as the file holds them.
export const wordOf = ({ order }, codes, word) => hexWord(order.reduceRight((sum, weight) => sum * 16 + codes[order.length * word + weight] + 8, 0));

// Every preset begins at clip 1; until the line has left it, no picture says where the error is least.
export const isMoved = (group, step) => step !== group.clips.length - 1;

export const clipText = (step) => (step / 100).toFixed(2);

export function groupSentence(trace, state) {
  const group = chosenGroup(trace, state);
  const clip = clipAt(group, state.step);
  const parts = [`clip ${clipText(state.step)} × max`];
  if (!clip.codes) return [...parts, `scale inf (0x${clip.bits})`, "refused: fp16 ends at 65504", `weight ${state.weight}: no code`].join(" · ");
  const worst = rounded(group, clip, clip.worst);
  parts.push(`scale ${significant(clip.scale)} (0x${clip.bits})`, `error ${percent(clip.error, 1)}`);
  parts.push(`worst weight ${clip.worst}: ${significant(worst.weight)} → ${significant(worst.level)}`);
  return [...parts, `weight ${state.weight}: code ${number(clip.codes[state.weight])}`].join(" · ");
}

// The axis of the error by clip: around the least error, which an axis from 0 to 100 % would flatten. {low, high, ticks}.
export function errorAxis(group) {
  const found = group.clips.map(([, , error]) => error).filter((error) => error !== null);
  const least = Math.min(...found);
  const low = 0.8 * least;
  const high = least > 0 ? Math.min(2 * least, 1) : Math.max(...found) || 1;
  const step = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50].find((percents) => 100 * (high - low) <= 4 * percents);
  const ticks = [];
  for (let tick = Math.ceil((100 * low) / step - 1e-9); tick * step <= 100 * high + 1e-9; tick += 1) ticks.push((tick * step) / 100);
  return { low, high, ticks, digits: step < 1 ? 1 : 0 };
}
