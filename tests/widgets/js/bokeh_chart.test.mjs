import assert from "node:assert/strict";
import { test } from "node:test";
import view, { inForm, pointAfter } from "../../../widgets/static/bokeh_chart.js";

test("the module's default export is a widget", () => assert.equal(typeof view.render, "function"));

test("arrow keys go from point to point and stop at both ends", () => {
  const walk = (keys, from = -1) => keys.reduce((at, key) => pointAfter(key, at, 3), from);
  assert.equal(walk(["ArrowRight"]), 0);
  assert.equal(walk(["ArrowLeft"]), 2);
  assert.equal(walk(["ArrowRight", "ArrowDown", "ArrowRight", "ArrowRight"]), 2);
  assert.equal(walk(["ArrowLeft", "ArrowUp", "ArrowLeft"], 1), 0);
});

test("Home, End and Escape go to the first, the last and no point", () => {
  assert.deepEqual(["Home", "End", "Escape"].map((key) => pointAfter(key, 1, 5)), [0, 4, -1]);
});

test("other keys are left to the page", () => assert.deepEqual(["a", "Tab", "Enter"].map((key) => pointAfter(key, 1, 5)), Array(3).fill(undefined)));

test("a colour takes the form that the model has", () => {
  assert.equal(inForm("#fff", "#0067a3"), "#0067a3");
  assert.equal(inForm(null, "#0067a3"), "#0067a3");
  assert.deepEqual(inForm({ value: "#fff" }, "#0067a3"), { value: "#0067a3" });
});
