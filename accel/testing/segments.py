"""Segments of streams in memory, for tests of histories: they replace the segments of a broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from accel.history.rules.segments import Segments
from accel.history.rules.values import IdMap, Integers
from accel.history.store.segment_host import StreamName
from loaders.lifetime import ProcessLock


class MemorySegments:
    """Segments in memory, which store only sizes. A `SegmentHost`. Threads: any.

    >>> from accel.history.store import StreamStore
    >>> from loaders.store import MemoryStore
    >>> host = MemorySegments()
    >>> streams = StreamStore.open(MemoryStore(), host=host)
    """

    def __init__(self) -> None:
        self._lock = ProcessLock()
        self._sizes: dict[tuple[StreamName, int], int] = {}
        self._sealed: set[tuple[StreamName, int]] = set()
        self._deleted: set[tuple[StreamName, int]] = set()
        self._merged: dict[tuple[StreamName, UUID], dict[int, int]] = {}
        self._pending: dict[tuple[StreamName, UUID], int] = {}
        self.stream_ids: dict[tuple[StreamName, int], int] = {}

    def copy(self) -> MemorySegments:
        """A copy with the same segments."""
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
            LookupError: the segment does not exist, or is sealed.
        """
        with self._lock:
            if (stream, segment_id) not in self._sizes or (stream, segment_id) in self._sealed:
                raise LookupError(f"expected an open segment, found none: {stream}, {segment_id}")
            self._sizes[stream, segment_id] += size

    def write(self, stream: StreamName, transaction: UUID, size: int) -> None:
        """Write to a transaction: a size for each segment."""
        with self._lock:
            self._pending[stream, transaction] = self._pending.get((stream, transaction), 0) + size

    def ids(self, stream: StreamName) -> list[int]:
        """The existing segments."""
        with self._lock:
            return sorted(each for name, each in self._sizes if name == stream)

    def create(self, stream: StreamName, segments: Segments, stream_ids: Mapping[int, int]) -> None:
        """See `SegmentHost.create`."""
        with self._lock:
            for each in segments.ids.tolist():
                if (stream, each) not in self._deleted:  # a late instruction restores nothing
                    self._sizes.setdefault((stream, each), 0)
                    self.stream_ids[stream, each] = stream_ids[each]

    def seal(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:
        """See `SegmentHost.seal`."""
        with self._lock:
            self._sealed.update((stream, each) for each in ids.tolist())
        return self.tails(stream, ids)

    def last_times(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:  # noqa: ARG002 - sizes have no times
        """See `SegmentHost.last_times`: none are known."""
        return {}

    def tails(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:
        """See `SegmentHost.tails`."""
        with self._lock:
            return {each: self._sizes.get((stream, each), 0) for each in ids.tolist()}

    def truncate(self, stream: StreamName, cut: IdMap) -> None:
        """No effect: sizes count from the beginning."""

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

    def abort(self, stream: StreamName, transaction: UUID, *, is_given_up: bool = False) -> None:  # noqa: ARG002 - a merge is one step
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
