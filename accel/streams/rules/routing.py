"""From an event to a segment: the position of its key, the segment that holds it, the events that wait for appends.

    key            b"order-17"
    position       0.73...             64 bits of BLAKE2b, the upper 53 of them as a fraction
    segment        1@0 [0.5, 1.0)      the last one that begins at or before it

A key has the same position for ever, in every process and every stream, so its records stay in order as the segments
change. Segments of one epoch share out all keys from 0 up to 1, none twice. Single writes wait by segment; events of an
open transaction wait by transaction, with the positions of their keys, because the segments may change before it is
committed.

No clock, no store. Source: docs/history.md, "Words".
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from typing import Final
from uuid import UUID

import numpy as np
from numpy.typing import ArrayLike

from accel.errors import InvalidArgument
from accel.history.rules.segments import Keys, Segments
from accel.history.rules.values import Integers
from accel.streams.rules.transaction_data import EVENT_OVERHEAD_BYTES, TransactionEvents
from accel.streams.settings import StreamWriterSettings

HASH_SIZE_BYTES: Final = 8
POSITION_BITS: Final = 53
"""What a 64-bit float holds exactly, so that no position is rounded up to 1."""


def key_position(key: bytes) -> float:
    """Where a key lies, from 0 up to, but not including, 1.

    >>> key_position(b"order-17") == key_position(b"order-17")
    True
    """
    hashed = int.from_bytes(blake2b(key, digest_size=HASH_SIZE_BYTES).digest(), "big")
    return float((hashed >> (8 * HASH_SIZE_BYTES - POSITION_BITS)) / (1 << POSITION_BITS))


def key_positions(keys: Iterable[bytes]) -> Keys:
    """Where keys lie, in their order."""
    return np.fromiter(map(key_position, keys), dtype=np.float64)


class KeyRouter:
    """Finds the segments of positions. Threads: immutable, any.

    Args:
        segments: of one epoch, in any order.

    Raises:
        ValueError: they do not share out all keys.
    """

    def __init__(self, segments: Segments) -> None:
        order = np.argsort(segments.key_starts, kind="stable")
        self.segments = segments.where(order)
        starts, ends = self.segments.key_starts, self.segments.key_ends
        if not len(starts) or starts[0] != 0 or ends[-1] != 1 or (starts[1:] != ends[:-1]).any():
            raise ValueError(f"expected segments that share out the keys from 0 to 1, found {segments}")
        self._starts: list[float] = starts.tolist()
        self._ids: list[int] = self.segments.ids.tolist()

    def segment_at(self, position: float) -> int:
        """The id of the segment that holds a position. O(log n)."""
        return self._ids[bisect_right(self._starts, position) - 1]

    def route(self, positions: ArrayLike) -> Integers:
        """The ids of the segments that hold positions, in their order. O(m log n)."""
        indexes: Integers = np.searchsorted(self.segments.key_starts, np.asarray(positions), side="right") - 1
        return self.segments.ids[indexes]


def route(segments: Segments, positions: ArrayLike) -> Integers:
    """The ids of the segments that hold positions, in their order; see `KeyRouter`."""
    return KeyRouter(segments).route(positions)


def grouped(ids: Integers) -> Iterator[tuple[int, list[int]]]:
    """Each id with the places where it stands, both ascending. O(n log n)."""
    order = np.argsort(ids, kind="stable")
    borders = np.flatnonzero(np.diff(ids[order])) + 1
    for places in np.split(order, borders) if len(ids) else ():
        yield int(ids[places[0]]), places.tolist()


# Events that wait

OVERHEAD_BYTES: Final = EVENT_OVERHEAD_BYTES
"""What an event counts besides its own bytes, so that events without any are bounded as well."""


@dataclass(slots=True, eq=False)
class Events:
    """Events in the order of writing.

    Args:
        positions: of their keys.
        payloads: what the producer sent, as many.
        size_bytes: of all of them.
    """

    positions: list[float] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    size_bytes: int = 0

    def extend(self, positions: Iterable[float], payloads: Sequence[bytes]) -> int:
        """Add events; gives how many bytes these are."""
        self.positions.extend(positions)
        self.payloads.extend(payloads)
        added = size_bytes_of(payloads)
        self.size_bytes += added
        return added

    def drop(self, count: int) -> int:
        """Let the first ones go; gives how many bytes these were."""
        dropped = size_bytes_of(islice(self.payloads, count))
        del self.positions[:count], self.payloads[:count]
        self.size_bytes -= dropped
        return dropped


@dataclass(slots=True, eq=False)
class _Waiting(Events):
    since: float = 0.0


class PendingEvents:
    """Events that wait to be appended, by segment.

    Args:
        settings: when they are due.
    """

    def __init__(self, settings: StreamWriterSettings) -> None:
        self._settings = settings
        self._waiting: dict[int, _Waiting] = {}  # the first of them waits the longest
        self._due: dict[int, None] = {}
        self.size_bytes = 0

    def __len__(self) -> int:
        return sum(len(events.payloads) for events in self._waiting.values())

    def __contains__(self, segment_id: int) -> bool:
        return segment_id in self._waiting

    def add(
        self,
        segment_id: int,
        positions: Sequence[float],
        payloads: Sequence[bytes],
        now: float,
        *,
        is_due: bool = False,
    ) -> None:
        """Add events of a segment.

        Args:
            segment_id: the segment.
            positions: of their keys.
            payloads: of each.
            now: seconds from any start.
            is_due: whether they are to be appended without waiting for more.
        """
        waiting = self._waiting.setdefault(segment_id, _Waiting(since=now))
        self.size_bytes += waiting.extend(positions, payloads)
        is_full = len(waiting.payloads) >= self._settings.batch_events_max
        if is_due or is_full or waiting.size_bytes >= self._settings.batch_bytes_max:
            self._due[segment_id] = None

    def first_due(self, now: float) -> int | None:
        """A segment whose events are to be appended now; None if there is none."""
        for segment_id in self._due:
            return segment_id
        for segment_id, waiting in self._waiting.items():
            is_old = now - waiting.since >= self._settings.batch_age_seconds
            return segment_id if is_old or self.size_bytes >= self._settings.buffer_bytes_max else None
        return None

    def first(self) -> int | None:
        """The segment whose events wait the longest."""
        return next(iter(self._waiting), None)

    def head(self, segment_id: int) -> list[bytes]:
        """The next events of a segment that make one append."""
        chosen: list[bytes] = []
        room_bytes = self._settings.batch_bytes_max
        for payload in islice(self._waiting[segment_id].payloads, self._settings.batch_events_max):
            room_bytes -= len(payload) + OVERHEAD_BYTES
            if chosen and room_bytes < 0:
                break
            chosen.append(payload)
        return chosen

    def drop(self, segment_id: int, count: int) -> None:
        """The first events of a segment are appended."""
        waiting = self._waiting[segment_id]
        self.size_bytes -= waiting.drop(count)
        if not waiting.payloads:
            self.take(segment_id)

    def take(self, segment_id: int) -> Events:
        """All events of a segment; they are not here any more."""
        self._due.pop(segment_id, None)
        taken = self._waiting.pop(segment_id)
        self.size_bytes -= taken.size_bytes
        return taken

    def segments(self) -> list[int]:
        """The segments whose events wait."""
        return list(self._waiting)


class OpenTransactions:
    """Events of transactions that are not ended, as far as one writer wrote them.

    Args:
        size_bytes_max: what all of them may hold together.
    """

    def __init__(self, size_bytes_max: int) -> None:
        self._size_bytes_max = size_bytes_max
        self._events: dict[UUID, Events] = {}
        self._kept: set[UUID] = set()
        self.size_bytes = 0

    def __contains__(self, transaction: UUID) -> bool:
        return transaction in self._events

    def begin(self, transaction: UUID) -> None:
        """A transaction was begun."""
        self._events[transaction] = Events()

    def add(self, transaction: UUID, positions: Sequence[float], payloads: Sequence[bytes]) -> None:
        """Add events to a transaction.

        Raises:
            InvalidArgument: it is not open here, or there is no room for them; nothing was added.
        """
        events = self._events.get(transaction)
        if events is None:
            raise InvalidArgument(f"expected a transaction that this writer began and did not end, found {transaction}")
        size_bytes = size_bytes_of(payloads)
        if self.size_bytes + size_bytes > self._size_bytes_max:
            raise InvalidArgument(
                f"expected open transactions of at most {self._size_bytes_max} bytes, found {self.size_bytes}, and "
                f"{size_bytes} more: end one, or begin smaller ones"
            )
        self.size_bytes += events.extend(positions, payloads)

    def events(self, transaction: UUID) -> TransactionEvents:
        """All events of a transaction; none if it is not open here."""
        events = self._events.get(transaction, Events())
        return TransactionEvents(np.array(events.positions, dtype=np.float64), tuple(events.payloads))

    def keep(self, transaction: UUID) -> None:
        """The events of a transaction are durable."""
        self._kept.add(transaction)

    def at_risk(self, transaction: UUID) -> int:
        """How many events of a transaction are in memory alone."""
        events = None if transaction in self._kept else self._events.get(transaction)
        return 0 if events is None else len(events.payloads)

    def drop(self, transaction: UUID) -> None:
        """A transaction is ended; nothing if it is not open here."""
        self._kept.discard(transaction)
        events = self._events.pop(transaction, None)
        if events is not None:
            self.size_bytes -= events.size_bytes

    def ids(self) -> list[UUID]:
        """The transactions that are open here."""
        return list(self._events)


def size_bytes_of(payloads: Iterable[bytes]) -> int:
    """What events count."""
    return sum(len(payload) + OVERHEAD_BYTES for payload in payloads)
