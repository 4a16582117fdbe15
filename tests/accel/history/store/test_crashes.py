"""A process may die before any of its writes: whoever repeats its work finds everything as if done once.

Each workflow runs to its end once, to count its writes. Then it dies in place of each of them in turn, and is repeated
or recovered by a process that knows nothing, and whose clock goes before or behind. What can be seen afterwards, key by
key, must be the same; only where clocks differ, times may.
"""

from __future__ import annotations

import pytest

from accel.testing import Crash
from tests.accel.history.store.watching import Stumbling
from tests.accel.history.store.workflows import WORKS, Work
from tests.examples import places

WRITES_MAX = 200


def sweep(work: Work, skew_ms: int, *, recover: bool, part: int | None = None, every: int = 2) -> None:
    whole = work.whole()
    expected = work.shown(whole.bench, with_times=not skew_ms, with_parts=recover)
    assert 0 < whole.writes < WRITES_MAX
    for number, bench in work.crashed(part, every):
        bench.now_ms += skew_ms
        work.finish(bench, bench.now_ms, recover=recover)
        found = work.shown(bench, with_times=not skew_ms, with_parts=recover)
        assert found == expected, f"crash before write {number}"


@pytest.mark.parametrize("name", WORKS)
def test_work_that_is_repeated_after_a_crash_ends_as_if_nothing_had_happened(name: str) -> None:
    sweep(WORKS[name], 0, recover=False)


@pytest.mark.parametrize("name", WORKS)
def test_recovery_finishes_what_a_crash_left_behind(name: str) -> None:
    sweep(WORKS[name], 0, recover=True)


@pytest.mark.parametrize(("part", "name"), list(enumerate(WORKS)), ids=WORKS)
def test_a_process_that_was_interrupted_goes_on_with_what_it_had_cached(part: int, name: str) -> None:
    work = WORKS[name]
    whole = work.whole()
    expected = work.shown(whole.bench, with_times=True)
    for number in places(whole.writes, part):
        bench = work.bench()
        bench.client = bench.streams(Stumbling(bench.store, number))
        with pytest.raises(Crash):
            work.act(bench, bench.store, bench.now_ms)
        work.finish(bench, bench.now_ms)
        bench.client = None
        assert work.shown(bench, with_times=True) == expected, f"interrupted before write {number}"


@pytest.mark.parametrize(("skew_ms", "part"), [(-15, 0), (10, 2)], ids=["behind", "before"])
@pytest.mark.parametrize("name", [each for each in WORKS if each != "retention"])
def test_another_clock_changes_times_only(name: str, skew_ms: int, part: int) -> None:
    """Pitfall D3: a roll repeated by another clock gave the history other times than the epoch's record."""
    sweep(WORKS[name], skew_ms, recover=False, part=part, every=4)
