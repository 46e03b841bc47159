"""The three hints of an exercise, folded: one opens them one by one, the last is the solution as the engine has it."""

import html
from dataclasses import dataclass

from lab_engine.checks import Exercise, Hint

_STYLE = """
.nl-hints{font:400 13px/20px var(--jp-ui-font-family,system-ui,sans-serif);color:var(--jp-ui-font-color1,#212121)}
.nl-hints .nl-hints-list p{margin:0 0 8px 16px}
.nl-hints summary{cursor:pointer;padding:2px 0}
.nl-hints summary:focus-visible{outline:2px solid #0067a3;outline-offset:2px}
[data-jp-theme-light="false"] .nl-hints summary:focus-visible{outline-color:#56b4e9}
.nl-hints .nl-hints-list pre{font:12px/18px var(--jp-code-font-family,"DejaVu Sans Mono",monospace);
white-space:pre;overflow-x:auto;
background:var(--jp-cell-editor-background,#f5f5f5);border:1px solid var(--jp-border-color2,#e0e0e0);
padding:8px;margin:4px 0 8px 16px}
""".strip()


@dataclass(frozen=True, repr=False)
class FoldedHints:
    """Draws the hints of `exercise` as three folded lines."""

    exercise: Exercise

    def __repr__(self) -> str:
        return f'three hints: ex["{self.exercise.name}"].hint(1), .hint(2), .hint(3); the third is the solution'

    def _repr_html_(self) -> str:
        folded = "".join(map(_fold, self.exercise.hints))
        return f'<style>{_STYLE}</style><div class="nl-hints"><div class="nl-hints-list">{folded}</div></div>'


def _fold(hint: Hint) -> str:
    text, title = html.escape(hint.text), f"Hint {hint.number} of 3"
    if hint.is_code:
        return f"<details><summary>{title}, the solution</summary><pre>{text}</pre></details>"
    return f"<details><summary>{title}</summary><p>{text.replace('`', '')}</p></details>"
