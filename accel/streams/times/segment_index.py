"""The time index of one segment: its newest records in memory, all others in objects.

    accel/time/7/0   accel/time/7/3    memory
    0 1 2            3 4 5 6           7 8 9          record numbers, and so tokens, go through all of them

Records are added in memory. `move` takes those that end at or before an offset, writes them as a part of their own, and
lets go of them in memory *after* the part is there. Questions and answers are the same before and after.

A part is written only if nothing lies at its key. Something may: the reply to an earlier attempt got lost, or another
process had the segment before us and its request came late. Parts never change, so nothing is undone; what lies there
is read and compared with the records here:

    | it has                             | what becomes of it                                               |
    |------------------------------------|------------------------------------------------------------------|
    | fewer records than we were writing | those have moved; the next part begins behind them               |
    | more, all of which are in memory   | all of those have moved                                          |
    | more than are in memory            | the index goes on behind it: it had more than this process knew  |
    | other records                      | `PreconditionFailed`: two processes write one segment            |

What is in memory only is lost with the process, as are all writes that are not on the store yet. Whoever has a log of
them gives the records back with `extend`. Whoever has none writes data first and moves the index then, and after a
restart adds one record for what lies behind its end: `append(end of the data)`.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final

from accel.streams.times.index_view import IndexView, check_same
from accel.streams.times.part_cache import PartCache
from accel.streams.times.time_parts import ListedPart, PartEnd, TimeParts
from accel.system import SYSTEM
from loaders.backoff import Backoff, RetrySettings
from loaders.errors import PreconditionFailed, StoreUnavailable, WriteConflict
from range_index.segment_times import SegmentTimes, TimeRecords
from range_index.time_search import NO_TOKEN, Located, TimesRead, locate, read

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from accel.streams.clock import HostClock
    from loaders.store.base import ObjectStore

MOVED_RECORDS_MAX: Final = 65_536
"""Records of one part: 1 MiB."""


class SegmentTimeIndex:
    """Adds, finds and moves the records of one segment. Threads: any; one moves at a time, and nobody waits for it.

    Made by `open`. One process at a time should add to a segment; any number may read.

    Args:
        parts: the chain in the store, none of it known yet.
        clock: gives the values.
        backoff: how often a write in doubt is settled, and the pauses.
        moved_records_max: records of one part.
    """

    def __init__(self, parts: TimeParts, clock: HostClock, backoff: Backoff, moved_records_max: int) -> None:
        if moved_records_max < 1:
            raise ValueError(f"expected moved_records_max of 1 or more, found {moved_records_max}")
        self._parts = parts
        self._clock = clock
        self._backoff = backoff
        self._moved_records_max = moved_records_max
        self._moving = Lock()  # around what is asked of the store
        self._lock = Lock()  # around memory; never held while the store is asked
        self._memory = SegmentTimes()

    @classmethod
    def open(
        cls,
        store: ObjectStore,
        stream_id: int,
        clock: HostClock,
        *,
        cache: PartCache | None = None,
        backoff: Backoff | None = None,
        moved_records_max: int = MOVED_RECORDS_MAX,
    ) -> SegmentTimeIndex:
        """The index of a segment as the store has it; the clock is seeded with its highest value.

        One listing for each 1,000 parts, and one request for 16 bytes if there are any.

        Args:
            store: where the parts lie.
            stream_id: the stream that the segment is kept as.
            clock: of the host.
            cache: keeps parts that are read; best shared by all segments of the store. None = one of its own.
            backoff: for writes in doubt. None = that of tables.
            moved_records_max: records of one part.

        Raises:
            CorruptObject: parts that do not follow one another; and StoreError.
        """
        parts = TimeParts(store, stream_id, PartCache() if cache is None else cache)
        backoff = backoff or Backoff(RetrySettings(), SYSTEM.sleep, SYSTEM.jitter)
        index = cls(parts, clock, backoff, moved_records_max)
        index.refresh()
        return index

    @property
    def records(self) -> int:
        """How many records there are; also the token for the end."""
        return self._view().records

    @property
    def records_in_memory(self) -> int:
        """How many of them have not moved."""
        return len(self._view().memory)

    @property
    def parts(self) -> int:
        """How many objects the others lie in."""
        return len(self._parts)

    @property
    def end_offset(self) -> int:
        """Where the last record ends."""
        return self._view().end_offset

    @property
    def last_value(self) -> int:
        """The highest clock value; 0 before the first record."""
        return self._memory.last_value

    def value_now(self) -> int:
        """The clock value that data would get if it were added now: the lower bound of all that is to come.

        Source: PDP-28, "StreamSegmentInfo".
        """
        return self._clock.now()

    def append(self, end_offset: int) -> int:
        """Add the record of one append, after which the segment ends at `end_offset`; gives its clock value.

        Raises:
            ValueError: that is not behind the last end.
        """
        with self._lock:  # the clock is asked under it, so that values stand in the order in which they were given
            value = self._clock.now()
            self._memory.append(end_offset, value)
            return value

    def merge(self, end_offset: int) -> int | None:
        """Add the record of a transaction that was committed; gives its clock value, None if it brought nothing.

        Raises:
            ValueError: the segment would end before the last end.
        """
        return None if end_offset == self.end_offset else self.append(end_offset)

    def extend(self, data: bytes) -> int:
        """Give back records in their stored form, from a log; those that the index has already are passed over.

        Args:
            data: consecutive records of this segment; the first of those that are not known follows the last known one.

        Returns:
            How many were added.

        Raises:
            ValueError: the bytes are not such records; nothing was added.
        """
        piece = TimeRecords.decode(data)
        with self._lock:
            known = piece.ended_by(self._memory.end_offset)
            self._memory.extend(TimeRecords(piece.rows[known:]).encode())
            self._clock.seed(self._memory.last_value)
        return len(piece) - known

    def locate(self, offset: int) -> Located:
        """The record that covers an offset; the number of records for one at or past the end.

        Each probe may read a part from the store, if it is neither in memory nor in the cache.

        Raises:
            ValueError: a negative offset; and as `refresh`.
        """
        return locate(self._view(), offset)

    def read(self, offset: int, count: int, token: int = NO_TOKEN) -> TimesRead:
        """The clock values of a range, and where to go on; see `range_index.time_search.read`.

        Read in order, each part is fetched once.

        Raises:
            ValueError: a negative offset or count; and as `refresh`.
        """
        return read(self._view(), offset, count, token)

    def pieces(self) -> Iterator[TimeRecords]:
        """All records in their order: part by part, then those in memory. One part at a time is read."""
        view = self._view()
        yield from self._parts.pieces(view.memory.first_record)
        if len(view.memory):
            yield view.memory

    def encode_memory(self) -> bytes:
        """The records in memory in their stored form."""
        return self._view().memory.encode()

    def move(self, up_to_offset: int) -> int:
        """Move the records that end at or before an offset from memory to the store.

        One request for each `moved_records_max` of them, none if there are none. May be repeated after any error:
        whatever did not move is still here.

        Returns:
            How many records more the store has than before, as far as is known here.

        Raises:
            PreconditionFailed: other records stand there.
            StoreUnavailable, WriteConflict: and it was not to be settled.

        Source: PDP-28, "When StorageWriter moves data to Tier-2".
        """
        with self._moving:
            before = self._parts.records
            while due := self._view().memory.ended_by(up_to_offset):
                self._move(min(due, self._moved_records_max))
            return self._parts.records - before

    def refresh(self) -> int:
        """Take notice of parts that others wrote. One listing for each 1,000; more requests only if there are any.

        Returns:
            How many.

        Raises:
            PreconditionFailed: they have other records than are in memory here.
            CorruptObject: parts that do not follow one another, or are damaged; and StoreError.
        """
        with self._moving:
            return self._learn()

    def _view(self) -> IndexView:
        with self._lock:
            return IndexView(self._parts, self._memory.view())

    def _move(self, count: int) -> None:
        memory = self._view().memory
        due = TimeRecords(memory.rows[:count], memory.first_record, memory.start_offset)
        if self._write(due):
            with self._lock:
                self._parts.add([ListedPart(due.first_record, count)], due.end_offset)
                self._memory.drop(count)

    def _write(self, due: TimeRecords) -> bool:
        """Write a part; false if one was found there instead, of which notice is taken."""
        body = due.encode()
        attempt = 1
        while True:
            try:
                self._parts.create(due.first_record, body)
            except (PreconditionFailed, WriteConflict, StoreUnavailable):
                if self._learn():
                    return False
                if attempt >= self._backoff.settings.settle_attempts:
                    raise
            else:
                return True
            self._backoff.pause(attempt)
            attempt += 1

    def _learn(self) -> int:
        new = list(self._parts.newer())
        if new:
            end = self._parts.end_of_part(new[-1])
            pieces: list[TimeRecords] = []
            while not self._adopted(new, pieces, end):
                pieces.append(self._parts.read(new[len(pieces)]))
        return len(new)

    def _adopted(self, new: Sequence[ListedPart], pieces: Sequence[TimeRecords], end: PartEnd) -> bool:
        """Let go of what other parts hold; false if one more must be read first, to be compared with memory."""
        with self._lock:
            memory = self._memory.view()
            if len(pieces) < len(new) and new[len(pieces)].first_record < memory.records:
                return False
            for piece in pieces:
                check_same(self._parts.key(piece.first_record), piece, memory)
            self._parts.add(new, end.end_offset)
            after = new[-1].after
            if after <= memory.records:
                self._memory.drop(after - memory.first_record)
            else:
                self._memory = SegmentTimes(after, end.end_offset, end.value)
            self._clock.seed(end.value)
            return True
