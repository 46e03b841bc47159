import pytest

from lab_engine.checks.lab04_locate import EXERCISE as LOCATE
from lab_engine.checks.lab04_locate import locate
from lab_engine.kv_pages import element_address
from tests.lab_engine.checks.answers import names


def place(token, table):
    """Page id and slot, or an IndexError."""
    if not 0 <= token < 16 * len(table):
        raise IndexError
    return table[token // 16], token % 16


def with_address(address):
    """A locate whose address alone is wrong."""

    def find(token, table, plane, num_pages, dim, head_dim):
        page_id, slot = place(token, table)
        here = {"token": token, "page_id": page_id, "slot": slot, "plane": plane, "num_pages": num_pages}
        return page_id, slot, address(**here, dim=dim, head_dim=head_dim, pages=len(table))

    return find


def logical_page_as_id(token, table, plane, num_pages, dim, head_dim):
    place(token, table)
    return locate(token, range(len(table)), plane, num_pages, dim, head_dim)


def logical_page_in_the_address(token, table, *rest):
    return *place(token, table), logical_page_as_id(token, table, *rest)[2]


def slot_and_page_swapped(token, table, plane, num_pages, dim, head_dim):
    if not 0 <= token < 16 * len(table):
        raise IndexError
    slot, page = divmod(token, 16)
    return table[page], slot, 2 * (((plane * num_pages + table[page]) * 16 + slot) * head_dim + dim)


def negative_accepted(token, table, plane, num_pages, dim, head_dim):
    page, slot = divmod(token, 16)
    return table[page], slot, 2 * (((plane * num_pages + table[page]) * 16 + slot) * head_dim + dim)


def outside_gives(value):
    def find(token, table, *rest):
        return locate(token, table, *rest) if 0 <= token < 16 * len(table) else value

    return find


def outside_is_a_value_error(token, table, *rest):
    if not 0 <= token < 16 * len(table):
        raise ValueError(f"token {token}")
    return locate(token, table, *rest)


def pages_for_limit(token, table, *rest):
    if token >= len(table):
        raise IndexError(token)
    return locate(token, table, *rest)


def wraps_around(token, table, *rest):
    return locate(token % (16 * len(table)), table, *rest)


def counted_from_1(token, table, *rest):
    page_id, slot, address = locate(token, table, *rest)
    return page_id, slot + 1, address


def from_the_running_table(token, table, *rest):
    return locate(token, [5, 9, 2, 12], *rest)


def up_to_63(token, table, *rest):
    if not 0 <= token < 64:
        raise IndexError
    return locate(token, table, *rest)


def sorted_table(token, table, *rest):
    return locate(token, sorted(table), *rest)


def num_pages_for_slots(token, table, plane, num_pages, dim, head_dim):
    if not 0 <= token < 16 * len(table):
        raise IndexError
    page, slot = divmod(token, num_pages)
    return table[page], slot, 2 * (((plane * num_pages + table[page]) * 16 + slot) * head_dim + dim)


SHORT = "token 32 of a table of 2"
OTHER = {"token 20 of a table of 2", "token 70 of a table of 5"}
OUTSIDE = {"token −1", "token 64", SHORT}
IN_PLANE_1 = "token 16 in plane 1 of 64 pages"
INSIDE = names(LOCATE) - OUTSIDE
PLANES = {IN_PLANE_1, "plane 30 of the 7B", "the last plane of the 7B"}
DIMS = {"dim 127", *PLANES} - {IN_PLANE_1}
WRONG = {
    "logical page as id": (logical_page_as_id, "Ask the table", INSIDE),
    "logical page in the address": (logical_page_in_the_address, "not the logical page", INSIDE),
    "token × 256": (with_address(lambda token, **_: token * 256), "the cache before paging", INSIDE),
    "contiguous, in its plane": (
        with_address(
            lambda token, plane, num_pages, dim, head_dim, **_: 2 * ((plane * num_pages * 16 + token) * head_dim + dim)
        ),
        "the cache before paging",
        INSIDE,
    ),
    "slot and page swapped": (slot_and_page_swapped, "16 slots a page", INSIDE - {"token 0"}),
    "slot before page id": (lambda *a: tuple(locate(*a)[i] for i in (1, 0, 2)), "In this order", INSIDE),
    "elements for bytes": (lambda *a: (*locate(*a)[:2], locate(*a)[2] // 2), "2 bytes an element: yours", INSIDE),
    "4 bytes an element": (lambda *a: (*locate(*a)[:2], locate(*a)[2] * 2), "2 bytes each", INSIDE),
    "dim counted in bytes": (
        with_address(
            lambda plane, num_pages, page_id, slot, dim, head_dim, **_: (
                ((plane * num_pages + page_id) * 16 + slot) * head_dim * 2 + dim
            )
        ),
        "of `dim` too",
        DIMS,
    ),
    "dim forgotten": (lambda *a: (*locate(*a)[:2], locate(*a[:4], 0, a[5])[2]), "+ 2 × dim", DIMS),
    "pages of 4096": (
        with_address(
            lambda plane, num_pages, page_id, slot, dim, head_dim, **_: (
                (plane * num_pages + page_id) * 4096 + slot * head_dim * 2 + 2 * dim
            )
        ),
        "2 KiB pages there",
        {"head_dim 64"},
    ),
    "pages of 4096, slots of 256": (
        with_address(
            lambda plane, num_pages, page_id, slot, dim, **_: (
                (plane * num_pages + page_id) * 4096 + slot * 256 + 2 * dim
            )
        ),
        "2 KiB pages there",
        {"head_dim 64"},
    ),
    "planes inside a page": (
        with_address(
            lambda plane, num_pages, page_id, slot, dim, head_dim, **_: (
                2 * (((page_id * num_pages + plane) * 16 + slot) * head_dim + dim)
            )
        ),
        "A plane is contiguous",
        INSIDE,
    ),
    "planes inside a slot": (
        with_address(
            lambda plane, num_pages, page_id, slot, dim, head_dim, **_: (
                2 * (((page_id * 16 + slot) * num_pages + plane) * head_dim + dim)
            )
        ),
        "A plane is contiguous",
        INSIDE,
    ),
    "no plane": (lambda *a: (*locate(*a)[:2], locate(*a[:2], 0, *a[3:])[2]), "A plane is contiguous", PLANES),
    "planes as long as the table": (
        with_address(
            lambda plane, page_id, slot, dim, head_dim, pages, **_: (
                2 * (((plane * pages + page_id) * 16 + slot) * head_dim + dim)
            )
        ),
        "A plane has num_pages pages",
        PLANES,
    ),
    "planes of 16 pages": (
        with_address(
            lambda plane, page_id, slot, dim, head_dim, **_: 2 * (((plane * 16 + page_id) * 16 + slot) * head_dim + dim)
        ),
        "A plane has num_pages pages",
        PLANES,
    ),
    "num_pages taken for 16": (num_pages_for_slots, "16 slots a page", None),
    "the table sorted": (sorted_table, "Ask the table as it stands: its logical page 0 is id 5", None),
    "the running table for every one": (from_the_running_table, "The table is an argument", {*OTHER, SHORT}),
    "tokens up to 63": (up_to_63, "hold tokens 0 to 79, and 70 is one", {"token 70 of a table of 5"}),
    "dims before slots": (
        with_address(
            lambda plane, num_pages, page_id, slot, dim, head_dim, **_: (
                2 * (((plane * num_pages + page_id) * head_dim + dim) * 16 + slot)
            )
        ),
        "the elements of a slot are neighbours",
        INSIDE - {"token 0", IN_PLANE_1},
    ),
    "slots from 1": (counted_from_1, "Slots count from 0", INSIDE),
    "a negative token": (negative_accepted, "the last slot of the last page", {"token −1"}),
    "outside is None": (outside_gives(None), "Raise an IndexError", OUTSIDE),
    "outside is −1": (outside_gives((-1, -1, -1)), "Raise an IndexError", OUTSIDE),
    "outside wraps around": (wraps_around, "Raise an IndexError", OUTSIDE),
    "outside is a ValueError": (outside_is_a_value_error, "Raise an IndexError", OUTSIDE),
    "pages as the limit": (pages_for_limit, "hold tokens 0 to 63, and 55 is one", INSIDE - {"token 0"}),
    "the example's answer": (lambda *_: (12, 7, 50944), "", None),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_place_fails_with_its_own_hint_on_the_cases_that_show_it(name, failing_cases):
    wrong, hint, only = WRONG[name]
    verdict = LOCATE.check(wrong)
    assert verdict.status == "failed"
    assert hint in verdict.hint, verdict
    if only is not None:
        assert failing_cases(LOCATE, wrong) == only


def test_a_table_in_order_would_let_the_logical_page_pass():
    ordered = (55, [0, 1, 2, 3], 0, 16, 0, 128)
    assert logical_page_as_id(*ordered) == locate(*ordered)
    assert logical_page_in_the_address(*ordered) == locate(*ordered)
    inside = [case.args for case in LOCATE.cases if case.refuses is None]
    assert all(table[token // 16] != token // 16 for token, table, *_ in inside)


def in_bytes(token, table, plane, num_pages, dim, head_dim):
    if token < 0:
        raise IndexError("negative")
    page_id = table[token >> 4]
    slot_bytes = 2 * head_dim
    plane_bytes = num_pages * 16 * slot_bytes
    return page_id, token & 15, plane * plane_bytes + page_id * 16 * slot_bytes + (token & 15) * slot_bytes + 2 * dim


def through_a_list_of_slots(token, table, plane, num_pages, dim, head_dim):
    assert isinstance(token, int)
    slots = [(page_id, slot) for page_id in table for slot in range(16)]
    if token < 0:
        raise IndexError
    page_id, slot = slots[token]
    return page_id, slot, (plane * num_pages * 16 + page_id * 16 + slot) * head_dim * 2 + dim * 2


@pytest.mark.parametrize("right", [locate, in_bytes, through_a_list_of_slots])
def test_a_right_place_passes(right):
    verdict = LOCATE.check(right)
    assert verdict.status == "passed", verdict


@pytest.mark.parametrize("case", [case for case in LOCATE.cases if case.refuses is None], ids=lambda case: case.name)
def test_the_address_is_that_of_the_engine(case):
    plane, num_pages, dim, head_dim = case.args[2:]
    page_id, slot, address = locate(*case.args)
    assert address == element_address(plane, num_pages, page_id, slot, dim, head_dim)


def test_the_known_addresses():
    assert locate(55, [5, 9, 2, 12], 0, 16, 0, 128) == (12, 7, 50944)
    assert locate(55, [5, 9, 2, 12], 0, 16, 127, 128)[2] + 1 == 51199
    assert locate(55, [5, 9, 2, 12], 30, 64, 5, 128) == (12, 7, 7915274)


@pytest.mark.parametrize(
    ("wrong", "message", "hint"),
    [
        (lambda *a: list(locate(*a)), "returned a list; expected (page id, slot, address)", "return page_id, slot"),
        (lambda *a: locate(*a)[:2], "returned a tuple of 2; expected (page id, slot, address)", ""),
        (lambda *a: locate(*a)[2], "returned an int; expected (page id, slot, address)", ""),
        (
            lambda *a: (*locate(*a)[:2], locate(*a)[2] / 1),
            "returned a tuple whose address is a float; expected an int",
            "`//` keeps an int",
        ),
        (lambda *a: (a[1].pop(), 7, 50944), "the result is right, but your function changed", "Work on a copy"),
    ],
)
def test_another_form_is_refused_in_words(wrong, message, hint):
    verdict = LOCATE.check(wrong)
    assert verdict.message.startswith(message)
    assert hint in verdict.hint


def test_the_verdict_shows_the_arguments_and_both_results_below_their_headings():
    verdict = LOCATE.check(logical_page_as_id)
    assert [row.values for row in verdict.rows] == [
        ("token", "table", "plane", "num_pages", "dim", "head_dim"),
        ("55", "5 9 2 12", "0", "16", "0", "128"),
        ("page id", "slot", "address"),
        ("12", "7", "50,944"),
        ("3", "7", "14,080"),
    ]
    assert verdict.differ == (0, 2)


def test_a_refusal_of_another_class_is_named():
    alone = LOCATE.check(outside_is_a_value_error)
    assert alone.case == "token −1"
    assert alone.message.startswith("raised ValueError: token -1")
    assert alone.message.endswith("; expected an IndexError")
