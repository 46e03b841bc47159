import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { actionText, pagesFor, parseActions, replay } from "../../../widgets/static/kv_allocator.js";

const { picked, random } = JSON.parse(readFileSync(new URL("kv_pages.json", import.meta.url), "utf-8"));
const digest = (frame) => createHash("sha256").update(JSON.stringify(frame)).digest("hex").slice(0, 8);

test("a picked history leaves what the engine leaves, after each action", () => {
  picked.forEach(({ line, order, frames }) => assert.deepEqual(replay(parseActions(line), order), frames, line));
});

test("200 random histories leave what the engine leaves, after each action", () => {
  assert.ok(random.length >= 200);
  random.forEach(({ line, order, frames }) => {
    replay(parseActions(line), order).forEach((frame, at) => assert.equal(digest(frame), frames[at], `after action ${at} of ${line}: ${JSON.stringify(frame)}`));
  });
});

test("the random histories meet what can happen: copies, full pools, double frees, cuts", () => {
  const frames = random.flatMap(({ line, order }) => replay(parseActions(line), order));
  const errors = frames.map(({ error }) => error).filter(Boolean);
  assert.ok(frames.filter(({ copied }) => copied.length).length > 100);
  assert.ok(frames.filter(({ action, returned }) => action?.kind === "truncate" && returned.length).length > 40);
  for (const words of ["page pool: ", "sequence: was freed", "length: found", "does not exist", "evict: no sequence"]) assert.ok(errors.filter((error) => error.includes(words)).length > 10, words);
});

test("actions are written as Python writes them", () => {
  random.forEach(({ line }) => assert.equal(parseActions(line).map(actionText).join("; "), line));
});

test("frames share nothing that a later action changes", () => {
  const [, , filled, forked] = replay(parseActions("new; append A 20; fork A; append B"), [0, 1, 2, 3]);
  assert.deepEqual(filled.counts, [1, 1, 0, 0]);
  assert.deepEqual(forked.sequences.map(({ table }) => table), [[0, 1], [0, 1]]);
});

test("pages are counted up", () => assert.deepEqual([0, 1, 15, 16, 17, 32, 33].map(pagesFor), [0, 1, 1, 1, 2, 2, 3]));
