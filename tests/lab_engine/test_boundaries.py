"""What the engine may import: never the playgrounds, nor a package that only notebooks need."""

import ast
from pathlib import Path

import lab_engine

FORBIDDEN = {"widgets", "tools", "IPython", "ipywidgets", "anywidget", "matplotlib", "bokeh", "PIL", "transformers"}


def imported_packages(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name.split(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]


def test_no_module_of_the_engine_imports_a_notebook_package_however_late():
    modules = sorted(Path(lab_engine.__file__).parent.rglob("*.py"))
    found = {path.name: FORBIDDEN & set(imported_packages(path)) for path in modules}
    assert len(modules) > 40
    assert {name: names for name, names in found.items() if names} == {}


def test_a_late_import_would_be_seen(tmp_path):
    (tmp_path / "late.py").write_text("def draw():\n    from widgets.tour import Tour\n    import PIL.Image\n")
    assert FORBIDDEN & set(imported_packages(tmp_path / "late.py")) == {"widgets", "PIL"}
