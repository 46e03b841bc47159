// Reading a .nanoqwen file from its bytes: where a section, a row, a group, a byte lies, what it means, and the words for it.
// trace.bytes is a DataView of the whole file; widgets/nanoqwen_file_words.py says the same words. No drawing here.
import { grouped, hexWord, signed, significant } from "./marks.js";

export const LEVELS = ["file", "section", "row", "group", "byte"];
export const PART = { file: "section", section: "row", row: "group", group: "byte", byte: "byte" };
const NOUNS = { INT4: "row", F16: "row", F32: "number", JSON: "byte", header: "part" };
export const DUMP = 64;

export const region = (offset, length, kind, name) => ({ offset, length, kind, name, stop: offset + length });
export const sectionAt = (trace, name) => trace.sections.findIndex((one) => one.name === name);
export const sectionOf = (trace, state) => trace.sections[sectionAt(trace, state.section)];
export const isMatrix = (section) => section.kind === "INT4";
export const isHeader = (section) => section.kind === "header";
export const groupsOf = (trace, section) => (isMatrix(section) ? section.shape[1] / trace.group : 1);
export const counts = (trace, state) => {
  const section = sectionOf(trace, state);
  return { section: trace.sections.length, row: section.rows, group: groupsOf(trace, section), byte: trace.groupBytes };
};

// Another section, with row and group as far as it has them. A part of the header is no row, nor is a number or a byte.
export function inSection(trace, state, name) {
  const most = counts(trace, { ...state, section: name });
  const [from, to] = [state.section, name].map((one) => NOUNS[trace.sections[sectionAt(trace, one)].kind]);
  return { section: name, row: from === to ? Math.min(state.row, most.row - 1) : 0, group: Math.min(state.group, most.group - 1) };
}

export const wholeOf = ({ offset, length, kind, name }) => region(offset, length, kind, name);
export const afterSection = (trace, at) => trace.sections[at + 1]?.offset ?? trace.size;

// The numbers of the 4 KiB pages that hold the bytes: [first, last].
export const pagesOf = (trace, { offset, stop }) => [Math.floor(offset / trace.page), Math.floor((stop - 1) / trace.page)];
export const pageCount = (pages) => pages[1] - pages[0] + 1;

export function rowOf(trace, section, row) {
  if (isHeader(section)) {
    const [name, kind, offset, length] = trace.parts[row];
    return region(offset, length, kind, name);
  }
  const length = section.length / section.rows;
  return region(section.offset + row * length, length, "row", `row ${row}`);
}

export const groupOf = (trace, section, row, group) => region(rowOf(trace, section, row).offset + group * trace.groupBytes, trace.groupBytes, "group", `group ${group}`);

export const scaleOf = (trace, section, row, group) => region(rowOf(trace, trace.sections[section.scales], row).offset + trace.scaleBytes * group, trace.scaleBytes, "scale", `scale of group ${group}`);

// The bytes of what is chosen at the level.
export function chosenOf(trace, state) {
  const section = sectionOf(trace, state);
  if (state.level === "file") return wholeOf(section);
  if (state.level === "section") return rowOf(trace, section, state.row);
  const group = groupOf(trace, section, state.row, state.group);
  return state.level === "row" ? group : region(group.offset + state.byte, 1, "byte", `byte ${state.byte}`);
}

// ---- numbers ----

export function halfFloat(bits) {
  const [sign, exponent, fraction] = [bits >> 15 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24);
}

export const scaleValue = (trace, section, row, group) => halfFloat(trace.bytes.getUint16(scaleOf(trace, section, row, group).offset, true));

// Byte 0 to 63 of a group: {offset, value, wordOffset, word, scaleOffset, scale, low, high}; a nibble is {place, weight, n, q, value}.
export function byteMeaning(trace, section, row, group, byte) {
  const start = groupOf(trace, section, row, group).offset;
  const [offset, wordOffset] = [start + byte, start + byte - (byte % 4)];
  const value = trace.bytes.getUint8(offset);
  const scale = scaleValue(trace, section, row, group);
  const nibble = (half) => {
    const [place, n] = [2 * (byte % 4) + half, (value >> (4 * half)) & 15];
    const weight = group * trace.group + 8 * Math.floor(byte / 4) + trace.layouts[section.layout][place];
    return { place, weight, n, q: n - 8, value: (n - 8) * scale };
  };
  return { offset, value, wordOffset, word: trace.bytes.getUint32(wordOffset, true), scaleOffset: scaleOf(trace, section, row, group).offset, scale, low: nibble(0), high: nibble(1) };
}

// The 128 codes of a group in the order of their weights.
export function groupCodes(trace, section, row, group) {
  const codes = [];
  for (let byte = 0; byte < trace.groupBytes; byte += 1) {
    const { low, high } = byteMeaning(trace, section, row, group, byte);
    [low, high].forEach(({ weight, q }) => { codes[weight - group * trace.group] = q; });
  }
  return codes;
}

const greatestDivisor = (a, b) => (b ? greatestDivisor(b, a % b) : a);

// Pages that row 0, 1, 2, … touches, until the pattern repeats.
export function pagesPerRow(trace, rowBytes) {
  const period = trace.page / greatestDivisor(trace.page, rowBytes);
  return Array.from({ length: period }, (_, row) => pageCount(pagesOf(trace, region(row * rowBytes, rowBytes))));
}

// ---- words ----

const bytesAt = (trace, { offset, length }) => Array.from({ length }, (_, at) => trace.bytes.getUint8(offset + at));
export const hexOf = (trace, one) => bytesAt(trace, one).map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
const textOf = (trace, { offset, length }) => new TextDecoder().decode(new Uint8Array(trace.bytes.buffer, trace.bytes.byteOffset + offset, length));
const four = (value) => significant(value, 4);
export const spanWords = (first, last) => (first === last ? grouped(first) : `${grouped(first)}–${grouped(last)}`);
export const pagesWords = (pages) => (pages[0] === pages[1] ? `page ${grouped(pages[0])}` : `${grouped(pageCount(pages))} pages ${spanWords(...pages)}`);
export const bytesWords = ({ offset, length, stop }) => `byte${length > 1 ? "s" : ""} ${spanWords(offset, stop - 1)}`;
const addressWords = (trace, offset) => `at ${grouped(offset)}, page ${grouped(Math.floor(offset / trace.page))}`;

export function rowWords(trace, state) {
  const section = sectionOf(trace, state);
  return isHeader(section) ? trace.parts[state.row][0] : `${NOUNS[section.kind]} ${state.row}`;
}

const letterWords = (byte) => hexWord(byte, 1) + (byte >= 32 && byte < 127 ? ` "${String.fromCharCode(byte)}"` : "");

// What a row's bytes are, where that is one short value.
export function rowValue(trace, state) {
  const section = sectionOf(trace, state);
  const row = rowOf(trace, section, state.row);
  if (section.kind === "F32") return four(trace.bytes.getFloat32(row.offset, true));
  if (section.kind === "JSON") return letterWords(trace.bytes.getUint8(row.offset));
  if (row.kind !== "preamble") return "";
  if (row.name === "magic") return textOf(trace, row);
  return row.name === "checksum" ? hexWord(trace.bytes.getBigUint64(row.offset, true), 8) : grouped(trace.bytes.getUint32(row.offset, true));
}

const kindWords = (trace, section) => (isHeader(section) ? `preamble ${trace.preamble} bytes, JSON ${grouped(section.length - trace.preamble)}` : `${section.kind} ${section.shape.join(" × ")}`);
const weightWords = ({ weight, q, value }) => `weight ${weight}: ${signed(q)} × scale = ${four(value)}`;
const chosenByte = (trace, state) => byteMeaning(trace, sectionOf(trace, state), state.row, state.group, state.byte);

export function sentenceOf(trace, state) {
  const section = sectionOf(trace, state);
  const chosen = chosenOf(trace, state);
  const where = [bytesWords(chosen), pagesWords(pagesOf(trace, chosen))];
  if (state.level === "file") return [section.label, kindWords(trace, section), ...where].join(" · ");
  if (state.level === "section") return [section.label, rowWords(trace, state), ...where, rowValue(trace, state)].filter(Boolean).join(" · ");
  const found = chosenByte(trace, state);
  const path = [`row ${state.row}`, `group ${state.group}`];
  if (state.level === "row") return [section.label, ...path, ...where, `scale ${four(found.scale)}`].join(" · ");
  const start = [...path, `byte ${state.byte} = ${hexWord(found.value, 1)}`];
  if (state.level === "byte") return [...start, weightWords(found.low), weightWords(found.high)].join(" · ");
  return [...start, `weights ${found.low.weight} and ${found.high.weight}`, `codes ${signed(found.low.q)} and ${signed(found.high.q)}`].join(" · ");
}

// ---- bytes and their meaning ----

// The first of the 64 bytes shown in hex: a long region's own first, else a window that holds it.
export function dumpStart(trace, state) {
  const section = sectionOf(trace, state);
  if (LEVELS.indexOf(state.level) > 1) return groupOf(trace, section, state.row, state.group).offset;
  const chosen = chosenOf(trace, state);
  if (chosen.length >= DUMP) return chosen.offset;
  const window = chosen.length <= 16 ? DUMP : 16;
  return Math.max(0, Math.min(chosen.offset - ((chosen.offset - section.offset) % window), trace.size - DUMP));
}

const meaningOf_ = { file: fileMeaning, row: groupMeaning, group: pairMeaning, byte: singleMeaning };

// {title, lines, code}: what the chosen bytes mean, in up to five lines; code is text of the file itself.
export function meaningOf(trace, state) {
  const section = sectionOf(trace, state);
  if (state.level === "section") return isHeader(section) ? partMeaning(trace, state) : rowMeaning(trace, state);
  return meaningOf_[state.level](trace, state);
}

const words = (title, ...lines) => ({ title, lines, code: false });
const code = (title, text) => ({ title, lines: [text], code: true });

function fileMeaning(trace, state) {
  const section = sectionOf(trace, state);
  if (!isHeader(section)) {
    const entry = region(...section.entry);
    return code(`Its entry in the header, ${bytesWords(entry)}`, textOf(trace, entry));
  }
  return words("Preamble and header",
    `${trace.preamble} bytes of preamble: magic, version, header length, checksum`,
    `${grouped(section.length - trace.preamble)} bytes of JSON: config, quantization, ${trace.sections.length - 1} sections`,
    `${grouped(trace.sections[1].offset - section.length)} bytes of padding follow, up to the first section`,
    "opening the file reads them, a step needs none of them");
}

function partMeaning(trace, state) {
  const section = sectionOf(trace, state);
  const part = rowOf(trace, section, state.row);
  const [title, value] = [`${part.name}: ${grouped(part.length)} bytes`, rowValue(trace, state)];
  if (part.kind === "entry") return code(title, textOf(trace, part));
  if (part.kind === "padding") {
    return words(title, `from the header's end, ${grouped(part.offset)}, to the first section, ${grouped(part.stop)}`, `${grouped(part.stop)} = ${part.stop / trace.page} × ${grouped(trace.page)}: a section begins on a page of its own`);
  }
  if (part.name === "magic") return words(title, `the letters "${value}"; another file begins with others`);
  if (part.name === "version") return words(title, `u32, lowest byte first: ${hexOf(trace, part)} = ${value}`, "a reader refuses a version it does not know");
  if (part.name === "header length") return words(title, `u32, lowest byte first: ${hexOf(trace, part)} = ${value}`, "at most 1 MiB; the JSON ends there");
  return words(title, `u64, lowest byte first: ${value}`, `XXH3-64 of the ${grouped(section.length - trace.preamble)} bytes of JSON`, "it stands outside what it covers: no number covers itself");
}

function rowMeaning(trace, state) {
  const section = sectionOf(trace, state);
  const row = rowOf(trace, section, state.row);
  const name = rowWords(trace, state);
  const title = `${name[0].toUpperCase()}${name.slice(1)}: ${grouped(row.length)} byte${row.length > 1 ? "s" : ""}`;
  const lines = [`${grouped(section.offset)} + ${state.row} × ${grouped(row.length)} = ${grouped(row.offset)}`, borderWords(trace, row), ...kindLines(trace, state, section, row)];
  return words(title, ...lines, `a step touches ${grouped(trace.stepPages)} of the file's ${grouped(Math.ceil(trace.size / trace.page))} pages`);
}

function borderWords(trace, row) {
  const pages = pagesOf(trace, row);
  if (pages[0] === pages[1]) return `page ${grouped(pages[0])} alone`;
  return `${pagesWords(pages)}: a border ${grouped((pages[0] + 1) * trace.page - row.offset)} bytes into it`;
}

function kindLines(trace, state, section, row) {
  if (isMatrix(section)) {
    const scales = trace.sections[section.scales];
    const own = rowOf(trace, scales, state.row);
    const [nibbles, others] = [section, scales].map((one) => pageCount(pagesOf(trace, wholeOf(one))));
    return [`its ${groupsOf(trace, section)} scales: ${bytesWords(own)}, ${pagesWords(pagesOf(trace, own))}`, `the whole matrix: ${grouped(nibbles)} pages of nibbles, ${grouped(others)} of scales`];
  }
  if (section.kind === "F32") return [`float32, lowest byte first: ${hexOf(trace, row)} = ${rowValue(trace, state)}`];
  if (section.kind === "JSON") return [`${rowValue(trace, state)} of the text`];
  const values = Array.from({ length: Math.min(4, section.shape[1]) }, (_, at) => four(halfFloat(trace.bytes.getUint16(row.offset + trace.scaleBytes * at, true))));
  return [`fp16: ${values.join(", ")}${section.shape[1] > 4 ? " …" : ""}`];
}

function groupMeaning(trace, state) {
  const section = sectionOf(trace, state);
  const [row, group, scale] = [rowOf(trace, section, state.row), chosenOf(trace, state), scaleOf(trace, section, state.row, state.group)];
  const first = state.group * trace.group;
  return words(`Group ${state.group}: weights ${first}–${first + trace.group - 1} of row ${state.row}`,
    `${grouped(row.offset)} + ${state.group} × ${trace.groupBytes} = ${grouped(group.offset)}: two weights a byte`,
    `scale: ${hexOf(trace, scale)} = ${four(scaleValue(trace, section, state.row, state.group))}, ${bytesWords(scale)}`,
    `the nibbles lie on ${pagesWords(pagesOf(trace, group))}, the scale on page ${grouped(pagesOf(trace, scale)[0])}`,
    "weight = code × scale, and a code is −8 to 7");
}

const byteTitle = (trace, state, found) => `Byte ${state.byte} = ${hexWord(found.value, 1)}, ${addressWords(trace, found.offset)}`;
const halves = ({ low, high }) => [["low nibble", low], ["high nibble", high]];

function pairMeaning(trace, state) {
  const found = chosenByte(trace, state);
  return words(byteTitle(trace, state, found),
    `word ${Math.floor(state.byte / 4)}: ${hexOf(trace, region(found.wordOffset, 4))} = ${hexWord(found.word)}`,
    ...halves(found).map(([name, { n, q, weight }]) => `${name}: n = ${n}, code n − 8 = ${signed(q)}, weight ${weight}`),
    `scale ${four(found.scale)}, ${addressWords(trace, found.scaleOffset)}`);
}

function singleMeaning(trace, state) {
  const found = chosenByte(trace, state);
  const { low, high } = found;
  return words(byteTitle(trace, state, found),
    `${hexWord(found.value, 1)} = ${found.value} = ${high.n} × 16 + ${low.n}`,
    ...halves(found).map(([name, { n, q, value }]) => `${name}: ${n} − 8 = ${signed(q)}; ${signed(q)} × ${four(found.scale)} = ${four(value)}`),
    `${sectionOf(trace, state).layout}: nibbles ${low.place} and ${high.place} hold weights ${low.weight % 8} and ${high.weight % 8} of eight`);
}
