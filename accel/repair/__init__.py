"""Repair of what is stored: damaged and missing records are rebuilt from others.

    streams            the records of one stream: `repair_stream`
    epochs             its epochs and the index of their times
    findings           wrong records, and the outcome of each: the same for all that is repaired

Only the command line imports this room.
"""
