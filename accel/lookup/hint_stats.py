"""What became of the hints: counts for `stats()`, by kind of trouble where there was some."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from accel.errors import AccelError
from loaders.hints import HintProblem


@dataclass(frozen=True, slots=True)
class HintStats:
    """How hints fared since the start, and what of them is in memory now.

    Args:
        roots: roots of snapshots in memory, now.
        root_bytes: their memory, now.
        entry_bytes: memory of snapshot entries, now.
        requests: requests for roots, entries and packs.
        bytes_read: bytes of these.
        roots_asked: times that a root was asked for.
        entries_asked: times that a stream's entries were asked for.
        entries: entries that came of it.
        spans_read: reads of data that went straight to an object's blocks, as a snapshot said where.
        spans_wrong: of these, the bytes were not what the snapshot said; the object's index was opened instead.
        packs: filter packs loaded.
        filters: filters that came of it.
        filters_bad: filters of packs that were left out, as they were damaged.
        missing, corrupt, foreign, mixed, stale: what was wrong with hints that could not be used; docs/hints.md.
        unreachable: the store failed when it was asked for a hint.
    """

    roots: int = 0
    root_bytes: int = 0
    entry_bytes: int = 0
    requests: int = 0
    bytes_read: int = 0
    roots_asked: int = 0
    entries_asked: int = 0
    entries: int = 0
    spans_read: int = 0
    spans_wrong: int = 0
    packs: int = 0
    filters: int = 0
    filters_bad: int = 0
    missing: int = 0
    corrupt: int = 0
    foreign: int = 0
    mixed: int = 0
    stale: int = 0
    unreachable: int = 0

    @property
    def nbytes(self) -> int:
        """Memory of what is kept."""
        return self.root_bytes + self.entry_bytes


class HintCounters:
    """Adds up. Threads: any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(HintStats.__dataclass_fields__, 0)

    def add(self, **counts: int) -> None:
        """Count so many of each."""
        with self._lock:
            for name, count in counts.items():
                self._counts[name] += count

    def met(self, problem: HintProblem | AccelError) -> None:
        """A hint could not be used."""
        self.add(**{trouble_of(problem): 1})

    def snapshot(self, **now: int) -> HintStats:
        """The counts, and what is in memory now."""
        with self._lock:
            return HintStats(**(self._counts | now))


def trouble_of(problem: HintProblem | AccelError) -> str:
    """What counters call a problem."""
    return str(problem.kind) if isinstance(problem, HintProblem) else "unreachable"
