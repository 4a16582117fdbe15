"""What it takes to go on after a process died, however much it wrote, and that nothing of the time indexes is lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel import ReadAccelerator
from accel.catalog import ObjectCatalog
from accel.catalog.records import LIVE, STREAM_END, TIME_RECORD, Checkpoint, NodeList, Rows, make_rows, no_rows
from accel.catalog.session import KnownTimes, told_by_times
from accel.compaction import compact, plan_compaction
from accel.streams.settings import SegmentsSettings
from accel.streams.time_index import MOVED_RECORDS_MAX
from loaders.format import RecordBatch
from loaders.store import CountingStore
from tests.accel.compaction.world import all_of_it
from tests.accel.streams.writer import world as world_module
from tests.accel.streams.writer.world import CATALOG, NAME, NODE, World, created

EVENTS = [(b"%d" % number, b"key-%d" % number) for number in range(40)]
CHECKPOINT_COMMITS = 8


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint after few commits, so that there are some."""
    monkeypatch.setattr(world_module, "CATALOG", replace(CATALOG, checkpoint_commits=CHECKPOINT_COMMITS))


def written(flushes: int, moves: tuple[int, int] | None, segments: int = 8) -> World:
    """A stream with so many flushes of all segments; its process is dead."""
    world = created(segments)
    flush(world, flushes, moves)
    return world


def flush(world: World, flushes: int, moves: tuple[int, int] | None) -> None:
    with world.process(settings=SegmentsSettings(), moves=moves) as process:
        writer = process.writer()
        for _ in range(flushes):
            writer.write_many(EVENTS)
            world.seconds += 0.1
            writer.flush()


def cost_of_restart(world: World, moves: tuple[int, int] | None) -> tuple[int, int]:
    """Requests of opening a writer in a new process, which then dies; and how many of them read data."""
    store = CountingStore(world.store)
    with world.process(store, SegmentsSettings(), moves=moves) as process:
        stream = process.stream()
        store.reset()
        process.host.open_segments(NAME, stream.active_segments().ids.tolist())
        counts = store.reset()
    return counts.total.requests, counts.of("get_range").requests


MOVING = 5, MOVED_RECORDS_MAX


@pytest.mark.parametrize("moves", [None, MOVING], ids=["in-memory", "moving"])
def test_a_restart_costs_the_same_after_few_flushes_and_after_many(moves: tuple[int, int] | None) -> None:
    costs = {}
    for flushes in (6, 2 * CHECKPOINT_COMMITS + 6):
        world = written(flushes, moves)
        costs[flushes] = [cost_of_restart(world, moves) for _ in range(2)]
        world.check_times()
    few, many = costs.values()
    indexes = 0 if moves is None else 8  # the parts of each are listed, if a checkpoint says that there are some
    assert set(few) == {(8 + 7, 0)}  # the stream of each segment, and the stream's own records
    assert set(many) == {(8 + indexes + 7, 0)}


def test_objects_that_were_compacted_meanwhile_cost_nothing_more() -> None:
    world = written(CHECKPOINT_COMMITS + 10, None)
    before = cost_of_restart(world, None)
    with ObjectCatalog.open(world.store, settings=CATALOG, system=world.system) as catalog:
        assert compact(catalog, plan_compaction(catalog, all_of_it())).rewritten_objects > CHECKPOINT_COMMITS
    assert cost_of_restart(world, None) == before
    flush(world, 2, None)
    assert cost_of_restart(world, None) == before
    world.check_times()


def test_times_take_no_request_of_a_flush() -> None:
    world = created(8)
    store = CountingStore(world.store)
    with world.process(store, SegmentsSettings()) as process:
        writer = process.writer()
        writer.write_many(EVENTS)
        writer.flush()
        store.reset()
        for _ in range(CHECKPOINT_COMMITS):
            writer.write_many(EVENTS)
            writer.flush()
        counts = store.reset()
    checkpoints = 1
    assert counts.of("put").requests == 2 * CHECKPOINT_COMMITS + checkpoints
    assert counts.total.requests <= 2 * CHECKPOINT_COMMITS + 2 * checkpoints + 3  # three looks for requests of others


def test_sealed_segments_leave_the_checkpoint() -> None:
    world = written(5, None, segments=2)
    with world.process(settings=SegmentsSettings()) as process:
        stream = process.stream()
        stream.scale(stream.active_segments().ids.tolist(), [(0.0, 1.0)])
        writer = process.writer()
        writer.write_many(EVENTS)
        writer.close()
        process.host.close()
    checkpoint = stored_checkpoint(world)
    assert set(checkpoint.times["stream_id"].tolist()) == set(checkpoint.ends["stream_id"].tolist())
    assert len(checkpoint.ends) == 1
    world.check_times()


# Without what a list or a checkpoint tells


def stored_checkpoint(world: World) -> Checkpoint:
    with ObjectCatalog.open(world.store, settings=CATALOG, system=world.system) as catalog:
        seen = catalog.parts.keys.checkpoint(NODE).read()
    assert seen is not None
    return seen.value


def edit(world: World, of_list: Callable[[Rows], Rows], of_checkpoint: Callable[[Rows], Rows]) -> None:
    """Change the time records of list and checkpoint."""

    def change_list(now: NodeList | None) -> NodeList:
        assert now is not None
        return replace(now, times=of_list(now.times))

    def change_checkpoint(now: Checkpoint | None) -> Checkpoint | None:
        return None if now is None else replace(now, times=of_checkpoint(now.times))

    with ObjectCatalog.open(world.store, settings=CATALOG, system=world.system) as catalog:
        catalog.parts.keys.node_list(NODE).change(change_list)
        if catalog.parts.keys.checkpoint(NODE).read() is not None:
            catalog.parts.keys.checkpoint(NODE).change(change_checkpoint)


LEFT: dict[str, Callable[[Rows], Rows]] = {
    "nothing": lambda rows: rows[:0],
    "late": lambda rows: rows[len(rows) // 2 :],
    "every second": lambda rows: rows[::2],
    "everything": lambda rows: rows,
}


@pytest.mark.parametrize(
    ("of_list", "of_checkpoint", "flushes"),
    [
        ("nothing", "nothing", 5),
        ("late", "everything", 5),
        ("every second", "everything", CHECKPOINT_COMMITS + 5),
        ("everything", "nothing", CHECKPOINT_COMMITS + 5),
        ("everything", "every second", CHECKPOINT_COMMITS + 5),
    ],
)
def test_what_a_list_has_not_is_read_from_the_data_once(of_list: str, of_checkpoint: str, flushes: int) -> None:
    """As after a release that leaves times out of what it writes, or after appends without them."""
    world = written(flushes, None, segments=2)
    edit(world, LEFT[of_list], LEFT[of_checkpoint])
    assert cost_of_restart(world, None)[1] > 0
    assert cost_of_restart(world, None)[1] == 0
    world.check_times()
    flush(world, 2, MOVING)
    world.check_times()


def batches_of(world: World, stream_id: int) -> list[RecordBatch]:
    with (
        ObjectCatalog.open(world.store, settings=CATALOG, system=world.system) as catalog,
        ReadAccelerator(catalog.images(), world.store, system=world.system) as accelerator,
    ):
        return list(accelerator.read(stream_id, 0))


# What follows from rows


@st.composite
def some_rows(draw: st.DrawFn) -> list[tuple[int, int, int, int, int]]:
    """Rows of two streams, mostly one behind the other, ascending by commit."""
    rows: list[tuple[int, int, int, int, int]] = []
    for commit in range(draw(st.integers(0, 8))):
        for stream_id in draw(st.sets(st.integers(1, 2))):
            number = draw(st.sampled_from([len([row for row in rows if row[0] == stream_id])] * 6 + [0, 2, 5]))
            rows.append((stream_id, number, 10 * number + 10, number // 2, commit))
    return rows


def naive(checkpoint: Sequence[tuple[int, ...]], since: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    known: list[tuple[int, ...]] = []
    for is_first, rows in ((True, checkpoint), (False, since)):
        for row in rows:
            if known:
                last = known[-1]
                if (row[1], row[2] > last[2], row[3] >= last[3]) != (last[1] + 1, True, True):
                    return known
            elif not is_first and row[1] != 0:
                return known
            known.append(row)
    return known


@given(some_rows(), st.integers(-1, 8))
def test_known_times_are_those_that_follow_one_another(
    rows: list[tuple[int, int, int, int, int]], covered: int
) -> None:
    before = sorted({row[:2]: row for row in rows if row[4] <= covered}.values())  # each record once
    since = [row for row in rows if row[4] > covered]
    known = KnownTimes(covered, np.array(before, dtype=TIME_RECORD), np.array(since, dtype=TIME_RECORD))
    for stream_id in (1, 2, 3):
        mine = [[row for row in each if row[0] == stream_id] for each in (before, since)]
        assert [tuple(row) for row in known.of(stream_id).tolist()] == naive(*mine)
    others = known.without(np.array([1]))
    assert [tuple(row) for row in others.tolist()] == naive(*([r for r in e if r[0] == 2] for e in (before, since)))


def test_checkpoints_with_times_in_no_order_are_refused() -> None:
    times = make_rows(TIME_RECORD, stream_id=[7, 7], record=[1, 0], end=[20, 10], value=5, commit=0)
    with pytest.raises(ValueError, match="expected ascending"):
        Checkpoint(NODE, 3, no_rows(STREAM_END), times)


# Where streams end, from time records


def cost_of_session(world: World) -> tuple[dict[str, int], dict[int, int | None]]:
    """Requests of opening a session, by operation; and where the streams end for it."""
    store = CountingStore(world.store)
    with ObjectCatalog.open(store, settings=CATALOG, system=world.system) as catalog:
        store.reset()
        node = catalog.open_node(NODE)
        counts = store.reset()
        ends = {stream_id: node.end(stream_id) for stream_id in range(20)}
    return {name: count.requests for name, count in counts.by_operation.items()}, ends


def test_a_session_opens_no_object_whose_commit_tells_where_its_streams_end() -> None:
    shards, told = world_module.FORMAT.stream_buckets, written(CHECKPOINT_COMMITS + 5, None)
    requests, ends = cost_of_session(told)
    # The directory, the list, the counter, the checkpoint and the shards; the list, and shards that have its streams.
    assert requests == {"get": 4 + shards, "put": 1 + shards}
    edit(told, LEFT["nothing"], LEFT["nothing"])
    plainly, same = cost_of_session(told)
    assert plainly == requests | {"get_range": 5}
    assert same == ends
    assert set(ends.values()) > {None}


def test_objects_that_tell_nothing_or_not_all_are_opened() -> None:
    world = written(3, None, segments=2)
    with ObjectCatalog.open(world.store, settings=CATALOG, system=world.system) as catalog:
        node = catalog.open_node(NODE)
        ends = {stream_id: end for stream_id in range(20) if (end := node.end(stream_id)) is not None}
        batches = {
            stream_id: [replace(batches_of(world, stream_id)[-1], base_offset=end, epoch=node.session_number)]
            for stream_id, end in ends.items()
        }
        node.upload(batches)
        wanted = {stream_id: node.end(stream_id) for stream_id in ends}
    edit(world, lambda rows: with_row_of_last_commit(rows, min(ends)), LEFT["everything"])  # one of two streams
    requests, found = cost_of_session(world)
    assert sum(requests.get(name, 0) for name in ("get_range", "get_tail")) == 1
    assert {stream_id: found[stream_id] for stream_id in ends} == wanted


def with_row_of_last_commit(rows: Rows, stream_id: int) -> Rows:
    row = make_rows(TIME_RECORD, stream_id=[stream_id], record=7, end=10**6, value=1, commit=rows["commit"].max() + 1)
    return np.concatenate((rows, row))


@given(
    st.lists(st.tuples(st.sets(st.integers(1, 4), min_size=1), st.integers(0, 2), st.booleans()), max_size=6),
    st.sets(st.tuples(st.integers(0, 5), st.integers(1, 4))),
)
def test_ends_are_told_by_commits_that_have_rows_of_as_many_streams_as_their_object_has_blocks(
    commits: list[tuple[set[int], int, bool]], missing: set[tuple[int, int]]
) -> None:
    """Objects by commit: their streams, how many blocks more, whether a compaction made them."""
    numbers = range(len(commits))
    blocks = [len(streams) + more for streams, more, _ in commits]
    last = [number + compacted for number, (_, _, compacted) in enumerate(commits)]
    objects = make_rows(
        LIVE, object_id=list(numbers), order_id=list(numbers), last_order_id=last,
        data_time_ms=0, size_bytes=9, index_size_bytes=[36 * each for each in blocks], attributes=0,
        tail_checksum=0, added_by=0,
    )  # fmt: skip
    told = [
        (stream_id, number, 10 * number + at, 0, number)
        for number, (streams, _, _) in enumerate(commits)
        for stream_id in sorted(streams)
        if (number, stream_id) not in missing
        for at in (1, 2)
    ]
    is_told, ends = told_by_times(objects, np.array(told, dtype=TIME_RECORD))
    wanted = [
        not more and not compacted and not any((number, each) in missing for each in streams)
        for number, (streams, more, compacted) in enumerate(commits)
    ]
    assert is_told.tolist() == wanted
    highest = {row[0]: row[2] for row in told if wanted[row[4]]}  # later commits end higher
    assert dict(zip(ends.stream_ids.tolist(), ends.ends.tolist(), strict=True)) == highest
