import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import view, { curvePanel, dragGroup, drawGroup, groupLayout, keyGroup } from "../../../widgets/static/int4_group.js";
import { chosenGroup, clipAt, errorAxis, groupSentence, rounded, wordOf } from "../../../widgets/static/int4_group_data.js";
import { columnAt, errorMarks, groupAxes, levelMarks, weightsPanel } from "../../../widgets/static/int4_levels.js";
import { codeLine } from "../../../widgets/static/state.js";
import { measure, overlap, textBox } from "./data.mjs";

const { trace, spec, own, sentences, ownSentences, words, code } = JSON.parse(readFileSync(new URL("group.json", import.meta.url), "utf-8"));
const widths = [868, 761, 760, 586, 480];
const running = trace.groups["running group"];
const signed = trace.groups["signed extreme"];
const all = [...sentences.map(([state]) => [trace, state]), ...ownSentences.map(([state]) => [own, state])];
const start = (state, x, y) => ({ state, x, y });

test("the module's default export is a widget", () => assert.equal(typeof view.render, "function"));

test("the sentence is the one that Python writes, at every scene", () => {
  assert.ok(sentences.length > 60);
  sentences.forEach(([state, sentence]) => assert.equal(groupSentence(trace, state), sentence));
  ownSentences.forEach(([state, sentence]) => assert.equal(groupSentence(own, state), sentence));
});

test("the copied line is the one that Python writes", () => assert.equal(codeLine(spec, { preset: "tiny", step: 79, weight: 3 }), code));

test("the word of a weight is the one that the converter packs", () => {
  words.filter(([, word]) => word).forEach(([state, word]) => {
    const group = chosenGroup(trace, state);
    assert.equal(wordOf(group, clipAt(group, state.step).codes, Math.floor(state.weight / 8)), word);
  });
  assert.equal(wordOf(chosenGroup(trace, {}), [-7, -1, 0, 3, 5, -4, 2, 7], 0), "0xF4B7AD81");
  assert.equal(wordOf({ order: [0, 1, 2, 3, 4, 5, 6, 7] }, [-7, -1, 0, 3, 5, -4, 2, 7], 0), "0xFA4DB871");
});

test("the picture's height depends on the width alone", () => {
  for (const width of widths) assert.equal(new Set(all.map(([data, state]) => drawGroup(data, state, width, measure).height)).size, 1, `at ${width}`);
});

test("no text overlaps another or leaves the picture, at any scene, step and width", () => {
  for (const width of widths)
    for (const [data, state] of all) {
      const { marks, height } = drawGroup(data, state, width, measure);
      const boxes = marks.filter(({ tag }) => tag === "text").map((mark) => ({ mark, box: textBox(mark) }));
      boxes.forEach(({ mark, box }, at) => {
        const where = `"${mark.text}" of ${JSON.stringify(state)}, width ${width}`;
        assert.ok(box[0] >= -2 && box[2] <= width + 2 && box[1] >= -1 && box[3] <= height + 1, `${where} leaves the picture: ${box}`);
        boxes.slice(at + 1).forEach((other) => assert.ok(!overlap(box, other.box), `${where} overlaps "${other.mark.text}"`));
      });
    }
});

test("every number in the picture is a number", () => {
  for (const [data, state] of all)
    for (const mark of drawGroup(data, state, 868, measure).marks)
      for (const name of ["x", "y", "width", "height", "x1", "x2", "y1", "y2", "cx", "cy", "r"])
        if (name in mark) assert.ok(Number.isFinite(mark[name]) && (mark[name] >= 0 || !/width|height/.test(name)), `${name} of ${JSON.stringify(mark)}`);
});

test("a sentence fits into the two rows of the foot, wide and narrow", () => {
  for (const [room, name] of [[868 - 120, "wide"], [586 - 120, "narrow"]])
    for (const [data, state] of all) {
      let [rows, used] = [1, 0];
      groupSentence(data, state).split(" · ").forEach((part, at) => {
        const wide = (measure(at ? ` · ${part}` : part) * 13) / 12;
        if (used && used + wide > room) [rows, used] = [rows + 1, wide];
        else used += wide;
      });
      assert.ok(rows <= 2, `${name}: ${groupSentence(data, state)}`);
    }
});

test("levels lie at code × scale, whatever the sign of the scale", () => {
  for (const group of [running, signed]) {
    const [clip, axes] = [clipAt(group, 88), groupAxes(group, 616)];
    const found = levelMarks(clip, axes).filter(({ tag }) => tag === "line").map(({ y1 }) => y1);
    assert.equal(found.length, 16);
    found.forEach((y, at) => assert.ok(Math.abs(y - axes.y((at - 8) * clip.scale)) < 1e-9));
    assert.equal(found[15] < found[0], clip.scale > 0);
  }
});

test("a weight is joined to its level, and what is off by over half a step is drawn as wrong", () => {
  const state = { preset: "running group", step: 40, weight: 0 };
  const [clip, axes] = [clipAt(running, 40), groupAxes(running, 616)];
  const marks = weightsPanel(running, state, 616, measure);
  const stems = marks.filter(({ tag, width, class: cls }) => tag === "rect" && width === 1 && /solid/.test(cls));
  assert.equal(stems.length, 128);
  stems.forEach((stem, index) => {
    const { weight, level, cut } = rounded(running, clip, index);
    const [top, bottom] = [axes.y(weight), axes.y(level)].sort((a, b) => a - b);
    assert.ok(Math.abs(stem.y - top) < 1e-9 && Math.abs(stem.y + stem.height - bottom) < 1e-9);
    assert.equal(/cw/.test(stem.class), cut);
    assert.equal(cut, weight > 7.5 * clip.scale || weight < -8.5 * clip.scale);
  });
});

test("an error has its sign and size, and one beyond the axis ends at its frame with a cap", () => {
  const [clip, axes] = [clipAt(running, 40), groupAxes(running, 616)];
  const zero = axes.errorY(0);
  const bars = errorMarks(running, clip, axes).filter(({ tag, width }) => tag === "rect" && width === 2);
  bars.forEach((bar, index) => {
    const { error } = rounded(running, clip, index);
    const high = (28 * Math.min(Math.abs(error), axes.bound)) / axes.bound;
    assert.ok(Math.abs(bar.height - high) < 1e-9);
    assert.ok(error > 0 ? Math.abs(bar.y + bar.height - zero) < 1e-9 : Math.abs(bar.y - zero) < 1e-9);
  });
  const caps = errorMarks(running, clip, axes).filter(({ tag, width }) => tag === "rect" && width === 4);
  assert.equal(caps.length, running.weights.filter((_, index) => Math.abs(rounded(running, clip, index).error) > axes.bound).length);
});

test("the line follows the pointer by as much as the pointer moved, up or down as the group has it", () => {
  for (const [group, preset] of [[running, "running group"], [signed, "signed extreme"], [chosenGroup(own, {}), "signed extreme"]]) {
    const data = { groups: { [preset]: group } };
    const axes = groupAxes(group, groupLayout(868).weights[2]);
    const from = { preset, step: 80, weight: 0 };
    const y = axes.y(0.8 * group.reach);
    const grabbed = start(from, 300, y + 5);
    assert.equal(dragGroup(data, from, 868, measure, { name: "clip", x: 300, y: y + 5, start: grabbed }).step, 80);
    const to = axes.y(0.35 * group.reach);
    assert.ok(Math.abs(dragGroup(data, from, 868, measure, { name: "clip", x: 9, y: to + 5, start: grabbed }).step - 35) < 1e-6);
  }
});

test("a place on the curve is a clip, and a column is its weight", () => {
  for (const width of [868, 586]) {
    const { curve, weights } = groupLayout(width);
    const state = { preset: "running group", step: 63, weight: 90 };
    const here = curvePanel(running, state, curve[2], measure).find(({ tag, class: cls }) => tag === "circle" && cls === "tag");
    const step = dragGroup(trace, state, width, measure, { name: "curve", x: curve[0] + here.cx, y: 0, start: start(state, 0, 0) }).step;
    assert.ok(Math.abs(step - 63) < 1e-9);
    const axes = groupAxes(running, weights[2]);
    for (const index of [0, 1, 90, 127]) assert.equal(dragGroup(trace, state, width, measure, { name: "weight", x: axes.x(index), y: 0, start: start(state, 0, 0) }).weight, index);
    assert.deepEqual([columnAt(running, axes, -50), columnAt(running, axes, 5000)], [0, 127]);
  }
});

test("the curve names its least error only once the line has left clip 1", () => {
  for (const preset of Object.keys(trace.groups)) {
    const marks = (step) => curvePanel(trace.groups[preset], { preset, step, weight: 0 }, 228, measure);
    const least = (step) => marks(step).filter((mark) => /^least/.test(mark.text ?? "") || (mark.tag === "circle" && mark.r === 5)).length;
    assert.deepEqual([100, 99, 0].map(least), [0, 2, 2], preset);
  }
});

test("left and right choose a weight and stop at the ends; up and down move the clip", () => {
  const state = { preset: "tiny", step: 4, weight: 0 };
  assert.deepEqual(keyGroup(trace, state, "ArrowRight"), { weight: 1 });
  assert.deepEqual(keyGroup(trace, state, "ArrowLeft"), { weight: 0 });
  assert.deepEqual(keyGroup(trace, { ...state, weight: 127 }, "ArrowRight"), { weight: 127 });
  assert.deepEqual(keyGroup(trace, state, "ArrowUp"), { step: 5 });
  assert.deepEqual(keyGroup(trace, state, "ArrowDown"), { step: 3 });
  ["Home", " "].forEach((key) => assert.equal(keyGroup(trace, state, key), null));
});

test("the handle lies above the columns, and all three areas can be pressed", () => {
  const { marks } = drawGroup(trace, { preset: "running group", step: 50, weight: 3 }, 868, measure);
  assert.deepEqual(marks.filter(({ drag }) => drag).map(({ drag }) => drag), ["weight", "clip", "clip", "curve"]);
});

test("the axis of the errors holds the least one and round numbers", () => {
  for (const group of Object.values(trace.groups)) {
    const { low, high, ticks } = errorAxis(group);
    const least = group.clips[group.best][2];
    assert.ok(low <= least && least <= high && high <= 1 && ticks.length >= 2 && ticks.length <= 6, JSON.stringify(errorAxis(group)));
    ticks.forEach((tick) => assert.ok(tick >= low - 1e-9 && tick <= high + 1e-9));
  }
  assert.deepEqual(errorAxis(running).ticks, [0.1, 0.15, 0.2]);
});

test("a refused scale has no level, no error and the engine's words", () => {
  const { marks } = drawGroup(trace, { preset: "huge", step: 100, weight: 24 }, 868, measure);
  assert.ok(marks.some(({ text }) => text?.includes("its scale is over 65504")));
  assert.equal(marks.filter(({ class: cls }) => /hatch/.test(cls ?? "")).length, 0);
  assert.equal(marks.filter(({ tag }) => tag === "circle").length, 3 + 128 + 1);
});

test("without a preset the first group is shown", () => assert.equal(chosenGroup(trace, { preset: "" }), running));
