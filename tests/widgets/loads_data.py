"""The data of the loads' JavaScript tests; `python -m tests.widgets.loads_data` writes it after a change."""

import json
from pathlib import Path

from widgets.gemv_loads import WarpLoads
from widgets.gemv_loads_data import KS, SHIFTS, loads_data

DATA_FILE = Path(__file__).parent / "js" / "gemv_loads.json"


def every_state():
    """One playground at every preset, then at first and last iterations, lanes and warps of every pattern."""
    loads = WarpLoads()
    for name in loads.presets:
        loads.preset = name
        yield loads
    for pattern in loads_data()["patterns"]:
        for k in KS:
            count = WarpLoads(pattern=pattern, k=k).step_count()
            for shift in SHIFTS:
                for step in sorted({0, count // 2, count - 1}):
                    lane, warp = (0, 31, 11, 12)[step % 4], (step + shift + k) % 7
                    yield WarpLoads(pattern=pattern, k=k, shift=shift, warp=warp, lane=lane, step=step)


def words_of(loads):
    """What Python says and counts in a state."""
    scene = loads.scene
    return {
        "code": loads.code,
        "sentence": loads.sentence,
        "requests": [
            {
                "loads": [
                    [one.lane, one.row, one.start, one.size, one.offset, one.group, one.weight] for one in r.loads
                ],
                "sectors": list(r.sectors),
                "words": scene.request_words(r),
            }
            for r in scene.trace.requests
        ],
        "counts": [scene.trace.used, scene.trace.moved],
        "words": [scene.title(), scene.pattern_words(), scene.bar_words(), *scene.row_words(), scene.total_words()],
        "producer": scene.producer_words(),
        "formulas": scene.formulas(),
    }


def javascript_data():
    states = [[{name: getattr(one, name) for name in one.fields}, words_of(one)] for one in every_state()]
    return {"trace": WarpLoads()._trace, "spec": WarpLoads()._spec, "states": states}


if __name__ == "__main__":
    DATA_FILE.write_text(json.dumps(javascript_data(), ensure_ascii=False) + "\n", encoding="utf-8")
