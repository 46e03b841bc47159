import pytest
import torch

from lab_engine.checks import exercises
from lab_engine.checks.lab00_bytes import bytes_per_step

GREEDY = exercises("00_tour")["greedy"]
BYTES = exercises("00_tour")["bytes_per_step"]


# --- greedy ---


def stop_token_returned(prefill, step, prompt, stop_ids, max_new_tokens):
    ids = []
    while len(ids) < max_new_tokens:
        ids.append(int((step(ids[-1]) if ids else prefill(prompt)).argmax()))
        if ids[-1] in stop_ids:
            break
    return ids


def only_the_lowest_stop_id(prefill, step, prompt, stop_ids, max_new_tokens):
    return GREEDY.solution(prefill, step, prompt, {min(stop_ids)}, max_new_tokens)


def only_the_highest_stop_id(prefill, step, prompt, stop_ids, max_new_tokens):
    return GREEDY.solution(prefill, step, prompt, {max(stop_ids)}, max_new_tokens)


def one_token_too_many(prefill, step, prompt, stop_ids, max_new_tokens):
    ids = []
    logits = prefill(prompt)
    while len(ids) <= max_new_tokens:
        token = int(logits.argmax())
        if token in stop_ids:
            break
        ids.append(token)
        if len(ids) <= max_new_tokens:
            logits = step(token)
    return ids


def at_least_one_token(prefill, step, prompt, stop_ids, max_new_tokens):
    return GREEDY.solution(prefill, step, prompt, stop_ids, max(1, max_new_tokens))


def ties_to_the_highest_id(prefill, step, prompt, stop_ids, max_new_tokens):
    def last(logits):
        return torch.nn.functional.one_hot((logits == logits.max()).nonzero().max(), len(logits))

    return GREEDY.solution(lambda ids: last(prefill(ids)), lambda i: last(step(i)), prompt, stop_ids, max_new_tokens)


def a_step_after_the_last_token(prefill, step, prompt, stop_ids, max_new_tokens):
    ids = []
    logits = prefill(prompt)
    while len(ids) < max_new_tokens:
        token = int(logits.argmax())
        if token in stop_ids:
            break
        ids.append(token)
        logits = step(token)
    return ids


def a_step_with_the_stop_token(prefill, step, prompt, stop_ids, max_new_tokens):
    ids = []
    logits = prefill(prompt) if max_new_tokens else None
    while len(ids) < max_new_tokens:
        ids.append(int(logits.argmax()))
        if ids[-1] in stop_ids or len(ids) < max_new_tokens:
            logits = step(ids[-1])
        if ids[-1] in stop_ids:
            return ids[:-1]
    return ids


def last_prompt_token_twice(prefill, step, prompt, stop_ids, max_new_tokens):
    prefill(prompt)
    ids, token = [], prompt[-1]
    while len(ids) < max_new_tokens:
        token = int(step(token).argmax())
        if token in stop_ids:
            break
        ids.append(token)
    return ids


def no_cache(prefill, step, prompt, stop_ids, max_new_tokens):
    ids = []
    while len(ids) < max_new_tokens:
        token = int(prefill(prompt + ids).argmax())
        if token in stop_ids:
            break
        ids.append(token)
    return ids


def prompt_fed_token_by_token(prefill, step, prompt, stop_ids, max_new_tokens):
    def read(ids):
        logits = prefill(ids[:1])
        for token in ids[1:]:
            logits = step(token)
        return logits

    return GREEDY.solution(read, step, prompt, stop_ids, max_new_tokens)


def always_the_same(prefill, step, prompt, stop_ids, max_new_tokens):
    return [3]


def stops_at_id_0(prefill, step, prompt, stop_ids, max_new_tokens):
    return GREEDY.solution(prefill, step, prompt, stop_ids | {0}, max_new_tokens)


WRONG_GREEDY = [
    (stop_token_returned, "The stop token ends the text; it is not part of it.", None),
    (only_the_lowest_stop_id, "has a list of stop ids", None),
    (only_the_highest_stop_id, "has a list of stop ids", None),
    (one_token_too_many, "Count for max_new_tokens = 0", None),
    (at_least_one_token, "0 is a legal request", {"0 tokens"}),
    (ties_to_the_highest_id, "Ties go to the lowest id, on every backend", {"two equal logits"}),
    (a_step_after_the_last_token, "This step costs 3.6 GB and nobody reads its logits.", None),
    (a_step_with_the_stop_token, "This step costs 3.6 GB and nobody reads its logits.", None),
    (last_prompt_token_twice, "The last prompt token is now twice in the cache", None),
    (no_cache, "prefill reads the whole prompt, once", None),
    (prompt_fed_token_by_token, "prefill reads the whole prompt, once", None),
    (always_the_same, "prefill reads the whole prompt, once", None),
    (stops_at_id_0, "0 is an id", {"repeats and id 0"}),
]


@pytest.mark.parametrize(("wrong", "hint", "only"), WRONG_GREEDY, ids=[row[0].__name__ for row in WRONG_GREEDY])
def test_a_wrong_greedy_loop_fails_with_its_own_hint(wrong, hint, only, failing_cases):
    verdict = GREEDY.check(wrong)
    assert verdict.status == "failed"
    assert hint in verdict.hint, verdict
    if only is not None:
        assert failing_cases(GREEDY, wrong) == only


def test_a_step_after_the_last_token_is_seen_in_the_calls_alone():
    verdict = GREEDY.check(a_step_after_the_last_token)
    assert verdict.expected.label == "expected calls"
    assert verdict.case == "3 tokens"
    assert verdict.yours.values == ("prefill 1 2", "step 6", "step 1", "step 4")
    assert verdict.differ == (3,)


def sees_the_end_in_the_loop_head(prefill, step, prompt, stop_ids, max_new_tokens):
    ids, logits = [], prefill(prompt)
    while len(ids) < max_new_tokens:
        token = int(torch.argmax(logits))
        if token in stop_ids:
            break
        ids.append(token)
        if len(ids) < max_new_tokens:
            logits = step(token)
    return ids


def takes_the_maximum_by_hand(prefill, step, prompt, stop_ids, max_new_tokens):
    ids = []
    for i in range(max_new_tokens):
        values = (step(ids[-1]) if i else prefill(list(prompt))).tolist()
        token = values.index(max(values))
        if token in stop_ids:
            return ids
        ids += [token]
    return ids


@pytest.mark.parametrize("right", [GREEDY.solution, sees_the_end_in_the_loop_head, takes_the_maximum_by_hand])
def test_a_right_greedy_loop_passes(right):
    assert GREEDY.check(right).status == "passed"


def test_greedy_returns_the_example_of_its_docstring():
    calls = []

    def logits(name, fed, top):
        calls.append((name, fed))
        return torch.eye(11)[top]

    ids = GREEDY.solution(lambda p: logits("prefill", p, 3), lambda t: logits("step", t, 9), [1, 2], {8, 9}, 5)
    assert (ids, calls) == ([3], [("prefill", [1, 2]), ("step", 3)])


def test_ids_as_tensors_are_refused_in_words():
    def tensors(prefill, step, prompt, stop_ids, max_new_tokens):
        return [prefill(prompt).argmax()]

    def feeds_tensors(prefill, step, prompt, stop_ids, max_new_tokens):
        return [step(prefill(prompt).argmax())]

    verdict = GREEDY.check(tensors)
    assert verdict.message == "returned a list that holds an int64 tensor of shape (); expected a list of ints"
    assert "step takes one token id as an int, not an int64 tensor" in GREEDY.check(feeds_tensors).message


def test_a_loop_that_never_stops_calling_the_model_is_told_so():
    def endless(prefill, step, prompt, stop_ids, max_new_tokens):
        prefill(prompt)
        while True:
            step(5)

    assert "your loop does not end" in GREEDY.check(endless).message


# --- bytes_per_step ---


def bytes_with(weight=33 / 64, kv_bytes=2, planes=2, cache_heads=None, embedding=0.0, head=True, o_inputs=None):
    """A bytes_per_step that counts one thing differently, written as a list of matrices."""

    def count(hidden, intermediate, layers, q_heads, kv_heads, head_dim, vocab, context):
        q, kv = q_heads * head_dim, kv_heads * head_dim
        matrices = [(q, hidden), (kv, hidden), (kv, hidden), (hidden, hidden if o_inputs == "hidden" else q)]
        matrices += [(intermediate, hidden), (intermediate, hidden), (hidden, intermediate)]
        weights = layers * sum(rows * columns for rows, columns in matrices) + head * vocab * hidden
        heads = q_heads if cache_heads == "query" else kv_heads
        cache = context * layers * heads * head_dim * planes * kv_bytes
        return round(weights * weight + cache + embedding * vocab * hidden)

    return count


WITH_CONTEXT = {case.name for case in BYTES.cases if case.args[-1] > 0}
WITH_GROUPS = {case.name for case in BYTES.cases if case.args[-1] > 0 and case.args[3] != case.args[4]}
ALL_BYTES = {case.name for case in BYTES.cases}
WRONG_BYTES = {
    "scales forgotten": (bytes_with(weight=0.5), "0.5 + 2/128 bytes", ALL_BYTES),
    "K without V": (bytes_with(planes=1), "Two planes a head", WITH_CONTEXT),
    "query heads for KV heads": (
        bytes_with(cache_heads="query"),
        "KV is stored once a group of query heads",
        WITH_GROUPS,
    ),
    "4-byte KV": (bytes_with(kv_bytes=4), "The cache is 16-bit", WITH_CONTEXT),
    "whole INT4 embedding": (bytes_with(embedding=33 / 64), "One row of the embedding table is read", ALL_BYTES),
    "whole fp16 embedding": (bytes_with(embedding=2), "One row of the embedding table is read", ALL_BYTES),
    "lm_head forgotten": (bytes_with(head=False), "Every logit needs its row", ALL_BYTES),
    "o takes hidden": (bytes_with(o_inputs="hidden"), "q and o have q_heads × head_dim", None),
    "the example's answer": (lambda *_: 3_674_976_256, "List the matrices", None),
    "nothing": (lambda *_: 0, "List the matrices", ALL_BYTES),
}


@pytest.mark.parametrize("name", WRONG_BYTES)
def test_a_wrong_byte_count_fails_with_its_own_hint(name, failing_cases):
    wrong, hint, only = WRONG_BYTES[name]
    verdict = BYTES.check(wrong)
    assert verdict.status == "failed"
    assert hint in verdict.hint, verdict
    if only is not None:
        assert failing_cases(BYTES, wrong) == only


def test_query_heads_for_kv_heads_passes_at_ratio_1(failing_cases):
    assert "one query head a KV head" not in failing_cases(BYTES, bytes_with(cache_heads="query"))


@pytest.mark.parametrize("right", [BYTES.solution, bytes_with(), lambda *shape: float(bytes_per_step(*shape))])
def test_a_right_byte_count_passes(right):
    assert BYTES.check(right).status == "passed"


def test_bytes_per_step_gives_the_known_numbers():
    assert bytes_per_step(3584, 18944, 28, 28, 4, 128, 152064, 512) == 3_674_976_256
    assert bytes_per_step(896, 4864, 24, 14, 2, 64, 151936, 128) == 256_271_616


def test_a_byte_count_of_another_type_is_refused_in_words():
    verdict = BYTES.check(lambda *shape: f"{bytes_per_step(*shape)}")
    assert verdict.message == "returned a str; expected an int"
    assert BYTES.check(lambda *_: float("nan")).status == "failed"
    assert BYTES.check(lambda *_: float("inf")).status == "failed"
