"""Data of deleted and trimmed streams goes within a time that is promised, whatever lies beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.catalog import ObjectCatalog
from accel.catalog.collect import collect, plan_collection
from accel.catalog.dead_objects import (
    LAST_ROWS,
    FirstKept,
    Space,
    find_dead,
    may_hold,
    measure_space,
    with_dead_retired,
)
from accel.catalog.keys import NODE_LIST_HISTORY, list_version_prefix
from accel.catalog.node_list import after_undo, check_list
from accel.catalog.records import NodeList, StreamShard
from accel.compaction import CompactionSettings, compact, plan_compaction
from accel.compaction.planning import REWRITE_DAYS
from accel.errors import AccessDenied, MaintenanceStopped
from accel.testing import Fault, FaultStore
from loaders.object_ref import ObjectRef
from loaders.store import ALWAYS, Body, Condition, MemoryStore, ObjectStore
from loaders.store.decorated import DecoratedStore
from range_index import ObjectRanges
from tests.accel.compaction.world import Cluster, keys_of, records_of
from tests.accel.streams.writer.world import NAME, ids_of
from tests.accel.streams.writer.world import World as Streams
from tests.examples import examples
from tests.world import DAY_SECONDS, LAYOUT, each_crash

NODE, OTHER = 4, 5
DAYS_MAX = REWRITE_DAYS + 2
"""As docs/operations/operations.md promises: a week, the day of the age, and the day of the retention."""


class Aging:
    """A cluster, and a compaction and a collection each day."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.world = self.cluster.world

    @property
    def store(self) -> ObjectStore:
        return self.world.store

    def days(self, count: int, choices: Mapping[str, int] | None = None, *, compacts: bool = True) -> None:
        """Let days go by, with what `run-all` does each day."""
        wanted = CompactionSettings(**(choices or {}))  # type: ignore[arg-type]  # whole numbers
        for _ in range(count):
            self.world.wait(DAY_SECONDS)
            with self.world.open() as catalog:
                if compacts:
                    compact(catalog, plan_compaction(catalog, wanted))
                collect(catalog, plan_collection(catalog))

    def delete(self, stream_id: int) -> None:
        """As a deleted segment: closed, and trimmed to its end."""
        node_id = self.cluster.owners.pop(stream_id)
        [end] = self.cluster.writer(node_id).close_streams([stream_id]).values()
        self.cluster.trim(stream_id, end)

    def held(self, stream_id: int) -> int:
        """How many offsets of a stream are in objects of the bucket, listed or not."""
        ids = [LAYOUT.parse_object_key(key) for key in keys_of(self.world)]
        return sum(
            each == stream_id for at in ids if at is not None for (each, _), _ in records_of(self.world.memory, at)
        )


@pytest.fixture
def aging() -> Aging:
    return Aging()


def test_objects_of_a_deleted_stream_go_after_the_retention_though_no_compaction_runs(aging: Aging) -> None:
    aging.cluster.uploads(40, NODE, {7: 3})
    aging.cluster.upload(NODE, {8: 1})
    aging.delete(7)
    aging.days(1, compacts=False)
    assert aging.held(7) == 120  # retired a moment ago: readers may have older images
    aging.days(1, compacts=False)
    assert (aging.held(7), aging.held(8)) == (0, 1)
    aging.cluster.check()
    aging.cluster.check_ends()


@pytest.mark.parametrize(
    "choices",
    [{}, {"max_objects_per_node": 8, "target_object_size_bytes": 1 << 20}, {"target_object_size_bytes": 1}],
    ids=["a node below all limits", "a node above them", "objects above half a group"],
)
def test_a_deleted_stream_among_live_ones_goes_within_the_promised_days(
    aging: Aging, choices: Mapping[str, int]
) -> None:
    """Its share of each object is far too small to be worth a rewrite by itself."""
    aging.cluster.uploads(20, NODE, {7: 1, **dict.fromkeys(range(10, 30), 2)})
    aging.delete(7)
    aging.days(1, choices)
    assert aging.held(7) > 0
    aging.days(DAYS_MAX - 1, choices)
    assert aging.held(7) == 0
    aging.cluster.check()
    aging.cluster.check_ends()
    before = keys_of(aging.world)
    aging.days(REWRITE_DAYS, choices)
    assert keys_of(aging.world) == before  # nothing is rewritten again


def test_a_node_whose_objects_are_all_dead_is_emptied_and_collected_ever_after(aging: Aging) -> None:
    """An empty list looked damaged: no collection of any node was made any more."""
    for _ in range(5):
        aging.cluster.upload(NODE, {7: 3})
        aging.cluster.upload(OTHER, {8: 3})
    aging.delete(7)
    aging.days(2)
    assert aging.held(7) == 0
    assert aging.cluster.live_ids(NODE) == []
    aging.days(2)
    aging.delete(8)
    aging.days(2)
    assert keys_of(aging.world) == set()
    aging.days(2)
    aging.cluster.upload(NODE, {9: 4})
    aging.days(2)
    assert aging.held(9) == 4
    aging.cluster.check()


def test_a_collection_that_dies_at_any_write_loses_nothing_and_the_next_one_goes_on() -> None:
    def story() -> Aging:
        told = Aging()
        for at in range(4):
            told.cluster.upload(NODE, {7 + at % 2: 3})
        told.delete(7)
        told.world.wait(DAY_SECONDS)
        return told

    for told, _ in each_crash(story, lambda told, store: told.world.collect(store), writes_min=3):
        told.cluster.check()
        told.days(2)
        assert (told.held(7), told.held(8)) == (0, 6)
        told.cluster.check()
        told.cluster.check_ends()


@pytest.mark.parametrize("interrupt", ["an upload", "a compaction", "a retirement"])
def test_what_another_process_commits_meanwhile_decides(aging: Aging, interrupt: str) -> None:
    refs = [aging.cluster.upload(NODE, {7: 3, **({8: 1} if at > 3 else {})}) for at in range(6)]
    aging.delete(7)
    aging.world.wait(DAY_SECONDS)

    def compacts() -> None:
        with aging.world.open() as catalog:
            compact(catalog, plan_compaction(catalog, CompactionSettings(rewrite_all=True)))

    def retires() -> None:
        with aging.world.open() as catalog:
            collect(catalog, plan_collection(catalog))

    acts: dict[str, Callable[[], object]] = {
        "an upload": lambda: aging.cluster.upload(NODE, {9: 2}),
        "a compaction": compacts,
        "a retirement": retires,
    }
    with aging.world.open() as catalog:
        plan = plan_collection(catalog)
        assert [each.refs for each in plan.dead] == [tuple(replace(ref) for ref in _listed(catalog, refs[:4]))]
        acts[interrupt]()
        collect(catalog, plan)
    aging.cluster.check()
    aging.days(2)
    aging.cluster.check()
    aging.cluster.check_ends()


def _listed(catalog: ObjectCatalog, refs: list[ObjectRef]) -> list[ObjectRef]:
    ids = {ref.object_id for ref in refs}
    return [ref for ref in catalog.refresh().node(NODE).refs if ref.object_id in ids]


# By compaction alone

LIMITED = CompactionSettings(max_objects_per_node=20, min_age_seconds=0, target_object_size_bytes=1000)


def test_compaction_retires_what_nothing_is_needed_of_by_one_write_and_reads_none_of_it(aging: Aging) -> None:
    """Objects above the size of a group stayed for ever, and the list with them."""
    cluster = aging.cluster
    refs = [cluster.upload(NODE, {7: 40}) for _ in range(60)]
    assert min(ref.size_bytes for ref in refs) > LIMITED.target_object_size_bytes
    cluster.trim(7, 55 * 40)
    plan = cluster.plan(LIMITED)
    [node] = plan.nodes
    assert ([ref.object_id for ref in node.dead], node.groups) == ([ref.object_id for ref in refs[:55]], ())
    assert (node.objects_after, plan.to_dict()["dead_objects"], plan.reasons) == (5, 55, ())
    key = cluster.catalog.parts.keys.node_list(NODE)
    before = key.read()
    aging.world.store.reset()
    report = compact(cluster.catalog, plan)
    after = key.read()
    assert before is not None
    assert after is not None
    assert (report.retired_objects, report.retired_bytes) == (55, sum(ref.size_bytes for ref in refs[:55]))
    assert (report.rewritten_objects, after.version.sequence - before.version.sequence) == (0, 1)
    assert aging.world.store.snapshot().gets <= 13  # of the catalog, and of the record of the run
    assert not compact(cluster.catalog, plan).retired_objects  # repeated, as after a crash
    cluster.check()


def test_objects_are_merged_by_the_bytes_that_remain_of_them(aging: Aging) -> None:
    """By their sizes no two of them fit a group."""
    cluster = aging.cluster
    cluster.uploads(40, NODE, {7: 40, 8: 1})
    cluster.trim(7, 40 * 40)
    before = cluster.live_ids(NODE)
    [node] = cluster.plan(LIMITED).nodes
    assert node.objects_after <= 16
    assert all(group.source_bytes > LIMITED.target_object_size_bytes >= group.output_bytes for group in node.groups)
    assert not compact(cluster.catalog, cluster.plan(LIMITED)).is_partial
    assert len(cluster.live_ids(NODE)) <= 16 < len(before)
    assert cluster.plan(LIMITED).groups == ()
    cluster.check()


@pytest.mark.parametrize(("share", "left"), [(0.4, 11), (0.6, 21), (1.0, 21)])
def test_from_which_share_on_an_object_is_rewritten_is_a_setting(aging: Aging, share: float, left: int) -> None:
    aging.cluster.upload(NODE, {7: 10, 8: 11})
    aging.cluster.upload(NODE, {7: 1})
    aging.cluster.trim(7, 10)
    for _ in range(DAYS_MAX):
        aging.world.wait(DAY_SECONDS)
        aging.cluster.compact(CompactionSettings(dead_share=share))
    aging.cluster.collect_later()
    assert aging.held(7) + aging.held(8) == left + 1
    aging.cluster.check()


class NoVersions(DecoratedStore):
    """Refuses to keep a version of the list of one node."""

    def put(self, key: str, body: Body, *, condition: Condition = ALWAYS, mark: str | None = None) -> str:
        """As the inner store."""
        if f"{NODE_LIST_HISTORY}/{list_version_prefix(NODE)}" in key:
            raise AccessDenied("put", key, "denied")
        return super().put(key, body, condition=condition, mark=mark)


def test_a_retirement_that_fails_is_reported_and_no_group_suffers(aging: Aging) -> None:
    for _ in range(4):
        aging.cluster.upload(NODE, {7: 3})
        aging.cluster.upload(OTHER, {8: 3})
    aging.cluster.trim(7, 12)
    plan = aging.cluster.plan(CompactionSettings(rewrite_all=True, min_age_seconds=0))
    with aging.world.open(NoVersions(aging.world.store)) as catalog:
        report = compact(catalog, plan)
    assert (report.failed_retirements, report.retired_objects, report.is_partial) == (1, 0, True)
    assert compact(aging.cluster.catalog, plan).retired_objects == 4
    aging.cluster.check()


def spaces(aging: Aging) -> tuple[Space, Space]:
    """The space of the node's list, and of all stream objects."""
    with aging.world.open() as catalog:
        state = catalog.refresh_state()
        by_node, own = measure_space(
            catalog.parts, list(state.node_lists().values()), [seen.value for seen in state.shards]
        )
    return by_node[NODE], own


def test_space_is_live_or_dead_then_retired_then_waiting(aging: Aging) -> None:
    first = aging.cluster.upload(NODE, {8: 4}, {7: 10})
    second = aging.cluster.upload(NODE, {8: 2, 9: 1})
    assert spaces(aging)[0] == Space(first.size_bytes + second.size_bytes, 0, 0, 0)
    aging.cluster.trim(8, 5)
    aging.cluster.trim(7, 5)
    listed, own = spaces(aging)
    assert first.size_bytes < listed.dead_bytes < listed.size_bytes
    assert own.dead_bytes == own.size_bytes // 2
    assert sum(listed.to_dict()[name] for name in ("live_bytes", "dead_bytes")) == listed.size_bytes
    whole = own.size_bytes
    aging.cluster.trim(7, 10)
    assert spaces(aging)[1] == Space(0, 0, whole, 0)
    aging.days(1, compacts=False)
    listed, own = spaces(aging)
    assert (listed.size_bytes, listed.retired_bytes) == (second.size_bytes, first.size_bytes)
    assert own == Space(0, 0, 0, 0)
    aging.world.wait(DAY_SECONDS)
    faults = FaultStore(aging.world.memory, operations={"delete_many", "delete"})
    faults.schedule(*[Fault.SERVER_ERROR] * 20)
    with aging.world.open(faults) as catalog, suppress(MaintenanceStopped):
        collect(catalog, plan_collection(catalog))
    assert spaces(aging)[0].waiting_bytes == first.size_bytes


# Against a naive model


spans = st.dictionaries(st.integers(1, 6), st.integers(1, 4), min_size=1, max_size=4)


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(spans, min_size=1, max_size=6),
    st.dictionaries(st.integers(1, 6), st.integers(0, 20), max_size=6),
    st.sets(st.integers(1, 6)),
)
def test_the_dead_objects_are_those_whose_every_offset_is_below_the_first_kept_one(
    uploads: list[dict[int, int]], trims: dict[int, int], closed: set[int]
) -> None:
    aging, ends = Aging(), dict.fromkeys(range(1, 7), 0)
    held: dict[int, list[tuple[int, int]]] = {}
    for lengths in uploads:
        ref = aging.cluster.upload(NODE, lengths)
        held[ref.object_id] = [(each, ends[each] + length) for each, length in lengths.items()]
        ends |= {each: ends[each] + length for each, length in lengths.items()}
    starts = {each: min(offset, ends[each]) for each, offset in trims.items() if ends[each]}
    aging.cluster.catalog.trim({each: offset for each, offset in starts.items() if offset})
    gone = {each for each in closed if ends[each]}
    if gone:
        aging.cluster.writer(NODE).close_streams(gone)
    state = aging.cluster.catalog.refresh_state()
    shards: list[StreamShard] = [seen.value for seen in state.shards]
    lists: list[NodeList] = list(state.node_lists().values())
    first_kept = FirstKept.of(shards)
    is_gone = dict(zip(first_kept.stream_ids.tolist(), first_kept.is_gone.tolist(), strict=True))
    assert is_gone == {each: each in gone and at == ends[each] for each, at in starts.items() if at}
    wanted = {at for at, ranges in held.items() if all(end <= starts.get(each, 0) for each, end in ranges)}
    found = list(find_dead(aging.cluster.catalog.parts, lists, shards))
    assert {ref.object_id for each in found for ref in each.refs} == wanted
    candidates = lists[0].live["object_id"][may_hold(lists[0], first_kept.stream_ids)].tolist()
    assert wanted <= set(candidates)
    retired = with_dead_retired(lists[0], [ref for each in found for ref in each.refs], 5)
    if retired is None:
        assert not wanted
        return
    assert set(lists[0].live["object_id"].tolist()) - wanted == set(retired.live["object_id"].tolist())
    assert check_list(retired) == []
    assert (retired.emptied == retired.next_order_id) == (not len(retired.live))
    again = after_undo(retired, lists[0], 6)
    assert again is not None
    assert np.array_equal(again.node_list.live, lists[0].live)
    assert with_dead_retired(retired, [ref for each in found for ref in each.refs], 7) is None


def test_of_a_large_index_the_last_rows_are_read_and_all_of_it_if_these_are_of_trimmed_data(aging: Aging) -> None:
    streams = range(1000, 1000 + 3 * LAST_ROWS)
    ref = aging.cluster.upload(NODE, dict.fromkeys(streams, 1))

    def found(trimmed: range) -> tuple[list[ObjectRef], int]:
        aging.cluster.catalog.trim(dict.fromkeys(trimmed, 1))
        state = aging.cluster.catalog.refresh_state()
        shards, lists = [seen.value for seen in state.shards], list(state.node_lists().values())
        aging.world.store.reset()
        dead = [each for one in find_dead(aging.cluster.catalog.parts, lists, shards) for each in one.refs]
        return dead, aging.world.store.snapshot().gets

    assert found(streams[:-1]) == ([], 1)  # the last one is kept
    assert found(streams[-1:]) == ([ref], 2)
    other = aging.cluster.upload(NODE, dict.fromkeys(streams, 1))
    aging.cluster.catalog.trim(dict.fromkeys(streams[1:], 2))
    assert found(streams[1:2]) == ([ref], 4)  # the first one is kept
    assert other.object_id != ref.object_id


def test_an_object_without_streams_is_not_dead() -> None:
    assert not FirstKept.of([StreamShard(0)]).keeps_nothing_of(ObjectRanges.of(()))


def test_a_deleted_stream_of_events_is_gone_after_the_retention() -> None:
    world = Streams(MemoryStore())
    with world.process() as process:
        world.create(2, by=process)
        process.streams.create_stream("shop", "kept")
        with process.writer() as writer, process.writer(name=("shop", "kept")) as other:
            for number in range(12):
                writer.write(b"secret-%d" % number, b"key-%d" % number)
                writer.flush()
            other.write(b"kept", b"key")
            other.flush()
            process.stream().scale(ids_of("0@0"), [(0.0, 0.25), (0.25, 0.5)])
            writer.write(b"secret-last", b"key")
        process.stream().seal()
        process.streams.delete_stream(*NAME)
        for _ in range(2):
            world.seconds += DAY_SECONDS
            collect(process.catalog, plan_collection(process.catalog))
    bodies = [world.store.get(info.key).body for info in world.store.list("")]
    assert not [body for body in bodies if b"secret-" in bytes(body)]
    assert world.payloads(("shop", "kept")) == [b"kept"]
