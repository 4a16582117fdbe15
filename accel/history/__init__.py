"""A stream's history: its segments at any time, and how they change.

`rules` makes all decisions, without I/O; `records` defines the bytes of records; `store` keeps histories in tables.
"""
