import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import view, { dragRoofline, drawRoofline, roofLayout } from "../../../widgets/static/gemv.js";
import { byteRows, counterLines, keyRoofline, longestPart, rooflineSentence, rooflineTools, stageTime } from "../../../widgets/static/gemv_model.js";
import { kernelPlaces, roofAxes } from "../../../widgets/static/gemv_roof.js";
import { codeLine } from "../../../widgets/static/state.js";
import { measure, overlap, textBox } from "./data.mjs";

const { trace, spec, cases } = JSON.parse(readFileSync(new URL("gemv.json", import.meta.url), "utf-8"));
const widths = [868, 761, 760, 586];
const near = (a, b) => Math.abs(a - b) <= 1e-12 * Math.max(Math.abs(a), Math.abs(b));
const eachScene = (work) => cases.forEach((one) => work(trace, one.state, one));
const start = cases[0].state;

test("the module's default export is a widget", () => assert.equal(typeof view.render, "function"));

test("times, bytes and sentence are those of Python, at every setting", () => {
  assert.ok(cases.length > 80);
  eachScene((trace, state, { sentence, bytes, time }) => {
    const found = stageTime(trace, state);
    [found.memory, found.instructions, found.arithmetic, found.edge, found.seconds].forEach((value, at) => assert.ok(near(value, time[at]), `${JSON.stringify(state)}: ${value}, ${time[at]}`));
    assert.equal(rooflineSentence(trace, state), sentence);
    assert.deepEqual(byteRows(trace, state), bytes);
  });
});

test("the copied line is the one that Python writes", () => cases.forEach(({ state, code }) => assert.equal(codeLine(spec, state), code)));

test("the picture's height depends on the width alone", () => {
  for (const width of widths) assert.equal(new Set(cases.map(({ state }) => drawRoofline(trace, state, width, measure).height)).size, 1, `at ${width}`);
});

test("no text leaves the picture, and none but numbers of kernels and what has a halo overlaps another", () => {
  for (const width of widths) {
    const { plot } = roofLayout(trace, width);
    eachScene((trace, state) => {
      if (width === 868 || width === 586) counterLines(trace, state).forEach((words) => assert.ok(measure(words, "s") <= plot, `"${words}" leaves the plot at ${width}`));
      const { marks, height } = drawRoofline(trace, state, width, measure);
      const texts = marks.filter(({ tag }) => tag === "text");
      texts.forEach((mark) => {
        const box = textBox(mark);
        assert.ok(box[0] >= -2 && box[2] <= width + 2 && box[1] >= -1 && box[3] <= height + 1, `"${mark.text}" leaves at ${width}: ${box}`);
      });
      const fixed = texts.filter((mark) => !/over/.test(mark.class) && !mark.set);
      fixed.forEach((mark, at) => fixed.slice(at + 1).forEach((other) => assert.ok(!overlap(textBox(mark), textBox(other)), `"${mark.text}" overlaps "${other.text}" at ${width}`)));
    });
  }
});

test("every number in the picture is a number", () => {
  eachScene((trace, state) => {
    for (const mark of drawRoofline(trace, state, 868, measure).marks) {
      for (const name of ["x", "y", "width", "height", "x1", "x2", "y1", "y2", "cx", "cy", "r"])
        if (name in mark) assert.ok(Number.isFinite(mark[name]) && (mark[name] >= 0 || !/width|height/.test(name)), `${name} of ${JSON.stringify(mark)}`);
      if (mark.d) assert.doesNotMatch(mark.d, /NaN|Infinity/);
    }
  });
});

test("a sentence fits into the two rows of the foot, wide and narrow", () => {
  for (const [room, name] of [[868 - 120, "wide"], [586 - 120, "narrow"]])
    eachScene((trace, state, { sentence }) => {
      let [rows, used] = [1, 0];
      sentence.split(" · ").forEach((part, at) => {
        const wide = (measure(at ? ` · ${part}` : part) * 13) / 12;
        if (used && used + wide > room) [rows, used] = [rows + 1, wide];
        else used += wide;
      });
      assert.ok(rows <= 2, `${name}: ${sentence}`);
    });
});

test("the knee of the H200's roof lies at 1.85 instructions a weight, as counted by hand", () => {
  const state = { ...start, stage: "down", edge: 0 };
  const knee = (0.515625 * 132 * 64 * 1.98e9) / 4.65e12;
  assert.equal(longestPart(stageTime(trace, state, knee * 0.99)), "memory");
  assert.equal(longestPart(stageTime(trace, state, knee * 1.01)), "instructions");
});

test("fewer instructions than the budget bring o nothing, and no edge brings 63 percent", () => {
  const seconds = (change) => stageTime(trace, { ...start, ...change }).seconds;
  assert.equal(seconds({ ops: 1.6 }), seconds({ ops: 0.25 }));
  assert.ok(Math.abs(1 - seconds({ edge: 0 }) / seconds({}) - 0.63) < 0.01);
});

test("a drag sets the instructions under the pointer and stops at the ends", () => {
  for (const width of widths) {
    const axes = roofAxes(roofLayout(trace, width).plot);
    for (const ops of [8, 4.125, 0.625, 0.25]) assert.deepEqual(dragRoofline(trace, start, width, measure, { x: axes.x(ops) }), { ops, rung: "" });
    assert.equal(dragRoofline(trace, start, width, measure, { x: -50 }).ops, 8);
    assert.equal(dragRoofline(trace, start, width, measure, { x: 5000 }).ops, 0.25);
  }
});

test("keys change instructions, batch and kernel; each button's letter does what the button does", () => {
  assert.deepEqual(keyRoofline(trace, start, "ArrowLeft"), { ops: 0.688, rung: "" });
  assert.deepEqual(keyRoofline(trace, start, "ArrowRight"), { ops: 0.568, rung: "" });
  assert.deepEqual(keyRoofline(trace, start, "PageUp"), { batch: 2 });
  assert.deepEqual(keyRoofline(trace, { ...start, batch: 256 }, "PageUp"), { batch: 256 });
  assert.deepEqual(keyRoofline(trace, start, "PageDown"), { batch: 1 });
  assert.deepEqual(keyRoofline(trace, start, "ArrowDown"), { rung: "naive" });
  assert.deepEqual(keyRoofline(trace, start, "ArrowUp"), { rung: trace.rungs.at(-1).name });
  assert.deepEqual(keyRoofline(trace, { ...start, bits: 8 }, "ArrowDown"), { rung: "" });
  assert.equal(keyRoofline(trace, start, "q"), null);
  rooflineTools(trace, start).forEach(({ key, values }) => assert.deepEqual(keyRoofline(trace, start, key), values));
  assert.deepEqual(rooflineTools(trace, start).map(({ values }) => values), [{ gpu: "H100" }, { stage: "gate_up" }, { bits: 8 }, { group: 256 }, { activation: "int8" }, { edge: 5.2 }]);
});

test("kernels stand in the picture only where they were recorded, and as model elsewhere", () => {
  const numbers = (state) => drawRoofline(trace, state, 868, measure).marks.filter((mark) => mark.tag === "circle" && mark.set?.rung).length;
  assert.ok(numbers(start) > 20);
  assert.equal(numbers({ ...start, bits: 8 }), 0);
  assert.equal(numbers({ ...start, batch: 2 }), 0);
  assert.match(rooflineSentence(trace, { ...start, rung: "ring" }), /recorded 5\.80 µs/);
  assert.doesNotMatch(rooflineSentence(trace, { ...start, gpu: "A100", rung: "ring" }), /recorded/);
});

test("the counters are those of the chosen kernel, and of no other", () => {
  const words = (rung) => counterLines(trace, { ...start, rung });
  assert.deepEqual(words("triton_coalesced"), ["12 triton_coalesced: memory busy 100 %, clocks with an instruction 100 %", "a warp waits most for a load from shared memory (gate_up, Nsight Compute)"]);
  assert.deepEqual(words("ring"), ["6 ring: not profiled"]);
  assert.match(words("")[0], /^choose a kernel/);
});

test("numbers of kernels cover neither each other nor the model's point, and stay in the plot", () => {
  for (const width of widths)
    for (const { state } of cases) {
      const axes = roofAxes(roofLayout(trace, width).plot);
      const places = kernelPlaces(trace, state, axes, []).map(({ place }) => place);
      places.forEach((one, at) => {
        assert.ok(one.y > axes.top && one.y < axes.bottom, JSON.stringify(state));
        places.slice(at + 1).forEach((other) => assert.ok(Math.hypot(one.x - other.x, one.y - other.y) >= 18));
      });
    }
});
