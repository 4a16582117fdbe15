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
from accel.catalog.records import STREAM_END, TIME_RECORD, Checkpoint, NodeList, Rows, make_rows, no_rows
from accel.catalog.session import KnownTimes
from accel.compaction import compact, plan_compaction
from accel.streams.settings import SegmentsSettings
from loaders.format import RecordBatch
from loaders.store import CountingStore
from tests.accel.compaction.world import all_of_it
from tests.accel.streams.writer import world as world_module
from tests.accel.streams.writer.world import CATALOG, NAME, NODE, World

EVENTS = [(b"%d" % number, b"key-%d" % number) for number in range(40)]
CHECKPOINT_COMMITS = 8


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint after few commits, so that there are some."""
    monkeypatch.setattr(world_module, "CATALOG", replace(CATALOG, checkpoint_commits=CHECKPOINT_COMMITS))


def written(flushes: int, settings: SegmentsSettings, segments: int = 8) -> World:
    """A stream with so many flushes of all segments; its process is dead."""
    world = World()
    world.create(segments)
    flush(world, flushes, settings)
    return world


def flush(world: World, flushes: int, settings: SegmentsSettings) -> None:
    with world.process(settings=settings) as process:
        writer = process.writer()
        for _ in range(flushes):
            writer.write_many(EVENTS)
            world.seconds += 0.1
            writer.flush()


def cost_of_restart(world: World, settings: SegmentsSettings) -> tuple[int, int]:
    """Requests of opening a writer in a new process, which then dies; and how many of them read data."""
    store = CountingStore(world.store)
    with world.process(store, settings) as process:
        stream = process.stream()
        store.reset()
        process.host.open_segments(NAME, stream.active_segments().ids.tolist())
        counts = store.reset()
    return counts.total.requests, counts.of("get_range").requests


DEFAULTS = SegmentsSettings()
MOVING = SegmentsSettings(move_records_min=5)


@pytest.mark.parametrize("settings", [DEFAULTS, MOVING], ids=["in-memory", "moving"])
def test_a_restart_costs_the_same_after_few_flushes_and_after_many(settings: SegmentsSettings) -> None:
    costs = {}
    for flushes in (3, 2 * CHECKPOINT_COMMITS + 3):
        world = written(flushes, settings)
        costs[flushes] = [cost_of_restart(world, settings) for _ in range(2)]
        world.check_times()
    [cost] = {each for both in costs.values() for each in both}
    assert cost == (8 + 8 + 7, 0)  # the stream of each segment, its index, and the stream's own records


def test_objects_that_were_compacted_meanwhile_cost_nothing_more() -> None:
    world = written(CHECKPOINT_COMMITS + 10, DEFAULTS)
    before = cost_of_restart(world, DEFAULTS)
    with ObjectCatalog.open(world.store, settings=CATALOG, system=world.system) as catalog:
        assert compact(catalog, plan_compaction(catalog, all_of_it())).rewritten_objects > CHECKPOINT_COMMITS
    assert cost_of_restart(world, DEFAULTS) == before
    flush(world, 2, DEFAULTS)
    assert cost_of_restart(world, DEFAULTS) == before
    world.check_times()


def test_times_take_no_request_of_a_flush() -> None:
    world = World()
    world.create(8)
    store = CountingStore(world.store)
    with world.process(store, DEFAULTS) as process:
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
    world = written(5, DEFAULTS, segments=2)
    with world.process(settings=DEFAULTS) as process:
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


def nothing(rows: Rows) -> Rows:
    return rows[:0]


def everything(rows: Rows) -> Rows:
    return rows


def every_second(rows: Rows) -> Rows:
    return rows[::2]


def late(rows: Rows) -> Rows:
    return rows[len(rows) // 2 :]


@pytest.mark.parametrize(
    ("of_list", "of_checkpoint", "flushes"),
    [
        (nothing, nothing, 5),
        (late, everything, 5),
        (every_second, everything, CHECKPOINT_COMMITS + 5),
        (everything, nothing, CHECKPOINT_COMMITS + 5),
        (everything, every_second, CHECKPOINT_COMMITS + 5),
    ],
)
def test_what_a_list_has_not_is_read_from_the_data_once(
    of_list: Callable[[Rows], Rows], of_checkpoint: Callable[[Rows], Rows], flushes: int
) -> None:
    """As after a release that leaves times out of what it writes, or after appends without them."""
    world = written(flushes, DEFAULTS, segments=2)
    edit(world, of_list, of_checkpoint)
    assert cost_of_restart(world, DEFAULTS)[1] > 0
    assert cost_of_restart(world, DEFAULTS)[1] == 0
    world.check_times()
    flush(world, 2, MOVING)
    world.check_times()


def test_appends_of_a_session_without_times_are_found() -> None:
    world = written(9, DEFAULTS, segments=1)
    with world.process(settings=DEFAULTS) as process:
        stream_id = process.stream().segment_stream(0)
    with ObjectCatalog.open(world.store, settings=CATALOG, system=world.system) as catalog:
        node = catalog.open_node(NODE)
        batch = batches_of(world, stream_id)[-1]
        node.upload({stream_id: [replace(batch, base_offset=batch.end_offset, epoch=node.session_number)]})
    assert cost_of_restart(world, DEFAULTS)[1] > 0
    assert cost_of_restart(world, DEFAULTS)[1] == 0
    flush(world, 3, DEFAULTS)
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
