"""What must be true of the bucket after every write, whoever made it and whatever was lost on the way.

    found once        every acknowledged offset from the stream's first kept one on lies in exactly one live object
    no overlap        no two live objects claim the same offset of a stream
    all there         every listed object is in the store, with its size; retired ones until they are delete pending
    nothing extra     a stream's first kept offset was asked for by somebody who trimmed
    sketches          each live object of a list has the sketch of the streams that its bytes hold

A stream object is on its way from a list to its bucket: it may stand in both, under the same id, and counts once. A row
of a list does not count if the bucket had that id and retired it, if it was trimmed, or if one object of the bucket
holds all of it. A row of a bucket does not count if its list says that the commit that made it is being undone.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, TypeVar

from accel.catalog.keys import CatalogKeys
from accel.catalog.parts import catalog_tables
from accel.catalog.records import NodeList, StreamShard
from accel.catalog.sketches_and_ends import sketch_rows
from loaders.errors import KeyMissing
from loaders.tables.typed_key import TypedKey
from loaders.versions import Versioned
from tests.accel.catalog.building import sketch_of
from tests.simulation.scheduler import Violation
from tests.simulation.world import LAYOUT, NODES, STREAMS, Span, World, opened, spans_of

T = TypeVar("T")


class Invariants:
    """Looks at everything, past baton and faults. One thread, while no actor runs."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._memory = world.memory
        self._shards = range(world.choices.format.stream_buckets)
        self._keys = CatalogKeys(catalog_tables(world.memory, world.choices.format, world.system))
        self._seen: dict[str, Versioned[Any]] = {}
        self._contents: dict[int, list[Span]] = {}
        self._checked_writes = -1

    def check(self) -> None:
        """Look, if anything was written since the last time."""
        if self._world.listings.writes == self._checked_writes:
            return
        self._checked_writes = self._world.listings.writes
        lists = [found for node in NODES if (found := self._read(self._keys.node_list(node))) is not None]
        buckets = [self._read(self._keys.shard(each)) or StreamShard(each) for each in self._shards]
        self._check_presence(lists, buckets)
        self._check_sketches(lists)
        starts = {row["stream_id"]: int(row["start_offset"]) for bucket in buckets for row in bucket.streams}
        claims: dict[int, list[tuple[int, int, int]]] = {each: [] for each in STREAMS}
        for object_id, stream_id, start, end in self._claims(lists, buckets, starts):
            if stream_id in claims:
                claims[stream_id].append((start, end, object_id))
        for stream_id in STREAMS:
            self._check_stream(stream_id, starts.get(stream_id, 0), sorted(claims[stream_id]))

    def _read(self, key: TypedKey[T]) -> T | None:
        before = self._seen.get(key.where)
        seen = key.read() if before is None else key.read_newer(before)
        if seen is None:
            return None
        self._seen[key.where] = seen
        return seen.value

    def _check_presence(self, lists: list[NodeList], buckets: list[StreamShard]) -> None:
        for rows in [each.live for each in lists] + [each.stream_objects for each in buckets]:
            for object_id, size_bytes in rows[["object_id", "size_bytes"]].tolist():
                self._check_there(object_id, size_bytes)
        for rows in [each.retired for each in lists] + [each.retired for each in buckets]:
            for object_id, size_bytes in rows[rows["delete_pending"] == 0][["object_id", "size_bytes"]].tolist():
                self._check_there(object_id, size_bytes)

    def _check_sketches(self, lists: list[NodeList]) -> None:
        for each in lists:
            ids = each.live["object_id"].tolist()
            built = ((i, sketch_of(tuple(sorted({span[0] for span in self._content(i)})))) for i in ids)
            if (expected := sketch_rows(built).tolist()) != each.sketches.tolist():
                raise Violation(f"{each.where}: expected sketches {expected}, found {each.sketches.tolist()}")

    def _check_there(self, object_id: int, size_bytes: int) -> bytes:
        try:
            body = self._memory.get(LAYOUT.object_key(object_id)).body
        except KeyMissing:
            raise Violation(f"object {object_id} is listed and not there") from None
        if len(body) != size_bytes:
            raise Violation(f"object {object_id} is listed with {size_bytes} bytes and has {len(body)}")
        return body

    def _claims(
        self, lists: list[NodeList], buckets: list[StreamShard], starts: dict[int, int]
    ) -> Iterator[tuple[int, int, int, int]]:
        for node_list in lists:
            for object_id in node_list.live["object_id"].tolist():
                yield from ((object_id, *span) for span in self._content(object_id))
        fields = ["object_id", "stream_id", "start", "end"]
        undone = {(each.node_id, commit) for each in lists for commit in each.withdrawn_commits}
        rows = [row for bucket in buckets for row in bucket.stream_objects]
        moved = [row[fields].tolist() for row in rows if (row["node_id"], row["added_by"]) not in undone]
        known = {row[0] for row in moved} | {
            each for bucket in buckets for each in bucket.retired["object_id"].tolist()
        }
        yield from moved
        for node_list in lists:
            for object_id, stream_id, start, end in node_list.stream_objects[fields].tolist():
                replaced = any(each[1] == stream_id and each[2] <= start and end <= each[3] for each in moved)
                if object_id not in known and end > starts.get(stream_id, 0) and not replaced:
                    self._content(object_id)
                    yield object_id, stream_id, start, end

    def _content(self, object_id: int) -> list[Span]:
        if object_id not in self._contents:
            try:
                body = self._memory.get(LAYOUT.object_key(object_id)).body
            except KeyMissing:
                raise Violation(f"object {object_id} is listed and not there") from None
            self._contents[object_id] = spans_of(opened(object_id, body)[1])
        return self._contents[object_id]

    def _check_stream(self, stream_id: int, start_offset: int, claims: list[tuple[int, int, int]]) -> None:
        oracle = self._world.oracle
        if start_offset > oracle.trimmed[stream_id]:
            raise Violation(f"stream {stream_id} begins at {start_offset}, trimmed to {oracle.trimmed[stream_id]}")
        kept = [(max(start, start_offset), end, each) for start, end, each in claims if end > start_offset]
        for before, after in pairwise(kept):
            if after[0] < before[1]:
                raise Violation(f"stream {stream_id}: two live objects hold the same: {before} and {after}")
        refuse_missing(stream_id, start_offset, kept, oracle.committed[stream_id])


def refuse_missing(
    stream_id: int, start_offset: int, held: list[tuple[int, int, int]], committed: list[tuple[int, int]]
) -> None:
    """Check that acknowledged data is held: (start, end, object id) ascending."""
    for start, end in committed:
        at = max(start, start_offset)
        for first, stop, _ in held:
            if first <= at < stop:
                at = stop
        if at < end:
            raise Violation(f"stream {stream_id}: [{start}, {end}) was acknowledged, and {at} is in no live object")
