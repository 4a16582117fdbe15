"""What commits tell of objects is true of them, saves requests, and is unknown wherever nobody told it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.catalog import ObjectCatalog
from accel.catalog.facts import NodeFacts, sketch_rows
from accel.catalog.node_list import after_undo, check_list, with_upload
from accel.catalog.records import SKETCH, NodeList
from accel.catalog.undo import undo, versions
from bloom import StreamSketch
from loaders.object_ref import ObjectRef
from tests.accel.catalog.building import compacted, done, facts, list_of, prepared
from tests.accel.catalog.world import World


def sketch(*stream_ids: int) -> StreamSketch:
    return StreamSketch.build(np.array(stream_ids, dtype=np.int64))


def sketches(now: NodeList) -> dict[int, StreamSketch]:
    return {object_id: StreamSketch(*numbers) for object_id, *numbers in now.sketches.tolist()}


def node_list(catalog: ObjectCatalog) -> NodeList:
    return catalog.refresh_state().lists[4].value


# In the list


def test_a_list_keeps_a_sketch_as_long_as_its_object_is_live() -> None:
    now = prepared(list_of(10), 11, 12)
    now = done(with_upload(now, now.epoch, facts(11, stream_ids=[3, 17])))
    now = done(with_upload(now, now.epoch, facts(12, stream_ids=[5])))
    assert sketches(now) == {11: sketch(3, 17), 12: sketch(5)}  # nobody told what 10 holds
    later = compacted(now, [10, 11], 20)
    assert sketches(later) == {12: sketch(5)}
    assert sketches(done(after_undo(later, now, 9000)).node_list) == {11: sketch(3, 17), 12: sketch(5)}
    assert sketches(done(after_undo(later, replace(now, sketches=now.sketches[:0]), 9000)).node_list) == {12: sketch(5)}


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
    assert "expected sketches with numbers that one can have, found others for objects 11" in str(problem)


def test_facts_follow_the_order_of_the_list_whatever_the_order_of_the_ids() -> None:
    now = replace(list_of(30, 10, 20), sketches=sketch_rows([(10, sketch(7)), (30, sketch(8))]))
    assert NodeFacts(now).excludes(7).tolist() == [True, False, False]  # type: ignore[union-attr]  # likewise
    assert NodeFacts(now).excludes(8).tolist() == [False, True, False]  # type: ignore[union-attr]  # likewise
    assert NodeFacts(list_of(10)).excludes(7) is None
    assert NodeFacts(NodeList(4)).excludes(7) is None


@given(st.lists(st.tuples(st.booleans(), st.sets(st.integers(0, 300), min_size=1)), max_size=12), st.integers(0, 300))
def test_what_facts_exclude_is_never_held(contents: list[tuple[bool, set[int]]], asked: int) -> None:
    told = [(at, sketch(*sorted(ids)) if is_told else None) for at, (is_told, ids) in enumerate(contents)]
    excluded = NodeFacts(replace(list_of(*range(len(told))), sketches=sketch_rows(told))).excludes(asked)
    for at, (is_told, ids) in enumerate(contents):
        assert excluded is None or not excluded[at] or (is_told and asked not in ids)


# In a catalog


def test_uploads_compactions_and_undos_write_the_sketches_of_what_they_list() -> None:
    world = World()
    with world.open() as catalog, catalog.open_node(4) as writer:
        writer.open_streams([1, 2, 420_000])
        refs = [world.upload(writer, spans) for spans in ({1: (0, 1)}, {1: (1, 2), 2: (0, 1)}, {420_000: (0, 5)})]
        ids = [ref.object_id for ref in refs]
        before = {ids[0]: sketch(1), ids[1]: sketch(1, 2), ids[2]: sketch(420_000)}
        assert sketches(node_list(catalog)) == before
        [object_id] = catalog.prepare(4, 1)
        target, _ = world.put(object_id, [(1, 0, 2), (2, 0, 1)])
        catalog.commit_compaction(4, refs[:2], target)
        assert sketches(node_list(catalog)) == {ids[2]: sketch(420_000), object_id: sketch(1, 2)}
        undo(catalog, 4)
        assert sketches(node_list(catalog)) == before


def test_an_image_of_a_catalog_excludes_by_its_sketches() -> None:
    world = World()
    with world.open() as catalog, catalog.open_node(4) as writer:
        writer.open_streams([1, 2, 3])
        for spans in ({1: (0, 1), 3: (0, 1)}, {2: (0, 1)}):
            world.upload(writer, spans)
        node = catalog.refresh().nodes[4]
        assert [node.excludes(stream_id).tolist() for stream_id in (1, 2, 3, 9)] == [  # type: ignore[union-attr]  # all told
            [False, True],
            [True, False],
            [False, True],
            [True, True],
        ]
        again = catalog.refresh().nodes[4]
        assert again is node


def test_a_commit_that_does_not_say_what_its_object_holds_leaves_it_unknown() -> None:
    world = World()
    with world.open() as catalog, catalog.open_node(4) as writer:
        [object_id] = writer.prepare()
        ref, _ = world.put(object_id, [(1, 0, 1)])
        writer.commit_upload(ref)
        assert node_list(catalog).live["object_id"].tolist() == [object_id]
        assert node_list(catalog).sketches.dtype == SKETCH
        assert not sketches(node_list(catalog))
        assert catalog.refresh().nodes[4].excludes(77) is None


def test_a_commit_with_a_sketch_is_one_conditional_write() -> None:
    world = World()
    with world.open() as catalog, catalog.open_node(4) as writer:
        writer.open_streams([1])
        [object_id] = writer.prepare()
        ref, ranges = world.put(object_id, [(1, 0, 1)])
        world.store.reset()
        writer.commit_upload(ref, ranges)
        assert world.store.snapshot().total.requests == 1
        assert sketches(writer.node_list) == {object_id: sketch(1)}


def test_an_undo_sketches_what_comes_back_anew_also_what_was_uploaded_after_the_version() -> None:
    world = World()
    with world.open() as catalog, catalog.open_node(4) as writer:
        writer.open_streams([1, 2])
        refs = [world.upload(writer, {1: (at, at + 1)}) for at in range(2)]
        _compacted(world, catalog, refs[:1], [(1, 0, 1)])
        late = world.upload(writer, {2: (0, 1)})
        _compacted(world, catalog, [refs[1], late], [(1, 1, 2), (2, 0, 1)])
        assert undo(catalog, 4, versions(catalog, 4)[0].sequence).commits == (2, 4)
        expected = {**dict.fromkeys((ref.object_id for ref in refs), sketch(1)), late.object_id: sketch(2)}
        assert sketches(node_list(catalog)) == expected


def _compacted(world: World, catalog: ObjectCatalog, sources: list[ObjectRef], rows: list[tuple[int, int, int]]) -> int:
    [object_id] = catalog.prepare(4, 1)
    target, _ = world.put(object_id, rows)
    catalog.commit_compaction(4, sources, target)
    return object_id
