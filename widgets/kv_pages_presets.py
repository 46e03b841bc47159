"""The histories that the page playground offers, each with its surprise."""

from widgets.playground import Preset


def _preset(name: str, ask: str, actions: str, step: int, order: str = "running") -> Preset:
    """A history from `step` on, with the last action's sequence and its newest token chosen."""
    return Preset(name, ask, {"order": order, "actions": actions, "sequence": "", "token": -1, "step": step})


def kv_presets() -> list[Preset]:
    """One more token, the running example, a fork, a full pool, gaps, a shared prefix."""
    filled = "".join(f"; new; append {name} 32" for name in "ABCDEFGH").removeprefix("; ")
    forks = "; fork A" * 3 + "".join(f"; append {name} 16" for name in "ABCD")
    return [
        _preset(
            "15 → 16 → 17",
            "Step right twice: at which token does a second id go, and how many slots are empty just then?",
            "new; append A 15; append A; append A",
            2,
        ),
        _preset(
            "running sequence",
            "56 tokens on ids 5, 9, 2, 12: neighbours in the table, strangers in memory. Only the tail has empty "
            "slots, at any length.",
            "new; append A 56",
            2,
        ),
        _preset(
            "two forks at 20",
            "B is a fork of A: two ids, each held twice, nothing copied. Step right: the first write copies page 1, "
            "the second nothing.",
            "new; append A 20; fork A; append B; append A",
            3,
        ),
        _preset(
            "full pool",
            "No id is free, and D holds 15 tokens. Step right twice: the 16th fits all the same, the 17th is refused.",
            "new; append A 80; new; append B 96; new; append C 64; new; append D 15; append D; append D",
            8,
        ),
        _preset(
            "fragmented",
            "Every other of 8 sequences went: no gap over 2 pages, no room for 100 tokens in one piece. Step right "
            "twice: they fit.",
            f"{filled}; free B; free D; free F; free H; new; append B 100",
            20,
            "ascending",
        ),
        _preset(
            "shared prefix of 40",
            "Four sequences begin alike: 3 ids, each held four times. Play: 16 tokens later it is 10 ids, not 16; "
            "whole pages stay shared.",
            f"new; append A 40{forks}",
            5,
        ),
    ]
