"""A page that draws a playground without a kernel: what tools/shots.py photographs and the browser tests drive.

The widget's own module runs on a model of a few lines (static_page.html), under the variables of JupyterLab's themes.
"""

import base64
import json
from pathlib import Path

from widgets.playground import Playground

_PAGE = Path(__file__).with_suffix(".html")
WIDE, NARROW = 902, 620


def static_page(playground: Playground, *, light: bool = True, width: int = WIDE) -> str:
    """HTML with the playground in a cell of `width` px: WIDE gives the wide layout, NARROW the other one."""
    state = {name: getattr(playground, name) for name in ("_spec", "_trace", *playground.fields)}
    parts = {
        "title": playground.title,
        "width": str(width),
        "light": "true" if light else "false",
        "style": playground._css,
        "module": playground._esm.replace("export default", "window.nanoqwenPlayground ="),
        "state": json.dumps(state, default=_bytes).replace("</", "<\\/"),
    }
    page = _PAGE.read_text(encoding="utf-8")
    for name, text in parts.items():
        page = page.replace(f"@{name}@", text, 1)
    return page


def _bytes(value: bytes) -> dict[str, str]:
    """Bytes in JSON; the page makes a DataView of them, as ipywidgets does."""
    return {"base64": base64.b64encode(value).decode("ascii")}
