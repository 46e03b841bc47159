// The page allocator once more, as lab_engine/kv_pages.py and kv_trace.py have it, so that a click needs no answer from Python.
// A history is a line, "new; append A 20; fork A"; `replay` gives the frame before its first action and one after each.
// Frames of both are compared by tests/widgets/js/kv_allocator.test.mjs, refusals word by word.
export const PAGE_SLOTS = 16;
const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
const actionForm = /^(?:(new|evict)|(fork|free) ([A-Z])|(append) ([A-Z])(?: (\d{1,6}))?|(truncate) ([A-Z]) (\d{1,6}))$/;

export const pagesFor = (tokens) => Math.ceil(tokens / PAGE_SLOTS);

// The line as actions {kind, sequence, count}; it is one that Python or actionText wrote.
export function parseActions(line) {
  const parts = line.split(";").map((part) => part.trim().replace(/\s+/g, " "));
  return (parts.length === 1 && parts[0] === "" ? [] : parts).map((part) => {
    const [kind, sequence = "", count = kind === "append" ? 1 : 0] = part.match(actionForm).slice(1).filter((group) => group !== undefined);
    return { kind, sequence, count: Number(count) };
  });
}

export function actionText({ kind, sequence, count }) {
  const counted = kind === "truncate" || (kind === "append" && count !== 1);
  return [kind, sequence, counted ? String(count) : ""].filter(Boolean).join(" ");
}

const refuse = (words) => { throw new Error(words); };

// ---- pool and sequences: {order, free: next id last, counts}, named: name → {length, table, freed} in order of making ----

function takePage(pool) {
  const id = pool.free.pop();
  pool.counts[id] = 1;
  return id;
}

function releasePage(pool, id) {
  pool.counts[id] -= 1;
  if (!pool.counts[id]) pool.free.push(id);
}

const living = (named) => [...named].filter(([, one]) => !one.freed);
const namedOne = (named, name) => named.get(name) ?? refuse(`sequence ${name}: does not exist; make it with new or fork`);

function alive(named, name) {
  const one = namedOne(named, name);
  return one.freed ? refuse("sequence: was freed already; make a new one") : one;
}

function freeName(named) {
  const names = new Set(living(named).map(([name]) => name));
  return Array.from(LETTERS).find((letter) => !names.has(letter)) ?? refuse(`sequence: ${LETTERS.length} are alive, one for each letter; free one first`);
}

function addSequence(named, name, one) {
  named.delete(name); // a letter that is given again is the youngest
  named.set(name, one);
}

function freeSequence(pool, one) {
  one.table.forEach((id) => releasePage(pool, id));
  Object.assign(one, { table: [], length: 0, freed: true });
}

const sharesTail = (pool, one) => one.length % PAGE_SLOTS > 0 && pool.counts[one.table.at(-1)] > 1;

// The sequence that an action makes, changes or frees.
function subjectOf(named, { kind, sequence }) {
  if (kind === "evict") return living(named)[0]?.[0] ?? refuse("evict: no sequence is alive; make one with new");
  return kind === "new" || kind === "fork" ? freeName(named) : sequence;
}

// ---- actions; each returns the ids that it took ----

const actionKinds = {
  new: (pool, named, action, name) => addSequence(named, name, { length: 0, table: [], freed: false }),
  fork(pool, named, { sequence }, name) {
    const { length, table } = alive(named, sequence);
    table.forEach((id) => { pool.counts[id] += 1; });
    addSequence(named, name, { length, table: [...table], freed: false });
  },
  append(pool, named, { sequence, count }) {
    const one = alive(named, sequence);
    const copies = count > 0 && sharesTail(pool, one);
    const needed = pagesFor(one.length + count) - one.table.length + Number(copies);
    if (needed > pool.free.length) refuse(`page pool: ${needed} page${needed === 1 ? "" : "s"} needed, ${pool.free.length} of ${pool.counts.length} are free; end a sequence or make a larger pool`);
    const taken = Array.from({ length: needed }, () => takePage(pool));
    if (copies) releasePage(pool, one.table.pop());
    one.table.push(...taken);
    one.length += count;
    return taken;
  },
  truncate(pool, named, { sequence, count }) {
    const one = alive(named, sequence);
    if (count > one.length) refuse(`length: found ${count}, expected 0 to ${one.length}`);
    one.table.splice(pagesFor(count)).reverse().forEach((id) => releasePage(pool, id));
    one.length = count;
  },
  free: (pool, named, action, name) => freeSequence(pool, alive(named, name)),
  evict: (pool, named, action, name) => freeSequence(pool, alive(named, name)),
};

// ---- frames: {action, sequences: [{name, length, table}], freed, counts, free: next id first, subject, taken, copied, returned, error} ----

function frameOf(pool, named, action) {
  const sorted = [...named].sort(([a], [b]) => (a < b ? -1 : 1));
  return {
    action,
    sequences: sorted.filter(([, one]) => !one.freed).map(([name, { length, table }]) => ({ name, length, table: [...table] })),
    freed: sorted.filter(([, one]) => one.freed).map(([name]) => name),
    counts: [...pool.counts],
    free: [...pool.free].reverse(),
    subject: "", taken: [], copied: [], returned: [], error: "",
  };
}

function playAction(pool, named, action) {
  const before = frameOf(pool, named, action);
  try {
    const subject = subjectOf(named, action);
    const taken = actionKinds[action.kind](pool, named, action, subject) ?? [];
    const after = frameOf(pool, named, action);
    const [old, now] = [before, after].map(({ sequences }) => sequences.find(({ name }) => name === subject)?.table ?? []);
    const copied = old.flatMap((id, page) => (page < now.length && now[page] !== id ? [[id, now[page]]] : []));
    return { ...after, subject, taken, copied, returned: [...after.free].reverse().filter((id) => before.counts[id]) };
  } catch (refused) {
    return { ...before, subject: action.sequence, error: refused.message };
  }
}

export function replay(actions, order) {
  const [pool, named] = [{ free: [...order].reverse(), counts: order.map(() => 0) }, new Map()];
  return [frameOf(pool, named, null), ...actions.map((action) => playAction(pool, named, action))];
}
