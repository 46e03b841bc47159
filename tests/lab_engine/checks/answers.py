"""What a learner may hand to a checker that is no answer at all, and what the tests of its answers share."""

import numpy as np
import torch

SHUFFLED = (0, 2, 4, 6, 1, 3, 5, 7)
INVERSE = (0, 4, 1, 5, 2, 6, 3, 7)
"""value_shuffle and its inverse, written down by hand."""


class Hostile:
    """Refuses to be compared, printed, counted or asked for anything."""

    def _refuse(self, *_):
        raise RuntimeError("leave me alone")

    __eq__ = __ne__ = __lt__ = __len__ = __iter__ = __bool__ = __repr__ = __str__ = __getitem__ = __float__ = _refuse
    __hash__ = None


ODD_VALUES = {
    "an int": 3,
    "a bool": True,
    "a NaN": float("nan"),
    "a text": "text",
    "an empty list": [],
    "an empty tuple": (),
    "a pair of None": (None, None),
    "a pair of texts": ("a", "b"),
    "a nested list": [[1, 2], [3]],
    "a set": {1},
    "a dict": {"a": 1},
    "empty bytes": b"",
    "an array": np.zeros((2, 3), np.float64),
    "an array of objects": np.array([None, "a"], dtype=object),
    "a scalar tensor": torch.tensor(1.0),
    "an empty tensor": torch.empty(0, 3, dtype=torch.int32),
    "a tensor of NaN": torch.full((1, 128), torch.nan),
    "a tensor without data": torch.empty((1, 1), dtype=torch.int32, device="meta"),
    "a sparse tensor": torch.eye(2).to_sparse(),
    "a pair without data": (
        torch.empty((1, 128), dtype=torch.int8, device="meta"),
        torch.empty((1, 1), dtype=torch.float16, device="meta"),
    ),
    "a class": int,
    "an ellipsis": ...,
    "a hostile object": Hostile(),
    "a pair with a hostile object": (1, Hostile()),
    "a list of hostile objects": [Hostile()],
}


def odd_functions():
    """(name, function of any arguments): one for each odd value, and some that do odd things."""

    def returns(value):
        def function(*_args):
            return [value][0]  # no bare constant, which would be a stub

        return function

    def generator(*_args):
        yield 1

    def leaves(*_args):
        raise SystemExit(3)

    def asserts(*_args):
        raise AssertionError

    async def coroutine(*_args):
        return 1

    def forgets(*args):
        args = list(args)

    odd = {name: returns(value) for name, value in ODD_VALUES.items()}
    return {**odd, "a generator": generator, "leaves": leaves, "asserts": asserts, "forgets to return": forgets}


def names(exercise):
    """The names of all its cases."""
    return {case.name for case in exercise.cases}
