"""Lab 00: what happens between a prompt and the next token.

The engine traces one greedy text; a step of the playground is one forward pass, first the prompt's, then one a token.
What the browser, the PNG and the text picture show is the data that `tour_data` makes of that trace.
"""

from functools import cache

from lab_engine.decoder_trace import GenerationTrace
from lab_engine.running_example import trace_running_example
from widgets.playground import Badge, Playground
from widgets.tour_data import tour_data
from widgets.tour_png import tour_png
from widgets.tour_presets import tour_presets
from widgets.tour_text import tour_text


@cache
def running_trace() -> GenerationTrace:
    """The running example on the shipped model in exact fp32, traced once."""
    return trace_running_example()


class Tour(Playground):
    """From a prompt to the next token: text, bytes of each stage, KV pages, next token.

    `Tour()` shows the running example on the shipped model. `step` 0 is the pass over the prompt; step k feeds the k-th
    new token. Any other GenerationTrace of at least two passes can be given.
    """

    title = "From prompt to token"
    lab = "lab 00"
    ask = "One pass: text goes in, every weight is read once, K and V go into a page, the logits give the next token."
    badge = Badge("computed", "the decoder's own trace of this text; bytes are counted from the shapes of the weights")
    script = "tour.js"
    keeps_preset = False

    def __init__(
        self, trace: GenerationTrace | None = None, *, preset: str | None = None, step: int | None = None
    ) -> None:
        data = tour_data(running_trace() if trace is None else trace)
        looks = tour_presets(data)
        data["looks"] = {one.name: panel for one, panel in looks}
        super().__init__(data, [one for one, _ in looks], preset=preset, step=step)

    @property
    def sentence(self) -> str:
        """`step 40 · token 45 · page 2 → id 2 · slot 13 · bytes 11520–11775 · next " return"`."""
        return str(self._trace["steps"][self.step]["sentence"])

    def text_picture(self) -> str:
        """The end of the text, the pages, the bytes and the next token in letters."""
        return tour_text(self._trace, self.step)

    def png(self) -> bytes:
        """The four panels at the width of a cell."""
        return tour_png(self._trace, self.step, self._trace["looks"].get(self.preset, ""))
