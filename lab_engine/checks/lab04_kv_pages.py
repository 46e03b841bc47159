"""The exercises of lab 04, in the order of its notebook: locate, pages_and_tail, append."""

from lab_engine.checks import lab04_append, lab04_locate, lab04_tail

EXERCISES = (lab04_locate.EXERCISE, lab04_tail.EXERCISE, lab04_append.EXERCISE)
