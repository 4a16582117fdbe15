"""Tests of what runs on Spark: one local session for all of them, and moto's server for its tasks to read from."""
