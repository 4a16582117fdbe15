"""A cache of values of tables: final values are never read again, unchanged values are read without their body.

A final value cannot change, so it is returned without a request. Other values are requested on the condition that they
have changed; if not, the store answers 304 without a body, and the kept value is returned. Deleted values are not kept.

An entry is dropped before every write of its key and after every failed write, and a read that was under way meanwhile
does not restore it: each read takes a ticket first, and its result is kept only if the ticket is still valid.

Entries are identified by table, the table's id and key. The id is the nonce of the table's marker, so that a table that
was dropped and created again shares no entry with the earlier table.
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
"""Memory of an entry besides its value and its names: measured with tracemalloc, rounded up."""

_STRIPES = 256


@dataclass(frozen=True, slots=True)
class Ticket:
    """The state of a key's entry when a read began."""

    stripe: int
    forgotten: int


class ValueCache:
    """A byte-bounded cache of values, shared by any number of tables; evicts the least recently used. Threads: any.

    Args:
        size_bytes_max: bound on the memory of all entries, their overhead included.
    """

    def __init__(self, size_bytes_max: int) -> None:
        if size_bytes_max < 0:
            raise ValueError(f"expected size_bytes_max of at least 0, found {size_bytes_max}")
        self.size_bytes_max = size_bytes_max
        self._state = PerProcess("values of tables", lambda: _State(size_bytes_max))

    def get(self, key: CacheKey) -> Entry | None:
        """The kept entry, which may be out of date unless it is final."""
        with (state := self._state()).lock:
            kept = state.entries.found(state.entries.get(key))
        return None if kept is None else kept.entry

    def ticket(self, key: CacheKey) -> Ticket:
        """Return a ticket; the caller takes it before it reads the key."""
        stripe = hash(key) % _STRIPES
        with (state := self._state()).lock:
            return Ticket(stripe, state.forgotten[stripe])

    def keep(self, key: CacheKey, entry: Entry, ticket: Ticket) -> None:
        """Keep a value that was read or written, unless the key was forgotten since the ticket was taken."""
        size_bytes = ENTRY_OVERHEAD_BYTES + len(entry.value) + len(key[0]) + len(key[2])
        with (state := self._state()).lock:
            if state.forgotten[ticket.stripe] != ticket.forgotten:
                return
            if size_bytes <= self.size_bytes_max:
                state.entries[key] = _Kept(entry, size_bytes)
            else:
                state.entries.pop(key, None)

    def forget(self, key: CacheKey) -> None:
        """Drop an entry, and the result of a read that is under way."""
        with (state := self._state()).lock:
            state.entries.pop(key, None)
            state.forgotten[hash(key) % _STRIPES] += 1

    @property
    def size_bytes(self) -> int:
        """Memory of all entries."""
        with (state := self._state()).lock:
            return int(state.entries.currsize)

    def stats(self) -> CacheStats:
        """Sizes and counts now. A hit may cost a request, if its value is not final."""
        with (state := self._state()).lock:
            return state.entries.stats()

    def __len__(self) -> int:
        """The number of entries."""
        with (state := self._state()).lock:
            return len(state.entries)


class _State:
    """The entries of one process; `lock` guards all attributes."""

    def __init__(self, size_bytes_max: int) -> None:
        self.lock = Lock()
        self.entries: CountedCache[CacheKey, _Kept] = CountedCache(size_bytes_max, lambda kept: kept.size_bytes)
        self.forgotten = [0] * _STRIPES


@dataclass(frozen=True, slots=True)
class _Kept:
    entry: Entry
    size_bytes: int
