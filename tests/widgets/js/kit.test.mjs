import assert from "node:assert/strict";
import { test } from "node:test";
import { escapeText, fit, grouped, hexWord, linear, move, number, percent, rect, signed, significant, svgText, text, wrap } from "../../../widgets/static/marks.js";
import { stageScale } from "../../../widgets/static/present.js";
import { sentenceHtml, shellHtml } from "../../../widgets/static/shell.js";
import { clampStep, codeLine, keyAction, leaving, neighbourPreset, newValues, pointIn, presetValues, stepAfter } from "../../../widgets/static/state.js";
import { data, measure } from "./data.mjs";

const spec = {
  name: "Pages", title: "Pages & slots", lab: "lab 04", ask: "Look.", badge: { kind: "computed", source: "counted" }, keepsPreset: false,
  presets: [{ name: "one", ask: "1?", values: { step: 0 } }, { name: "two", ask: "2?", values: { step: 7 } }, { name: "three", ask: "3?", values: { step: 9 } }],
};

test("text of a model is written as text, never as markup", () => {
  const drawn = svgText([text(0, 0, '<b>&"', "m", { title: "</title><script>" })], 10, 10, "a <label>");
  assert.match(drawn, /&lt;b&gt;&amp;&quot;/);
  assert.doesNotMatch(drawn, /<b>|<script>|<label>/);
  assert.equal(escapeText("'"), "&#39;");
});

test("marks carry what a click sets and where they were moved", () => {
  const [moved] = move(move([rect(1, 2, 3, 4, "c1 fill", { set: { step: 5 } })], 10, 20), 1, 1);
  assert.deepEqual(moved.shift, [11, 21]);
  assert.match(svgText([moved], 1, 1, ""), /data-set="{&quot;step&quot;:5}" transform="translate\(11 21\)"/);
});

test("a mark for a pointer carries the name of its handle", () => {
  assert.match(svgText([rect(1, 2, 3, 4, "hit", { drag: "clip" })], 1, 1, ""), /<rect x="1"[^>]* class="hit" data-drag="clip">/);
});

test("words are broken into rows of at most the room, and a word that is longer has a row of its own", () => {
  const rows = wrap("one scale for a hundred and twenty-eight weights", 100, measure);
  assert.equal(rows.join(" "), "one scale for a hundred and twenty-eight weights");
  assert.ok(rows.length > 2 && rows.every((row) => measure(row) <= 100));
  assert.deepEqual(wrap("incomprehensible a", 10, measure), ["incomprehensible", "a"]);
});

test("a pointer's place is in the picture's own px, also where Present scales it", () => {
  assert.deepEqual(pointIn({ left: 100, top: 50, width: 868, height: 400 }, 868, 110, 70), { x: 10, y: 20 });
  assert.deepEqual(pointIn({ left: 100, top: 50, width: 1736, height: 800 }, 868, 110, 70), { x: 5, y: 10 });
});

test("only a value that changes is worth a message", () => {
  const state = { preset: "", step: 3, weight: 5 };
  assert.deepEqual(newValues(state, { step: 3, weight: 6 }), { weight: 6 });
  assert.deepEqual(newValues(state, { step: 3 }), {});
});

test("a string that does not fit keeps its beginning and an ellipsis", () => {
  assert.equal(fit("short", 100, measure), "short");
  const cut = fit("a rather long label", 60, measure);
  assert.ok(cut.endsWith("…") && cut.startsWith("a rat"));
  assert.ok(measure(cut) <= 60);
  assert.equal(fit("long", 0, measure), "…");
});

test("scales are linear and numbers have a real minus", () => {
  assert.equal(linear(0, 10, 100, 200)(2.5), 125);
  assert.equal(number(-1.25, 1), "−1.2");
  assert.equal(number(2.5), "3");
});

test("percents and bytes are written as Python writes them", () => {
  assert.ok(data.cases.percent.length > 5);
  data.cases.percent.forEach(([share, digits, words]) => assert.equal(percent(share, digits), words));
});

test("numbers of any size are written as Python writes them", () => {
  assert.ok(data.cases.significant.length > 100);
  data.cases.significant.forEach(([value, digits, words]) => assert.equal(significant(value, digits), words, `${value} with ${digits}`));
  assert.equal(significant(-0.28125), "−0.281");
});

test("words and codes are spelled as Python spells them", () => {
  data.cases.words.forEach(([value, size, words]) => assert.equal(hexWord(value, size), words));
  data.cases.signed.forEach(([value, words]) => assert.equal(signed(value), words));
  assert.equal(hexWord(2n ** 64n - 1n, 8), "0xFFFFFFFFFFFFFFFF");
});

test("steps stay between the first and the last", () => {
  assert.equal(clampStep(-3, 5), 0);
  assert.equal(clampStep(99, 5), 4);
  assert.equal(stepAfter("last", 1, 5), 4);
  assert.equal(stepAfter("first", 3, 5), 0);
  assert.equal(stepAfter("previous", 0, 5), 0);
  assert.equal(stepAfter("next", 4, 5), 4);
});

test("a step away from a preset leaves it, and a preset one steps inside stays", () => {
  assert.deepEqual(presetValues(spec, "two"), { preset: "two", step: 7 });
  assert.deepEqual(leaving(spec, { preset: "two", step: 7 }, { step: 8 }), { step: 8, preset: "" });
  assert.deepEqual(leaving(spec, { preset: "", step: 6 }, { step: 7 }), { step: 7 });
  assert.deepEqual(leaving(spec, { preset: "two", step: 7 }, { step: 7 }), { step: 7 });
  assert.deepEqual(leaving(spec, { preset: "two", step: 7 }, { row: 3 }), { row: 3, preset: "" });
  assert.deepEqual(leaving(spec, { preset: "two", step: 7 }, presetValues(spec, "one")), { preset: "one", step: 0 });
  assert.deepEqual(leaving({ ...spec, keepsPreset: true }, { preset: "two", step: 7 }, { step: 8 }), { step: 8 });
});

test("presets go round, and from no preset to the first or the last", () => {
  assert.equal(neighbourPreset(spec, "three", 1), "one");
  assert.equal(neighbourPreset(spec, "one", -1), "three");
  assert.equal(neighbourPreset(spec, "", 1), "one");
  assert.equal(neighbourPreset(spec, "", -1), "three");
});

test("the copied line is the one that Python writes", () => {
  assert.ok(data.cases.code.length > 2);
  data.cases.code.forEach(([state, line]) => assert.equal(codeLine(data.spec, state), line));
  assert.equal(codeLine({ ...spec, keepsPreset: true }, { preset: "two", step: 8 }), 'Pages(preset="two", step=8)');
});

test("the copied line names further states, in Python's words, and the learner's own data first", () => {
  const state = { preset: "two", step: 7, weight: 3, cut: true, clip: 0.5 };
  assert.equal(codeLine(spec, state), 'Pages(preset="two", weight=3, cut=True, clip=0.5)');
  assert.equal(codeLine({ ...spec, given: "weights" }, { preset: "", step: 4 }), "Pages(weights, step=4)");
});

test("whole numbers have commas between their thousands", () => {
  assert.deepEqual([0, 999, 1000, 16650, 1163264, 4064280576].map(grouped), ["0", "999", "1,000", "16,650", "1,163,264", "4,064,280,576"]);
});

test("keys do what the focused part promises", () => {
  const rows = [
    ["ArrowRight", "picture", false, "next"], ["ArrowDown", "picture", false, "next"], ["ArrowUp", "picture", false, "previous"], ["ArrowLeft", "button", false, "previous"], ["Home", "picture", false, "first"],
    ["End", "button", false, "last"], [" ", "picture", false, "play"], [" ", "scrubber", false, "play"], [" ", "button", false, null],
    ["ArrowRight", "scrubber", false, null], ["Home", "scrubber", false, null], ["ArrowRight", "chips", false, "next preset"],
    ["ArrowUp", "chips", false, "previous preset"], ["ArrowRight", "picture", true, "next preset"], ["ArrowRight", "scrubber", true, null],
    ["Escape", "scrubber", true, "leave"], ["Escape", "picture", false, null], ["x", "picture", false, null], ["Enter", "button", false, null],
  ];
  rows.forEach(([key, where, presenting, action]) => assert.equal(keyAction(key, where, presenting), action, `${key} on ${where}`));
});

test("Present fills the window and never shrinks the cell's size", () => {
  assert.equal(stageScale(1848, 2000, 600), 2);
  assert.equal(stageScale(4000, 648, 300), 2);
  assert.equal(stageScale(500, 300, 600), 1);
});

test("the shell names every control and holds every preset's sentence", () => {
  const html = shellHtml(spec, 10);
  for (const label of ["first step", "previous step", "play", "next step", "last step", "step"]) assert.ok(html.includes(`aria-label="${label}"`), label);
  assert.match(html, /aria-label="picture; arrow keys step"/);
  assert.match(shellHtml(spec, 10, "up & down"), /aria-label="picture; up &amp; down"/);
  assert.match(html, /role="radiogroup"/);
  assert.match(html, /role="status" aria-live="polite"/);
  assert.match(html, /Pages &amp; slots/);
  assert.equal(html.match(/data-ask=/g).length, 4);
  assert.ok(!shellHtml(spec, 0).includes("nl-stepper"));
});

test("a sentence breaks only between its parts", () => {
  assert.equal(sentenceHtml("a b · c <d>"), '<span><span class="nl-part">a b</span> · <span class="nl-part">c &lt;d&gt;</span></span>');
});
