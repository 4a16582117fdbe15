"""An import makes a catalog that answers as the objects do, also if it dies on the way; and it loses nothing."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel import ReadAccelerator, StaticImages
from accel.adoption.import_plan import NEVER_MS, ImportPlan, ImportReport, Overlap, StreamHole
from accel.adoption.importing import (
    BATCH_OBJECTS,
    ImportChoice,
    Nodes,
    abandon_import,
    bucket_objects,
    commit_import,
    plan_import,
)
from accel.catalog import CatalogSettings, ObjectCatalog
from accel.catalog.collect import collect, delete_stray, find_stray, plan_collection
from accel.catalog.keys import IMPORT_PROGRESS, NODE_LISTS, parse_node_key
from accel.catalog.records import NodeList, refs_of
from accel.catalog.sketches_and_ends import sketch_rows
from accel.catalog.verify import verify
from accel.errors import MaintenanceRefused
from bloom import StreamSketch
from loaders.errors import AccessDenied, StoreUnavailable
from loaders.format import MissingBytes, open_tail
from loaders.format.index import LinkedObject
from loaders.layout import TABLES_PREFIX
from loaders.store import ObjectStore
from loaders.store.decorated import StoreCall
from tests.builders import encode_composite, write_set_object
from tests.examples import examples
from tests.models.plain_scan import plain_scan
from tests.world import LAYOUT, Watched, World, each_crash, held

PRODUCTION = Path(__file__).parents[2] / "data" / "stream_set_objects"
Answer = TypeVar("Answer")


def filled() -> World:
    """Two nodes, a stream that moves between them, a hole, and an object of a compaction: a high id, old offsets."""
    world = World(settings=CatalogSettings(parallel_requests=1))
    world.put(3, [(1, 0, 10), (2, 0, 5)], is_marked=False)
    world.put(5, [(1, 20, 30)], is_marked=False)
    world.put(9, [(1, 30, 40), (3, 7, 8)], is_marked=False)
    world.put(11, [(1, 10, 20), (2, 6, 9)], is_marked=False)
    return world


NODES = {3: 4, 5: 4, 9: 7, 11: 4}


def planned(catalog: ObjectCatalog, nodes: Nodes = NODES, *, begin: bool = False, **choice: Any) -> ImportPlan:
    return plan_import(catalog, bucket_objects(catalog), ImportChoice(nodes, **choice), begin=begin)


def imported(world: World, nodes: Nodes = NODES, store: ObjectStore | None = None, **choice: Any) -> ImportReport:
    with world.open(store) as catalog:
        plan = planned(catalog, nodes, begin=True, **choice)
        commit_import(catalog, plan)
        return plan.report


def facts(world: World) -> dict[str, object]:
    """All that a catalog says."""
    with world.open() as catalog:
        state = catalog.refresh_state()
        checkpoints = {node_id: catalog.parts.keys.checkpoint(node_id).read() for node_id in sorted(state.node_lists())}
        counter = catalog.parts.keys.object_ids().read()
        return {
            "directory": state.directory.value.node_ids.tolist(),
            "lists": {
                node_id: (each.next_order_id, each.live.tolist(), each.prepared.tolist(), each.sketches.tolist())
                for node_id, each in state.node_lists().items()
            },
            "buckets": [(seen.value.streams.tolist(), seen.value.ranges.tolist()) for seen in state.shards],
            "checkpoints": {
                node_id: None if seen is None else (seen.value.order_id, seen.value.ends.tolist())
                for node_id, seen in checkpoints.items()
            },
            "counter": None if counter is None else counter.value,
            "progress": list(world.memory.list(f"{TABLES_PREFIX}{IMPORT_PROGRESS}")),
        }


@pytest.fixture
def world() -> World:
    return filled()


def test_an_imported_catalog_lists_what_the_bucket_holds(world: World) -> None:
    report = imported(world)
    assert report.counts == {
        "keys": 4,
        "objects": 4,
        "bytes": sum(info.size_bytes for info in world.memory.list("") if LAYOUT.parse_object_key(info.key)),
        "streams": 3,
        "overlaps": 0,
        "holes": 1,
        "crossed": 0,
        "unlistable": 0,
        "left_out": 0,
    }
    assert report.holes == (StreamHole(2, 5, 6),)
    assert [(each.node_id, each.objects, each.open_streams) for each in report.nodes] == [(4, 3, 1), (7, 1, 2)]
    with world.open() as catalog:
        image = catalog.image()
        assert image.nodes[4].object_ids.tolist() == [3, 11, 5]
        assert held(catalog, 1) == [(3, 0, 10), (11, 10, 20), (5, 20, 30), (9, 30, 40)]
        ranges = [(each.start, each.end, each.node_id) for each in image.streams[1].ranges]
        assert ranges == [(0, 30, 4), (30, -1, 7)]
        assert image.streams[3].start_offset == 7


def test_an_imported_catalog_has_the_sketch_of_each_object(world: World) -> None:
    imported(world)
    with world.open() as catalog:
        for node_id, seen in catalog.refresh_state().lists.items():
            opened = catalog.parts.open_all(node_id, refs_of(seen.value.live))
            built = [(each.ref.object_id, StreamSketch.build(each.ranges.stream_ids)) for each in opened]
            assert seen.value.sketches.tolist() == sketch_rows(built).tolist()
            assert built


def test_sessions_go_on_where_the_objects_stop_and_open_none_of_them(world: World) -> None:
    imported(world)
    asked: list[str] = []
    with (
        world.open(Watched(world.store, lambda call: asked.append(call.key))) as catalog,
        catalog.open_node(7) as writer,
        catalog.open_node(4) as other,
    ):
        assert {each: writer.end(each) for each in (1, 2, 3)} == {1: 40, 2: None, 3: 8}
        assert {each: other.end(each) for each in (1, 2, 3)} == {1: None, 2: 9, 3: None}
        assert not [key for key in asked if LAYOUT.parse_object_key(key) is not None]
        ref = world.upload(writer, {1: (40, 50), 3: (8, 9)})
        assert ref.object_id > 11
        assert held(catalog, 1)[-1] == (ref.object_id, 40, 50)
        assert catalog.close_streams([1]) == {1: 50}
        assert verify(catalog).problems == []


@pytest.mark.parametrize(
    "nodes", [NODES, NODES.get, lambda object_id: NODES[object_id]], ids=["mapping", "method", "function"]
)
def test_nodes_come_from_mappings_and_functions(world: World, nodes: Nodes) -> None:
    imported(world, nodes)
    assert facts(world) == facts_of_uncrashed()


def test_objects_without_a_node_are_refused_with_their_ids(world: World) -> None:
    with world.open() as catalog, pytest.raises(MaintenanceRefused, match=r"a node for each .* found none for 9, 11"):
        planned(catalog, {3: 4, 5: 4})


def test_nodes_that_cannot_be_are_refused() -> None:
    with filled().open() as catalog, pytest.raises(MaintenanceRefused, match="expected node ids of 0 to 9999999999"):
        planned(catalog, 10**10)


# What hinders


def test_offsets_that_are_held_twice_hinder_an_import(world: World) -> None:
    world.put(12, [(1, 5, 25)])
    with world.open() as catalog:
        plan = planned(catalog, 4, begin=True)
        assert plan.report.overlaps == (
            Overlap(1, 5, 10, (3, 3), (12, 12)),
            Overlap(1, 10, 20, (12, 12), (11, 11)),
            Overlap(1, 20, 25, (12, 12), (5, 9)),
        )
        with pytest.raises(MaintenanceRefused, match="expected each offset in one object, found overlaps: 3"):
            commit_import(catalog, plan)
        assert catalog.refresh().streams == {}
        commit_import(catalog, planned(catalog, 4, begin=True, leave_out={12}))
        assert held(catalog, 1) == [(3, 0, 10), (11, 10, 20), (5, 20, 30), (9, 30, 40)]


def test_objects_left_out_survive_the_collector(world: World) -> None:
    world.put(12, [(1, 5, 25)], is_marked=False)
    imported(world, 4, leave_out={12})
    world.wait(10**7)
    with world.open() as catalog:
        report = collect(catalog, plan_collection(catalog))
        assert report.deleted == ()
        [seen] = catalog.refresh_state().node_lists().values()
        assert seen.prepared.tolist() == [(12, NEVER_MS)]
        catalog.discard(4, [12])
        [(stays, _)] = collect(catalog, plan_collection(catalog)).unproven
        assert stays.object_id == 12
        assert 12 in bucket_objects(catalog).ids
        delete_stray(catalog, find_stray(catalog, 12))
        assert 12 not in bucket_objects(catalog).ids


def test_damaged_objects_hinder_unless_they_are_skipped_and_are_kept(world: World) -> None:
    key = LAYOUT.object_key(12)
    world.memory.put(key, (PRODUCTION / "corrupt" / "wrong_magic.bin").read_bytes())
    with world.open() as catalog:
        report = planned(catalog, 4).report
        assert [(each.object_id, each.key) for each in report.unlistable] == [(12, key)]
        assert "magic" in report.unlistable[0].reason
        assert report.hindrances == ["expected objects that can be listed, found others: 1"]
    assert imported(world, 4, skip_bad=True).counts["left_out"] == 1
    world.wait(10**7)
    with world.open() as catalog:
        assert collect(catalog, plan_collection(catalog)).deleted == ()


def test_an_object_that_the_store_refuses_to_read_hinders_unless_it_is_skipped_and_all_of_them_are_an_error(
    world: World,
) -> None:
    def deny(call: StoreCall) -> None:
        if call.operation == "get_range" and call.key in denied:
            raise AccessDenied(call.operation, call.key, "injected")

    denied = {LAYOUT.object_key(min(world.object_ids()))}
    with world.open(Watched(world.store, deny)) as catalog:
        report = planned(catalog, 4).report
        assert [each.key for each in report.unlistable] == list(denied)
        assert "refuses to read it" in report.unlistable[0].reason
        denied = set(map(LAYOUT.object_key, world.object_ids()))
        with pytest.raises(AccessDenied):
            planned(catalog, 4)


def test_composite_objects_are_not_listed(world: World) -> None:
    body = write_set_object([(2, 0, 5)])
    index = open_tail(body, object_size_bytes=len(body), key="")
    assert not isinstance(index, MissingBytes)
    world.memory.put(LAYOUT.object_key(12), encode_composite((LinkedObject(3, 0, 0),), index))
    with world.open() as catalog:
        [bad] = planned(catalog, 4).report.unlistable
        assert (bad.object_id, bad.reason) == (12, "a composite object: it only links blocks of other objects")


def test_holes_within_objects_are_told() -> None:
    world = World()
    body = write_set_object([(1, 0, 10)], gaps={1: (4, 6)})
    world.memory.put(LAYOUT.object_key(1), body)
    assert imported(world, 4).holes == (StreamHole(1, 0, 10, object_id=1),)


# Repeating


def facts_of_uncrashed() -> dict[str, object]:
    world = filled()
    imported(world)
    return facts(world)


def imported_over(world: World, store: ObjectStore) -> None:
    imported(world, store=store)


def test_an_import_that_died_before_any_of_its_writes_can_be_repeated() -> None:
    expected = facts_of_uncrashed()
    for world, _ in each_crash(filled, imported_over, writes_min=10, every=2):
        imported(world)
        assert facts(world) == expected


def test_an_import_that_died_can_be_abandoned_until_a_list_is_written() -> None:
    empty = facts(filled())
    outcomes = set()
    for world, _ in each_crash(filled, imported_over):
        with world.open() as catalog:
            is_listed = any(len(each.live) for each in _lists(catalog))
            is_under_way = catalog.parts.keys.is_importing()
            outcomes.add((is_listed, is_under_way))
            if is_listed and is_under_way:
                with pytest.raises(MaintenanceRefused, match="repeat the import to end it"):
                    abandon_import(catalog)
            else:
                assert abandon_import(catalog) == is_under_way
            assert is_listed or catalog.parts.keys.checkpoint(4).read() is None
        assert is_listed or {**facts(world), "counter": 0} == empty
    assert outcomes == {(False, False), (False, True), (True, True), (True, False)}


def _lists(catalog: ObjectCatalog) -> Iterable[NodeList]:
    table = catalog.parts.keys.tables.table(NODE_LISTS)
    for key in list(table.keys()):
        node_id = parse_node_key(key)
        seen = None if node_id is None else catalog.parts.keys.node_list(node_id).read()
        if seen is not None:
            yield seen.value


def test_an_import_that_lost_a_read_says_that_it_can_be_repeated() -> None:
    world = World()
    for object_id in range(BATCH_OBJECTS + 20):
        world.put(object_id, [(1, object_id, object_id + 1)])

    def lose(call: StoreCall) -> None:
        if call.key == LAYOUT.object_key(BATCH_OBJECTS + 10):
            raise StoreUnavailable(call.operation, call.key, "lost")

    with pytest.raises(StoreUnavailable) as caught:
        imported(world, 4, Watched(world.store, lose))
    assert "the import can be repeated" in caught.value.__notes__[0]
    imported(world, 4)
    with world.open() as catalog:
        assert verify(catalog).problems == []


def test_a_bucket_that_changed_after_a_crash_is_imported_as_it_is_now() -> None:
    def changed(world: World) -> None:
        world.memory.delete(LAYOUT.object_key(9))
        world.put(20, [(5, 0, 1), (2, 9, 10)])

    nodes = {**NODES, 20: 8}
    expected = filled()
    changed(expected)
    imported(expected, nodes)
    for world, _ in each_crash(filled, imported_over):
        with world.open() as catalog:
            if any(len(each.live) for each in _lists(catalog)):
                return
        changed(world)
        imported(world, nodes)
        found = facts(world)
        assert found == facts(expected)
        with world.open() as catalog:
            assert catalog.parts.keys.checkpoint(7).read() is None


def test_progress_tells_of_every_object(world: World) -> None:
    told: list[int] = []
    with world.open() as catalog:
        for _ in range(2):
            plan_import(catalog, bucket_objects(catalog), ImportChoice(4), begin=True, progress=told.append)
    assert told == [1, 2, 3, 4] * 2


# A catalog in use


@pytest.mark.parametrize("begin", [False, True])
def test_a_catalog_in_use_is_left_alone(begin: bool) -> None:
    world = World()
    with world.session(1) as (catalog, writer):
        world.upload(writer, {1: (0, 10)})
    world.put(1000, [(1, 10, 20)])
    before = facts(world)
    with world.open() as catalog, pytest.raises(MaintenanceRefused, match="expected an empty list, or the list that"):
        planned(catalog, 4, begin=begin)
    assert facts(world) == before


def test_a_catalog_whose_streams_were_opened_is_left_alone(world: World) -> None:
    with world.session(1):
        pass
    before = facts(world)
    with pytest.raises(MaintenanceRefused, match="expected no streams, or the"):
        imported(world)
    with world.open() as catalog, pytest.raises(MaintenanceRefused, match="expected no streams, or the"):
        planned(catalog)
    assert facts(world) == before


def collected(catalog: ObjectCatalog) -> object:
    return collect(catalog, plan_collection(catalog))


def test_nothing_is_collected_while_an_import_is_under_way() -> None:
    for world, _ in each_crash(filled, imported_over):
        world.wait(10**7)
        with world.open() as catalog:
            for act in (collected, abandon_import, collected):
                with suppress(MaintenanceRefused):
                    act(catalog)
                assert world.object_ids() == set(NODES)


def test_a_collection_that_was_planned_before_stops(world: World) -> None:
    with world.open() as catalog:
        plan = plan_collection(catalog)
        planned(catalog, begin=True)
        with pytest.raises(MaintenanceRefused, match="an import that is running"):
            plan_collection(catalog)
        with pytest.raises(MaintenanceRefused, match="an import that is running"):
            collect(catalog, plan)


def half_way() -> World:
    """An import that died just before it wrote a list."""
    before = filled()
    for world, _ in each_crash(filled, imported_over):
        with world.open() as catalog:
            if any(len(each.live) for each in _lists(catalog)):
                return before
        before = world
    pytest.fail("expected an import that writes lists")


def abandoned(world: World, store: ObjectStore) -> None:
    with world.open(store) as catalog:
        assert abandon_import(catalog)


def test_an_abandoning_that_died_can_be_repeated() -> None:
    empty = facts(filled())
    for world, _ in each_crash(half_way, abandoned, writes_min=4):
        with world.open() as catalog:
            abandon_import(catalog)
        found = facts(world)
        assert {**found, "progress": [], "counter": 0} == empty
        assert found["counter"] == 12


def test_ids_that_were_taken_since_an_import_began_are_not_given_out_again_when_it_is_abandoned() -> None:
    world = half_way()
    with world.open() as catalog:
        assert catalog.parts.ids.take(1) == [12]
        assert abandon_import(catalog)
    with world.open() as catalog:
        assert catalog.parts.ids.take(1)[0] > 12


# Real objects, and any


def test_production_objects_are_imported_and_found() -> None:
    world = World()
    for path in PRODUCTION.glob("*.bin"):
        world.memory.put(LAYOUT.object_key(int(path.stem)), path.read_bytes())
    nodes = {object_id: 4 if object_id < 100 else object_id for object_id in range(110)}
    report = imported(world, nodes)
    assert (report.counts["objects"], report.counts["overlaps"], report.is_by_id) == (33, 0, True)
    with world.open() as catalog:
        found = verify(catalog)
        assert (found.problems, found.unchecked, found.counts["objects"]) == ([], [], 33)
        with ReadAccelerator(StaticImages(catalog.image()), world.store) as accelerator:
            first = accelerator.get_objects(stream_id=420_000, start=0, end=105)
            assert [(each.ref.object_id, each.start, each.end) for each in first.objects] == [(0, 0, 105)]


@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_lookups_answer_as_a_plain_scan_of_the_objects(data: st.DataObject) -> None:
    world = World()
    contents: dict[int, dict[int, tuple[int, int]]] = {}
    ends = {stream_id: data.draw(st.integers(0, 5)) for stream_id in (1, 2, 3)}
    nodes = {}
    for object_id in data.draw(st.lists(st.integers(0, 60), min_size=1, max_size=8, unique=True).map(sorted)):
        spans = {}
        for stream_id in sorted(data.draw(st.sets(st.sampled_from([1, 2, 3])))):
            start = ends[stream_id] + data.draw(st.sampled_from([0, 0, 0, 3]))
            ends[stream_id] = start + data.draw(st.integers(1, 9))
            spans[stream_id] = (start, ends[stream_id])
        world.put(object_id, [(stream_id, *span) for stream_id, span in spans.items()])
        contents[object_id] = spans
        nodes[object_id] = data.draw(st.sampled_from([4, 7]))
    assert imported(world, nodes).hindrances == []
    with world.open() as catalog:
        image = catalog.image()
        metadata = plain(image)
        assert verify(catalog).problems == []
        with ReadAccelerator(StaticImages(image), world.store) as accelerator:
            for stream_id, stream in image.streams.items():
                for start in range(stream.start_offset, ends[stream_id] + 1):
                    answer = accelerator.get_objects(stream_id=stream_id, start=start, limit=100)
                    scanned = plain_scan(metadata, contents, (stream_id, start, -1, 100))
                    found = [(each.ref.object_id, each.start, each.end) for each in answer.objects]
                    assert found == [each[1:] for each in scanned.objects]


def plain(image: Any) -> dict[str, Any]:
    """An image as the plain scan takes it."""
    return {
        "streams": [
            {
                "stream_id": stream_id,
                "start_offset": stream.start_offset,
                "ranges": [
                    {"range_index": each.range_index, "start": each.start, "end": each.end, "node_id": each.node_id}
                    for each in stream.ranges
                ],
                "stream_objects": [],
            }
            for stream_id, stream in image.streams.items()
        ],
        "nodes": [
            {
                "node_id": node.node_id,
                "stream_set_objects": [
                    {"object_id": object_id, "order_id": number}
                    for number, object_id in enumerate(node.object_ids.tolist())
                ],
            }
            for node in image.nodes.values()
        ],
    }
