"""The segments that a session writes: found in the history and the catalog, their time indexes restored.

A segment that is not known to the catalog is opened on the node; one that is open there goes on where its data ends;
one that is closed is sealed, and has no place here; one that another node has open is left to that node.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple

from accel.catalog import NodeWriter, ObjectCatalog
from accel.errors import CommitRefused, InconsistentAnswer, SegmentsElsewhere
from accel.history.rules.ids import segment_text, some_ids
from accel.history.store.hosts import StreamName
from accel.lookup.accelerator import ReadAccelerator
from accel.streams.clock import HostClock
from accel.streams.times.part_cache import PartCache
from accel.streams.times.segment_index import SegmentTimeIndex
from accel.streams.writing.append_buffer import OpenSegment
from accel.streams.writing.segment_directory import SegmentDirectory
from accel.streams.writing.stream_spans import StreamSpan, stream_spans
from accel.streams.writing.tail_times import restore_times
from accel.streams.writing.transaction_objects import erase_keys
from accel.streams.writing.writer_settings import SegmentsSettings
from accel.system import Components
from loaders.backoff import Backoff
from loaders.layout import time_part_prefix
from loaders.lifetime import Threads
from loaders.store import ObjectStore


class FoundSegments(NamedTuple):
    """Segments as they were found.

    Args:
        open: those that take appends, by id.
        sealed: where the streams of the others begin and end, by id.
        elsewhere: those that another node has open, by id.
    """

    open: dict[int, OpenSegment]
    sealed: dict[int, StreamSpan]
    elsewhere: dict[int, StreamSpan]

    def refuse_elsewhere(self, what: str, name: StreamName) -> None:
        """Refuse to go on with a step that others must do.

        Raises:
            SegmentsElsewhere: another node has some of the segments open.
        """
        refuse_elsewhere(what, name, self.elsewhere)


@dataclass(eq=False)
class OpenSegments:
    """Opens segments, and keeps those that are open.

    Threads: any for `get`, `listed` and `forget`; one at a time for `find`, as it calls the node's session.

    Args:
        catalog: where objects are listed.
        node: the session.
        store: where everything lies.
        directory: knows streams and segments.
        clock: of the host.
        settings: bounds.
        backoff: for writes in doubt.
        system: clock, sleep and chance.
    """

    catalog: ObjectCatalog
    node: NodeWriter
    store: ObjectStore
    directory: SegmentDirectory
    clock: HostClock
    settings: SegmentsSettings
    backoff: Backoff
    system: Components

    def __post_init__(self) -> None:
        self._lock = Lock()
        self._open: dict[tuple[StreamName, int], OpenSegment] = {}
        self._accelerator: ReadAccelerator | None = None
        self._cache = PartCache(self.settings.cache_bytes)
        # Threads of its own: those of the catalog are needed by what is done in here, and would wait for themselves.
        self._executor = Threads(self.settings.parallel_segments, "accel-segments")

    @property
    def accelerator(self) -> ReadAccelerator:
        """Reads what earlier sessions wrote; made when it is first needed, by `find`, one at a time."""
        if self._accelerator is None:
            self._accelerator = ReadAccelerator(self.catalog.images(), self.store, system=self.system)
        return self._accelerator

    def get(self, name: StreamName, segment_id: int) -> OpenSegment | None:
        """A segment that is open here already."""
        with self._lock:
            return self._open.get((name, segment_id))

    def listed(self) -> list[OpenSegment]:
        """All that are open here."""
        with self._lock:
            return list(self._open.values())

    def forget(self, segments: Iterable[OpenSegment]) -> None:
        """Segments that are not written any more."""
        with self._lock:
            for each in segments:
                self._open.pop((each.name, each.segment_id), None)

    def find(self, name: StreamName, ids: Collection[int], *, is_step: bool = False) -> FoundSegments:
        """Open segments; those that are sealed are told apart.

        Args:
            name: scope and stream.
            ids: of the segments.
            is_step: whether this is a step of a workflow, for which those that another node has open are told apart,
                too. For writers they are refused, before anything is opened.

        Requests: for those that are not open here yet, 1 or 2 for each to the history and its time index, what reading
        the data behind the index costs, and 1 for each bucket of the catalog that they lie in.

        Raises:
            CommitRefused: a segment that another node has open.
            NotInHistory: there is no such segment.
        """
        found = {each: known for each in ids if (known := self.get(name, each)) is not None}
        stream_ids = {each: self.directory.stream_id(name, each) for each in ids if each not in found}
        spans = stream_spans(self.catalog.parts, stream_ids.values())
        known_spans = {each: spans[stream_id] for each, stream_id in stream_ids.items() if stream_id in spans}
        sealed = {each: span for each, span in known_spans.items() if not span.is_open}
        elsewhere = {each: span for each, span in known_spans.items() if span.is_open_beside(self.node.node_id)}
        if elsewhere and not is_step:
            first, span = next(iter(elsewhere.items()))
            expected = f"segments of {'/'.join(name)} that no node but {self.node.node_id} has open"
            raise CommitRefused(f"expected {expected}, found {segment_text(first)} open on node {span.node_id}")
        to_open = {each: stream_ids[each] for each in stream_ids if each not in sealed and each not in elsewhere}
        self.begin(to_open.values())
        opened = list(self._executor.map(lambda item: self._opened(name, *item), to_open.items()))
        self._restore([each for each in opened if each.index.end_offset < each.end], spans)
        found |= {each.segment_id: each for each in opened}
        with self._lock:
            self._open.update({(name, each): segment for each, segment in found.items()})
        return FoundSegments(found, sealed, elsewhere)

    def begin(self, stream_ids: Collection[int]) -> None:
        """See to it that streams are open on the node.

        Raises:
            CommitRefused: one that another node has open.
        """
        absent = [each for each in stream_ids if self.node.end(each) is None]
        if absent:
            self.node.open_streams(absent)

    def durable_end(self, segment: OpenSegment) -> int:
        """Where the durable data of a segment ends.

        Raises:
            CommitRefused: the node does not write it any more.
        """
        end = self.node.end(segment.stream_id)
        if end is None:
            raise CommitRefused(f"expected a stream that is open on node {self.node.node_id}, found {segment}")
        return end

    def move_times(self, segments: Collection[OpenSegment]) -> None:
        """Move the time records of durable data to objects, side by side."""

        def move(segment: OpenSegment) -> int:
            return segment.index.move(self.durable_end(segment))

        list(self._executor.map(move, segments))

    def delete_times(self, stream_ids: Iterable[int]) -> None:
        """Delete the time indexes of streams. 1 request for 1,000 parts, and 1 to list as many."""
        for each in stream_ids:
            keys = [info.key for info in self.store.list(time_part_prefix(each))]
            erase_keys(self.store, keys[::-1])  # what is left of a chain, if that stops half-way, is one

    def close(self) -> None:
        """Stop its threads, and reading."""
        self._executor.shutdown(wait=True)
        if self._accelerator is not None:
            self._accelerator.close()

    def _opened(self, name: StreamName, segment_id: int, stream_id: int) -> OpenSegment:
        index = SegmentTimeIndex.open(
            self.store,
            stream_id,
            self.clock,
            cache=self._cache,
            backoff=self.backoff,
            moved_records_max=self.settings.moved_records_max,
        )
        end = self.node.end(stream_id) or 0
        if index.end_offset > end:
            found = f"one up to {index.end_offset}: was a commit undone?"
            raise InconsistentAnswer(f"stream {stream_id}: expected a time index up to its end {end}, found {found}")
        return OpenSegment(name, segment_id, stream_id, self.directory.unit(name), index, end)

    def _restore(self, segments: Collection[OpenSegment], spans: Mapping[int, StreamSpan]) -> None:
        if not segments:
            return
        accelerator = self.accelerator

        def restore(segment: OpenSegment) -> int:
            start = spans[segment.stream_id].start
            return restore_times(segment.index, accelerator, segment.stream_id, segment.unit, start, segment.end)

        list(self._executor.map(restore, segments))


def refuse_elsewhere(what: str, name: StreamName, elsewhere: Mapping[int, StreamSpan]) -> None:
    """Refuse a step for segments, by id, that other nodes have open.

    Raises:
        SegmentsElsewhere: there are some.
    """
    if elsewhere:
        nodes = tuple(sorted({span.node_id for span in elsewhere.values()}))
        raise SegmentsElsewhere(what, "/".join(name), nodes, some_ids(sorted(elsewhere)))
