import assert from "node:assert/strict";
import { test } from "node:test";
import view, { inForm, pointAfter, seenPoints } from "../../../widgets/static/bokeh_chart.js";

test("the module's default export is a widget", () => assert.equal(typeof view.render, "function"));

// Two series over 1, 2, 4, given from the largest x to the smallest, and one point far away, as INT8 is.
const points = [[0, 4, 10], [0, 2, 20], [0, 1, 40], [1, 4, 5], [1, 2.2, 8], [1, 1, 9], [2, 100, 1]].map(([series, x, y]) => ({ series, x, y }));
const range = (start, end) => ({ start, end });
const near = seenPoints(points, range(0, 5), range(0, 50));
const walk = (keys, from = -1, seen = near) => keys.reduce((at, key) => pointAfter(key, at, points, seen), from);
const repeat = (key, count) => Array(count).fill(key);

test("right and left go to the next x of a series and stop at both ends", () => {
  assert.deepEqual([1, 2, 3, 4].map((count) => points[walk(repeat("ArrowRight", count))].x), [1, 2, 4, 4]);
  assert.deepEqual([1, 2, 3, 4].map((count) => points[walk(repeat("ArrowLeft", count))].x), [4, 2, 1, 1]);
  assert.equal(new Set([1, 2, 3].map((count) => points[walk(repeat("ArrowRight", count))].series)).size, 1);
});

test("down and up go to the point of the next series whose x is nearest, and stop at the last series", () => {
  assert.equal(walk(["ArrowRight", "ArrowRight", "ArrowDown"]), 4);
  assert.equal(walk(["ArrowDown", "ArrowUp"], 1), 1);
  assert.deepEqual([walk(["ArrowUp"], 1), walk(["ArrowDown"], 4)], [1, 4]);
});

test("Home and End go to the ends of a series, Escape to no point", () => {
  assert.deepEqual(["Home", "End", "Escape"].map((key) => walk([key], 4)), [5, 3, -1]);
  assert.deepEqual(["Home", "End"].map((key) => walk([key])), [2, 0]);
});

test("keys go to points that are seen, also from one that a zoom has hidden", () => {
  assert.deepEqual(seenPoints(points, range(200, 0), range(0, 200)).at(-1), 6);
  const zoomed = seenPoints(points, range(1.5, 5), range(0, 50));
  assert.deepEqual([walk(["ArrowRight"], 2, zoomed), walk(["ArrowLeft"], 1, zoomed), walk(["ArrowRight"], -1, zoomed)], [1, 1, 1]);
  assert.deepEqual([walk(["ArrowRight"], 1, []), walk(["Home"], -1, [])], [1, -1]);
  assert.equal(walk(["ArrowDown"], 3, seenPoints(points, range(0, 200), range(0, 50))), 6);
});

test("points at one x are gone through one by one", () => {
  const same = [0, 1, 2].map((y) => ({ series: 0, x: 7, y }));
  const seen = seenPoints(same, range(0, 9), range(0, 9));
  assert.deepEqual([0, 1, 2].map((at) => pointAfter("ArrowRight", at, same, seen)), [1, 2, 2]);
});

test("other keys are left to the page", () => assert.deepEqual(["a", "Tab", "Enter"].map((key) => walk([key], 1)), repeat(undefined, 3)));

test("a colour takes the form that the model has", () => {
  assert.equal(inForm("#fff", "#0067a3"), "#0067a3");
  assert.equal(inForm(null, "#0067a3"), "#0067a3");
  assert.deepEqual(inForm({ value: "#fff" }, "#0067a3"), { value: "#0067a3" });
});
