"""A stream that a host writes and readers read, in one process, over any store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from inspect import iscoroutine
from typing import Any, Self, TypeAlias, cast
from uuid import UUID

import pytest

from accel import AsyncStreamReader, FormatRecord, ObjectCatalog, ReadAccelerator, StreamReader, StreamWriter
from accel.catalog import CatalogSettings
from accel.errors import AccelError
from accel.history.rules.configuration import OffsetUnit, StreamConfiguration
from accel.history.rules.segments import split_range
from accel.history.store import Stream, StreamStore
from accel.streams.rules.events import Event
from accel.streams.rules.reader_core import AskEnd, Fill, SegmentEnd, SegmentEvents
from accel.streams.rules.settings import ReaderSettings
from accel.streams.segment_source import ObjectSegmentSource, SegmentSource
from accel.streams.segments_host import ObjectSegments
from accel.streams.settings import SegmentsSettings
from accel.system import SYSTEM, Components
from loaders.store import ObjectStore
from tests.accel.streams.writer.world import with_moves

NODE = 4
SCOPE, NAME = "shop", "orders"
KEYS = 12
QUICK = ReaderSettings(idle_seconds=0.005)

Kind: TypeAlias = type[StreamReader] | type[AsyncStreamReader]

for_threads_and_tasks = pytest.mark.parametrize("kind", [StreamReader, AsyncStreamReader], ids=["threads", "tasks"])


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

    def fill(self, count: int, flushes: int = 1) -> None:
        """Write events of all keys in turn, so many for each flush."""
        with StreamWriter(self.stream, self.host) as writer:
            for _ in range(flushes):
                self.write(writer, count)

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

    def source(self, **options: Any) -> ObjectSegmentSource:
        """Where readers get events from."""
        return ObjectSegmentSource(self.stream, self.accelerator, self.store, **options)

    def reader(
        self, from_cut: Mapping[int, int] | None = None, *, source: SegmentSource | None = None, **options: Any
    ) -> StreamReader:
        """A reader of the whole stream from a cut on."""
        chosen = {"settings": QUICK, "from_cut": from_cut, **options}
        return StreamReader(self.stream, self.source() if source is None else source, **chosen)

    @contextmanager
    def reader_of(self, kind: Kind, source: SegmentSource | None = None, **options: Any) -> Iterator[StreamReader]:
        """A reader for threads, or one for asyncio that is called as if it were for threads."""
        made = kind(self.stream, self.source() if source is None else source, **{"settings": QUICK, **options})
        if isinstance(made, StreamReader):
            with made:
                yield made
        else:
            with asyncio.Runner() as loop, closing(Awaited(made, loop)) as awaited:
                yield cast("StreamReader", awaited)

    def _next(self) -> tuple[int, bytes]:
        key, payload = self.count % KEYS, b"%d:%d" % (self.count % KEYS, self.count)
        self.count += 1
        return key, payload


class Around:
    """A source around another one."""

    def __init__(self, inner: SegmentSource) -> None:
        self.inner = inner

    def fill(self, fill: Fill) -> SegmentEvents:
        return self.inner.fill(fill)

    def ask_end(self, step: AskEnd) -> SegmentEnd:
        return self.inner.ask_end(step)


class Awaited:
    """A reader for asyncio, called as one for threads is: each call is awaited in an event loop."""

    def __init__(self, reader: Any, loop: asyncio.Runner) -> None:
        self._reader, self._loop = reader, loop

    def __iter__(self) -> Awaited:
        return self

    def __next__(self) -> Event:
        try:
            event: Event = self._loop.run(self._reader.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None
        return event

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._reader, name)
        return self._waiting(found) if callable(found) else found

    def _waiting(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: object, **options: object) -> Any:
            answer = call(*given, **options)
            return self._loop.run(answer) if iscoroutine(answer) else answer

        return called


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


def drained(reader: StreamReader, passing: type[AccelError]) -> Iterator[Event]:
    """All events, in spite of errors that pass."""
    while not reader.is_finished:
        with suppress(passing):
            if (event := reader.next_event()) is not None:
                yield event
