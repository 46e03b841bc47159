"""Threads: one of two while it lasts, and afterwards what it was."""

import threading
from concurrent.futures import ThreadPoolExecutor

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


@pytest.mark.parametrize("given", [1, 2, 3])
def test_threads_that_overlap_leave_the_number_to_themselves_and_to_new_threads(threads, given):
    """The second begins while the first has one of two, and leaves after it."""
    threads(given)
    first_in, second_in, first_out = (threading.Event() for _ in range(3))

    def first():
        with one_thread_of_two():
            first_in.set()
            assert second_in.wait(10)
            inside = torch.get_num_threads()
        first_out.set()
        return inside, torch.get_num_threads()

    def second():
        assert first_in.wait(10)
        with one_thread_of_two():
            second_in.set()
            assert first_out.wait(10)
            inside = torch.get_num_threads()
        return inside, torch.get_num_threads()

    with ThreadPoolExecutor(2) as pool:
        found = [work.result(20) for work in (pool.submit(first), pool.submit(second))]
    assert found == [(1 if given == 2 else given, given)] * 2
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(torch.get_num_threads).result(20) == given
    assert torch.get_num_threads() == given


def test_one_thread_of_two_within_itself_lasts_to_the_end(threads):
    threads(2)
    with one_thread_of_two():
        with one_thread_of_two():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 1
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
