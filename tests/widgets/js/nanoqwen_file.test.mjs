// file_map.json holds what Python makes of places in the shipped file; `python -m tests.widgets.file_map_data` writes it.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import view, { captionWords, countWords, drawFile, fileGroups, hexMarks, keyValues, mapLayout, pathMarks, stepOf, stepsOf, stretchOf, valuesAt, wrapped, zoomed } from "../../../widgets/static/nanoqwen_file.js";
import { LEVELS, byteMeaning, chosenOf, dumpStart, groupCodes, groupOf, halfFloat, inSection, meaningOf, pagesOf, pagesPerRow, scaleOf, sectionOf, sentenceOf } from "../../../widgets/static/nanoqwen_bytes.js";
import { pageGrid, pageRuns, shownPages } from "../../../widgets/static/nanoqwen_levels.js";
import { codeLine } from "../../../widgets/static/state.js";
import { measure, overlap, textBox } from "./data.mjs";

const data = JSON.parse(readFileSync(new URL("file_map.json", import.meta.url), "utf-8"));
const file = readFileSync(new URL("../../../data/tiny-coder.nanoqwen", import.meta.url));
const trace = { ...data.trace, bytes: new DataView(file.buffer, file.byteOffset, file.length) };
const states = data.cases.map(({ state }) => state);
const widths = [868, 761, 760, 586];
const GATE = "model.layers.0.mlp.gate_proj.weight";
const at = (level, more = {}) => ({ preset: "", section: GATE, row: 21, group: 1, byte: 6, level, ...more });

test("the module's default export is a widget", () => assert.equal(typeof view.render, "function"));

test("every place is said as Python says it", () => {
  assert.ok(data.cases.length > 100);
  for (const { state, sentence, title, lines, code, caption } of data.cases) {
    assert.equal(sentenceOf(trace, state), sentence);
    assert.deepEqual(meaningOf(trace, state), { title, lines, code }, sentence);
    assert.equal(captionWords(trace, state), caption);
  }
});

test("every place lies where the engine says", () => {
  for (const { state, chosen, stretch, pages, dump, shown, sentence } of data.cases) {
    const [found, wide] = [chosenOf(trace, state), stretchOf(trace, state)];
    assert.deepEqual([found.offset, found.length], chosen, sentence);
    assert.deepEqual([wide.offset, wide.length], stretch, sentence);
    assert.deepEqual(pagesOf(trace, found), pages, sentence);
    assert.equal(dumpStart(trace, state), dump, sentence);
    assert.deepEqual([3, 6].map((lines) => shownPages(trace, state, lines)), shown, sentence);
  }
});

test("a byte's nibbles are the engine's, in both layouts", () => {
  const layouts = new Set();
  data.bytes.forEach(({ layout, path: [name, row, group, byte], byte: expected }) => {
    const found = byteMeaning(trace, { ...trace.sections.find((one) => one.name === name), layout }, row, group, byte);
    const { wordOffset, scaleOffset, ...rest } = found;
    assert.deepEqual({ ...rest, word_offset: wordOffset, scale_offset: scaleOffset }, expected);
    layouts.add(layout);
  });
  assert.deepEqual([...layouts].sort(), ["linear", "value_shuffle"]);
});

test("sizes and orders are those of the data, not of the script", () => {
  const other = { ...trace, groupBytes: 16, scaleBytes: 4, layouts: { ...trace.layouts, value_shuffle: [7, 6, 5, 4, 3, 2, 1, 0] } };
  const section = sectionOf(trace, at("group"));
  const [mine, theirs] = [trace, other].map((one) => ({ start: groupOf(one, section, 21, 2).offset, scale: scaleOf(one, section, 21, 2).offset, weight: byteMeaning(one, section, 21, 0, 0).low.weight }));
  assert.deepEqual([theirs.start - mine.start, theirs.scale - mine.scale, theirs.weight - mine.weight], [-96, 4, 7]);
});

test("a group's codes are those of its 64 bytes, each weight once", () => {
  const codes = groupCodes(trace, sectionOf(trace, at("group")), 21, 1);
  assert.equal(codes.length, 128);
  assert.ok(codes.every((q) => Number.isInteger(q) && q >= -8 && q <= 7));
});

test("fp16 is read as Python reads it", () => {
  assert.ok(data.halves.length > 150);
  data.halves.forEach(([bits, value]) => assert.equal(halfFloat(bits), value));
  assert.ok(Number.isNaN(halfFloat(0x7e00)));
  assert.equal(halfFloat(0xfc00), -Infinity);
});

test("pages of rows repeat as in the engine", () => Object.entries(data.patterns).forEach(([bytes, pages]) => assert.deepEqual(pagesPerRow(trace, Number(bytes)), pages)));

test("the sections are grouped as in the PNG", () => assert.deepEqual(fileGroups(trace).map(({ name, offset, length, kind }) => [name, offset, length, kind]), data.groups));

test("the copied line is the one that Python writes", () => data.code.forEach(([given, { section, row, group, byte, level, preset }, line]) => assert.equal(codeLine({ ...data.spec, given }, { preset, section, row, group, byte, level }), line)));

// ---- the way about ----

test("Enter zooms in as far as there are weights, Backspace out to the file", () => {
  const way = [];
  for (let state = at("file"); state.level !== way.at(-1); state = { ...state, ...keyValues(trace, state, "Enter") }) way.push(state.level);
  assert.deepEqual(way, LEVELS);
  assert.equal(zoomed(trace, at("section", { section: "tokenizer" }), 1), null);
  assert.equal(zoomed(trace, at("file"), -1), null);
  assert.deepEqual(keyValues(trace, at("row"), "Backspace"), { level: "section" });
  assert.equal(keyValues(trace, at("row"), "x"), null);
});

test("the stepper stands at the level's part and goes through all of its siblings", () => {
  const counts = { file: 119, section: 896, row: 3, group: 64, byte: 64 };
  for (const level of LEVELS) {
    const state = at(level);
    assert.equal(stepsOf(trace, state), counts[level]);
    const there = { ...state, ...valuesAt(trace, state, counts[level] - 1) };
    assert.equal(stepOf(trace, there), counts[level] - 1);
    assert.equal(there.level, level);
  }
});

test("another section takes row and group along as far as it has them", () => {
  assert.deepEqual(inSection(trace, at("file", { row: 895, group: 2 }), "model.layers.0.self_attn.k_proj.weight"), { section: "model.layers.0.self_attn.k_proj.weight", row: 255, group: 2 });
  assert.deepEqual(inSection(trace, at("file"), "model.norm.weight"), { section: "model.norm.weight", row: 0, group: 0 });
});

test("a part of the header is no row: the way from there leads to row 0", () => {
  const state = at("file", { section: "header", row: 124 });
  assert.deepEqual(valuesAt(trace, state, 1), { section: "model.embed_tokens.weight", row: 0, group: 1 });
  assert.equal(inSection(trace, at("file"), "header").row, 0);
  assert.equal(inSection(trace, state, "header").row, 124);
});

test("a second click on a layer in the top bar zooms in", () => {
  const click = (state) => drawFile(trace, state, 868, measure).marks.find(({ title }) => title?.startsWith("layer 3: bytes")).set;
  const first = { ...at("group"), ...click(at("group")) };
  assert.deepEqual([first.level, first.section], ["file", "model.layers.3.input_layernorm.weight"]);
  assert.deepEqual(click(first), { level: "section" });
});

test("the pages that a step leaves alone are hatched", () => {
  const cells = drawFile(trace, at("file"), 868, measure).marks.filter(({ tag, y, title }) => tag === "rect" && y >= 24 && title && !title.includes("bytes"));
  const hatched = cells.filter(({ class: cls }) => cls === "hatch").map(({ title }) => title);
  assert.deepEqual([...new Set(hatched)].filter((name) => name !== "padding"), ["header", "tokenizer"]);
});

test("the count keeps its width", () => {
  const wide = [0, 9, 10, 895].map((row) => countWords(trace, at("section", { row })).length);
  assert.equal(new Set(wide).size, 1);
  assert.equal(countWords(trace, at("row")), "group 1 of 0–2");
});

test("a click on a part chooses it, a click on the chosen one zooms in", () => {
  const targets = (state) => drawFile(trace, state, 868, measure).marks.filter(({ set, tag }) => set && tag === "rect").map(({ set }) => set);
  assert.ok(targets(at("section")).some((set) => set.row === 22 && !set.level));
  assert.ok(targets(at("section")).some((set) => set.level === "row" && set.row === undefined));
  assert.ok(targets(at("group")).some((set) => set.byte === 7));
  assert.ok(targets(at("group")).some((set) => set.level === "byte"));
  assert.ok(targets(at("file")).some((set) => set.section === "tokenizer"));
  assert.ok(targets(at("file")).some((set) => set.level === "section" && set.section === undefined));
});

test("everything that a click sets is a place that there is", () => {
  for (const state of states)
    drawFile(trace, state, 868, measure).marks.filter(({ set }) => set).forEach(({ set }) => {
      const to = { ...state, ...set };
      const section = sectionOf(trace, to);
      assert.ok(to.row < section.rows, JSON.stringify(set));
      assert.ok(LEVELS.indexOf(to.level) < 2 || section.kind === "INT4", JSON.stringify(set));
    });
});

test("the path names every level, and the open one is bold", () => {
  const names = (state) => pathMarks(trace, state, 868, measure).filter(({ tag, class: cls }) => tag === "text" && !/\be\b/.test(cls)).map(({ text }) => text).filter((one) => one !== "›");
  assert.deepEqual(names(at("row")), ["file", "layer 0 mlp.gate_proj.weight", "row 21", "group 1", "byte 6"]);
  assert.deepEqual(names(at("section", { section: "header", row: 2 })), ["file", "header", "header length"]);
  const bold = pathMarks(trace, at("row"), 868, measure).filter(({ class: cls, tag }) => tag === "text" && cls === "b");
  assert.deepEqual(bold.map(({ text }) => text), ["row 21"]);
});

// ---- geometry ----

test("the picture's height depends on the width alone", () => {
  for (const width of widths) assert.equal(new Set(states.map((state) => drawFile(trace, state, width, measure).height)).size, 1, `at ${width}`);
});

test("no text overlaps another or leaves the picture, at any place and width", () => {
  for (const width of widths)
    for (const state of states) {
      const { marks, height } = drawFile(trace, state, width, measure);
      const boxes = marks.filter(({ tag }) => tag === "text").map((mark) => ({ mark, box: textBox(mark) }));
      boxes.forEach(({ mark, box }, place) => {
        const where = `"${mark.text}" of ${sentenceOf(trace, state)}, width ${width}`;
        assert.ok(box[0] >= -2 && box[2] <= width + 2 && box[1] >= -1 && box[3] <= height + 1, `${where} leaves the picture: ${box}`);
        boxes.slice(place + 1).forEach((other) => assert.ok(!overlap(box, other.box), `${where} overlaps "${other.mark.text}"`));
      });
    }
});

test("every number in the picture is a number, and nothing lies outside", () => {
  for (const state of states)
    for (const mark of drawFile(trace, state, 868, measure).marks) {
      for (const name of ["x", "y", "width", "height", "x1", "x2", "y1", "y2"])
        if (name in mark) assert.ok(Number.isFinite(mark[name]) && (mark[name] >= 0 || !/width|height/.test(name)), `${name} of ${JSON.stringify(mark)}`);
      if (mark.tag === "rect") assert.ok(mark.x >= -3 && mark.x + mark.width <= 871, JSON.stringify(mark));
    }
});

test("the keys of gliding marks are unique", () => {
  for (const state of states) {
    const keys = drawFile(trace, state, 868, measure).marks.map(({ key }) => key).filter(Boolean);
    assert.equal(new Set(keys).size, keys.length, sentenceOf(trace, state));
  }
});

test("every page of the file has one cell, and the selection has its own", () => {
  for (const [width, height] of [[868, 152], [586, 176]]) {
    const grid = pageGrid(1512, width, height);
    const runs = trace.sections.flatMap((section, index) => pageRuns([section.offset / 4096, (trace.sections[index + 1]?.offset ?? 1512 * 4096) / 4096 - 1], grid));
    assert.equal(runs.reduce((sum, run) => sum + run.width, 0), 1512 * grid.cell);
    assert.ok(Math.max(...runs.map((run) => run.y)) + grid.cell <= height);
    assert.ok(Math.max(...runs.map((run) => run.x + run.width)) <= width);
  }
  assert.deepEqual(pageRuns([8, 21], { cell: 10, columns: 10 }), [{ x: 80, y: 0, width: 20 }, { x: 0, y: 10, width: 100 }, { x: 0, y: 20, width: 20 }]);
});

test("a file of 4096 pages still fits into the grid", () => {
  const { cell, columns } = pageGrid(4096, 868, 152);
  assert.ok(Math.ceil(4096 / columns) * cell <= 152);
});

test("row 21 is outlined in two pieces that touch the borders of its pages", () => {
  const pieces = drawFile(trace, at("section"), 868, measure).marks.filter(({ key }) => key?.startsWith("piece"));
  assert.equal(pieces.length, 2);
  assert.ok(Math.abs(pieces[0].x + pieces[0].width - 868) < 1e-6);
  assert.ok(pieces[1].x < pieces[0].x && pieces[1].y > pieces[0].y);
  assert.ok(Math.abs(pieces[1].width / pieces[0].width - 2) < 1e-6); // 128 and 64 bytes
});

test("64 bytes are written in hex, the chosen ones not muted", () => {
  const bytes = hexMarks(trace, at("group"), measure).filter(({ tag, class: cls }) => tag === "text" && /\bm\b/.test(cls));
  assert.equal(bytes.length, 64);
  assert.deepEqual(bytes.filter(({ class: cls }) => !/mu/.test(cls)).map(({ text }) => text), ["4c"]);
});

test("text of the file is cut into pieces, the last with an ellipsis where it does not fit", () => {
  assert.deepEqual(wrapped("abcdefgh", 3, 5), ["abc", "def", "gh"]);
  assert.deepEqual(wrapped("abcdefgh", 3, 2), ["abc", "de…"]);
  assert.deepEqual(wrapped("abcdef", 3, 2), ["abc", "def"]);
});

test("wide puts the texts side by side, narrow below each other, and nothing lies outside", () => {
  for (const width of widths) {
    const { hex, meaning, height } = mapLayout(width);
    assert.equal(meaning[1] === hex[1], width > 760);
    [hex, meaning].forEach(([x, y, wide]) => assert.ok(x >= 0 && x + wide <= width && y + 100 <= height));
  }
});
