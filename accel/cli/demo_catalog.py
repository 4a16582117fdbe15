"""The catalogs of the demo: every image in it comes from versioned tables beside the objects.

A bucket is filled as a broker fills it, through a session of writing; or, where objects exist already, with ids that
others gave them and holes that no session would commit, by an import. Then it is opened once more, as a reader would
that knows nothing, and what reading the image costs is counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from accel.catalog import ObjectCatalog
from accel.catalog.import_read import ImportChoice
from accel.catalog.import_write import bucket_objects, commit_import, plan_import
from accel.system import SYSTEM
from loaders.format import RecordBatch
from loaders.layout import ObjectLayout
from loaders.object_writer import ObjectWriter
from loaders.store import CountingStore, ObjectStore
from loaders.tables import FormatRecord

NODE_ID = 4

FORMAT = FormatRecord(namespace=ObjectLayout().namespace, stream_buckets=4)
"""Buckets enough for some hundred streams."""

FIXED_CLOCK = replace(SYSTEM, clock=lambda: 1_800_000_000.0)
"""The same seed gives the same tables: a list would be some bytes longer or shorter with the time of day in it."""

Contents = Mapping[int, tuple[int, int]]
"""Stream id -> (start, end): what one object holds."""


@dataclass(frozen=True, slots=True)
class ImageCost:
    """What reading a whole image took, and finding out at once that nothing is new."""

    cold_requests: int
    cold_bytes: int
    unchanged_requests: int
    unchanged_bytes: int


def upload(store: ObjectStore, contents: Sequence[Contents]) -> list[int]:
    """Make a catalog, and write and commit objects one after another, as a broker does; gives their ids."""
    with _made(store) as catalog, catalog.open_node(NODE_ID) as writer:
        streams = {stream_id for held in contents for stream_id in held}
        writer.open_streams(streams)
        object_ids = []
        for held in contents:
            [object_id] = writer.prepare()
            written = write_object(store, object_id, held)
            writer.commit_upload(written.ref, written.ranges)
            object_ids.append(object_id)
        writer.close_streams(streams)
    return object_ids


def import_objects(store: ObjectStore, stream_id: int) -> None:
    """Make a catalog of the objects that are there, all of one node; its stream is closed, so that it has an end."""
    with _made(store) as catalog:
        commit_import(catalog, plan_import(catalog, bucket_objects(catalog), ImportChoice(NODE_ID)))
        with catalog.open_node(NODE_ID) as writer:
            writer.close_streams([stream_id])


def write_object(store: ObjectStore, object_id: int, held: Contents) -> ObjectWriter:
    """Write an object with the project's own writer."""
    with ObjectWriter(store, ObjectLayout(), object_id) as writer:
        for stream_id, (start, end) in sorted(held.items()):
            writer.write(stream_id, [RecordBatch(stream_id, 1, start, end - start, b"demo" * 16)])
    return writer


@contextmanager
def opened(store: ObjectStore) -> Iterator[tuple[ObjectCatalog, ImageCost]]:
    """The catalog as a reader opens it, and what its image cost; requests for objects are not made through it."""
    counting = CountingStore(store)
    with ObjectCatalog.open(counting) as catalog:
        catalog.refresh()
        cold = counting.reset().total
        catalog.refresh()
        unchanged = counting.reset().total
        yield (
            catalog,
            ImageCost(cold.requests, cold.received_bytes, unchanged.requests, unchanged.received_bytes),
        )


@contextmanager
def _made(store: ObjectStore) -> Iterator[ObjectCatalog]:
    ObjectCatalog.init(store, FORMAT, system=FIXED_CLOCK)
    with ObjectCatalog.open(store, system=FIXED_CLOCK) as catalog:
        yield catalog
