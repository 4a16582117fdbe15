"""Two systems with the same keys in one namespace, for 30 simulated days, with every job of ours.

The other one has a counter of ids of its own, writes without conditions, and deletes by id what it takes for its own.
We delete none of its objects and overwrite none; our sessions stop where they meet one; what it overwrote or deleted of
ours is named by `verify`, and never served.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

import pytest

from accel import ReadAccelerator
from accel.catalog import CatalogSettings, NodeWriter, ObjectCatalog
from accel.catalog.collect import collect, plan_collection
from accel.catalog.undo import undo
from accel.catalog.verify import stream_object_rows, verify
from accel.catalog.whole_catalog import read_survey
from accel.compaction import CompactionSettings
from accel.compaction.planning import plan_compaction
from accel.compaction.running import compact
from accel.errors import AccelError, NamespaceShared
from accel.hint_building import HintChoice, build_hints, plan_hints
from accel.repair.catalog import repair
from accel.repair.objects import PutBackOutcome, put_back
from accel.streams.settings import SegmentsSettings
from loaders.format import RecordBatch
from loaders.layout import ObjectLayout
from loaders.object_writer import ObjectWriter
from loaders.store import MemoryStore
from loaders.tables import FormatRecord
from tests.accel.lookup.cluster import system
from tests.accel.lookup.driving import Clock
from tests.accel.streams.writer import world as streams_world

DAYS = 30
DAY_SECONDS = 86_400.0
FORMAT = FormatRecord(namespace="shop", stream_buckets=1)
LAYOUT = ObjectLayout(namespace="shop")
SETTINGS = CatalogSettings(parallel_requests=2, ids_block=16)
COMPACTION = CompactionSettings(max_objects_per_node=8, min_age_seconds=0)
NODES = {4: (101, 102), 5: (103,)}
STREAMS = (101, 102, 103)
CHECKED_EACH_DAYS = 5
OURS, THEIRS = b"ours", b"theirs"
OBJECT = re.compile(r"object (\d+)")


class Strangers:
    """The other system. It knows nothing of us.

    Attributes:
        objects: key -> bytes of each of its objects that it has not deleted.
        overwritten: ids of our objects in whose place it wrote.
        deleted: ids of our objects that it deleted.
    """

    def __init__(self, memory: MemoryStore, first_id: int, catalog_id: str) -> None:
        self._layout = replace(LAYOUT, catalog_id=catalog_id)
        self.objects: dict[str, bytes] = {}
        self.overwritten: set[int] = set()
        self.deleted: set[int] = set()
        self._memory = memory
        self._next_id = first_id
        self._oldest_id = first_id

    def write(self, random: Random) -> None:
        """Write an object, in the format and with the streams that we have, too; it replaces what was there."""
        object_id, self._next_id = self._next_id, self._next_id + 1
        scratch = MemoryStore()
        with ObjectWriter(scratch, LAYOUT, object_id) as writer:
            for stream_id in STREAMS:
                writer.write(stream_id, [RecordBatch(stream_id, 1, 0, 10, THEIRS * random.randrange(1, 20))])
        key = LAYOUT.object_key(object_id)
        if key not in self.objects and self._is_there(key):
            self.overwritten.add(object_id)
        self.objects[key] = scratch.get(key).body
        mark = self._layout.mark(object_id, lambda: random.randbytes(16)) if self._layout.catalog_id else None
        self._memory.put(key, self.objects[key], mark=mark)

    def delete_oldest(self) -> None:
        """Delete the object of its oldest id, whatever is there."""
        if self._oldest_id >= self._next_id:
            return
        object_id, self._oldest_id = self._oldest_id, self._oldest_id + 1
        key = LAYOUT.object_key(object_id)
        if self.objects.pop(key, None) is None and self._is_there(key):
            self.deleted.add(object_id)
        self._memory.delete(key)

    def _is_there(self, key: str) -> bool:
        return any(info.key == key for info in self._memory.list(key, limit=1))


@dataclass(frozen=True)
class Situation:
    """How both meet.

    Args:
        theirs_first: objects that the other system has before our catalog is made.
        ours_first: objects that we have before it comes.
        first_id: of the other system.
        pace: objects that it writes in two days.
        catalog_id: in its marks, if it is another catalog of Accel; empty = its objects have no marks.
    """

    theirs_first: int
    ours_first: int
    first_id: int
    pace: int
    catalog_id: str = ""


class Shared:
    """The bucket, the other system, and the processes of ours that come and go."""

    def __init__(self, seed: int, situation: Situation) -> None:
        self.pace = situation.pace
        self.random = Random(seed)
        self.clock = Clock()
        self.clock.seconds = 1_800_000_000.0
        self.memory = MemoryStore(clock=self.clock)
        chances = Random(seed + 1)
        self.system = replace(system(self.clock), clock=self.clock, nonce=lambda: chances.randbytes(16))
        self.strangers = Strangers(self.memory, situation.first_id, situation.catalog_id)
        self.did: Counter[str] = Counter()
        self.took = 0
        for _ in range(situation.theirs_first):
            self.strangers.write(self.random)
        ObjectCatalog.init(self.memory, FORMAT, settings=SETTINGS, system=self.system)
        self.catalog = ObjectCatalog.open(self.memory, settings=SETTINGS, system=self.system)
        self.sessions: dict[int, NodeWriter] = {}
        for _ in range(situation.ours_first):
            self.upload()
        self.copy = self._copied()

    def live(self) -> None:
        """All days; on each of them half of the jobs, one after the other."""
        jobs: list[Callable[[], object]] = [
            *[self.upload] * 6,
            self.write_events,
            self.abandon,
            self.compact,
            self.collect,
            self.verify,
            self.build_hints,
            self.undo,
            self.trim,
            self.put_back,
            self.repair,
            *[lambda: self.strangers.write(self.random)] * self.pace,
            self.strangers.delete_oldest,
        ]
        for day in range(1, DAYS + 1):
            for job in self.random.sample(jobs, len(jobs) // 2):
                self.clock.seconds += 2 * DAY_SECONDS / len(jobs)
                self.tried(job)
                self.check_theirs()
            if day % CHECKED_EACH_DAYS == 0:
                self.check_ours()

    def tried(self, job: Callable[[], object]) -> None:
        """A job that may find that it cannot go on: then it says so by an error of ours."""
        name = getattr(job, "__name__", "")
        try:
            job()
        except AccelError as error:
            self.did[f"{name}: {type(error).__name__}"] += 1
        else:
            self.did[name] += 1

    def check_theirs(self) -> None:
        """Every object of theirs is there, as they wrote it."""
        for key, body in self.strangers.objects.items():
            assert self.memory.get(key).body == body, f"{key} was replaced"

    def check_ours(self) -> None:
        """What they took of ours is named, and nothing of theirs is read by anybody."""
        live = self.live_ids()
        lost = (self.strangers.overwritten | self.strangers.deleted) & live
        self.took += len(lost)
        named = {int(each) for problem in verify(self.catalog).damage for each in OBJECT.findall(str(problem))}
        assert lost <= named, f"{sorted(lost - named)} of {sorted(live)}"
        streams = self.catalog.refresh().streams
        for stream_id in [each for each in STREAMS if each in streams]:
            with ReadAccelerator(self.catalog.images(), self.memory, system=self.system) as accelerator:
                try:
                    for found in accelerator.read(stream_id, streams[stream_id].start_offset):
                        assert found.payload.startswith(OURS), f"stream {stream_id}: {found}"
                except AccelError as error:
                    self.did[f"a read: {type(error).__name__}"] += 1
                else:
                    self.did["whole reads"] += 1

    def live_ids(self) -> set[int]:
        """The objects that the catalog lists."""
        survey = read_survey(self.catalog.parts)
        own = {int(each) for each in stream_object_rows(survey)["object_id"]}
        return own.union(*(node.value.live["object_id"].tolist() for node in survey.lists.values()))

    # Our jobs

    def upload(self) -> None:
        """One upload of a node, by a new session if the last one was stopped."""
        node_id = self.random.choice(list(NODES))
        writer = self.sessions.get(node_id)
        if writer is None:
            writer = self.sessions[node_id] = self.catalog.open_node(node_id)
            writer.open_streams([each for each in NODES[node_id] if writer.end(each) is None])
        before = writer.node_list.live["object_id"].tolist()
        payload = OURS * self.random.randrange(1, 20)
        try:
            starts = {stream_id: writer.end(stream_id) or 0 for stream_id in NODES[node_id]}
            writer.upload({each: [RecordBatch(each, 1, start, 10, payload)] for each, start in starts.items()})
        except NamespaceShared as error:
            assert writer.node_list.live["object_id"].tolist() == before, "nothing was committed"
            with pytest.raises(NamespaceShared, match=re.escape(error.key)):
                writer.prepare()
            del self.sessions[node_id]
            raise

    def write_events(self) -> None:
        """Events of a stream, by a host of its own that ends again."""
        world = streams_world.World.__new__(streams_world.World)
        world.store, world.seconds, world.settings = (
            self.memory,
            self.clock.seconds,
            SegmentsSettings(linger_seconds=5.0),
        )
        world.moves = streams_world.MOVES
        world.system, world.on_sleep = self.system, lambda: None
        with world.process(node_id=6) as process:
            if not self.did["write_events"]:
                world.create(by=process)
            with process.writer() as writer:
                writer.write_many([(OURS, b"%d" % number) for number in range(5)])

    def abandon(self) -> None:
        """An object that is written and never committed."""
        [object_id] = self.catalog.prepare(4, 1)
        parts = self.catalog.parts
        with ObjectWriter(self.memory, parts.layout, object_id, nonce=self.system.nonce) as writer:
            writer.write(101, [RecordBatch(101, 1, 0, 10, OURS)])

    def compact(self) -> None:
        """A run of compaction."""
        compact(self.catalog, plan_compaction(self.catalog, COMPACTION))

    def collect(self) -> None:
        """A collection: `gc --yes`."""
        report = collect(self.catalog, plan_collection(self.catalog))
        self.did["collected objects"] += len(report.deleted)

    def verify(self) -> None:
        """A verification."""
        verify(self.catalog)

    def build_hints(self) -> None:
        """Filters and snapshots."""
        build_hints(self.catalog, plan_hints(self.catalog, HintChoice()))

    def undo(self) -> None:
        """An undo of a node's last compaction, if there is any; now and then."""
        if self.random.random() < 0.2:
            undo(self.catalog, self.random.choice(list(NODES)))

    def trim(self) -> None:
        """Retention: the older half of a stream goes."""
        stream_id = self.random.choice(STREAMS)
        self.catalog.trim({stream_id: self.catalog.stream_end(stream_id) // 2})

    def put_back(self) -> None:
        """An operator puts lost objects back from a copy of the bucket."""
        report = put_back(self.catalog, self.copy, is_dry_run=False)
        for each in report.found:
            if each.outcome is PutBackOutcome.PUT_BACK:
                assert each.key not in self.strangers.objects
                self.strangers.overwritten.discard(each.object_id)
                self.strangers.deleted.discard(each.object_id)
                self.did["objects put back"] += 1
        self.copy = self._copied()

    def repair(self) -> None:
        """A repair of the catalog's keys."""
        repair(self.catalog, apply=True)

    def _copied(self) -> MemoryStore:
        copied = MemoryStore()
        for info in self.memory.list(""):
            found = self.memory.get(info.key)
            copied.put(info.key, found.body, mark=found.mark)
        return copied


SITUATIONS = {
    "made beside them": Situation(theirs_first=30, ours_first=0, first_id=0, pace=2),
    "they come to us": Situation(theirs_first=0, ours_first=30, first_id=0, pace=12),
    "another catalog is ahead": Situation(theirs_first=50, ours_first=5, first_id=60, pace=4, catalog_id="0b" * 16),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_of_two_systems_in_one_namespace_neither_loses_anything_by_ours(situation: str) -> None:
    shared = Shared(len(situation), SITUATIONS[situation])
    shared.live()
    stopped = sum(count for name, count in shared.did.items() if "NamespaceShared" in name)
    assert shared.did["collected objects"] > 0, "we still delete what is ours"
    if situation == "they come to us":
        assert shared.took > 0, "they overwrite and delete live objects of ours"
    else:
        assert min(stopped, shared.did["whole reads"]) > 0, "we meet them, and go on beside them"
