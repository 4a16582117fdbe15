"""The world of tests of a catalog: a bucket, a clock that moves when told, the catalog in it, and real objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from typing import Protocol, TypeVar

from accel import ReadAccelerator
from accel.catalog import CatalogSettings, NodeWriter, ObjectCatalog
from accel.catalog.collect import CollectionReport, collect, plan_collection
from accel.catalog.parts import existing_format
from accel.catalog.records import NodeList
from accel.catalog.verify import Verification, verify
from accel.image import StreamObject
from accel.system import SYSTEM, Components
from accel.testing import Crash, CrashStore
from loaders.format import MissingBytes, open_tail
from loaders.layout import Mark, ObjectLayout
from loaders.object_ref import ObjectRef, Proof
from loaders.store import CountingStore, MemoryStore, ObjectStore
from loaders.store.decorated import WRITES, DecoratedStore, StoreCall
from loaders.tables import FormatRecord
from range_index import ObjectRanges
from tests.accel.lookup.cluster import system
from tests.accel.lookup.driving import Clock
from tests.builders import write_set_object
from tests.examples import is_whole

NODE = 4
NAMESPACE = "test"
LAYOUT = ObjectLayout(namespace=NAMESPACE)
FORMAT = FormatRecord(namespace=NAMESPACE, stream_buckets=4)
START_SECONDS = 1_800_000_000.0
HOUR_SECONDS = 3600.0
DAY_SECONDS = 24 * HOUR_SECONDS

Spans = Mapping[int, tuple[int, int]]
Rows = Iterable[tuple[int, int, int]]
"""(stream, start, end) of each block."""

Held = list[tuple[int, int, int]]
"""(object, start, end)."""

Answer = TypeVar("Answer")


class World:
    """A bucket with a catalog.

    Args:
        store: where everything lies; by default in memory, where objects get their times from the world's clock.
        settings: of every catalog that is opened here.
        clock: its own by default.
    """

    def __init__(
        self, store: ObjectStore | None = None, settings: CatalogSettings | None = None, *, clock: Clock | None = None
    ) -> None:
        self.clock = clock or Clock(START_SECONDS)
        self.memory = MemoryStore(clock=self.clock) if store is None else store
        self.store = CountingStore(self.memory)
        self.settings = settings or CatalogSettings(parallel_requests=4, ids_block=64)
        numbers = count(1)
        self.system: Components = replace(
            system(self.clock), clock=self.clock, nonce=lambda: next(numbers).to_bytes(16, "big")
        )
        ObjectCatalog.init(self.store, FORMAT, settings=self.settings, system=self.system)

    def open(self, store: ObjectStore | None = None) -> ObjectCatalog:
        """The catalog, as another process would open it."""
        return ObjectCatalog.open(store or self.store, settings=self.settings, system=self.system)

    @contextmanager
    def session(
        self, *stream_ids: int, node_id: int = NODE, store: ObjectStore | None = None
    ) -> Iterator[tuple[ObjectCatalog, NodeWriter]]:
        """The catalog, and a session of a node with these streams open, which is closed in the end."""
        with self.open(store) as catalog, catalog.open_node(node_id) as writer:
            if stream_ids:
                writer.open_streams(stream_ids)
            yield catalog, writer

    def wait(self, seconds: float) -> None:
        """Let time go by."""
        self.clock.seconds += seconds

    # Objects

    def mark(self, object_id: int) -> str:
        """A mark as a writer of this catalog sets it."""
        return new_mark(self.memory, object_id, self.system)

    def put(self, object_id: int, rows: Rows, *, is_marked: bool = True) -> tuple[ObjectRef, ObjectRanges]:
        """Write an object of blocks, in this order; gives what its writer knows of it."""
        body = write_set_object(list(rows))
        self.store.put(LAYOUT.object_key(object_id), body, mark=self.mark(object_id) if is_marked else None)
        index = open_tail(body, object_size_bytes=len(body), key=str(object_id))
        assert not isinstance(index, MissingBytes)
        proof = Proof(LAYOUT.object_key(object_id), self.store)  # as an `ObjectWriter` of this process gives it
        return ObjectRef(object_id, len(body), index.nbytes, proof=proof), index.object_ranges()

    def put_stream_object(self, object_id: int, stream_id: int, start: int, end: int) -> StreamObject:
        """Write an object of one stream."""
        ref, _ = self.put(object_id, [(stream_id, start, end)])
        return StreamObject(ref, start, end)

    def upload(self, writer: NodeWriter, spans: Spans) -> ObjectRef:
        """Write and commit an object of these ranges."""
        [object_id] = writer.prepare()
        ref, ranges = self.put(object_id, [(stream_id, *spans[stream_id]) for stream_id in sorted(spans)])
        writer.commit_upload(ref, ranges)
        return ref

    def put_promised(self, catalog: ObjectCatalog, rows: Rows, node_id: int = NODE) -> ObjectRef:
        """Write an object whose id is promised to a compaction."""
        [object_id] = catalog.prepare(node_id, 1)
        return self.put(object_id, rows)[0]

    def merge(self, catalog: ObjectCatalog, sources: Iterable[ObjectRef], rows: Rows, node_id: int = NODE) -> ObjectRef:
        """Write and commit an object in the place of others."""
        target = self.put_promised(catalog, rows, node_id)
        catalog.commit_compaction(node_id, list(sources), target)
        return target

    def object_ids(self) -> set[int]:
        """The objects that lie in the bucket."""
        found = (LAYOUT.parse_object_key(info.key) for info in self.memory.list(""))
        return {object_id for object_id in found if object_id is not None}

    def lose(self, object_id: int) -> None:
        """Delete an object behind the catalog's back."""
        self.memory.delete(LAYOUT.object_key(object_id))

    def bodies(self) -> dict[str, bytes]:
        """All that lies in the bucket."""
        return {info.key: self.memory.get(info.key).body for info in self.memory.list("")}

    # What others do

    def collect(self, store: ObjectStore | None = None) -> CollectionReport:
        """Delete what nobody needs any more."""
        with self.open(store) as catalog:
            return collect(catalog, plan_collection(catalog))

    def verify(self) -> Verification:
        """Look at everything."""
        with self.open() as catalog:
            return verify(catalog)

    def payloads(self, stream_id: int) -> list[bytes]:
        """What somebody reads of a stream who has just come."""
        with self.open() as catalog, ReadAccelerator(catalog.images(), self.store, system=self.system) as reader:
            return [each.payload for each in reader.read(stream_id, 0)]


def new_mark(store: ObjectStore, object_id: int, system: Components = SYSTEM) -> str:
    """A mark as a writer of the catalog in this store sets it."""
    return str(Mark(existing_format(store).catalog_id, object_id, system.nonce().hex()))


def list_of_node(catalog: ObjectCatalog, node_id: int = NODE) -> NodeList:
    """The list as it stands."""
    seen = catalog.parts.keys.node_list(node_id).read()
    assert seen is not None
    return seen.value


def held(catalog: ObjectCatalog, stream_id: int) -> Held:
    """What an image says of a stream, object by object, found by opening everything."""
    image = catalog.refresh()
    stream = image.streams[stream_id]
    found = [(each.ref.object_id, each.start, each.end) for each in stream.stream_objects]
    for node in image.nodes.values():
        for opened in catalog.parts.open_all(node.node_id, node.refs):
            span = opened.ranges.range_of(stream_id)
            if span is not None:
                found.append((opened.ref.object_id, span.start, span.end))
    return sorted(found, key=lambda each: each[1])


def spans_held(catalog: ObjectCatalog, stream_id: int) -> list[tuple[int, int]]:
    """The same without the objects."""
    return [(start, end) for _, start, end in held(catalog, stream_id)]


# Stores


class Watched(DecoratedStore):
    """Lets somebody hear of each request before it is sent, who may refuse it."""

    def __init__(self, store: ObjectStore, hear: Callable[[StoreCall], object]) -> None:
        super().__init__(store)
        self._hear = hear

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        self._hear(call)
        return send()


def is_write(call: StoreCall) -> bool:
    """Whether a request changes anything."""
    return call.operation in WRITES


class Interrupted(DecoratedStore):
    """Lets somebody act before one of the requests that fit.

    Attributes:
        fitting: how many did so far.
    """

    def __init__(
        self,
        store: ObjectStore,
        act: Callable[[], object],
        number: int = 0,
        fits: Callable[[StoreCall], bool] = is_write,
    ) -> None:
        super().__init__(store)
        self._act = act
        self._number = number
        self._fits = fits
        self.fitting = 0

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        if self._fits(call):
            self.fitting += 1
            if self.fitting - 1 == self._number:
                self._act()
        return send()


# Sweeps


class HasStore(Protocol):
    """Something that lies in a store."""

    @property
    def store(self) -> ObjectStore: ...


Made = TypeVar("Made", bound=HasStore)


def each_crash(
    make: Callable[[], Made], act: Callable[[Made, ObjectStore], object], *, writes_min: int = 1, every: int = 1
) -> Iterator[tuple[Made, bool]]:
    """What is left if a process dies before its first write, before its second one, ...; the last one does not die.

    Args:
        make: makes what the process works on.
        act: what it does, over a store that ends it.
        writes_min: how many writes it makes at least.
        every: so many writes further it dies the next time; at each write with ACCEL_TEST_EXAMPLES_FACTOR above 1.

    Yields:
        What was made, and whether the process has died.
    """
    for number in count(0, 1 if is_whole() else every):
        made = make()
        store = CrashStore(made.store, number)
        with suppress(Crash):
            act(made, store)
        print(f"the process died before write {number}: {store.has_crashed}")  # noqa: T201 - shown if a test fails
        yield made, store.has_crashed
        if not store.has_crashed:
            assert number >= writes_min
            return
