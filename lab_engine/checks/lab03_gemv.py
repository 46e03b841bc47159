"""The exercises of lab 03, in the order of its notebook: find a lane's bytes, unpack a word, predict a time."""

from lab_engine.checks import lab03_dequantize, lab03_lane_load, lab03_seconds

EXERCISES = (lab03_lane_load.EXERCISE, lab03_dequantize.EXERCISE, lab03_seconds.EXERCISE)
