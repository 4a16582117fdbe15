"""A bucket with a catalog and one stream, written by processes that may die, and read without a reader's help."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import cache, cached_property
from itertools import count
from typing import Self

from accel import ReadAccelerator, Settings
from accel.catalog import CatalogSettings, ObjectCatalog
from accel.history.rules.configuration import OffsetUnit, StreamConfiguration
from accel.history.rules.values import parse_segment
from accel.history.store import HistorySettings, Stream, StreamStore
from accel.history.store.segment_host import StreamName
from accel.streams.acknowledgements import EventPlace
from accel.streams.rules.events import EventBatch, decode_events
from accel.streams.segment_directory import stream_spans
from accel.streams.segments_host import ObjectSegments
from accel.streams.settings import SegmentsSettings, StreamWriterSettings
from accel.streams.shared.auto_scale import AutoScaler
from accel.streams.time_index import SegmentTimeIndex
from accel.streams.writer import StreamWriter
from accel.system import SYSTEM, Components
from loaders.store import MemoryStore, ObjectStore
from loaders.store.decorated import Answer, DecoratedStore, StoreCall
from loaders.tables import FormatRecord

NODE = 4
NAME: StreamName = ("shop", "orders")
FORMAT = FormatRecord(namespace="test", stream_buckets=4)
CATALOG = CatalogSettings(parallel_requests=2, ids_block=64)
HISTORY = HistorySettings(ids_block=4)
NO_REPEATS = Settings(hedge_percent=0)
"""Second requests would wait by a real clock: seeded faults would not come in the same order."""
QUICK_SECONDS = 0.0005
"""Pauses of processes that work beside their callers."""
SMALL = SegmentsSettings(linger_seconds=5.0)
BESIDE = SegmentsSettings()
MOVES = 3, 2
"""After so many records a time index is moved, and to objects of at most so many."""


def with_moves(host: ObjectSegments, moves: tuple[int, int] | None = MOVES) -> ObjectSegments:
    """Let the time indexes of a host be moved so early."""
    if moves is not None:
        host._segments.move_records_min, host._segments.moved_records_max = moves
    return host


class Watched(DecoratedStore):
    """Calls `before` with each request before it is sent, and `after` behind it, before the answer is given."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.before: Callable[[StoreCall], object] = lambda _: None
        self.after: Callable[[StoreCall], object] = lambda _: None

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        self.before(call)
        answer = send()
        self.after(call)
        return answer

    def once_after(self, operation: str, part: str, act: Callable[[], object]) -> None:
        """Act behind the next such request whose key has this part."""

        def look(call: StoreCall) -> None:
            if call.operation == operation and part in call.key:
                self.after = lambda _: None
                act()

        self.after = look


def node_of(host: ObjectSegments, name: StreamName, segment_id: int) -> int | None:
    """The node that has a segment open; None if no node has."""
    host.lifetime.check()
    if host._segments.get(name, segment_id) is not None:
        return host.node_id
    stream_id = host._directory.stream_id(name, segment_id)
    span = stream_spans(host._catalog.parts, [stream_id]).get(stream_id)
    return span.node_id if span is not None and span.is_open else None


class Process:
    """One process: a catalog, a session of the node, and its histories."""

    def __init__(
        self,
        world: World,
        store: ObjectStore,
        settings: SegmentsSettings,
        node_id: int,
        moves: tuple[int, int] | None = None,
    ) -> None:
        system = world.system
        self.catalog = ObjectCatalog.open(store, settings=CATALOG, system=system)
        try:
            self.host = with_moves(
                ObjectSegments(self.catalog, store, node_id, settings=settings, system=system), moves
            )
        except BaseException:
            self.catalog.close()
            raise
        self.streams = StreamStore.open(store, system=system, settings=HISTORY, host=self.host)
        self._world = world

    @cached_property
    def scaling(self) -> AutoScaler:
        """Scales the streams of the host, in steps that the test takes."""
        made = AutoScaler(self.host)
        self.host.scale_by(made)
        return made

    def stream(self, name: StreamName = NAME) -> Stream:
        """A stream, opened with this host."""
        return self.streams.stream(*name)

    def writer(self, settings: StreamWriterSettings | None = None, name: StreamName = NAME) -> StreamWriter:
        """A writer of a stream."""
        return StreamWriter(self.stream(name), self.host, settings=settings or StreamWriterSettings())

    def take_all(self) -> None:
        """Take over what other nodes have open."""
        for segment_id in self.stream().active_segments().ids.tolist():
            node_id = node_of(self.host, NAME, segment_id)
            if node_id not in (None, self.host.node_id):
                assert node_id is not None
                self.host.take_over(NAME, {segment_id: node_id})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.die()

    def die(self) -> None:
        """Stop without saying goodbye to the store."""
        self.host.stop()
        self.catalog.close()


class World:
    """A bucket.

    Args:
        store: where everything lies; in memory by default.
        nonces: the first one, and those after it; above 1 there is a catalog already.
    """

    def __init__(self, store: ObjectStore | None = None, nonces: int = 1) -> None:
        self.store: ObjectStore = MemoryStore() if store is None else store
        self.seconds = 1_000.0
        self.settings = SMALL
        self.moves = MOVES
        self.on_sleep: Callable[[], object] = lambda: None
        self.numbers = count(nonces)
        self.system = Components(
            timer=lambda: self.seconds,
            sleep=self.sleep,
            jitter=lambda: 0.5,
            clock=lambda: self.seconds,
            nonce=lambda: next(self.numbers).to_bytes(16, "big"),
            start=lambda work, _: work(),
        )
        if nonces == 1:
            ObjectCatalog.init(self.store, FORMAT, settings=CATALOG, system=self.system)

    def work_beside(self) -> None:
        """From now on time goes by itself, quickly, and processes have threads that do their work beside them."""
        self.settings = BESIDE
        self.system = replace(
            self.system,
            timer=SYSTEM.timer,
            sleep=lambda seconds: SYSTEM.sleep(min(seconds, QUICK_SECONDS)),
            clock=SYSTEM.clock,
            wait=lambda event, seconds: event.wait(min(seconds, QUICK_SECONDS)),
            start=SYSTEM.start,
        )

    def sleep(self, seconds: float) -> None:
        """Time goes by, and something happens meanwhile."""
        self.seconds += seconds
        self.on_sleep()

    def start(
        self,
        store: ObjectStore | None = None,
        settings: SegmentsSettings | None = None,
        node_id: int = NODE,
        moves: tuple[int, int] | None = None,
    ) -> Process:
        """A new process, on this store or on one around it; with other settings time indexes are moved as by default.

        Args:
            store, settings, node_id: those of the process.
            moves: see `MOVES`.
        """
        moves = self.moves if settings is None else moves
        return Process(self, store or self.store, settings or self.settings, node_id, moves)

    process = start
    """For `with`: the process dies in the end."""

    def create(
        self,
        segments: int = 2,
        unit: OffsetUnit = OffsetUnit.RECORDS,
        name: StreamName = NAME,
        by: Process | None = None,
    ) -> Self:
        """Make scope and stream, and their segments."""
        if by is None:
            with self.process() as process:
                return self.create(segments, unit, name, process)
        by.streams.create_scope(name[0])
        wanted = StreamConfiguration(min_segments=1, offset_unit=unit)
        by.streams.create_stream(*name, wanted, int(self.seconds * 1000), segments=segments)
        return self

    def asking(self, name: StreamName = NAME) -> Stream:
        """A stream as a process without a host sees it."""
        return StreamStore.open(self.store, system=self.system, settings=HISTORY).stream(*name)

    # What a reader finds

    def batches(self, name: StreamName = NAME) -> dict[int, list[EventBatch]]:
        """All that is durable of a stream: batches by segment id, from their beginning."""
        with ObjectCatalog.open(self.store, settings=CATALOG, system=self.system) as catalog:
            stream = StreamStore.open(self.store, system=self.system, settings=HISTORY).stream(*name)
            unit = stream.configuration().offset_unit
            epochs = [stream.epochs.epoch(number) for number in range(stream.current_epoch().epoch + 1)]
            ids = {each for epoch in epochs for each in epoch.segments.ids.tolist()}
            image = catalog.refresh()
            found = {}
            with ReadAccelerator(catalog.images(), self.store, settings=NO_REPEATS, system=self.system) as accelerator:
                for segment_id in sorted(ids):
                    stream_id = stream.segment_stream(segment_id)
                    start = image.streams[stream_id].start_offset if stream_id in image.streams else 0
                    reading = accelerator.read(stream_id, start) if stream_id in image.streams else ()
                    found[segment_id] = [decode_events(batch, segment_id, unit)[0] for batch in reading]
            return found

    def payloads(self, name: StreamName = NAME) -> list[bytes]:
        """All durable events of a stream; those of one key in their order."""
        return [event.payload for batches in self.batches(name).values() for batch in batches for event in batch]

    def places(self) -> dict[bytes, EventPlace]:
        """Where each durable event stands."""
        return {
            event.payload: EventPlace(segment_id, event.offset)
            for segment_id, batches in self.batches().items()
            for batch in batches
            for event in batch
        }

    def check_times(self) -> dict[int, list[EventBatch]]:
        """The time indexes say the same as the batches: those of sealed segments in objects, the others restored.

        Returns:
            As `batches`.
        """
        with self.process() as process:
            stream = process.stream()
            process.host.open_segments(NAME, stream.active_segments().ids.tolist())
            active = {each.segment_id: each.index for each in process.host._segments.listed()}
            everything = self.batches()
            for segment_id, batches in everything.items():
                stream_id = stream.segment_stream(segment_id)
                index = active.get(segment_id) or SegmentTimeIndex.open(self.store, stream_id, process.host.clock)
                found = [tuple(row) for piece in index.pieces() for row in piece.rows.tolist()]
                assert found == [(batch.next_offset, batch.value) for batch in batches], segment_id
        return everything

    def transaction_keys(self) -> list[str]:
        """What lies of transactions' data."""
        return [info.key for info in self.store.list("accel/transactions/")]


@cache
def _created(segments: int, unit: OffsetUnit) -> World:
    return World().create(segments, unit)


def created(segments: int = 2, unit: OffsetUnit = OffsetUnit.RECORDS) -> World:
    """A world with a stream, which is made once; each time a copy of it."""
    made = _created(segments, unit)
    copied = World(nonces=next(copy(made.numbers)))
    for info in made.store.list(""):
        copied.store.put(info.key, made.store.get(info.key).body)
    copied.seconds = made.seconds
    return copied


def ids_of(*names: str) -> list[int]:
    """Segment ids from text."""
    return [parse_segment(each) for each in names]
