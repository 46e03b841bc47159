"""The exercises of lab 05, in the order of its notebook: online_softmax_update, attend_page, combine, bug_clinic."""

from lab_engine.checks import lab05_clinic, lab05_combine, lab05_page, lab05_update

EXERCISES = (lab05_update.EXERCISE, lab05_page.EXERCISE, lab05_combine.EXERCISE, lab05_clinic.EXERCISE)
