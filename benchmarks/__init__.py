"""Benchmarks: both sides of a ratio in one run, interleaved. `python -m benchmarks [NAME ...] [--json]`."""
