"""The tail lens as JSON-ready data, and the words that Python and the browser share about it.

A finite number is a JSON number; NaN is "NaN", infinity "∞", and null is −∞: a score that counts for nothing.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lab_engine.attention_layer import RunSpec
from lab_engine.attention_trace import LENGTHS, LensTrace, PageStep, Rows, RunTrace
from lab_engine.kv_pages import PAGE_SLOTS
from lab_engine.paged_attention import BUGS
from widgets.words import percent, significant

Data = Mapping[str, Any]
Number = float | str | None

LABELS = {
    "right": "no bug",
    "no_tail_mask": "no tail mask",
    "mask_to_zero": "mask to 0",
    "mask_to_zero_low": "mask 0, K biased",
    "nan_in_v": "NaN in V",
    "stale_page": "stale page",
    "no_rescale": "max not rescaled",
    "head_modulo": "h % kv_heads",
    "length_minus_one": "length − 1",
    "fp16_scores": "Q·K in fp16",
    "fp16_scores_high": "fp16, K biased",
    "empty_split": "empty split",
}
"""The switches, as the board names them."""

RIGHT_WORDS = "a slot without a token scores −∞ and its V is not touched; the sums are rescaled"


def lens_data(trace: LensTrace) -> dict[str, Any]:
    """Everything that the pictures show."""
    rights = {_key(run.spec): run.right_rows for run in trace.runs}
    return {
        "layer": trace.layer,
        "heads": trace.num_heads,
        "lengths": list(LENGTHS),
        "tokens": list(trace.token_texts),
        "prompt": trace.prompt_tokens,
        "table": list(trace.page_table),
        "former": {str(page_id): list(texts) for page_id, texts in trace.former.items()},
        "rights": {key: [_row_data(rows) for rows in lengths] for key, lengths in rights.items()},
        "runs": {run.spec.name: _run_data(run, trace) for run in trace.runs},
    }


def _key(spec: RunSpec) -> str:
    return f"{spec.shift:.0f}/{spec.num_splits}"


def _run_data(run: RunTrace, trace: LensTrace) -> dict[str, Any]:
    text = run.text or next(one.text for one in trace.runs if one.spec.bug == run.spec.bug and one.text)
    return {
        "label": LABELS[run.spec.name],
        "cause": _cause(run.spec, trace),
        "right": _key(run.spec),
        "workers": run.spec.num_splits,
        "unwritten": run.spec.unwritten,
        "rows": None if run.spec.bug is None else [_row_data(rows) for rows in run.rows],
        "errors": [[_number(error, 3) for error in errors] for errors in run.errors],
        "text": list(text.token_texts),
        "departs": text.departs,
        "modelHas": run.text is not None,
    }


def _cause(spec: RunSpec, trace: LensTrace) -> str:
    """What goes wrong, in one line; a biased K says what it does."""
    if spec.bug is None:
        return RIGHT_WORDS
    if spec.name == "mask_to_zero_low":
        return (
            f"K has a common part: all true scores fall by {-spec.shift:.0f}, softmax does not notice, 0 is the largest"
        )
    if spec.name == "fp16_scores_high":
        raw = spec.shift * math.sqrt(128)
        return f"K has a common part: a raw q · k is near {raw:,.0f}, which is inf in fp16, and inf − inf is NaN"
    if spec.bug == "fp16_scores":
        here = f"here it is {trace.largest_raw:.0f} at most"
        return f"q · k is rounded to fp16 before the scale; {here}, and fp16 ends at 65,504"
    return BUGS[spec.bug].replace("-inf", "−∞").replace(" * ", " × ")


def _row_data(rows: Rows) -> list[list[list[Any]]]:
    return [[_step_data(step) for step in steps] for steps in rows]


def _step_data(step: PageStep) -> list[Any]:
    scores = [_number(score, 4) for score in step.scores]
    weights = [_number(weight, 4) if not abs(weight) < 5e-6 else 0 for weight in step.weights]
    numbers = [_number(value, 4) for value in (step.m, step.rescale, step.l)]
    return [step.worker, step.page_id, scores, *numbers, weights, _number(step.off, 3)]


def _number(value: float, digits: int) -> Number:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else None
    return float(f"{value:.{digits}g}") if abs(value) >= 1e-6 else 0


@dataclass(frozen=True)
class Step:
    """One page of a row, as `lens_data` holds it."""

    worker: int
    page_id: int
    scores: Sequence[Number]
    m: Number
    rescale: Number
    l: Number
    weights: Sequence[Number]
    off: Number


@dataclass(frozen=True)
class View:
    """What a state shows: the pages of the row with the bug and of the right one, up to the page that `step` is at."""

    run: Data
    wrong: Sequence[Step]
    right: Sequence[Step]
    length: int
    page: int
    num_pages: int
    table: Sequence[int]

    @property
    def last(self) -> bool:
        """Whether all pages are read, so that the weights are the output's."""
        return self.page == self.num_pages - 1


def view_of(data: Data, bug: str, length: int, head: int, step: int) -> View:
    """The rows of a state; a step beyond the last page counts as the last."""
    at, run = data["lengths"].index(length), data["runs"][bug]
    right = data["rights"][run["right"]][at][head]
    wrong = right if run["rows"] is None else run["rows"][at][head]
    page = min(step, len(wrong) - 1)
    shown_wrong, shown_right = ([Step(*one) for one in steps[: page + 1]] for steps in (wrong, right))
    return View(run, shown_wrong, shown_right, length, page, len(wrong), data["table"])


def is_own(view: View, slot: int, steps: Sequence[Step]) -> bool:
    """Whether a slot of the row, counted over all pages, holds a token of this sequence."""
    page = slot // PAGE_SLOTS
    return slot < view.length and steps[page].page_id == view.table[page]


def shares(view: View, steps: Sequence[Step]) -> list[Number]:
    """The weight of every slot so far: workers' own shares until all pages are read."""
    if view.last or view.run["workers"] == 1:
        return list(steps[-1].weights)
    return [weight for page, step in enumerate(steps) for weight in step.weights[PAGE_SLOTS * page :]]


def leak(view: View, steps: Sequence[Step]) -> Number:
    """The weight on slots that hold no token of this sequence."""
    found = shares(view, steps)
    if "NaN" in found:
        return "NaN"
    return sum(float(weight or 0) for slot, weight in enumerate(found) if not is_own(view, slot, steps))


def held_text(data: Data, view: View, slot: int) -> str:
    """What a slot of the page that was read last holds: a token of its own or a former owner's, or NaN."""
    if is_own(view, PAGE_SLOTS * view.page + slot, view.wrong):
        return str(data["tokens"][PAGE_SLOTS * view.page + slot])
    return "NaN" if view.run["unwritten"] else str(data["former"][str(view.wrong[-1].page_id)][slot])


def shown(value: Number, digits: int = 3) -> str:
    """A number of the data in words."""
    if value is None:
        return "−∞"
    return value if isinstance(value, str) else significant(value, digits)


def share_words(share: Number, digits: int = 0) -> str:
    """`57 %` or `NaN`."""
    return str(share) if isinstance(share, str) or share is None else percent(share, digits)


def off_words(off: Number) -> str:
    """`right`, `off 0.2 %`, `off 121 %` or `NaN`."""
    if isinstance(off, str) or off is None:
        return "NaN"
    return "right" if off < 1e-5 else f"off {percent(off, 1 if off < 0.0995 else 0)}"


def lens_sentence(data: Data, bug: str, length: int, head: int, step: int) -> str:
    """The state in one sentence."""
    view = view_of(data, bug, length, head, step)
    here = view.wrong[-1]
    valid = min(PAGE_SLOTS, length - PAGE_SLOTS * view.page)
    return " · ".join([
        view.run["label"],
        f"{length} tokens, head {head}",
        f"page {view.page} → id {here.page_id}, {valid} valid",
        f"m {shown(here.m)}, l {shown(here.l)}",
        f"leak {share_words(leak(view, view.wrong))}",
        f"output {off_words(here.off)}" if view.last else f"so far {off_words(here.off)}",
    ])  # fmt: skip


def token_cell(text: str) -> str:
    """A token as the lens shows it: no spaces around, ↵ for a newline."""
    plain = text.replace("\n", "↵").strip(" ")
    return plain or "␣" * min(3, len(text))


def flat_text(texts: Sequence[str]) -> list[str]:
    """Tokens of a text that runs on in one line: ↵ for a newline, one space for several."""
    flat = [re.sub(" +", " ", text.replace("\n", "↵")) for text in texts]
    first = next((at for at, text in enumerate(flat) if text.strip(" ")), 0)
    return ["" if at < first else text.lstrip(" ") if at == first else text for at, text in enumerate(flat)]
