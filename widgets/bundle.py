"""One ES module out of several files, because anywidget takes a module as text.

`widgets/static` holds plain modules that node imports as they are. An import is one line of named imports,
`import { a, b } from "./kit.js";`; the bundle puts each file once, before the first that needs it, and drops
those lines.
Top-level names are unique over all files, and only the playground's own file has a default export.
"""

import re
from pathlib import Path

STATIC = Path(__file__).parent / "static"

_IMPORT = re.compile(r'^import \{ [^}\n]+ \} from "\./(?P<file>[\w-]+\.js)";$', re.MULTILINE)


def bundle(script: str, folder: Path = STATIC) -> str:
    """The text of `script` and of everything it imports, as one module.

    Raises ValueError for an import that is not one line of named imports from the same folder, and for files that
    import each other in a circle.
    """
    parts: dict[str, str] = {}
    _add(script, folder, parts, above=())
    return "\n".join(parts.values())


def _add(script: str, folder: Path, parts: dict[str, str], above: tuple[str, ...]) -> None:
    if script in above:
        raise ValueError(f"{script} imports itself: {' → '.join((*above, script))}")
    source = (folder / script).read_text(encoding="utf-8")
    for match in _IMPORT.finditer(source):
        if match["file"] not in parts:
            _add(match["file"], folder, parts, (*above, script))
    body = _IMPORT.sub("", source)
    left = re.search(r"^\s*import\b.*$", body, re.MULTILINE)
    if left:
        found = left[0].strip()
        raise ValueError(f'{script}: found "{found}", expected import {{ names }} from "./file.js"; on one line')
    parts[script] = f"// ---- {script} ----\n{body.strip()}\n"


def style() -> str:
    """The style sheet of every playground."""
    return (STATIC / "nl.css").read_text(encoding="utf-8")
