"""Doubles for tests of what uses Accel: stores that fail, crash and are slow, and segments in memory.

    from accel.testing import Crash, CrashStore, Fault, FaultStore, LatencyStore, MemorySegments, VirtualClock

`loaders.store.MemoryStore` is the store that they go around as a rule. docs/testing.md has examples.
"""

from __future__ import annotations

from accel.testing.segments import MemorySegments
from accel.testing.stores import Crash, CrashStore, Fault, FaultStore, LatencyModel, LatencyStore, VirtualClock

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
