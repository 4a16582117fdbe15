"""Tests of the benchmark harness: what it publishes, and that it refuses to compare different answers."""
