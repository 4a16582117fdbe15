"""Tests of readers: what they give, in which order, and where they stand."""
