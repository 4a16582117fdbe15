"""Whatever nodes did before, and however they are compacted: each offset is found exactly as before, and no other."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accel.compaction import CompactionSettings, compact
from loaders.settings import MergeSettings
from tests.accel.compaction.world import Cluster, all_of_it
from tests.examples import examples

NODES = (4, 7)
STREAMS = (1, 2, 3, 4)


Step = Callable[[Cluster], None]
"""Something that happens to a cluster."""


def upload(node: int, lengths: tuple[int, ...], own: bool) -> Step:
    """A node uploads so many offsets of each of its streams, the last one perhaps to an object of its own."""

    def step(cluster: Cluster) -> None:
        wanted = zip(STREAMS, lengths, strict=True)
        mine = {each: length for each, length in wanted if length and cluster.owners[each] == node}
        single = dict([mine.popitem()]) if own and len(mine) > 1 else {}
        if mine:
            cluster.upload(node, mine, single)

    return step


def move(stream: int, node: int) -> Step:
    """A stream moves on to another node."""
    return lambda cluster: cluster.move(stream, node)


def trim(stream: int, tenths: int) -> Step:
    """The older part of a stream is let go."""
    return lambda cluster: cluster.trim(stream, sum(each == stream for each, _ in cluster.written) * tenths // 10)


def compaction(wanted: CompactionSettings) -> Step:
    """A compaction runs; nothing may change by it."""

    def step(cluster: Cluster) -> None:
        before = {node: len(cluster.live_ids(node)) for node in cluster.writers}
        order = {node: cluster.orders(node) for node in cluster.writers}
        report = cluster.compact(wanted)
        assert not report.is_partial
        after = {node: len(cluster.live_ids(node)) for node in cluster.writers}
        removed = report.rewritten_objects - report.added_objects + report.retired_objects
        assert sum(before.values()) - sum(after.values()) == removed
        assert all(set(cluster.orders(node)) <= set(order[node]) for node in cluster.writers)
        cluster.check()
        ends(cluster, wanted)

    return step


def ends(cluster: Cluster, wanted: CompactionSettings) -> None:
    """A second plan has nothing to retire; it has groups only where limits end one, and each run leaves fewer."""
    for number in range(RUNS_MAX):
        plan = cluster.plan(wanted)
        assert not plan.dead
        if not plan.groups:
            return
        assert is_narrow(wanted), number
        assert not compact(cluster.catalog, plan).is_partial
    raise AssertionError("expected compactions that end")


RUNS_MAX = 6
"""Runs that merge pairs of a list of 30."""


def is_narrow(wanted: CompactionSettings) -> bool:
    """Whether groups end where a limit is reached, so that what they become may be merged again."""
    return (
        wanted.max_sources_per_group < 1000
        or wanted.target_object_size_bytes < 1 << 20
        or wanted.split_size_bytes < 1 << 20
    )


def plans() -> st.SearchStrategy[CompactionSettings]:
    return st.builds(
        all_of_it,
        split_holes=st.booleans(),
        split_size_bytes=st.sampled_from([100, 300, 8 << 20]),
        target_object_size_bytes=st.sampled_from([600, 2000, 512 << 20]),
        max_sources_per_group=st.sampled_from([2, 3, 1000]),
        rewrite_all=st.sampled_from([True, True, False]),
        max_objects_per_node=st.sampled_from([2, 5, 1000]),
        dead_share=st.sampled_from([0.1, 0.5, 1.0]),
        merging=st.sampled_from([MergeSettings(), MergeSettings(band_size_bytes=200, part_size_bytes=100)]),
    )


def steps() -> st.SearchStrategy[list[Step]]:
    lengths = st.tuples(*[st.sampled_from([1, 2, 0, 3])] * len(STREAMS))
    uploads = st.builds(upload, st.sampled_from(NODES), lengths, st.sampled_from([False, False, False, True]))
    moves = st.builds(move, st.sampled_from(STREAMS), st.sampled_from(NODES))
    trims = st.builds(trim, st.sampled_from(STREAMS), st.integers(1, 10))
    others = st.one_of(moves, trims, st.builds(compaction, plans()))
    runs = st.tuples(st.lists(uploads, min_size=2, max_size=6), others).map(lambda run: [*run[0], run[1]])
    return st.lists(runs, min_size=2, max_size=5).map(lambda found: [step for run in found for step in run])


@given(steps(), plans())
@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_each_offset_is_found_as_before_and_no_other(history: list[Step], last: CompactionSettings) -> None:
    cluster = Cluster()
    for stream_id, node in zip(STREAMS, (4, 4, 4, 7), strict=True):
        cluster.move(stream_id, node)
    for step in history:
        step(cluster)
    cluster.check()
    compaction(last)(cluster)
    cluster.collect_later()
    cluster.check()
    cluster.check_ends()
