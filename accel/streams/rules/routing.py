"""From an event to a segment: the position of its key, the segment with this position, events that wait for appends.

    key            b"order-17"
    position       0.73...             64 bits of BLAKE2b, the upper 53 of them as a fraction
    segment        1@0 [0.5, 1.0)      the last segment that begins at or before the position

A key always has the same position, in every process and every stream, so its events stay in order as the segments
change. The segments of one epoch cover all positions from 0 up to 1, each position once. Single writes wait by segment;
events of an open transaction wait by transaction, with the positions of their keys, because the segments may change
before the transaction is committed.

No clock, no store. Source: docs/explanation/history.md, "Terms".
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final
from uuid import UUID

import numpy as np
from numpy.typing import ArrayLike

from accel.errors import InvalidArgument
from accel.history.rules.segments import Segments
from accel.history.rules.values import Integers
from accel.streams.rules.transaction_data import EVENT_OVERHEAD_BYTES, TransactionEvents

HASH_SIZE_BYTES: Final = 8
POSITION_BITS: Final = 53
"""The bits that a 64-bit float represents exactly, so that no position is rounded up to 1."""


def key_position(key: bytes) -> float:
    """Return the position of a key, from 0 up to, but not including, 1.

    >>> key_position(b"order-17") == key_position(b"order-17")
    True
    """
    hashed = int.from_bytes(blake2b(key, digest_size=HASH_SIZE_BYTES).digest(), "big")
    return float((hashed >> (8 * HASH_SIZE_BYTES - POSITION_BITS)) / (1 << POSITION_BITS))


class KeyRouter:
    """Finds the segments of positions. Threads: immutable, any.

    Args:
        segments: the segments of one epoch, in any order.

    Raises:
        ValueError: the segments do not cover all keys once.
    """

    def __init__(self, segments: Segments) -> None:
        order = np.argsort(segments.key_starts, kind="stable")
        self.segments = segments.where(order)
        starts, ends = self.segments.key_starts, self.segments.key_ends
        if not len(starts) or starts[0] != 0 or ends[-1] != 1 or (starts[1:] != ends[:-1]).any():
            raise ValueError(f"expected segments that cover the keys from 0 to 1 once, found {segments}")
        self._starts: list[float] = starts.tolist()
        self._ids: list[int] = self.segments.ids.tolist()

    def segment_at(self, position: float) -> int:
        """Return the id of the segment that has a position. O(log n)."""
        return self._ids[bisect_right(self._starts, position) - 1]

    def route(self, positions: ArrayLike) -> Integers:
        """Return the ids of the segments that have these positions, in the order of the positions. O(m log n)."""
        indexes: Integers = np.searchsorted(self.segments.key_starts, np.asarray(positions), side="right") - 1
        return self.segments.ids[indexes]


def route(segments: Segments, positions: ArrayLike) -> Integers:
    """Return the ids of the segments that have these positions, in the order of the positions; see `KeyRouter`."""
    return KeyRouter(segments).route(positions)


def grouped(ids: Integers) -> Iterator[tuple[int, list[int]]]:
    """Iterate over the distinct ids, each with its indexes in `ids`, both ascending. O(n log n)."""
    order = np.argsort(ids, kind="stable")
    borders = np.flatnonzero(np.diff(ids[order])) + 1
    for places in np.split(order, borders) if len(ids) else ():
        yield int(ids[places[0]]), places.tolist()


# Events that wait

OVERHEAD_BYTES: Final = EVENT_OVERHEAD_BYTES
"""Bytes that are counted for each event besides its payload, so that empty events are bounded, too."""


@dataclass(slots=True, eq=False)
class Events:
    """Events in the order of writing.

    Args:
        positions: the positions of their keys.
        payloads: the payload of each event.
        futures: the future of each event; none for events of a transaction.
        size_bytes: the size of all events.
        numbers: the number of each event of a writer with an id, ascending; none for other writers.
    """

    positions: list[float] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    futures: list[Any] = field(default_factory=list)
    size_bytes: int = 0
    numbers: list[int] = field(default_factory=list)

    def chosen(self, places: Iterable[int]) -> Events:
        """Return the events at these indexes."""
        found = Events()
        for at in places:
            found.positions.append(self.positions[at])
            found.payloads.append(self.payloads[at])
            found.futures.append(self.futures[at])
            if self.numbers:
                found.numbers.append(self.numbers[at])
        found.size_bytes = size_bytes_of(found.payloads)
        return found


def in_order_of_numbers(runs: Sequence[Events]) -> list[Events]:
    """Join runs of several segments into one run of ascending numbers; runs without numbers stay. O(n log n)."""
    if len(runs) < 2 or not runs[0].numbers:
        return list(runs)
    joined = Events()
    for run in runs:
        joined.positions += run.positions
        joined.payloads += run.payloads
        joined.futures += run.futures
        joined.numbers += run.numbers
    return [joined.chosen(sorted(range(len(joined.numbers)), key=joined.numbers.__getitem__))]


class PendingEvents:
    """Events that wait to be appended, by segment. Threads: one at a time.

    Single writes collect in runs, each of which becomes one append. Events that were written together are a run of
    their own, or several runs if they exceed the limits of an append.

    Args:
        events_max: the limit of events in a run of single writes;
        bytes_max: the limit of bytes in it. A single event may be larger.
    """

    def __init__(self, events_max: int, bytes_max: int) -> None:
        self._events_max = events_max
        self._bytes_max = bytes_max
        self._runs: dict[int, deque[Events]] = {}  # the first run of a segment has waited longest
        self._is_open: dict[int, bool] = {}  # whether single writes may join the last run

    def __len__(self) -> int:
        return sum(len(run.payloads) for runs in self._runs.values() for run in runs)

    def add(self, segment_id: int, position: float, payload: bytes, future: Any, number: int | None = None) -> None:
        """Add a single write, with its number if it has one. O(1)."""
        runs = self._runs.get(segment_id)
        size_bytes = len(payload) + OVERHEAD_BYTES
        if runs is None:
            runs = self._runs[segment_id] = deque()
        if not (runs and self._is_open.get(segment_id) and self._has_room(runs[-1], size_bytes)):
            runs.append(Events())
            self._is_open[segment_id] = True
        run = runs[-1]
        run.positions.append(position)
        run.payloads.append(payload)
        run.futures.append(future)
        run.size_bytes += size_bytes
        if number is not None:
            run.numbers.append(number)

    def add_run(self, segment_id: int, events: Events, *, is_first: bool = False) -> None:
        """Add events that are to be appended together, after the waiting events or before them. O(events)."""
        runs = self._runs.setdefault(segment_id, deque())
        if is_first:
            runs.appendleft(events)
            return
        start, count = 0, len(events.payloads)
        while start < count:
            stop = self._append_end(events.payloads, start)
            runs.append(events if stop - start == count else events.chosen(range(start, stop)))
            start = stop
        self._is_open[segment_id] = False

    def next_run(self, but: Collection[int] = ()) -> tuple[int, Events] | None:
        """Take out the events of one segment for the next append; None if there are none.

        Args:
            but: segments to skip.
        """
        segment_id = next((segment_id for segment_id in self._runs if segment_id not in but), None)
        if segment_id is None:
            return None
        runs = self._runs[segment_id]
        run = runs.popleft()
        if not runs:
            del self._runs[segment_id]
            self._is_open.pop(segment_id, None)
        return segment_id, run

    def take(self, segment_id: int) -> list[Events]:
        """Take out all events of a segment."""
        self._is_open.pop(segment_id, None)
        return list(self._runs.pop(segment_id, ()))

    def segments(self) -> list[int]:
        """Return the segments that have waiting events."""
        return list(self._runs)

    def _has_room(self, run: Events, size_bytes: int) -> bool:
        return len(run.payloads) < self._events_max and run.size_bytes + size_bytes <= self._bytes_max

    def _append_end(self, payloads: Sequence[bytes], start: int) -> int:
        """Return the end index of the append that begins at `start`."""
        room_bytes = self._bytes_max
        stop = min(len(payloads), start + self._events_max)
        for at in range(start, stop):
            room_bytes -= len(payloads[at]) + OVERHEAD_BYTES
            if at > start and room_bytes < 0:
                return at
        return stop


class OpenTransactions:
    """Events of one writer in transactions that have not ended.

    Threads: one at a time, which may be interrupted, also by calls of its own: events are added in one step.

    Args:
        size_bytes_max: the limit of bytes of all transactions together.
    """

    def __init__(self, size_bytes_max: int) -> None:
        self._size_bytes_max = size_bytes_max
        self._events: dict[UUID, list[tuple[float, bytes]]] = {}
        self._kept: set[UUID] = set()
        self._ending: set[UUID] = set()
        self.size_bytes = 0

    def __contains__(self, transaction: UUID) -> bool:
        return transaction in self._events

    def begin(self, transaction: UUID) -> None:
        """Add a new transaction."""
        self._events[transaction] = []

    def add(self, transaction: UUID, positions: Sequence[float], payloads: Sequence[bytes]) -> None:
        """Add events to a transaction.

        Raises:
            InvalidArgument: the transaction is not open here, its end has begun, or there is no room: nothing was
                added.
        """
        events = self._taking(transaction)
        size_bytes = size_bytes_of(payloads)
        if self.size_bytes + size_bytes > self._size_bytes_max:
            raise InvalidArgument(
                f"expected open transactions of at most {self._size_bytes_max} bytes, found {self.size_bytes}, and "
                f"{size_bytes} more: end one, or begin smaller ones"
            )
        events.extend(zip(positions, payloads, strict=True))
        self.size_bytes += size_bytes
        self._taking(transaction)  # else a call by which this one was interrupted has begun its end, without them

    def _taking(self, transaction: UUID) -> list[tuple[float, bytes]]:
        events = self._events.get(transaction)
        if events is None:
            raise InvalidArgument(f"expected a transaction that this writer began and did not end, found {transaction}")
        if transaction in self._ending:
            raise InvalidArgument(
                f"expected a transaction that takes events, found {transaction}, whose commit or abort has begun: it"
                " takes none any more, even if that call fails; begin another"
            )
        return events

    def begin_end(self, transaction: UUID) -> None:
        """Take no more events of a transaction, for good; does nothing if it is not open here."""
        if transaction in self._events:
            self._ending.add(transaction)

    def is_ending(self, transaction: UUID) -> bool:
        """Whether the end of a transaction has begun."""
        return transaction in self._ending

    def events(self, transaction: UUID) -> TransactionEvents:
        """Return all events of a transaction; none if it is not open here."""
        events = self._events.get(transaction, [])
        positions = np.fromiter((position for position, _ in events), dtype=np.float64, count=len(events))
        return TransactionEvents(positions, tuple(payload for _, payload in events))

    def keep(self, transaction: UUID) -> None:
        """Note that the events of a transaction are durable."""
        if transaction in self._events:
            self._kept.add(transaction)

    def at_risk(self, transaction: UUID) -> int:
        """Return how many events of a transaction are in memory only."""
        events = None if transaction in self._kept else self._events.get(transaction)
        return 0 if events is None else len(events)

    def drop(self, transaction: UUID) -> None:
        """Remove a transaction that ended; does nothing if it is not open here."""
        events = self._events.pop(transaction, [])  # first: if the caller is interrupted, no event counts as at risk
        self._kept.discard(transaction)
        self._ending.discard(transaction)
        self.size_bytes = max(0, self.size_bytes - size_bytes_of(payload for _, payload in events))

    def ids(self) -> list[UUID]:
        """Return the transactions that are open here."""
        return list(self._events)


def first_events(runs: deque[Events], events_max: int, bytes_max: int) -> Events:
    """Take the first events out of runs, up to both limits, at least one event. O(events).

    Args:
        runs: in order, at least one, none of them empty.
        events_max, bytes_max: see `PendingEvents`.
    """
    part = Events()
    while runs and len(part.payloads) < events_max:
        run = runs[0]
        fitting = _fitting(part, run, events_max, bytes_max)
        taken = run.chosen(range(fitting))
        part.positions += taken.positions
        part.payloads += taken.payloads
        part.futures += taken.futures
        part.numbers += taken.numbers
        part.size_bytes += taken.size_bytes
        if fitting < len(run.payloads):
            runs[0] = run.chosen(range(fitting, len(run.payloads)))
            break
        runs.popleft()
    return part


def _fitting(part: Events, run: Events, events_max: int, bytes_max: int) -> int:
    room_bytes = bytes_max - part.size_bytes
    most = min(len(run.payloads), events_max - len(part.payloads))
    for at in range(most):
        room_bytes -= len(run.payloads[at]) + OVERHEAD_BYTES
        if room_bytes < 0 and (at or part.payloads):
            return at
    return most


def size_bytes_of(payloads: Iterable[bytes]) -> int:
    """Return the counted size of events: payloads and overhead."""
    return sum(len(payload) + OVERHEAD_BYTES for payload in payloads)
