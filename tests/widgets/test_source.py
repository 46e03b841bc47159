"""Sources as outputs: one CUDA function out of a file, with what is said above it."""

import pytest

from lab_engine.errors import NanoqwenError
from widgets.source import MOST_LINES, Source, cuda_function


def test_a_function_comes_whole_with_the_comment_above_it():
    text = cuda_function("gemv_mma.cuh", "multiply_rows").text
    assert text.startswith("//")
    assert text.endswith("}")
    assert text.count("__device__") == 1


def test_a_call_or_a_comment_that_names_a_function_is_not_taken_for_it():
    assert "void unpack_int8(" in cuda_function("nibbles.cuh", "unpack_int8").text
    assert "int2 multiply_rows(" in cuda_function("gemv_mma.cuh", "multiply_rows").text


def test_a_function_that_is_not_there_is_named():
    with pytest.raises(NanoqwenError, match=r"no function .unpack_int9."):
        cuda_function("nibbles.cuh", "unpack_int9")


def test_a_source_draws_its_text_and_escapes_it():
    assert "a &lt; b" in Source("a < b")._repr_html_()
    assert repr(Source("a < b")) == "a < b"


def test_a_long_source_scrolls_in_a_box_and_a_short_one_does_not():
    assert "max-height" in Source("line\n" * MOST_LINES)._repr_html_()
    assert "max-height" not in Source("line\n" * (MOST_LINES - 1))._repr_html_()
