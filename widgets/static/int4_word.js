// Lab 01's word: eight weights, eight nibbles, one register; then the instructions that turn it back into fp16.
// trace = {codes, orders, methods: {name: {layout, word, done, unpacked, steps}}}; widgets/int4_word_data.py makes it.
// Step 0 is the word before the first instruction. Bit 31 and weight 7 are at the left, in one column grid for all rows.
import { hexWord, line, middle, number, path, rect, text, wrap } from "./marks.js";
import { playground } from "./kit.js";

const WIDE_GRID = 760;
const [NIBBLE_GAP, HALF_GAP] = [4, 4];
const [WEIGHT, WIRES, NIBBLE] = [40, 32, 36];
const NIBBLES = [0, 1, 2, 3, 4, 5, 6, 7];
const [BIT, ROW_PITCH, UNPACKED] = [24, 32, 28];
const LINE_STEP = 16;

// The columns: x of a nibble and of a bit, both counted from the right.
export function wordGrid(width) {
  const wide = width > WIDE_GRID;
  const [left, right] = wide ? [128, 92] : [0, 88];
  const bit = Math.floor((width - left - right - 7 * NIBBLE_GAP - HALF_GAP) / 32);
  const x = (nibble) => left + (7 - nibble) * (4 * bit + NIBBLE_GAP) + (nibble < 4 ? HALF_GAP : 0);
  const bitX = (place) => x(place >> 2) + (3 - (place & 3)) * bit;
  return { wide, width, bit, nibble: 4 * bit, x, bitX, end: x(0) + 4 * bit };
}

// Where each part stands. It depends on the width and the longest comment, never on the step.
export function wordLayout(trace, grid, measure) {
  const whys = Object.values(trace.methods).flatMap(({ steps }) => steps.map(({ why }) => why));
  const lines = Math.max(...whys.map((why) => wrap(why, grid.width, measure).length));
  const nibbles = WEIGHT + WIRES;
  const instruction = nibbles + NIBBLE + 40;
  const rows = [0, 1, 2].map((row) => instruction + 16 + LINE_STEP * lines + row * ROW_PITCH);
  const result = rows[2] + ROW_PITCH + 12;
  const unpacked = result + BIT + 68;
  return { nibbles, instruction, rows, result, unpacked, height: unpacked + UNPACKED };
}

const pairHue = (weight) => `c${(Number(weight) >> 1) + 1}`;
const letterHue = (letter) => ({ k: "c4", m: "ca", x: "cw" })[letter] ?? pairHue(letter);

export const stepOf = (trace, state) => trace.methods[state.method].steps[state.step];

// A row's name stands left of its bits, its value right of them; where the page is narrow, one above the other.
function rowNames(grid, y, name, value, cls) {
  if (grid.wide) return [middle(0, y + BIT / 2, name, cls), middle(grid.width, y + BIT / 2, value, `e m ${cls || "mu"}`)];
  return [text(grid.width, y + 9, name, `e s ${cls}`), text(grid.width, y + 23, value, `e s m ${cls || "mu"}`)];
}

// ---- weights and nibbles ----

const wire = (from, top, to, bottom, cls) => path(`M${from} ${top}C${from} ${top + 0.5 * (bottom - top)} ${to} ${bottom - 0.5 * (bottom - top)} ${to} ${bottom}`, `${cls} stroke`);

const straight = (from, top, to, bottom, cls) => path(`M${from} ${top}L${to} ${bottom}`, `${cls} stroke`);

function weightMarks(trace, order, grid, top) {
  const shift = grid.bit < 16 ? 6 : 0;
  const box = (place, weight, y, height, value, cls) => [
    rect(grid.x(place), y, grid.nibble, height, `${pairHue(weight)} fill`),
    text(grid.x(place) + 5, y + 13, `w${weight}`, "s mu"),
    middle(grid.x(place) + grid.nibble / 2 + shift, y + height / 2 + 2, value, `c b big ${cls}`),
  ];
  const centre = (place) => grid.x(place) + grid.nibble / 2;
  const marks = order.flatMap((weight, place) => [
    ...box(weight, weight, 0, WEIGHT, number(trace.codes[weight]), ""),
    wire(centre(weight), WEIGHT, centre(place), top, pairHue(weight)),
    ...box(place, weight, top, NIBBLE, (trace.codes[weight] + 8).toString(16).toUpperCase(), "m"),
    text(centre(place), top + NIBBLE + 14, `${grid.wide ? "nibble" : "nib"} ${place}`, "c s mu"),
  ]);
  const [x, anchor] = grid.wide ? [0, "mu"] : [grid.width, "e mu"];
  return [...marks, middle(x, WEIGHT / 2, "weight, q", anchor), middle(x, top + NIBBLE / 2, grid.wide ? "nibble, n = q + 8" : "n = q + 8", anchor)];
}

// ---- bits ----

// The 32 bits of a row, its name and its value. A bit whose letter is "." is muted; "-" is no bit at all.
export function bitRow(grid, y, row, cls = "") {
  const marks = rowNames(grid, y, row.label, row.fill && hexWord(row.value), cls);
  Array.from(row.fill).forEach((letter, at) => {
    const place = 31 - at;
    const x = grid.bitX(place);
    const plain = letter === "." || letter === "-";
    if (!plain) marks.push(rect(x, y, grid.bit, BIT, `${letterHue(letter)} fill`));
    if (letter !== "-") marks.push(middle(x + grid.bit / 2, y + BIT / 2, (row.value >>> place) & 1, plain ? "c m mu" : "c m b"));
  });
  const frame = (nibble) => rect(grid.x(nibble), y, grid.nibble, BIT, row.fill[31 - 4 * nibble] === "-" ? "hatch" : "empty");
  return row.fill ? [...marks, ...NIBBLES.map(frame)] : marks;
}

// The mask: a band in the accent through all rows, under the bits.
export function bandMarks(grid, bands, top, bottom) {
  return bands.map(([high, low], at) => rect(grid.bitX(high) - 3, top, grid.bitX(low) + grid.bit - grid.bitX(high) + 6, bottom - top, "ca fill", { key: `band ${at}` }));
}

// Bits of the result that differ from the first operand, and what the line under them says.
function changedMarks(grid, y, changed) {
  if (!changed) return [];
  const places = Array.from({ length: 32 }, (_, place) => place).filter((place) => (changed >>> place) & 1);
  const lines = places.map((place) => line(grid.bitX(place) + 3, y - 3, grid.bitX(place) + grid.bit - 3, y - 3, "under"));
  return [...lines, line(grid.width - 72, y + 16, grid.width - 56, y + 16, "under"), text(grid.width, y + 20, "changed", "e s mu")];
}

// ---- prmt: selectors, the table of eight bytes, and which of them each selector picks ----

const TABLE = 36;
const byteX = (grid, place) => (grid.bitX(8 * place + 7) + grid.bitX(8 * place) + grid.bit) / 2;

export function lookupMarks(grid, layout, step) {
  const top = (layout.rows[0] + BIT + layout.result - TABLE) / 2;
  const centre = (place) => grid.x(place) + grid.nibble / 2;
  const hueOf = (pick) => (pick.owner === "." ? "axis" : letterHue(pick.owner));
  const wires = step.picks.flatMap((pick, place) => {
    const cls = `${hueOf(pick)}${pick.sign ? " dash" : ""}`;
    return [straight(centre(place), layout.rows[0] + BIT, centre(pick.byte), top, cls), straight(centre(pick.byte), top + TABLE, byteX(grid, place), layout.result, cls)];
  });
  const cells = step.table.flatMap(({ hex: byte, value }, place) => {
    const pick = step.picks.find((one) => one.byte === place);
    const x = grid.x(place);
    return [
      rect(x, top, grid.nibble, TABLE, pick ? (pick.owner === "." ? "c4 fill" : `${letterHue(pick.owner)} fill`) : "empty"),
      text(x + 5, top + 13, grid.bit < 18 ? place : `byte ${place}`, "s mu"),
      text(x + grid.nibble - 5, top + 13, value, "e s mu"),
      text(x + grid.nibble / 2, top + 29, byte, pick ? "c m b" : "c m mu"),
    ];
  });
  const [high, low] = step.tableNames;
  const names = grid.wide
    ? [text(0, top + 14, "table of 8 bytes"), text(0, top + 30, high ? `${high} | ${low}` : "", "s mu")]
    : [text(grid.width, top + 14, high ? `${high} |` : "table of", "e s mu"), text(grid.width, top + 30, low ?? "8 bytes", "e s mu")];
  return [...wires, ...cells, ...names];
}

// ---- what the result means ----

// A bracket under the bits that a note is about; an fp16 number has one for each of its fields.
export function noteMarks(grid, y, notes) {
  return notes.flatMap((note) => {
    const bracket = (high, low, name) => {
      const [from, to] = [grid.bitX(high) + 1.5, grid.bitX(low) + grid.bit - 1.5];
      return [path(`M${from} ${y}v5H${to}v-5`, "axis"), ...(name ? [text((from + to) / 2, y + 18, name, "c s mu")] : [])];
    };
    const { from, to, look } = note;
    const fields = note.fields ? [bracket(from, from, "s"), bracket(from - 1, from - 5, "exponent"), bracket(from - 6, to, "mantissa")] : [bracket(from, to)];
    const x = (grid.bitX(from) + grid.bitX(to) + grid.bit) / 2;
    const cls = { cw: "ink cw b", b: "b", mu: "mu" }[look] ?? "";
    return [...fields.flat(), text(x, y + (note.fields ? 38 : 20), note.text, `c ${cls}`), ...(note.more ? [text(x, y + 54, note.more, "c s mu")] : [])];
  });
}

// ---- the eight weights again ----

// Dots until the instruction that finishes a weight; a click goes there.
export function unpackedMarks(method, step, grid, y) {
  const ready = method.done.map((at) => at <= step);
  const marks = method.unpacked.flatMap(({ text: value, right }, weight) => {
    const [x, at] = [grid.x(weight), method.done[weight]];
    const more = { title: `w${weight}: instruction ${at}`, set: { step: at } };
    if (!ready[weight]) return [rect(x, y, grid.nibble, UNPACKED, "wait", more), rect(x, y, grid.nibble, UNPACKED, "empty")];
    return [
      rect(x, y, grid.nibble, UNPACKED, right ? `${pairHue(weight)} fill` : "cw fill", more),
      text(x + 5, y + 12, `w${weight}`, "s mu"),
      middle(x + grid.nibble / 2 + (grid.wide ? 0 : 9), y + UNPACKED / 2 + 1, value, right ? "c b" : "c b ink cw", more),
    ];
  });
  const count = ready.filter(Boolean).length;
  const wrong = method.unpacked.filter(({ right }, weight) => ready[weight] && !right).length;
  const said = wrong ? [`✕ ${wrong} wrong`, "ink cw b"] : [`${count === 8 ? "✓ " : ""}${count} of 8`, count === 8 ? "ink c2 b" : "mu"];
  if (grid.wide) return [...marks, middle(0, y + UNPACKED / 2, "unpacked, fp16", "mu"), middle(grid.width, y + UNPACKED / 2, said[0], `e ${said[1]}`)];
  return [...marks, text(grid.width, y + 11, "unpacked", "e s mu"), text(grid.width, y + 26, said[0], `e s ${said[1]}`)];
}

// ---- the picture ----

// What has been spent so far, in the longest form that has room.
function countText(step, count, room, measure) {
  const done = step === count;
  const all = `${count} / 8 = ${count / 8}`;
  const words = done ? [`${all} instructions a weight`, `${all} a weight`, all] : [`${step} instruction${step === 1 ? "" : "s"} so far`, `${step} so far`];
  return words.find((one) => measure(one, done ? "b" : "") <= room) ?? "";
}

function instructionMarks(step, at, count, grid, y, measure) {
  const cls = at ? "m b" : "b";
  const said = at ? countText(at, count, grid.width - measure(step.text, cls) - 16, measure) : "";
  const why = wrap(step.why, grid.width, measure);
  return [text(0, y, step.text, cls), text(grid.width, y, said, at === count ? "e b" : "e mu"), ...why.map((one, row) => text(0, y + 20 + LINE_STEP * row, one, "mu"))];
}

// From a nibble of the first row to a nibble of the result.
function nibbleWires(wires, grid, layout) {
  const centre = (place) => grid.x(place) + grid.nibble / 2;
  return wires.map(([from, to, letter]) => wire(centre(from), layout.rows[0] + BIT, centre(to), layout.result, letter === "." ? "axis" : letterHue(letter)));
}

// Operands stand right above the result, as in a sum by hand; what wires lead to it stands at the top.
export const rowPlaces = (step, { rows }) => (step.table || step.wires.length ? rows : rows.slice(rows.length - step.rows.length));

export function drawWord(trace, state, width, measure) {
  const method = trace.methods[state.method];
  const step = method.steps[state.step];
  const count = method.steps.length - 1;
  const grid = wordGrid(width);
  const layout = wordLayout(trace, grid, measure);
  const bottom = layout.result + BIT;
  const rows = rowPlaces(step, layout);
  const marks = [
    ...weightMarks(trace, trace.orders[method.layout], grid, layout.nibbles),
    ...instructionMarks(step, state.step, count, grid, layout.instruction, measure),
    ...bandMarks(grid, step.bands, rows[0] - 4, bottom + 4),
    ...nibbleWires(step.wires, grid, layout),
    ...(step.table ? lookupMarks(grid, layout, step) : []),
    ...step.rows.flatMap((row, at) => bitRow(grid, rows[at], row)),
    ...bitRow(grid, layout.result, step.result, "b"),
    ...changedMarks(grid, bottom, step.changed),
    ...noteMarks(grid, bottom + 6, step.notes),
    ...unpackedMarks(method, state.step, grid, layout.unpacked),
  ];
  return { marks, height: layout.height, label: `Weights, nibbles and the bits of the register: ${step.sentence}` };
}

// As wide for 1 as for 34, so that the scrubber keeps its length: a figure space in front takes the place of the tens.
export const countWords = (step, count) => `instruction ${step} of ${count}`.padStart(`instruction ${count} of ${count}`.length, "\u2007");

export default playground({
  draw: drawWord,
  steps: (trace, state) => trace.methods[state.method].steps.length,
  sentence: (trace, state) => stepOf(trace, state).sentence,
  count: (trace, state) => countWords(state.step, trace.methods[state.method].steps.length - 1),
});
