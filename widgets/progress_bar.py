"""A bar for work that reports (done, total), as `lab_engine.convert` does; its text/plain never changes."""

from typing import Any

import ipywidgets


class ProgressBar(ipywidgets.IntProgress):  # type: ignore[misc]
    """Show it, then pass it as `progress`: `bar(done, total)` moves it."""

    def __init__(self, title: str) -> None:
        self._title = title
        super().__init__(description=title, style={"description_width": "initial"}, layout={"width": "100%"})

    def __call__(self, done: int, total: int) -> None:
        """Move to done of total."""
        self.max = total
        self.value = done

    def __repr__(self) -> str:
        return f"{self._title}: a bar moves here while the cell runs"

    def _repr_mimebundle_(self, **keywords: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(**keywords)
        return {**bundle, "text/plain": repr(self)}
