"""A stream's history: its segments at any time, and how they change.

`rules` decides and touches nothing, `records` has the bytes of what is stored, `store` keeps histories in tables.
"""
