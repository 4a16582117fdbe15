"""Tests of reader groups: how readers share a stream's segments, and the table in which they agree on it."""
