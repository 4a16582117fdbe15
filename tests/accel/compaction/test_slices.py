"""Long lists are compacted slice by slice: what was done stays done, wherever a run is cut off."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.compaction import CompactionReport, CompactionSettings, compact, compact_slices, plan_compaction, slices
from accel.compaction.planning import survey_catalog
from accel.compaction.slices import slices_of
from accel.errors import MaintenanceRefused
from accel.system import StopRequested
from accel.testing import Crash
from loaders.store import ObjectStore
from loaders.store.decorated import StoreCall
from tests.accel.compaction.world import ONE_AT_A_TIME, Cluster
from tests.world import Watched, World

NODE, OTHER = 4, 7
UPLOADS = 40


def limited(store: ObjectStore, requests: int) -> ObjectStore:
    """A store whose process dies after some requests."""
    made = count()

    def die(call: StoreCall) -> None:
        if next(made) >= requests:
            raise Crash(f"{call.operation} {call.key!r}: the process ended")

    return Watched(store, die)


@pytest.fixture(autouse=True)
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "LIST_OBJECTS_MIN", 12)
    monkeypatch.setattr(slices, "SLICE_OBJECTS", 6)


def cluster_of(uploads: int = UPLOADS) -> Cluster:
    cluster = Cluster(World(settings=ONE_AT_A_TIME))
    cluster.uploads(uploads, NODE, {1: 1, 2: 2})
    cluster.upload(OTHER, {3: 1})
    cluster.upload(OTHER, {3: 1})
    return cluster


def settings_of(**choices: object) -> CompactionSettings:
    return CompactionSettings(
        **{"max_objects_per_node": 30, "target_objects": 10, "min_age_seconds": 0, "max_sources_per_group": 4} | choices  # type: ignore[arg-type]  # any of them
    )


def all_slices_and_the_rest(cluster: Cluster, settings: CompactionSettings) -> CompactionReport:
    done = compact_slices(cluster.catalog, settings)
    plan = plan_compaction(cluster.catalog, done.settings_left(settings))
    done.plans.append(plan)
    done.reports.append(compact(cluster.catalog, plan))
    assert done.plan(settings).to_dict()["rewritten_objects"] == done.report().rewritten_objects
    return done.report()


def test_slices_reach_the_target_of_the_whole_list_and_keep_every_record() -> None:
    cluster = cluster_of()
    done = compact_slices(cluster.catalog, settings_of())
    assert len(done.reports) > 3
    assert len(cluster.live_ids(NODE)) == 10
    report = done.report()
    assert (report.is_partial, report.rewritten_objects - report.added_objects) == (False, UPLOADS - 10)
    [node] = done.plan(settings_of()).nodes
    assert (node.objects, node.target_objects, node.objects_after) == (UPLOADS, 10, 10)
    assert compact_slices(cluster.catalog, settings_of()).reports == []
    cluster.check()
    cluster.check_ends()


def test_runs_that_are_cut_off_before_every_object_is_opened_come_to_the_end() -> None:
    cluster = cluster_of()
    left = [UPLOADS]
    for _ in range(40):
        try:
            with cluster.world.open(limited(cluster.world.store, UPLOADS - 2)) as catalog:
                compact_slices(catalog, settings_of(rewrite_all=True))
        except Crash:
            pass
        left.append(len(cluster.live_ids(NODE)))
    assert left == sorted(left, reverse=True)
    assert left[-1] < slices.LIST_OBJECTS_MIN, "the plan of the whole has the rest"
    cluster.check()


def test_a_run_that_is_told_to_stop_returns_the_slices_that_it_did() -> None:
    cluster = cluster_of()

    def stop(done: int, in_all: int) -> None:
        assert in_all > 12
        if done > 12:
            raise StopRequested

    done = compact_slices(cluster.catalog, settings_of(), progress=stop)
    assert done.is_stopped
    assert 10 < len(cluster.live_ids(NODE)) == UPLOADS - done.report().rewritten_objects + done.report().added_objects
    assert len(cluster.live_ids(NODE)) < UPLOADS


def test_slices_and_the_rest_together_keep_to_the_number_of_stream_objects() -> None:
    with pytest.raises(MaintenanceRefused, match="max_stream_objects"):
        compact_slices(cluster_of().catalog, settings_of(split_size_bytes=100, max_stream_objects=1))
    cluster = cluster_of()
    done = compact_slices(cluster.catalog, settings_of(split_size_bytes=100, max_stream_objects=9))
    assert 0 < done.report().added_stream_objects <= 9
    assert (done.report().failed_nodes, done.report().is_partial) == (1, True)
    cluster.check()


def test_what_its_indexes_do_not_permit_in_slices_is_for_the_plan_of_the_whole() -> None:
    cluster = cluster_of(0)
    for number in range(UPLOADS):
        cluster.upload(NODE, {1: 1} if number % 2 else {2: 1})
    report = all_slices_and_the_rest(cluster, settings_of())
    assert len(cluster.live_ids(NODE)) == 10
    assert report.failed_nodes == 0
    cluster.check()


def test_slices_and_the_rest_together_keep_to_the_bytes_of_a_run() -> None:
    cluster = cluster_of()
    whole = plan_compaction(cluster.catalog, settings_of()).source_bytes
    report = all_slices_and_the_rest(cluster, settings_of(max_bytes=whole // 2))
    assert 0 < report.rewritten_bytes <= whole // 2


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.integers(1, 60), st.integers(20, 400))
def test_slices_are_disjoint_in_list_order_and_are_to_remove_no_more_than_is_wanted(
    sizes: list[int], target: int, group_bytes: int
) -> None:
    cluster = SURVEYED[0]
    survey = survey_catalog(cluster.catalog, settings_of()).nodes[0]
    live = survey.live[np.arange(len(sizes)) % len(survey.live)].copy()
    live["size_bytes"], live["order_id"], live["index_size_bytes"] = sizes, np.arange(len(sizes)), 36
    live["object_id"] = np.arange(len(sizes))
    changed = replace(survey, live=live, target_objects=target, may_be_trimmed=np.zeros(len(sizes), dtype=np.bool_))
    settings = settings_of(rewrite_all=True, target_object_size_bytes=group_bytes)
    parts = slices_of(cluster.catalog.parts, changed, settings)
    ids = [object_id for part in parts for object_id in part.survey.live["object_id"].tolist()]
    assert ids == sorted(set(ids))
    assert sum(len(part.survey.live) - part.survey.target_objects for part in parts) <= max(0, len(sizes) - target)
    assert all(len(part.survey.live) <= max(6, settings.max_sources_per_group) for part in parts)


SURVEYED = [cluster_of()]
