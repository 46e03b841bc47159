import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import view, { drawPages, hueOfOwner, kvLayout } from "../../../widgets/static/kv_pages.js";
import { eventWords, historyOf, holdersOf, keyPages, kvCounters, kvSentence, kvTools, memory, sceneOf } from "../../../widgets/static/kv_pages_words.js";
import { shellHtml } from "../../../widgets/static/shell.js";
import { codeLine, newValues } from "../../../widgets/static/state.js";
import { measure, overlap, textBox } from "./data.mjs";

const { trace, spec, cases } = JSON.parse(readFileSync(new URL("kv_pages.json", import.meta.url), "utf-8"));
const widths = [868, 841, 840, 586, 480];
const preset = (name) => ({ preset: name, ...spec.presets.find((one) => one.name === name).values });
const own = (actions, more = {}) => ({ preset: "", order: "running", actions, sequence: "", token: -1, step: actions ? actions.split(";").length : 0, ...more });
const press = (state, key) => ({ ...state, ...kvTools(trace, state).find((tool) => tool.key === key).values });
const after = (state, keys) => Array.from(keys).reduce((now, key) => ({ ...now, ...keyPages(trace, now, key) }), state);
const titles = (state, width = 868) => drawPages(trace, state, width, measure).marks.filter(({ title }) => title);

test("the module's default export is a widget", () => assert.equal(typeof view.render, "function"));

test("sentence, event, counters and copied line are the ones that Python writes, at every step", () => {
  assert.ok(cases.length > 100);
  cases.forEach(({ state, sentence, event, counters, code }) => {
    const { frame } = sceneOf(trace, state);
    assert.equal(kvSentence(trace, state), sentence);
    assert.deepEqual(eventWords(frame), event);
    assert.deepEqual(kvCounters(trace, frame), counters);
    assert.equal(codeLine(spec, state), code);
  });
});

test("the running sequence lies where the labs say", () => {
  assert.equal(kvSentence(trace, preset("running sequence")), "A · token 55 · page 3 → id 12 · slot 7 · bytes 50944–51199");
});

test("every preset shows the surprise that its sentence promises", () => {
  const frames = (name) => historyOf(trace, preset(name)).frames.slice(preset(name).step);
  assert.deepEqual(frames("15 → 16 → 17").map(({ taken }) => taken.length), [1, 0, 1]);
  assert.deepEqual(frames("two forks at 20").map(({ copied }) => copied.length), [0, 1, 0]);
  assert.deepEqual(frames("two forks at 20")[0].counts.filter(Boolean), [2, 2]);
  assert.deepEqual(frames("full pool").map(({ free, error }) => [free.length, Boolean(error)]), [[0, false], [0, false], [0, true]]);
  const [gaps, , fits] = frames("fragmented");
  assert.equal(kvCounters(trace, gaps)[1][2], "longest run 2");
  assert.deepEqual([fits.error, fits.taken.length], ["", 7]);
  const prefix = frames("shared prefix of 40");
  assert.deepEqual(prefix[0].counts.filter(Boolean), [4, 4, 4]);
  assert.equal(prefix.at(-1).counts.filter(Boolean).length, 10);
});

test("memory is written in units of 1024", () => {
  assert.deepEqual([0, 1023, 1024, 917504, 9175040, 1879048192].map(memory), ["0 B", "1023 B", "1.00 KiB", "896 KiB", "8.75 MiB", "1.75 GiB"]);
});

test("the picture's height depends on the width alone", () => {
  for (const width of widths) assert.equal(new Set(cases.map(({ state }) => drawPages(trace, state, width, measure).height)).size, 1, `at ${width}`);
});

test("no text overlaps another or leaves the picture, at any step and width", () => {
  for (const width of widths)
    for (const { state } of cases) {
      const { marks, height } = drawPages(trace, state, width, measure);
      const boxes = marks.filter(({ tag, text }) => tag === "text" && text).map((mark) => ({ mark, box: textBox(mark) }));
      boxes.forEach(({ mark, box }, at) => {
        const where = `"${mark.text}" of ${JSON.stringify(state)}, width ${width}`;
        assert.ok(box[0] >= -2 && box[2] <= width + 2 && box[1] >= -1 && box[3] <= height + 1, `${where} leaves the picture: ${box}`);
        boxes.slice(at + 1).forEach((other) => assert.ok(!overlap(box, other.box), `${where} overlaps "${other.mark.text}"`));
      });
    }
});

test("what stands in a page of the pool stays in it", () => {
  for (const width of widths)
    for (const { state } of cases) {
      const { marks } = drawPages(trace, state, width, measure);
      const pages = marks.filter(({ tag, height, class: cls }) => tag === "rect" && height === 102 && !/tint|hit/.test(cls)).map(({ x, width: wide, shift }) => [x + shift[0], x + shift[0] + wide]);
      const words = marks.filter(({ tag, text, class: cls }) => tag === "text" && /^(page \d+|taken|copied|returned|next|free)$/.test(text) && /^c s/.test(cls));
      assert.ok(words.length >= 16);
      words.map(textBox).forEach(([left, , right], at) => assert.ok(pages.some(([from, to]) => from <= left && right <= to), `${words[at].text} at ${width}`));
    }
});

test("every number in the picture is a number", () => {
  for (const width of widths)
    for (const { state } of cases)
      for (const mark of drawPages(trace, state, width, measure).marks)
        for (const name of ["x", "y", "width", "height", "x1", "x2", "y1", "y2"])
          if (name in mark) assert.ok(Number.isFinite(mark[name]) && (mark[name] >= 0 || !/width|height/.test(name)), `${name} of ${JSON.stringify(mark)}`);
});

test("bars are as long as tokens fill slots, and the rest is hatched", () => {
  cases.forEach(({ state }) => {
    const { frame } = sceneOf(trace, state);
    const { marks } = drawPages(trace, state, 868, measure);
    const bars = marks.filter(({ tag, height, class: cls }) => tag === "rect" && height === 4 && /solid|hatch/.test(cls));
    const sum = (kind) => bars.filter(({ class: cls }) => cls.includes(kind)).reduce((total, { width }) => total + width, 0) / (17 / 16);
    const tokens = frame.sequences.reduce((total, { length }) => total + length, 0);
    const slots = frame.sequences.reduce((total, { table }) => total + 16 * table.length, 0);
    assert.ok(Math.abs(sum("solid") - tokens) < 1e-6 && Math.abs(sum("hatch") - (slots - tokens)) < 1e-6, JSON.stringify(state));
  });
});

test("a shared page names and colours each of its holders, and says how many they are", () => {
  const { marks } = drawPages(trace, preset("shared prefix of 40"), 868, measure);
  assert.equal(marks.filter(({ text }) => text === "×4").length, 3);
  for (const [name, hue] of [["A", "c1"], ["B", "c2"], ["C", "c3"], ["D", "c4"]]) {
    assert.equal(hueOfOwner(name), hue);
    assert.equal(marks.filter(({ text, class: cls }) => text === name && cls === `c b ink ${hue}`).length, 4);
    assert.equal(marks.filter(({ height, class: cls }) => height === 102 && cls === `${hue} tint`).length, 3);
  }
});

test("hovering a slot of any used page tells page, id, slot and bytes", () => {
  const state = preset("two forks at 20");
  const words = titles(state).map(({ title }) => title);
  for (const one of ["B · token 19 · page 1 → id 9 · slot 3 · bytes 37632–37887", "B · token 0 · page 0 → id 5 · slot 0 · bytes 20480–20735", "B · no token · page 1 → id 9 · slot 15 · bytes 40704–40959"]) assert.ok(words.includes(one), one);
});

test("a click on a slot chooses it, and the sentence is what hovering said", () => {
  for (const { state } of cases.filter(({ state: { step } }) => step % 3 === 0))
    for (const { set, title } of titles(state)) {
      const now = { ...state, ...set };
      if (title.includes(" → id ") && title.includes("bytes") && !sceneOf(trace, now).frame.error) assert.equal(kvSentence(trace, now), title);
    }
});

test("all owners of a page are chosen as they are; the chosen one is kept", () => {
  const state = { ...preset("shared prefix of 40"), sequence: "C" };
  const page = titles(state).find(({ title }) => title === "id 9: page 1 of A, B, C, D");
  assert.deepEqual(page.set, { sequence: "C", token: 16 });
  assert.deepEqual(holdersOf(sceneOf(trace, state).frame, 9).map(({ name }) => name), ["A", "B", "C", "D"]);
});

test("buttons add to the history, and to the sequence that is chosen", () => {
  let state = own("");
  for (const [key, line] of [["n", "new"], ["p", "append A 16"], ["a", "append A"], ["f", "fork A"], ["a", "append B"], ["t", "truncate B 17"], ["x", "free B"], ["x", "free B"], ["e", "evict"]]) {
    state = press(state, key);
    assert.equal(state.actions.split("; ").at(-1), line);
    assert.equal(state.step, state.actions.split("; ").length);
  }
  assert.equal(historyOf(trace, state).frames.at(-2).error, "sequence: was freed already; make a new one");
});

test("an action at an earlier step gives up what came after it, and undo takes one back", () => {
  const state = { ...preset("two forks at 20"), step: 2 };
  assert.equal(press(state, "a").actions, "new; append A 20; append A");
  const undone = press(press(state, "a"), "u");
  assert.deepEqual([undone.actions, undone.step], ["new; append A 20", 2]);
  assert.equal(press(own("new"), "u").actions, "");
});

test("a new sequence and a fork are chosen, and after an eviction the chosen one stays so", () => {
  const state = own("new; append A 3; new; append B 4; new");
  assert.equal(sceneOf(trace, press({ ...state, sequence: "B" }, "f")).name, "D");
  assert.equal(sceneOf(trace, press({ ...state, sequence: "B" }, "e")).name, "B");
  assert.equal(sceneOf(trace, press({ ...state, sequence: "B" }, "a")).name, "B");
});

test("undo keeps the chosen sequence where it still exists", () => {
  assert.equal(press(own("new; append A; append A", { sequence: "A" }), "u").sequence, "A");
  assert.equal(press(own("new; append A; fork A", { sequence: "B" }), "u").sequence, "");
});

test("truncate cuts at the chosen token", () => {
  assert.match(press({ ...preset("running sequence"), token: 17 }, "t").actions, /; truncate A 17$/);
  assert.match(press(preset("running sequence"), "t").actions, /; truncate A 55$/);
});

test("a button that cannot act says why", () => {
  const off = (state) => Object.fromEntries(kvTools(trace, state).filter(({ values }) => !values).map(({ key, title }) => [key, title]));
  assert.deepEqual(off(own("")), { a: "make a sequence first", p: "make a sequence first", f: "make a sequence first", t: "make a sequence first", x: "make a sequence first", u: "nothing to undo" });
  const eight = own(Array(8).fill("new").join("; "));
  assert.equal(off(eight).n, "8 sequences are alive and the picture has no row for more");
  assert.equal(off(eight).f, off(eight).n);
  assert.deepEqual(off({ ...preset("running sequence"), token: 60 }), { t: "no token is chosen" });
  assert.equal(off({ ...preset("two forks at 20"), step: 1, sequence: "C" }).a, "C is not made yet");
});

test("the shell has a button with its key for each tool, and none where a picture has no tools", () => {
  const html = shellHtml(spec, 5, "keys", kvTools(trace, preset("full pool")));
  const tools = html.match(/<div class="nl-tools" role="toolbar".*?<\/div>/s)[0];
  assert.deepEqual(Array.from(tools.matchAll(/aria-keyshortcuts="(.)"><span>(.*?)<\/span>/g), ([, key, label]) => `${key} ${label}`), ["n New sequence", "a Add token", "p Add 16", "f Fork", "t Truncate", "x Free", "e Evict oldest", "u Undo"]);
  assert.ok(!shellHtml(spec, 5).includes("nl-tools"));
});

test("letters act as the buttons do", () => {
  const state = after(own(""), "nafapxfueu");
  assert.ok(state.actions.startsWith("new; append A; fork A; append B; append B 16; free B"));
  kvTools(trace, preset("full pool")).forEach(({ key, values }) => assert.deepEqual(keyPages(trace, preset("full pool"), key), values));
});

test("up and down choose a living or freed sequence and stop at the ends", () => {
  const state = own("new; new; new; free B");
  assert.equal(keyPages(trace, { ...state, sequence: "A" }, "ArrowDown").sequence, "B");
  assert.equal(keyPages(trace, { ...state, sequence: "B" }, "ArrowDown").sequence, "C");
  assert.equal(keyPages(trace, { ...state, sequence: "C" }, "ArrowDown").sequence, "C");
  assert.equal(keyPages(trace, { ...state, sequence: "A" }, "ArrowUp").sequence, "A");
  assert.equal(keyPages(trace, own(""), "ArrowDown"), null);
});

test("comma, period and page keys choose a slot and stop at the ends of the table", () => {
  const state = preset("running sequence");
  const keys = (token, key) => keyPages(trace, { ...state, token }, key).token;
  assert.deepEqual([keys(-1, ","), keys(-1, "."), keys(0, ","), keys(63, "."), keys(20, "PageDown"), keys(20, "PageUp"), keys(3, "PageUp")], [54, 56, 0, 63, 36, 4, 0]);
  for (const key of ["ArrowLeft", "ArrowRight", "Home", "End", " ", "Enter", "z"]) assert.equal(keyPages(trace, state, key), null, key);
});

test("what a button sets is worth one message", () => {
  const state = preset("running sequence");
  assert.deepEqual(Object.keys(newValues(state, press(state, "a"))), ["actions", "step"]);
});

test("wide, the tables lie beside the pool; narrow, above it", () => {
  assert.equal(kvLayout(trace, 868).pool[1], kvLayout(trace, 868).tables[1]);
  assert.ok(kvLayout(trace, 586).pool[1] > kvLayout(trace, 586).tables[1] + 200);
});
