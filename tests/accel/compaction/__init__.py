"""Tests of compaction by object count."""
