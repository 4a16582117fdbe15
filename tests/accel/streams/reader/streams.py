"""A stream that a host writes and readers read, in one process, over any store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

from accel import FormatRecord, ObjectCatalog, ReadAccelerator, StreamReader, StreamWriter
from accel.catalog import CatalogSettings
from accel.history.rules.configuration import OffsetUnit, StreamConfiguration
from accel.history.rules.segments import split_range
from accel.history.store import Stream, StreamStore
from accel.streams.rules.events import Event
from accel.streams.rules.settings import ReaderSettings
from accel.streams.segment_source import ObjectSegmentSource
from accel.streams.segments_host import ObjectSegments
from accel.streams.settings import SegmentsSettings
from accel.system import SYSTEM, Components
from loaders.store import ObjectStore
from tests.accel.streams.writer.world import with_moves

NODE = 4
SCOPE, NAME = "shop", "orders"
KEYS = 12
QUICK = ReaderSettings(idle_seconds=0.005)


@dataclass
class Shop:
    """A stream with its host, and a memory of all that was written to it.

    Attributes:
        store: where everything lies.
        catalog: of that store.
        host: holds the segments.
        stream: the stream.
        accelerator: of the readers.
        written: of each key, the payloads in order.
    """

    store: ObjectStore
    catalog: ObjectCatalog
    host: ObjectSegments
    stream: Stream
    accelerator: ReadAccelerator
    written: dict[int, list[bytes]]
    count: int = 0

    def write(self, writer: StreamWriter, count: int) -> None:
        """Write and flush events of all keys in turn."""
        for _ in range(count):
            key, payload = self._next()
            writer.write(payload, key=f"key {key}")
            self.written[key].append(payload)
        self.flush(writer)

    def write_apart(self, writer: StreamWriter, count: int) -> tuple[UUID, list[tuple[int, bytes]]]:
        """Begin a transaction and write to it; what it holds counts as written when `commit` is called."""
        transaction, events = writer.begin_transaction(), []
        for _ in range(count):
            key, payload = self._next()
            writer.write(payload, key=f"key {key}", transaction=transaction)
            events.append((key, payload))
        return transaction, events

    def committed(self, events: Iterable[tuple[int, bytes]]) -> None:
        """The transaction of these events was committed."""
        for key, payload in events:
            self.written[key].append(payload)
        self.catalog.refresh()

    def flush(self, writer: StreamWriter) -> None:
        """Make it durable, and let readers see it."""
        writer.flush()
        self.catalog.refresh()

    def split(self, at: int = 0) -> None:
        """Split a segment in two."""
        segment = self.stream.active_segments()[at]
        self.stream.scale([segment.id], list(split_range(segment.key_start, segment.key_end, 2)))

    def merge(self) -> None:
        """Merge two segments that touch."""
        segments = sorted(self.stream.active_segments(), key=lambda each: each.key_start)
        one, other = segments[:2]
        self.stream.scale([one.id, other.id], [(one.key_start, other.key_end)])

    def source(self) -> ObjectSegmentSource:
        """Where readers get events from."""
        return ObjectSegmentSource(self.stream, self.accelerator, self.store)

    def reader(self, from_cut: Mapping[int, int] | None = None, *, follow: bool = False) -> StreamReader:
        """A reader of the whole stream from a cut on."""
        return StreamReader(self.stream, self.source(), from_cut=from_cut, follow=follow, settings=QUICK)

    def _next(self) -> tuple[int, bytes]:
        key, payload = self.count % KEYS, b"%d:%d" % (self.count % KEYS, self.count)
        self.count += 1
        return key, payload


@contextmanager
def shop(
    store: ObjectStore,
    segments: int = 2,
    unit: OffsetUnit = OffsetUnit.RECORDS,
    *,
    system: Components = SYSTEM,
    linger_seconds: float = 0.001,
) -> Iterator[Shop]:
    """A new stream in an empty store."""
    ObjectCatalog.init(store, FormatRecord(namespace="reading", stream_buckets=4))
    settings = SegmentsSettings(linger_seconds=linger_seconds)
    with (
        ObjectCatalog.open(store, settings=CatalogSettings(parallel_requests=2)) as catalog,
        ObjectSegments(catalog, store, NODE, settings=settings, system=system) as host,
        ReadAccelerator(catalog.images(), store) as accelerator,
    ):
        streams = StreamStore.open(store, host=with_moves(host, (3, 4)))
        streams.create_scope(SCOPE)
        wanted = StreamConfiguration(min_segments=1, offset_unit=unit)
        stream = streams.create_stream(SCOPE, NAME, wanted, int(SYSTEM.clock() * 1000), segments=segments)
        yield Shop(store, catalog, host, stream, accelerator, {key: [] for key in range(KEYS)})


def by_key(events: Iterable[Event]) -> dict[int, list[bytes]]:
    """Payloads by key, in the order in which they were read."""
    found: dict[int, list[bytes]] = {key: [] for key in range(KEYS)}
    for event in events:
        found[int(event.payload.split(b":")[0])].append(event.payload)
    return found
