// The file map's own picture of each level: pages of the file, rows on pages, parts of the header, weights of a group, its
// codes, the bits of a byte. Each is (trace, state, width, height, measure) → marks from the top left corner.
import { grouped, line, middle, path, rect, signed, significant, text } from "./marks.js";
import { afterSection, byteMeaning, chosenOf, groupCodes, hexOf, inSection, isHeader, isMatrix, pageCount, pagesOf, pagesPerRow, region, rowOf, rowValue, scaleValue, sectionOf, wholeOf } from "./nanoqwen_bytes.js";

const WIDE_LEVEL = 760;
const hues = { INT4: "c1", F16: "c2", F32: "c3" };
export const hueOf = (kind) => hues[kind] ?? "c4";

// ---- file: every page, in rows ----

// Cells as large as fit: {cell, columns}.
export function pageGrid(pages, width, height) {
  let cell = 10;
  while (cell > 2 && Math.ceil(pages / Math.floor(width / cell)) * cell > height) cell -= 1;
  return { cell, columns: Math.floor(width / cell) };
}

// A run of pages as rectangles, one for each row that it lies on: [{x, y, width}] in px.
export function pageRuns([first, last], { cell, columns }) {
  const runs = [];
  for (let page = first; page <= last; page = (Math.floor(page / columns) + 1) * columns) {
    const end = Math.min(last, (Math.floor(page / columns) + 1) * columns - 1);
    runs.push({ x: (page % columns) * cell, y: Math.floor(page / columns) * cell, width: (end - page + 1) * cell });
  }
  return runs;
}

export function fileLevel(trace, state, width, height) {
  const pages = Math.ceil(trace.size / trace.page);
  const grid = pageGrid(pages, width, height - 24);
  const own = pagesOf(trace, wholeOf(sectionOf(trace, state)));
  const cells = (run, cls, more) => pageRuns(run, grid).map(({ x, y, width: wide }) => rect(x, 24 + y, wide, grid.cell, cls, more));
  const marks = [text(0, 12, `The file's ${grouped(pages)} pages of 4 KiB`, "b"), text(width, 12, `${grouped(pageCount(own))} in the selection · ${grouped(trace.stepPages)} touched by a step · hatched: the rest`, "e s mu")];
  trace.sections.forEach((section) => {
    const zoom = section.name === state.section ? { level: "section" } : inSection(trace, state, section.name);
    marks.push(...cells(pagesOf(trace, wholeOf(section)), section.step ? `${hueOf(section.kind)} fill` : "hatch", { title: section.label, set: zoom }));
  });
  return [...marks, path(gridLines(pages, grid), "rule"), ...cells(own, "sel")];
}

function gridLines(pages, { cell, columns }) {
  const rows = Math.ceil(pages / columns);
  const high = (column) => (column <= pages - (rows - 1) * columns ? rows : rows - 1) * cell;
  const across = Array.from({ length: rows - 1 }, (_, row) => `M0 ${24 + (row + 1) * cell}H${columns * cell}`);
  const down = Array.from({ length: columns - 1 }, (_, column) => `M${(column + 1) * cell} 24V${24 + high(column + 1)}`);
  return [...across, ...down].join("");
}

// ---- section: rows on lines of one page each ----

const LINES = 6;
const PITCH = 25;
const HIGH = 20;
const LEAST_ROW = 5;

// The pages drawn: [first, last + 1]. They change by four, so that a step moves the selection, not the picture.
export function shownPages(trace, state, lines = LINES) {
  const [section, pages] = [sectionOf(trace, state), pagesOf(trace, chosenOf(trace, state))];
  const [start, end] = [Math.floor(section.offset / trace.page), Math.ceil(trace.size / trace.page)];
  const block = Math.max(1, lines - 2);
  const first = start + Math.floor((pages[0] - start) / block) * block - 1;
  const wanted = pages[1] - first >= lines ? Math.min(pages[0], pages[1] - lines + 1) : first;
  const from = Math.max(0, Math.min(wanted, end - lines));
  return [from, Math.min(end, from + lines)];
}

export function sectionLevel(trace, state, width, height, measure) {
  const section = sectionOf(trace, state);
  const title = section.shape.length > 1 ? "Pages and their rows" : "Pages";
  return [text(0, 12, title, "b"), ...borderNote(trace, section, width), ...pageLines(trace, state, width, measure, LINES, 24)];
}

// Which rows lie on more pages than others, where that can be said shortly.
function borderNote(trace, section, width) {
  if (!isMatrix(section)) return [];
  const pattern = pagesPerRow(trace, section.length / section.rows);
  const least = Math.min(...pattern);
  const rows = pattern.flatMap((count, row) => (count > least ? [row] : []));
  const shown = `${rows.slice(0, 6).join(", ")}${rows.length > 6 ? " …" : ""}`;
  const note = rows.length ? `of every ${pattern.length} rows, ${shown} cross a border: thick ends` : "no row crosses a border";
  return [text(width, 12, note, "e s mu")];
}

function pageLines(trace, state, width, measure, lines, top) {
  const name = (page) => (width > WIDE_LEVEL ? `page ${grouped(page)}` : grouped(page));
  const left = Math.ceil(measure(name(Math.ceil(trace.size / trace.page)), "s b")) + 10;
  const scale = (width - left) / trace.page;
  const [first, end] = shownPages(trace, state, lines);
  const [chosen, marks] = [chosenOf(trace, state), []];
  const own = pagesOf(trace, chosen);
  for (let page = first; page < end; page += 1) {
    const [start, y] = [page * trace.page, top + (page - first) * PITCH];
    const on = { start, stop: start + trace.page, y, scale, x: (offset) => left + (Math.max(start, Math.min(start + trace.page, offset)) - start) * scale };
    marks.push(middle(0, y + HIGH / 2, name(page), own[0] <= page && page <= own[1] ? "s b" : "s mu"), ...onPage(trace, state, on, measure));
    if (chosen.offset < on.stop && chosen.stop > start) marks.push(rect(on.x(chosen.offset), y, Math.max(3, on.x(chosen.stop) - on.x(chosen.offset)), HIGH, "sel", { key: `piece ${page - own[0]}` }));
  }
  return marks;
}

// What lies on a page: the section, or the one that it belongs to, and padding.
function onPage(trace, state, on, measure) {
  const at = trace.sections.findLastIndex((one) => one.offset <= on.start);
  const [section, end] = [trace.sections[at], Math.min(on.stop, afterSection(trace, at))];
  const { offset, stop } = wholeOf(section);
  const marks = stop < end ? [rect(on.x(stop), on.y, on.x(end) - on.x(stop), HIGH, "hatch", { title: "padding" })] : [];
  if (stop <= on.start) return marks;
  if (section.name === state.section) return [...marks, ...rowsOnPage(trace, state, section, on, measure)];
  const set = inSection(trace, state, section.name);
  const [x, wide] = [on.x(offset), on.x(stop) - on.x(offset)];
  const label = measure(section.label, "s") + 16 < wide ? [middle(x + 8, on.y + HIGH / 2, section.label, "s mu", { set })] : [];
  return [...marks, rect(x, on.y, wide, HIGH, "empty dash", { title: section.label, set }), ...label];
}

// Rows side by side; too many to see are one rectangle. A row that goes on on another page has a thick end.
function rowsOnPage(trace, state, section, on, measure) {
  const fill = `${hueOf(section.kind)} fill`;
  const size = section.length / section.rows;
  if (!isHeader(section) && size * on.scale < LEAST_ROW) {
    const { offset, stop } = wholeOf(section);
    return [rect(on.x(offset), on.y, on.x(stop) - on.x(offset), HIGH, fill, { title: section.label })];
  }
  const first = isHeader(section) ? 0 : Math.max(0, Math.floor((on.start - section.offset) / size));
  const last = isHeader(section) ? section.rows - 1 : Math.min(section.rows - 1, Math.ceil((on.stop - section.offset) / size));
  return Array.from({ length: last - first + 1 }, (_, at) => first + at).flatMap((row) => {
    const one = rowOf(trace, section, row);
    if (one.kind === "entry") one.stop = rowOf(trace, section, Math.min(row + 1, section.rows - 1)).offset; // the comma too
    if (one.stop <= on.start || one.offset >= on.stop || one.kind === "padding") return [];
    return rowOnPage(one, row, row === state.row && isMatrix(section) ? { level: "row" } : { row }, fill, on, measure);
  });
}

function rowOnPage(one, row, set, fill, on, measure) {
  const [x, wide] = [on.x(one.offset), on.x(one.stop) - on.x(one.offset)];
  const [comes, goesOn] = [one.offset < on.start, one.stop > on.stop];
  const marks = [rect(x, on.y, wide, HIGH, fill, { title: one.name, set })];
  const end = fill.replace("fill", "solid");
  if (comes) marks.push(rect(x, on.y, 4, HIGH, end));
  if (goesOn) marks.push(rect(x + wide - 4, on.y, 4, HIGH, end));
  const cls = comes || goesOn ? "c s b" : "c s";
  if (one.kind !== "row" || measure(String(row), cls) + (comes || goesOn ? 8 : 3) > wide) return marks;
  return [...marks, middle(x + wide / 2 + (comes ? 2 : 0) - (goesOn ? 2 : 0), on.y + HIGH / 2, row, cls, { set })];
}

// ---- header: the preamble's fields, then lines of pages ----

export function headerLevel(trace, state, width, height, measure) {
  const section = sectionOf(trace, state);
  const cell = Math.min(34, Math.floor(width / trace.preamble));
  const marks = [text(0, 12, "The preamble: 24 bytes, numbers with their lowest byte first", "b")];
  trace.parts.slice(0, 4).forEach(([name, , offset, length], row) => {
    const [x, wide, here] = [offset * cell, length * cell, row === state.row];
    hexOf(trace, region(offset, length)).split(" ").forEach((byte, at) => marks.push(rect(x + at * cell, 22, cell, 24, "c4 fill", { set: { row } }), middle(x + (at + 0.5) * cell, 34, byte, "c m", { set: { row } })));
    const value = rowValue(trace, { section: section.name, row });
    const cls = here ? "c s b" : "c s mu";
    const word = [`${name} ${value}`, `${name.split(" ").at(-1)} ${value}`].find((one) => measure(one, cls) <= wide) ?? name;
    marks.push(path(`M${x + 3} 50V53H${x + wide - 3}V50`, "axis"), text(x + wide / 2, 66, word, cls));
    if (here) marks.push(rect(x, 22, wide, 24, "sel", { key: "field" }));
  });
  return [...marks, text(0, 88, "Header and padding on their pages", "b"), ...pageLines(trace, state, width, measure, 3, 97)];
}

// ---- row: the chosen group's weights ----

export function rowLevel(trace, state, width, height, measure) {
  const section = sectionOf(trace, state);
  const codes = groupCodes(trace, section, state.row, state.group);
  const scale = scaleValue(trace, section, state.row, state.group);
  const four = (value) => significant(value, 4);
  const [left, right, top, low] = [28, width - Math.ceil(measure("−0.00000", "s")) - 8, 28, height - 26];
  const y = (q) => top + ((7 - q) / 15) * (low - top);
  const step = (right - left) / trace.group;
  const marks = [text(0, 12, `Codes of group ${state.group}, in the order of the weights`, "b"), text(width, 12, `weight = code × ${four(scale)}`, "e s ink c2")];
  [7, 0, -8].forEach((q) => marks.push(line(left, y(q), right, y(q), q ? "rule" : "axis"), middle(left - 6, y(q), signed(q), "e s mu"), middle(width, y(q), four(q * scale), "e s ink c2")));
  codes.forEach((q, at) => marks.push(rect(left + at * step + 1, Math.min(y(0), y(q)), step - 1.5, Math.max(1, Math.abs(y(q) - y(0))), "c1 solid", { title: `weight ${state.group * trace.group + at}: code ${signed(q)}` })));
  [0, 32, 64, 96, 127].forEach((at) => marks.push(text(left + (at + 0.5) * step, height - 4, state.group * trace.group + at, "c s mu")));
  return marks;
}

// ---- group: 128 codes in lines ----

export function groupLevel(trace, state, width, height, measure) {
  const section = sectionOf(trace, state);
  const found = byteMeaning(trace, section, state.row, state.group, state.byte);
  const first = state.group * trace.group;
  const [columns, high, gap] = width > WIDE_LEVEL ? [32, 32, 6] : [16, 19, 3];
  const cell = Math.floor(width / columns);
  const place = (at) => [(at % columns) * cell, 24 + Math.floor(at / columns) * (high + gap)];
  const word = Math.floor(state.byte / 4);
  const marks = [text(0, 12, `The 128 codes, ${columns / 2} bytes a line`, "b"), text(width, 12, `byte ${state.byte}: weights ${found.low.weight} and ${found.high.weight} · thick: word ${word}`, "e s mu")];
  groupCodes(trace, section, state.row, state.group).forEach((q, at) => {
    const [[x, y], byte] = [place(at), byteOf(trace, section, at)];
    const set = byte === state.byte ? { level: "byte" } : { byte };
    marks.push(rect(x, y, cell, high, "c1 fill", { set, title: `weight ${first + at}, byte ${byte}` }), middle(x + cell / 2, y + high / 2, signed(q), "c s", { set }));
  });
  marks.push(rect(...place(8 * word), 8 * cell, high, "strong"));
  [found.low, found.high].forEach(({ weight }, half) => marks.push(rect(...place(weight - first), cell, high, "sel", { key: `half ${half}` })));
  return marks;
}

// The byte of the group that holds a weight.
const byteOf = (trace, section, at) => 4 * Math.floor(at / 8) + Math.floor(trace.layouts[section.layout].indexOf(at % 8) / 2);

// ---- byte: a word's four bytes, its nibbles and bits, its eight weights ----

const rowNames = [["bytes in the file", "bytes"], ["nibble n", "n"], ["bits", "bits"], ["code n − 8", "code"], ["code × scale", "weight"]];
const rowMiddles = [34, 90, 118, 139, 157];

export function byteLevel(trace, state, width, height, measure) {
  const section = sectionOf(trace, state);
  const found = byteMeaning(trace, section, state.row, state.group, state.byte);
  const left = width > WIDE_LEVEL ? 108 : 52;
  const cell = Math.floor((width - left) / 8);
  const at = state.byte % 4;
  const marks = [text(0, 12, `Word ${Math.floor(state.byte / 4)}: the first byte of four holds its lowest bits`, "b")];
  rowNames.forEach((names, row) => marks.push(middle(0, rowMiddles[row], names[width > WIDE_LEVEL ? 0 : 1], "s mu")));
  hexOf(trace, region(found.wordOffset, 4)).split(" ").forEach((byte, place) => {
    const [x, set, own] = [left + 2 * place * cell, { byte: state.byte - at + place }, place === at];
    const to = left + (7 - 2 * place) * cell;
    marks.push(rect(x, 22, 2 * cell, 24, "c4 fill", { set }), middle(x + cell, 34, byte, own ? "c m b" : "c m", { set }));
    marks.push(path(`M${x + cell} 46C${x + cell} 60 ${to} 58 ${to} 72`, own ? "ca stroke" : "axis"));
    if (own) marks.push(rect(x, 22, 2 * cell, 24, "sel", { key: "byte" }), rect(to - cell, 72, 2 * cell, 96, "sel", { key: "pair" }));
  });
  const nibbles = trace.layouts[section.layout].map((weight, place) => nibbleColumn(found, weight, place, left + (7 - place) * cell, cell, Math.floor(place / 2) === at));
  return [...nibbles.flat(), ...marks];
}

function nibbleColumn(found, weight, place, x, cell, own) {
  const n = (found.word >>> (4 * place)) & 15;
  const hue = `c${Math.floor(weight / 2) + 1}`;
  const [bit, muted] = [cell / 4, own ? "" : " mu"];
  const index = found.low.weight - (found.low.weight % 8) + weight;
  const bits = Array.from(n.toString(2).padStart(4, "0"), (one, from) => middle(x + (from + 0.5) * bit, rowMiddles[2], one, `c m s${muted}`));
  return [
    rect(x, 72, cell, 36, `${hue} fill`),
    text(x + 5, 84, `w${index}`, "s mu"),
    middle(x + cell / 2, rowMiddles[1] + 7, n, "c b big"),
    ...bits,
    middle(x + cell / 2, rowMiddles[3], signed(n - 8), `c b${muted}`),
    middle(x + cell / 2, rowMiddles[4], significant((n - 8) * found.scale, 4), `c s${muted}`),
  ];
}
