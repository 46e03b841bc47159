// What the page playground shows of a history at one step, and its words; as in widgets/kv_pages_view.py and kv_pages_text.py.
import { PAGE_SLOTS, actionText, pagesFor, parseActions, replay } from "./kv_allocator.js";
import { grouped, percent, significant } from "./marks.js";
import { clampStep } from "./state.js";

// ---- frames of a state; the last history is kept, since hovering and stepping ask for it again ----

let replayed = { key: "" };

export function historyOf(trace, state) {
  const key = `${state.order} ${state.actions}`;
  if (replayed.key !== key) {
    const actions = parseActions(state.actions);
    replayed = { key, actions, frames: replay(actions, trace.orders[state.order]) };
  }
  return replayed;
}

// {frame, step, actions, name, one: its table or undefined, place: its chosen slot or null}
export function sceneOf(trace, state) {
  const { actions, frames } = historyOf(trace, state);
  const step = clampStep(state.step, frames.length);
  const frame = frames[step];
  const name = state.sequence || lastSubject(frames, step);
  const one = frame.sequences.find((sequence) => sequence.name === name);
  return { frame, step, actions, name, one, place: placeIn(trace, one, state.token) };
}

function lastSubject(frames, step) {
  for (let at = step; at > 0; at -= 1) if (frames[at].subject && frames[at].action.kind !== "evict") return frames[at].subject;
  return "";
}

function placeIn(trace, one, wanted) {
  if (!one?.table.length) return null;
  const token = wanted < 0 ? one.length - 1 : Math.min(wanted, one.table.length * PAGE_SLOTS - 1);
  const [page, slot] = [Math.floor(token / PAGE_SLOTS), token % PAGE_SLOTS];
  return { token, page, slot, id: one.table[page], filled: token < one.length, byte: (one.table[page] * PAGE_SLOTS + slot) * trace.slotBytes };
}

export const validSlots = (one, page) => Math.min(PAGE_SLOTS, one.length - page * PAGE_SLOTS);

// The sequences that hold an id: {name, page, valid}.
export function holdersOf(frame, id) {
  return frame.sequences.filter(({ table }) => table.includes(id)).map((one) => {
    const page = one.table.indexOf(id);
    return { name: one.name, page, valid: validSlots(one, page) };
  });
}

// ---- words ----

export function memory(count) {
  const [unit, size] = [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]].find(([, least]) => count >= least) ?? ["B", 1];
  return `${size === 1 ? count : significant(count / size)} ${unit}`;
}

export const idsWords = (ids) => `id${ids.length > 1 ? "s" : ""} ${ids.join(", ")}`;

export const bytesWords = (trace, place) => `bytes ${place.byte}–${place.byte + trace.slotBytes - 1}`;

// `token 55 · page 3 → id 12 · slot 7 · bytes 50944–51199`
export const placeWords = (trace, place) => `${place.filled ? `token ${place.token}` : "no token"} · page ${place.page} → id ${place.id} · slot ${place.slot} · ${bytesWords(trace, place)}`;

export function noPlaceWords({ frame, name, one }) {
  if (one) return "no token yet";
  return frame.freed.includes(name) ? "freed" : "not made yet";
}

export function kvSentence(trace, state) {
  const scene = sceneOf(trace, state);
  const { frame, name, place } = scene;
  if (frame.error) return `${actionText(frame.action)} · refused: ${frame.error}`;
  if (place) return `${name} · ${placeWords(trace, place)}`;
  return [name || "no sequence", ...(name ? [noPlaceWords(scene)] : []), `${frame.free.length} of ${frame.counts.length} ids free`].join(" · ");
}

// The action and what it did.
export function eventWords(frame) {
  if (!frame.action) return ["before the first action", `every page is free; the next one is id ${frame.free[0]}`];
  return [actionText(frame.action), frame.error ? `refused: ${frame.error}` : effectWords(frame)];
}

function effectWords({ action, subject, sequences, taken, copied, returned }) {
  const table = sequences.find(({ name }) => name === subject)?.table ?? [];
  if (action.kind === "new") return `${subject} has no token and no page`;
  if (action.kind === "fork") return table.length ? `${subject} shares ${idsWords(table)}; nothing is copied` : `${subject} is empty`;
  if (action.kind === "append") {
    const took = taken.slice(copied.length);
    const parts = copied.map(([from, to]) => `copied id ${from} to id ${to}, since others hold it`);
    return [...parts, ...(took.length ? [`took ${idsWords(took)}`] : [])].join("; ") || "no id taken: the tail has room";
  }
  const words = returned.length ? `${idsWords(returned)} returned` : "no id returned";
  return action.kind === "evict" ? `${subject}, the oldest: ${words}` : words;
}

function longestRun(counts) {
  let [run, longest] = [0, 0];
  counts.forEach((count) => {
    run = count ? 0 : run + 1;
    longest = Math.max(longest, run);
  });
  return longest;
}

// Label, value and note of the four counters; bytes are the 7B's.
export function kvCounters(trace, frame) {
  const { counts, free, sequences } = frame;
  const held = counts.flatMap((count, id) => (count ? [Math.max(...holdersOf(frame, id).map(({ valid }) => valid))] : []));
  const [empty, tokens] = [held.reduce((sum, valid) => sum + PAGE_SLOTS - valid, 0), sequences.reduce((sum, { length }) => sum + length, 0)];
  const [each, seven] = [trace.maxTokens * trace.tokenBytes, (slots) => `${memory(slots * trace.tokenBytes)} in the 7B`];
  const filled = percent(sequences.length ? tokens / (sequences.length * trace.maxTokens) : 0, 1);
  return [
    ["used ids", `${held.length} of ${counts.length}`, seven(held.length * PAGE_SLOTS)],
    ["free ids", String(free.length), `longest run ${longestRun(counts)}`],
    ["empty slots in tails", `${empty} (${percent(held.length ? empty / (held.length * PAGE_SLOTS) : 0, 1)})`, seven(empty)],
    [`contiguous, ${grouped(trace.maxTokens)} tokens each`, `${sequences.length} × ${memory(each)} = ${memory(sequences.length * each)}`, `${filled} filled, the rest wasted`],
  ];
}

// ---- actions of hands: what a button or a key sets ----

// The history up to here and one more action; a later part of it is given up.
function acted({ name, step, actions }, kind, count = 0) {
  const action = actionText({ kind, sequence: ["new", "evict"].includes(kind) ? "" : name, count });
  const line = [...actions.slice(0, step).map(actionText), action];
  return { actions: line.join("; "), token: -1, step: line.length };
}

// After undo the chosen sequence stays chosen where it still exists.
function undone(trace, state, { step, actions }) {
  const kept = actions.slice(0, step - 1).map(actionText);
  const { sequences, freed } = historyOf(trace, state).frames[Math.max(0, step - 1)];
  const known = [...freed, ...sequences.map(({ name }) => name)].includes(state.sequence);
  return { actions: kept.join("; "), token: -1, step: kept.length, sequence: known ? state.sequence : "" };
}

// The buttons: label, key, title and what a click sets; null where it can't be, the title says why.
export function kvTools(trace, state) {
  const scene = sceneOf(trace, state);
  const { frame, name, one, place, step } = scene;
  const none = one || frame.freed.includes(name) ? "" : name ? `${name} is not made yet` : "make a sequence first";
  const full = frame.sequences.length >= trace.rows.length ? `${trace.rows.length} sequences are alive and the picture has no row for more` : "";
  const uncut = one && !place?.filled ? "no token is chosen" : "";
  const tool = (label, key, title, off, values) => ({ label, key, title: off || title, values: off ? null : values() });
  return [
    tool("New sequence", "n", "a sequence with no token", full, () => ({ ...acted(scene, "new"), sequence: "" })),
    tool("Add token", "a", `add a token to ${name}`, none, () => acted(scene, "append", 1)),
    tool("Add 16", "p", `add ${PAGE_SLOTS} tokens to ${name}`, none, () => acted(scene, "append", PAGE_SLOTS)),
    tool("Fork", "f", `a second sequence with the tokens of ${name}`, none || full, () => ({ ...acted(scene, "fork"), sequence: "" })),
    tool("Truncate", "t", `drop token ${place?.token ?? 0} of ${name} and all after it`, none || uncut, () => acted(scene, "truncate", place?.token ?? 0)),
    tool("Free", "x", `give back the pages of ${name}`, none, () => acted(scene, "free")),
    tool("Evict oldest", "e", "free the sequence that was made first", "", () => ({ ...acted(scene, "evict"), sequence: name })),
    tool("Undo", "u", "forget this action and all after it", step ? "" : "nothing to undo", () => undone(trace, state, scene)),
  ];
}

// Keys of the picture: the buttons' letters, up and down choose a sequence, comma and period a slot, PageUp and PageDown a page.
export function keyPages(trace, state, key) {
  const tool = kvTools(trace, state).find((one) => one.key === key);
  if (tool) return tool.values;
  const { frame, name, one, place } = sceneOf(trace, state);
  const down = { ArrowUp: -1, ArrowDown: 1 }[key];
  const names = [...frame.sequences.map((sequence) => sequence.name), ...frame.freed].sort();
  if (down) return names.length ? { sequence: names[clampStep(names.indexOf(name) + down, names.length)], token: -1 } : null;
  const by = { ",": -1, ".": 1, PageUp: -PAGE_SLOTS, PageDown: PAGE_SLOTS }[key];
  return by && place ? { token: clampStep(place.token + by, pagesFor(one.length) * PAGE_SLOTS) } : null;
}
