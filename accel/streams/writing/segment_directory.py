"""What a host of segments has to know of streams, from their histories: units, keys, streams of the object layer.

A host is told of segments when they are created. Of those that another process created, or this one before it was
restarted, it finds the same in the history.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import NamedTuple
from uuid import UUID

from accel.errors import NotInHistory
from accel.history.configuration import OffsetUnit
from accel.history.id_columns import Integers
from accel.history.segments import SegmentRecord, Segments
from accel.history.store import Stream, StreamStore
from accel.history.store.hosts import StreamName
from accel.system import Components
from loaders.errors import DataNotFound
from loaders.store import ObjectStore


class _KnownStream(NamedTuple):
    stream: Stream
    unit: OffsetUnit


class _KnownSegment(NamedTuple):
    stream_id: int
    segment: SegmentRecord


class SegmentDirectory:
    """Looks things up in histories, and keeps what it found. Threads: any; no lock is held over I/O.

    Args:
        store: where the histories lie.
        system: clock, sleep and chance.
    """

    def __init__(self, store: ObjectStore, system: Components) -> None:
        self._store = store
        self._system = system
        self._lock = Lock()
        self._histories: StreamStore | None = None
        self._streams: dict[StreamName, _KnownStream] = {}
        self._segments: dict[tuple[StreamName, int], _KnownSegment] = {}

    def remember(self, name: StreamName, segments: Segments, stream_ids: Mapping[int, int]) -> None:
        """Segments that are being created; the history may not have them yet."""
        with self._lock:
            self._streams.pop(name, None)  # perhaps another stream of that name
            for each in segments:
                self._segments[name, each.id] = _KnownSegment(stream_ids[each.id], each)

    def forget(self, name: StreamName, ids: Integers) -> None:
        """Segments that are not written any more."""
        with self._lock:
            for each in ids.tolist():
                self._segments.pop((name, each), None)

    def unit(self, name: StreamName) -> OffsetUnit:
        """What offsets of a stream count. 4 calls the first time."""
        return self._known(name).unit

    def unique_id(self, name: StreamName) -> UUID:
        """What tells the stream that has a name now from earlier ones. 4 calls: it may be another one than before."""
        self._forget_stream(name)
        return self._known(name).stream.unique_id

    def stream_id(self, name: StreamName, segment_id: int) -> int:
        """Which stream of the object layer holds a segment. 1 call, none if it was created here.

        Raises:
            NotInHistory: there is no such segment.
        """
        with self._lock:
            known = self._segments.get((name, segment_id))
        if known is not None:
            return known.stream_id
        try:
            return self._known(name).stream.segment_stream(segment_id)
        except (NotInHistory, DataNotFound):
            self._forget_stream(name)  # perhaps another stream has the name by now
        return self._known(name).stream.segment_stream(segment_id)

    def segments(self, name: StreamName, ids: Integers) -> Segments:
        """Segments with their keys. No call for those that were created here; 1 if all others are active.

        Raises:
            NotInHistory: there is no such segment.
        """
        with self._lock:
            here = {each: self._segments[name, each].segment for each in ids.tolist() if (name, each) in self._segments}
        if len(here) < len(ids):
            stream = self._known(name).stream
            active = {each.id: each for each in stream.active_segments()}
            here |= {each: active.get(each) or stream.epochs.segment(each) for each in ids.tolist() if each not in here}
        return Segments.of(here[each] for each in ids.tolist())

    def _forget_stream(self, name: StreamName) -> None:
        with self._lock:
            self._streams.pop(name, None)

    def _known(self, name: StreamName) -> _KnownStream:
        with self._lock:
            known, histories = self._streams.get(name), self._histories
        if known is not None:
            return known
        if histories is None:
            histories = StreamStore.open(self._store, system=self._system)
        stream = histories.stream(*name)
        found = _KnownStream(stream, stream.configuration().offset_unit)
        with self._lock:
            self._histories = histories
            self._streams[name] = found
        return found
