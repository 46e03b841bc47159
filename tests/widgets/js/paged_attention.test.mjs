import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { codeLine, presetValues } from "../../../widgets/static/state.js";
import view, { controlMarks, drawLens, errorMarks, keyLens, lengthAt, lensNote } from "../../../widgets/static/paged_attention.js";
import { flatTokens, isOwn, leak, lensSentence, lensShares, lensView, offWords, pagesOf, slotHolds, tokenCell } from "../../../widgets/static/paged_attention_data.js";
import { maskMarks, numberMarks, rowGrid, scoreMarks, wrongBlock } from "../../../widgets/static/paged_attention_row.js";
import { measure, overlap, textBox } from "./data.mjs";

const { trace, spec, sentences, code } = JSON.parse(readFileSync(new URL("lens.json", import.meta.url), "utf-8"));
const widths = [868, 761, 760, 586];
const states = sentences.map(([state]) => state);
const at = (bug, length = 56, step = pagesOf(length) - 1, head = 1) => ({ bug, length, head, step });
const words = (marks) => marks.map(({ text }) => text ?? "").join(" | ");
const jobs = (marks, job) => marks.filter(({ tag, class: cls }) => tag === "rect" && cls.split(" ").includes(job));

test("the module's default export is a widget", () => assert.equal(typeof view.render, "function"));

test("the sentence is the one that Python says", () => {
  sentences.forEach(([state, sentence]) => assert.equal(lensSentence(trace, state), sentence));
});

test("the copied code is the one that Python says", () => {
  assert.equal(codeLine(spec, { ...presetValues(spec, "no mask"), head: 2 }), code);
});

test("the picture's height depends on the width alone", () => {
  for (const width of widths) assert.equal(new Set(states.map((state) => drawLens(trace, state, width, measure).height)).size, 1, `at ${width}`);
});

test("no text overlaps another or leaves the picture, in any state and width", () => {
  for (const width of widths)
    for (const state of states) {
      const { marks, height } = drawLens(trace, state, width, measure);
      const boxes = marks.filter(({ tag, text }) => tag === "text" && text).map((mark) => ({ mark, box: textBox(mark) }));
      boxes.forEach(({ mark, box }, index) => {
        const where = `"${mark.text}" of ${JSON.stringify(state)}, width ${width}`;
        assert.ok(box[0] >= -2 && box[2] <= width + 4 && box[1] >= -1 && box[3] <= height + 1, `${where} leaves the picture: ${box}`);
        boxes.slice(index + 1).forEach((other) => assert.ok(!overlap(box, other.box), `${where} overlaps "${other.mark.text}"`));
      });
    }
});

test("the sentence fits the lines that the shell keeps for it", () => {
  for (const [state, sentence] of sentences) assert.ok(measure(sentence) * (13 / 12) < 868 - 110, JSON.stringify(state));
});

test("a slot is its sequence's own up to the length, and on a stale page never", () => {
  const full = lensView(trace, at("no_tail_mask"));
  assert.deepEqual([55, 56].map((slot) => isOwn(full, slot, full.wrong)), [true, false]);
  const stale = lensView(trace, at("stale_page", 17));
  assert.deepEqual([15, 16].map((slot) => isOwn(stale, slot, stale.wrong)), [true, false]);
  assert.equal(isOwn(stale, 16, stale.right), true);
});

test("the leak is the weight of all slots that are not its own", () => {
  const one = lensView(trace, at("no_tail_mask"));
  const sum = lensShares(one, one.wrong).slice(56).reduce((a, b) => a + b, 0);
  assert.ok(sum > 0 && Math.abs(leak(one, one.wrong) - sum) < 1e-12);
  assert.equal(leak(one, one.right), 0);
  const nan = lensView(trace, at("empty_split", 48));
  assert.equal(leak(nan, nan.wrong), "NaN");
});

test("a slot without a token holds a former owner's, or NaN where nothing was written", () => {
  assert.equal(slotHolds(trace, lensView(trace, at("no_tail_mask")), 3, 7).from, "own");
  assert.deepEqual(slotHolds(trace, lensView(trace, at("no_tail_mask")), 3, 8), { text: trace.former[12][8], from: "former" });
  assert.deepEqual(slotHolds(trace, lensView(trace, at("nan_in_v")), 3, 8), { text: "NaN", from: "nothing" });
  assert.deepEqual(slotHolds(trace, lensView(trace, at("stale_page", 17)), 1, 0), { text: trace.former[0][0], from: "former" });
});

test("workers' pages have their own shares until all are read", () => {
  const some = lensView(trace, at("empty_split", 48, 1));
  assert.deepEqual(lensShares(some, some.wrong).slice(16), some.wrong[1].weights.slice(16));
  assert.equal(lensShares(some, some.wrong).length, 32);
});

test("slots beyond the length are hatched, in the mask and in the scores of the right row", () => {
  const one = lensView(trace, at("right", 33));
  const grid = rowGrid(868);
  assert.equal(jobs(maskMarks(one, grid), "hatch")[0].width, 15 * grid.slot);
  assert.equal(jobs(scoreMarks(trace, one, grid), "hatch").length, 15);
  assert.equal(jobs(scoreMarks(trace, one, grid), "hatchw").length, 0);
});

test("pages that are not read yet wait", () => {
  const one = lensView(trace, at("right", 56, 1));
  assert.equal(jobs(scoreMarks(trace, one, rowGrid(868)), "wait").length, 2);
});

test("values that the bug changed are bold and underlined, the others muted", () => {
  const one = lensView(trace, at("right"));
  assert.equal(numberMarks(one, rowGrid(868)).some(({ class: cls }) => /\bcw\b/.test(cls)), false);
  const bug = lensView(trace, at("no_tail_mask"));
  assert.ok(numberMarks(bug, rowGrid(868)).some(({ tag, class: cls }) => tag === "line" && cls === "cw stroke"));
});

test("a worker without a page shows what it divides", () => {
  assert.match(words(numberMarks(lensView(trace, at("empty_split", 48)), rowGrid(868))), /0 \/ 0 = NaN/);
  assert.doesNotMatch(words(numberMarks(lensView(trace, at("empty_split", 56)), rowGrid(868))), /0 \/ 0/);
});

test("without a bug the lower row says how to get one", () => {
  assert.match(words(wrongBlock(lensView(trace, at("right")), rowGrid(868), 1, measure)), /switch a bug on/);
});

test("the lens says how many slots hold tokens", () => {
  assert.match(lensNote(lensView(trace, at("no_tail_mask"))), /^8 of 16 slots hold tokens; the other 8 hold what a former owner left/);
  assert.match(lensNote(lensView(trace, at("right", 48))), /^A full page/);
  assert.match(lensNote(lensView(trace, at("stale_page", 17))), /another request/);
});

test("an error is a bar, NaN a hatched one, and nothing a green line", () => {
  const bars = (bug) => errorMarks(trace, at(bug), 868).filter(({ title }) => title);
  assert.equal(bars("no_tail_mask").length, 64);
  assert.equal(bars("no_tail_mask")[15].class, "c2 solid");
  assert.equal(bars("nan_in_v")[0].class, "hatchw");
  assert.match(bars("no_tail_mask")[0].title, /^1 tokens: off /);
});

test("a pointer finds the nearest context that is shown slot by slot", () => {
  const grid = rowGrid(868);
  assert.deepEqual([1, 17, 40, 41, 64].map((length) => lengthAt(trace, 868, grid.x(length - 1) + grid.slot / 2)), [16, 17, 33, 48, 56]);
});

test("a new context starts at its tail", () => {
  const set = controlMarks(trace, at("right"), 868, measure).find(({ tag, set }) => tag === "rect" && set.length === 17).set;
  assert.deepEqual(set, { length: 17, step: 1 });
  assert.deepEqual(keyLens(trace, at("right", 56), "+"), { length: 16, step: 0 });
  assert.deepEqual(keyLens(trace, at("right", 48), "-"), { length: 33, step: 2 });
});

test("keys go round bugs and heads, and leave other keys to the kit", () => {
  const names = Object.keys(trace.runs);
  assert.deepEqual(keyLens(trace, at("right"), "ArrowDown"), { bug: names[1] });
  assert.deepEqual(keyLens(trace, at("right"), "ArrowUp"), { bug: names.at(-1) });
  assert.deepEqual(keyLens(trace, at("right", 56, 3, 3), "h"), { head: 0 });
  assert.equal(keyLens(trace, at("right"), "ArrowLeft"), null);
});

test("words for errors and tokens", () => {
  assert.deepEqual([0, 4e-6, 0.0021, 0.5, 1.2, "NaN"].map(offWords), ["right", "right", "off 0.2 %", "off 50 %", "off 120 %", "NaN"]);
  assert.deepEqual([" open", "):\n", "   ", " "].map(tokenCell), ["open", "):↵", "␣␣␣", "␣"]);
  assert.deepEqual(flatTokens(["   ", " def", "\n        ", "x"]), ["", "def", "↵ ", "x"]);
});

test("a step beyond the last page counts as the last", () => assert.equal(lensView(trace, at("right", 17, 3)).page, 1));
