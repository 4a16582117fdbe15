"""Values that were read before: final ones are never asked for again, the others cost no body while they last.

A final value cannot change, so it is given out without a request. Any other is asked for on the condition that it has
changed; the store then answers 304 without a body, and the value from here is the one. What is deleted is not kept.

An entry leaves before every write of its key and after every failed one, and a read that was under way meanwhile does
not bring it back: each read takes a ticket first, and what it found is kept only if the ticket still holds.

Entries are known by table, the table's own id and key. The id is the nonce of the table's marker, so that a table that
was dropped and made again has nothing in common with the one before.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import TypeAlias

from loaders.counting import CacheStats, CountedCache
from loaders.lifetime import PerProcess
from loaders.versions import Entry

CacheKey: TypeAlias = tuple[str, object, str]
"""Table, its id, key."""

ENTRY_OVERHEAD_BYTES = 850
"""What an entry takes besides its value and its names: measured with tracemalloc, rounded up."""

_STRIPES = 256


@dataclass(frozen=True, slots=True)
class Ticket:
    """Proof of when a read began."""

    stripe: int
    forgotten: int


class ValueCache:
    """A byte-bounded cache of values, shared by any number of tables; least recently used ones go. Threads: any.

    Args:
        size_bytes_max: bound on what all entries take, their overhead included.
    """

    def __init__(self, size_bytes_max: int) -> None:
        if size_bytes_max < 0:
            raise ValueError(f"size_bytes_max is 0 or more: {size_bytes_max}")
        self.size_bytes_max = size_bytes_max
        self._state = PerProcess("values of tables", lambda: _State(size_bytes_max))

    def get(self, key: CacheKey) -> Entry | None:
        """The entry that is kept, which may be out of date unless it is final."""
        with (state := self._state()).lock:
            kept = state.entries.found(state.entries.get(key))
        return None if kept is None else kept.entry

    def ticket(self, key: CacheKey) -> Ticket:
        """To be taken before the key is read."""
        stripe = hash(key) % _STRIPES
        with (state := self._state()).lock:
            return Ticket(stripe, state.forgotten[stripe])

    def keep(self, key: CacheKey, entry: Entry, ticket: Ticket) -> None:
        """Keep what was read or written, unless the key was forgotten since the ticket was taken."""
        size_bytes = ENTRY_OVERHEAD_BYTES + len(entry.value) + len(key[0]) + len(key[2])
        with (state := self._state()).lock:
            if state.forgotten[ticket.stripe] != ticket.forgotten:
                return
            if size_bytes <= self.size_bytes_max:
                state.entries[key] = _Kept(entry, size_bytes)
            else:
                state.entries.pop(key, None)

    def forget(self, key: CacheKey) -> None:
        """Drop an entry, and whatever a read that is under way would bring back."""
        with (state := self._state()).lock:
            state.entries.pop(key, None)
            state.forgotten[hash(key) % _STRIPES] += 1

    @property
    def size_bytes(self) -> int:
        """What all entries take."""
        with (state := self._state()).lock:
            return int(state.entries.currsize)

    def stats(self) -> CacheStats:
        """What is kept now, and how the cache fared. A hit may be asked for again, if its value is not final."""
        with (state := self._state()).lock:
            return state.entries.stats()

    def __len__(self) -> int:
        """How many entries there are."""
        with (state := self._state()).lock:
            return len(state.entries)


class _State:
    """What one process keeps. All of it is touched within the lock."""

    def __init__(self, size_bytes_max: int) -> None:
        self.lock = Lock()
        self.entries: CountedCache[CacheKey, _Kept] = CountedCache(size_bytes_max, lambda kept: kept.size_bytes)
        self.forgotten = [0] * _STRIPES


@dataclass(frozen=True, slots=True)
class _Kept:
    entry: Entry
    size_bytes: int
