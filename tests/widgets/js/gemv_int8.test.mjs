import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import view, { INT8_HEIGHT, dragInt8, drawInt8, int8BarSpan, launchAxes, spread } from "../../../widgets/static/gemv_int8.js";
import { againstWords, crossoverOf, fastestVariant, int8Segments, int8Sentence, int8Tools, keyInt8, longestTime, variantTime } from "../../../widgets/static/gemv_int8_model.js";
import { codeLine } from "../../../widgets/static/state.js";
import { measure, overlap, textBox } from "./data.mjs";

const { trace, spec, cases } = JSON.parse(readFileSync(new URL("gemv_int8.json", import.meta.url), "utf-8"));
const widths = [868, 761, 760, 586];
const near = (a, b) => Math.abs(a - b) <= 1e-9 * Math.max(1, Math.abs(a), Math.abs(b));
const eachState = (work) => cases.forEach((one) => work(one.state, one));
const down = { preset: "", stage: "down", launch: 1.1 };

test("the module's default export is a widget", () => assert.equal(typeof view.render, "function"));

test("times, parts, comparison, crossover, sentence and code are those of Python, at every setting", () => {
  assert.ok(cases.length > 50);
  eachState((state, { sentence, code, crossover, variants }) => {
    assert.equal(int8Sentence(trace, state), sentence);
    assert.equal(codeLine(spec, state), code);
    assert.ok(near(crossoverOf(trace, state), crossover));
    Object.entries(variants).forEach(([name, [time, against, segments]]) => {
      assert.ok(near(variantTime(trace, state, name), time));
      assert.equal(againstWords(trace, state, name), against);
      assert.deepEqual(int8Segments(trace, state, name).map(([part]) => part), segments.map(([part]) => part));
      int8Segments(trace, state, name).forEach(([, us], at) => assert.ok(near(us, segments[at][1])));
    });
  });
});

test("parts of a bar add up to its time, and no bar is longer than its place", () => {
  for (const width of widths)
    eachState((state) => {
      const [left, right] = int8BarSpan(width);
      Object.keys(trace.names).forEach((name) => {
        const sum = int8Segments(trace, state, name).reduce((all, [, us]) => all + us, 0);
        assert.ok(near(sum, variantTime(trace, state, name)));
        assert.ok(sum <= longestTime(trace, state) * (1 + 1e-9) && right > left + 150);
      });
    });
});

test("below the crossover the separate kernel is faster than FP16, above it slower", () => {
  const even = crossoverOf(trace, down);
  assert.ok(Math.abs(even - 0.5) < 1e-9); // 3.0 - 0.9 - 1.6
  const more = (launch) => variantTime(trace, down, "dp4a_separate", launch) - variantTime(trace, down, "fp16", launch);
  assert.ok(more(even - 0.01) < 0 && more(even + 0.01) > 0);
  assert.match(int8Sentence(trace, { ...down, stage: "lm_head" }), /separate never wins/);
});

test("the picture's height never changes", () => {
  for (const width of widths) eachState((state) => assert.equal(drawInt8(trace, state, width, measure).height, INT8_HEIGHT));
});

test("no text leaves the picture, and none without a halo overlaps another", () => {
  for (const width of widths)
    eachState((state) => {
      const { marks, height } = drawInt8(trace, state, width, measure);
      const texts = marks.filter(({ tag, class: cls }) => tag === "text" && !/over|ontag/.test(cls));
      texts.forEach((mark, at) => {
        const box = textBox(mark);
        assert.ok(box[0] >= -2 && box[2] <= width + 2 && box[1] >= -1 && box[3] <= height + 1, `"${mark.text}" leaves at ${width}: ${box}`);
        texts.slice(at + 1).forEach((other) => assert.ok(!overlap(box, textBox(other)), `"${mark.text}" overlaps "${other.text}" at ${width}`));
      });
    });
});

test("every number in the picture is a number", () => {
  eachState((state) => {
    for (const mark of drawInt8(trace, state, 868, measure).marks) {
      for (const name of ["x", "y", "width", "height", "x1", "x2", "y1", "y2", "cx", "cy", "r"])
        if (name in mark) assert.ok(Number.isFinite(mark[name]) && (mark[name] >= 0 || !/width|height/.test(name)), `${name} of ${JSON.stringify(mark)}`);
      if (mark.d) assert.doesNotMatch(mark.d, /NaN|Infinity/);
    }
  });
});

test("a drag sets the launch under the pointer and stops at the ends", () => {
  for (const width of widths) {
    const axes = launchAxes(trace, down, width);
    for (const launch of [0, 0.75, 3.14, 6]) assert.deepEqual(dragInt8(trace, down, width, measure, { x: axes.x(launch) }), { launch });
    assert.equal(dragInt8(trace, down, width, measure, { x: -50 }).launch, 0);
    assert.equal(dragInt8(trace, down, width, measure, { x: 5000 }).launch, 6);
  }
});

test("keys change launch and stage; each button's letter does what the button does", () => {
  assert.deepEqual(keyInt8(trace, down, "ArrowLeft"), { launch: 1.05 });
  assert.deepEqual(keyInt8(trace, down, "ArrowRight"), { launch: 1.15 });
  assert.deepEqual(keyInt8(trace, { ...down, launch: 0.2 }, "PageDown"), { launch: 0 });
  assert.deepEqual(keyInt8(trace, down, "PageUp"), { launch: 1.6 });
  assert.deepEqual(keyInt8(trace, down, "Home"), { launch: 0 });
  assert.deepEqual(keyInt8(trace, down, "End"), { launch: 6 });
  assert.deepEqual(keyInt8(trace, down, "ArrowDown"), { stage: "lm_head" });
  assert.deepEqual(keyInt8(trace, { ...down, stage: "token" }, "ArrowDown"), { stage: "qkv" });
  assert.equal(keyInt8(trace, down, "q"), null);
  int8Tools(trace, down).forEach(({ key, values }) => assert.deepEqual(keyInt8(trace, down, key), values));
  assert.deepEqual([0, 0.75, 1.1, 5.25].map((launch) => int8Tools(trace, { ...down, launch })[1].values.launch), [0.75, 1.1, 5.25, 0.75]);
});

test("names at the ends of lines are moved apart and stay inside", () => {
  assert.deepEqual(spread([50, 10, 52], 14, 0, 100), [50, 10, 64]);
  assert.deepEqual(spread([98, 99, 100], 14, 0, 100), [72, 86, 100]);
});

test("the fastest variant has the smallest time", () => {
  eachState((state) => Object.keys(trace.names).forEach((name) => assert.ok(variantTime(trace, state, fastestVariant(trace, state)) <= variantTime(trace, state, name))));
});

test("a sentence fits into the two rows of the foot, wide and narrow", () => {
  for (const room of [868 - 150, 586 - 150])
    eachState((_, { sentence }) => {
      const pieces = sentence.split(" · ").flatMap((part, at) => (part.length < 40 ? [at ? `· ${part}` : part] : `· ${part}`.split(" ")));
      let [rows, used] = [1, 0];
      pieces.forEach((piece) => {
        const wide = (measure(`${piece} `) * 13) / 12;
        [rows, used] = used + wide > room ? [rows + 1, wide] : [rows, used + wide];
      });
      assert.ok(rows <= 2, sentence);
    });
});
