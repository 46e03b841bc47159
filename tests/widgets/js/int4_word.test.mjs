import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import view, { bandMarks, bitRow, countWords, drawWord, lookupMarks, noteMarks, rowPlaces, unpackedMarks, wordGrid, wordLayout } from "../../../widgets/static/int4_word.js";
import { codeLine } from "../../../widgets/static/state.js";
import { measure, overlap, textBox } from "./data.mjs";

const { trace, spec, states } = JSON.parse(readFileSync(new URL("word.json", import.meta.url), "utf-8"));
const widths = [868, 761, 760, 586, 480];
const shown = states.map(([state]) => state);
const at = (method, step) => ({ method, step });
const classes = (mark) => mark.class.split(" ");
// The path of a wire, from x to x.
const ends = ({ d }) => {
  const numbers = d.match(/-?[\d.]+/g).map(Number);
  return [numbers[0], numbers.at(-2)];
};

test("the module's default export is a widget", () => assert.equal(typeof view.render, "function"));

test("the copied line is the one that Python writes, at every step of every method", () => {
  assert.ok(states.length > 75);
  states.forEach(([state, code]) => assert.equal(codeLine(spec, state), code));
});

test("the picture's height depends on the width alone", () => {
  for (const width of widths) assert.equal(new Set(shown.map((state) => drawWord(trace, state, width, measure).height)).size, 1, `at ${width}`);
});

test("no text overlaps another or leaves the picture, at any step and width", () => {
  for (const width of widths)
    for (const state of shown) {
      const { marks, height } = drawWord(trace, state, width, measure);
      const boxes = marks.filter(({ tag, text }) => tag === "text" && text).map((mark) => ({ mark, box: textBox(mark) }));
      boxes.forEach(({ mark, box }, index) => {
        const where = `"${mark.text}" of ${state.method} at step ${state.step}, width ${width}`;
        assert.ok(box[0] >= -2 && box[2] <= width + 2 && box[1] >= -1 && box[3] <= height + 1, `${where} leaves the picture: ${box}`);
        boxes.slice(index + 1).forEach((other) => assert.ok(!overlap(box, other.box), `${where} overlaps "${other.mark.text}"`));
      });
    }
});

test("every number in the picture is a number, and the keys of gliding marks are unique", () => {
  for (const state of shown) {
    const { marks } = drawWord(trace, state, 868, measure);
    for (const mark of marks) {
      for (const name of ["x", "y", "width", "height", "x1", "x2", "y1", "y2"])
        if (name in mark) assert.ok(Number.isFinite(mark[name]) && (mark[name] >= 0 || !/width|height/.test(name)), `${name} of ${JSON.stringify(mark)}`);
      assert.ok(!/NaN|undefined/.test(JSON.stringify(mark)), JSON.stringify(mark));
    }
    const keys = marks.map(({ key }) => key).filter(Boolean);
    assert.equal(new Set(keys).size, keys.length);
  }
});

test("bit 31 is at the left, four bits fill a nibble, and a wider gap parts the halves", () => {
  for (const width of widths) {
    const grid = wordGrid(width);
    for (let bit = 31; bit > 0; bit -= 1) {
      const gap = grid.bitX(bit - 1) - grid.bitX(bit) - grid.bit;
      assert.equal(gap, bit % 4 ? 0 : bit === 16 ? 8 : 4, `before bit ${bit - 1}`);
    }
    assert.equal(grid.bitX(31), grid.x(7));
    assert.equal(grid.bitX(0) + grid.bit, grid.end);
    assert.ok(grid.end < width);
  }
  assert.equal(wordGrid(868).bit, 19);
  assert.equal(wordGrid(586).bit, 14);
});

test("linear wires are straight; in value_shuffle only those of weights 0 and 7 are", () => {
  const wires = (method) => drawWord(trace, at(method, 1), 868, measure).marks.filter((mark) => mark.tag === "path" && classes(mark).includes("stroke")).slice(0, 8);
  const straight = (method) => wires(method).map(ends).filter(([from, to]) => from === to).length;
  assert.equal(straight("prmt"), 8);
  assert.equal(straight("lop3"), 2);
  const grid = wordGrid(868);
  const centre = (place) => grid.x(place) + grid.nibble / 2;
  assert.deepEqual(wires("lop3").map(ends), [0, 2, 4, 6, 1, 3, 5, 7].map((weight, place) => [centre(weight), centre(place)]));
});

test("a pair of weights has one hue, in weights, nibbles and bits", () => {
  const hues = (row) => bitRow(wordGrid(868), 0, row).filter(({ tag }) => tag === "rect").map((mark) => classes(mark)[0]).slice(0, 32);
  const [linear] = trace.methods.lop3.steps[0].rows;
  assert.deepEqual([...new Set(hues(linear))], ["c4", "c3", "c2", "c1"]);
  assert.deepEqual(hues(linear), "77776666555544443333222211110000".split("").map((weight) => `c${(weight >> 1) + 1}`));
});

test("kept bits are filled, constants slate, the mask accent, the rest muted", () => {
  const step = trace.methods.lop3.steps[2];
  const grid = wordGrid(868);
  const filled = (row) => bitRow(grid, 0, row).filter((mark) => mark.tag === "rect" && classes(mark)[1] === "fill").map((mark) => [31 - Math.round((mark.x - grid.x(7)) / grid.bit), classes(mark)[0]]);
  assert.deepEqual(new Set(filled(step.rows[0]).map(([, hue]) => hue)), new Set(["c2"]));
  assert.deepEqual(new Set(filled(step.rows[1]).map(([, hue]) => hue)), new Set(["ca"]));
  assert.deepEqual(filled(step.rows[2]).map(([, hue]) => hue), Array(6).fill("c4"));
  const texts = bitRow(grid, 0, step.rows[0]).filter(({ tag, class: cls }) => tag === "text" && cls.startsWith("c m"));
  assert.equal(texts.filter((mark) => classes(mark).includes("mu")).length, 24);
  assert.equal(texts.map(({ text }) => text).join(""), (0xf4b7ad81).toString(2));
});

test("the mask's band covers its bits and no other", () => {
  const grid = wordGrid(868);
  const bands = bandMarks(grid, trace.methods.lop3.steps[2].bands, 10, 90);
  assert.deepEqual(bands.map(({ x, width }) => [x + 3, width - 6]), [[grid.x(5), grid.nibble], [grid.x(1), grid.nibble]]);
  assert.ok(bands.every(({ y, height }) => y === 10 && height === 80));
  const [first] = bandMarks(grid, [[30, 30]], 0, 1);
  assert.deepEqual([first.x + 3, first.width - 6], [grid.bitX(30), grid.bit]);
});

test("operands stand right above the result; with wires they stand at the top", () => {
  const layout = { rows: [0, 32, 64] };
  assert.deepEqual(rowPlaces(trace.methods.lop3.steps[1], layout), [0, 32, 64]);
  assert.deepEqual(rowPlaces(trace.methods.lop3.steps[6], layout), [32, 64]);
  assert.equal(rowPlaces(trace.methods.lop3.steps[3], layout)[0], 0);
  assert.equal(rowPlaces(trace.methods.prmt.steps[4], layout)[0], 0);
});

test("a shift by whole nibbles has a wire for each nibble that stays", () => {
  assert.deepEqual(trace.methods.lop3.steps[3].wires.map(([from, to]) => [from, to]), [2, 3, 4, 5, 6, 7].map((place) => [place, place - 2]));
  assert.deepEqual(trace.methods.prmt.steps[2].wires, []);
});

test("prmt's wires lead from selector to table byte to the result's byte", () => {
  const grid = wordGrid(868);
  const step = trace.methods.prmt.steps[4];
  const wires = lookupMarks(grid, wordLayout(trace, grid, measure), step).filter(({ tag }) => tag === "path").map(ends);
  step.picks.forEach(({ byte }, place) => {
    const table = grid.x(byte) + grid.nibble / 2;
    assert.deepEqual(wires[2 * place], [grid.x(place) + grid.nibble / 2, table]);
    assert.equal(wires[2 * place + 1][0], table);
    const middle = wires[2 * place + 1][1];
    assert.ok(grid.bitX(8 * place + 7) < middle && middle < grid.bitX(8 * place) + grid.bit);
  });
});

test("a selector with bit 3 set has a dashed wire in the colour of wrong", () => {
  const grid = wordGrid(868);
  const wires = lookupMarks(grid, wordLayout(trace, grid, measure), trace.methods.prmt_bit3.steps[3]).filter(({ tag }) => tag === "path");
  assert.deepEqual(wires.map((mark) => classes(mark).includes("dash") && classes(mark).includes("cw")), [false, false, false, false, true, true, true, true]);
});

test("an fp16 half has brackets over 1, 5 and 10 bits", () => {
  const grid = wordGrid(868);
  const [high] = trace.methods.lop3.steps[2].notes;
  const spans = noteMarks(grid, 0, [high]).filter(({ tag }) => tag === "path").map(({ d }) => d.match(/-?[\d.]+/g).map(Number)).map(([from, , , to]) => [from - 1.5, to + 1.5]);
  assert.deepEqual(spans, [[31, 31], [30, 26], [25, 16]].map(([first, last]) => [grid.bitX(first), grid.bitX(last) + grid.bit]));
});

test("a weight is dotted until its last instruction, and a click goes there", () => {
  const method = trace.methods.lop3;
  const dotted = (step) => unpackedMarks(method, step, wordGrid(868), 0).filter(({ class: cls }) => cls === "wait").length;
  assert.deepEqual([5, 6, 7, 8, 9].map(dotted), [8, 6, 4, 2, 0]);
  const targets = unpackedMarks(method, 0, wordGrid(868), 0).filter(({ set }) => set).map(({ set }) => set.step);
  assert.deepEqual(targets, [6, 6, 7, 7, 8, 8, 9, 9]);
});

test("the last step says how many are right and what a weight costs", () => {
  const words = (method, step) => drawWord(trace, at(method, step), 868, measure).marks.map(({ text }) => text ?? "").join("\n");
  assert.match(words("lop3", 9), /9 \/ 8 = 1\.125 instructions a weight[^]*✓ 8 of 8/);
  assert.match(words("prmt_bit3", 14), /14 \/ 8 = 1\.75 instructions a weight[^]*✕ 4 wrong/);
  assert.match(words("lop3", 1), /1 instruction so far/);
});

test("the count has as many letters at every step of a method", () => {
  assert.equal(countWords(2, 9), "instruction 2 of 9");
  assert.equal(countWords(3, 34).trim(), "instruction 3 of 34");
  assert.equal(new Set([0, 9, 10, 34].map((step) => countWords(step, 34).length)).size, 1);
});
