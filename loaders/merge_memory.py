"""Gives free memory back to the system between two bands of a merge.

What a band has read was allocated by the threads that read it, and glibc keeps freed memory for each thread apart: what
one has free is no use to another, so a process would grow by the band size a thread. Asking it to trim costs a few
milliseconds, for tens of mebibytes that were copied in between.
"""

from __future__ import annotations

import ctypes


def release_free_memory() -> None:
    """Ask the C library to give back what it has free; does nothing where it has no such function."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
