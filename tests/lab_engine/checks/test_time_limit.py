import contextlib
import sys
import threading
import time

import pytest

from lab_engine.checks.time_limit import TimeUp, call_with_limit


def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def test_a_result_comes_back():
    assert call_with_limit(5, divmod, 17, 5) == (3, 2)


def test_an_endless_loop_ends_at_the_limit():
    start = time.monotonic()
    with pytest.raises(TimeUp):
        call_with_limit(0.1, spin, 60)
    assert time.monotonic() - start < 5


def test_a_bare_except_is_asked_again():
    caught = []

    def stubborn():
        while len(caught) < 2:
            try:
                spin(60)
            except:  # noqa: E722
                caught.append("once more")
        spin(60)

    with pytest.raises(TimeUp):
        call_with_limit(0.05, stubborn)
    assert len(caught) == 2


def test_a_quick_call_is_left_in_peace_and_no_thread_stays():
    for _ in range(200):
        call_with_limit(0.001, int)
    spin(0.05)
    assert "time limit" not in [thread.name for thread in threading.enumerate()]


def test_a_call_that_ends_just_at_the_limit_raises_inside_or_not_at_all():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)  # so that the watching thread gets its turn in time
    try:
        for i in range(200):
            with contextlib.suppress(TimeUp):
                call_with_limit(0.002, spin, 0.0016 + i % 80 * 1e-5)
        spin(0.5)  # one that came late would end this test
    finally:
        sys.setswitchinterval(interval)


def test_the_functions_own_error_passes_through():
    with pytest.raises(ZeroDivisionError):
        call_with_limit(5, divmod, 1, 0)


def test_another_thread_has_a_limit_of_its_own():
    seen = []

    def work():
        try:
            call_with_limit(0.05, spin, 60)
        except TimeUp:
            seen.append("up")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)
    assert seen == ["up"]
