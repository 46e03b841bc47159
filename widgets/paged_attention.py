"""Lab 05's tail lens: one query head over the pages of the running example, with a board of nine real bugs.

The engine computes every row once (`lab_engine/attention_trace.py`); a step of the playground is a page.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any

import traitlets

from lab_engine.attention_trace import LENGTHS, LensTrace, trace_lens
from lab_engine.kv_pages import pages_for
from widgets.paged_attention_data import leak, lens_data, lens_sentence, off_words, share_words, shown, view_of
from widgets.paged_attention_png import lens_png
from widgets.paged_attention_text import lens_text
from widgets.playground import Badge, Playground, Preset


@cache
def _shipped() -> dict[str, Any]:
    return lens_data(trace_lens())


class TailLens(Playground):
    """One row of attention, page by page, right above wrong.

    `bug` is a switch of the board ("right" for none), `length` the context, `head` the query head, `step` the page that
    was read last; a new length starts at its last page. Without a trace the row is the running example's.
    """

    title = "The tail lens"
    lab = "lab 05"
    ask = "One query head reads the past page by page. Switch a bug on: which slots get the weight?"
    badge = Badge(
        "computed", "lab_engine/paged_attention.py on the shipped model's q, K and V, float32, with one of its bugs on"
    )
    script = "paged_attention.js"
    fields = ("preset", "bug", "length", "head", "step")

    bug = traitlets.Unicode("right").tag(sync=True)
    length = traitlets.Int(56).tag(sync=True)
    head = traitlets.Int(0).tag(sync=True)

    def __init__(
        self,
        trace: LensTrace | None = None,
        *,
        preset: str | None = None,
        bug: str | None = None,
        length: int | None = None,
        head: int | None = None,
        step: int | None = None,
    ) -> None:
        data = _shipped() if trace is None else lens_data(trace)
        if preset is None and step is None and (bug, length, head) != (None, None, None):
            step = pages_for(length or 56) - 1
        super().__init__(data, lens_presets(data), preset=preset, bug=bug, length=length, head=head, step=step)

    def step_count(self) -> int:
        """One a page."""
        return pages_for(self.length)

    @traitlets.validate("bug")
    def _check_bug(self, proposal: Any) -> str:
        return str(_one_of("bug", proposal["value"], self._trace["runs"]))

    @traitlets.validate("length")
    def _check_length(self, proposal: Any) -> int:
        return int(_one_of("length", proposal["value"], LENGTHS))

    @traitlets.validate("head")
    def _check_head(self, proposal: Any) -> int:
        return int(_one_of("head", proposal["value"], range(self._trace["heads"])))

    @traitlets.observe("length")
    def _start_at_the_tail(self, change: Any) -> None:  # noqa: ARG002 - traitlets' signature
        if not self._applying:
            self.step = self.step_count() - 1

    @property
    def _state(self) -> tuple[str, int, int, int]:
        return self.bug, self.length, self.head, self.step

    @property
    def sentence(self) -> str:
        """`no tail mask · 56 tokens, head 1 · page 3 → id 12, 8 valid · … · output off 121 %`."""
        return lens_sentence(self._trace, *self._state)

    def text_picture(self) -> str:
        """The weights of both rows in letters, m, l and error page by page, the error by length, both texts."""
        return lens_text(self._trace, *self._state)

    def png(self) -> bytes:
        """The same parts as the browser's wide picture."""
        return lens_png(self._trace, *self._state)


def _one_of(name: str, value: Any, known: Iterable[Any]) -> Any:
    if value not in known:
        raise traitlets.TraitError(f"{name} is {value}, expected one of: {', '.join(map(str, known))}")
    return value


def lens_presets(data: dict[str, Any]) -> list[Preset]:
    """Five scenes; the numbers in their words are the data's own."""

    def at(bug: str, length: int = 56, head: int = 1) -> dict[str, Any]:
        return {"bug": bug, "length": length, "head": head, "step": pages_for(length) - 1}

    def view(bug: str, length: int = 56, head: int = 1) -> Any:
        return view_of(data, bug, length, head, pages_for(length) - 1)

    def leaks(bug: str, digits: int = 0) -> str:
        one = view(bug)
        return share_words(leak(one, one.wrong), digits)

    peak = view("no_rescale", head=2)
    return [
        Preset(
            "no mask",
            "The tail has 8 tokens; its 8 other slots hold what another request left, and take "
            f"{leaks('no_tail_mask')}. At 48 tokens the same code is right. Whose words does the model write?",
            at("no_tail_mask"),
        ),
        Preset(
            "mask to 0",
            f"Here true scores are above 0, so a 0 takes only {leaks('mask_to_zero', 1)}, and the text is right. With "
            "a biased K all scores are 12 lower, the right row is the same, and 0 takes "
            f"{leaks('mask_to_zero_low', 1)}.",
            at("mask_to_zero"),
        ),
        Preset(
            "NaN in V",
            "Every weight is right, and an empty slot gets exactly 0. Memory that was never written may hold NaN, and "
            "0 × NaN is NaN. Do 48 tokens show it?",
            at("nan_in_v"),
        ),
        Preset(
            "not rescaled",
            "The bug is on, and head 0 is right: its maximum is on page 0. Head 2's comes last "
            f"({shown(peak.wrong[-2].m)} → {shown(peak.wrong[-1].m)}), and it is {off_words(peak.wrong[-1].off)}.",
            at("no_rescale", head=0),
        ),
        Preset(
            "empty split",
            "Four workers share the pages. With 3 pages one sees nothing, its part is 0 / 0, and the whole row is NaN. "
            "Here it is the short context that fails, and 56 tokens hide it.",
            at("empty_split", 48),
        ),
    ]
