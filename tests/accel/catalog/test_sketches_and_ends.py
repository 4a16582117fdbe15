"""What commits tell of objects is true of them, saves requests, and is unknown wherever nobody told it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from accel import ReadAccelerator, StaticImages
from accel.catalog import CatalogSettings, NodeWriter, ObjectCatalog
from accel.catalog.node_list import check_list, with_sketches, with_upload
from accel.catalog.records import SKETCH, STREAM_END, Checkpoint, NodeList, make_rows, no_rows
from accel.catalog.sketches_and_ends import KnownEnds, NodeFacts, sketch_rows
from accel.catalog.undo import undo, versions
from accel.image import MetadataImage
from accel.image_source import PolledImages
from accel.repair.sketches import SketchReport, sketch_list
from accel.settings import ENDS_SIZE_BYTES_MAX
from accel.testing import Fault, FaultStore
from bloom import StreamSketch
from tests.accel.catalog.building import done, facts, list_of, prepared
from tests.world import World, list_of_node


def sketch(*stream_ids: int) -> StreamSketch:
    return StreamSketch.build(np.array(stream_ids, dtype=np.int64))


def sketches(now: NodeList) -> dict[int, StreamSketch]:
    return {object_id: StreamSketch(*numbers) for object_id, *numbers in now.sketches.tolist()}


# In the list


def test_sketches_of_objects_that_are_not_live_say_nothing_and_leave_with_the_next_commit() -> None:
    now = replace(prepared(list_of(10), 11), sketches=sketch_rows([(9, sketch(5)), (10, sketch(3))]))
    assert check_list(now) == []
    assert NodeFacts(now).excludes(5).tolist() == [True]  # type: ignore[union-attr]  # it has one sketch
    assert sketches(done(with_upload(now, now.epoch, facts(11)))) == {10: sketch(3)}


def test_sketches_out_of_order_or_with_impossible_numbers_are_found() -> None:
    rows = sketch_rows([(10, sketch(3)), (11, sketch(5))])
    with pytest.raises(ValueError, match="list of node 4, sketches: expected ascending keys"):
        replace(list_of(10, 11), sketches=rows[::-1].copy())
    rows["form"] = [0, 236]
    [problem] = check_list(replace(list_of(10, 11), sketches=rows))
    assert "expected sketches with valid numbers, found invalid ones for objects 11" in str(problem)


def test_facts_follow_the_order_of_the_list_whatever_the_order_of_the_ids() -> None:
    now = replace(list_of(30, 10, 20), sketches=sketch_rows([(10, sketch(7)), (30, sketch(8))]))
    assert NodeFacts(now).excludes(7).tolist() == [True, False, False]  # type: ignore[union-attr]  # likewise
    assert NodeFacts(now).excludes(8).tolist() == [False, True, False]  # type: ignore[union-attr]  # likewise
    assert NodeFacts(list_of(10)).excludes(7) is None
    assert NodeFacts(NodeList(4)).excludes(7) is None


# In a catalog


def test_a_commit_that_does_not_say_what_its_object_holds_leaves_it_unknown(world: World) -> None:
    with world.open() as catalog, catalog.open_node(4) as writer:
        [object_id] = writer.prepare()
        ref, _ = world.put(object_id, [(1, 0, 1)])
        writer.commit_upload(ref)
        assert list_of_node(catalog).live["object_id"].tolist() == [object_id]
        assert list_of_node(catalog).sketches.dtype == SKETCH
        assert not sketches(list_of_node(catalog))
        assert catalog.refresh().nodes[4].excludes(77) is None


def test_an_undo_sketches_what_comes_back_anew_also_what_was_uploaded_after_the_version(world: World) -> None:
    with world.session(1, 2) as (catalog, writer):
        refs = [world.upload(writer, {1: (at, at + 1)}) for at in range(2)]
        world.merge(catalog, refs[:1], [(1, 0, 1)])
        late = world.upload(writer, {2: (0, 1)})
        world.merge(catalog, [refs[1], late], [(1, 1, 2), (2, 0, 1)])
        assert undo(catalog, 4, versions(catalog, 4)[0].sequence).commits == (2, 4)
        expected = {**dict.fromkeys((ref.object_id for ref in refs), sketch(1)), late.object_id: sketch(2)}
        assert sketches(list_of_node(catalog)) == expected


# Sketched anew


def bare(world: World) -> None:
    """The list of node 4 as a release writes it that does not know sketches."""
    with world.open() as catalog:
        key = catalog.parts.keys.node_list(4)
        key.change(lambda now: None if now is None or not len(now.sketches) else replace(now, sketches=no_rows(SKETCH)))


def test_objects_without_a_sketch_are_sketched_on_request_by_one_write(world: World) -> None:
    with world.session(1, 2) as (catalog, writer):
        ids = [world.upload(writer, spans).object_id for spans in ({1: (0, 1)}, {1: (1, 2), 2: (0, 1)})]
    bare(world)
    with world.open() as catalog:
        assert catalog.refresh().nodes[4].excludes(2) is None
        assert sketch_list(catalog, 4, is_dry_run=True) == SketchReport(4, 2, tuple(ids), ())
        assert not len(list_of_node(catalog).sketches)
        world.store.reset()
        assert sketch_list(catalog, 4) == SketchReport(4, 2, tuple(ids), ())
        assert world.store.snapshot().total.requests == 2  # the list, twice; both indexes are in memory by now
        assert sketches(list_of_node(catalog)) == {ids[0]: sketch(1), ids[1]: sketch(1, 2)}
        assert sketch_list(catalog, 4) == SketchReport(4, 2, (), ())


def test_impossible_numbers_are_replaced(world: World) -> None:
    with world.session(1) as (catalog, writer):
        object_id = world.upload(writer, {1: (0, 1)}).object_id
        impossible = sketch_rows([(object_id, sketch(1))])
        impossible["form"] = 236
        catalog.parts.keys.node_list(4).change(lambda now: None if now is None else with_sketches(now, impossible))
    with world.open() as catalog:
        assert sketch_list(catalog, 4) == SketchReport(4, 1, (), (object_id,))
        assert sketches(list_of_node(catalog)) == {object_id: sketch(1)}


def test_sketching_loses_no_commit_that_comes_in_between() -> None:
    now = done(with_upload(prepared(list_of(10), 11), 1, facts(11, stream_ids=[5])))
    later = done(with_sketches(now, sketch_rows([(9, sketch(1)), (10, sketch(3))])))
    assert sketches(later) == {10: sketch(3), 11: sketch(5)}
    assert with_sketches(later, sketch_rows([(10, sketch(3))])) is None


# Ends


class Following(World):
    """Node 4 commits one object after another; other processes follow."""

    def __init__(self) -> None:
        super().__init__(settings=CatalogSettings(parallel_requests=1, ids_block=1024, checkpoint_commits=80))
        self.at = 0

    def commit(self, writer: NodeWriter, count: int) -> None:
        for _ in range(count):
            self.upload(writer, {1: (self.at, self.at + 1)})
            self.at += 1

    def begin(self, catalog: ObjectCatalog) -> NodeWriter:
        writer = catalog.open_node(4)
        writer.open_streams([1])
        return writer


def test_a_session_tells_lookups_of_its_process_where_its_streams_end() -> None:
    world = Following()
    with world.open() as catalog, world.begin(catalog) as writer:
        node = catalog.refresh().nodes[4]
        assert (node.end_of(1), node.end_of(2)) == (0, None)
        world.commit(writer, 3)
        assert catalog.refresh().nodes[4].end_of(1) == 3
        with world.open() as other:
            assert other.refresh().nodes[4].end_of(1) is None


def test_followers_learn_ends_from_checkpoints_by_one_get_in_many_commits() -> None:
    world = Following()
    with world.open() as catalog, world.open() as other:
        writer = world.begin(catalog)
        world.commit(writer, 63)
        images = other.images(poll_seconds=0.5)
        assert images.current().nodes[4].end_of(1) is None  # a short list is searched quickly anyway
        world.commit(writer, 20)  # the 80th commit writes a checkpoint
        assert following(world, images).nodes[4].end_of(1) == 80
        assert requests_of_following(world, images) == 2  # two listings, and it is not asked again
        world.commit(writer, 79)
        assert following(world, images).nodes[4].end_of(1) == 80
        world.commit(writer, 1)  # 80 commits since it was read
        assert following(world, images).nodes[4].end_of(1) == 160


def following(world: World, images: PolledImages) -> MetadataImage:
    world.clock.seconds += 3
    return images.current()


def requests_of_following(world: World, images: PolledImages) -> int:
    world.store.reset()
    following(world, images)
    return world.store.snapshot().total.requests


def test_ends_that_cannot_be_read_or_belong_to_another_life_of_the_list_are_not_known() -> None:
    ends = KnownEnds(64)
    world = Following()
    with world.open() as catalog:
        world.commit(world.begin(catalog), 80)
        lists = catalog.refresh_state().node_lists()
        failing = FaultStore(world.store)
        with world.open(failing) as broken:
            failing.schedule(Fault.SLOW_DOWN)
            ends.catch_up(broken.parts.keys, broken.parts.executor, lists)
            ends.catch_up(broken.parts.keys, broken.parts.executor, lists)  # not before another 64 commits
        assert ends.end(4, 1) is None
        earlier = replace(lists[4], next_order_id=79, live=lists[4].live[:70])
        ends = KnownEnds(64)
        ends.catch_up(catalog.parts.keys, catalog.parts.executor, {4: earlier})
        assert ends.end(4, 1) is None
        ends.tell_session(4, lambda stream_id: 5 if stream_id == 1 else None)
        assert (ends.end(4, 1), ends.end(4, 2), ends.end(5, 1)) == (5, None, None)
        ends.tell_checkpoint(Checkpoint(4, 3, make_rows(STREAM_END, stream_id=[1, 2], end=[9, 8])))
        assert (ends.end(4, 1), ends.end(4, 2), ends.end(4, 3)) == (9, 8, None)


def ends_of(node_id: int, streams: int) -> Checkpoint:
    return Checkpoint(node_id, 3, make_rows(STREAM_END, stream_id=list(range(streams)), end=[9] * streams))


def test_ends_of_checkpoints_stay_within_their_bound_and_the_ones_read_last_stay() -> None:
    ends = KnownEnds(64, size_bytes_max=200 * 16)
    for node_id, streams in ((1, 100), (2, 80), (1, 100), (3, 90)):
        ends.tell_checkpoint(ends_of(node_id, streams))
    assert [ends.end(node_id, 5) for node_id in (1, 2, 3)] == [9, None, 9]
    assert ends.memory() == (190 * 16, 200 * 16)
    ends.tell_checkpoint(ends_of(3, 201))  # larger than the bound by itself
    assert ends.memory().nbytes == 0
    ends.tell_checkpoint(ends_of(1, 200))
    assert ends.memory().nbytes == 200 * 16


def test_an_accelerator_counts_the_ends_that_its_source_has_learned() -> None:
    world = Following()
    with world.open() as catalog:
        world.commit(world.begin(catalog), 80)
    with world.open() as catalog, ReadAccelerator(catalog.images(), world.store) as accelerator:
        stats = accelerator.stats()
        known = catalog.parts.ends.memory()
        assert known.nbytes > 0
        with ReadAccelerator(StaticImages(catalog.image()), world.store) as other:
            plain = other.stats()
        assert stats.memory_bytes == plain.memory_bytes + known.nbytes
        assert stats.memory_bytes_max == plain.memory_bytes_max + ENDS_SIZE_BYTES_MAX
