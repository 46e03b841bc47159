import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import view, { drawLoads, loadPlace, loadTitle, sectorColumns } from "../../../widgets/static/gemv_loads.js";
import { barWords, evaluate, formulaWords, keyLoads, loadScene, loadsSentence, loadTools, patternWords, producerWords, requestWords, rowWords, totalWords } from "../../../widgets/static/gemv_loads_data.js";
import { codeLine } from "../../../widgets/static/state.js";
import { measure, overlap, textBox } from "./data.mjs";

const { trace, spec, states } = JSON.parse(readFileSync(new URL("gemv_loads.json", import.meta.url), "utf-8"));
const widths = [868, 761, 586, 480];
const named = (name) => states.find(([{ preset }]) => preset === name)[0];
const first = named("a warp a row, 16 B");

test("the module's default export is a widget", () => assert.equal(typeof view.render, "function"));

test("every lane reads the bytes that the engine says, and as many sectors move", () => {
  assert.ok(states.length > 80);
  for (const [state, expected] of states) {
    const scene = loadScene(trace, state);
    const found = scene.requests.map(({ loads, sectors }) => ({ loads: loads.map((one) => [one.lane, one.row, one.start, one.size, one.offset, one.group, one.weight]), sectors }));
    assert.deepEqual(found, expected.requests.map(({ loads, sectors }) => ({ loads, sectors })), expected.sentence);
    assert.deepEqual([scene.used, scene.moved], expected.counts);
  }
});

test("sentence, code and all words are Python's", () => {
  for (const [state, expected] of states) {
    const scene = loadScene(trace, state);
    assert.equal(loadsSentence(trace, state), expected.sentence);
    assert.equal(codeLine(spec, state), expected.code);
    assert.deepEqual([loadTitle(scene), patternWords(scene), barWords(scene), ...rowWords(scene), totalWords(scene)], expected.words);
    assert.deepEqual(formulaWords(scene), expected.formulas);
    assert.equal(producerWords(scene), expected.producer);
    assert.deepEqual(scene.requests.map((request) => requestWords(scene, request)), expected.requests.map(({ words }) => words));
  }
});

test("a tree is evaluated as C does it for whole numbers", () => {
  assert.equal(evaluate(["+", ["*", "row", ["/", "k", 2]], ["%", 7, 4]], { row: 5, k: 3585 }), 5 * 1792 + 3);
  assert.deepEqual(["<", "<=", ">", ">=", "=="].map((sign) => evaluate([sign, 3, "k"], { k: 3 })), [0, 1, 0, 1, 1]);
});

test("the picture's height depends on the width alone", () => {
  for (const width of widths) assert.equal(new Set(states.map(([state]) => drawLoads(trace, state, width, measure).height)).size, 1, `at ${width}`);
});

test("no text overlaps another or leaves the picture, at any state and width", () => {
  for (const width of [868, 586])
    for (const [state] of states) {
      const { marks, height } = drawLoads(trace, state, width, measure);
      const boxes = marks.filter(({ tag, text }) => tag === "text" && text).map((mark) => ({ mark, box: textBox(mark) }));
      boxes.forEach(({ mark, box }, index) => {
        const where = `"${mark.text}" of ${JSON.stringify(state)}, width ${width}`;
        assert.ok(box[0] >= -2 && box[2] <= width + 2 && box[1] >= -1 && box[3] <= height + 1, `${where} leaves the picture: ${box}`);
        boxes.slice(index + 1).forEach((other) => assert.ok(!overlap(box, other.box), `${where} overlaps "${other.mark.text}"`));
      });
    }
});

test("every number in the picture is a number", () => {
  for (const [state] of states)
    for (const mark of drawLoads(trace, state, 868, measure).marks) {
      for (const name of ["x", "y", "width", "height"])
        if (name in mark) assert.ok(Number.isFinite(mark[name]) && (mark[name] >= 0 || !/width|height/.test(name)), `${name} of ${JSON.stringify(mark)}`);
      assert.ok(!/NaN|undefined/.test(JSON.stringify(mark)), JSON.stringify(mark));
    }
});

test("16 sectors share the width, each with two lanes of 16 bytes, and a shift puts them half a sector later", () => {
  const [{ loads, sectors }] = loadScene(trace, first).requests;
  const columns = sectorColumns(sectors, 800, 32);
  assert.deepEqual(loads.slice(0, 3).map((load) => loadPlace(columns, trace, 0, load)), [[0, 25], [25, 50], [50, 75]]);
  const shifted = loadScene(trace, { ...first, shift: 16 });
  const later = sectorColumns(shifted.requests[0].sectors, 17 * 50, 32);
  assert.deepEqual(loadPlace(later, trace, 16, shifted.requests[0].loads[0]), [25, 50]);
});

test("a gap parts sectors of different rows", () => {
  const columns = sectorColumns([3, 59, 60], 480, 32);
  assert.deepEqual([0, 1, 2].map(columns.cell), [{ x: 0, width: 27 }, { x: 30, width: 30 }, { x: 60, width: 30 }]);
});

test("hatching is what moves for nobody, a lane's bytes have the hue of its quarter of the warp", () => {
  const { marks } = drawLoads(trace, named("uncoalesced: a thread a row, 4 B"), 868, measure);
  const cells = marks.filter(({ tag, y, class: cls }) => tag === "rect" && y === 76 && / fill$/.test(cls));
  assert.deepEqual(cells.map(({ class: cls }) => cls), Array.from({ length: 32 }, (_, lane) => `c${(lane >> 3) + 1} fill`));
  assert.equal(marks.filter(({ y, class: cls }) => y === 76 && cls === "hatch").length, 32);
  const [used] = marks.filter(({ class: cls, height }) => cls === "ca fill" && height === 12);
  assert.equal(used.width, Math.round(868 / 8));
});

test("every lane can be chosen in the strip and in its bytes", () => {
  const lanes = (preset) => drawLoads(trace, named(preset), 868, measure).marks.map(({ set }) => set?.lane).filter((lane) => lane !== undefined);
  assert.deepEqual(lanes("a warp a row, 16 B").toSorted((a, b) => a - b), Array.from({ length: 64 }, (_, at) => at >> 1));
  assert.equal(lanes("the last iteration").length, 32 + 16);
});

test("keys choose a lane, letters act as the buttons say", () => {
  assert.deepEqual(keyLoads(trace, first, "ArrowDown"), { lane: 10 });
  assert.deepEqual(keyLoads(trace, { ...first, lane: 0 }, "ArrowUp"), { lane: 0 });
  assert.equal(keyLoads(trace, first, "ArrowRight"), null);
  assert.deepEqual(keyLoads(trace, first, "p"), { pattern: "rows", step: 2 });
  assert.deepEqual(keyLoads(trace, { ...first, step: 3, k: 18944 }, "k"), { k: 384, step: 0 });
  assert.deepEqual(keyLoads(trace, first, "s"), { shift: 16 });
  assert.deepEqual(keyLoads(trace, { ...first, warp: 7 }, "w"), { warp: 0 });
  assert.deepEqual(new Set(loadTools(trace, first).map(({ key }) => key)), new Set(["p", "k", "s", "w"]));
});

test("a step past the end of a new row shows the row's last iteration", () => {
  const late = { ...first, k: 384, step: 18 };
  assert.equal(loadsSentence(trace, late), loadsSentence(trace, { ...late, step: 0 }));
  assert.ok(drawLoads(trace, late, 868, measure).marks.length);
});
