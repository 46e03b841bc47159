import assert from "node:assert/strict";
import { test } from "node:test";
import view, { byteText, drawTour, movingTour, slotAxis, stageAt, stageBytes, stripSegments, stripSpans, totalBytes, tourLayout } from "../../../widgets/static/tour.js";
import { textPieces } from "../../../widgets/static/token_text.js";
import { data, measure, overlap, textBox } from "./data.mjs";

const { trace, spec } = data;
const last = trace.steps.length - 1;
const widths = [868, 761, 760, 586, 480];
const states = trace.steps.flatMap((_, step) => [{ step, preset: "" }]).concat(spec.presets.map(({ name, values }) => ({ preset: name, ...values })));

test("the module's default export is a widget", () => assert.equal(typeof view.render, "function"));

test("the picture's height depends on the width alone", () => {
  for (const width of widths) {
    const heights = new Set(states.map((state) => drawTour(trace, state, width, measure).height));
    assert.equal(heights.size, 1, `at ${width}`);
  }
});

test("no text overlaps another or leaves the picture, at any step and width", () => {
  for (const width of widths)
    for (const state of states) {
      const { marks, height } = drawTour(trace, state, width, measure);
      const boxes = marks.filter(({ tag }) => tag === "text").map((mark) => ({ mark, box: textBox(mark) }));
      boxes.forEach(({ mark, box }, at) => {
        const where = `"${mark.text}" at step ${state.step}, width ${width}`;
        assert.ok(box[0] >= -2 && box[2] <= width + 2 && box[1] >= -1 && box[3] <= height + 1, `${where} leaves the picture: ${box}`);
        boxes.slice(at + 1).forEach((other) => assert.ok(!overlap(box, other.box), `${where} overlaps "${other.mark.text}"`));
      });
    }
});

test("every number in the picture is a number", () => {
  for (const state of states)
    for (const mark of drawTour(trace, state, 868, measure).marks)
      for (const name of ["x", "y", "width", "height", "x1", "x2", "y1", "y2"])
        if (name in mark) assert.ok(Number.isFinite(mark[name]) && (mark[name] >= 0 || !/width|height/.test(name)), `${name} of ${JSON.stringify(mark)}`);
});

test("the keys of gliding marks are unique", () => {
  const keys = drawTour(trace, states[last], 868, measure).marks.map(({ key }) => key).filter(Boolean);
  assert.ok(keys.length > 50);
  assert.equal(new Set(keys).size, keys.length);
});

test("a token that fits stays whole, and a newline ends its row", () => {
  const pieces = textPieces(["ab", "c\n  d", "efg", "hijklmn"], 4);
  assert.deepEqual(pieces.map(({ token, row, column, string }) => [token, row, column, string]), [
    [0, 0, 0, "ab"], [1, 0, 2, "c↵"], [1, 1, 0, "  d"], [2, 2, 0, "efg"], [3, 2, 3, "h"], [3, 3, 0, "ijkl"], [3, 4, 0, "mn"],
  ]);
});

test("a newline after a full row leaves no empty row", () => {
  const pieces = textPieces(["abcd", "\n", "e"], 4);
  assert.deepEqual(pieces.map(({ row, column }) => [row, column]), [[0, 0], [0, 4], [1, 0]]);
});

test("letters, rows and columns agree with the PNG's", () => {
  const pieces = textPieces(trace.tokens.map((token) => token.text), 20);
  assert.deepEqual(pieces.map(({ token, row, column, string }) => [token, row, column, string]), data.cases.pieces);
});

test("the strip is as wide as the panel and each stage as its bytes", () => {
  const step = trace.steps[last];
  const segments = stripSegments(step, 544);
  const end = segments.at(-1).x + segments.at(-1).width;
  assert.ok(Math.abs(end - 544) < 1e-6);
  segments.forEach(({ width }, at) => assert.ok(Math.abs(width / 544 - step.stages[at][2] / totalBytes(step)) < 1e-9));
  assert.equal(stageBytes(step).reduce((sum, bytes) => sum + bytes, 0), totalBytes(step));
});

test("the spans of the strip are embed, every layer, lm_head", () => {
  const labels = stripSpans(stripSegments(trace.steps[0], 544)).map(({ label }) => label);
  assert.deepEqual(labels, ["embed", "layer 0", "layer 1", "layer 2", "layer 3", "lm_head"]);
});

test("the playhead passes through the stages in their order", () => {
  const rows = Array.from({ length: 401 }, (_, at) => stageAt(trace.steps[5], 544, at / 400));
  assert.equal(rows[0].x, 0);
  assert.equal(rows.at(-1).row, 6);
  const visited = rows.map(({ row }) => row).filter((row, at, all) => row !== all[at - 1]);
  const layer = "1 2 3 4 5".split(" ").map(Number);
  assert.deepEqual(visited.filter((row) => row !== 0 && row !== 2), [...layer, ...layer, ...layer, ...layer, 6].filter((row) => row !== 2));
  assert.equal(movingTour(trace, states[5], 868, measure, 0.5).length, 2);
});

test("slots lie side by side and pages 8 px apart", () => {
  const axis = slotAxis(4, 544);
  assert.equal(axis.x(0), 0);
  assert.ok(Math.abs(axis.x(16) - axis.x(15) - axis.slot - 8) < 1e-9);
  assert.ok(Math.abs(axis.x(63) + axis.slot - 544) < 1e-9);
});

test("a click on a token's slot goes to the pass that wrote it", () => {
  const { marks } = drawTour(trace, states[last], 868, measure);
  const targets = marks.filter(({ set }) => set).map(({ set }) => set.step);
  assert.equal(targets.length, 56);
  targets.forEach((step, token) => {
    const { start, fed } = trace.steps[step];
    assert.ok(start <= token && token < start + fed, `token ${token} → step ${step}`);
  });
});

test("bytes are written as Python writes them", () => data.cases.bytes.forEach(([bytes, words]) => assert.equal(byteText(bytes), words)));

test("wide is two columns, narrow stacks, and nothing lies outside", () => {
  for (const width of widths) {
    const { places, height } = tourLayout(trace, width, measure);
    Object.values(places).forEach(([x, y, wide]) => assert.ok(x >= 0 && y >= 0 && x + wide <= width && y < height));
    assert.equal(places.stages[0] > 0, width > 760);
  }
});
