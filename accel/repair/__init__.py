"""Repair of what is stored: damaged and missing records are rebuilt from others. Only the command line imports it.

streams            the records of one stream: `repair_stream`
epochs             its epochs and the index of their times; findings, and what became of them
"""
