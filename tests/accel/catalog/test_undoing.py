"""A bad commit is taken back while its sources exist, and nothing that was uploaded since is lost."""

from __future__ import annotations

from typing import NoReturn, TypeVar

import pytest

from accel.catalog import ObjectCatalog, compact
from accel.catalog.collect import collect, plan_collection
from accel.catalog.shard_writes import move_stream_objects
from accel.catalog.stream_shards import shard_of
from accel.catalog.undo import UndoReport, Way, plan_undo, undo, unfinished_commits, versions
from accel.errors import CommitRefused, MaintenanceRefused
from accel.image import StreamObject
from accel.testing import Crash, CrashStore
from loaders.errors import StoreUnavailable
from loaders.object_ref import ObjectRef
from tests.world import LAYOUT, Interrupted, World, held

Answer = TypeVar("Answer")


class Compacted(World):
    """Node 4 uploaded five objects; the first three became one, with an object of stream 2 beside it."""

    def __init__(self) -> None:
        super().__init__()
        with self.session(1, 2) as (catalog, writer):
            self.sources = [self.upload(writer, {1: (at, at + 1), 2: (at, at + 1)}) for at in range(3)]
            self.before = contents(catalog)
            self.compact(catalog)
            self.later = [self.upload(writer, {1: (at, at + 1), 2: (at, at + 1)}) for at in range(3, 5)]

    def compact(self, catalog: ObjectCatalog) -> None:
        ids = catalog.prepare(4, 2)
        self.target, _ = self.put(ids[0], [(1, 0, 3)])
        self.own = self.put_stream_object(ids[1], 2, 0, 3)
        catalog.commit_compaction(4, self.sources, self.target, [(2, self.own)])


Held = dict[int, list[tuple[int, int, int]]]


def contents(catalog: ObjectCatalog) -> Held:
    return {stream_id: held(catalog, stream_id) for stream_id in (1, 2)}


def expected(world: Compacted) -> Held:
    refs: list[ObjectRef] = [*world.sources, *world.later]
    spans = [(ref.object_id, at, at + 1) for at, ref in enumerate(refs)]
    return {1: spans, 2: spans}


@pytest.fixture
def world() -> Compacted:
    return Compacted()


def test_undoing_brings_the_sources_back_and_keeps_later_uploads(world: Compacted) -> None:
    with world.open() as catalog:
        report = undo(catalog, 4)
        assert report.is_changed
        assert list(report.revived) == [ref.object_id for ref in world.sources]
        assert report.withdrawn == (world.target.object_id,)
        assert contents(catalog) == expected(world)


def test_versions_tell_what_the_list_was(world: Compacted) -> None:
    with world.open() as catalog:
        [only] = versions(catalog, 4)
        assert only.live == len(world.sources)
        assert only.size_bytes == sum(ref.size_bytes for ref in world.sources)
        assert undo(catalog, 4, only.sequence).sequence == only.sequence
        assert len(versions(catalog, 4)) == 2


def test_an_undo_that_is_repeated_changes_nothing(world: Compacted) -> None:
    with world.open() as catalog:
        [only] = versions(catalog, 4)
        undo(catalog, 4, only.sequence)
        before = {info.key: info.etag for info in world.memory.list("")}
        assert not undo(catalog, 4, only.sequence).is_changed
        assert {info.key: info.etag for info in world.memory.list("")} == before
        with pytest.raises((CommitRefused, MaintenanceRefused)):
            undo(catalog, 4)


def test_a_writer_goes_on_after_an_undo(world: Compacted) -> None:
    with world.open() as catalog, catalog.open_node(4) as writer:
        undo(catalog, 4)
        last = world.upload(writer, {1: (5, 9)})
        assert held(catalog, 1)[-1] == (last.object_id, 5, 9)
        world.compact(catalog)
        assert held(catalog, 1)[0] == (world.target.object_id, 0, 3)


def test_what_was_withdrawn_is_collected_in_time(world: Compacted) -> None:
    with world.open() as catalog:
        undo(catalog, 4)
        world.clock.seconds += catalog.format.retired_seconds + 1
        deleted = {each.object_id for each in collect(catalog, plan_collection(catalog)).deleted}
        assert deleted == {world.target.object_id, world.own.ref.object_id}
        assert contents(catalog) == expected(world)


def test_an_object_that_does_not_exist_any_more_does_not_come_back(world: Compacted) -> None:
    world.memory.delete(LAYOUT.object_key(world.sources[1].object_id))
    with world.open() as catalog:
        before = contents(catalog)
        with pytest.raises(MaintenanceRefused, match=f"object {world.sources[1].object_id}"):
            undo(catalog, 4)
        assert contents(catalog) == before


def test_an_object_of_another_size_does_not_come_back(world: Compacted) -> None:
    world.memory.put(LAYOUT.object_key(world.sources[1].object_id), b"x" * (world.sources[1].size_bytes + 1))
    with world.open() as catalog, pytest.raises(MaintenanceRefused, match="to exist"):
        undo(catalog, 4)


def test_an_unknown_version_is_refused(world: Compacted) -> None:
    with world.open() as catalog, pytest.raises(MaintenanceRefused, match="expected one of the versions"):
        undo(catalog, 4, 999)


def test_without_a_version_there_is_nothing_to_undo() -> None:
    world = World()
    with world.open() as catalog:
        catalog.open_node(4)
        with pytest.raises(MaintenanceRefused, match="earlier version"):
            undo(catalog, 4)


def test_a_collector_that_was_first_wins(world: Compacted) -> None:
    with world.open() as catalog:
        world.clock.seconds += catalog.format.retired_seconds + 1
        counting = CrashStore(world.memory, 3)  # it records its run, dooms them, and dies before its journal
        with world.open(counting) as dying, pytest.raises(Crash):
            collect(dying, plan_collection(dying))
        with pytest.raises(CommitRefused, match="being deleted"):
            undo(catalog, 4)


def test_an_undo_that_was_first_wins(world: Compacted) -> None:
    with world.open() as catalog, world.open() as other:
        world.clock.seconds += catalog.format.retired_seconds + 1
        plan = plan_collection(other)
        assert {each.object_id for each in plan.objects} == {ref.object_id for ref in world.sources}
        undo(catalog, 4)
        report = collect(other, plan)
        assert report.deleted == ()
        assert report.left_alone == plan.objects
        assert contents(catalog) == expected(world)


def test_a_plan_tells_what_an_undo_does_and_changes_nothing(world: Compacted) -> None:
    with world.open() as catalog:
        before = {info.key: info.etag for info in world.memory.list("")}
        planned = plan_undo(catalog, 4)
        assert {info.key: info.etag for info in world.memory.list("")} == before
        assert planned == undo(catalog, 4)


def test_versions_tell_which_of_them_can_be_put_back(world: Compacted) -> None:
    with world.open() as catalog:
        [only] = versions(catalog, 4)
        assert (only.way, only.reason, only.kept_at_ms) == (Way.OPEN, "", int(world.clock.seconds * 1000))
        undo(catalog, 4)
        assert [each.way for each in versions(catalog, 4)] == [Way.THERE, Way.CLOSED]


def test_versions_whose_objects_are_gone_cannot_be_put_back(world: Compacted) -> None:
    world.memory.delete(LAYOUT.object_key(world.sources[1].object_id))
    with world.open() as catalog:
        [only] = versions(catalog, 4)
        assert only.way is Way.CLOSED
        assert f"object {world.sources[1].object_id}" in only.reason
        with pytest.raises(MaintenanceRefused, match="to exist"):
            plan_undo(catalog, 4)


class Half(Compacted):
    """The object of stream 2 still waits in the list, and a mover of it is slow."""

    def compact(self, catalog: ObjectCatalog) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compact, "move_stream_objects", no_move)
            super().compact(catalog)

    def own_rows(self) -> tuple[list[int], list[int]]:
        """Ids of the objects of stream 2 in its bucket: live, and retired."""
        with self.open() as catalog:
            seen = catalog.parts.keys.shard(shard_of(2, catalog.format.stream_buckets)).read()
        assert seen is not None
        return seen.value.stream_objects["object_id"].tolist(), seen.value.retired["object_id"].tolist()


def no_move(*_: object) -> NoReturn:
    raise StoreUnavailable("put", "bucket", "busy")


def undo_by_a_process_that_dies(world: Compacted) -> None:
    """It dies after its write of the list."""
    with world.open(CrashStore(world.memory, 2)) as dying, pytest.raises(Crash):
        undo(dying, 4)
    with world.open() as catalog:
        assert unfinished_commits(catalog, 4)


def test_a_slow_mover_does_not_bring_back_what_was_undone() -> None:
    world = Half()

    def undone_and_finished_by_another() -> None:
        undo_by_a_process_that_dies(world)
        with world.open() as other:
            move_stream_objects(other.parts, 4)  # as the next commit does it
            assert not unfinished_commits(other, 4)

    slow = Interrupted(world.memory, undone_and_finished_by_another)
    with world.open(slow) as catalog:
        move_stream_objects(catalog.parts, 4)
    assert world.own_rows() == ([], [world.own.ref.object_id])
    with world.open() as catalog:
        assert contents(catalog) == expected(world)


def test_an_undo_takes_back_what_another_commit_builds_on_meanwhile() -> None:
    world = Half()
    more: list[StreamObject] = []

    def compact_further() -> None:
        with world.open() as other, pytest.MonkeyPatch.context() as patch:
            patch.setattr(compact, "move_stream_objects", no_move)
            ids = other.prepare(4, 2)
            both, _ = world.put(ids[0], [(1, 0, 4)])
            more.append(world.put_stream_object(ids[1], 2, 3, 4))
            other.commit_compaction(4, [world.target, world.later[0]], both, [(2, more[0])])

    slow = Interrupted(world.memory, compact_further, 1)
    with world.open(slow) as catalog:
        undo(catalog, 4)
        assert contents(catalog) == expected(world)
    retired = world.own_rows()[1]
    assert sorted(retired) == sorted([world.own.ref.object_id, more[0].ref.object_id])


def test_an_undo_that_only_finishes_another_one_says_so(world: Compacted) -> None:
    undo_by_a_process_that_dies(world)
    with world.open() as catalog:
        commits = unfinished_commits(catalog, 4)
        assert plan_undo(catalog, 4) == UndoReport(4, None, finished=commits)
        report = undo(catalog, 4)
        assert (report.sequence, report.finished, report.is_changed) == (None, commits, False)
        assert contents(catalog) == expected(world)
