"""What is left of a creation that another one overtook: nothing, once somebody recovers."""

from __future__ import annotations

from contextlib import suppress
from itertools import product
from uuid import UUID

import pytest

from accel.errors import AccelError
from accel.history.rules.states import StreamState
from accel.history.store.stream_names import OrphanedTables
from accel.testing import Crash
from tests.accel.history.store.bench import Bench
from tests.accel.history.store.watching import interrupted, overtaken
from tests.accel.history.store.workflows import WORKS, Work
from tests.conformance.history_world import SCOPE, STREAM
from tests.examples import places


def died(work: Work, before_call: int, dies_after_writes: int) -> Bench:
    """One begins, another does all of it before some call of the first, which dies some writes later."""
    bench = work.bench()

    def other() -> None:
        with suppress(AccelError):
            work.act(bench, bench.store, bench.now_ms)

    with suppress(AccelError, Crash):
        work.act(bench, overtaken(bench.store, before_call, other, dies_after_writes), bench.now_ms)
    return bench


@pytest.mark.parametrize("name", ["create", "create scope"])
def test_nothing_is_left_of_who_was_overtaken_and_died(name: str) -> None:
    work = WORKS[name]
    whole = work.whole()
    expected = whole.bench.live_keys()
    ends = list(product(range(whole.calls), (0, 1, 2, 3, 5, 8)))
    for place in places(len(ends), 0, every=5):
        before_call, dies_after_writes = ends[place]
        bench = died(work, before_call, dies_after_writes)
        bench.streams().recover()
        assert bench.live_keys() == expected, (before_call, dies_after_writes)
        assert name != "create" or bench.stream().state() is StreamState.ACTIVE


def test_tables_that_nobody_names_are_dropped_and_no_others(bench: Bench) -> None:
    """Whoever was overtaken at the very beginning has made tables, and died; the scope was made anew meanwhile."""
    bench.transaction("first")
    before = bench.live_keys()
    streams = bench.streams()
    names = list(streams._parts.tables.table_names())
    assert OrphanedTables(streams._parts).drop() == []
    stale = [
        f"{SCOPE}/{STREAM}/metadata.#.{UUID(int=7)}",
        f"{SCOPE}/{STREAM}/transactionsInEpoch-0.#.{UUID(int=7)}",
        f"{SCOPE}/never/metadata.#.{UUID(int=8)}",
        f"{SCOPE}/streamsInScope.#.{UUID(int=9)}",
        f"gone/{STREAM}/metadata.#.{UUID(int=10)}",
        f"gone/streamsInScope.#.{UUID(int=11)}",
    ]
    for each in stale:
        streams._parts.tables.create_table(each)
    assert bench.live_keys() != before
    assert sorted(OrphanedTables(bench.streams()._parts).drop(SCOPE)) == sorted(stale[:4])
    assert sorted(OrphanedTables(bench.streams()._parts).drop()) == sorted(stale[4:])
    assert list(bench.streams()._parts.tables.table_names()) == names
    assert bench.live_keys() == before


def test_recovery_takes_nothing_from_a_creation_that_goes_on() -> None:
    """Recovery runs before each call of somebody who creates a stream."""
    work = WORKS["create"]
    whole = work.whole()
    for number in range(whole.calls):
        bench = work.bench()
        work.act(bench, interrupted(bench.store, number, bench.streams().recover), bench.now_ms)
        assert bench.live_keys() == whole.bench.live_keys(), number
