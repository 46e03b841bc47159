"""A LensTrace made by hand, with few digits; `python -m tests.widgets.lens_trace` writes the JavaScript tests' data.

Its numbers fit together no more than pictures need: weights sum to 1, NaN and infinities stand where bugs put them.
"""

import json
import math
import random
from functools import cache
from pathlib import Path

from lab_engine.attention_layer import MOST_TOKENS
from lab_engine.attention_texts import WrittenText
from lab_engine.attention_trace import LENGTHS, RUNS, TEXT_TOKENS, LensTrace, PageStep, RunTrace
from widgets.paged_attention import TailLens

DATA_FILE = Path(__file__).parent / "js" / "lens.json"
HEADS = 4
TABLE = (5, 9, 2, 12)
SHOWN = (
    "right",
    "no_tail_mask",
    "mask_to_zero",
    "mask_to_zero_low",
    "nan_in_v",
    "stale_page",
    "no_rescale",
    "empty_split",
)
TOKENS = ("class", " Stack", ":\n", "    ", " def", " __init__", "<b>&amp;", "\n\n", " a_very_long_name", "", " $x^2$")
PROMPT = 4


@cache
def made_up_lens() -> LensTrace:
    """Every kind of bug at every length, for four heads; page 12 and page 0 had another owner."""
    rng = random.Random(5)
    plains = dict.fromkeys(spec.without_bug() for spec in RUNS if spec.name in SHOWN)  # a set has no order to rely on
    rights = {plain: _rows(rng, plain) for plain in plains}
    texts = tuple(TOKENS[at % len(TOKENS)] for at in range(MOST_TOKENS))
    return LensTrace(
        layer=3,
        num_heads=HEADS,
        token_texts=texts,
        prompt_tokens=PROMPT,
        page_table=TABLE,
        former={page_id: tuple(f" old{page_id}"[:5] for _ in range(16)) for page_id in (*TABLE, 0)},
        runs=tuple(_run(rng, spec, rights[spec.without_bug()], texts) for spec in RUNS if spec.name in SHOWN),
        largest_raw=160.0,
    )


def _run(rng, spec, right_rows, texts):
    right = texts[PROMPT : PROMPT + TEXT_TOKENS]
    wrong = right if spec.bug in (None, "mask_to_zero") else (*right[:7], " wrong", "(", "\n", "x")
    return RunTrace(
        spec=spec,
        cause="why it is wrong, in one line" if spec.bug else "",
        rows=right_rows if spec.bug is None else _rows(rng, spec),
        right_rows=right_rows,
        errors=tuple(tuple(_error(rng, spec, length) for length in range(1, MOST_TOKENS + 1)) for _ in range(HEADS)),
        text=None if spec.shift else WrittenText(wrong, None if wrong is right else 7, 0.5),
    )


def _error(rng, spec, length):
    if spec.bug is None or length % 16 == 0:
        return 0.0
    return math.nan if spec.bug in ("nan_in_v", "empty_split") else round(rng.random() * 2, 2)


def _rows(rng, spec):
    return tuple(tuple(_steps(rng, spec, length) for _ in range(HEADS)) for length in LENGTHS)


def _steps(rng, spec, length):
    steps, m, pages = [], -math.inf, -(-length // 16)
    for page in range(pages):
        scores = [round(rng.gauss(spec.shift + 2, 4), 1) for _ in range(16)]
        if spec.bug not in ("no_tail_mask", "mask_to_zero"):
            scores = [s if 16 * page + at < length else -math.inf for at, s in enumerate(scores)]
        before, m = m, max([m, *scores])
        last = page == pages - 1
        nan = last and spec.bug in ("nan_in_v", "empty_split")
        steps.append(
            PageStep(
                worker=page if spec.num_splits > 1 else 0,
                page=page,
                page_id=0 if last and spec.bug == "stale_page" and length % 16 == 1 else TABLE[page],
                scores=tuple(scores),
                m=m,
                rescale=0.0 if page == 0 else round(math.exp(before - m), 3),
                l=round(1 + rng.random() * 9, 2),
                weights=_weights(rng, spec, length, page, nan and spec.bug == "empty_split"),
                off=math.nan if nan else 0.0 if last and spec.bug is None else round(rng.random() * 1.5, 2),
            )
        )
    return tuple(steps)


def _weights(rng, spec, length, page, nan):
    count = 16 * (page + 1)
    if nan:
        return (math.nan,) * count
    limit = count if spec.bug in ("no_tail_mask", "mask_to_zero") else min(count, length)
    raw = [rng.random() ** 6 if at < limit else 0.0 for at in range(count)]
    return tuple(round(value / sum(raw), 3) for value in raw)


def states(trace):
    """Every bug at every length, heads and pages taken in turn."""
    found = [(run.spec.name, length) for run in trace.runs for length in LENGTHS]
    return [
        {"bug": bug, "length": length, "head": at % HEADS, "step": at % -(-length // 16)}
        for at, (bug, length) in enumerate(found)
    ]


def javascript_data():
    lens = TailLens(made_up_lens())
    return {
        "trace": lens._trace,
        "spec": lens._spec,
        "sentences": [[state, TailLens(made_up_lens(), **state).sentence] for state in states(made_up_lens())],
        "code": TailLens(made_up_lens(), preset="no mask", head=2).code,
    }


if __name__ == "__main__":
    text = json.dumps(javascript_data(), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    DATA_FILE.write_text(text + "\n", encoding="utf-8")
