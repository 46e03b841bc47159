"""FP16 against INT8 in words and letters: names, the state sentence, a small picture."""

from lab_engine.gemv_int8 import FP16, Int8Trace, StageTimes
from widgets.words import percent, significant

NAMES = {
    "fp16": ("FP16", "rows: LOP3, HFMA2"),
    "dp4a_separate": ("separate", "a kernel makes x INT8"),
    "dp4a_fused": ("fused", "every block does that"),
    "dp4a_limbs": ("limbs", "x = 256 · high + low"),
}
"""Variant -> its name in the picture, and a few words below it."""
PARTS = {"launch": "launch", "quantize": "quantizing x", "read": "reading", "unpack": "unpacking, multiplying"}
MOST = 6.0
"""µs that a launch costs at the right end of the axis."""
EVEN = 0.0005
_BAR = 44
_LETTERS = {"launch": "L", "quantize": "q", "read": "r", "unpack": "u"}


def segments(stage: StageTimes, name: str, launch_us: float) -> list[tuple[str, float]]:
    """(part, µs) in the order of a bar: of two kernels a product, the quantizing one comes first, after its launch."""
    work, once = stage.work[name], ("launch", stage.products * launch_us)
    quantize, rest = ("quantize", work.quantize), [("read", work.read), ("unpack", work.unpack)]
    two = work.launches > stage.products
    return [once, quantize, once, *rest] if two else [once, quantize, *rest]


def longest(stage: StageTimes) -> float:
    """µs of the slowest variant where a launch costs most: the scale of the bars, whatever a launch costs."""
    return max(work.time(MOST) for work in stage.work.values())


def against_words(stage: StageTimes, name: str, launch_us: float) -> str:
    """`−9.0 %`: how much longer than FP16 a variant takes, `even` below 0.05 %; "" of FP16 itself."""
    if name == FP16:
        return ""
    more = stage.work[name].time(launch_us) / stage.work[FP16].time(launch_us) - 1
    return "even" if abs(more) < EVEN else f"{'+' if more > 0 else '−'}{percent(abs(more), 1)}"


def crossover_words(stage: StageTimes) -> str:
    """`separate wins below 0.940 µs`: the cost of a launch at which it is even with FP16."""
    if stage.crossover <= 0:
        return "separate never wins"
    return f"separate wins below {significant(stage.crossover)} µs"


def int8_sentence(trace: Int8Trace, stage_name: str, launch_us: float) -> str:
    """`down · launch 1.10 µs · FP16 12.5 µs, separate … · fastest: fused · separate wins below …`."""
    stage = trace.stages[stage_name]
    times = [f"{NAMES[name][0]} {significant(work.time(launch_us))}" for name, work in stage.work.items()]
    times[0] += " µs"
    fastest = NAMES[stage.fastest(launch_us)][0]
    return " · ".join(
        [
            stage_name,
            f"launch {significant(launch_us)} µs",
            ", ".join(times),
            f"fastest: {fastest}",
            crossover_words(stage),
        ]
    )


def int8_text(trace: Int8Trace, stage_name: str, launch_us: float) -> str:
    """A bar a variant, its time, how it compares with FP16, and its error; the named costs of a launch."""
    stage, fastest = trace.stages[stage_name], trace.stages[stage_name].fastest(launch_us)
    scale = _BAR / longest(stage)
    head = f"{'':<9}  {'µs':>6} {'to FP16':>9} {'error':>9}  L launch, q quantizing x, r reading, u unpacking"
    lines = [head]
    for name, work in stage.work.items():
        bar = "".join(_LETTERS[part] * round(us * scale) for part, us in segments(stage, name, launch_us))
        numbers = f"{significant(work.time(launch_us)):>6} {against_words(stage, name, launch_us):>9}"
        mark = "*" if name == fastest else " "
        lines.append(f"{NAMES[name][0]:<9}{mark} {numbers} {significant(stage.errors[name], 2):>9}  {bar}")
    costs = ", ".join(f"{name} {significant(us)}" for name, us in trace.launches.items())
    return "\n".join([*lines, "", f"{crossover_words(stage)} a launch, against FP16; a launch costs: {costs} µs"])
