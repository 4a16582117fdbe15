"""What each actor does: processes that live for a while, go wrong in their ways, and are followed by new ones."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from accel.catalog import NodeWriter, ObjectCatalog
from accel.catalog.collect import collect, plan_collection, tallies_of
from accel.catalog.records import refs_of
from accel.errors import CommitRefused, MaintenanceRefused, MaintenanceStopped, SessionFenced
from accel.image import MetadataImage, StreamObject
from loaders.errors import KeyMissing, StoreError, StoreUnavailable, TableError
from loaders.object_ref import ObjectRef
from tests.accel.catalog.simulation.bucket import LAYOUT, NODES, STREAMS, Bucket, Span, Violation, opened, spans_of
from tests.accel.catalog.simulation.collectors import RIGHT, Collector, CollectorRules
from tests.accel.catalog.simulation.invariants import refuse_missing
from tests.accel.catalog.simulation.scheduler import Died

PROMISE_SECONDS = 25.0
STALL_SECONDS_MAX = 11.0
"""Shorter than what lies between the age of an image and the deletion of retired objects: a writer says itself when it
retired them, and a pause between the saying and the write is taken off readers' time."""

TRIES_MAX = 4


def processes(bucket: Bucket, live: Callable[[ObjectCatalog], None], *, dies: float) -> Callable[[], None]:
    """An actor: process after process, each of which ends, fails with what a store may say, or dies in between."""

    def body() -> None:
        while True:
            bucket.scheduler.doom(bucket.random.randrange(1, 60) if bucket.random.random() < dies else None)
            try:
                live(bucket.open())
            except Died:
                bucket.count("deaths")
            except SessionFenced:
                bucket.count("fenced")
            except (StoreError, TableError) as error:
                if isinstance(error, KeyMissing):
                    bucket.count("keys missing")
                bucket.count("store errors")
            except CommitRefused:
                bucket.count("refused")
            bucket.scheduler.doom(None)
            bucket.scheduler.sleep(bucket.random.uniform(0, 2))

    return body


def insist(bucket: Bucket, commit: Callable[[], None]) -> bool:
    """Commit, again if it is not known what became of it; gives whether it is known to have happened."""
    for _ in range(TRIES_MAX):
        try:
            commit()
        except (StoreError, TableError):
            bucket.count("commits in doubt")
            bucket.scheduler.sleep(bucket.random.uniform(0, 1))
        else:
            return True
    return False


class Uploader:
    """Writes for one node, session after session; the older ones go on trying."""

    def __init__(self, bucket: Bucket, node_id: int) -> None:
        self.bucket = bucket
        self.node_id = node_id

    def live(self, catalog: ObjectCatalog) -> None:
        """A process: a session or two."""
        writer = catalog.open_node(self.node_id)
        for _ in range(self.bucket.random.randrange(4, 25)):
            chance = self.bucket.random.random()
            if chance < 0.04:
                zombie, writer = writer, catalog.open_node(self.node_id)
                self._haunt(zombie)
            elif chance < 0.1:
                self._close_some(writer)
            elif self.bucket.homeless and chance < 0.5:
                self._open_some(writer)
            self._upload(writer)
            self.bucket.scheduler.sleep(self.bucket.random.uniform(0, 1.5))
        writer.close()

    def _haunt(self, zombie: NodeWriter) -> None:
        for _ in range(2):
            try:
                self._upload(zombie)
            except SessionFenced:
                self.bucket.count("zombies refused")

    def _open_some(self, writer: NodeWriter) -> None:
        wanted = self.bucket.random.sample(self.bucket.homeless, min(3, len(self.bucket.homeless)))
        try:
            writer.open_streams(wanted)
        except CommitRefused:
            self.bucket.count("streams not free")
        for stream_id in wanted:
            if writer.end(stream_id) is not None and stream_id in self.bucket.homeless:
                self.bucket.homeless.remove(stream_id)

    def _close_some(self, writer: NodeWriter) -> None:
        mine = [each for each in STREAMS if writer.end(each) is not None]
        going = self.bucket.random.sample(mine, min(2, len(mine)))
        self.bucket.homeless += [each for each in going if each not in self.bucket.homeless]
        writer.close_streams(going)
        self.bucket.count("streams closed")

    def _upload(self, writer: NodeWriter) -> None:
        ends = {each: end for each in STREAMS if (end := writer.end(each)) is not None}
        chosen = [each for each in ends if self.bucket.random.random() < 0.6]
        if not chosen:
            return
        spans = [(each, ends[each], ends[each] + self.bucket.random.randrange(1, 20)) for each in chosen]
        own = [span for span in spans if self.bucket.random.random() < 0.25]
        shared = [span for span in spans if span not in own]
        ids = self.bucket.oracle.give(writer.prepare(len(own) + bool(shared), PROMISE_SECONDS))
        objects = {span[0]: self._stream_object(ids.pop(), span) for span in own}
        ref = self.bucket.write(ids.pop(), shared)[0] if shared else None
        ranges = {stream_id: (start, end) for stream_id, start, end in shared}
        if insist(self.bucket, lambda: writer.commit_upload(ref, ranges, stream_objects=objects)):
            self.bucket.oracle.acknowledge(spans)
            self.bucket.count("uploads")

    def _stream_object(self, object_id: int, span: Span) -> StreamObject:
        return StreamObject(self.bucket.write(object_id, [span])[0], span[1], span[2])


class Compactor:
    """Merges runs of a node's objects; sometimes it takes longer than it promised.

    Args:
        bucket: where.
        merges: how likely it is that it merges neighbouring objects of one stream instead.
    """

    def __init__(self, bucket: Bucket, merges: float) -> None:
        self.bucket = bucket
        self.merges = merges

    def live(self, catalog: ObjectCatalog) -> None:
        """A process: some groups."""
        for _ in range(self.bucket.random.randrange(1, 8)):
            if self.bucket.random.random() < self.merges:
                self._merge(catalog, self.bucket.random.randrange(catalog.format.stream_buckets))
            else:
                self._compact(catalog, self.bucket.random.choice(NODES))
            self.bucket.scheduler.sleep(self.bucket.random.uniform(0, 3))

    def _compact(self, catalog: ObjectCatalog, node_id: int) -> None:
        seen = catalog.parts.keys.node_list(node_id).read()
        if seen is None or len(seen.value.live) < 2:
            return
        first = self.bucket.random.randrange(len(seen.value.live) - 1)
        refs = refs_of(seen.value.live[first : first + self.bucket.random.randrange(2, 6)])
        runs = coalesced([self._content(ref) for ref in refs])
        own = [runs.pop(each)[0] for each in list(runs) if len(runs[each]) == 1 and self.bucket.random.random() < 0.2]
        own += [span for each in list(runs) if len(runs[each]) > 1 for span in runs.pop(each)]
        merged = [run[0] for run in runs.values()]
        ids = self.bucket.oracle.give(catalog.prepare(node_id, len(own) + bool(merged), PROMISE_SECONDS))
        self._commit(catalog, node_id, refs, merged, own, ids)

    def _commit(
        self,
        catalog: ObjectCatalog,
        node_id: int,
        refs: tuple[ObjectRef, ...],
        merged: list[Span],
        own: list[Span],
        ids: list[int],
    ) -> None:
        random, left = self.bucket.random, list(ids)
        added = self.bucket.write(left.pop(), merged)[0] if merged else None
        objects = [(s, StreamObject(self.bucket.write(left.pop(), [(s, a, b)])[0], a, b)) for s, a, b in own]
        self._be_slow()
        try:
            if insist(self.bucket, lambda: catalog.commit_compaction(node_id, refs, added, objects)):
                self.bucket.count("compactions")
        except CommitRefused:
            self.bucket.count("compactions refused")
            if random.random() < 0.7:
                catalog.discard(node_id, ids)

    def _merge(self, catalog: ObjectCatalog, number: int) -> None:
        seen = catalog.parts.keys.shard(number).read()
        rows = [] if seen is None else seen.value.stream_objects[["stream_id", "start", "end", "object_id"]].tolist()
        pairs = [(first, second) for first, second in pairwise(rows) if (first[0], first[2]) == second[:2]]
        if not pairs:
            return
        (stream_id, start, _, *one), (_, _, end, *other) = self.bucket.random.choice(pairs)
        [object_id] = self.bucket.oracle.give(catalog.prepare(NODES[0], 1, PROMISE_SECONDS))
        merged = StreamObject(self.bucket.write(object_id, [(stream_id, start, end)])[0], start, end)
        self._be_slow()
        try:
            if insist(self.bucket, lambda: catalog.register_stream_object(stream_id, merged, one + other)):
                self.bucket.count("merges")
        except CommitRefused:
            self.bucket.count("merges refused")

    def _be_slow(self) -> None:
        random = self.bucket.random
        if random.random() < 0.5:
            self.bucket.scheduler.sleep(random.uniform(0.5, 1) * PROMISE_SECONDS)
            self.bucket.scheduler.stall(random.randrange(16), random.random() * STALL_SECONDS_MAX)
            self.bucket.count("slow compactors")

    def _content(self, ref: ObjectRef) -> list[Span]:
        body = self.bucket.store.get(LAYOUT.object_key(ref.object_id)).body
        return spans_of(opened(ref.object_id, body)[1])


def coalesced(contents: list[list[Span]]) -> dict[int, list[Span]]:
    """What objects hold, stream by stream, with ranges that touch as one."""
    runs: dict[int, list[Span]] = {}
    for stream_id, start, end in (span for content in contents for span in content):
        known = runs.setdefault(stream_id, [])
        if known and known[-1][2] == start:
            known[-1] = (stream_id, known[-1][1], end)
        else:
            known.append((stream_id, start, end))
    return runs


class Caretaker:
    """Trims streams, and closes those whose owner it believes dead."""

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket

    def live(self, catalog: ObjectCatalog) -> None:
        """A process."""
        random, oracle = self.bucket.random, self.bucket.oracle
        for _ in range(random.randrange(1, 8)):
            self.bucket.scheduler.sleep(random.uniform(1, 8))
            stream_id = random.choice(STREAMS)
            if random.random() < 0.15 and stream_id not in self.bucket.homeless:
                self.bucket.homeless.append(stream_id)
                catalog.close_streams([stream_id])
                self.bucket.count("streams taken away")
            elif end := oracle.end(stream_id):
                offset = random.randrange(oracle.trimmed[stream_id], end + 1)
                oracle.trimmed[stream_id] = offset
                catalog.trim({stream_id: offset})
                self.bucket.count("trims")


class Reader:
    """Keeps an image as long as it may, and reads what it says; nothing may be missing by then."""

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket

    def live(self, catalog: ObjectCatalog) -> None:
        """A process: one image after the other, all that it can still be served from."""
        for _ in range(self.bucket.random.randrange(1, 6)):
            read_at = self.bucket.scheduler.seconds
            committed = {each: list(spans) for each, spans in self.bucket.oracle.committed.items()}
            image = catalog.refresh()
            good_until = read_at + catalog.format.max_image_age_seconds
            self._use(image, committed, good_until)

    def _use(self, image: MetadataImage, committed: dict[int, list[tuple[int, int]]], good_until: float) -> None:
        kept: dict[int, list[Span]] = {}
        for node in image.nodes.values():
            for ref in node.refs:
                kept[ref.object_id] = self._read(ref, good_until)
                if self.bucket.scheduler.seconds > good_until:
                    return
        for stream_id in self.bucket.random.sample(STREAMS, 3):
            self._walk(image, stream_id, kept, committed[stream_id], good_until)
        self.bucket.scheduler.sleep(max(0.0, good_until - self.bucket.scheduler.seconds) * self.bucket.random.random())
        for node in image.nodes.values():
            for ref in self.bucket.random.sample(node.refs, min(4, len(node.refs))):
                self._read(ref, good_until)

    def _walk(
        self,
        image: MetadataImage,
        stream_id: int,
        kept: dict[int, list[Span]],
        committed: list[tuple[int, int]],
        good_until: float,
    ) -> None:
        stream = image.streams.get(stream_id)
        if stream is None:
            return
        held = [(a, b, object_id) for object_id, spans in kept.items() for s, a, b in spans if s == stream_id]
        for each in stream.stream_objects:
            self._read(each.ref, good_until)
            held.append((each.start, each.end, each.ref.object_id))
        refuse_missing(stream_id, stream.start_offset, sorted(held), committed)
        self.bucket.count("walks")

    def _read(self, ref: ObjectRef, good_until: float) -> list[Span]:
        for _ in range(TRIES_MAX):
            try:
                body = self.bucket.store.get(LAYOUT.object_key(ref.object_id)).body
            except KeyMissing:
                if self.bucket.scheduler.seconds <= good_until:
                    raise Violation(f"object {ref.object_id} is gone, {good_until} was promised") from None
                self.bucket.count("images too old")
                raise
            except StoreError:
                continue
            self.bucket.count("objects read")
            return spans_of(opened(ref.object_id, body)[1])
        raise StoreUnavailable("get", LAYOUT.object_key(ref.object_id), "asked often enough")


class CollectorActor:
    """Collects, round after round."""

    def __init__(self, bucket: Bucket, rules: CollectorRules) -> None:
        self.bucket = bucket
        self.rules = rules

    def live(self, catalog: ObjectCatalog) -> None:
        """A process: some rounds."""
        for _ in range(3):
            if self.rules == RIGHT and self.bucket.random.random() < 0.7:
                self._collect_as_operators_do(catalog)
            else:
                Collector(self.bucket, catalog, self.rules).collect()
            self.bucket.scheduler.sleep(self.bucket.random.uniform(0, 6))

    def _collect_as_operators_do(self, catalog: ObjectCatalog) -> None:
        try:
            report = collect(catalog, plan_collection(catalog))
        except MaintenanceRefused:
            self.bucket.count("collections refused")
            return
        except MaintenanceStopped as error:
            self.bucket.count("collections ended half-way")
            report = error.report
        for reason, tally in tallies_of(report.deleted).items():
            self.bucket.oracle.counts[f"collected: {reason}"] += tally.objects
        self.bucket.oracle.counts["spared"] += len(report.spared)
