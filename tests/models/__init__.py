"""Naive models that the real thing is compared with: slow, short, and written from the rules alone."""
