"""One simulated world: whatever the order of requests, faults, pauses and deaths, nothing that was promised is broken.

`tests.simulation` has the actors and what must be true after every write, and at the end. A failure prints the command
that repeats it, with all that it does not need left out. ACCEL_TEST_EXAMPLES_FACTOR makes for more seeds; `make soak`
goes on for as long as one likes.
"""

from __future__ import annotations

import contextlib
import gc
import os
import queue
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.counting import ROOT
from tests.examples import examples
from tests.simulation import blocking
from tests.simulation.planted import DEFECTS, Planted
from tests.simulation.report import Figures, write_report
from tests.simulation.runs import Failed, simulate
from tests.simulation.scheduler import Scheduler, Violation
from tests.simulation.shorten import shortened
from tests.simulation.world import WHOLE, Plan

STEPS = 450
SHORT = 0
SEEDS = 5 * examples(40)
BLOCK = 5
SEEDS_UNTIL_FOUND = 40

HAPPENS = {
    "uploads",
    "trims",
    "deaths",
    "walks",
    "lookups",
    "catalogs verified",
    "batches compared",
    "transactions",
    "histories compared",
    "writes",
    "streams read",
    "events compared",
    "events given to a group",
    "streams that took a scale at the end",
}
"""What is common enough to be in a few worlds; which ones changes with each request that the code makes."""

GOES_WRONG = {
    "SLOW_DOWN",
    "SERVER_ERROR",
    "TIMEOUT",
    "RESET",
    "LOST_REPLY",
    "SHORT_BODY",
    "CONFLICT",
    "PRECONDITION",
    "server error after the effect",
    "bodies changed on the way",
}


@pytest.fixture(scope="module")
def figures() -> Iterator[Figures]:
    """What all worlds of this process were about."""
    figures = Figures()
    yield figures
    if figures.worlds >= SEEDS / 4:  # each process that runs tests has some of them
        assert HAPPENS - {each for each, number in figures.counts.items() if number} == set()
        assert GOES_WRONG - {each for each, number in figures.injected.items() if number} == set()


@pytest.mark.parametrize("block", range(SEEDS // BLOCK))
def test_whatever_happens_nothing_that_was_promised_is_broken(block: int, figures: Figures) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        try:
            figures.add(simulate(seed, STEPS))
        except Failed as failed:
            raise shortened(failed) from failed


def find(defect: Planted) -> None:
    """What a seed is about changes with each request that the code makes, so the seeds after it are tried as well."""
    for seed in range(defect.seed, defect.seed + SEEDS_UNTIL_FOUND):
        simulate(seed, defect.steps, defect.plan, defect.faulty)


@pytest.mark.parametrize("name", DEFECTS)
def test_a_mistake_that_is_planted_is_found(name: str) -> None:
    defect = DEFECTS[name]
    with defect.plant(), pytest.raises(Failed):
        find(defect)


def test_a_seed_makes_the_same_run_in_every_process_and_another_one_another_run() -> None:
    program = "from tests.simulation.runs import simulate; print(simulate(5, 150).trace)"
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    ran = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", program], cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    )
    assert ran.stdout.strip() == simulate(5, 150).trace != simulate(4, 150).trace


def test_a_failure_prints_the_command_that_repeats_it_without_what_it_does_not_need() -> None:
    defect = DEFECTS["stale-ends"]
    with defect.plant(), pytest.raises(Failed) as raised:
        simulate(SHORT, STEPS, defect.plan)
    with defect.plant():
        short = shortened(raised.value)
        command = f"--seed {SHORT} --steps {STEPS} {short.plan.arguments}"
        assert len(short.plan.without) >= 5
        assert not short.plan.skew
        assert f"python -m tests.simulation {command}" in str(short)
        with pytest.raises(Failed) as again:
            simulate(short.seed, short.steps, short.plan)
    assert str(again.value) == str(short)


def test_what_is_left_out_changes_nothing_before_it_is_missed() -> None:
    whole, quiet = simulate(5, 200), simulate(5, 200, Plan(faults=False))
    assert simulate(5, 200, WHOLE).trace == whole.trace
    assert sum(quiet.injected[each] for each in ("SLOW_DOWN", "LOST_REPLY", "TIMEOUT")) == 0


def test_a_run_leaves_no_thread_and_no_open_file() -> None:
    def held() -> tuple[int, int]:
        gc.collect()
        return threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))

    simulate(6, 300)  # what is made once for all runs
    threads, files = held()
    for seed in (6, 7, 8):
        simulate(seed, 300)
    assert held() <= (threads, files)  # fewer if threads of earlier tests have ended
    assert held()[1] <= files


def test_a_wait_takes_time_however_short_it_is() -> None:
    """A reader whose next act was due by one comparison and not yet by another one asked for ever (seed 1108)."""
    scheduler = Scheduler()
    met = list[str]()

    def ask_until_it_is_time() -> None:
        answers = blocking.SimpleQueue()
        while scheduler.seconds <= 0:
            with contextlib.suppress(queue.Empty):
                answers.get(timeout=0.0)
        met.append("queue")
        lock = blocking.Lock()
        lock.acquire()
        assert not lock.acquire(timeout=0.0)
        assert not blocking.Condition().wait_for(lambda: False, timeout=0.0)
        met.append("lock and condition")

    with blocking.simulated(scheduler):
        scheduler.spawn("one", ask_until_it_is_time)
        scheduler.run(1, lambda: None)
    assert met == ["queue", "lock and condition"]


def test_a_task_that_goes_round_in_a_circle_is_a_failure_that_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.simulation.scheduler.TURN_SECONDS_MAX", 0.2)
    scheduler = Scheduler()

    def go_round() -> None:
        while True:
            pass

    scheduler.spawn("round", go_round)
    with pytest.raises(Violation, match=r"(?s)expected 'round' to wait within .* in go_round"):
        scheduler.run(1, lambda: None)
    scheduler.halt()
    assert not scheduler.has_tasks


def test_a_report_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- simulation: begin -->\nold\n<!-- simulation: end -->\nafter\n")
    figures = Figures()
    figures.counts += Counter({"deaths": 3})
    write_report(figures, page)
    text = page.read_text()
    assert "old" not in text
    assert "| processes that died between two requests | 3 |" in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")
