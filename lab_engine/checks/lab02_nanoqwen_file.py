"""The exercises of lab 02, in the order of its notebook: parse the header, find a row, verify, damage."""

from lab_engine.checks import lab02_damage, lab02_header, lab02_rows, lab02_sections

EXERCISES = (lab02_header.EXERCISE, lab02_rows.EXERCISE, lab02_sections.EXERCISE, lab02_damage.EXERCISE)
