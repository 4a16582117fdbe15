"""Tests of the lookup, the images and the accelerators."""
