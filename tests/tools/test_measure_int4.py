"""The measurement of INT4's costs says in one line why it cannot begin."""

import pytest

from tools import measure_int4


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("absent.py", None, "cannot be read (No such file or directory)"),
        ("binary.py", b"\xff\xfe\x00", "is no UTF-8 text; expected Python source"),
        ("empty.py", b"", "text: found 0 characters, expected two tokens at least"),
    ],
)
def test_a_text_that_cannot_be_measured_is_refused_in_one_line(tmp_path, monkeypatch, capsys, name, content, reason):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setattr("sys.argv", ["measure_int4", "--text", str(path)])
    assert measure_int4.main() == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("measure_int4: ")
    assert error.count("\n") == 1
    assert reason in error


def test_a_missing_corpus_is_named_with_what_to_do(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(measure_int4, "CORPUS", tmp_path)
    monkeypatch.setattr("sys.argv", ["measure_int4"])
    assert measure_int4.main() == 2
    assert "held_out.jsonl.xz: No such file or directory; make it with tools.tiny_corpus" in capsys.readouterr().err
