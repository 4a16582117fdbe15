"""Filters over stream ids: one filter, many filters probed at once, and their stored forms. Pure: no I/O."""
