"""Requests go wrong and replies are lost: a workflow notices what became of its writes, or can be repeated."""

from __future__ import annotations

from random import Random

import pytest

from accel.errors import HistoryError
from accel.testing import CrashStore, Fault, FaultStore
from loaders.errors import StoreError, TableError
from loaders.store.decorated import WRITES
from tests.accel.history.store.acts import WORKS
from tests.examples import examples, places


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.SERVER_ERROR])
@pytest.mark.parametrize("name", WORKS)
def test_a_write_of_which_nobody_knows_is_settled_where_it_was_made(name: str, fault: Fault) -> None:
    work = WORKS[name]
    whole = work.bench()
    counted = CrashStore(whole.store, None)
    work.act(whole, counted, whole.now_ms)
    expected = work.shown(whole, with_times=True)
    part = int(fault is Fault.SERVER_ERROR)  # each write meets one of the two faults
    for number in places(counted.writes, part):
        bench = work.bench()
        faulty = FaultStore(bench.store, operations=WRITES)
        faulty.schedule(*[None] * number, fault)
        work.act(bench, faulty, bench.now_ms)
        assert work.shown(bench, with_times=True) == expected, f"write {number}"


@pytest.mark.parametrize("name", WORKS)
def test_work_that_is_repeated_until_nothing_goes_wrong_is_done_once(name: str) -> None:
    work = WORKS[name]
    whole = work.bench()
    work.act(whole, whole.store, whole.now_ms)
    expected = work.shown(whole, with_times=True)
    for seed in range(examples(3)):
        bench = work.bench()
        faults = {Fault.SLOW_DOWN: 0.02, Fault.LOST_REPLY: 0.1, Fault.SERVER_ERROR: 0.1, Fault.TIMEOUT: 0.02}
        faulty = FaultStore(bench.store, rng=Random(seed), probabilities=faults)
        for _ in range(100):
            try:
                work.act(bench, faulty, bench.now_ms)
            except (StoreError, TableError):
                continue
            except HistoryError:
                pass  # done before
            break
        work.finish(bench, bench.now_ms, recover=True)
        assert work.shown(bench, with_times=True) == expected, f"seed {seed}"
