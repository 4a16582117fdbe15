"""The read path: which objects hold a stream's offsets, and the records in them.

Out of it come the accelerators (`accelerator`, `async_accelerator`), what they are asked and answer (`answer`), why
(`explain`), their counts (`stats`), and a wrapper for a lookup that exists already (`shadow`). What decides is without
I/O: `search` and `reading` are generators of `steps`; the `engine` starts what they ask for, and keeps what came of it
in the index cache and the hints.
"""
