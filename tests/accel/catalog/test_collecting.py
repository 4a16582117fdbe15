"""The collector deletes what nobody needs any more: after its time, never twice, and nothing else."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TypeVar

import pytest

from accel.catalog.collect import Reason, collect, plan_collection, tallies_of
from accel.catalog.problems import ProblemKind
from accel.catalog.records import NodeList
from accel.catalog.verify import verify
from accel.errors import CommitRefused, MaintenanceRefused, MaintenanceStopped
from loaders.errors import StoreFull, StoreUnavailable
from loaders.layout import JOURNAL_PREFIX
from loaders.store import DeleteFailure, MemoryStore, ObjectStore
from loaders.store.decorated import DecoratedStore, StoreCall
from tests.accel.lookup.driving import Clock
from tests.small_disks import SmallDisk
from tests.world import DAY_SECONDS, LAYOUT, START_SECONDS, Interrupted, Watched, World, held, is_write

Answer = TypeVar("Answer")


class AgingWorld(World):
    """A world with one compaction of node 4."""

    def __init__(self, store: MemoryStore | None = None, clock: Clock | None = None) -> None:
        super().__init__(store, clock=clock)
        with self.session(1, 2) as (catalog, writer):
            self.sources = [self.upload(writer, {1: (at, at + 1)}) for at in range(4)]
            self.target = self.merge(catalog, self.sources[:3], [(1, at, at + 1) for at in range(3)])

    def journal(self) -> list[dict[str, object]]:
        keys = [info.key for info in self.memory.list(JOURNAL_PREFIX)]
        return [json.loads(line) for key in keys for line in self.memory.get(key).body.decode().splitlines()]


def on_a_small_disk() -> tuple[AgingWorld, SmallDisk]:
    clock = Clock(START_SECONDS)
    disk = SmallDisk(clock)
    return AgingWorld(disk, clock), disk


def ids_of(world: AgingWorld, reason: Reason) -> set[int]:
    with world.open() as catalog:
        return {each.object_id for each in plan_collection(catalog).objects if each.reason is reason}


@pytest.fixture
def world() -> AgingWorld:
    return AgingWorld()


def test_compacted_objects_go_after_their_time_and_not_before(world: AgingWorld) -> None:
    sources = {each.object_id for each in world.sources[:3]}
    with world.open() as catalog:
        world.wait(catalog.format.retired_seconds)
        assert ids_of(world, Reason.RETIRED) == set()
        world.wait(1)
        plan = plan_collection(catalog)
        assert {each.object_id for each in plan.objects} == sources
        report = collect(catalog, plan)
        assert report.deleted == plan.objects
        assert tallies_of(report.deleted) == plan.tallies()
        assert world.object_ids() == {world.target.object_id, world.sources[3].object_id}
        assert held(catalog, 1) == [(world.target.object_id, 0, 3), (world.sources[3].object_id, 3, 4)]
        assert plan_collection(catalog).objects == ()


def test_a_collection_frees_a_disk_that_is_wholly_full() -> None:
    """What must be written before the first deletion fits into the reserve."""
    world, disk = on_a_small_disk()
    world.wait(DAY_SECONDS / 2)
    disk.free_bytes = 0
    with world.open() as catalog:
        report = collect(catalog, plan_collection(catalog))
        assert {each.object_id for each in report.deleted} == {each.object_id for each in world.sources[:3]}
        assert plan_collection(catalog).objects == ()
    assert len(world.journal()) == 3
    assert (len(disk.refused), disk.has_reserve) == (2, False)  # the record of the run was refused before, too


def test_a_collection_without_room_says_so_at_once_and_deletes_nothing() -> None:
    world, disk = on_a_small_disk()
    world.wait(DAY_SECONDS / 2)
    disk.free_bytes, disk.has_reserve = 0, False
    before, seconds = world.object_ids(), world.clock.seconds
    with (
        world.open() as catalog,
        pytest.raises(MaintenanceStopped, match=r"No space left on device: '/small'") as caught,
    ):
        collect(catalog, plan_collection(catalog))
    assert isinstance(caught.value.__cause__, StoreFull)
    records = 2
    assert (world.object_ids(), len(disk.refused), world.clock.seconds) == (before, 1 + records, seconds)
    disk.free_bytes = 1 << 20
    world.collect()
    assert world.object_ids() < before


def test_a_plan_changes_nothing(world: AgingWorld) -> None:
    world.wait(10 * DAY_SECONDS)
    before = {info.key: info.etag for info in world.memory.list("")}
    with world.open() as catalog:
        assert plan_collection(catalog).objects
    assert {info.key: info.etag for info in world.memory.list("")} == before


def test_what_is_deleted_is_written_down_before(world: AgingWorld) -> None:
    world.wait(DAY_SECONDS / 2)
    with world.open() as catalog:
        plan = plan_collection(catalog)
        collect(catalog, plan)
    lines = world.journal()
    assert [(each["object_id"], each["key"], each["size_bytes"]) for each in lines] == [
        (each.object_id, each.key, each.size_bytes) for each in plan.objects
    ]
    assert {each["reason"] for each in lines} == {"retired"}
    assert {each["time_ms"] for each in lines} == {int(world.clock.seconds * 1000)}


def test_a_promise_past_its_deadline_is_void_and_its_object_goes(world: AgingWorld) -> None:
    with world.open() as catalog:
        [object_id] = catalog.prepare(4, 1, deadline_seconds=100)
        target, _ = world.put(object_id, [(1, 0, 4)])
        world.wait(99)
        assert ids_of(world, Reason.PREPARED) == set()
        world.wait(1)
        collect(catalog, plan_collection(catalog))
        assert object_id not in world.object_ids()
        with pytest.raises(CommitRefused, match="prepared"):
            catalog.commit_compaction(4, [world.target, world.sources[3]], target)


def test_a_writer_that_is_faster_than_the_collector_keeps_its_object(world: AgingWorld) -> None:
    with world.open() as catalog:
        [object_id] = catalog.prepare(4, 1, deadline_seconds=100)
        target, _ = world.put(object_id, [(1, 0, 4)])
        world.wait(101)
        plan = plan_collection(catalog)
        catalog.commit_compaction(4, [world.target, world.sources[3]], target)
        report = collect(catalog, plan)
        assert [each.object_id for each in report.left_alone] == [object_id]
        assert held(catalog, 1) == [(object_id, 0, 4)]


def test_an_object_that_nothing_lists_goes_when_it_is_old(world: AgingWorld) -> None:
    with world.open() as catalog:
        [object_id] = catalog.parts.ids.take(1)
        world.put(object_id, [(1, 0, 1)])
        world.wait(catalog.format.orphan_seconds)
        plan = plan_collection(catalog)
        assert plan.young.objects == 1
        world.wait(1)
        assert object_id in ids_of(world, Reason.ORPHAN)
        world.collect()
    assert object_id not in world.object_ids()


def test_objects_that_this_catalog_never_numbered_are_left_alone(world: AgingWorld) -> None:
    world.put(1_000_000, [(1, 0, 1)])
    world.memory.put("readme.txt", b"not ours")
    world.memory.put("42/other/24", b"not ours")
    world.wait(10 * DAY_SECONDS)
    with world.open() as catalog:
        plan = plan_collection(catalog)
        assert plan.foreign.objects == 1
        collect(catalog, plan)
    assert 1_000_000 in world.object_ids()
    assert world.memory.get("readme.txt").body == b"not ours"


def test_stream_objects_go_after_their_time(world: AgingWorld) -> None:
    with world.open() as catalog:
        ids = catalog.prepare(4, 2)
        rest, _ = world.put(ids[0], [(1, 3, 4)])
        own = world.put_stream_object(ids[1], 1, 0, 3)
        catalog.commit_compaction(4, [world.target, world.sources[3]], rest, [(1, own)])
        catalog.trim({1: 3})
        world.wait(catalog.format.retired_seconds + 1)
        assert ids[1] in ids_of(world, Reason.RETIRED)
        world.collect()
        assert world.object_ids() == {ids[0]}
        assert held(catalog, 1) == [(ids[0], 3, 4)]
        assert plan_collection(catalog).objects == ()


def test_a_stream_object_that_waits_in_a_list_is_no_orphan(world: AgingWorld) -> None:
    with world.open() as catalog, catalog.open_node(4) as writer:
        [object_id] = writer.prepare()
        own = world.put_stream_object(object_id, 2, 0, 5)
        writer.commit_upload(None, stream_objects={2: own})
        world.wait(10 * DAY_SECONDS)
        world.collect()
    assert object_id in world.object_ids()


def test_a_list_that_is_empty_after_commits_stops_everything(world: AgingWorld) -> None:
    world.wait(10 * DAY_SECONDS)
    with world.open() as catalog:
        plan = plan_collection(catalog)
        catalog.parts.keys.node_list(4).change(
            lambda now: replace(now, live=now.live[:0]) if now is not None and len(now.live) else None
        )
        before = world.object_ids()
        with pytest.raises(MaintenanceRefused, match="node 4: expected live objects"):
            plan_collection(catalog)
        with pytest.raises(MaintenanceRefused, match="node 4"):
            collect(catalog, plan)
        assert world.object_ids() == before
        assert plan_collection(catalog, allow_empty_nodes=frozenset({4})).objects


def test_a_catalog_without_objects_deletes_none() -> None:
    world = World(MemoryStore(clock=lambda: 0.0))
    with world.open() as catalog:
        catalog.open_node(4)
        [object_id] = catalog.parts.ids.take(1)
        world.put(object_id, [(1, 0, 1)])
        with pytest.raises(MaintenanceRefused, match="import"):
            plan_collection(catalog)


@pytest.mark.parametrize("key", ["node-lists", "stream-buckets", "counters", "nodes"])
def test_what_cannot_be_read_stops_everything(world: AgingWorld, key: str) -> None:
    world.wait(10 * DAY_SECONDS)
    [first, *_] = [info.key for info in world.memory.list(f"accel/tables/{key}/") if not info.key.endswith("!table")]
    world.memory.put(first, b"damaged")
    with (
        world.open() as catalog,
        pytest.raises(MaintenanceRefused, match=r"expected to read all|a counter that can be read"),
    ):
        plan_collection(catalog)


def test_more_than_a_batch_is_deleted_in_batches_each_with_its_journal(world: AgingWorld) -> None:
    with world.open() as catalog:
        for object_id in catalog.parts.ids.take(1500):
            world.memory.put(LAYOUT.object_key(object_id), b"orphan", mark=world.mark(object_id))
        world.wait(10 * DAY_SECONDS)
        done: list[int] = []
        report = collect(catalog, plan_collection(catalog), progress=done.append)
        assert len(report.journals) == len(done) == 2
        assert done[-1] == len(report.deleted) + len(report.left_alone)
        assert len(report.deleted) == len(world.journal())
    assert len(world.object_ids()) == 2


def test_two_collectors_with_one_plan_do_no_harm(world: AgingWorld) -> None:
    world.wait(DAY_SECONDS / 2)
    with world.open() as first, world.open() as second:
        plans = plan_collection(first), plan_collection(second)
        assert collect(first, plans[0]).deleted
        assert collect(second, plans[1]).deleted == ()
        assert len(held(first, 1)) == 2


@pytest.mark.parametrize("writes", range(4))
def test_a_slow_writer_never_commits_a_deleted_object(world: AgingWorld, writes: int) -> None:
    """The collector has done so many writes when the writer, long past its deadline, tries to commit."""
    with world.open() as writer:
        [object_id] = writer.prepare(4, 1, deadline_seconds=100)
        target, _ = world.put(object_id, [(1, 0, 4)])
        world.wait(DAY_SECONDS / 2)
        commit = partial(writer.commit_compaction, 4, [world.target, world.sources[3]], target)
        records = 2  # the table of runs, and that this one has begun
        collector = Interrupted(world.memory, partial(_ignoring_refusal, commit), records + writes)
        world.collect(collector)
        listed = {each[0] for each in held(writer, 1)}
        assert listed <= world.object_ids()
        assert object_id in listed if writes == 0 else object_id not in listed


def _ignoring_refusal(act: Callable[[], None]) -> None:
    with suppress(CommitRefused):
        act()


def test_a_promise_whose_object_lies_in_a_bucket_is_forgotten_and_the_object_stays(world: AgingWorld) -> None:
    with world.open() as catalog:
        [object_id] = catalog.prepare(4, 1)
        own = world.put_stream_object(object_id, 1, 0, 4)
        catalog.commit_compaction(4, [world.target, world.sources[3]], None, [(1, own)])
        world.wait(DAY_SECONDS)
        collect(catalog, plan_collection(catalog))
        [object_id] = catalog.prepare(4, 1)
        merged = world.put_stream_object(object_id, 1, 0, 4)
        catalog.register_stream_object(1, merged, [own.ref.object_id])
        world.wait(10 * DAY_SECONDS)
        collect(catalog, plan_collection(catalog))
        assert object_id in world.object_ids()
        assert held(catalog, 1) == [(object_id, 0, 4)]
        assert not len(catalog.parts.keys.node_list(4).change(lambda _: None).value.prepared)


def test_objects_that_could_not_be_deleted_stay_for_the_next_time() -> None:
    class Stubborn(DecoratedStore):
        def delete_many(self, keys: Iterable[str]) -> list[DeleteFailure]:
            return [DeleteFailure(key, StoreUnavailable("delete", key, "busy")) for key in keys]

    world = AgingWorld()
    world.wait(DAY_SECONDS / 2)
    with world.open(Stubborn(world.memory)) as catalog:
        plan = plan_collection(catalog)
        report = collect(catalog, plan)
        assert report.deleted == ()
        assert [each for each, _ in report.failed] == list(plan.objects)
    with world.open() as catalog:
        assert len(collect(catalog, plan_collection(catalog)).deleted) == 3


def crowded() -> AgingWorld:
    """A world with 1,500 orphans that are old enough, and a few retired and promised ones: two batches."""
    world = AgingWorld()
    with world.open() as catalog:
        for object_id in catalog.parts.ids.take(1500):
            world.memory.put(LAYOUT.object_key(object_id), b"orphan", mark=world.mark(object_id))
    world.wait(10 * DAY_SECONDS)
    return world


def test_a_collection_that_is_refused_in_the_middle_tells_what_it_has_done() -> None:
    world = crowded()
    with world.open() as catalog, world.open() as other:

        def damage(_: int) -> None:
            other.parts.keys.node_list(4).change(
                lambda now: replace(now, live=now.live[:0]) if now is not None and len(now.live) else None
            )

        plan = plan_collection(catalog)
        with pytest.raises(
            MaintenanceStopped, match=r"with 996 of 1507 objects deleted, journals up to 'accel/jou"
        ) as caught:
            collect(catalog, plan, progress=damage)
    report = caught.value.report
    assert isinstance(caught.value.__cause__, MaintenanceRefused)
    assert report.deleted == tuple(each for each in plan.objects[:1000] if each.is_listed)
    assert report.not_reached == plan.objects[1000:]
    assert list(report.journals) == [info.key for info in world.memory.list(JOURNAL_PREFIX)]
    assert not {each.object_id for each in report.deleted} & world.object_ids()
    assert pickle.loads(pickle.dumps(caught.value)).report.journals == report.journals  # noqa: S301 - made here


def test_a_collection_whose_writes_fail_tells_what_it_has_done() -> None:
    for writes in count():
        world, done = crowded(), count()

        def refuse(call: StoreCall) -> None:
            if is_write(call) and next(done) >= writes:  # noqa: B023 - used within this turn alone
                raise StoreUnavailable(call.operation, call.key, "busy")

        with world.open(Watched(world.memory, refuse)) as catalog:
            plan = plan_collection(catalog)
            before = world.object_ids()
            try:
                report = collect(catalog, plan)
            except MaintenanceStopped as error:
                report = error.report
            assert {each.object_id for each in report.deleted} & before == before - world.object_ids()
            assert report.journals == tuple(info.key for info in world.memory.list(JOURNAL_PREFIX))
        if next(done) <= writes:
            return


def without_runs(store: ObjectStore) -> dict[str, str]:
    return {info.key: info.etag for info in store.list("") if "/job-runs/" not in info.key}


def test_a_collection_that_is_refused_at_once_has_changed_nothing(world: AgingWorld) -> None:
    world.wait(10 * DAY_SECONDS)
    with world.open() as catalog:
        plan = plan_collection(catalog)
        [first, *_] = [info.key for info in world.memory.list("accel/tables/node-lists/") if "!" not in info.key]
        world.memory.put(first, b"damaged")
        before = without_runs(world.memory)
        with pytest.raises(MaintenanceRefused):
            collect(catalog, plan)
        assert without_runs(world.memory) == before


def test_a_list_that_was_deleted_and_made_anew_is_in_doubt(world: AgingWorld) -> None:
    with world.open() as catalog:
        [orphan_id] = catalog.parts.ids.take(1)
        with catalog.open_node(5) as other:
            other.open_streams([3])
            world.upload(other, {3: (0, 1)})
    world.put(orphan_id, [(1, 0, 1)])
    [first, *_] = [info.key for info in world.memory.list("accel/tables/node-lists/") if "!" not in info.key]
    world.memory.delete(first)
    with world.open() as catalog:
        catalog.parts.keys.node_list(4).create_if_absent(NodeList(4))  # no session does so
        world.wait(10 * DAY_SECONDS)
        expected = "list of node 4: expected the 4 commits that its checkpoint contains, found 0: deleted, or put back?"
        for allowed in (frozenset[int](), frozenset({4})):
            plan = plan_collection(catalog, allow_empty_nodes=allowed)
            assert dict(plan.doubts) == {4: expected}
            assert not any(each.is_listed for each in plan.objects)
        assert {each.kind for each in verify(catalog).problems} == {ProblemKind.LIST, ProblemKind.END}
