"""A stream's history: its segments at any time, and how they change.

Pure rules; no store, no clock. Records (`records`, `history_chunk`, `segments`, `transactions`, `configuration`,
`states`) are immutable and checked when they are made. Rules take records and give those to write.
"""
