"""Hints of a catalog in one process: each new object is opened once, and what is built is what the objects hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.catalog import ObjectCatalog
from accel.errors import StoreUnavailable
from accel.hint_building import HintChoice, HintPlan, HintReport, build_hints, build_node_hints, plan_hints
from bloom import StreamFilter
from loaders.hints import (
    EntryColumns,
    SnapshotRoot,
    decode_snapshot_root,
    load_pack,
    object_entries,
    read_pack_root,
    read_snapshot,
)
from loaders.layout import HINTS_PREFIX, HintKind, hint_root_key
from loaders.store import CountingStore, MemoryStore, ObjectStore
from loaders.store.decorated import StoreCall
from tests.examples import examples
from tests.loaders.hints.builders import rows_of
from tests.spark_jobs.worlds import NAMESPACE, Spans, fill, live_rows, lose, make_catalog, split_off
from tests.world import Watched

Answer = TypeVar("Answer")

NODE = 4
OBJECTS: list[Spans] = [[(1, at, at + 1), (100 + at, 0, 9)] for at in range(6)]
FILTERS, SNAPSHOT = HintChoice(snapshots=False), HintChoice(filters=False)


@pytest.fixture
def store() -> CountingStore:
    """A catalog with one node."""
    return filled()


def filled() -> CountingStore:
    store = CountingStore(MemoryStore())
    make_catalog(store)
    fill(store, NODE, OBJECTS)
    store.reset()
    return store


def build(store: ObjectStore, choice: HintChoice = HintChoice()) -> HintReport:  # noqa: B008 - frozen
    """Plan and build."""
    with ObjectCatalog.open(store) as catalog:
        return build_hints(catalog, plan_hints(catalog, choice))


def root_of(store: ObjectStore) -> SnapshotRoot:
    body = store.get(hint_root_key(HintKind.SNAPSHOTS, NODE)).body
    return decode_snapshot_root(body, namespace=NAMESPACE, node_id=NODE)


def check(store: ObjectStore, lost: frozenset[int] = frozenset()) -> None:
    """Both hints are what a plain reading of all listed objects gives."""
    live = live_rows(store, NODE)
    orders = dict(zip(live["object_id"].tolist(), live["order_id"].tolist(), strict=True))
    with ObjectCatalog.open(store) as catalog:
        refs = [ref for ref in catalog.image().nodes[NODE].refs if ref.object_id not in lost]
        opened = list(catalog.parts.open_all(NODE, refs))
    parts = [object_entries(each.ref.object_id, orders[each.ref.object_id], each.index) for each in opened]
    root = root_of(store)
    found = EntryColumns.join(list(read_snapshot(store, root)))
    assert rows_of(found.sorted()) == rows_of(EntryColumns.join(parts).sorted())
    assert root.covered.object_ids.tolist() == sorted(ref.object_id for ref in refs)
    pack = read_pack_root(store, NAMESPACE, NODE)
    filters = {
        object_id: each.to_bytes() for object_id, each in load_pack(store, pack, live["object_id"], live["size_bytes"])
    }
    held = {each.ref.object_id: each.ranges.stream_ids for each in opened}
    assert filters == {key: StreamFilter.build(ids).to_bytes() for key, ids in held.items() if len(ids)}


def test_both_hints_are_built_in_one_pass(store: CountingStore) -> None:
    keys: list[str] = []
    report = build(Watched(store, lambda call: keys.append(call.key)))
    check(store)
    row = report.row()
    assert (row["opened_objects"], row["added_filters"], row["covered_objects"]) == (6, 6, 6)
    objects = [key for key in keys if not key.startswith("accel/")]
    assert len(objects) == len(set(objects)) == 6, "each object is opened once"
    assert not report.is_partial


def test_only_what_is_new_is_opened(store: CountingStore) -> None:
    build(store)
    fill(store, NODE, [[(200, 0, 4)], [(1, 6, 9)]])
    report = build(store)
    check(store)
    row = report.row()
    assert (row["opened_objects"], row["added_filters"], row["kept_filters"]) == (2, 2, 6)
    [node] = report.nodes
    assert node.snapshot is not None
    assert (node.snapshot.covered, node.snapshot.kept) == (8, 6)


def test_requests_are_those_of_what_is_new(store: CountingStore) -> None:
    a_kind = 1 + 1 + 1 + 2 + 2
    """Root; file; whether another run was faster; the root twice; what is deleted, which is nothing."""
    assert build(store).requests == 6 + 2 * a_kind
    assert build(store).requests == 2 * 2, "each root, and whether its files are there"
    fill(store, NODE, [[(200, 0, 4)]])
    with ObjectCatalog.open(store) as catalog:
        plan = plan_hints(catalog, HintChoice())
        store.reset()
        build_hints(catalog, plan)
    assert store.reset().gets == 1 + 1 + 2 * 3 + 1, "the object, the older file; roots, at three times; earlier runs"


def test_an_object_that_is_lost_is_told_and_costs_only_itself(store: CountingStore) -> None:
    gone = int(live_rows(store, NODE)["object_id"][2])
    lose(store, gone)
    report = build(store)
    check(store, frozenset([gone]))
    assert report.is_partial
    assert [failure.object_id for failure in report.nodes[0].failures] == [gone]
    before = root_of(store).generation
    assert not build(store).is_partial, "it was set aside"
    assert root_of(store).generation == before, "nothing is written again for an object that cannot be opened"


def harm_file(store: ObjectStore) -> None:
    key = root_of(store).file_key(0)
    body = store.get(key).body
    store.put(key, body[:-1] + bytes([body[-1] ^ 1]))


def delete_file(store: ObjectStore) -> None:
    store.delete(root_of(store).file_key(0))


def harm_root(store: ObjectStore) -> None:
    key = hint_root_key(HintKind.SNAPSHOTS, NODE)
    store.put(key, store.get(key).body[:-1])


@pytest.mark.parametrize("harm", [harm_file, delete_file, harm_root])
def test_a_damaged_snapshot_is_built_anew_and_told(store: CountingStore, harm: Callable[[ObjectStore], None]) -> None:
    build(store)
    harm(store)
    fill(store, NODE, [[(200, 0, 4)]])
    report = build(store)
    check(store)
    [node] = report.nodes
    assert node.snapshot is not None
    assert node.snapshot.problem
    assert not report.is_partial
    assert report.row()["opened_objects"] == 7


@settings(max_examples=examples(40))
@given(st.lists(st.sampled_from(["upload", "split", "build", "filters", "snapshot", "both"]), max_size=8))
def test_after_any_history_the_hints_are_those_of_a_plain_reading(steps: list[str]) -> None:
    store = filled()
    count = 6
    for step in steps:
        if step == "upload":
            fill(store, NODE, [[(1, count, count + 1), (300 + count, 0, 2)]])
            count += 1
        elif step == "split":
            first = live_rows(store, NODE)["object_id"][0]
            with ObjectCatalog.open(store) as catalog:
                [opened] = catalog.parts.open_all(NODE, [catalog.refresh().nodes[NODE].ref(0)])
            if len(opened.ranges) > 1:
                split_off(store, NODE, int(opened.ranges.stream_ids[-1]))
            assert first >= 0
        else:
            build(store, {"filters": FILTERS, "snapshot": SNAPSHOT}.get(step, HintChoice()))
    build(store)
    check(store)


@pytest.mark.parametrize(("kind", "choice"), [(HintKind.PACKS, FILTERS), (HintKind.SNAPSHOTS, SNAPSHOT)])
def test_of_two_runs_the_newer_one_counts_and_the_other_says_so(
    store: CountingStore, kind: HintKind, choice: HintChoice
) -> None:
    build(store)
    fill(store, NODE, [[(200, 0, 4)]])

    roots_read = 0

    def another_run(call: StoreCall) -> None:
        nonlocal roots_read
        roots_read += call.key == hint_root_key(kind, NODE)
        if roots_read == 2:  # the first tells what is needed, the second whether another run was faster
            roots_read += 1
            build(store)
            fill(store, NODE, [[(201, 0, 4)]])
            build(store)

    with ObjectCatalog.open(Watched(store, another_run)) as catalog:
        report = build_hints(catalog, plan_hints(catalog, choice))
    assert not report.is_partial
    assert report.row()["overtaken_nodes"] == 1
    check(store)


@pytest.mark.parametrize("kind", list(HintKind))
def test_one_kind_that_fails_leaves_the_other_alone(store: CountingStore, kind: HintKind) -> None:
    def refuse(call: StoreCall) -> None:
        if call.operation == "put" and call.key.startswith(f"{HINTS_PREFIX}{kind}/"):
            raise StoreUnavailable(call.operation, call.key, "not now")

    report = build(Watched(store, refuse))
    assert report.is_partial
    [node] = report.nodes
    assert len(node.errors) == 1
    assert "not now" in node.errors[0]
    other = next(each for each in HintKind if each is not kind)
    assert list(store.list(f"{HINTS_PREFIX}{other}/"))
    assert not build(store).is_partial
    check(store)


def test_nodes_that_are_not_there_are_refused(store: CountingStore) -> None:
    with ObjectCatalog.open(store) as catalog, pytest.raises(ValueError, match=r"nodes of this catalog \(4\), found 5"):
        plan_hints(catalog, HintChoice(), nodes=frozenset([5]))


def test_a_plan_tells_what_would_be_done_and_progress_how_far_it_is(store: CountingStore) -> None:
    told: list[tuple[int, int]] = []
    with ObjectCatalog.open(store) as catalog:
        plan = plan_hints(catalog, HintChoice(), progress=lambda done, total: told.append((done, total)))
        assert told == [(1, 1)]
        assert plan.nodes[0].to_dict() == {
            "node_id": NODE,
            "objects": 6,
            "to_open": 6,
            "set_aside": [],
            "error": "",
            "filters": {"kept": 0, "to_build": 6, "bad": 0, "to_drop": 0, "problem": ""},
            "snapshot": {"kept": 0, "to_add": 6, "is_current": False, "problem": ""},
        }
        told.clear()
        build_hints(catalog, HintPlan(plan.nodes), progress=lambda done, total: told.append((done, total)))
        assert told == [(at + 1, 6) for at in range(6)]
        assert build_node_hints(catalog.parts, replace(plan.nodes[0], filters=None)).filters is None
