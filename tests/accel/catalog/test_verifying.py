"""Verification finds what is wrong, calls nothing wrong that is right, and says what it could not look at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from accel.catalog import ObjectCatalog
from accel.catalog.node_list import with_sketches
from accel.catalog.problems import ProblemKind, Severity
from accel.catalog.records import NodeList, StreamShard, join_rows
from accel.catalog.sketches_and_ends import sketch_rows
from accel.catalog.stream_shards import shard_of
from accel.catalog.undo import undo
from accel.catalog.verify import Verdict, Verification, verify
from accel.repair.sketches import sketch_list
from bloom import StreamSketch
from loaders.errors import AccessDenied
from loaders.store import ObjectStore
from loaders.store.decorated import StoreCall
from tests.accel.catalog.building import done
from tests.world import FORMAT, LAYOUT, Watched, World


class Tidy(World):
    """Two nodes with objects, a compaction, and objects of one stream; all as it should be."""

    def __init__(self) -> None:
        super().__init__()
        with self.open() as catalog:
            with catalog.open_node(7) as other:
                other.open_streams([9])
                self.upload(other, {9: (0, 4)})
            with catalog.open_node(4) as writer:
                writer.open_streams([1, 2])
                self.refs = [self.upload(writer, {1: (at, at + 1), 2: (at, at + 1)}) for at in range(5)]
            ids = catalog.prepare(4, 2)
            self.target, _ = self.put(ids[0], [(1, 0, 3)])
            self.own = self.put_stream_object(ids[1], 2, 0, 3)
            catalog.commit_compaction(4, self.refs[:3], self.target, [(2, self.own)])

    def change_list(self, change: Callable[[NodeList], NodeList]) -> None:
        with self.open() as catalog:
            done: list[int] = []

            def once(found: NodeList | None) -> NodeList | None:
                assert found is not None
                done.append(1)
                return change(found) if len(done) == 1 else None

            catalog.parts.keys.node_list(4).change(once)


def denying(store: ObjectStore, object_id: int) -> Watched:
    """A store that does not let one object be read."""

    def refuse(call: StoreCall) -> None:
        if (call.operation, call.key) == ("get_range", LAYOUT.object_key(object_id)):
            raise AccessDenied("get_range", call.key, "forbidden")

    return Watched(store, refuse)


def kinds(found: Verification, severity: Severity | None = None) -> set[ProblemKind]:
    return {each.kind for each in found.problems if severity in (None, each.severity)}


@pytest.fixture
def world() -> Tidy:
    return Tidy()


def test_a_catalog_as_it_should_be_is_clean() -> None:
    found = Tidy().verify()
    assert (found.outcome, found.problems, found.unchecked, found.orphans) == (Verdict.CLEAN, [], [], [])
    assert found.counts["lists"] == 2
    assert found.counts["shards"] == FORMAT.stream_buckets
    assert found.counts["objects"] == 1 + 1 + 2 + 1
    assert found.counts["keys"] == 1 + 5 + 2


def test_an_empty_catalog_is_clean() -> None:
    with World().open() as catalog:
        assert verify(catalog).outcome is Verdict.CLEAN


def test_nothing_is_written(world: Tidy) -> None:
    before = {info.key: info.etag for info in world.memory.list("")}
    world.verify()
    assert {info.key: info.etag for info in world.memory.list("")} == before


def test_progress_counts_objects() -> None:
    seen: list[tuple[int, int]] = []
    with Tidy().open() as catalog:
        verify(catalog, progress=lambda *numbers: seen.append(numbers))
    assert seen == [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]


@pytest.mark.parametrize("which", ["live", "own"])
def test_an_object_that_does_not_exist_is_a_problem(world: Tidy, which: str) -> None:
    object_id = world.target.object_id if which == "live" else world.own.ref.object_id
    world.memory.delete(LAYOUT.object_key(object_id))
    [problem] = world.verify().problems
    assert problem.kind is ProblemKind.MISSING
    assert str(object_id) in problem.where


@pytest.mark.parametrize("body", [b"", b"short", b"x" * 5000])
def test_an_object_that_cannot_be_read_or_has_another_size_is_a_problem(world: Tidy, body: bytes) -> None:
    world.memory.put(LAYOUT.object_key(world.target.object_id), body)
    assert kinds(world.verify()) == {ProblemKind.DAMAGED}


def test_an_index_of_another_size_is_a_problem() -> None:
    def change(now: NodeList) -> NodeList:
        live = now.live.copy()
        live["index_size_bytes"][0] += 1
        return replace(now, live=live)

    world = Tidy()
    world.change_list(change)
    assert kinds(world.verify()) == {ProblemKind.DAMAGED}


def test_offsets_that_go_back_through_a_list_are_a_problem() -> None:
    def swap(now: NodeList) -> NodeList:
        live = now.live.copy()
        for name in ("object_id", "size_bytes", "index_size_bytes"):
            live[name][-2:] = live[name][-2:][::-1].copy()
        return replace(now, live=live)

    world = Tidy()
    world.change_list(swap)
    found = world.verify()
    assert kinds(found) == {ProblemKind.ORDER, ProblemKind.HOLE}
    assert kinds(found, Severity.ADVICE) == {ProblemKind.HOLE}
    assert {each.expected for each in found.problems} >= {"stream 1 to continue at 5 or above"}


def test_an_object_that_is_live_and_retired_is_a_problem() -> None:
    def retire(now: NodeList) -> NodeList:
        retired = now.retired.copy()
        retired["object_id"][0] = now.live["object_id"][0]
        return replace(now, retired=retired)

    world = Tidy()
    world.change_list(retire)
    assert kinds(world.verify()) == {ProblemKind.LIST, ProblemKind.PLACE}


def test_a_stream_object_that_claims_what_another_object_holds_is_a_problem(world: Tidy) -> None:
    with world.open() as catalog:
        own = world.put_stream_object(catalog.parts.ids.take(1)[0], 2, 3, 4)
        number = shard_of(2, FORMAT.stream_buckets)

        def add(found: StreamShard | None) -> StreamShard | None:
            assert found is not None
            if own.ref.object_id in found.stream_objects["object_id"]:
                return None
            row = found.stream_objects[found.stream_objects["stream_id"] == 2].copy()
            row["object_id"], row["start"], row["end"] = own.ref.object_id, 3, 4
            row["size_bytes"], row["index_size_bytes"] = own.ref.size_bytes, own.ref.index_size_bytes
            rows = np.sort(join_rows(found.stream_objects, row), order=["stream_id", "start"])
            return replace(found, stream_objects=rows)

        catalog.parts.keys.shard(number).change(add)
    [problem] = world.verify().problems
    assert (problem.kind, problem.where) == (ProblemKind.STREAM_OBJECT, "stream 2")


def test_a_stream_object_that_holds_something_else_is_a_problem(world: Tidy) -> None:
    replaced, _ = world.put(world.own.ref.object_id, [(1, 0, 3)])
    assert replaced.size_bytes == world.own.ref.size_bytes
    found = world.verify()
    assert kinds(found) == {ProblemKind.STREAM_OBJECT}


def test_a_sketch_that_hides_a_stream_of_its_object_is_damage_and_a_command_mends_it(world: Tidy) -> None:
    wrong, true = StreamSketch.build(np.array([1, 77])), StreamSketch.build(np.array([1, 2, 3, 77]))
    ids = [ref.object_id for ref in world.refs[3:]]
    world.change_list(lambda now: done(with_sketches(now, sketch_rows(zip(ids, [wrong, true], strict=True)))))
    found = world.verify()
    assert kinds(found, Severity.DAMAGE) == kinds(found) == {ProblemKind.SKETCH}
    [problem] = found.problems  # one that excludes fewer streams than it could is as true
    assert problem.where == f"object {ids[0]} in the list of node 4"
    assert "found a sketch that excludes 2: `accel repair --sketches 4 --yes` makes a true sketch" in str(problem)
    with world.open() as catalog:
        assert sketch_list(catalog, 4).wrong == (ids[0],)
    assert world.verify().problems == []


def test_an_orphan_is_told_with_its_age_and_is_no_problem(world: Tidy) -> None:
    with world.open() as catalog:
        [object_id] = catalog.parts.ids.take(1)
    world.put(object_id, [(1, 0, 1)])
    world.clock.seconds += 500
    found = world.verify()
    assert found.outcome is Verdict.CLEAN
    assert [(each.object_id, each.age_seconds, each.is_ours) for each in found.orphans] == [(object_id, 500, True)]


@pytest.mark.parametrize("is_of_a_catalog", [False, True])
def test_objects_of_another_system_are_named_and_no_damage(world: Tidy, is_of_a_catalog: bool) -> None:
    other = replace(LAYOUT, catalog_id="0b" * 16)
    for object_id in (40, 900, 901):  # below and above the counter of ids
        mark = other.mark(object_id, world.system.nonce) if is_of_a_catalog else None
        world.memory.put(LAYOUT.object_key(object_id), b"theirs", mark=mark)
    found = world.verify()
    assert (found.outcome, kinds(found)) == (Verdict.ADVICE, {ProblemKind.STRANGER})
    [problem] = found.problems
    assert problem.where == "namespace 'test'"
    assert "found 3 of 3 without a mark of it" in str(problem)
    assert [each.is_ours for each in found.orphans] == [False] * 3


def test_an_orphan_that_cannot_be_read_is_neither_ours_nor_theirs(world: Tidy) -> None:
    world.memory.put(LAYOUT.object_key(900), b"theirs")
    with world.open(denying(world.memory, 900)) as catalog:
        found = verify(catalog)
    assert (found.outcome, [each.is_ours for each in found.orphans]) == (Verdict.CLEAN, [None])


def test_an_undone_compaction_leaves_a_clean_catalog(world: Tidy) -> None:
    with world.open() as catalog:
        undo(catalog, 4)
    assert world.verify().problems == []


@pytest.mark.parametrize("table", ["node-lists", "stream-buckets"])
def test_a_damaged_record_is_a_problem_and_the_rest_is_checked(world: Tidy, table: str) -> None:
    [first, *_] = [info.key for info in world.memory.list(f"accel/tables/{table}/") if "!" not in info.key]
    world.memory.put(first, b"damaged")
    found = world.verify()
    assert found.outcome is Verdict.PROBLEMS
    assert found.counts["objects"] >= 1


def test_what_cannot_be_read_is_not_checked_rather_than_wrong(world: Tidy) -> None:
    with world.open(denying(world.memory, world.target.object_id)) as catalog:
        found = verify(catalog)
    assert found.outcome is Verdict.NOT_CHECKED
    assert str(world.target.object_id) in found.unchecked[0].where


def test_contradictions_of_a_catalog_that_changes_meanwhile_are_not_told_as_problems() -> None:
    def swap(now: NodeList) -> NodeList:
        live = now.live.copy()
        for name in ("object_id", "size_bytes", "index_size_bytes"):
            live[name][-2:] = live[name][-2:][::-1].copy()
        return replace(now, live=live)

    world = Tidy()
    world.change_list(swap)
    with world.open() as catalog, world.open() as other:
        found = verify(catalog, progress=lambda *_: touch(other))
    assert found.outcome is Verdict.NOT_CHECKED


def touch(catalog: ObjectCatalog) -> None:
    catalog.prepare(4, 1)
