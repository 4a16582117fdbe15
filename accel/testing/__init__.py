"""Test doubles for programs that use Accel: stores that fail, lie, crash or are slow; segments in memory.

    from accel.testing import (
        ClockStore, Crash, CrashStore, Fault, FaultStore, LatencyStore, Lie, LyingStore, MemorySegments, VirtualClock
    )

They usually wrap a `loaders.store.MemoryStore`. docs/how-to/testing.md has examples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from accel.testing.lying import Lie, LyingStore
from accel.testing.stores import (
    ClockStore,
    Crash,
    CrashStore,
    Fault,
    FaultStore,
    LatencyModel,
    LatencyStore,
    VirtualClock,
)

if TYPE_CHECKING:
    from accel.testing.segments import MemorySegments

__all__ = [
    "ClockStore",
    "Crash",
    "CrashStore",
    "Fault",
    "FaultStore",
    "LatencyModel",
    "LatencyStore",
    "Lie",
    "LyingStore",
    "MemorySegments",
    "VirtualClock",
]


def __getattr__(name: str) -> Any:
    # Segments load the store of histories, which the test stores, and so the command line, do not need.
    if name == "MemorySegments":
        from accel.testing.segments import MemorySegments  # noqa: PLC0415 - loaded on first use

        return MemorySegments
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
