"""A small world for tests of the catalog: a store in memory, a clock that moves when told, and real objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import count

from accel.catalog import CatalogSettings, NodeWriter, ObjectCatalog
from accel.catalog.parts import existing_format
from accel.image import StreamObject
from accel.system import SYSTEM, Components
from loaders.format import MissingBytes, open_tail
from loaders.layout import Mark, ObjectLayout
from loaders.object_ref import ObjectRef, Proof
from loaders.store import CountingStore, MemoryStore, ObjectStore
from loaders.tables import FormatRecord
from range_index import ObjectRanges
from tests.accel.lookup.cluster import system
from tests.accel.lookup.driving import Clock
from tests.builders import write_set_object

NAMESPACE = "test"
LAYOUT = ObjectLayout(namespace=NAMESPACE)
FORMAT = FormatRecord(namespace=NAMESPACE, stream_buckets=4)
START_SECONDS = 1_800_000_000.0

Spans = Mapping[int, tuple[int, int]]


class World:
    """A bucket with a catalog.

    Args:
        store: where everything lies; in memory by default.
        settings: of every catalog that is opened here.
    """

    def __init__(self, store: ObjectStore | None = None, settings: CatalogSettings | None = None) -> None:
        self.memory = MemoryStore() if store is None else store
        self.store = CountingStore(self.memory)
        self.clock = Clock()
        self.clock.seconds = START_SECONDS
        self.settings = settings or CatalogSettings(parallel_requests=4, ids_block=64)
        numbers = count(1)
        self.system: Components = replace(
            system(self.clock), clock=self.clock, nonce=lambda: next(numbers).to_bytes(16, "big")
        )
        ObjectCatalog.init(self.store, FORMAT, settings=self.settings, system=self.system)

    def open(self, store: ObjectStore | None = None) -> ObjectCatalog:
        """The catalog, as another process would open it."""
        return ObjectCatalog.open(store or self.store, settings=self.settings, system=self.system)

    def mark(self, object_id: int) -> str:
        """A mark as a writer of this catalog sets it."""
        return new_mark(self.memory, object_id, self.system)

    def put(
        self, object_id: int, rows: Iterable[tuple[int, int, int]], *, is_marked: bool = True
    ) -> tuple[ObjectRef, ObjectRanges]:
        """Write an object of (stream, start, end) blocks, in this order; gives what its writer knows of it."""
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


def new_mark(store: ObjectStore, object_id: int, system: Components = SYSTEM) -> str:
    """A mark as a writer of the catalog in this store sets it."""
    return str(Mark(existing_format(store).catalog_id, object_id, system.nonce().hex()))


def held(catalog: ObjectCatalog, stream_id: int) -> list[tuple[int, int, int]]:
    """What an image says of a stream, object by object: (object id, start, end), found by opening everything."""
    image = catalog.refresh()
    stream = image.streams[stream_id]
    found = [(each.ref.object_id, each.start, each.end) for each in stream.stream_objects]
    for node in image.nodes.values():
        for opened in catalog.parts.open_all(node.node_id, node.refs):
            span = opened.ranges.range_of(stream_id)
            if span is not None:
                found.append((opened.ref.object_id, span.start, span.end))
    return sorted(found, key=lambda each: each[1])
