"""Uploaders, compactors, a collector, an undoer, a caretaker and readers: no order of their requests does any harm.

The actors and what must be true after every write are in `tests.accel.catalog.simulation`. A failure names its seed;
the same seed makes the same run. ACCEL_TEST_EXAMPLES_FACTOR makes for more seeds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from accel.catalog import node_list, session
from tests.accel.catalog.simulation.bucket import Violation
from tests.accel.catalog.simulation.collectors import DELETES_FIRST, IMPATIENT, RIGHT, CollectorRules
from tests.accel.catalog.simulation.runs import simulate
from tests.examples import examples

STEPS = 2000
SEEDS = range(examples(5))
SEEDS_UNTIL_CAUGHT = 30

HAPPENS = (
    "uploads",
    "compactions",
    "slow compactors",
    "compactions refused",
    "merges",
    "undos",
    "undos refused",
    "expired promises",
    "collected: retired",
    "collected: prepared",
    "trims",
    "streams closed",
    "streams taken away",
    "zombies refused",
    "deaths",
    "commits in doubt",
    "walks",
    "lookups",
)


def test_everything_at_once_loses_nothing_and_lists_nothing_that_is_gone() -> None:
    happened: Counter[str] = Counter()
    for seed in range(SEEDS_UNTIL_CAUGHT):
        # What is rare needs a few seeds more, and which ones changes with every request that somebody makes.
        if seed < len(SEEDS) or not all(happened[each] for each in HAPPENS):
            happened += simulate(seed, STEPS)
    assert [each for each in HAPPENS if not happened[each]] == []


def test_a_seed_makes_the_same_run_again() -> None:
    assert simulate(3, 600) == simulate(3, 600)


def assert_caught(collector: CollectorRules = RIGHT, first_seed: int = 0) -> None:
    for seed in range(first_seed, first_seed + SEEDS_UNTIL_CAUGHT):
        try:
            simulate(seed, STEPS, collector, merges=0.1)
        except Violation:
            return
    pytest.fail("expected a violation, found none: the invariants see nothing")


@pytest.mark.parametrize("collector", [DELETES_FIRST, IMPATIENT])
def test_a_collector_that_breaks_a_rule_is_caught(collector: CollectorRules) -> None:
    assert_caught(collector)


def test_commits_of_ids_that_are_not_promised_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_check(now: object, ids: Iterable[int]) -> None:
        del now, ids

    monkeypatch.setattr(node_list, "_refuse_unprepared", no_check)
    assert_caught(first_seed=24)  # rare: about one run in eight


def test_commits_of_sessions_that_are_fenced_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_check(now: object, epoch: object) -> None:
        del now, epoch

    monkeypatch.setattr(node_list, "_refuse_fenced", no_check)
    assert_caught()


def test_uploads_that_do_not_continue_their_streams_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(self: session.StreamEnds, *columns: object) -> session.StreamEnds:
        del columns
        return self

    monkeypatch.setattr(session.StreamEnds, "with_higher_ends", stale)
    assert_caught()
