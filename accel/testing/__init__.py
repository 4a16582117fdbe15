"""Doubles for tests of what uses Accel: stores that fail, crash and are slow, and segments in memory.

    from accel.testing import Crash, CrashStore, Fault, FaultStore, LatencyStore, MemorySegments, VirtualClock

`loaders.store.MemoryStore` is the store that they go around as a rule. docs/how-to/testing.md has examples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from accel.testing.stores import Crash, CrashStore, Fault, FaultStore, LatencyModel, LatencyStore, VirtualClock

if TYPE_CHECKING:
    from accel.testing.segments import MemorySegments

__all__ = [
    "Crash",
    "CrashStore",
    "Fault",
    "FaultStore",
    "LatencyModel",
    "LatencyStore",
    "MemorySegments",
    "VirtualClock",
]


def __getattr__(name: str) -> Any:
    # Segments load the store of histories, which the stores alone, and so the command line, do without.
    if name == "MemorySegments":
        from accel.testing.segments import MemorySegments  # noqa: PLC0415 - when it is asked for

        return MemorySegments
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
