"""Tests of maintenance by itself."""
