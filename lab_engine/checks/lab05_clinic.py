"""Lab 05, bug_clinic: ten symptoms, six causes. A wrong answer is met with what that cause would have shown."""

import math

from lab_engine.attention_clinic import CAUSES, NUMBERS, Curve, Observation, Row, Text, cause_of, trace_symptom
from lab_engine.checks import verdict
from lab_engine.checks.case import Args, Case, Mismatch
from lab_engine.checks.exercise import Exercise
from lab_engine.checks.values import describe


def bug_clinic() -> dict[int, str]:
    """Name the cause of each of the ten symptoms: {1: cause, 2: cause, …, 10: cause}.

    The causes are no_tail_mask, nan_in_v, stale_page, no_rescale, head_modulo and
    length_minus_one. Each occurs at least once.

    Example: return {1: "stale_page", 2: "nan_in_v"} answers the first two, perhaps wrongly.
    """
    return {
        1: "no_tail_mask",
        2: "no_rescale",
        3: "stale_page",
        4: "no_tail_mask",
        5: "stale_page",
        6: "length_minus_one",
        7: "no_rescale",
        8: "nan_in_v",
        9: "length_minus_one",
        10: "head_modulo",
    }


RULES = {
    "no_tail_mask": "Full pages have no tail: without a tail mask 16, 32 and 48 tokens are right.",
    "nan_in_v": "One empty slot makes the whole output NaN, and full pages have none.",
    "stale_page": "The table is late only where a page was just taken: at 1, 17, 33 and 49 tokens.",
    "no_rescale": "The first page has no sums to rescale: up to 16 tokens are right.",
    "head_modulo": "For 4 query and 2 KV heads `h % 2` is `h // 2` in heads 0 and 3: they are right, 1 and 2 wrong.",
    "length_minus_one": "The newest token gets no weight, in every head and at every length.",
}
"""What each cause leaves right, or makes wrong, everywhere."""

_TELLING = (48, 16, 17, 49, 40, 8)
"""Lengths that are looked at first."""


def ruled_out_by(number: int, guess: str) -> str:
    """The observation in symptom `number` that `guess`, which is wrong, would not have made."""
    shown, would = trace_symptom(number, cause_of(number)), trace_symptom(number, guess)
    return f"{RULES[guess]} {_difference(shown, would, guess)}"


def _difference(shown: Observation, would: Observation, guess: str) -> str:
    if isinstance(shown, Curve) and isinstance(would, Curve):
        return _curves(shown, would, guess)
    if isinstance(shown, Row) and isinstance(would, Row):
        return _rows(shown, would, guess)
    assert isinstance(shown, tuple)
    assert isinstance(would, tuple)
    return _texts(shown, would, guess)


def _curves(shown: Curve, would: Curve, guess: str) -> str:
    heads, lengths = range(len(shown.errors)), range(1, len(shown.errors[0]) + 1)
    for length in (*_TELLING, *lengths):
        for head in heads:
            here, there = (_word(curve.errors[head][length - 1]) for curve in (shown, would))
            if here != there:
                return f"With `{guess}` head {head} would be {there} at {length} tokens; here it is {here}."
    raise AssertionError(f"{guess} gives the same curve")


def _word(error: float) -> str:
    return "NaN" if math.isnan(error) else "wrong" if error else "right"


def _rows(shown: Row, would: Row, guess: str) -> str:
    off = [abs(a - b) for a, b in zip(shown.wrong, would.wrong, strict=True)]
    slot = off.index(max(off))
    what = f"token {slot}" if slot < shown.length else f"slot {slot % 16} of the last page, which holds no token,"
    weights = f"would get {would.wrong[slot]:.0%}; here it gets {shown.wrong[slot]:.0%}"
    return f"With `{guess}` {what} {weights}.".replace("%", " %")


def _texts(shown: tuple[Text, ...], would: tuple[Text, ...], guess: str) -> str:
    pairs = list(zip(shown, would, strict=True))
    for here, there in pairs:
        if here.departs != there.departs:
            which = f"the text after {here.prompt_tokens} tokens"
            return f"With `{guess}` {which} would {_departure(there)}; here it {_departure(here, 's')}."
    for here, there in pairs:
        for at, (mine, other) in enumerate(zip(here.wrong, there.wrong, strict=True)):
            if mine != other:
                which = f"after {here.prompt_tokens} tokens new token {at + 1}"
                return f"With `{guess}` {which} would be {other!r}; here it is {mine!r}."
    raise AssertionError(f"{guess} gives the same texts")


def _departure(text: Text, ending: str = "") -> str:
    """Where a text leaves the right one, as the end of a sentence; ending: that of its verb."""
    if text.departs is None:
        return f"stay{ending} right"
    return f"depart{ending} with {text.prompt_tokens + text.departs} tokens in the cache"


def _judge(_args: Args, expected: dict[int, str], answers: object) -> Mismatch | None:
    if wrong_form := _unusable(answers):
        return Mismatch(wrong_form, about_form=True)
    assert isinstance(answers, dict)
    right = sum(answers.get(number) == expected[number] for number in NUMBERS)
    first = next((number for number in NUMBERS if answers.get(number) != expected[number]), None)
    if first is None:
        return None
    so_far = f"{right} of {len(NUMBERS)} are right"
    if first not in answers:
        return Mismatch(f"{so_far}; symptom {first} has no answer yet", hint="Where is it right? Begin there.")
    return Mismatch(
        f"{so_far}; symptom {first} is not `{answers[first]}`",
        yours=verdict.Row(f"symptom {first}", (answers[first],), "your answer"),
        differ=(0,),
        hint=ruled_out_by(first, answers[first]),
    )


def _unusable(answers: object) -> str:
    """What is wrong with the form of the answers, in one line; nothing if all is well."""
    if not isinstance(answers, dict):
        return f'returned {describe(answers)}; expected a dict such as {{1: "{CAUSES[0]}"}}'
    if not answers:
        return 'no answers yet: return {1: "…", 2: "…", …} with a cause for each symptom'
    for number, cause in answers.items():
        if type(number) is not int or number not in NUMBERS:
            return f"found the key {number!r}; expected the symptom's number, a whole number from 1 to {len(NUMBERS)}"
        if not isinstance(cause, str) or cause not in CAUSES:
            found = repr(cause) if isinstance(cause, str) else describe(cause)
            return f"symptom {number}: found {found}; expected one of {', '.join(CAUSES)}"
    return ""


EXERCISE = Exercise(
    lab="05_paged_attention",
    solution=bug_clinic,
    cases=(Case("ten symptoms", (), "Where is each of them right?"),),
    judge=_judge,
    show=lambda _args: (),
    first_hints=(
        "Ask where a symptom is right: in the first 16 tokens, at full pages, in some heads, nowhere?",
        "NaN: what was multiplied? Right at 16, 32, 48 only: the tail mask. Wrong at 17, 33, 49 only: the table. Right "
        "up to 16: the rescaling. Two heads of four: the mapping. Wrong everywhere: is the newest token seen?",
    ),
)
