"""Lab 04's pages: who holds which page id, where a token lies, and what each action does to tables and free list.

The engine replays the history (`lab_engine/kv_trace.py`) for text, PNG and sentence; the browser replays it by itself
(`static/kv_allocator.js`, compared with the engine frame by frame), so that a click waits for nobody.
"""

from functools import lru_cache
from typing import Any, ClassVar

import traitlets

from lab_engine.errors import NanoqwenError
from lab_engine.kv_pages import PAGE_SLOTS
from lab_engine.kv_trace import Frame, parse_actions, trace_history
from lab_engine.running_example import RUNNING_EXAMPLE
from widgets.kv_pages_png import kv_png
from widgets.kv_pages_presets import kv_presets
from widgets.kv_pages_text import kv_sentence, kv_text
from widgets.kv_pages_view import MAX_TOKENS, ROWS, SLOT_BYTES, TOKEN_BYTES, Scene, scene_at
from widgets.playground import Badge, Playground, Value

ORDERS = {"running": RUNNING_EXAMPLE.page_order, "ascending": tuple(range(RUNNING_EXAMPLE.num_pages))}
"""Free lists that a pool can start with."""


@lru_cache(maxsize=8)  # each action of a learner makes a new history
def _frames(actions: str, order: str) -> tuple[Frame, ...]:
    page_order = ORDERS[order]
    return trace_history(parse_actions(actions), len(page_order), page_order)


class KVPages(Playground):
    """A pool of 16 pages and the sequences in it. `actions` is a history, `step` how many of its actions are done.

    `actions` is a line such as "new; append A 20; fork A; append B; truncate A 17; free B; evict"; evict frees the
    oldest sequence. Setting it goes to its last step. `sequence` is the chosen one, "" the one that the last action was
    about; `token` its chosen token, -1 the newest. `order`: the free list at the start, running or ascending.
    """

    title = "KV pages"
    lab = "lab 04"
    ask = "Choose a sequence and act on it. Which ids does it hold, and what did the action take or give back?"
    badge = Badge(
        "computed",
        "the engine's own allocator; addresses in plane 0 of a pool of 16 pages of the shipped model (head_dim 128, "
        f"16 bits); memory in the 7B: {TOKEN_BYTES:,} bytes a token, at most {MAX_TOKENS:,} tokens",
    )
    script = "kv_pages.js"
    fields: ClassVar[tuple[str, ...]] = ("preset", "order", "actions", "sequence", "token", "step")

    order = traitlets.Enum(tuple(ORDERS), "running").tag(sync=True)
    actions = traitlets.Unicode("").tag(sync=True)
    sequence = traitlets.Unicode("").tag(sync=True)
    token = traitlets.Int(-1).tag(sync=True)

    def __init__(self, **state: Value | None) -> None:
        in_order = {name: state.pop(name) for name in self.fields if name in state}  # a step is checked in its history
        trace = {
            "orders": {name: list(order) for name, order in ORDERS.items()},
            "rows": ROWS,
            "slotBytes": SLOT_BYTES,
            "tokenBytes": TOKEN_BYTES,
            "maxTokens": MAX_TOKENS,
        }
        super().__init__(trace, kv_presets(), **in_order, **state)

    def step_count(self) -> int:
        """One for each action, and 0."""
        return len(self._history)

    @property
    def _history(self) -> tuple[Frame, ...]:
        return _frames(self.actions, self.order)

    @property
    def scene(self) -> Scene:
        """What is shown, as the engine has it."""
        return scene_at(self._history, self.step, self.sequence, self.token)

    @traitlets.validate("actions")
    def _check_actions(self, proposal: Any) -> str:
        try:
            line = "; ".join(map(str, parse_actions(proposal["value"])))
        except NanoqwenError as error:
            raise traitlets.TraitError(str(error)) from None
        for number, frame in enumerate(_frames(line, self.order)):
            if len(frame.sequences) > len(ROWS):
                found = f"actions: {len(frame.sequences)} sequences are alive after action {number}"
                raise traitlets.TraitError(f"{found}, the picture has room for {len(ROWS)}; free one first")
        return line

    @traitlets.validate("sequence")
    def _check_sequence(self, proposal: Any) -> str:
        name = proposal["value"]
        if name and (len(name) > 1 or name not in ROWS):
            raise traitlets.TraitError(f'sequence is "{name}", expected {ROWS[0]} to {ROWS[-1]} or ""')
        return str(name)

    @traitlets.validate("token")
    def _check_token(self, proposal: Any) -> int:
        token, last = proposal["value"], len(ORDERS["running"]) * PAGE_SLOTS - 1
        if not -1 <= token <= last:
            raise traitlets.TraitError(f"token is {token}, expected 0 to {last}, or -1 for the newest")
        return int(token)

    @traitlets.observe("actions")
    def _go_to_the_end(self, _: Any) -> None:
        if not self._applying:
            self.step = self.step_count() - 1

    # What the base asks for -----------------------------------------------------------------------------------------

    @property
    def sentence(self) -> str:
        """`A · token 55 · page 3 → id 12 · slot 7 · bytes 50944–51199`."""
        return kv_sentence(self.scene)

    def text_picture(self) -> str:
        """The last action, page tables, used pages with their slots, the counters."""
        return kv_text(self.scene)

    def png(self) -> bytes:
        """The same picture as the browser's wide one."""
        return kv_png(self.scene)
