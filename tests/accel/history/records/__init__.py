"""Tests of the bytes of stream histories."""
