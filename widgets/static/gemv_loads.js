// Lab 03's loads: the lanes of a warp, wires to the bytes that they read, the sectors that move; then the row, where the
// byte's number comes from, and the whole matrix. A hue is a quarter of the warp, 8 lanes.
import { fit, line, middle, path, rect, text, wrap } from "./marks.js";
import { REQUESTS_SHOWN, barWords, evaluate, formulaWords, iterationWords, keyLoads, loadScene, loadsSentence, loadTools, loadWords, partOfRow, patternWords, producerWords, requestWords, rowWords, shareWords, totalWords } from "./gemv_loads_data.js";
import { playground } from "./kit.js";

const [LANE_TOP, LANE, WIRE] = [24, 28, 24];
const [SECTORS, TALL, SHORT, NEXT_REQUEST] = [76, 72, 22, 50];
const [BAR, STRIP, FORMULA, FORMULA_ROW, FORMULA_X] = [196, 240, 290, 18, 60];
const TOTAL = FORMULA + 2 * FORMULA_ROW + 12;
const MIN_SLOTS = 16;
const NUMBER_ROOM = 17;

const laneHue = (load, bulk) => (bulk ? "c3" : `c${(load.lane >> 3) + 1}`);
const laneX = (width) => (lane) => Math.round((lane * width) / 32);

// The columns of a request's sectors. A gap parts sectors that are no neighbours; x(byte) is where a byte of memory lies.
export function sectorColumns(sectors, width, sectorBytes) {
  const slots = Math.max(MIN_SLOTS, sectors.length);
  const places = new Map(sectors.map((sector, at) => [sector, at]));
  const edge = (at) => (at * width) / slots;
  const gap = (at) => (at + 1 < sectors.length && sectors[at + 1] !== sectors[at] + 1 ? 3 : 0);
  const cell = (at) => ({ x: Math.round(edge(at)), width: Math.round(edge(at + 1)) - Math.round(edge(at)) - gap(at) });
  const x = (sector, byte) => {
    const { x: left, width: wide } = cell(places.get(sector));
    return left + (byte * wide) / sectorBytes;
  };
  return { cell, x };
}

// Where a load lies in the row of sectors: [left, right].
export function loadPlace(columns, trace, shift, { start, size }) {
  const [first, last] = [start + shift, start + shift + size - 1];
  const at = (byte) => [Math.floor(byte / trace.sector), byte % trace.sector];
  const [[one, from], [other, to]] = [at(first), at(last)];
  return [columns.x(one, from), columns.x(other, to + 1)];
}

// ---- lanes and wires ----

function laneMarks(scene, width) {
  const { trace, pattern, requests, lane: chosen } = scene;
  if (pattern.bulk) return [rect(0, LANE_TOP, width, LANE, "c3 fill"), middle(width / 2, LANE_TOP + LANE / 2, producerWords(scene), "c")];
  const x = laneX(width);
  const reading = new Map(requests[0].loads.map((load) => [load.lane, load]));
  const cells = Array.from({ length: trace.lanes }, (_, lane) => {
    const [left, wide] = [x(lane) + 1, x(lane + 1) - x(lane) - 2];
    const more = { set: { lane }, title: loadWords({ ...scene, lane }, requests.flatMap(({ loads }) => loads.filter((load) => load.lane === lane))) };
    const load = reading.get(lane);
    return [rect(left, LANE_TOP, wide, LANE, load ? `${laneHue(load)} fill` : "hatch"), middle(left + wide / 2, LANE_TOP + LANE / 2, lane, `c s ${lane === chosen ? "b" : ""} ${load ? "" : "mu over"}`), rect(left, LANE_TOP, wide, LANE, "hit", more)];
  });
  return [...cells.flat(), rect(x(chosen), LANE_TOP - 1, x(chosen + 1) - x(chosen), LANE + 2, "sel")];
}

function wireMarks(scene, columns, width) {
  if (scene.pattern.bulk) return [line(1, LANE_TOP + LANE, 1, SECTORS, "axis"), line(width - 1, LANE_TOP + LANE, width - 1, SECTORS, "axis")];
  const [x, top, bottom] = [laneX(width), LANE_TOP + LANE, SECTORS];
  const wire = (load) => {
    const [left, right] = loadPlace(columns, scene.trace, scene.state.shift, load);
    const [from, to] = [(x(load.lane) + x(load.lane + 1)) / 2, (left + right) / 2];
    const cls = load.lane === scene.lane ? "sel" : `${laneHue(load)} stroke`;
    return path(`M${from} ${top}C${from} ${top + WIRE / 2} ${to} ${bottom - WIRE / 2} ${to} ${bottom}`, cls);
  };
  const [{ loads }] = scene.requests;
  return [...loads.filter(({ lane }) => lane !== scene.lane), ...loads.filter(({ lane }) => lane === scene.lane)].map(wire);
}

// ---- sectors ----

export function sectorMarks(scene, request, top, height, width, measure) {
  const { trace, state, pattern } = scene;
  const columns = sectorColumns(request.sectors, width, trace.sector);
  const cells = request.sectors.map((sector, at) => ({ sector, ...columns.cell(at) }));
  const paper = cells.map(({ x, width: wide }) => rect(x, top, wide, height, "hatch"));
  const bytes = request.loads.flatMap((load) => {
    const [left, right] = loadPlace(columns, trace, state.shift, load);
    const more = pattern.bulk ? { title: loadWords(scene, [load]) } : { set: { lane: load.lane }, title: loadWords({ ...scene, lane: load.lane }, [load]) };
    const named = !pattern.bulk && right - left >= NUMBER_ROOM ? [middle((left + right) / 2, top + height / 2, load.lane, `c s ${load.lane === scene.lane ? "b" : ""}`)] : [];
    const hit = right - left < NUMBER_ROOM && !pattern.bulk ? rect(left, top, NUMBER_ROOM, height, "hit", more) : rect(left, top, right - left, height, "hit", more);
    return [rect(left, top, right - left, height, `${laneHue(load, pattern.bulk)} fill`), ...named, hit];
  });
  const edges = pattern.bulk ? [] : cells.map(({ x, width: wide }) => rect(x, top, wide, height, "empty"));
  const mine = pattern.bulk ? [] : request.loads.filter(({ lane }) => lane === scene.lane).map((load) => {
    const [left, right] = loadPlace(columns, trace, state.shift, load);
    return rect(left - 1, top - 1, right - left + 2, height + 2, "sel");
  });
  return [...paper, ...bytes, ...edges, ...mine, ...bracketMarks(trace, cells, top + height + 4), ...requestMarks(scene, request, top + height + 20, width, measure)];
}

// A bracket under the sectors of one 128-byte line.
function bracketMarks(trace, cells, y) {
  const lineOf = ({ sector }) => Math.floor((sector * trace.sector) / trace.line);
  const lines = [...new Set(cells.map(lineOf))];
  return lines.map((one) => {
    const mine = cells.filter((cell) => lineOf(cell) === one);
    const [left, right] = [mine[0].x + 1.5, mine.at(-1).x + mine.at(-1).width - 1.5];
    return path(`M${left} ${y}v4H${right}v-4`, "axis");
  });
}

function requestMarks(scene, request, y, width, measure) {
  const [said, from] = requestWords(scene, request);
  return [text(0, y, said, "s mu"), text(width, y, fit(from, width - measure(said, "s") - 12, measure, "s"), "e s mu")];
}

// ---- used of moved, the row, the numbers ----

function barMarks(scene, width) {
  const { used, moved } = scene;
  const wide = Math.round((width * used) / moved);
  return [
    text(0, BAR, barWords(scene), "b"), text(width, BAR, `${shareWords(scene)} used`, "e b big"),
    rect(0, BAR + 8, width, 12, "hatch"), rect(0, BAR + 8, wide, 12, "ca fill"),
  ];
}

function stripMarks(scene, width) {
  const { trace, state, pattern } = scene;
  const bytes = evaluate(trace.rowBytes, state);
  const x = (byte) => Math.round((byte * width) / bytes);
  const [start, end] = partOfRow(scene);
  const [left, wide] = [Math.min(x(start), width - 2), Math.max(2, x(end) - x(start))];
  const count = pattern.iterations[state.k];
  const ticks = count > 40 ? [] : Array.from({ length: count - 1 }, (_, at) => x((at + 1) * pattern.stride));
  const [name, part] = rowWords(scene);
  return [
    text(0, STRIP, name), text(width, STRIP, part, "e mu"),
    rect(0, STRIP + 8, x(start), 14, "c4 tint"), rect(0, STRIP + 8, width, 14, "empty"), rect(left, STRIP + 8, wide, 14, "ca fill"),
    ...ticks.map((tick) => line(tick, STRIP + 22, tick, STRIP + 27, "axis")),
  ];
}

function formulaMarks(scene) {
  return formulaWords(scene).flatMap(([name, words], row) => {
    const y = FORMULA + row * FORMULA_ROW;
    return [text(0, y, name, "mu"), text(FORMULA_X, y, words, `m ${row === 1 ? "b" : ""}`)];
  });
}

// ---- the picture ----

export const loadTitle = (scene) => `${scene.pattern.bulk ? "first copies" : `warp ${scene.at.warp}`} of block ${scene.at.block}, ${iterationWords(scene)}`;

export function loadsHeight(trace, width, measure) {
  return TOTAL + 34 + 16 * Math.max(...Object.values(trace.patterns).flatMap(({ notes }) => Object.values(notes).map((note) => wrap(note, width, measure).length))) - 8;
}

export function drawLoads(trace, state, width, measure) {
  const scene = loadScene(trace, state);
  const { requests, pattern } = scene;
  const cellHeight = requests.length > 1 ? SHORT : TALL;
  const columns = sectorColumns(requests[0].sectors, width, trace.sector);
  const said = loadTitle(scene);
  const marks = [
    text(0, 14, said, "b"), text(width, 14, fit(patternWords(scene), width - measure(said, "b") - 12, measure), "e mu"),
    ...laneMarks(scene, width), ...wireMarks(scene, columns, width),
    ...requests.slice(0, REQUESTS_SHOWN).flatMap((request, row) => sectorMarks(scene, request, SECTORS + row * NEXT_REQUEST, cellHeight, width, measure)),
    ...barMarks(scene, width), ...stripMarks(scene, width), ...formulaMarks(scene),
    line(0, TOTAL, width, TOTAL, "rule"), text(0, TOTAL + 18, fit(totalWords(scene), width, measure, "b"), "b"),
    ...wrap(pattern.notes[state.shift], width, measure).map((words, row) => text(0, TOTAL + 36 + 16 * row, words, "mu")),
  ];
  return { marks, height: loadsHeight(trace, width, measure), label: `Lanes of a warp and the sectors that they read: ${loadsSentence(trace, state)}` };
}

const iterationsOf = (trace, { pattern, k }) => trace.patterns[pattern].iterations[k];

export default playground({
  draw: drawLoads,
  key: keyLoads,
  keys: "left and right step through the iterations, up and down choose a lane; letters act as the buttons say",
  tools: loadTools,
  lines: 2,
  pace: 350,
  steps: iterationsOf,
  sentence: loadsSentence,
  count: (trace, state) => `${trace.patterns[state.pattern].bulk ? "chunk" : "iteration"} ${state.step} of 0–${iterationsOf(trace, state) - 1}`,
});
