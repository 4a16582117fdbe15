"""What each actor does: processes that live for a while, go wrong in their ways, and are followed by new ones."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

from accel.catalog import NodeWriter, ObjectCatalog
from accel.catalog.collect import collect, plan_collection, tallies_of
from accel.catalog.records import refs_of
from accel.compaction import CompactionSettings, compact, plan_compaction
from accel.errors import (
    AccelError,
    CatalogMissing,
    CommitRefused,
    ImageTooOld,
    MaintenanceRefused,
    MaintenanceStopped,
    SessionFenced,
    StreamsReleased,
)
from accel.image import MetadataImage, StreamObject
from loaders.errors import KeyMissing, StoreError, StoreUnavailable, TableError
from loaders.object_ref import ObjectRef
from tests.builders import batches
from tests.simulation.clones import cloned
from tests.simulation.collectors import RIGHT, Collector, CollectorRules
from tests.simulation.invariants import refuse_missing
from tests.simulation.scheduler import Died, Violation
from tests.simulation.world import LAYOUT, NODES, STREAMS, Actor, Machine, Span, content_of

PROMISE_SECONDS = 25.0

TRIES_MAX = 4


def processes(machine: Machine, live: Callable[[ObjectCatalog], None], *, dies: float) -> Callable[[], None]:
    """An actor: process after process, each of which ends, fails with what a store may say, or dies in between."""
    return lives(machine, lambda: live(machine.open()), dies=dies)


def lives(
    machine: Machine,
    live: Callable[[], None],
    *,
    dies: float,
    requests_max: int = 60,
    is_over: Callable[[], bool] = lambda: False,
) -> Callable[[], None]:
    """The same for a process that need not have a catalog; if it dies, then within so many requests."""

    def body() -> None:
        while not is_over():
            machine.begin()
            machine.doom(machine.random.randrange(1, requests_max) if machine.random.random() < dies else None)
            try:
                live()
            except Died:
                machine.count("deaths")
            except AccelError as error:
                machine.count(kind_of(machine, error))
            machine.end()
            machine.scheduler.sleep(machine.random.uniform(0, 2))

    return body


EXPECTED: dict[type[AccelError], str] = {
    KeyMissing: "keys missing",
    SessionFenced: "fenced",
    CommitRefused: "refused",
    StoreError: "store errors",
    TableError: "store errors",
    MaintenanceRefused: "maintenance refused",
    CatalogMissing: "nodes never opened",
    ImageTooOld: "images too old",
}
"""What a process may end with, whatever happens to it."""


def kind_of(machine: Machine, error: AccelError) -> str:
    """What an error counts as; one that nothing explains that was done to the process is a `Violation`."""
    for kind, what in EXPECTED.items():
        if isinstance(error, kind):
            return what
    injected = machine.world.listings.injected
    if machine.store.changed_bodies or injected["keys damaged"] or injected["objects damaged"]:
        return "changes noticed"
    raise Violation(f"{machine.name}: expected an answer or an error of the store, found {error!r}") from error


def insist(machine: Machine, commit: Callable[[], object]) -> bool:
    """Commit, again if it is not known what became of it; gives whether it is known to have happened."""
    for _ in range(TRIES_MAX):
        try:
            commit()
        except (StoreError, TableError):
            machine.count("commits in doubt")
            machine.scheduler.sleep(machine.random.uniform(0, 1))
        else:
            return True
    return False


@dataclass(eq=False)
class Uploader(Actor):
    """Writes for one node, session after session; the older ones go on trying, and so do clones of the process."""

    node_id: int

    def live(self, catalog: ObjectCatalog) -> None:
        """A process: a session or two."""
        writer = catalog.open_node(self.node_id)
        for _ in range(self.machine.random.randrange(4, 25)):
            chance = self.machine.random.random()
            if chance < 0.02:
                self._clone(writer)
            elif chance < 0.05:
                zombie, writer = writer, catalog.open_node(self.node_id)
                self._haunt(zombie)
            elif chance < 0.1:
                self._close_some(writer)
            elif chance < 0.14:
                self._take_over(catalog, writer)
            elif self.machine.homeless and chance < 0.5:
                self._open_some(writer)
            self._upload_what_is_own(writer)
            self.machine.scheduler.sleep(self.machine.random.uniform(0, 1.5))
        writer.close()

    def _upload_what_is_own(self, writer: NodeWriter) -> None:
        try:
            (self._upload if self.machine.random.random() < 0.7 else self._upload_at_once)(writer)
        except StreamsReleased as error:
            self.machine.count("streams released")
            if self.machine.random.random() < 0.5:
                writer.open_streams(error.stream_ids)
                self.machine.count("streams taken back")

    def _take_over(self, catalog: ObjectCatalog, writer: NodeWriter) -> None:
        """From a node that it believes to be dead, mostly wrongly."""
        streams = catalog.refresh().streams
        owners = {each: streams[each].ranges[-1] for each in STREAMS if each in streams and streams[each].ranges}
        open_elsewhere = {each: last.node_id for each, last in owners.items() if last.end == -1}
        theirs = [each for each, node_id in open_elsewhere.items() if node_id != self.node_id]
        chosen = self.machine.random.sample(theirs, min(2, len(theirs)))
        if chosen:
            writer.take_over({each: open_elsewhere[each] for each in chosen})
            self.machine.count("streams taken over")

    def _clone(self, writer: NodeWriter) -> None:
        """From now on the process is there twice; both write, and do not know of each other."""
        twin = cloned(writer)
        self.machine.count("processes cloned")

        def live() -> None:
            with suppress(AccelError):
                for _ in range(self.machine.random.randrange(1, 6)):
                    self._upload_at_once(twin)
                    self.machine.scheduler.sleep(self.machine.random.uniform(0, 1.5))

        self.machine.scheduler.spawn(f"clone of {self.machine.name}", live, self.machine.process)

    def _haunt(self, zombie: NodeWriter) -> None:
        for _ in range(2):
            try:
                self._upload(zombie)
            except (SessionFenced, StreamsReleased):
                self.machine.count("zombies refused")

    def _open_some(self, writer: NodeWriter) -> None:
        wanted = self.machine.random.sample(self.machine.homeless, min(3, len(self.machine.homeless)))
        try:
            writer.open_streams(wanted)
        except CommitRefused:
            self.machine.count("streams not free")
        for stream_id in wanted:
            if writer.end(stream_id) is not None and stream_id in self.machine.homeless:
                self.machine.homeless.remove(stream_id)

    def _close_some(self, writer: NodeWriter) -> None:
        mine = [each for each in STREAMS if writer.end(each) is not None]
        going = self.machine.random.sample(mine, min(2, len(mine)))
        self.machine.homeless += [each for each in going if each not in self.machine.homeless]
        writer.close_streams(going)
        self.machine.count("streams closed")

    def _upload(self, writer: NodeWriter) -> None:
        ends = {each: end for each in STREAMS if (end := writer.end(each)) is not None}
        chosen = [each for each in ends if self.machine.random.random() < 0.6]
        if not chosen:
            return
        spans = [(each, ends[each], ends[each] + self.machine.random.randrange(1, 20)) for each in chosen]
        own = [span for span in spans if self.machine.random.random() < 0.25]
        shared = [span for span in spans if span not in own]
        ids = self.machine.oracle.give(writer.prepare(len(own) + bool(shared), PROMISE_SECONDS))
        objects = {span[0]: self._stream_object(ids.pop(), span) for span in own}
        ref = self.machine.write(ids.pop(), shared)[0] if shared else None
        ranges = {stream_id: (start, end) for stream_id, start, end in shared}
        if insist(self.machine, lambda: writer.commit_upload(ref, ranges, stream_objects=objects)):
            self.machine.oracle.acknowledge(spans, self.machine.scheduler.seconds)
            self.machine.count("uploads")

    def _upload_at_once(self, writer: NodeWriter) -> None:
        """As a broker does that leaves ids, writing and repetition to the session."""
        ends = {each: end for each in STREAMS if (end := writer.end(each)) is not None}
        chosen = [each for each in ends if self.machine.random.random() < 0.6]
        spans = [(each, ends[each], ends[each] + self.machine.random.randrange(1, 20)) for each in chosen]
        streams = {stream_id: batches(stream_id, start, end) for stream_id, start, end in spans}
        if spans and insist(self.machine, lambda: writer.upload(streams)):
            self.machine.oracle.acknowledge(spans, self.machine.scheduler.seconds)
            self.machine.count("uploads at once")

    def _stream_object(self, object_id: int, span: Span) -> StreamObject:
        return StreamObject(self.machine.write(object_id, [span])[0], span[1], span[2])


@dataclass(eq=False)
class Compactor(Actor):
    """Merges runs of a node's objects; sometimes it takes longer than it promised.

    Args:
        merges: how likely it is that it merges neighbouring objects of one stream instead.
        bridges: whether it takes two ranges of a stream for one: a mistake.
    """

    merges: float
    bridges: bool = False

    def live(self, catalog: ObjectCatalog) -> None:
        """A process: some groups."""
        for _ in range(self.machine.random.randrange(1, 8)):
            chance = self.machine.random.random()
            if chance > 0.8:
                self._run_job(catalog)
            elif chance < self.merges:
                self._merge(catalog, self.machine.random.randrange(catalog.format.stream_buckets))
            else:
                self._compact(catalog, self.machine.random.choice(NODES))
            self.machine.scheduler.sleep(self.machine.random.uniform(0, 3))

    def _run_job(self, catalog: ObjectCatalog) -> None:
        """As operators do: what is planned is carried out, and real objects are merged."""
        settings = CompactionSettings(
            max_objects_per_node=self.machine.random.randrange(2, 8),
            min_age_seconds=0,
            max_sources_per_group=self.machine.random.randrange(2, 6),
            split_holes=self.machine.random.random() < 0.5,
        )
        report = compact(catalog, plan_compaction(catalog, settings))
        for result in report.groups:
            self.machine.count(f"compaction job: {result.status}")

    def _compact(self, catalog: ObjectCatalog, node_id: int) -> None:
        seen = catalog.parts.keys.node_list(node_id).read()
        if seen is None or len(seen.value.live) < 2:
            return
        first = self.machine.random.randrange(len(seen.value.live) - 1)
        refs = refs_of(seen.value.live[first : first + self.machine.random.randrange(2, 6)])
        runs = coalesced([self._content(ref) for ref in refs])
        if self.bridges:
            runs = {each: [(each, spans[0][1], spans[-1][2])] for each, spans in runs.items()}
        own = [runs.pop(each)[0] for each in list(runs) if len(runs[each]) == 1 and self.machine.random.random() < 0.2]
        own += [span for each in list(runs) if len(runs[each]) > 1 for span in runs.pop(each)]
        merged = [run[0] for run in runs.values()]
        ids = self.machine.oracle.give(catalog.prepare(node_id, len(own) + bool(merged), PROMISE_SECONDS))
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
        random, left = self.machine.random, list(ids)
        added = self.machine.write(left.pop(), merged)[0] if merged else None
        objects = [(s, StreamObject(self.machine.write(left.pop(), [(s, a, b)])[0], a, b)) for s, a, b in own]
        self._be_slow()
        try:
            if insist(self.machine, lambda: catalog.commit_compaction(node_id, refs, added, objects)):
                self.machine.count("compactions")
        except CommitRefused:
            self.machine.count("compactions refused")
            if random.random() < 0.7:
                catalog.discard(node_id, ids)

    def _merge(self, catalog: ObjectCatalog, number: int) -> None:
        seen = catalog.parts.keys.shard(number).read()
        found = [] if seen is None else seen.value.stream_objects[["stream_id", "start", "end", "object_id"]].tolist()
        rows = [row for row in found if row[0] in STREAMS]
        pairs = [(first, second) for first, second in pairwise(rows) if (first[0], first[2]) == second[:2]]
        if not pairs:
            return
        (stream_id, start, _, *one), (_, _, end, *other) = self.machine.random.choice(pairs)
        [object_id] = self.machine.oracle.give(catalog.prepare(NODES[0], 1, PROMISE_SECONDS))
        merged = StreamObject(self.machine.write(object_id, [(stream_id, start, end)])[0], start, end)
        self._be_slow()
        try:
            if insist(self.machine, lambda: catalog.register_stream_object(stream_id, merged, one + other)):
                self.machine.count("merges")
        except CommitRefused:
            self.machine.count("merges refused")

    def _be_slow(self) -> None:
        random = self.machine.random
        if random.random() < 0.5:
            self.machine.scheduler.sleep(random.uniform(0.5, 1) * PROMISE_SECONDS)
            self.machine.stall(random.randrange(16), random.random() * self.machine.stall_seconds_max)
            self.machine.count("slow compactors")

    def _content(self, ref: ObjectRef) -> list[Span]:
        body = self.machine.store.get(LAYOUT.object_key(ref.object_id)).body
        return content_of(ref, body)


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


class Caretaker(Actor):
    """Trims streams, and closes those whose owner it believes dead."""

    def live(self, catalog: ObjectCatalog) -> None:
        """A process."""
        random, oracle = self.machine.random, self.machine.oracle
        for _ in range(random.randrange(1, 8)):
            self.machine.scheduler.sleep(random.uniform(1, 8))
            stream_id = random.choice(STREAMS)
            if random.random() < 0.15 and stream_id not in self.machine.homeless:
                self.machine.homeless.append(stream_id)
                catalog.close_streams([stream_id])
                self.machine.count("streams taken away")
            elif end := oracle.end(stream_id):
                offset = random.randrange(oracle.trimmed[stream_id], end + 1)
                oracle.trimmed[stream_id] = offset
                catalog.trim({stream_id: offset})
                self.machine.count("trims")


class Reader(Actor):
    """Keeps an image as long as it may, and reads what it says; nothing may be missing by then."""

    def live(self, catalog: ObjectCatalog) -> None:
        """A process: one image after the other, all that it can still be served from."""
        for _ in range(self.machine.random.randrange(1, 6)):
            read_at = self.machine.scheduler.seconds
            committed = {each: list(spans) for each, spans in self.machine.oracle.committed.items()}
            image = catalog.refresh()
            good_until = read_at + catalog.format.max_image_age_seconds
            self._use(image, committed, good_until)

    def _use(self, image: MetadataImage, committed: dict[int, list[tuple[int, int]]], good_until: float) -> None:
        kept: dict[int, list[Span]] = {}
        for node in image.nodes.values():
            for ref in node.refs:
                kept[ref.object_id] = self._read(ref, good_until)
                if self.machine.scheduler.seconds > good_until:
                    return
        for stream_id in self.machine.random.sample(STREAMS, 3):
            self._walk(image, stream_id, kept, committed[stream_id], good_until)
        self.machine.scheduler.sleep(
            max(0.0, good_until - self.machine.scheduler.seconds) * self.machine.random.random()
        )
        for node in image.nodes.values():
            for ref in self.machine.random.sample(node.refs, min(4, len(node.refs))):
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
        self.machine.count("walks")

    def _read(self, ref: ObjectRef, good_until: float) -> list[Span]:
        for _ in range(TRIES_MAX):
            try:
                body = self.machine.store.get(LAYOUT.object_key(ref.object_id)).body
            except KeyMissing:
                is_hurt = self.machine.world.is_hurt(LAYOUT.object_key(ref.object_id))
                if self.machine.scheduler.seconds <= good_until and not is_hurt:
                    raise Violation(f"object {ref.object_id} is gone, {good_until} was promised") from None
                self.machine.count("images too old")
                raise
            except StoreError:
                continue
            self.machine.count("objects read")
            return content_of(ref, body)
        raise StoreUnavailable("get", LAYOUT.object_key(ref.object_id), "asked often enough")


@dataclass(eq=False)
class CollectorActor(Actor):
    """Collects, round after round."""

    rules: CollectorRules

    def live(self, catalog: ObjectCatalog) -> None:
        """A process: some rounds."""
        for _ in range(3):
            if self.rules == RIGHT and self.machine.random.random() < 0.7:
                self._collect_as_operators_do(catalog)
            else:
                Collector(self.machine, catalog, self.rules).collect()
            self.machine.scheduler.sleep(self.machine.random.uniform(0, 6))

    def _collect_as_operators_do(self, catalog: ObjectCatalog) -> None:
        try:
            report = collect(catalog, plan_collection(catalog))
        except MaintenanceRefused:
            self.machine.count("collections refused")
            return
        except MaintenanceStopped as error:
            self.machine.count("collections ended half-way")
            report = error.report
        for reason, tally in tallies_of(report.deleted).items():
            self.machine.oracle.counts[f"collected: {reason}"] += tally.objects
        self.machine.oracle.counts["left_alone"] += len(report.left_alone)
