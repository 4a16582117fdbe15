"""Records of a stream's history as objects: read and decoded once, however many ask, and kept within a bound of bytes.

What lies in versioned tables comes in three kinds, and each is read in its own way:

    | record                                       | kept    | asked again                                           |
    |----------------------------------------------|---------|-------------------------------------------------------|
    | final: an epoch, a full chunk, a leaf, ...   | decoded | never                                                 |
    | growing: a chunk that is not full            | decoded | unless it tells enough already; on condition that it  |
    |                                              |         | changed: no body comes and nothing is decoded if not  |
    | changing: the root of the index of times     | decoded | each time, on that condition                          |

**Joining.** Who wants a final or growing record that is being read waits for that read. But a read may have begun
before the question, so that what it did not find, or not far enough, may stand there by now: then the one who waited
asks once more, and takes part in a read that began after the question. Errors go to all who wait, and are not kept. A
reader that is killed takes nobody along: one of those who wait reads in its place.

**Erasing.** Some final records are erased: recorded cuts, parts of the index of times that were merged. Who erases one
calls `forget`. It drops the record, and also what a read brings that began before. Erased by another process, a record
may still be given out here: its content was final, and it was there a moment ago.

This module knows no kind of record: codecs and sizes are given in. Records are known by table and key; a table that may
be made anew has a unique id in its name.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Final, Generic, TypeAlias, TypeVar, cast

from loaders.errors import DataNotFound, TableMissing
from loaders.shared_loads import Flight, SharedLoads
from loaders.tables import Entry, Table, Version
from loaders.tables.records import Codec

T = TypeVar("T")

Place: TypeAlias = tuple[str, str]
"""Table and key."""

RECORD_OVERHEAD_BYTES: Final = 1_100
"""What a kept record takes besides itself: its version, its place, its rows in the maps. Measured, rounded up."""


@dataclass(frozen=True, slots=True)
class Seen(Generic[T]):
    """A record as it stood at some time, and which version of its key it was."""

    value: T
    version: Version


@dataclass(frozen=True, slots=True)
class RecordPlace(Generic[T]):
    """Where a record lies, and how to read its bytes.

    Args:
        table: its table.
        key: its key.
        codec: decodes it.
    """

    table: Table
    key: str
    codec: Codec[T]

    @property
    def place(self) -> Place:
        """Names of table and key."""
        return self.table.name, self.key

    def decode(self, entry: Entry) -> Seen[T]:
        """The record in a value. Raises CorruptObject, FormatTooNew."""
        return Seen(self.codec.decode(entry.value, f"table {self.table.name!r}, key {self.key!r}"), entry.version)

    def fetch(self, known: Seen[T] | None) -> Seen[T] | None:
        """Read the record; None if there is none. One call at most; no body if the known version still stands.

        Raises:
            TableMissing, StoreError, CorruptObject, FormatTooNew.
        """
        if known is None:
            found = self.table.find(self.key)
            return None if found is None else self.decode(found)
        try:
            newer = self.table.get_if_newer(self.key, known.version)
        except TableMissing:
            raise
        except DataNotFound:
            return None
        return known if newer is None else self.decode(newer)


@dataclass(frozen=True, slots=True)
class RecordStats:
    """Counts since the start, and what is kept now.

    Args:
        loads: reads of a table that this process made, those that failed included.
        failed: those.
        waits: questions that waited for a read that was under way.
        hits: questions that were answered from memory, without a call and without decoding.
        kept_records: how many records are kept.
        kept_bytes: what they take.
        kept_bytes_max: what they may take.
    """

    loads: int
    failed: int
    waits: int
    hits: int
    kept_records: int
    kept_bytes: int
    kept_bytes_max: int


def never_enough(_: object) -> bool:
    """For questions that only the newest version of a record answers."""
    return False


class EpochRecords:
    """Reads records, and keeps them. Threads: any. No lock is held over a call.

    Args:
        size_bytes_max: bound on what is kept; least recently used records go. 0 = nothing is kept.
        size_of: bytes of memory that a record takes.
    """

    def __init__(self, size_bytes_max: int, size_of: Callable[[object], int]) -> None:
        self._loads: SharedLoads[Place, Seen[object] | None] = SharedLoads(
            size_bytes_max, lambda seen: RECORD_OVERHEAD_BYTES + (0 if seen is None else size_of(seen.value))
        )

    def read(self, source: RecordPlace[T], enough: Callable[[T], bool] = never_enough) -> Seen[T] | None:
        """A record that is final, or grows until it is; None if there is none.

        One call at most, and one more of another thread's that is waited for; none if it is kept and final, or enough.

        Args:
            source: where it lies.
            enough: whether a record that may grow further tells what is asked for. Quick.

        Raises:
            TableMissing, StoreError, CorruptObject, FormatTooNew.
        """
        suits = _suiting(enough)
        is_late = False  # a read that began before this question may be too old for it
        while True:
            asked = self._loads.ask(source.place, suits)
            if not isinstance(asked, Flight):
                return cast("Seen[T] | None", asked)
            if asked.started:
                return self._lead(source, asked)
            error = asked.result.exception()  # waits; what is raised here concerns only the one who waits
            if error is None and (is_late or suits(asked.result.result())):
                return cast("Seen[T] | None", asked.result.result())
            if error is not None and _concerns_all(error, is_late=is_late):
                raise error
            is_late = True

    def read_changing(self, source: RecordPlace[T]) -> Seen[T] | None:
        """A record that may be written over; None if there is none. One call, without a body if it stands still.

        Raises:
            TableMissing, StoreError, CorruptObject, FormatTooNew.
        """
        known = cast("Seen[T] | None", self._loads.peek(source.place))
        found = source.fetch(known)
        if found is None:
            self._loads.forget(source.place)
        elif found is not known:
            self._loads.keep(source.place, cast("Seen[object]", found))
        return found

    def has(self, source: RecordPlace[T], enough: Callable[[T], bool] = never_enough) -> bool:
        """Whether `read` needs no call."""
        return _suiting(enough)(self._loads.peek(source.place))

    def forget(self, table: str, key: str) -> None:
        """Drop a record: after it was erased, before anybody is told so."""
        self._loads.forget((table, key))

    def forget_table(self, table: str) -> None:
        """Drop all records of a table: likewise. O(everything that is kept)."""
        self._loads.forget_all(lambda place: place[0] == table)

    def stats(self) -> RecordStats:
        """Counts so far."""
        counts = self._loads.counts()
        return RecordStats(
            loads=counts.landed + counts.failed,
            failed=counts.failed,
            waits=counts.joined,
            hits=counts.hits,
            kept_records=counts.kept,
            kept_bytes=counts.kept_bytes,
            kept_bytes_max=counts.kept_bytes_max,
        )

    def _lead(self, source: RecordPlace[T], flight: Flight[Seen[object] | None]) -> Seen[T] | None:
        kept = cast("Seen[T] | None", flight.kept)
        found = self._loads.lead(source.place, flight.result, lambda: cast("Seen[object] | None", source.fetch(kept)))
        return cast("Seen[T] | None", found)


def _suiting(enough: Callable[[T], bool]) -> Callable[[Seen[object] | None], bool]:
    return lambda seen: seen is not None and (seen.version.final or enough(cast("T", seen.value)))


def _concerns_all(error: BaseException, *, is_late: bool) -> bool:
    """Whether the error of a read is one for those as well who joined it; otherwise they read for themselves.

    It is not if only the reading thread was killed or cancelled; nor if it found nothing, at a time before they asked.
    """
    if not isinstance(error, Exception) or isinstance(error, CancelledError):
        return False
    return is_late or not isinstance(error, DataNotFound)
