"""Source code or machine code as the output of a cell: long lines scroll instead of being broken."""

import html
import re
from dataclasses import dataclass

from lab_engine.errors import NanoqwenError
from lab_engine.kernels import read_source

MOST_LINES = 80

_STYLE = """
.nl-listing .nl-listing-text pre{font:12px/18px var(--jp-code-font-family,"DejaVu Sans Mono",monospace);white-space:pre;
overflow-x:auto;color:var(--jp-ui-font-color1,#212121);background:var(--jp-cell-editor-background,#f5f5f5);
border:1px solid var(--jp-border-color2,#e0e0e0);padding:8px;margin:0}
""".strip()


@dataclass(frozen=True, repr=False)
class Source:
    """Draws `text` as it is, line by line; prints as itself. More than MOST_LINES lines scroll in a box."""

    text: str

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        scrolls = ' style="max-height:540px"' if self.text.count("\n") >= MOST_LINES else ""
        pre = f'<pre tabindex="0"{scrolls}>{html.escape(self.text)}</pre>'
        return f'<style>{_STYLE}</style><div class="nl-listing"><div class="nl-listing-text">{pre}</div></div>'


def cuda_function(source: str, name: str) -> Source:
    """The function `name` of a CUDA file of kernels/, with the comment above it; NanoqwenError if it has none."""
    text = read_source(source)
    found = re.search(rf"^(?!//)[^\n]*\b{re.escape(name)}\(", text, re.MULTILINE)
    if not found:
        raise NanoqwenError(f"{source}: no function {name!r}")
    return Source(text[text.rindex("\n\n", 0, found.start()) + 2 : text.index("\n}\n", found.start()) + 2])
