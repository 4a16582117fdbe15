"""The tests of Accel."""
