"""The file map: its state, its words against an independent reading of the bytes, its pictures."""

import json
import re
import shutil
import struct

import numpy as np
import pytest
import traitlets
from ipywidgets.widgets.widget import _remove_buffers

from lab_engine import SHIPPED_MODEL, data_path
from lab_engine.config import ModelConfig
from lab_engine.errors import FileFormatError, NanoqwenError
from lab_engine.nanoqwen_file import NUMPY_DTYPES, section_length, tensor_shapes
from lab_engine.nanoqwen_writer import NanoqwenWriter
from tests.widgets.file_map_data import DATA_FILE, GATE, javascript_data, shipped_view, some_places
from widgets.nanoqwen_file import LARGEST, FileMap
from widgets.nanoqwen_file_text import file_text
from widgets.nanoqwen_file_view import HEADER, LEVELS, FileView
from widgets.nanoqwen_file_words import meaning, sentence

SHIPPED = data_path(SHIPPED_MODEL)
DATA = SHIPPED.read_bytes()
SECTIONS = json.loads(DATA[24 : 24 + struct.unpack_from("<I", DATA, 12)[0]])["sections"]


def at(level, **more):
    return FileMap(**{"section": GATE, "row": 21, "group": 1, "byte": 6, "level": level, **more})


# State --------------------------------------------------------------------------------------------------------------


def test_presets_are_places_with_a_surprise():
    pg = FileMap()
    assert pg.presets == ("preamble", "padding", "row across two pages", "nibbles and scales", "a whole step")
    assert pg.preset == "preamble"
    places = {name: FileMap(preset=name).place for name in pg.presets}
    assert places["row across two pages"].row == 21
    assert places["nibbles and scales"].row == 5  # the course's group
    assert [place.level for place in places.values()] == ["section", "section", "section", "group", "file"]


def test_the_questions_of_the_presets_hold_computed_numbers():
    asks = {preset["name"]: preset["ask"] for preset in FileMap()._spec["presets"]}
    assert asks["preamble"].startswith("f2 40 00 00 is 16,626")
    assert f"{0xF2400000:,} bytes" in asks["preamble"]
    assert "before byte 16,650, the first section begins at 20,480" in asks["padding"]
    assert "A header of 4,072 bytes would need no padding, one of 4,073 bytes 4,095 bytes" in asks["padding"]
    assert "192 bytes: rows 21 and 42 of every 64" in asks["row across two pages"]
    assert "6 rows in 16; every row of its down_proj lies on 3 or 4" in asks["row across two pages"]
    assert "33.95 MB and 1.06 MB, 3.1 %" in asks["nibbles and scales"]
    assert "1,477 of the file's 1,512 pages" in asks["a whole step"]
    assert "890,441" in asks["a whole step"]


def test_a_change_of_any_part_leaves_the_preset():
    for change in ({"row": 22}, {"byte": 1}, {"level": "row"}, {"section": "tokenizer"}, {"step": 3}):
        pg = FileMap(preset="row across two pages")
        for name, value in change.items():
            setattr(pg, name, value)
        assert pg.preset == "", change


def test_step_is_the_part_that_the_level_chooses():
    pg = at("section")
    assert (pg.step, pg.step_count()) == (21, 896)
    pg.step = 42
    assert pg.row == 42
    pg.level = "row"
    assert (pg.step, pg.step_count()) == (1, 3)
    pg.level = "byte"
    assert (pg.step, pg.step_count()) == (6, 64)
    pg.level = "file"
    assert (pg.step, pg.step_count()) == (list(SECTIONS).index(GATE) + 1, 119)
    pg.step = 0
    assert pg.section == HEADER


def test_a_step_from_the_header_leads_to_row_0_and_from_matrix_to_matrix_to_the_same_row():
    pg = FileMap(section=HEADER, row=124, level="file")
    pg.step = 1
    assert (pg.section, pg.row) == ("model.embed_tokens.weight", 0)
    pg = at("file")
    pg.step += 1
    assert (pg.section, pg.row) == (GATE.replace("weight", "scales"), 21)
    pg.step = pg.step_count() - 2
    assert (pg.section, pg.row) == ("model.norm.weight", 0)


def test_row_is_observed():
    pg, seen = at("section"), []
    pg.observe(lambda change: seen.append(change["new"]), "row")
    pg.row = 42
    pg.step = 43
    assert seen == [42, 43]


def test_another_section_keeps_what_it_has_and_no_level_that_it_lacks():
    pg = at("byte", row=895, group=2)
    pg.section = "model.layers.0.self_attn.k_proj.weight"
    assert (pg.row, pg.group, pg.level) == (255, 2, "byte")
    pg.section = "model.norm.weight"
    assert (pg.row, pg.group, pg.level) == (255, 0, "section")


def test_a_state_of_the_browser_is_taken_at_once():
    pg = FileMap()
    pg.set_state({"section": "tokenizer", "row": 122689, "level": "section", "preset": ""})
    assert (pg.step, pg.sentence.split(" · ")[1]) == (122689, "byte 122689")
    pg.set_state({"level": "file", "section": GATE, "row": 0})
    assert pg.step == 16


def test_the_code_recreates_the_place_in_any_order_of_its_words():
    for pg in (FileMap(preset="padding"), at("byte"), at("section", section="tokenizer", group=0, row=7)):
        assert eval(pg.code).place == pg.place
    assert at("group").code == f'FileMap(section="{GATE}", row=21, group=1, byte=6, level="group")'
    assert (
        FileMap(level="row", byte=3, group=2, row=895, section=GATE).place == at("row", row=895, group=2, byte=3).place
    )


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("row", 896, f"row is 896, expected 0 to 895 in {GATE}"),
        ("row", -1, "row is -1, expected 0 to 895"),
        ("group", 3, "group is 3, expected 0 to 2"),
        ("byte", 64, "byte is 64, expected 0 to 63"),
        ("section", "lm_head.weight", 'section is "lm_head.weight", expected "header" or one of 118 sections'),
        ("level", "page", "expected any of"),
        ("step", 896, "step is 896, expected 0 to 895"),
        ("preset", "rows", "expected one of: preamble"),
    ],
)
def test_what_is_not_there_is_refused_with_the_range(name, value, message):
    pg = at("section")
    before = pg.place
    with pytest.raises(traitlets.TraitError, match=message):
        setattr(pg, name, value)
    assert pg.place == before


def test_a_vector_has_nothing_to_zoom_into():
    pg = at("section", section="model.norm.weight", group=0)
    with pytest.raises(traitlets.TraitError, match=r'level is "row", but model\.norm\.weight holds no INT4 weights'):
        pg.level = "row"


def test_an_unknown_word_is_refused():
    with pytest.raises(
        TypeError, match=r"^FileMap has no state column; it has preset, section, row, group, byte, level$"
    ):
        FileMap(column=3)


# Words --------------------------------------------------------------------------------------------------------------


def test_sentences_of_the_five_levels():
    assert {level: at(level).sentence for level in LEVELS} == {
        "file": "layer 0 mlp.gate_proj.weight · INT4 896 × 384 · bytes 1,163,264–1,335,295 · 42 pages 284–325",
        "section": "layer 0 mlp.gate_proj.weight · row 21 · bytes 1,167,296–1,167,487 · 2 pages 284–285",
        "row": "layer 0 mlp.gate_proj.weight · row 21 · group 1 · bytes 1,167,360–1,167,423 · page 285 "
        "· scale −0.02563",
        "group": "row 21 · group 1 · byte 6 = 0x4C · weights 137 and 139 · codes 4 and −4",
        "byte": "row 21 · group 1 · byte 6 = 0x4C · weight 137: 4 × scale = −0.1025 · weight 139: −4 × scale = 0.1025",
    }


def test_the_words_of_a_byte_are_those_of_the_bytes():
    """Read again by hand: row 21, group 1, byte 6 of gate_proj, and its scale in the section after it."""
    nibbles, scales = SECTIONS[GATE], SECTIONS[GATE.replace("weight", "scales")]
    byte = DATA[nibbles["offset"] + 21 * 192 + 64 + 6]
    scale = struct.unpack_from("<e", DATA, scales["offset"] + (21 * 3 + 1) * 2)[0]
    assert (byte, byte & 15, byte >> 4) == (0x4C, 12, 4)
    assert round((12 - 8) * scale, 4) == -0.1025
    lines = meaning(shipped_view(), at("byte").place).lines
    assert lines[0] == "0x4C = 76 = 4 × 16 + 12"
    assert lines[3] == "value_shuffle: nibbles 4 and 5 hold weights 1 and 3 of eight"


def test_the_parts_of_the_header_say_what_struct_reads():
    magic, version, length, checksum = struct.unpack_from("<8sIIQ", DATA)
    ends = [FileMap(section=HEADER, row=row, level="section").sentence.split(" · ")[-1] for row in range(4)]
    assert ends == [magic.decode(), str(version), f"{length:,}", f"0x{checksum:016X}"]


def test_the_entry_of_a_section_is_its_json():
    for name in (GATE, "tokenizer", "model.norm.weight"):
        (text,) = meaning(shipped_view(), FileMap(section=name, level="file").place).lines
        assert json.loads("{" + text + "}") == {name: SECTIONS[name]}


def test_a_row_says_how_its_offset_comes_about():
    assert meaning(shipped_view(), at("section").place).lines[:3] == (
        "1,163,264 + 21 × 192 = 1,167,296",
        "2 pages 284–285: a border 64 bytes into it",
        "its 3 scales: bytes 1,335,422–1,335,427, page 326",
    )


def test_every_place_has_one_line_of_state_and_at_most_five_of_meaning():
    view = shipped_view()
    for place in some_places(view):
        assert "\n" not in sentence(view, place)
        assert len(sentence(view, place)) <= 112
        assert 1 <= len(meaning(view, place).lines) <= 5


def test_numbers_are_spelled_with_0x_and_capitals_dumps_of_bytes_with_small_letters():
    (word,) = struct.unpack_from("<I", DATA, 1167364)
    assert f"word 1: 66 5e 4c 95 = 0x{word:08X}" in meaning(shipped_view(), at("group").place).lines
    for place in some_places(shipped_view()):
        said = "\n".join([sentence(shipped_view(), place), *meaning(shipped_view(), place).lines])
        assert not re.search(r"0x[0-9A-F]*[a-f]", said), said


# Pictures and data --------------------------------------------------------------------------------------------------


def test_the_text_picture_marks_the_place_and_fits_into_80_columns():
    rows = at("section").text_picture().splitlines()
    assert rows[0] == "file     [eeeeeeeee000000000111111111222222222333333333444444444555555555t]"
    assert rows[1].index("^") == 10 + 1167296 * 64 // len(DATA)
    assert rows[4] == "path     file > [layer 0 mlp.gate_proj.weight] > row 21 > group 1 > byte 6"
    assert rows[6] == f"bytes    1,167,296  {DATA[1167296:1167312].hex(' ')}"
    for place in some_places(shipped_view()):
        assert all(len(row) <= 80 for row in file_text(shipped_view(), place).splitlines())


def test_a_png_is_the_same_twice_and_every_level_has_its_own_of_one_size():
    pictures = {level: at(level).png() for level in LEVELS}
    pictures["header"] = FileMap(preset="padding").png()
    assert pictures["section"] == at("section").png()
    assert len(set(pictures.values())) == 6
    assert len({picture[16:24] for picture in pictures.values()}) == 1
    assert all(len(picture) < 120_000 for picture in pictures.values())


def test_the_bytes_go_to_the_browser_once_and_as_a_buffer():
    state, paths, buffers = _remove_buffers({"_trace": FileMap()._trace})
    assert paths == [["_trace", "bytes"]]
    assert bytes(buffers[0]) == DATA
    assert len(json.dumps(state)) < 60_000


def test_two_maps_of_the_shipped_file_share_its_bytes():
    assert FileMap()._trace["bytes"] is FileMap()._trace["bytes"]


def test_javascript_tests_read_the_data_of_today():
    """tests/widgets/js/file_map.json is written by `python -m tests.widgets.file_map_data`."""
    assert json.loads(DATA_FILE.read_text(encoding="utf-8")) == json.loads(json.dumps(javascript_data()))


# Other files --------------------------------------------------------------------------------------------------------


def write(path, config, layout="linear"):
    """A file whose bytes count up."""
    with NanoqwenWriter(path, config, {"a": "ü"}, layout) as writer:
        for name, (dtype, shape) in tensor_shapes(config).items():
            content = np.arange(section_length(dtype, shape)) % 251
            writer.append(name, content.astype(np.uint8).view(NUMPY_DTYPES[dtype]))
    return path


def config(intermediate_size=384, vocab_size=10):
    """An untied model of one layer."""
    return ModelConfig(256, intermediate_size, 1, 2, 2, 128, vocab_size, 32, 1e6, 1e-6, tie_embeddings=False)


def test_another_file_of_another_layout_has_its_own_presets_and_numbers(tmp_path):
    pg = FileMap(write(tmp_path / "own.nanoqwen", config()))
    assert pg.presets == ("preamble", "padding", "row across two pages", "nibbles and scales", "a whole step")
    crossing = FileMap(tmp_path / "own.nanoqwen", preset="row across two pages")
    assert crossing.section == "model.layers.0.mlp.down_proj.weight"  # 192 bytes a row; all others have 128
    assert crossing.row == 21
    pg.preset = "nibbles and scales"
    assert "weights 0 and 1" in pg.sentence
    for level in LEVELS:
        pg.level = level
        assert pg.png()
        assert pg.text_picture()


def test_the_code_of_another_file_passes_its_path_first(tmp_path):
    path = write(tmp_path / "own.nanoqwen", config())
    pg = FileMap(path)
    assert pg.code == 'FileMap(path, preset="preamble")'
    pg.level, pg.row = "section", 3
    again = eval(pg.code)
    assert (again.place, again._trace) == (pg.place, pg._trace)
    assert FileMap().code == 'FileMap(preset="preamble")'


def test_a_file_whose_rows_all_lie_on_one_page_has_no_preset_for_two(tmp_path):
    pg = FileMap(str(write(tmp_path / "own.nanoqwen", config(intermediate_size=256))))
    assert pg.presets == ("preamble", "padding", "nibbles and scales", "a whole step")


def test_a_large_file_is_refused_with_what_to_do(tmp_path):
    path = tmp_path / "large.nanoqwen"
    write(path, config(vocab_size=LARGEST // 128 // 2))
    assert path.stat().st_size > LARGEST
    with pytest.raises(NanoqwenError) as error:
        FileMap(path)
    assert str(error.value) == (
        f"{path}: {path.stat().st_size} bytes, a map takes at most {LARGEST}; use nanoqwen inspect {path}"
    )


def test_a_damaged_file_is_refused_by_the_reader_s_words(tmp_path):
    path = shutil.copy(SHIPPED, tmp_path / "damaged.nanoqwen")
    with path.open("r+b") as file:
        file.write(b"NANOQWEM")
    with pytest.raises(FileFormatError, match="magic: found b'NANOQWEM'"):
        FileMap(path)


def test_a_view_counts_what_lies_between_sections():
    view = shipped_view()
    ends = [view.after(name) for name in view.names]
    assert ends == sorted(ends)
    assert ends[-1] == len(DATA)
    assert sum(group.length for group in view.groups()) == len(DATA)
    assert isinstance(view, FileView)


def test_a_vector_chosen_from_deep_inside_a_matrix_is_shown_as_a_section():
    pg = FileMap(section="model.layers.2.mlp.gate_proj.weight", row=890, group=2, byte=19, level="byte")
    pg.section = "model.layers.2.self_attn.v_proj.bias"
    assert (pg.level, pg.row, pg.step) == ("section", 255, 255)
    assert pg.sentence
    pg.section = "model.norm.weight"
    assert (pg.level, pg.row) == ("section", 255)
