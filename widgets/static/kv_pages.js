// Lab 04: a pool of 16 pages and the tables of the sequences that hold them, under a history of actions that one adds to.
// Tables (logical) left or above, the pool (physical) beside, the counters, then the 16 slots of the chosen page.
import { fit, line, middle, move, rect, tag, text, wrap } from "./marks.js";
import { PAGE_SLOTS } from "./kv_allocator.js";
import { bytesWords, eventWords, historyOf, holdersOf, keyPages, kvCounters, kvSentence, kvTools, noPlaceWords, placeWords, sceneOf, validSlots } from "./kv_pages_words.js";
import { playground } from "./kit.js";

const WIDE_PAGES = 840; // less leaves a page of the pool too narrow for its words
const ROW = 24;
const TABLE_LEFT = 68;
const poolPage = { across: 8, gap: 4, height: 102, below: 8, bar: 14 };
const TWO_ROWS = 32; // where the holders from the fifth on begin in a page
const LENS_HEIGHT = 96;
const ownerHues = { A: "c1", B: "c2", C: "c3" };

export const hueOfOwner = (name) => ownerHues[name] ?? "c4";

// Where the parts lie: [x, y, width].
export function kvLayout(trace, width) {
  const tablesHeight = 44 + trace.rows.length * ROW;
  const poolHeight = 24 + 2 * poolPage.height + poolPage.below;
  const wide = width > WIDE_PAGES;
  const left = wide ? TABLE_LEFT + 16 * 20 : width;
  const top = wide ? 32 : 48;
  const pool = wide ? [left + 24, top, width - left - 24] : [0, top + tablesHeight + 12, width];
  const counters = wide ? top + Math.max(tablesHeight, poolHeight) + 16 : pool[1] + poolHeight + 16;
  return { tables: [0, top, left], pool, counters: [0, counters, width], lens: [0, counters + 60, width], height: counters + 60 + LENS_HEIGHT };
}

// ---- the page tables ----

export function tablesPanel(trace, scene, width) {
  const cell = Math.floor((width - TABLE_LEFT) / 16);
  const marks = [text(0, 12, "Page tables", "b"), text(width, 12, "page id in each cell, filled slots below it", "e s mu"), text(TABLE_LEFT - 8, 36, "tokens", "e s mu")];
  for (let page = 0; page < 16; page += 1) marks.push(text(TABLE_LEFT + (page + 0.5) * cell, 36, page, "c s mu"));
  const rows = Array.from(trace.rows).map((name, row) => tableRow(scene, name, width, cell).map((mark) => ({ ...mark, shift: [0, 42 + row * ROW] })));
  return [...marks, ...rows.flat()];
}

function tableRow(scene, name, width, cell) {
  const { frame, place } = scene;
  const one = frame.sequences.find((sequence) => sequence.name === name);
  if (!one) return [middle(10, 12, name, "c s mu"), ...freedWords(frame, name, scene.name)];
  const marks = [rect(0, 2, 20, 20, `${hueOfOwner(name)} fill`), middle(10, 12, name, `c b ink ${hueOfOwner(name)}`), middle(TABLE_LEFT - 8, 12, one.length, `e${name === scene.name ? " b" : ""}`)];
  marks.push(rect(0, 0, TABLE_LEFT - 4, ROW, "hit", { set: { sequence: name, token: -1 }, title: `choose ${name}` }));
  if (name === scene.name) marks.push(rect(0, 2, 20, 20, "sel"));
  one.table.forEach((id, page) => marks.push(...tableCell(frame, one, page, id, TABLE_LEFT + page * cell, cell, place)));
  return marks;
}

const freedWords = (frame, name, chosen) => (frame.freed.includes(name)
  ? [middle(TABLE_LEFT, 12, "freed", "s mu"), rect(0, 0, TABLE_LEFT + 40, ROW, "hit", { set: { sequence: name, token: -1 }, title: `choose ${name}, which is freed` }), ...(name === chosen ? [rect(0, 2, 20, 20, "sel")] : [])]
  : []);

function tableCell(frame, one, page, id, x, cell, place) {
  const [valid, hue, wide] = [validSlots(one, page), hueOfOwner(one.name), cell - 1];
  const marks = [rect(x, 2, wide, 20, "empty"), middle(x + wide / 2, 9, id, "c s m"), ...slotBar(x + 1, 17, (wide - 2) / PAGE_SLOTS, 4, valid, hue)];
  if (id === place?.id) marks.push(rect(x, 2, wide, 20, "sel"));
  return [...marks, rect(x, 2, wide, 20, "hit", { set: { sequence: one.name, token: page * PAGE_SLOTS }, title: `page ${page} of ${one.name} → id ${id}, ${valid} of ${PAGE_SLOTS} slots filled, held ${frame.counts[id]} time${frame.counts[id] > 1 ? "s" : ""}` })];
}

function slotBar(x, y, slot, height, valid, hue) {
  const empty = PAGE_SLOTS - valid;
  return [rect(x, y, slot * valid, height, `${hue} solid`), ...(empty ? [rect(x + slot * valid, y, slot * empty, height, "hatch")] : [])];
}

// ---- the pool ----

export function poolPanel(trace, scene, width) {
  const { counts } = scene.frame;
  const pitch = (width + poolPage.gap) / poolPage.across;
  const marks = [text(0, 12, `Pool: ${counts.length} page ids`, "b"), text(width, 12, "×2: held twice", "e s mu")];
  counts.forEach((count, id) => {
    const [x, y] = [Math.round((id % poolPage.across) * pitch), 24 + Math.floor(id / poolPage.across) * (poolPage.height + poolPage.below)];
    const wide = Math.round(pitch) - poolPage.gap;
    marks.push(...move(count ? usedPage(trace, scene, id, wide) : freePage(scene.frame, id, wide), x, y));
  });
  return marks;
}

function freePage({ free, returned }, id, wide) {
  const words = ["free", ...(free[0] === id ? ["next"] : []), ...(returned.includes(id) ? ["returned"] : [])];
  return [rect(0, 0, wide, poolPage.height, "empty"), text(5, 15, id, "m mu"), ...words.map((word, at) => text(wide / 2, 40 + 16 * at, word, `c s${word === "returned" ? "" : " mu"}`))];
}

function usedPage(trace, { frame, place, name }, id, wide) {
  const held = holdersOf(frame, id);
  const slot = Math.floor((wide - 4) / PAGE_SLOTS);
  const left = Math.floor((wide - slot * PAGE_SLOTS) / 2);
  const [y, height] = [poolPage.height - poolPage.bar - 4, poolPage.bar / held.length];
  const marks = [...ownerTints(held, wide), text(5, 15, id, "m b"), ...(held.length > 1 ? [text(wide - 5, 15, `×${held.length}`, "e b")] : [])];
  marks.push(text(wide / 2, 58, `page ${held[0].page}`, "c s"), text(wide / 2, 74, changeWords(frame, id), "c s b"), rect(left, y, slot * PAGE_SLOTS, poolPage.bar, "paper"));
  held.forEach((holder, at) => marks.push(...slotBar(left, y + at * height, slot, height, holder.valid, hueOfOwner(holder.name))));
  if (id === place?.id) marks.push(rect(0, 0, wide, poolPage.height, "sel"), rect(left + slot * place.slot, y - 3, Math.max(slot, 3), poolPage.bar + 6, "tag"));
  const chosen = held.find((holder) => holder.name === name) ?? held[0];
  const set = (at) => ({ sequence: chosen.name, token: chosen.page * PAGE_SLOTS + at });
  marks.push(rect(0, 0, wide, poolPage.height, "hit", { set: set(0), title: `id ${id}: page ${held[0].page} of ${held.map((holder) => holder.name).join(", ")}` }));
  for (let at = 0; at < PAGE_SLOTS; at += 1) marks.push(slotHit(trace, chosen, id, at, left + at * slot, y, slot, poolPage.bar, set(at)));
  return marks;
}

// A page of one holder is in its hue; a shared one is parted among its holders, at most four side by side, letter on hue.
function ownerTints(held, wide) {
  const rows = held.length > 4 ? [held.slice(0, 4), held.slice(4)] : [held];
  const ends = rows.length > 1 ? [0, TWO_ROWS, poolPage.height] : [0, poolPage.height];
  const columns = rows.flatMap((row, down) => row.map(({ name }, at) => ({ name, x: (at * wide) / row.length, width: wide / row.length, row: down })));
  const tints = columns.map(({ name, x, width, row }) => rect(x, ends[row], width, ends[row + 1] - ends[row], `${hueOfOwner(name)} tint`));
  const letters = columns.map(({ name, x, width, row }) => middle(x + width / 2, (rows.length > 1 ? 25 : 32) + row * 14, name, `c b ink ${hueOfOwner(name)}`));
  return [...tints, rect(0, 0, wide, poolPage.height, held.length > 1 ? "empty" : `${hueOfOwner(held[0].name)} fill`), ...letters];
}

function slotHit(trace, holder, id, slot, x, y, width, height, set) {
  const token = holder.page * PAGE_SLOTS + slot;
  const place = { token, page: holder.page, id, slot, filled: slot < holder.valid, byte: (id * PAGE_SLOTS + slot) * trace.slotBytes };
  return rect(x, y, width, height, "hit", { set, title: `${holder.name} · ${placeWords(trace, place)}` });
}

const changeWords = ({ taken, copied }, id) => (copied.some(([, to]) => to === id) ? "copied" : taken.includes(id) ? "taken" : "");

// ---- counters ----

export function countersPanel(trace, scene, width, measure) {
  const starts = [0, 0.22, 0.42, 0.66, 1].map((part) => Math.round(part * width));
  const marks = [line(0, 0, width, 0, "rule")];
  kvCounters(trace, scene.frame).forEach((words, at) => {
    const room = starts[at + 1] - starts[at] - (at < 3 ? 4 : 0);
    words.forEach((one, row) => marks.push(text(starts[at], [16, 32, 47][row], fit(one, room, measure, ["s", "b", "s"][row]), ["s mu", "b", "s mu"][row])));
  });
  return marks;
}

// ---- the chosen page under the lens ----

export function lensPanel(trace, scene, width, measure) {
  const { frame, one, name, place } = scene;
  if (!place) return [rect(0, 20, width, 40, "empty"), text(0, 12, "Chosen page", "b"), middle(width / 2, 40, name ? `${name}: ${noPlaceWords(scene)}` : "no sequence is chosen", "c mu")];
  const held = holdersOf(frame, place.id);
  const title = `Page id ${place.id}: page ${place.page} of ${held.map((holder) => holder.name).join(", ")}`;
  const where = `K of layer 0, KV head 0${width > WIDE_PAGES ? " of the shipped model" : ""}: 16 slots of ${trace.slotBytes} bytes`;
  const marks = [text(0, 12, title, "b"), text(width, 12, fit(where, width - measure(title, "b") - 12, measure, "s"), "e s mu")];
  const own = validSlots(one, place.page);
  const x = (slot) => Math.round((slot * width) / PAGE_SLOTS);
  for (let slot = 0; slot < PAGE_SLOTS; slot += 1) {
    const wide = x(slot + 1) - x(slot);
    const token = place.page * PAGE_SLOTS + slot;
    marks.push(rect(x(slot), 20, wide, 36, slot < own ? `${hueOfOwner(name)} fill` : "hatch"));
    if (slot < own) marks.push(middle(x(slot) + wide / 2, 38, token, "c b"));
    marks.push(text(x(slot) + wide / 2, 69, slot, "c s mu"));
  }
  if (own < PAGE_SLOTS - 1) marks.push(middle((x(own) + width) / 2, 38, `${PAGE_SLOTS - own} without a token`, "c s over"));
  marks.push(rect(x(place.slot), 20, x(place.slot + 1) - x(place.slot), 36, "sel"), ...addressMarks(trace, place, x, width, measure));
  for (let slot = 0; slot < PAGE_SLOTS; slot += 1) marks.push(slotHit(trace, { name, page: place.page, valid: own }, place.id, slot, x(slot), 20, x(slot + 1) - x(slot), 52, { sequence: name, token: place.page * PAGE_SLOTS + slot }));
  return marks;
}

// The bytes as a tag under their slot, and how they are found on the side that has room, for which the tag may move a little.
function addressMarks(trace, place, x, width, measure) {
  const [words, sum] = [bytesWords(trace, place), `= id ${place.id} × ${PAGE_SLOTS * trace.slotBytes} + slot ${place.slot} × ${trace.slotBytes}`];
  const [wide, room] = [Math.ceil(measure(words, "s b")) + 14, measure(sum) + 8];
  const centred = Math.max(0, Math.min(width - wide, (x(place.slot) + x(place.slot + 1) - wide) / 2));
  const before = centred + wide + room > width && centred >= room;
  const left = before ? centred : Math.min(centred, width - wide - room);
  return [...tag(left, 76, words, measure, wide), before ? middle(left - 8, 86, sum, "e") : middle(left + wide + 8, 86, sum)];
}

// ---- the picture ----

const kvPanels = { tables: tablesPanel, pool: poolPanel, counters: countersPanel, lens: lensPanel };

// One row, two in the narrow picture; what is longer ends in an ellipsis, and the sentence has it all.
function eventMarks(frame, width, measure) {
  const [action, effect] = eventWords(frame);
  const [left, hue] = [Math.ceil(measure(action, "b")) + 12, frame.error ? "ink cw" : ""];
  const [first, ...rest] = width > WIDE_PAGES ? [effect] : wrap(effect, width - left, measure);
  const rows = [[left, first], ...(rest.length ? [[0, rest.join(" ")]] : [])];
  return [text(0, 14, action, `b ${hue}`), ...rows.map(([x, words], row) => text(x, 14 + 16 * row, fit(words, width - x, measure), hue))];
}

export function drawPages(trace, state, width, measure) {
  const [scene, layout] = [sceneOf(trace, state), kvLayout(trace, width)];
  const marks = eventMarks(scene.frame, width, measure);
  Object.entries(kvPanels).forEach(([name, panel]) => {
    const [x, y, wide] = layout[name];
    marks.push(...move(panel(trace, scene, wide, measure), x, y));
  });
  return { marks, height: layout.height, label: `Page tables and pool. ${eventWords(scene.frame).join(": ")}. ${kvSentence(trace, state)}` };
}

export default playground({
  draw: drawPages,
  key: keyPages,
  keys: "left and right go through the history, up and down choose a sequence, comma and period a slot, page up and down a page; letters act as the buttons say",
  tools: kvTools,
  lines: 2,
  steps: (trace, state) => historyOf(trace, state).frames.length,
  sentence: kvSentence,
  count: (trace, state) => `action ${sceneOf(trace, state).step} of ${historyOf(trace, state).actions.length}`,
});
