"""Tests of `accel.hint_building`."""
