"""The exercises of lab 08, in the order of its notebook: a quantization, a sampler, an attention variant."""

from lab_engine.checks import lab08_int8, lab08_top_p, lab08_visible

EXERCISES = (lab08_int8.EXERCISE, lab08_top_p.EXERCISE, lab08_visible.EXERCISE)
