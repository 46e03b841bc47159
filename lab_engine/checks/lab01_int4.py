"""The exercises of lab 01, in the order of its notebook: quantize, pack, shuffle."""

from lab_engine.checks import lab01_pack, lab01_quantize, lab01_shuffle

EXERCISES = (lab01_quantize.EXERCISE, lab01_pack.EXERCISE, lab01_shuffle.EXERCISE)
