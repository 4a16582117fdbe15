"""Tests of the metadata as tables of Arrow."""
