"""Tests of bloom: what filters promise, and that pybloom_live and a naive model agree."""
