"""The playgrounds' JavaScript: the joined module that anywidget gets. `make test-js` runs the files' own tests."""

import json
import os
import re
import shutil
import subprocess

import pytest

import widgets
from tests.widgets.javascript_data import DATA_FILE, javascript_data
from widgets.bokeh_chart import BokehChart
from widgets.bundle import STATIC, bundle


@pytest.fixture(scope="session")
def node():
    """The node program; without it these tests skip with a line that says so, and fail under CI."""
    found = shutil.which("node")
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("node is not installed: the JavaScript is not tested")
    return found


def test_javascript_tests_read_the_data_of_today():
    """tests/widgets/js/data.json is written by `python -m tests.widgets.javascript_data`."""
    assert json.loads(DATA_FILE.read_text()) == json.loads(json.dumps(javascript_data()))


@pytest.mark.parametrize("widget", [*(getattr(widgets, name) for name in widgets.__all__), BokehChart])
def test_joined_module_of_every_widget_is_valid(node, tmp_path, widget):
    module = tmp_path / "joined.mjs"
    module.write_text(widget._esm)
    result = subprocess.run([node, "--check", module], check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_every_file_is_in_the_bundle_once_and_after_what_it_needs():
    joined = bundle("tour.js")
    files = re.findall(r"^// ---- (.+) ----$", joined, re.MULTILINE)
    assert len(files) == len(set(files)) > 4
    assert files.index("marks.js") < files.index("shell.js") < files.index("kit.js") < files.index("tour.js")
    assert joined.count("export default") == 1
    assert "\nimport " not in joined


def test_bundle_refuses_an_import_that_it_cannot_join(tmp_path):
    (tmp_path / "a.js").write_text('import {\n  b,\n} from "./b.js";\n')
    with pytest.raises(ValueError, match=r'a\.js: found "import \{", expected import \{ names \}'):
        bundle("a.js", tmp_path)


def test_bundle_refuses_files_that_import_each_other(tmp_path):
    (tmp_path / "a.js").write_text('import { b } from "./b.js";\n')
    (tmp_path / "b.js").write_text('import { a } from "./a.js";\n')
    with pytest.raises(ValueError, match=r"a\.js imports itself: a\.js → b\.js → a\.js"):
        bundle("a.js", tmp_path)


def test_scripts_and_styles_name_no_address():
    for file in STATIC.iterdir():
        assert "://" not in file.read_text(), file.name


def test_style_has_no_bare_colour_outside_the_tokens():
    """A fixed colour belongs to a theme; only the two token blocks and var() fallbacks may hold one."""
    rules = (STATIC / "nl.css").read_text().split("/* the shell of a playground */")[1]
    rules += (STATIC / "bokeh_chart.css").read_text()
    assert not [line for line in rules.splitlines() if "#" in line]
