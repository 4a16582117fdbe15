"""A bucket in which nodes write and streams move, with a memory of every record: compaction must not change one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from accel.catalog import CatalogSettings, NodeWriter, ObjectCatalog
from accel.catalog.collect import collect, plan_collection
from accel.catalog.records import NodeList
from accel.compaction import CompactionPlan, CompactionReport, CompactionSettings, compact, plan_compaction
from accel.image import StreamObject
from loaders.format import BlockIndex, MissingBytes, RecordBatch, decode_block_bytes, open_tail
from loaders.object_ref import ObjectRef
from loaders.store import ObjectStore
from tests.accel.lookup.cluster import accelerator
from tests.builders import batches
from tests.world import DAY_SECONDS, LAYOUT, World

ONE_AT_A_TIME = CatalogSettings(parallel_requests=1, ids_block=64, checkpoint_commits=3)
"""So that a crash before write n is always the same crash."""

Offset = tuple[int, int]
"""A stream, and an offset of it."""

Record = tuple[int, int, bytes]
"""First offset, number of offsets, payload."""


def all_of_it(**choices: object) -> CompactionSettings:
    """Settings for small worlds: every node, whatever its age and size, as far as it goes."""
    return CompactionSettings(**{"rewrite_all": True, "min_age_seconds": 0.0, **choices})  # type: ignore[arg-type]  # any of them


def keys_of(world: World) -> set[str]:
    """Keys of all objects in the bucket."""
    return {each.key for each in world.memory.list("") if LAYOUT.parse_object_key(each.key) is not None}


class Cluster:
    """Nodes that write streams.

    Args:
        world: the bucket; a new one by default.
        catalog: of that bucket.
    """

    def __init__(self, world: World | None = None, catalog: ObjectCatalog | None = None) -> None:
        self.world = world or World()
        self.catalog = catalog or self.world.open()
        self.writers: dict[int, NodeWriter] = {}
        self.owners: dict[int, int] = {}
        self.written: dict[Offset, Record] = {}

    @property
    def store(self) -> ObjectStore:
        """Where it all lies."""
        return self.world.store

    def writer(self, node_id: int) -> NodeWriter:
        """The session of a node."""
        if node_id not in self.writers:
            self.writers[node_id] = self.catalog.open_node(node_id)
        return self.writers[node_id]

    def move(self, stream_id: int, node_id: int) -> None:
        """Let a node write a stream from now on."""
        owner = self.owners.get(stream_id)
        if owner == node_id:
            return
        if owner is not None:
            self.writer(owner).close_streams([stream_id])
        self.writer(node_id).open_streams([stream_id])
        self.owners[stream_id] = node_id

    def upload(self, node_id: int, lengths: Mapping[int, int], own: Mapping[int, int] | None = None) -> ObjectRef:
        """Write an object: so many offsets of each stream, an offset a block; and objects of one stream each."""
        for stream_id in (*lengths, *(own or {})):
            self.move(stream_id, node_id)
        writer = self.writer(node_id)
        object_id, *own_ids = writer.prepare(1 + len(own or {}))
        spans = {each: self._span(each, length) for each, length in lengths.items()}
        rows = [(each, at, at + 1) for each, (start, end) in sorted(spans.items()) for at in range(start, end)]
        ref, ranges = self.world.put(object_id, rows)
        single = {}
        for (stream_id, length), own_id in zip((own or {}).items(), own_ids, strict=True):
            spans[stream_id] = self._span(stream_id, length)
            own_rows = [(stream_id, at, at + 1) for at in range(*spans[stream_id])]
            single[stream_id] = StreamObject(self.world.put(own_id, own_rows)[0], *spans[stream_id])
        writer.commit_upload(ref, ranges, stream_objects=single)
        for stream_id, span in spans.items():
            self._remember(stream_id, *span)
        return ref

    def uploads(self, count: int, node_id: int, lengths: Mapping[int, int]) -> list[ObjectRef]:
        """Write so many such objects."""
        return [self.upload(node_id, lengths) for _ in range(count)]

    def trim(self, stream_id: int, offset: int) -> None:
        """Let go what a stream holds below an offset."""
        self.catalog.trim({stream_id: offset})

    def plan(self, settings: CompactionSettings | None = None) -> CompactionPlan:
        """What a compaction would do."""
        return plan_compaction(self.catalog, settings or all_of_it())

    def compact(self, settings: CompactionSettings | None = None) -> CompactionReport:
        """Plan, and do it."""
        return compact(self.catalog, self.plan(settings))

    def kept(self) -> dict[Offset, Record]:
        """What must be found: all that was written, from the first kept offsets on."""
        streams = self.catalog.refresh().streams
        return {(each, at): one for (each, at), one in self.written.items() if at >= streams[each].start_offset}

    def node_list(self, node_id: int) -> NodeList:
        """A node's list."""
        return self.catalog.refresh_state().lists[node_id].value

    def live_ids(self, node_id: int) -> list[int]:
        """The objects of a node's list."""
        found: list[int] = self.catalog.refresh().node(node_id).object_ids.tolist()
        return found

    def orders(self, node_id: int) -> list[int]:
        """The order ids of a node's list, in its order."""
        found: list[int] = self.catalog.refresh().node(node_id).order_ids.tolist()
        assert found == sorted(set(found))
        return found

    def check(self) -> None:
        """Every kept offset is found where its record is, and no other offset is found anywhere."""
        assert self.found() == self.kept()

    def check_ends(self) -> None:
        """A new session of each node goes on where its streams ended."""
        for node_id in self.writers:
            writer = self.catalog.open_node(node_id)
            mine = [stream_id for stream_id, owner in self.owners.items() if owner == node_id]
            ends = {stream_id: sum(each == stream_id for each, _ in self.written) for stream_id in mine}
            assert {stream_id: writer.end(stream_id) for stream_id in mine} == ends

    def found(self) -> dict[Offset, Record]:
        """What lookups find, offset by offset, and the record that lies there."""
        image = self.catalog.refresh()
        records: dict[int, dict[Offset, Record]] = {}
        found = {}
        with accelerator(self.world.store, image) as reader:
            for stream_id in image.streams:
                end = max((at for each, at in self.written if each == stream_id), default=-1) + 3
                for offset in range(image.streams[stream_id].start_offset, end):
                    answer = reader.get_objects(stream_id, offset, offset + 1, 1)
                    for each in answer.objects:
                        if each.ref.object_id not in records:
                            records[each.ref.object_id] = dict(records_of(self.world.memory, each.ref.object_id))
                        # A range that says it holds an offset, and does not, shows as a KeyError here.
                        found[stream_id, offset] = records[each.ref.object_id][stream_id, offset]
        return found

    def collect_later(self) -> None:
        """Let days go by, and delete what nobody needs any more."""
        for _ in range(2):  # objects that are not needed any more are retired first
            self.world.wait(5 * DAY_SECONDS)
            collect(self.catalog, plan_collection(self.catalog))

    def settle(self) -> None:
        """Nothing is lost, now and when all is collected; and then nothing is left that the catalog does not list."""
        self.check()
        self.collect_later()
        self.check()
        assert keys_of(self.world) == self.listed_keys()

    def listed_keys(self) -> set[str]:
        """Keys of all objects that the catalog lists."""
        image = self.catalog.refresh()
        ids = {ref.object_id for node in image.nodes.values() for ref in node.refs}
        ids |= {each.ref.object_id for stream in image.streams.values() for each in stream.stream_objects}
        return {LAYOUT.object_key(each) for each in ids}

    def _span(self, stream_id: int, length: int) -> tuple[int, int]:
        start = self.writer(self.owners[stream_id]).end(stream_id) or 0
        return start, start + length

    def _remember(self, stream_id: int, start: int, end: int) -> None:
        for offset in range(start, end):
            self.written.update(_by_offset(batches(stream_id, offset, offset + 1)))


def records_of(store: ObjectStore, object_id: int) -> Iterator[tuple[Offset, Record]]:
    """Each offset that an object really holds, by reading its blocks."""
    body = store.get(LAYOUT.object_key(object_id)).body
    index = index_of(store, object_id)
    for row in index:
        block = body[row.position : row.position + row.size_bytes]
        yield from _by_offset(decode_block_bytes(block, row, key=str(object_id), object_size_bytes=len(body)))


def index_of(store: ObjectStore, object_id: int) -> BlockIndex:
    """The index of an object."""
    body = store.get(LAYOUT.object_key(object_id)).body
    index = open_tail(body, object_size_bytes=len(body), key=str(object_id))
    assert not isinstance(index, MissingBytes)
    return index


def _by_offset(found: list[RecordBatch]) -> Iterator[tuple[Offset, Record]]:
    for each in found:
        for offset in range(each.base_offset, each.end_offset):
            yield (each.stream_id, offset), (each.base_offset, each.count, each.payload)
