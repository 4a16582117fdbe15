"""Buckets with a catalog for tests on Spark."""

from __future__ import annotations

import zlib

from click.testing import Result

from accel import ReadAccelerator
from accel.catalog import ObjectCatalog
from accel.catalog.records import Rows
from accel.image import MetadataImage, StreamObject
from accel.image_source import StaticImages
from loaders.format import MissingBytes, open_tail
from loaders.object_ref import ObjectRef
from loaders.store import ObjectStore
from loaders.tables import FormatRecord
from range_index import ObjectRanges
from spark_jobs.tasks import StoreSpec
from tests.accel.cli.worlds import run
from tests.builders import write_set_object

NAMESPACE = "shop"
Spans = list[tuple[int, int, int]]


def make_catalog(store: ObjectStore) -> None:
    """An empty catalog."""
    ObjectCatalog.init(store, FormatRecord(namespace=NAMESPACE, stream_buckets=4))


def put(catalog: ObjectCatalog, object_id: int, rows: Spans) -> tuple[ObjectRef, ObjectRanges]:
    """Write an object of (stream, start, end) blocks."""
    body = write_set_object(rows)
    catalog.parts.store.put(catalog.parts.layout.object_key(object_id), body)
    index = open_tail(body, object_size_bytes=len(body), key=str(object_id))
    assert not isinstance(index, MissingBytes)
    return ObjectRef(object_id, len(body), index.nbytes), index.object_ranges()


def fill(store: ObjectStore, node_id: int, objects: list[Spans]) -> list[int]:
    """Upload objects as a node does; gives their ids."""
    object_ids = []
    with ObjectCatalog.open(store) as catalog, catalog.open_node(node_id) as writer:
        writer.open_streams(sorted({row[0] for rows in objects for row in rows}))
        for rows in objects:
            [object_id] = writer.prepare()
            writer.commit_upload(*put(catalog, object_id, rows))
            object_ids.append(object_id)
    return object_ids


def split_off(store: ObjectStore, node_id: int, stream_id: int) -> tuple[int, int]:
    """Compact a node's first object into one without a stream, and an object of that stream; gives their ids."""
    with ObjectCatalog.open(store) as catalog:
        ref = catalog.refresh().nodes[node_id].ref(0)
        [opened] = catalog.parts.open_all(node_id, [ref])
        spans = [
            (int(each), int(start), int(end))
            for each, start, end in zip(opened.ranges.stream_ids, opened.ranges.starts, opened.ranges.ends, strict=True)
        ]
        rest, own = catalog.prepare(node_id, 2)
        added, _ = put(catalog, rest, [row for row in spans if row[0] != stream_id])
        [span] = [row for row in spans if row[0] == stream_id]
        one, _ = put(catalog, own, [span])
        catalog.commit_compaction(node_id, [ref], added, [(stream_id, StreamObject(one, span[1], span[2]))])
    return rest, own


def live_rows(store: ObjectStore, node_id: int) -> Rows:
    """What a node lists."""
    with ObjectCatalog.open(store) as catalog:
        return catalog.refresh_state().node_lists()[node_id].live


def lose(store: ObjectStore, object_id: int) -> None:
    """Delete an object that is listed."""
    with ObjectCatalog.open(store) as catalog:
        store.delete(catalog.parts.layout.object_key(object_id))


def records_crc(store: ObjectStore, image: MetadataImage) -> dict[int, int]:
    """For each stream a checksum over all of its records, in order, as a reader finds them."""
    found = {}
    with ReadAccelerator(StaticImages(image), store) as accelerator:
        for stream_id in image.streams:
            crc = 0
            for batch in accelerator.read(stream_id, image.streams[stream_id].start_offset):
                crc = zlib.crc32(batch.encode(), crc)
            found[stream_id] = crc
    return found


def address(bucket: StoreSpec) -> tuple[str, ...]:
    """The options of a command that say where a store is."""
    settings = bucket.settings
    return ("--endpoint-url", settings.endpoint_url, "--region", "us-east-1") if settings.endpoint_url else ()


def job(bucket: StoreSpec, *arguments: str) -> Result:
    """Run a job by the command line, in the session that is there."""
    return run("catalog", arguments[0], bucket.url, "--spark", *arguments[1:], *address(bucket))
