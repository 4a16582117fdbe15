"""Tests of a stream's history: records, cuts, scales, commits, truncation and retention, without any store."""
