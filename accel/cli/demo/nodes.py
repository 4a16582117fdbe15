"""The nodes of the demo: their objects, the catalogs that list them, and the reads.

Each node records the ranges that were written into it, so that answers can be compared with a scan of these ranges.

Every image is read from versioned tables beside the objects. A bucket is filled by a writer's session, as a broker
fills it. Existing objects, whose ids and holes a session would refuse, are imported instead. Then the catalog is opened
again by a reader with empty caches, and the cost of reading the image is counted. It is open for as long as the node.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from accel.adoption.importing import ImportChoice, bucket_objects, commit_import, plan_import
from accel.catalog import ObjectCatalog
from accel.errors import AccelError
from accel.image_source import ImageSource
from accel.lookup.answer import Request
from accel.system import SYSTEM
from loaders.format import RecordBatch
from loaders.layout import ObjectLayout
from loaders.object_writer import ObjectWriter, create_object
from loaders.store import CountingStore, ObjectStore
from loaders.tables import FormatRecord

NODE_ID = 4

PRODUCTION_LAYOUT = ObjectLayout()
FORMAT = FormatRecord(namespace=PRODUCTION_LAYOUT.namespace, stream_buckets=4)
"""Enough stream shards for some hundred streams."""

FIXED_CLOCK = replace(SYSTEM, clock=lambda: 1_800_000_000.0)
"""The same seed gives the same tables: with the time of day in a list, its size would vary by some bytes."""

Contents = Mapping[int, tuple[int, int]]
"""Stream id -> (start, end): the ranges in one object."""


@dataclass(frozen=True, slots=True)
class ImageCost:
    """The cost of reading a whole image, and of checking for a newer one when there is none."""

    cold_requests: int
    cold_bytes: int
    unchanged_requests: int
    unchanged_bytes: int


def upload(store: ObjectStore, contents: Sequence[Contents]) -> list[int]:
    """Create a catalog, and write and commit objects one after another, as a broker does; returns their ids."""
    with _made(store) as catalog, catalog.open_node(NODE_ID) as writer:
        streams = {stream_id for held in contents for stream_id in held}
        writer.open_streams(streams)
        object_ids = []
        for held in contents:
            [object_id] = writer.prepare()
            written = write_object(store, object_id, held, catalog.parts.layout)
            writer.commit_upload(written.ref, written.ranges)
            object_ids.append(object_id)
        writer.close_streams(streams)
    return object_ids


def import_objects(store: ObjectStore, stream_id: int) -> None:
    """Create a catalog of existing objects of one node; its stream is closed, so that it has an end."""
    with _made(store) as catalog:
        commit_import(catalog, plan_import(catalog, bucket_objects(catalog), ImportChoice(NODE_ID)))
        with catalog.open_node(NODE_ID) as writer:
            writer.close_streams([stream_id])


def write_object(
    store: ObjectStore, object_id: int, held: Contents, layout: ObjectLayout = PRODUCTION_LAYOUT
) -> ObjectWriter:
    """Write an object with the project's own writer."""
    with ObjectWriter(store, layout, object_id, nonce=FIXED_CLOCK.nonce) as writer:
        for stream_id, (start, end) in sorted(held.items()):
            writer.write(stream_id, [RecordBatch(stream_id, 1, start, end - start, b"demo" * 16)])
    return writer


@contextmanager
def opened(store: ObjectStore) -> Iterator[tuple[ObjectCatalog, ImageCost]]:
    """The catalog as a reader opens it, and the cost of its image; requests for objects do not pass through it."""
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


STREAM_ID = 420_000
RARE_STREAM_ID = 420_001
RARE_SHARE = 0.1
LIMIT = 4
RANDOM_READS = 6

ISSUE_READS = ((100, 200), (400, 600), (1000, 1600), (1980, -1))
"""The four reads of AutoMQ issue 2731, sections 3.1 to 3.4."""

ISSUE_OBJECTS = (
    *((0, 0, 105), (2, 105, 128), (3, 128, 259), (5, 259, 394), (7, 394, 456), (9, 456, 528), (10, 528, 636)),
    *((12, 636, 686), (14, 686, 833), (16, 833, 974), (18, 974, 1017), (20, 1017, 1056), (22, 1056, 1085)),
    *((26, 1128, 1196), (28, 1196, 1241), (30, 1241, 1350), (32, 1350, 1491), (34, 1491, 1624), (36, 1624, 1678)),
    *((38, 1678, 1732), (42, 1850, 2000)),
)
"""Object id, start and end offset of stream 420000: the example node of AutoMQ issue 2731."""

Found = list[tuple[int, int, int]]
"""Object id, start, end: the answer to a read."""


class NoProductionObjects(AccelError):
    """The named folder does not contain objects with their manifest."""

    advice = "name the folder with manifest.json and get_objects_answers.json: tests/data/stream_set_objects"


@dataclass(frozen=True, slots=True)
class Read:
    """One line of a table: a read, or several of a kind with their mean cost."""

    name: str
    requests: tuple[Request, ...]


@dataclass(frozen=True, slots=True)
class DemoNode:
    """One node.

    Args:
        title: for people.
        images: of the catalog that lists its objects.
        image_cost: the cost of reading such an image.
        store: holds the objects.
        contents: the ranges in each object, in the order of the list.
        reads: the reads to measure.
        recorded: answers of the production system, by request.
    """

    title: str
    images: ImageSource
    image_cost: ImageCost
    store: ObjectStore
    contents: Sequence[tuple[int, Contents]]
    reads: tuple[Read, ...]
    recorded: Mapping[Request, Found]


@contextmanager
def issue_node(store: ObjectStore, rng: random.Random, where: str = "") -> Iterator[DemoNode]:
    """The example of AutoMQ issue 2731, with a few other streams in each object, written by this project's writer.

    The example has holes, which a session would refuse to commit: its objects are imported.
    """
    filler = _Filler(rng, streams=200, per_object=20)
    contents = [(object_id, {**filler.next(), STREAM_ID: (start, end)}) for object_id, start, end in ISSUE_OBJECTS]
    for object_id, held in contents:
        write_object(store, object_id, held)
    import_objects(store, STREAM_ID)
    title = f"the example node of AutoMQ issue 2731: 21 objects {where}".rstrip()
    with opened(store) as (catalog, cost):
        yield DemoNode(title, catalog.images(), cost, store, contents, _issue_reads(), {})


@dataclass(frozen=True)
class ProductionObjects:
    """Objects of a production writer, as stored in a folder.

    Attributes:
        contents: the ranges of streams in each object, by object id.
        bodies: their bytes, in the same order.
        recorded: the production system's answers over them.
    """

    contents: Sequence[tuple[int, Contents]]
    bodies: Sequence[bytes]
    recorded: Mapping[Request, Found]


def read_production_objects(folder: Path) -> ProductionObjects:
    """Read a folder of objects with their manifest and answers.

    Raises:
        NoProductionObjects: the folder holds something else.
    """
    try:
        manifest = json.loads((folder / "manifest.json").read_bytes())
        answers = json.loads((folder / "get_objects_answers.json").read_bytes())
        rows = [row for row in manifest["objects"] if row["nodeId"] == NODE_ID]
        contents = [(row["objectId"], {held[0]: (held[1], held[2]) for held in row["streamRanges"]}) for row in rows]
        bodies = [(folder / f"{row['objectId']}.bin").read_bytes() for row in rows]
        return ProductionObjects(contents, bodies, _recorded(answers))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NoProductionObjects(f"{folder}: expected a manifest of objects and their answers: {error}") from error


@contextmanager
def production_node(objects: ProductionObjects, store: ObjectStore, where: str = "") -> Iterator[DemoNode]:
    """Objects of a production writer, copied to the store unchanged and imported into a catalog."""
    for (object_id, _), body in zip(objects.contents, objects.bodies, strict=True):
        create_object(store, PRODUCTION_LAYOUT.object_key(object_id), body)
    import_objects(store, STREAM_ID)
    title = f"a node of a production writer: {len(objects.bodies)} objects {where}".rstrip()
    with opened(store) as (catalog, cost):
        yield DemoNode(title, catalog.images(), cost, store, objects.contents, _issue_reads(), objects.recorded)


@contextmanager
def generated_nodes(store: ObjectStore, objects: int, rng: random.Random) -> Iterator[list[DemoNode]]:
    """A large node, returned as two: read by a stream that is in every object, and by one that is in a tenth of them.

    The rates of the streams vary, so that a position in the list does not follow from an offset.
    """
    filler = _Filler(rng, streams=400, per_object=24)
    dense, rare = _Wandering(rng), _Wandering(rng)
    holders = set(rng.sample(range(objects), max(1, round(objects * RARE_SHARE))))
    written: list[Contents] = []
    for number in range(objects):
        held = {**filler.next(), STREAM_ID: dense.next()}
        written.append({**held, RARE_STREAM_ID: rare.next()} if number in holders else held)
    contents = list(zip(upload(store, written), written, strict=True))
    every, some = (f"a generated node: {objects} objects in memory, the stream in {n}" for n in ("all", len(holders)))
    with opened(store) as (catalog, cost):
        images = catalog.images()
        yield [
            DemoNode(every, images, cost, store, contents, _spread_reads(STREAM_ID, dense.end, rng), {}),
            DemoNode(some, images, cost, store, contents, _spread_reads(RARE_STREAM_ID, rare.end, rng), {}),
        ]


class _Wandering:
    """Yields the ranges of a stream object by object, at a varying rate."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._rate = 100.0
        self.end = 0

    def next(self) -> tuple[int, int]:
        """The next range."""
        self._rate = min(10_000.0, max(1.0, self._rate * math.exp(self._rng.gauss(0, 0.2))))
        start, self.end = self.end, self.end + self._rng.randint(1, int(self._rate) + 1)
        return start, self.end


class _Filler:
    """Yields ranges of some other streams for each object, as in a real bucket."""

    def __init__(self, rng: random.Random, *, streams: int, per_object: int) -> None:
        self._rng = rng
        self._per_object = per_object
        self._streams = {STREAM_ID - 1000 + 5 * number: _Wandering(rng) for number in range(streams // 2)}
        self._streams |= {STREAM_ID + 1000 + 5 * number: _Wandering(rng) for number in range(streams // 2)}
        self._ids = sorted(self._streams)

    def next(self) -> dict[int, tuple[int, int]]:
        """Their ranges in the next object."""
        chosen = sorted(self._rng.sample(self._ids, self._rng.randint(1, self._per_object * 2 - 1)))
        return {stream_id: self._streams[stream_id].next() for stream_id in chosen}


def _issue_reads() -> tuple[Read, ...]:
    requests = [Request(STREAM_ID, start, end, LIMIT) for start, end in ISSUE_READS]
    return tuple(Read(_offsets(request.start, request.end), (request,)) for request in requests)


def _spread_reads(stream_id: int, end: int, rng: random.Random) -> tuple[Read, ...]:
    def at(*offsets: int) -> tuple[Request, ...]:
        return tuple(Request(stream_id, offset, -1, LIMIT) for offset in offsets)

    anywhere = [rng.randrange(end) for _ in range(RANDOM_READS)]
    return (
        Read("head", at(0)),
        Read("middle", at(end // 2)),
        Read("tail", at(end - 1)),
        Read(f"random (mean of {RANDOM_READS})", at(*anywhere)),
    )


def _recorded(answers: dict[str, Any]) -> dict[Request, Found]:
    wanted = {(STREAM_ID, *span, LIMIT) for span in ISSUE_READS}
    queries = [query for case in answers["cases"] for query in case["queries"] if not case["streamObjects"]]
    answered = {tuple(query["q"]): query["cold"]["objects"] for query in queries if tuple(query["q"]) in wanted}
    return {
        Request(*question): [(object_id, start, end) for object_id, _, start, end in objects]
        for question, objects in answered.items()
    }


def _offsets(start: int, end: int) -> str:
    return f"[{start}, {'…' if end == -1 else end})"
