"""Hints for worlds: snapshots and packs, sound and otherwise, and a driver that reads them without threads."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import InitVar, dataclass, field
from typing import Any

import numpy as np

from accel.image import MetadataImage, ObjectRef
from accel.lookup.answer import Answer
from accel.lookup.hints import FilterLoader, HintLoader, HintStore, Warming, WarmReport
from accel.lookup.search_requests import (
    HintReply,
    OpenObjects,
    ReadEntries,
    ReadFilters,
    ReadRoot,
    Searching,
    Sent,
    SnapshotKnown,
)
from bloom import StreamFilter
from loaders.hints import (
    CoveredObjects,
    EntryColumns,
    SnapshotFileWriter,
    StreamEntries,
    finish_snapshot,
    object_entries,
    write_pack,
)
from loaders.layout import HINTS_PREFIX, HintKind, ObjectLayout, hint_root_key
from loaders.object_index import ObjectIndexLoader
from loaders.store import MemoryStore, ObjectStore
from tests.accel.lookup.driving import Clock, Driver
from tests.models.worlds import World

NAMESPACE = "DEFAULT"

Row = tuple[int, int, int, int, int, int, int, int, bool]
"""An entry: the columns of `EntryColumns` in their order."""


class Inline(Executor):
    """Runs everything at once, in the caller's thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **named))
        except BaseException as error:  # noqa: BLE001 - as an executor does
            future.set_exception(error)
        return future


@dataclass
class HintedDriver(Driver):
    """A driver that reads snapshots from a store, and opens objects of a world."""

    store: ObjectStore = field(default_factory=MemoryStore)
    clock: Clock = field(default_factory=Clock)
    image: MetadataImage | None = None
    asked: list[str] = field(default_factory=list)
    make_hints: InitVar[Callable[..., HintStore]] = HintStore

    def __post_init__(self, make_hints: Callable[..., HintStore]) -> None:
        self.hints = make_hints(NAMESPACE, self.clock)
        self.loader = HintLoader(self.store, self.hints, lambda _: Inline(), self._learn)

    def run(self, steps: Searching[Answer]) -> Answer:
        sent: Sent = None
        try:
            wanted = next(steps)
            while True:
                sent = self.answer(wanted)
                wanted = steps.send(sent)
        except StopIteration as stop:
            answer: Answer = stop.value
            return answer

    def answer(self, wanted: OpenObjects) -> Sent:
        self.asked.append(type(wanted).__name__)
        self.opened.append([ref.object_id for ref in wanted.refs()])
        objects = self.replies(wanted)
        if isinstance(wanted, ReadRoot):
            return self.loader.read_root(wanted.node.node_id).result.result().beside(objects)
        if isinstance(wanted, ReadFilters):
            return self.load_filters(wanted)
        if isinstance(wanted, ReadEntries):
            return self.loader.read_entries(wanted).result.result().beside(objects)
        return objects

    def load_filters(self, wanted: ReadFilters) -> HintReply:
        assert self.known is not None
        filters = FilterLoader(self.store, self.hints, self.known.add_filters, lambda _: Inline())
        return filters.read(wanted).result.result()

    def warm(self, image: MetadataImage) -> WarmReport:
        assert self.known is not None
        warming = Warming(self.store, self.hints, self.loader, self.known.add_filters, Inline())
        return warming.run(list(image.nodes.values()), self.clock)

    def _learn(self, node_id: int, known: SnapshotKnown, entries: StreamEntries) -> None:
        if self.known is not None and self.image is not None and known.root is not None:
            self.known.learn_snapshot(self.image.node(node_id), known.root, entries)


def size_of(object_id: int) -> int:
    return 100_000 + object_id


def give_sizes(world: World, rng: random.Random, *, unknown: float = 0.1) -> None:
    """Write the sizes of objects into the metadata; of some nobody knows it."""
    for node in world.metadata["nodes"]:
        for each in node["stream_set_objects"]:
            if rng.random() >= unknown:
                each["size"] = size_of(each["object_id"])


def rows_of_object(world: World, object_id: int, order_id: int) -> list[Row]:
    gaps = world.gaps.get(object_id, {})
    return [
        (stream_id, start, end, object_id, order_id, -1, 0, 1, stream_id in gaps)
        for stream_id, (start, end) in world.contents[object_id].items()
    ]


def put_snapshot(
    store: ObjectStore,
    node_id: int,
    covered: dict[int, int],
    rows: Iterable[Row],
    *,
    namespace: str = NAMESPACE,
    generation: int = 1,
    group_rows_max: int = 1000,
) -> None:
    """Write a snapshot of a node: covered objects (id -> size) and their entries."""
    rows = sorted(rows, key=lambda row: (row[0], row[1], row[3]))
    with SnapshotFileWriter(
        store, node_id=node_id, generation=generation, name="00000", group_rows_max=group_rows_max
    ) as writer:
        if rows:
            *numbers, holed = zip(*rows, strict=True)
            columns = [*(np.array(each, dtype=np.int64) for each in numbers), np.array(holed, dtype=np.bool_)]
            writer.write(EntryColumns.of(columns))
    refs = [ObjectRef(object_id, size) for object_id, size in covered.items()]
    finish_snapshot(
        store,
        namespace=namespace,
        node_id=node_id,
        generation=generation,
        files=[writer.file],
        covered=CoveredObjects.of(refs),
    )


def put_pack(
    store: ObjectStore,
    node_id: int,
    held: dict[ObjectRef, Iterable[int]],
    *,
    namespace: str = NAMESPACE,
    generation: int = 1,
) -> None:
    """Write a pack of a node: objects and the streams that each holds."""
    ids = {ref: np.array(sorted(streams), dtype=np.int64) for ref, streams in held.items()}
    added = [(ref, StreamFilter.build(each)) for ref, each in ids.items() if len(each)]
    write_pack(store, namespace=namespace, node_id=node_id, generation=generation, added=added)


def put_real_hints(store: ObjectStore, image: MetadataImage, *, generation: int = 1) -> None:
    """Write snapshots and packs of all nodes, by opening what the image lists, as the jobs do."""
    loader = ObjectIndexLoader(store, ObjectLayout(), Inline())
    for node in image.nodes.values():
        parts, filters = [], {}
        for position in range(len(node)):
            opened = loader.open(node.node_id, node.ref(position)).result.result()
            order_id = int(node.order_ids[position])
            parts.append(object_entries(opened.ref.object_id, order_id, opened.index, composite=False))
            filters[ObjectRef(opened.ref.object_id, opened.ref.size_bytes)] = opened.ranges.stream_ids.tolist()
        columns = EntryColumns.join(parts).sorted()
        with SnapshotFileWriter(store, node_id=node.node_id, generation=generation, name="00000") as writer:
            writer.write(columns)
        covered = CoveredObjects.of(filters)
        finish_snapshot(
            store,
            namespace=image.namespace,
            node_id=node.node_id,
            generation=generation,
            files=[writer.file],
            covered=covered,
        )
        put_pack(store, node.node_id, filters, namespace=image.namespace, generation=generation)


class Mischief:
    """Writes hints of a world's nodes and does to them what may happen to hints. All choices are the random one's."""

    def __init__(self, world: World, store: MemoryStore, rng: random.Random) -> None:
        self.world = world
        self.store = store
        self.rng = rng
        self.generation = 0

    def play(self, groups: Sequence[int] = (2, 5, 1000)) -> None:
        """Hints for each node, in some state; groups of one of these numbers of entries."""
        for node in self.world.metadata["nodes"]:
            if self.rng.random() < 0.9:
                self.write(node, self.rng.choice(groups))
        if self.rng.random() < 0.6:
            for _ in range(self.rng.randint(1, 3)):
                self.harm()

    def harm(self) -> None:
        """Something happens to one of the objects."""
        if self.keys():
            self.rng.choice([self.flip, self.cut, self.delete, self.swap, self.replace])()

    def write(self, node: dict[str, Any], group_rows_max: int) -> None:
        """A snapshot and a pack of one node: of all its objects, of some, of others that it no longer lists."""
        rng, node_id = self.rng, node["node_id"]
        self.generation += 1
        share = rng.choice([1.0, 1.0, 0.9, 0.5])
        covered: dict[int, int] = {}
        rows: list[Row] = []
        held: dict[ObjectRef, Iterable[int]] = {}
        for each in node["stream_set_objects"]:
            object_id = each["object_id"]
            if rng.random() < share:
                wrong = rng.random() < 0.1  # of an object of another size, so another object: must not be believed
                covered[object_id] = size_of(object_id) + wrong
                true = rows_of_object(self.world, object_id, each["order_id"])
                rows += [] if wrong and rng.random() < 0.5 else [_shifted(row, int(wrong)) for row in true]
                streams = [row[0] for row in true]
                held[ObjectRef(object_id, covered[object_id])] = [1_000_000] if wrong else streams
        for (owner, stream_id), entries in self.world.stale.items():
            for start, end, object_id in entries:
                if owner == node_id and object_id not in covered:
                    covered[object_id] = size_of(object_id)
                    rows.append((stream_id, start, end, object_id, 0, -1, 0, 1, False))
        namespace = NAMESPACE if rng.random() < 0.9 else "elsewhere"
        facts: dict[str, Any] = {"namespace": namespace, "generation": self.generation}
        put_snapshot(self.store, node_id, covered, rows, group_rows_max=group_rows_max, **facts)
        put_pack(self.store, node_id, held, **facts)

    def keys(self) -> list[str]:
        return [each.key for each in self.store.list(HINTS_PREFIX)]

    def flip(self) -> None:
        key = self.rng.choice(self.keys())
        body = bytearray(self.store.get(key).body)
        if body:
            body[self.rng.randrange(len(body))] ^= 1 << self.rng.randrange(8)
        self.store.put(key, bytes(body))

    def cut(self) -> None:
        """An object loses its end, or gains one."""
        key = self.rng.choice(self.keys())
        body = self.store.get(key).body
        self.store.put(key, body[: self.rng.randrange(len(body) + 1)] if self.rng.random() < 0.7 else body + b"more")

    def delete(self) -> None:
        if keys := self.keys():
            self.store.delete(self.rng.choice(keys))

    def swap(self) -> None:
        """Two objects change places: a root of another node or generation, a file of another snapshot."""
        one, other = self.rng.choice(self.keys()), self.rng.choice(self.keys())
        bodies = self.store.get(one).body, self.store.get(other).body
        self.store.put(one, bodies[1])
        self.store.put(other, bodies[0])

    def replace(self) -> None:
        """The root of an earlier or later generation stands for the present one."""
        kind = self.rng.choice(list(HintKind))
        node_id = self.rng.choice(self.world.metadata["nodes"])["node_id"]
        roots = [key for key in self.keys() if f"/{kind}/node-{node_id}/" in key and key.endswith("/root")]
        if roots:
            self.store.put(hint_root_key(kind, node_id), self.store.get(self.rng.choice(roots)).body)


def _shifted(row: Row, by: int) -> Row:
    stream_id, start, end, *rest = row
    return (stream_id, start + by, end + by, *rest)  # type: ignore[return-value]  # as long as before
