"""Threads: one of two while it lasts, and afterwards what it was."""

import pytest
import torch

from lab_engine.errors import NanoqwenError
from lab_engine.int4 import pack_words, quantize_groups
from lab_engine.threads import one_thread_of_two


@pytest.fixture
def threads():
    """A function that sets the number; the fixture puts the old one back."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize(("given", "inside"), [(1, 1), (2, 1), (3, 3), (4, 4)])
def test_two_threads_become_one_and_come_back(threads, given, inside):
    threads(given)
    with one_thread_of_two():
        assert torch.get_num_threads() == inside
    assert torch.get_num_threads() == given


def test_the_threads_come_back_after_a_refusal(threads):
    threads(2)
    with pytest.raises(NanoqwenError, match="NaN or inf"):
        quantize_groups(torch.full((1, 8), torch.nan))
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("count", [1, 2, 3])
def test_codes_and_words_do_not_depend_on_the_threads(threads, count):
    groups = torch.randn(2000, 128, generator=torch.Generator().manual_seed(0))
    threads(1)
    alone = quantize_groups(groups)
    threads(count)
    found = quantize_groups(groups)
    assert torch.equal(found[0], alone[0])
    assert torch.equal(found[1], alone[1])
    assert torch.equal(pack_words(found[0]), pack_words(alone[0]))
