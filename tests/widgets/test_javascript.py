"""The playgrounds' JavaScript: its own tests under node, and the joined module that anywidget gets."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from matplotlib.font_manager import FontProperties, findfont
from matplotlib.ft2font import FT2Font, LoadFlags

import widgets
from tests.widgets.traces import made_up_trace
from widgets import Tour
from widgets.bundle import STATIC, bundle
from widgets.tour_png import text_pieces
from widgets.words import byte_count, percent

TESTS = Path(__file__).parent / "js"


@pytest.fixture(scope="session")
def node():
    """The node program; without it these tests skip with a line that says so, and fail under CI."""
    found = shutil.which("node")
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("node is not installed: the JavaScript is not tested")
    return found


def run(command, **options):
    return subprocess.run(command, check=False, capture_output=True, text=True, **options)


def advances(family, weight="normal"):
    """Advance widths of the letters we use, in parts of the font size."""
    font = FT2Font(findfont(FontProperties(family=family, weight=weight)))
    letters = [chr(code) for code in range(32, 127)] + list("→–·−×…↵")
    return {
        letter: font.load_char(ord(letter), LoadFlags.NO_SCALE).horiAdvance / font.units_per_EM
        for letter in letters
    }


def javascript_data():
    """What tests/widgets/js/data.mjs reads: data of a tour, and what Python makes of cases that JavaScript repeats."""
    tour = Tour(made_up_trace())
    shares = [0, 1e-5, 0.0049, 0.005, 0.0051, 0.125, 0.145, 0.5, 0.996, 1]
    counts = [0, 264, 1023, 1024, 1250, 57_344, 999_999, 1_000_000, 5_981_234]
    states = [{"preset": "", "step": 3}, {"preset": "", "step": 0}] + [
        {"preset": name, "step": Tour(made_up_trace(), preset=name).step} for name in tour.presets
    ]
    return {
        "trace": tour._trace,
        "spec": tour._spec,
        "advances": {
            "sans": advances("DejaVu Sans"),
            "bold": advances("DejaVu Sans", "bold"),
            "mono": advances("DejaVu Sans Mono"),
        },
        "cases": {
            "percent": [[share, percent(share)] for share in shares],
            "bytes": [[count, byte_count(count)] for count in counts],
            "pieces": text_pieces([token["text"] for token in tour._trace["tokens"]], 41),
            "code": [[state, code_of(state)] for state in states],
        },
    }


def code_of(state):
    return Tour(made_up_trace(), **({"preset": state["preset"]} if state["preset"] else {"step": state["step"]})).code


def test_node_passes_the_javascript_tests(node, tmp_path):
    data = tmp_path / "data.json"
    data.write_text(json.dumps(javascript_data()))
    files = sorted(TESTS.glob("*.test.mjs"))
    assert len(files) > 1
    command = [node, "--test", "--test-reporter=spec", *map(str, files)]
    result = run(command, env=os.environ | {"NANOQWEN_JS_DATA": str(data)})
    assert result.returncode == 0, result.stdout.split("failing tests:")[-1] + result.stderr


@pytest.mark.parametrize("name", widgets.__all__)
def test_joined_module_of_every_playground_is_valid(node, tmp_path, name):
    module = tmp_path / "joined.mjs"
    module.write_text(getattr(widgets, name)._esm)
    result = run([node, "--check", module])
    assert result.returncode == 0, result.stderr


def test_every_file_is_in_the_bundle_once_and_after_what_it_needs():
    joined = bundle("tour.js")
    order = [joined.index(f"// ---- {name} ----") for name in ("marks.js", "state.js", "kit.js", "tour.js")]
    assert order == sorted(order)
    assert all(joined.count(f"// ---- {file.name} ----") == 1 for file in STATIC.glob("*.js"))
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
    assert not [line for line in rules.splitlines() if "#" in line]
