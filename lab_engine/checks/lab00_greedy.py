"""Lab 00, greedy: the loop from prefill to the last token, on a scripted model that records its calls."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lab_engine.checks.case import Args, Case, Mismatch
from lab_engine.checks.exercise import Exercise
from lab_engine.checks.values import describe, different_sequences, first_true, numbers_row
from lab_engine.checks.verdict import Row


def greedy(
    prefill: Callable[[list[int]], Tensor],
    step: Callable[[int], Tensor],
    prompt: list[int],
    stop_ids: set[int],
    max_new_tokens: int,
) -> list[int]:
    """Continue prompt with the most probable token each time; return the new token ids.

    prefill(prompt) reads the whole prompt and returns the logits of its last token;
    step(token_id) feeds one more. Both return float32 logits of shape (vocab,). Ties go to the
    lowest id. A token of stop_ids ends the text and is not part of it. At most max_new_tokens
    ids are returned (0 is legal). No step is run whose logits nobody reads.

    Example: the logits point to 3, then to 9; stop_ids is {8, 9}. After the calls
    prefill([1, 2]) and step(3), greedy(prefill, step, [1, 2], {8, 9}, 5) returns [3].
    """
    ids: list[int] = []
    if max_new_tokens == 0:
        return ids
    logits = prefill(prompt)
    while (token := int(logits.argmax())) not in stop_ids:
        ids.append(token)
        if len(ids) == max_new_tokens:
            break
        logits = step(token)
    return ids


VOCAB = 11
OFF_SCRIPT = 10  # what the model says once it was fed something else than prompt and script
MOST_CALLS = 64


@dataclass(frozen=True)
class Script:
    """The ids that the model's logits point to, in order; tie is an id whose logit equals that of the first."""

    ids: tuple[int, ...]
    tie: int | None = None


@dataclass(frozen=True)
class Decoded:
    """What a greedy function returned, and the calls it made: `prefill 1 2`, `step 3`."""

    ids: Any
    calls: tuple[str, ...]


class ScriptedModel:
    """Logits that depend on everything that was fed since the last prefill."""

    def __init__(self, prompt: list[int], script: Script) -> None:
        self._prompt, self._script = list(prompt), script
        self._fed: list[int] = []
        self.calls: list[str] = []

    def prefill(self, ids: list[int]) -> Tensor:
        """Start anew with these ids."""
        self._fed = list(ids)
        return self._logits("prefill " + " ".join(map(str, ids)))

    def step(self, token_id: int) -> Tensor:
        """Feed one more id; only an int, as the real decoder's."""
        if not isinstance(token_id, int):
            raise TypeError(f"step takes one token id as an int, not {describe(token_id)}: use int(logits.argmax())")
        self._fed.append(token_id)
        return self._logits(f"step {token_id}")

    def _logits(self, call: str) -> Tensor:
        self.calls.append(call)
        if len(self.calls) > MOST_CALLS:
            raise RuntimeError(f"the model was called more than {MOST_CALLS} times: your loop does not end")
        logits = torch.tensor([-1.0 - 0.25 * ((7 * i + len(self._fed)) % VOCAB) for i in range(VOCAB)])
        new = len(self._fed) - len(self._prompt)
        on_script = new >= 0 and self._fed == [*self._prompt, *self._script.ids[:new]] and new < len(self._script.ids)
        logits[self._script.ids[new] if on_script else OFF_SCRIPT] = 2.5
        if on_script and new == 0 and self._script.tie is not None:
            logits[self._script.tie] = 2.5
        return logits


def _recorded(function: Callable[..., Any]) -> Callable[..., Decoded]:
    def run(script: Script, prompt: list[int], stop_ids: set[int], max_new_tokens: int) -> Decoded:
        model = ScriptedModel(prompt, script)
        ids = function(model.prefill, model.step, prompt, stop_ids, max_new_tokens)
        return Decoded(ids, tuple(model.calls))

    return run


def _judge_greedy(args: Args, expected: Decoded, yours: Decoded) -> Mismatch | None:
    _, prompt, stop_ids, max_new_tokens = args
    if not isinstance(yours.ids, list) or not all(type(i) is int for i in yours.ids):
        found = describe(yours.ids)
        if isinstance(yours.ids, list):
            found += f" that holds {describe(next(i for i in yours.ids if type(i) is not int))}"
        return Mismatch(f"returned {found}; expected a list of ints", hint="An id is `int(logits.argmax())`.")
    twice = yours.calls[:2] == (*expected.calls[:1], f"step {prompt[-1]}") != expected.calls[:2]
    if yours.ids != expected.ids and not twice:
        return different_sequences("ids", expected.ids, yours.ids, _hint_for_ids(stop_ids, expected.ids, yours.ids))
    if yours.calls == expected.calls or (max_new_tokens == 0 and len(yours.calls) == 1):
        return None
    hint = first_true(
        (twice, "The last prompt token is now twice in the cache: prefill has read it already."),
        (yours.calls[:-1] == expected.calls, "This step costs 3.6 GB and nobody reads its logits."),
        (True, "prefill reads the whole prompt, once; after that one step a kept token."),
    )
    return different_sequences("calls", expected.calls, yours.calls, hint)


def _hint_for_ids(stop_ids: set[int], expected: list[int], yours: list[int]) -> str:
    more = yours[len(expected) :]
    if yours[: len(expected)] != expected or not more or more[0] not in stop_ids:
        return ""
    if len(more) == 1:
        return "The stop token ends the text; it is not part of it."
    return "`generation_config` has a list of stop ids: every one of them ends the text."


def _show_greedy(args: Args) -> tuple[Row, ...]:
    script, prompt, stop_ids, max_new_tokens = args
    tie = f"first logit as high for {script.tie}" if script.tie is not None else ""
    return (
        numbers_row("prompt", prompt),
        numbers_row("logits point to", script.ids, tie),
        numbers_row("stop_ids", sorted(stop_ids)),
        numbers_row("max_new_tokens", [max_new_tokens]),
    )


def _greedy_case(
    name: str,
    hint: str,
    script: list[int],
    stop_ids: set[int],
    limit: int,
    prompt: tuple[int, ...] = (1, 2),
    tie: int | None = None,
) -> Case:
    return Case(name, (Script(tuple(script), tie), list(prompt), stop_ids, limit), hint)


GREEDY_CASES = (
    _greedy_case("the example", "Which call gives the first logits?", [3, 9, 4, 8, 5], {8, 9}, 5),
    _greedy_case("the other stop id", "Every id of stop_ids ends the text.", [5, 4, 8, 3, 9, 6], {8, 9}, 6),
    _greedy_case("a stop token at once", "Then no token is new: an empty list.", [9, 3, 8, 4], {9, 8}, 4),
    _greedy_case(
        "3 tokens", "Count for max_new_tokens = 0: how many does your loop return?", [6, 1, 4, 5, 3, 9], {9}, 3
    ),
    _greedy_case("1 token", "One token needs prefill alone.", [7, 3, 5], {9}, 1),
    _greedy_case(
        "two equal logits", "Ties go to the lowest id, on every backend: `argmax` does that.", [4, 3, 9], {9}, 5, tie=7
    ),
    _greedy_case("0 tokens", "0 is a legal request: it returns an empty list.", [5, 3, 9], {9}, 0),
    _greedy_case(
        "repeats and id 0",
        "Ids may repeat, and 0 is an id.",
        [0, 0, 6, 6, 3, 0, 5, 3, 8, 1],
        {7, 8, 9},
        16,
        (3, 0, 3, 6, 1),
    ),
    _greedy_case("the limit before a stop token", "The limit came first.", [3, 6, 5, 9], {9}, 3, (4,)),
)


EXERCISE = Exercise(
    lab="00_tour",
    solution=greedy,
    cases=GREEDY_CASES,
    judge=_judge_greedy,
    show=_show_greedy,
    first_hints=(
        "Which call gives the first logits? How many steps do k new tokens need?",
        "Decide whether the text goes on (stop id? enough tokens?) before you call `step` again.",
    ),
    adapt=_recorded,
)
