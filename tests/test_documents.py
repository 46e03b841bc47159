"""The pages that list the project's parts list each of them, once."""

import re

import pytest

from tools import tiny_readme
from tools.bootstrap import ROOT


def test_the_architecture_page_lists_every_module_and_folder_of_the_engine_once():
    table = (ROOT / "docs" / "architecture.md").read_text().split("## Modules")[1].split("`widgets/` draws")[0]
    first_cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("|")]
    listed = re.findall(r"`(\w+(?:\.py|/))`", "\n".join(first_cells))
    modules = [path.name for path in (ROOT / "lab_engine").glob("*.py") if not path.name.startswith("__")]
    folders = [f"{path.parent.name}/" for path in (ROOT / "lab_engine").glob("*/__init__.py")]
    assert sorted(listed) == sorted([*modules, *folders])


@pytest.mark.parametrize("page", [tiny_readme.HEAD, (ROOT / "data" / "README.md").read_text()], ids=["tool", "page"])
def test_the_page_of_data_lists_everything_in_it(page):
    listed = re.findall(r"^\| ([\w.-]+)/? \| \w", page.split("The model was trained")[0], re.MULTILINE)
    parts = {path.name for path in (ROOT / "data").iterdir() if path.name != "README.md"}
    assert set(listed) - {"file"} == parts


def test_the_page_of_data_begins_as_its_tool_writes_it():
    assert (ROOT / "data" / "README.md").read_text().startswith(tiny_readme.HEAD)
