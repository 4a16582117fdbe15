"""The simulation behind the promise on the order of time: whole, repeatable, and as good as is said."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from accel.streams.rules.reader_core import ReaderCore
from accel.streams.rules.settings import ReaderSettings
from benchmarks.order import GOAL, SCALE_MS, SCENARIOS, SEGMENTS, FullestFirst, Given, World, both, ratio, read

SEED = 3
SECONDS = 21
FINEST_KEYS = 1 << 12
"""No segment of so short a stream is narrower than one of so many parts of the keys."""

BY_NAME = {each.name: each for each in SCENARIOS}


@pytest.fixture(scope="module")
def world() -> World:
    return World(SEED, SECONDS)


@cache
def both_of(world: World, name: str) -> dict[type[ReaderCore], Given]:
    """What ours and the peer return; a test that looks at them changes nothing."""
    return dict(zip((ReaderCore, FullestFirst), both(world, BY_NAME[name]), strict=True))


def numbers_of(world: World, given: Given) -> list[int]:
    """The records that were given, by their place in the stream."""
    pairs = zip(given.segment_ids.tolist(), given.offsets.tolist(), strict=True)
    return [int(world.segments[segment_id].numbers[offset]) for segment_id, offset in pairs]


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("core", [ReaderCore, FullestFirst])
def test_every_record_comes_once_and_each_key_in_its_order(world: World, name: str, core: type[ReaderCore]) -> None:
    numbers = numbers_of(world, both_of(world, name)[core])
    assert sorted(numbers) == list(range(world.records))
    keys = (world.keys * FINEST_KEYS).astype(np.int64)[numbers]
    order = np.argsort(keys, kind="stable")
    same_key = np.diff(keys[order]) == 0
    assert (np.diff(np.array(numbers)[order])[same_key] > 0).all()


@pytest.mark.parametrize("name", BY_NAME)
def test_records_come_at_least_20_times_less_out_of_order(world: World, name: str) -> None:
    ours, peer = (float(np.percentile(each.out_of_order_ms(), 99)) for each in both_of(world, name).values())
    assert ratio(ours, peer) >= GOAL


def test_a_run_follows_from_its_seed(world: World) -> None:
    one = both_of(world, "history")[ReaderCore]
    other = read(World(SEED, SECONDS), BY_NAME["history"], ReaderCore, ReaderSettings())
    assert (one.values == other.values).all()
    assert (one.given_ms == other.given_ms).all()
    assert not np.array_equal(World(SEED + 1, SECONDS).times_ms, world.times_ms)


def test_how_far_out_of_order_is_told_from_the_highest_value_before() -> None:
    values = np.array([10, 30, 20, 30, 5, 40])
    nothing = np.zeros(6, dtype=np.int64)
    assert Given(nothing, nothing, values, nothing).out_of_order_ms().tolist() == [0, 0, 10, 0, 25, 0]


def test_each_ten_seconds_one_segment_is_split_and_two_are_merged(world: World) -> None:
    sealed = [each.sealed_ms for each in world.segments.values() if each.sealed_ms is not None]
    assert sorted(sealed) == [time for time in range(SCALE_MS, SECONDS * 1000, SCALE_MS) for _ in range(3)]
    active = sorted(each.record.key_start for each in world.segments.values() if each.sealed_ms is None)
    assert len(active) == SEGMENTS
    assert sum(len(each.numbers) for each in world.segments.values()) == world.records
