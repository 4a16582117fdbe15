"""Who holds the segments themselves: a host is given in, as brokers differ.

A history says which segments there are; a host creates, seals, truncates and deletes them, and merges transactions into
them. Every step of a workflow may be repeated, by another process too, so a host must take each order twice: what is
created, sealed or merged already stays as it is.

Threads: a host must be as safe as those who share it need; both in here may be used by any thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol
from uuid import UUID

from accel.errors import HostMissing
from accel.history.rules.checks import checked_numbers
from accel.history.rules.ids import IdMap, Integers
from accel.history.rules.segments import Segments
from loaders.lifetime import ProcessLock

StreamName = tuple[str, str]
"""Scope and stream."""


class SegmentHost(Protocol):
    """What workflows ask of those who hold segments. All sizes and offsets are in the stream's offset unit.

    An order may come twice, from several processes, and an hour late: after the segment was sealed, truncated or
    deleted by workflows that came later. A host then leaves everything as it is: what is sealed stays sealed, what is
    deleted is not created again, a transaction that was merged, or aborted, is not merged again.
    """

    def create(self, stream: StreamName, segments: Segments, stream_ids: Mapping[int, int]) -> None:
        """Create segments; each is bound to a stream of the object layer."""
        ...

    def seal(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:
        """Take no more writes; gives the final sizes by segment id."""
        ...

    def tails(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:
        """How far segments reach now, by segment id."""
        ...

    def truncate(self, stream: StreamName, cut: IdMap) -> None:
        """Forget what lies before the offsets of a cut; those below 0 say nothing."""
        ...

    def delete(self, stream: StreamName, ids: Integers) -> None:
        """Forget segments."""
        ...

    def merge(
        self, stream: StreamName, ids: Integers, transactions: Sequence[UUID]
    ) -> Mapping[UUID, Mapping[int, int]] | None:
        """Append the data of transactions to segments, in this order, each once.

        Returns:
            Where the data of each begins, by segment id, as far as the host tells: the same when it is asked again, or
            nothing. What it tells is noted in the transaction's record, for 2 calls a transaction.
        """
        ...

    def abort(self, stream: StreamName, transaction: UUID) -> None:
        """Forget the data of a transaction."""
        ...


class NoHost:
    """In the place of a host where there is none: the history can be read, and asked for changes.

    A segment whose writer goes on must not be sealed, merged into, truncated or deleted by a process that knows nothing
    of its data: its size would be recorded as 0, and a transaction as committed whose data is nowhere.
    """

    def create(self, stream: StreamName, segments: Segments, stream_ids: Mapping[int, int]) -> None:
        """Nothing to do: the process that first appends to a segment opens it."""

    def seal(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:  # noqa: ARG002 - refused in any case
        """Raises HostMissing."""
        raise HostMissing("seal segments", "/".join(stream))

    def tails(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:  # noqa: ARG002 - as above
        """Raises HostMissing."""
        raise HostMissing("find the ends of segments", "/".join(stream))

    def truncate(self, stream: StreamName, cut: IdMap) -> None:  # noqa: ARG002 - as above
        """Raises HostMissing."""
        raise HostMissing("truncate segments", "/".join(stream))

    def delete(self, stream: StreamName, ids: Integers) -> None:  # noqa: ARG002 - as above
        """Raises HostMissing."""
        raise HostMissing("delete segments", "/".join(stream))

    def merge(self, stream: StreamName, ids: Integers, transactions: Sequence[UUID]) -> None:  # noqa: ARG002 - as above
        """Raises HostMissing."""
        raise HostMissing("merge transactions", "/".join(stream))

    def abort(self, stream: StreamName, transaction: UUID) -> None:  # noqa: ARG002 - as above
        """Raises HostMissing."""
        raise HostMissing("delete the data of transactions", "/".join(stream))


class GivenSizes:
    """Holds nothing: the caller does, and says how large segments are when they are sealed.

    Args:
        sizes: by segment id; those that are missing count 0.
    """

    def __init__(self, sizes: Mapping[int, int] | None = None) -> None:
        self._sizes = dict(checked_numbers("sizes of segments", sizes or {}, 0))

    def create(self, stream: StreamName, segments: Segments, stream_ids: Mapping[int, int]) -> None:
        """Nothing to do."""

    def seal(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:
        """The sizes that were given."""
        return self.tails(stream, ids)

    def tails(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:  # noqa: ARG002 - sizes of one stream
        """The sizes that were given."""
        return {each: self._sizes.get(each, 0) for each in ids.tolist()}

    def truncate(self, stream: StreamName, cut: IdMap) -> None:
        """Nothing to do."""

    def delete(self, stream: StreamName, ids: Integers) -> None:
        """Nothing to do."""

    def merge(self, stream: StreamName, ids: Integers, transactions: Sequence[UUID]) -> None:
        """Nothing to do."""

    def abort(self, stream: StreamName, transaction: UUID) -> None:
        """Nothing to do."""


class MemorySegments:
    """Segments in memory, of which only sizes are kept: for tests and simulations."""

    def __init__(self) -> None:
        self._lock = ProcessLock()
        self._sizes: dict[tuple[StreamName, int], int] = {}
        self._sealed: set[tuple[StreamName, int]] = set()
        self._deleted: set[tuple[StreamName, int]] = set()
        self._merged: dict[tuple[StreamName, UUID], dict[int, int]] = {}
        self._pending: dict[tuple[StreamName, UUID], int] = {}
        self.stream_ids: dict[tuple[StreamName, int], int] = {}

    def copy(self) -> MemorySegments:
        """The same segments once more."""
        other = MemorySegments()
        with self._lock:
            other._sizes, other._sealed = dict(self._sizes), set(self._sealed)
            other._deleted = set(self._deleted)
            other._merged, other._pending = dict(self._merged), dict(self._pending)
            other.stream_ids = dict(self.stream_ids)
        return other

    def append(self, stream: StreamName, segment_id: int, size: int) -> None:
        """Append to a segment.

        Raises:
            LookupError: there is none, or it is sealed.
        """
        with self._lock:
            if (stream, segment_id) not in self._sizes or (stream, segment_id) in self._sealed:
                raise LookupError(f"expected an open segment, found none: {stream}, {segment_id}")
            self._sizes[stream, segment_id] += size

    def write(self, stream: StreamName, transaction: UUID, size: int) -> None:
        """Write to a transaction: so much for each segment."""
        with self._lock:
            self._pending[stream, transaction] = self._pending.get((stream, transaction), 0) + size

    def ids(self, stream: StreamName) -> list[int]:
        """The segments that are there."""
        with self._lock:
            return sorted(each for name, each in self._sizes if name == stream)

    def create(self, stream: StreamName, segments: Segments, stream_ids: Mapping[int, int]) -> None:
        """See `SegmentHost.create`."""
        with self._lock:
            for each in segments.ids.tolist():
                if (stream, each) not in self._deleted:  # an order that comes late brings nothing back
                    self._sizes.setdefault((stream, each), 0)
                    self.stream_ids[stream, each] = stream_ids[each]

    def seal(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:
        """See `SegmentHost.seal`."""
        with self._lock:
            self._sealed.update((stream, each) for each in ids.tolist())
        return self.tails(stream, ids)

    def tails(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:
        """See `SegmentHost.tails`."""
        with self._lock:
            return {each: self._sizes.get((stream, each), 0) for each in ids.tolist()}

    def truncate(self, stream: StreamName, cut: IdMap) -> None:
        """Nothing to do: sizes count from the beginning."""

    def delete(self, stream: StreamName, ids: Integers) -> None:
        """See `SegmentHost.delete`."""
        with self._lock:
            for each in ids.tolist():
                self._sizes.pop((stream, each), None)
                self._deleted.add((stream, each))

    def merge(
        self, stream: StreamName, ids: Integers, transactions: Sequence[UUID]
    ) -> Mapping[UUID, Mapping[int, int]]:
        """See `SegmentHost.merge`."""
        with self._lock:
            return {each: self._merge(stream, ids, each) for each in transactions}

    def abort(self, stream: StreamName, transaction: UUID) -> None:
        """See `SegmentHost.abort`."""
        with self._lock:
            self._pending.pop((stream, transaction), None)

    def _merge(self, stream: StreamName, ids: Integers, transaction: UUID) -> Mapping[int, int]:
        known = self._merged.get((stream, transaction))
        if known is not None:
            return known
        size = self._pending.pop((stream, transaction), 0)
        offsets = {each: self._sizes[stream, each] for each in ids.tolist()}
        self._sizes.update(((stream, each), offset + size) for each, offset in offsets.items())
        self._merged[stream, transaction] = offsets
        return offsets
