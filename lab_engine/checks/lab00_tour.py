"""The exercises of lab 00, in the order of its notebook."""

from lab_engine.checks import lab00_bytes, lab00_greedy

EXERCISES = (lab00_greedy.EXERCISE, lab00_bytes.EXERCISE)
