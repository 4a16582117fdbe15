"""The read path: which objects hold a stream's offsets, and the records in them.

The package contains the accelerators (`accelerator`, `async_accelerator`), requests and answers (`answer`),
explanations (`explain`), counts (`stats`), and a wrapper for an existing lookup (`shadow`). Decisions are made without
I/O: `search` and `reading` are generators of `search_requests`; the `engine` starts the requests of a step, and keeps
their results in the index cache and the hints.
"""
