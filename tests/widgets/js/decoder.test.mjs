import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import view, { chosenCase, deskRows, differenceBars, drawDesk, textColumn } from "../../../widgets/static/decoder.js";
import { textPieces } from "../../../widgets/static/token_text.js";
import { measure, overlap, textBox } from "./data.mjs";

const { trace, spec } = JSON.parse(readFileSync(new URL("desk.json", import.meta.url), "utf-8"));
const widths = [868, 761, 760, 586, 480];
const states = spec.presets.flatMap(({ name }) => [0, 1, 2].map((step) => ({ preset: name, step })));

test("the module's default export is a widget", () => assert.equal(typeof view.render, "function"));

test("the picture's height depends on the width alone", () => {
  for (const width of widths) {
    const heights = new Set(states.map((state) => drawDesk(trace, state, width, measure).height));
    assert.equal(heights.size, 1, `at ${width}`);
  }
});

test("no text overlaps another or leaves the picture, in any case, step and width", () => {
  for (const width of widths)
    for (const state of states) {
      const { marks, height } = drawDesk(trace, state, width, measure);
      const boxes = marks.filter(({ tag }) => tag === "text").map((mark) => ({ mark, box: textBox(mark) }));
      boxes.forEach(({ mark, box }, at) => {
        const where = `"${mark.text}" of ${state.preset} at step ${state.step}, width ${width}`;
        assert.ok(box[0] >= -2 && box[2] <= width + 2 && box[1] >= -1 && box[3] <= height + 1, `${where} leaves the picture: ${box}`);
        boxes.slice(at + 1).forEach((other) => assert.ok(!overlap(box, other.box), `${where} overlaps "${other.mark.text}"`));
      });
    }
});

test("the cause is in no picture before the last step", () => {
  for (const state of states) {
    const words = drawDesk(trace, state, 868, measure).marks.map(({ text }) => text ?? "").join(" ");
    assert.equal(words.includes(chosenCase(trace, state).cause), state.step === 2, JSON.stringify(state));
  }
});

test("without a preset the first case is shown", () => assert.equal(chosenCase(trace, { preset: "" }), trace.cases["case A"]));

test("a length has an error bar, or a flat mark where there is none", () => {
  const bars = differenceBars(trace, [0, trace.floor * 10, trace.floor], 868);
  assert.deepEqual(bars.map(({ wrong }) => wrong), [false, true, false]);
  assert.deepEqual(bars.map(({ length }) => length), [5, 6, 7]);
  assert.equal(Math.round(bars[1].height * trace.decades), 96);
});

test("tokens from the departing one on are drawn as wrong, and only the departing one has a box", () => {
  const one = trace.cases["case B"];
  const marks = textColumn(trace, "Broken", one.texts, one.departs, 400, 14, measure);
  assert.equal(marks.filter(({ tag }) => tag === "rect").length, new Set(textPieces([one.texts[6]], 40).map(({ row }) => row)).size);
  const wrong = marks.filter(({ class: cls }) => /\bcw\b/.test(cls ?? "") && /ink/.test(cls)).map(({ text }) => text);
  assert.ok(wrong.includes("pass") && !wrong.includes("if"));
});

test("the rows hold the longest text, up to a limit", () => {
  assert.ok(deskRows(trace, 40) >= 4);
  const long = { ...trace, right: Array(60).fill("\n") };
  assert.equal(deskRows(long, 40), 14);
});
