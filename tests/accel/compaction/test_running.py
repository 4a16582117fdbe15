"""Carrying out a plan: what is done stays done, and one group's trouble is not another's."""

from __future__ import annotations

import json
import pickle
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate

import pytest

from accel.catalog.compact import CompactionRanges
from accel.compaction import (
    CompactionPlan,
    CompactionReport,
    Group,
    GroupFailure,
    GroupOutcome,
    Status,
    compact,
    run_group,
)
from accel.compaction.running import ATTEMPTS_MAX, commit_outcome
from accel.errors import CommitRefused, StoreUnavailable
from accel.testing import Fault, FaultStore
from loaders.object_writer import ATTEMPTS_MAX as PUT_ATTEMPTS_MAX
from loaders.store import CountingStore
from loaders.store.decorated import WRITES
from tests.accel.compaction.world import Cluster, all_of_it, keys_of

NODE, OTHER = 4, 7
SETTINGS = all_of_it(max_sources_per_group=3)


@pytest.fixture
def cluster() -> Cluster:
    """A node with nine uploads: three groups of three."""
    found = Cluster()
    found.uploads(9, NODE, {1: 1, 2: 2})
    return found


def statuses(report: CompactionReport) -> list[Status]:
    """What became of each group."""
    return [each.status for each in report.groups]


def test_the_successor_takes_the_lowest_order_id_and_the_oldest_time_of_its_sources() -> None:
    cluster = Cluster()
    world = cluster.world
    for _ in range(4):
        cluster.upload(NODE, {1: 1})
        world.wait(60)
    before = cluster.node_list(NODE).live
    assert not cluster.compact(all_of_it(target_objects=2, nodes=frozenset({NODE}))).is_partial
    after = cluster.node_list(NODE).live
    merged = after[~(after["object_id"][:, None] == before["object_id"]).any(axis=1)]
    sources = before[~(before["object_id"][:, None] == after["object_id"]).any(axis=1)]
    assert len(sources) == 3
    for name in ("order_id", "data_time_ms"):
        assert merged[name].tolist() == [sources[name].min()]


def test_outputs_have_marks_and_an_object_of_another_system_fails_its_group_alone(cluster: Cluster) -> None:
    catalog = cluster.catalog
    plan = cluster.plan(SETTINGS)
    sources = {ref.object_id for group in plan.groups for ref in group.sources}
    layout = catalog.parts.layout
    theirs = layout.object_key(catalog.prepare(NODE, 1)[0] + 1)
    cluster.world.memory.put(theirs, b"theirs")
    report = compact(catalog, plan)
    assert sorted(statuses(report)) == sorted([Status.COMMITTED] * 2 + [Status.FAILED])
    assert [each.reason[:15] for each in report.groups if each.is_failure] == ["NamespaceShared"]
    assert cluster.world.memory.get(theirs).body == b"theirs"
    outputs = set(catalog.refresh_state().lists[NODE].value.live["object_id"].tolist()) - sources
    assert len(outputs) == 2
    for object_id in outputs:
        assert layout.is_ours(object_id, cluster.world.memory.get(layout.object_key(object_id)).mark)


def test_a_plan_that_is_carried_out_again_finds_all_done_and_merges_nothing(cluster: Cluster) -> None:
    plan = cluster.plan(SETTINGS)
    assert statuses(compact(cluster.catalog, plan)) == [Status.COMMITTED] * 3
    before = keys_of(cluster.world)
    report = compact(cluster.catalog, plan)
    assert statuses(report) == [Status.DONE_BEFORE] * 3
    assert (report.is_partial, report.rewritten_objects, report.requests) == (False, 0, 0)
    assert keys_of(cluster.world) == before


def test_what_was_left_undone_is_done_by_the_next_run_of_the_same_plan(cluster: Cluster) -> None:
    plan = cluster.plan(SETTINGS)

    def two_of_them(groups: Sequence[Group]) -> Iterator[GroupOutcome]:
        return (run_group(cluster.catalog, each, SETTINGS) for each in groups[:2])

    first = compact(cluster.catalog, plan, run=two_of_them)
    assert statuses(first) == [Status.COMMITTED, Status.COMMITTED, Status.FAILED]
    assert (first.is_partial, first.failed_groups, first.failed_tasks) == (True, 1, 0)
    second = compact(cluster.catalog, plan)
    assert statuses(second) == [Status.DONE_BEFORE, Status.DONE_BEFORE, Status.COMMITTED]
    assert len(cluster.live_ids(NODE)) == 3
    cluster.check()


def test_a_group_whose_source_is_gone_is_lost_alone_and_its_output_is_discarded(cluster: Cluster) -> None:
    plan = cluster.plan(SETTINGS)

    def meanwhile(groups: Sequence[Group]) -> Iterator[GroupOutcome]:
        for number, group in enumerate(groups):
            outcome = run_group(cluster.catalog, group, SETTINGS)
            if number == 1:
                other = cluster.plan(all_of_it(max_sources_per_group=2))
                assert any(each.position == group.position for each in other.groups)
                compact(cluster.catalog, other)
            yield outcome

    report = compact(cluster.catalog, plan, run=meanwhile)
    assert statuses(report)[0] == Status.COMMITTED
    assert Status.LOST in statuses(report)
    assert "gone" in next(each.reason for each in report.groups if each.status is Status.LOST)
    assert (report.is_partial, report.failed_groups) == (False, 0), "what another run took is no failure of this one"
    assert report.lost_groups == statuses(report).count(Status.LOST)
    cluster.check()
    retired = cluster.node_list(NODE).retired
    assert len(keys_of(cluster.world)) == len(cluster.listed_keys()) + len(retired)


def test_a_group_that_another_run_took_before_costs_nothing(cluster: Cluster) -> None:
    plan = cluster.plan(SETTINGS)
    cluster.compact(all_of_it(max_sources_per_group=2))
    before = keys_of(cluster.world)
    report = compact(cluster.catalog, plan)
    assert set(statuses(report)) == {Status.LOST}
    assert not report.is_partial
    assert keys_of(cluster.world) == before


def test_of_several_attempts_at_a_group_one_is_committed(cluster: Cluster) -> None:
    plan = cluster.plan(SETTINGS)

    def twins(groups: Sequence[Group]) -> Iterator[GroupOutcome | GroupFailure]:
        for group in groups:
            yield GroupFailure(group, "the machine went away")
            attempts = [run_group(cluster.catalog, group, SETTINGS) for _ in range(2)]
            yield from (pickle.loads(pickle.dumps(each)) for each in attempts)  # noqa: S301 - made in the line itself

    report = compact(cluster.catalog, plan, run=twins)
    assert statuses(report) == [Status.COMMITTED] * 3
    assert (report.failed_tasks, report.failed_groups, report.added_objects) == (3, 0, 3)
    assert len(keys_of(cluster.world)) == 9 + 3
    cluster.check()


def test_a_group_that_cannot_be_written_fails_alone_and_leaves_nothing(cluster: Cluster) -> None:
    faults = FaultStore(cluster.store, operations={"put"})
    plan = cluster.plan(SETTINGS)
    with cluster.world.open(faults) as catalog:

        def second_one_fails(groups: Sequence[Group]) -> Iterator[GroupOutcome | GroupFailure]:
            for number, group in enumerate(groups):
                faults.schedule(None, *([Fault.TIMEOUT] * PUT_ATTEMPTS_MAX if number == 1 else [None]))
                try:
                    yield run_group(catalog, group, SETTINGS)
                except StoreUnavailable as error:
                    yield GroupFailure(group, str(error))
                faults.clear()

        catalog.prepare(NODE, 1)  # takes a block of ids, so that the next write is the promise and then the object
        report = compact(catalog, plan, run=second_one_fails)
    assert statuses(report) == [Status.COMMITTED, Status.FAILED, Status.COMMITTED]
    assert "TIMEOUT" in report.groups[1].reason
    assert len(keys_of(cluster.world)) == 9 + 2
    assert len(cluster.live_ids(NODE)) == 5
    assert compact(cluster.catalog, plan).rewritten_objects == 3
    cluster.check()


def test_a_source_that_is_deleted_before_it_is_read_is_set_aside_and_the_others_are_merged(
    cluster: Cluster,
) -> None:
    plan = cluster.plan(SETTINGS)
    victim = cluster.live_ids(NODE)[4]
    cluster.world.memory.delete(cluster.catalog.parts.layout.object_key(victim))
    report = compact(cluster.catalog, plan)
    assert Counter(statuses(report)) == {Status.COMMITTED: len(report.groups) - 1, Status.SET_ASIDE: 1}
    assert len(report.groups) > 2
    assert "KeyMissing" in next(each.reason for each in report.groups if each.status is Status.SET_ASIDE)
    assert [each.object_id for each in report.set_aside] == [victim]


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.TIMEOUT, Fault.CONFLICT, Fault.SERVER_ERROR])
def test_a_commit_that_fails_on_the_way_is_repeated(cluster: Cluster, fault: Fault) -> None:
    outcome = run_group(cluster.catalog, cluster.plan(SETTINGS).groups[0], SETTINGS)
    for failing in range(4):
        faults = FaultStore(cluster.world.store, operations=WRITES)
        faults.schedule(*[None] * failing, fault)
        with cluster.world.open(faults) as catalog:
            try:
                assert commit_outcome(catalog, outcome) == ""
            except ValueError:  # that write cannot be hit by this fault
                continue
    assert len(cluster.live_ids(NODE)) == 7
    cluster.check()


def test_a_commit_that_never_comes_through_is_given_up(cluster: Cluster) -> None:
    outcome = run_group(cluster.catalog, cluster.plan(SETTINGS).groups[0], SETTINGS)
    faults = FaultStore(cluster.world.store, operations={"put"})
    with cluster.world.open(faults) as catalog:
        faults.schedule(*[Fault.SLOW_DOWN] * 500)
        why_not = commit_outcome(catalog, outcome)
        faults.clear()
    assert why_not.startswith("AmbiguousWrite: ")
    assert faults.injected[Fault.SLOW_DOWN] >= ATTEMPTS_MAX
    assert len(cluster.live_ids(NODE)) == 9
    cluster.check()


def test_committing_opens_no_object_again(cluster: Cluster) -> None:
    outcome = run_group(cluster.catalog, cluster.plan(SETTINGS).groups[0], SETTINGS)
    store = CountingStore(cluster.world.store)
    with cluster.world.open(store) as catalog:
        before = store.snapshot()
        assert commit_outcome(catalog, outcome) == ""
        assert "get_range" not in (store.snapshot() - before).by_operation


def test_ranges_of_other_objects_are_refused_and_what_they_say_is_checked(cluster: Cluster) -> None:
    outcome = run_group(cluster.catalog, cluster.plan(SETTINGS).groups[0], SETTINGS)
    group = outcome.group
    assert outcome.ranges is not None
    fewer = CompactionRanges(outcome.ranges.sources[:2], outcome.ranges.output)
    with pytest.raises(ValueError, match=r"\(3, True\), found \(2, True\)"):
        cluster.catalog.commit_compaction(NODE, group.sources, outcome.added, ranges=fewer)
    wrong = CompactionRanges(outcome.ranges.sources[::-1], outcome.ranges.output)
    with pytest.raises(CommitRefused, match="ascending offsets"):
        cluster.catalog.commit_compaction(NODE, group.sources, outcome.added, ranges=wrong)


def test_uploads_go_on_while_a_node_is_compacted(cluster: Cluster) -> None:
    plan = cluster.plan(SETTINGS)

    def busy(groups: Sequence[Group]) -> Iterator[GroupOutcome]:
        for group in groups:
            cluster.upload(NODE, {1: 1, 3: 1}, own={2: 2})
            outcome = run_group(cluster.catalog, group, SETTINGS)
            cluster.upload(NODE, {2: 1, 3: 1})
            yield outcome

    assert not compact(cluster.catalog, plan, run=busy).is_partial
    assert len(cluster.live_ids(NODE)) == 3 + 6
    cluster.check()


def test_streams_may_be_trimmed_between_planning_and_committing(cluster: Cluster) -> None:
    plan = cluster.plan(SETTINGS)
    cluster.trim(1, 4)
    assert not compact(cluster.catalog, plan).is_partial
    cluster.check()
    cluster.trim(2, 18)
    cluster.trim(1, 9)
    assert not cluster.compact().is_partial
    cluster.check()
    assert cluster.live_ids(NODE) == []  # nothing of it is needed any more


def test_two_compactions_of_one_node_at_once_do_no_harm(cluster: Cluster) -> None:
    cluster.uploads(3, OTHER, {3: 1})
    start = threading.Barrier(2)

    def one(size: int) -> CompactionReport:
        with cluster.world.open() as catalog:
            plan = Cluster(cluster.world, catalog).plan(all_of_it(max_sources_per_group=size))
            start.wait()
            return compact(catalog, plan)

    with ThreadPoolExecutor(2) as threads:
        reports = list(threads.map(one, (3, 4)))
    cluster.check()
    removed = sum(each.rewritten_objects - each.added_objects for each in reports)
    assert len(cluster.live_ids(NODE)) + len(cluster.live_ids(OTHER)) == 12 - removed
    cluster.settle()


def test_a_report_is_a_row_and_plain_data(cluster: Cluster) -> None:
    told: list[tuple[int, int]] = []
    plan: CompactionPlan = cluster.plan(SETTINGS)
    report = compact(cluster.catalog, plan, progress=lambda done, in_all: told.append((done, in_all)))
    rewritten = [group.source_bytes for group in plan.groups]
    assert told == [(done, sum(rewritten)) for done in accumulate(rewritten)]
    row = report.row()
    assert (row["rewritten_objects"], row["added_objects"], row["failed_groups"]) == (9, 3, 0)
    assert row["requests"] >= 3 * (3 + 1)
    assert [each["status"] for each in json.loads(json.dumps(report.to_dict()))["groups"]] == ["committed"] * 3


def test_a_catalog_opened_elsewhere_may_merge_and_this_one_commits(cluster: Cluster) -> None:
    plan = cluster.plan(SETTINGS)

    def elsewhere(groups: Sequence[Group]) -> Iterator[GroupOutcome]:
        with cluster.world.open() as other:
            yield from (run_group(other, pickle.loads(pickle.dumps(each)), SETTINGS) for each in groups)  # noqa: S301 - made in the line itself

    assert statuses(compact(cluster.catalog, plan, run=elsewhere)) == [Status.COMMITTED] * 3
    cluster.check()
