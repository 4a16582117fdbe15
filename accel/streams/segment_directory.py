"""Data of segments from histories and the catalog: the stream of a segment, its offset unit, the node that has it open.

Source: docs/explanation/history.md; docs/reference/catalog-records.md, "Stream shards".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from threading import Lock
from typing import NamedTuple
from uuid import UUID

import numpy as np

from accel.catalog import ObjectCatalog
from accel.catalog.parts import CatalogParts
from accel.catalog.records import OPEN
from accel.catalog.shard_writes import read_last_ranges
from accel.catalog.stream_shards import shards_of
from accel.errors import (
    CatalogMissing,
    CommitRefused,
    InvalidArgument,
    NotInHistory,
    SegmentsElsewhere,
    SessionFenced,
    StreamsReleased,
)
from accel.history.rules.configuration import OffsetUnit
from accel.history.rules.segments import SegmentRecord, Segments
from accel.history.rules.values import Integers, epoch_of, some_ids
from accel.history.store import Stream, StreamStore
from accel.history.store.segment_host import SegmentHost, StreamName
from accel.history.store.transaction_store import TransactionStore
from accel.system import Components
from loaders.errors import DataNotFound
from loaders.store import ObjectStore
from loaders.threads import map_bounded

# From histories


class _KnownStream(NamedTuple):
    stream: Stream
    unit: OffsetUnit


class _KnownSegment(NamedTuple):
    stream_id: int
    segment: SegmentRecord


class SegmentDirectory:
    """Looks up segments in histories, and caches the results. Threads: any; no lock is held over I/O.

    Args:
        store: the store of the histories.
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
        """Cache segments that are being created; the history may not have them yet."""
        with self._lock:
            self._streams.pop(name, None)  # it may be another stream of that name
            for segment in segments:
                self._segments[name, segment.id] = _KnownSegment(stream_ids[segment.id], segment)

    def forget(self, name: StreamName, ids: Integers) -> None:
        """Drop segments that are no longer written."""
        with self._lock:
            for segment_id in ids.tolist():
                self._segments.pop((name, segment_id), None)

    def unit(self, name: StreamName) -> OffsetUnit:
        """Return the unit of a stream's offsets. 4 calls the first time."""
        return self._known(name).unit

    def stream(self, name: StreamName, host: SegmentHost) -> Stream:
        """Return a stream, opened with a host. 4 calls."""
        self._forget_stream(name)
        return Stream(replace(self._known(name).stream.parts, host=host))

    def unique_id(self, name: StreamName) -> UUID:
        """Return the id that distinguishes a stream from earlier streams of its name. 4 calls: nothing is cached."""
        self._forget_stream(name)
        return self._known(name).stream.unique_id

    def transactions(self, name: StreamName) -> tuple[UUID, TransactionStore]:
        """Return the transactions of a stream, and its unique id. 4 calls, as `unique_id`.

        Raises:
            NotInHistory: there is no such stream, or it is being deleted.
        """
        self._forget_stream(name)
        stream = self._known(name).stream
        return stream.unique_id, stream.workflows.transactions

    def stream_id(self, name: StreamName, segment_id: int) -> int:
        """Return the stream of the object layer that contains a segment. 1 call, none if it was created here.

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
            self._forget_stream(name)  # another stream may have the name by now
        return self._known(name).stream.segment_stream(segment_id)

    def stream_id_to_delete(self, name: StreamName, segment_id: int) -> int | None:
        """As `stream_id`, also while the stream is half created or being deleted; None if nothing was written of it."""
        try:
            return self.stream_id(name, segment_id)
        except (NotInHistory, DataNotFound):
            return self._opened_histories().segment_stream(*name, segment_id)

    def segments(self, name: StreamName, ids: Integers) -> Segments:
        """Return segments with their keys. No call for segments created here; 1 if all others are active.

        Raises:
            NotInHistory: there is no such segment.
        """
        with self._lock:
            here = {
                segment_id: self._segments[name, segment_id].segment
                for segment_id in ids.tolist()
                if (name, segment_id) in self._segments
            }
        if len(here) < len(ids):
            stream = self._known(name).stream
            active = {segment.id: segment for segment in stream.active_segments()}
            here |= {
                segment_id: active.get(segment_id) or stream.epochs.segment(segment_id)
                for segment_id in ids.tolist()
                if segment_id not in here
            }
        return Segments.of(here[segment_id] for segment_id in ids.tolist())

    def predecessors(self, name: StreamName, segment_id: int, oldest_ms: float) -> list[SegmentRecord]:
        """Return the predecessors of a segment, none if sealed before `oldest_ms` (since 1970). 3 calls, 1 for each."""
        if not epoch_of(segment_id):
            return []
        epochs = self._known(name).stream.epochs
        if epochs.segment(segment_id).creation_time_ms < oldest_ms:
            return []
        return [epochs.segment(before) for before in epochs.predecessors(segment_id)]

    def creation_time_ms(self, name: StreamName, segment_id: int) -> int:
        """Return the time of a segment's epoch, ms since 1970. 1 call."""
        return self._known(name).stream.epochs.segment(segment_id).creation_time_ms

    def successors(self, name: StreamName, segment_id: int) -> list[int]:
        """Return the ids of the segments that follow a segment, ascending. 3 calls."""
        return sorted(self._known(name).stream.epochs.successors(segment_id))

    def _forget_stream(self, name: StreamName) -> None:
        with self._lock:
            self._streams.pop(name, None)

    def _known(self, name: StreamName) -> _KnownStream:
        with self._lock:
            known = self._streams.get(name)
        if known is not None:
            return known
        stream = self._opened_histories().stream(*name)
        known_stream = _KnownStream(stream, stream.configuration().offset_unit)
        with self._lock:
            self._streams[name] = known_stream
        return known_stream

    def _opened_histories(self) -> StreamStore:
        with self._lock:
            histories = self._histories
        if histories is None:
            histories = StreamStore.open(self._store, system=self._system)
            with self._lock:
                self._histories = histories
        return histories


# From the catalog


class StreamSpan(NamedTuple):
    """The data of a stream in the catalog.

    Args:
        stream_id: the stream.
        start: its first kept offset.
        end: its end; `OPEN` if a node has it open: then only this node knows the end.
        node_id: the node that wrote it last.
    """

    stream_id: int
    start: int
    end: int
    node_id: int

    @property
    def is_open(self) -> bool:
        """Whether a node has the stream open."""
        return self.end == OPEN

    def is_open_beside(self, node_id: int) -> bool:
        """Whether a node other than this one has the stream open."""
        return self.is_open and self.node_id != node_id


def data_ends(catalog: ObjectCatalog, spans: Iterable[StreamSpan]) -> dict[int, int]:
    """Return the ends of the durable data of streams, by id. No request if no node has one of them open.

    Requests: otherwise those of `ObjectCatalog.stream_ends`.
    """
    ends = {span.stream_id: span.end for span in spans}
    open_ids = [stream_id for stream_id, end in ends.items() if end == OPEN]
    return ends | catalog.stream_ends(open_ids) if open_ids else ends


def segment_tails(catalog: ObjectCatalog, stream: Stream, ids: Integers) -> dict[int, int]:
    """Return what `SegmentHost.tails` returns, without a session. Requests: 1 a segment, and those of the data."""
    found = _ends_here(catalog, stream, ids)
    return {segment_id: found.get(segment_id, 0) for segment_id in ids.tolist()}


def known_ends(catalog: ObjectCatalog, stream: Stream, ids: Integers) -> dict[int, int]:
    """Return the ends of a stream's segments, by the newest catalog; none if its data is not in this catalog.

    For processes that do not know where the data is: it is here if the catalog knows one of the stream's segments, as a
    writer has opened it. Then segments that the catalog does not know are empty. Requests: 3, and those of
    `segment_tails` for these segments, the head and the active segments.
    """
    found = _ends_beside(catalog, stream, ids.tolist())
    return {segment_id: found.get(segment_id, 0) for segment_id in ids.tolist()} if found else {}


def refuse_data_here(store: ObjectStore, stream: StreamName, what: str) -> None:
    """Refuse an operation of a process without segments on a stream whose data is in the catalog of this store.

    Such a process would change the history, and leave the data as it is: nothing would be deleted, or merged. Requests:
    those of opening the stream and the catalog, and of `known_ends`.

    Args:
        store: the store of histories and catalog.
        stream: scope and name.
        what: the operation, as "truncate".

    Raises:
        InvalidArgument: the catalog has segments of the stream.
    """
    try:
        with ObjectCatalog.open(store) as catalog:
            found = _ends_beside(catalog, StreamStore.open(store).stream(*stream), ())
    except (CatalogMissing, NotInHistory):  # no data, or the stream is not whole
        return
    if found:
        raise InvalidArgument(
            f"expected data outside of this bucket's catalog to {what} of {'/'.join(stream)} without holding its"
            " segments, found segments of the stream in the catalog: do it in the process that holds them"
        )


def _ends_beside(catalog: ObjectCatalog, stream: Stream, ids: Iterable[int]) -> dict[int, int]:
    """As `_ends_here`, of these segments, those of the head and the active ones."""
    wanted = {*stream.head(), *stream.active_segments().ids.tolist(), *ids}
    return _ends_here(catalog, stream, np.array(sorted(wanted), dtype=np.int64))


def _ends_here(catalog: ObjectCatalog, stream: Stream, ids: Integers) -> dict[int, int]:
    """The ends of those segments that the catalog knows, by segment id."""
    bound = dict(zip(ids.tolist(), stream.segment_streams(ids.tolist()), strict=True))
    spans = stream_spans(catalog.parts, [stream_id for stream_id in bound.values() if stream_id is not None])
    ends = data_ends(catalog, spans.values())
    return {segment_id: ends[stream_id] for segment_id, stream_id in bound.items() if stream_id in ends}


def stream_spans(parts: CatalogParts, stream_ids: Collection[int]) -> dict[int, StreamSpan]:
    """Return the catalog's data of these streams; unknown streams are omitted. One request for each stream shard."""
    ids = np.fromiter(stream_ids, dtype=np.int64)
    if not len(ids):
        return {}
    numbers = np.unique(shards_of(ids, parts.format.stream_buckets)).tolist()
    spans: dict[int, StreamSpan] = {}
    for seen in map_bounded(parts.executor, lambda number: parts.keys.shard(number).read(), numbers):
        if seen is None:
            continue
        streams, ranges = seen.value.streams, seen.value.ranges
        starts = dict(zip(streams["stream_id"].tolist(), streams["start_offset"].tolist(), strict=True))
        rows = ranges[np.isin(ranges["stream_id"], ids)]  # ascending, so that the last range of each stream counts
        for stream_id, end, node_id in rows[["stream_id", "end", "node_id"]].tolist():
            spans[stream_id] = StreamSpan(stream_id, starts[stream_id], end, node_id)
    return spans


def node_of_offset(parts: CatalogParts, stream_id: int, offset: int) -> int | None:
    """Return the node whose range of a stream contains an offset; None if there is no such range. 1 request."""
    number = int(shards_of(np.array([stream_id], dtype=np.int64), parts.format.stream_buckets)[0])
    seen = parts.keys.shard(number).read()
    if seen is None:
        return None
    ranges = seen.value.ranges
    rows = ranges[(ranges["stream_id"] == stream_id) & (ranges["start"] <= offset)]
    if not len(rows):
        return None
    start, end, node_id = rows[["start", "end", "node_id"]][int(rows["start"].argmax())].tolist()
    return node_id if end == OPEN or start <= offset < end else None


def refuse_lost(parts: CatalogParts, node_id: int, session_number: int, stream_id: int) -> None:
    """Refuse a stream that a session considers its own, if it has missed that others continued or closed it. 1 request.

    Raises:
        StreamsReleased: another node has continued it.
        SessionFenced: a newer session of the node has it.
        CommitRefused: it is closed.
    """
    for _, found_node_id, session, end in read_last_ranges(parts, [stream_id])[
        ["stream_id", "node_id", "epoch", "end"]
    ].tolist():
        if found_node_id != node_id:
            raise StreamsReleased(node_id, (stream_id,))
        if session != session_number:
            expected = f"stream {stream_id}: expected to be open for session {session_number} of node {node_id}"
            raise SessionFenced(f"{expected}, found session {session}: another session was opened")
        if end != OPEN:
            raise CommitRefused(f"stream {stream_id}: expected to be open on node {node_id}, found it closed at {end}")


def refuse_elsewhere(what: str, name: StreamName, elsewhere: Mapping[int, StreamSpan]) -> None:
    """Refuse a step for segments, by id, that other nodes have open.

    Raises:
        SegmentsElsewhere: another node has a segment open.
    """
    if elsewhere:
        nodes = tuple(sorted({span.node_id for span in elsewhere.values()}))
        owners = {segment_id: span.node_id for segment_id, span in elsewhere.items()}
        raise SegmentsElsewhere(what, "/".join(name), nodes, some_ids(sorted(elsewhere)), owners)
