"""Lab 04, locate: from a token to its page id, its slot, and the byte address of one element."""

from typing import Any

from lab_engine.checks.case import Args, Case, Mismatch
from lab_engine.checks.exercise import Exercise
from lab_engine.checks.values import first_true, judge_ints, number
from lab_engine.checks.verdict import Row
from lab_engine.running_example import RUNNING_EXAMPLE


def locate(
    token: int,
    table: list[int],
    plane: int,
    num_pages: int,
    dim: int,
    head_dim: int,
) -> tuple[int, int, int]:
    """Where one 16-bit element of a token lies: (page id, slot, byte address in the pool).

    table: the page ids of the sequence, logical page 0 first; a page has 16 slots.
    The pool is one array [plane, page id, slot, dim] of 16-bit elements: each plane has
    num_pages pages, each slot head_dim elements. The address counts bytes from its beginning.
    IndexError for a token outside the slots of the table.

    >>> locate(55, [5, 9, 2, 12], plane=0, num_pages=16, dim=0, head_dim=128)
    (12, 7, 50944)
    >>> locate(55, [5, 9, 2, 12], plane=30, num_pages=64, dim=5, head_dim=128)
    (12, 7, 7915274)
    """
    if not 0 <= token < 16 * len(table):
        raise IndexError(f"token {token}: expected 0 to {16 * len(table) - 1}")
    page, slot = divmod(token, 16)
    element = ((plane * num_pages + table[page]) * 16 + slot) * head_dim + dim
    return table[page], slot, 2 * element


def _judge(args: Args, expected: tuple[int, int, int], yours: Any) -> Mismatch | None:
    return judge_ints(yours, expected, _PARTS, _show(args), lambda found: _hint(args, expected, found))


def _hint(args: Args, expected: tuple[int, int, int], yours: tuple[int, int, int]) -> str:
    """The wrong answers that people give, computed: first the place in the table, then the address."""
    token, table, plane, num_pages, dim, head_dim = args
    page_id, slot, address = expected
    page = token // 16
    if (yours[1], yours[0]) == (page_id, slot):
        return "In this order: page id, slot, address."
    if yours[:2] != (page_id, slot):
        return first_true(
            (yours[0] in (token % 16, table[min(token % 16, len(table) - 1)]) and yours[1] == page, _SWAPPED),
            (yours[1] == slot + 1, "Slots count from 0."),
            (yours[1] != slot, _SWAPPED),
            (table != _TABLE and yours[0] == dict(enumerate(_TABLE)).get(page), _ARGUMENT),
            (True, f"Ask the table as it stands: its logical page {page} is id {page_id}."),
        )
    slot_bytes = 2 * head_dim

    def in_pool(first: int) -> int:
        """Bytes before slot and dim, where `first` pages come before."""
        return int((first * 16 + slot) * slot_bytes + 2 * dim)

    in_4096_pages = (plane * num_pages + page_id) * 4096 + 2 * dim
    return first_true(
        (yours[2] in (token * 256, token * slot_bytes, in_pool(page), in_pool(plane * num_pages + page)), _CONTIGUOUS),
        (2 * yours[2] == address, "2 bytes an element: yours counts elements."),
        (yours[2] == address - dim, "2 bytes an element, of `dim` too: 2 × dim."),
        (yours[2] == address - 2 * dim, "`dim` elements of the slot come before it: + 2 × dim."),
        (yours[2] in (in_4096_pages + slot * slot_bytes, in_4096_pages + slot * 256), _SMALL_PAGES),
        (yours[2] in _planes_inside(args, page_id, slot), _PLANE),
        (yours[2] in (in_pool(plane * len(table) + page_id), in_pool(plane * 16 + page_id)), _POOL_PAGES),
        (yours[2] == 2 * ((plane * num_pages + page_id) * 16 * head_dim + dim * 16 + slot), _SLOTS_FIRST),
    )


def _planes_inside(args: Args, page_id: int, slot: int) -> tuple[int, ...]:
    """Addresses in pools whose pages, or slots, hold all planes; and in one without planes."""
    _, _, plane, num_pages, dim, head_dim = args
    slots = (
        (page_id * num_pages + plane) * 16 + slot,
        (page_id * 16 + slot) * num_pages + plane,
        (page_id + plane) * 16 + slot,
        page_id * 16 + slot,
    )
    return tuple(2 * (slot * head_dim + dim) for slot in slots)


def _hint_without_value(case: Case, error: BaseException | None) -> str:
    """A token of the table that was refused: by a wrong index, or by a wrong limit."""
    token, table, *_ = case.args
    if not isinstance(error, IndexError):
        return ""
    hint = _SWAPPED if table == _TABLE else _ARGUMENT
    return f"{hint} The {len(table)} pages of the table hold tokens 0 to {16 * len(table) - 1}, and {token} is one."


def _show(args: Args) -> tuple[Row, ...]:
    token, table, plane, num_pages, dim, head_dim = args
    labels = ("token", "table", "plane", "num_pages", "dim", "head_dim")
    values = (number(token), " ".join(map(str, table)), *map(number, (plane, num_pages, dim, head_dim)))
    return (Row("argument", labels), Row("value", values))


_PARTS = ("page id", "slot", "address")
_ARGUMENT = "The table is an argument: ask this one for the id, and its length for the limit."
_SWAPPED = "16 slots a page: token // 16 is the logical page, token % 16 the slot."
_CONTIGUOUS = "That is the cache before paging: here the page id, not the logical page, says where the 16 slots lie."
_SMALL_PAGES = "2 KiB pages there: a page has 16 × head_dim × 2 bytes, and head_dim is 64."
_PLANE = (
    "A plane is contiguous: plane × num_pages pages come before it, then the ids of this plane one after the other."
)
_POOL_PAGES = "A plane has num_pages pages, all of the pool: not 16, and not only those of this table."
_SLOTS_FIRST = "The pool is [plane, page id, slot, dim]: the elements of a slot are neighbours."
_BY_HAND = "((plane × num_pages + id) × 16 + slot) × head_dim + dim elements come before it, 2 bytes each."
_TABLE = list(RUNNING_EXAMPLE.page_table)


def _case(
    name: str,
    token: int,
    plane: int = 0,
    num_pages: int = 16,
    dim: int = 0,
    head_dim: int = 128,
    table: tuple[int, ...] = RUNNING_EXAMPLE.page_table,
) -> Case:
    return Case(name, (token, list(table), plane, num_pages, dim, head_dim), _BY_HAND)


def _outside(name: str, token: int, table: tuple[int, ...], hint: str) -> Case:
    return Case(name, (token, list(table), 0, 16, 0, 128), hint, (), IndexError)


CASES = (
    _case("token 55", 55),
    _case("token 0", 0),
    _case("token 15", 15),
    _case("token 16 in plane 1 of 64 pages", 16, plane=1, num_pages=64),
    _case("token 63 in the last slot", 63, num_pages=64),
    _case("token 20 of a table of 2", 20, table=(3, 14)),
    _case("token 70 of a table of 5", 70, table=(3, 14, 0, 11, 7)),
    _case("head_dim 64", 55, head_dim=64),
    _case("dim 127", 21, dim=127),
    _case("plane 30 of the 7B", 55, plane=30, num_pages=64, dim=5),
    _case("the last plane of the 7B", 30, plane=223, num_pages=2048, dim=64),
    _outside(
        "token −1",
        -1,
        RUNNING_EXAMPLE.page_table,
        "−1 // 16 = −1 and −1 % 16 = 15: Python takes the last slot of the last page. Raise an IndexError.",
    ),
    _outside("token 64", 64, RUNNING_EXAMPLE.page_table, "4 pages hold tokens 0 to 63: raise an IndexError."),
    _outside("token 32 of a table of 2", 32, (3, 14), "2 pages hold tokens 0 to 31: raise an IndexError."),
)


EXERCISE = Exercise(
    lab="04_kv_pages",
    solution=locate,
    cases=CASES,
    judge=_judge,
    show=_show,
    first_hints=(
        "`divmod(token, 16)` gives two of the three numbers that you need. Which one goes through the table?",
        "((plane × num_pages + id) × 16 + slot) × head_dim × 2 + 2 × dim. Refuse a token that is not there first.",
    ),
    hint_without_value=_hint_without_value,
)
