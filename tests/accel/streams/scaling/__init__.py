"""Tests of scaling by load."""
