"""One object that cannot be read: it is set aside, named and left alone; everything else is done as usual."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.adoption.controller import compact_for_controller, plan_for_controller
from accel.catalog import ObjectCatalog
from accel.catalog.bad_objects import BAD_OBJECTS_MAX, Cause, set_aside_of, with_set_aside
from accel.catalog.collect import Reason, collect, plan_collection
from accel.catalog.problems import ProblemKind
from accel.catalog.records import SET_ASIDE, NodeList
from accel.catalog.verify import verify
from accel.compaction import CompactionReport, Status, compact, plan_compaction
from accel.hint_building import HintChoice, HintReport, build_hints, plan_hints
from accel.repair.objects import PutBackOutcome, put_back
from accel.system import StopRequested
from loaders.errors import AccessDenied, RequestRefused, StoreError, StoreUnavailable
from loaders.format import RecordBatch
from loaders.object_writer import fetch_mark
from loaders.store import CountingStore, MemoryStore, ObjectStore
from loaders.store.decorated import GETS, DecoratedStore, StoreCall
from tests.accel.catalog.building import list_of
from tests.accel.compaction.world import Cluster, all_of_it
from tests.world import DAY_SECONDS, LAYOUT, Watched, World

NODE, OTHER = 4, 7
UPLOADS = 9
Answer = TypeVar("Answer")


@dataclass
class Faults:
    """What a store answers instead of an object's bytes: key -> the error."""

    by_key: dict[str, type[StoreError]] = field(default_factory=dict)

    def refuse(self, call: StoreCall) -> None:
        error = self.by_key.get(call.key)
        if error is not None and call.operation in GETS:
            raise error(call.operation, call.key, "refused for this key")


class Bench:
    """Two nodes of nine uploads each, and a store that may refuse to read some of the objects."""

    def __init__(self) -> None:
        self.world = World()
        self.faults = Faults()
        self.counted = CountingStore(Watched(self.world.store, self.faults.refuse))
        self.cluster = Cluster(self.world, self.world.open(self.counted))
        for _ in range(UPLOADS):
            self.cluster.upload(NODE, {1: 1, 2: 2})
            self.cluster.upload(OTHER, {3: 1})
        self.victim = self.cluster.live_ids(NODE)[4]

    @property
    def catalog(self) -> ObjectCatalog:
        return self.cluster.catalog

    @property
    def key(self) -> str:
        return LAYOUT.object_key(self.victim)

    def damage_block(self) -> bytes:
        """Change a byte of the first block; returns the sound bytes."""
        sound = self.world.memory.get(self.key).body
        self.world.memory.put(self.key, bytes([sound[0] ^ 0xFF]) + sound[1:])
        return sound

    def compact(self, **choices: object) -> CompactionReport:
        """A run that reduces each node to two objects."""
        return compact(self.catalog, plan_compaction(self.catalog, all_of_it(**({"target_objects": 2} | choices))))

    def hints(self) -> HintReport:
        return build_hints(self.catalog, plan_hints(self.catalog, HintChoice()))

    def node_list(self, node_id: int = NODE) -> NodeList:
        return self.catalog.refresh_state().lists[node_id].value

    def rows(self) -> list[tuple[int, Cause, int]]:
        """(object, cause, runs) of what the node's list remembers."""
        return [(row["object_id"], Cause(row["cause"]), row["runs"]) for row in set_aside_of(self.node_list())]

    def reads_of_victim(self, work: Callable[[], object]) -> int:
        """The bytes of the victim that some work reads."""
        tracing = _Tracing(self.counted, self.key)
        with self.world.open(tracing) as catalog:
            before, self.cluster.catalog = self.cluster.catalog, catalog
            try:
                work()
            finally:
                self.cluster.catalog = before
        return tracing.received


class _Tracing(DecoratedStore):
    def __init__(self, store: ObjectStore, key: str) -> None:
        super().__init__(store)
        self._key = key
        self.received = 0

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        answer = send()
        if call.key == self._key:
            self.received += len(getattr(answer, "body", b""))
        return answer


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_damaged_block_is_set_aside_and_its_neighbours_are_merged_in_the_same_run(bench: Bench) -> None:
    bench.damage_block()
    report = bench.compact()
    assert (report.is_partial, report.failed_groups, report.set_aside_objects) == (True, 0, 1)
    assert [each.status for each in report.groups].count(Status.SET_ASIDE) == 1
    assert [each.object_id for each in report.set_aside] == [bench.victim]
    assert bench.victim in bench.cluster.live_ids(NODE)
    assert len(bench.cluster.live_ids(NODE)) <= 4
    assert bench.rows() == [(bench.victim, Cause.BLOCK, 1)]
    bench.cluster.check_ends()


def test_later_runs_read_one_byte_of_what_was_set_aside_until_it_changes(bench: Bench) -> None:
    sound = bench.damage_block()
    bench.compact()
    again: list[CompactionReport] = []
    assert bench.reads_of_victim(lambda: again.append(bench.compact(target_objects=1))) == 1
    assert not again[0].is_partial
    bench.world.memory.put(bench.key, sound)
    assert not bench.compact(target_objects=1).is_partial
    assert (len(bench.cluster.live_ids(NODE)), bench.rows()) == (1, [])
    bench.cluster.check()


def test_what_was_set_aside_is_read_again_when_a_person_says_so(bench: Bench) -> None:
    bench.damage_block()
    bench.compact()
    bench.cluster.upload(NODE, {1: 1})
    bench.cluster.upload(NODE, {1: 1})
    report = bench.compact(target_objects=1, retry_set_aside=True)
    assert report.is_partial
    assert bench.rows() == [(bench.victim, Cause.BLOCK, 2)]


@pytest.mark.parametrize("error", [AccessDenied, RequestRefused, StoreUnavailable])
def test_an_object_that_the_store_does_not_read_costs_only_itself(bench: Bench, error: type[StoreError]) -> None:
    bench.cluster.trim(1, 1)  # so that the collector looks for objects of which nothing is kept
    bench.faults.by_key[bench.key] = error
    report = bench.compact()
    cause = Cause.UNAVAILABLE if error is StoreUnavailable else Cause.DENIED
    assert (report.is_partial, report.failed_nodes, report.failed_groups) == (True, 0, 0)
    assert bench.rows() == [(bench.victim, cause, 1)]
    assert [len(bench.cluster.live_ids(node)) for node in (NODE, OTHER)] == [3, 2]
    assert bench.hints().row()["covered_objects"] == 4
    retired = sum(len(bench.node_list(node).retired) for node in (NODE, OTHER))
    bench.world.wait(5 * DAY_SECONDS)
    deleted = collect(bench.catalog, plan_collection(bench.catalog)).deleted
    assert sum(each.reason is Reason.RETIRED for each in deleted) == retired > 0
    bench.faults.by_key.clear()
    assert not bench.compact(target_objects=1).is_partial
    assert (len(bench.cluster.live_ids(NODE)), bench.rows()) == (1, [])
    bench.cluster.check()


def test_what_the_store_does_not_answer_for_is_tried_by_three_runs(bench: Bench) -> None:
    bench.faults.by_key[bench.key] = StoreUnavailable
    assert [bench.compact(target_objects=1).is_partial for _ in range(5)] == [True, True, True, False, False]
    assert bench.rows() == [(bench.victim, Cause.UNAVAILABLE, 3)]


def test_a_node_of_which_the_store_reads_nothing_fails_and_the_others_are_compacted(bench: Bench) -> None:
    bench.faults.by_key |= {LAYOUT.object_key(object_id): AccessDenied for object_id in bench.cluster.live_ids(NODE)}
    report = bench.compact()
    assert (report.is_partial, report.failed_nodes, report.set_aside_objects) == (True, 1, 0)
    assert [len(bench.cluster.live_ids(node)) for node in (NODE, OTHER)] == [UPLOADS, 2]
    assert bench.rows() == []


def test_a_store_that_refuses_more_objects_than_a_list_remembers_fails_the_node(bench: Bench) -> None:
    for _ in range(BAD_OBJECTS_MAX + 1):
        bench.cluster.upload(NODE, {1: 1})
    denied = bench.cluster.live_ids(NODE)[UPLOADS:]
    bench.faults.by_key |= {LAYOUT.object_key(object_id): AccessDenied for object_id in denied}
    assert bench.compact().failed_nodes == 1
    del bench.faults.by_key[LAYOUT.object_key(denied[0])]
    report = bench.compact()
    assert (report.failed_nodes, report.set_aside_objects) == (0, BAD_OBJECTS_MAX)
    assert len(bench.rows()) == BAD_OBJECTS_MAX


def test_a_damaged_block_is_named_by_verify_once_a_merge_has_found_it(bench: Bench) -> None:
    sound = bench.damage_block()
    assert verify(bench.catalog).problems == []
    bench.compact()
    [problem] = verify(bench.catalog).problems
    assert problem.kind is ProblemKind.SET_ASIDE
    assert bench.key in problem.where
    bench.world.memory.put(bench.key, sound)
    assert verify(bench.catalog).problems == []


@pytest.mark.parametrize("has_mark", [True, False])
def test_a_damaged_block_that_a_merge_has_found_is_put_back_from_a_copy(has_mark: bool) -> None:
    world = World()
    copy = MemoryStore()
    with world.session(1) as (catalog, writer):
        refs = [writer.upload({1: [RecordBatch(1, 1, at, 1, b"payload")]}).ref for at in range(5)]
        key = LAYOUT.object_key(refs[2].object_id)
        sound, mark = world.memory.get(key).body, fetch_mark(world.memory, key).mark if has_mark else None
        copy.put(key, sound)
        world.memory.put(key, bytes([sound[0] ^ 0xFF]) + sound[1:], mark=mark)
        assert compact(catalog, plan_compaction(catalog, all_of_it())).set_aside_objects == 1
        for is_dry_run in (True, False):
            [found] = put_back(catalog, copy, is_dry_run=is_dry_run).found
            assert (found.key, found.outcome, found.reason) == (key, PutBackOutcome.PUT_BACK, "")
        assert put_back(catalog, copy, is_dry_run=True).found == ()
        assert not compact(catalog, plan_compaction(catalog, all_of_it())).is_partial
        assert len(catalog.refresh().nodes[NODE]) == 1


def test_a_damaged_source_of_a_controller_is_named_and_its_neighbours_are_merged(bench: Bench) -> None:
    bench.damage_block()
    image, ids = bench.catalog.image(), iter(range(10_000, 20_000))
    settings = all_of_it(nodes=frozenset({NODE}), target_objects=1)
    swaps: list[object] = []

    def run(set_aside: tuple[int, ...] = ()) -> tuple[bool, list[int]]:
        plan = plan_for_controller(bench.counted, image, settings, system=bench.world.system, set_aside=set_aside)
        report = compact_for_controller(
            bench.counted,
            image,
            plan,
            take_ids=lambda count: [next(ids) for _ in range(count)],
            commit=swaps.append,
            system=bench.world.system,
        )
        return report.is_partial, [each.object_id for each in report.bad_objects]

    assert run() == (True, [bench.victim])
    assert len(swaps) == 2
    assert run((bench.victim,)) == (False, [])
    assert len(swaps) == 4


@given(
    st.integers(0, 130),
    st.lists(st.tuples(st.integers(0, 140), st.sampled_from(Cause)), max_size=130),
    st.lists(st.tuples(st.integers(0, 140), st.sampled_from(Cause)), max_size=20, unique_by=lambda pair: pair[0]),
    st.sets(st.integers(0, 140), max_size=20),
)
def test_a_list_remembers_bad_live_objects_and_how_often(
    live: int, first: list[tuple[int, Cause]], second: list[tuple[int, Cause]], sound: set[int]
) -> None:
    now = list_of(*range(live))
    ids = set(now.live["object_id"].tolist())
    expected: dict[int, tuple[Cause, int, int]] = {}
    for time_ms, found, forgotten in ((5, dict(first), set[int]()), (9, dict(second), sound)):
        rows = np.array([(object_id, cause, 0, 0, 77) for object_id, cause in found.items()], dtype=SET_ASIDE)
        after = with_set_aside(now, rows, forgotten, time_ms)
        expected = {object_id: row for object_id, row in expected.items() if object_id not in forgotten}
        for object_id, cause in found.items():
            before = expected.get(object_id)
            if object_id in ids and (before or len(expected) < BAD_OBJECTS_MAX):
                expected[object_id] = (cause, 1 + (before[1] if before else 0), before[2] if before else time_ms)
        now = after or now
        found_rows = {row["object_id"]: (row["cause"], row["runs"], row["since_ms"]) for row in set_aside_of(now)}
        assert found_rows == expected


def test_a_collection_that_is_told_to_stop_returns_what_it_did(bench: Bench) -> None:
    bench.compact()
    bench.world.wait(5 * DAY_SECONDS)
    plan = plan_collection(bench.catalog)

    def stop(done: int) -> None:
        raise StopRequested(done)

    report = collect(bench.catalog, plan, progress=stop)
    assert report.deleted
    assert report.not_reached == ()
