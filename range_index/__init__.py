"""Sorted runs and the indexes made of them: stream offsets -> objects. Pure: no I/O, no clock, no randomness."""
