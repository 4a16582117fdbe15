"""Tests of `accel.streams.connection`."""
