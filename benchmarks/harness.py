"""Measuring two sides of a ratio in one run.

A speed by itself says more about the machine and its neighbours than about the code. So each benchmark measures ours
and a peer alternately, in one process, on the same input, and demands that both give the same answers. Published are
medians and their ratio, with the spread that shows how much to believe them.
"""

from __future__ import annotations

import gc
import operator
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Self

UNITS_PER_SECOND: Final = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}


class AnswersDiffer(AssertionError):
    """Ours and the peer gave different answers, so their speeds cannot be compared."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How far the rounds lie apart, in the unit of their median.

    Args:
        low: the quickest round.
        high: the slowest round.
        quartile_range: the width of the middle half of all rounds.
    """

    low: float
    high: float
    quartile_range: float

    @classmethod
    def of(cls, values: list[float]) -> Self:
        """The spread of at least one value."""
        if len(values) < 2:
            return cls(values[0], values[0], 0.0)
        lower, _, upper = statistics.quantiles(values, n=4, method="inclusive")
        return cls(min(values), max(values), upper - lower)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One published line.

    Args:
        name: of the benchmark, and of the variant where it has several.
        value: ours, the median of all rounds.
        unit: of both values.
        peer: what ours is compared with.
        peer_value: the peer's median.
        ratio: how many times better ours is: peer / ours for times, bytes and requests.
        runs: rounds measured.
        goal: the ratio to reach; None where nothing is promised.
        spread: of our rounds; None where the value is exact.
        peer_spread: of the peer's rounds.
    """

    name: str
    value: float
    unit: str
    peer: str
    peer_value: float
    ratio: float
    runs: int
    goal: float | None = None
    spread: Spread | None = None
    peer_spread: Spread | None = None

    @classmethod
    def exact(cls, name: str, value: float, unit: str, peer: str, peer_value: float, goal: float | None = None) -> Self:
        """Of two numbers that are the same in each run."""
        return cls(name, value, unit, peer, peer_value, peer_value / value, 1, goal)

    def as_json(self) -> dict[str, str | float | int]:
        """What ``--json`` prints of it."""
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "peer": self.peer,
            "peer_value": self.peer_value,
            "ratio": self.ratio,
            "runs": self.runs,
        }


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds of each round, of both sides, in the order in which they ran."""

    ours_seconds: list[float]
    peer_seconds: list[float]

    def compare(self, name: str, *, peer: str, unit: str, calls: int = 1, goal: float | None = None) -> Comparison:
        """The published line.

        Args:
            name: of the line.
            peer: what ours is compared with.
            unit: one of s, ms, us, ns.
            calls: how many calls a round consists of; the values are those of one call.
            goal: the ratio to reach.
        """
        factor = UNITS_PER_SECOND[unit] / calls
        ours = [seconds * factor for seconds in self.ours_seconds]
        theirs = [seconds * factor for seconds in self.peer_seconds]
        value, peer_value = statistics.median(ours), statistics.median(theirs)
        return Comparison(
            name=name,
            value=value,
            unit=unit,
            peer=peer,
            peer_value=peer_value,
            ratio=peer_value / value,
            runs=len(ours),
            goal=goal,
            spread=Spread.of(ours),
            peer_spread=Spread.of(theirs),
        )


def interleave(
    ours: Callable[[], object],
    peer: Callable[[], object],
    *,
    rounds: int,
    same: Callable[[object, object], bool] = operator.eq,
    timer: Callable[[], float] = time.perf_counter,
) -> Timings:
    """Run both sides alternately, after one round that is not measured, and compare their answers in every round.

    Args:
        ours: our side; does the same work at each call.
        peer: the other side.
        rounds: how often each is measured, at least once.
        same: whether two answers are equal; what it takes is not measured.
        timer: gives seconds; `time.thread_time` where one thread computes and waits for nothing, and the rounds of one
            side are so much longer that on a shared machine they alone would be interrupted.

    Raises:
        AnswersDiffer: the two sides gave different answers.
        ValueError: fewer than one round.
    """
    if rounds < 1:
        raise ValueError(f"expected at least 1 round, found {rounds}")
    timings = Timings([], [])
    for number in range(rounds + 1):
        our_seconds, our_answer = _measure(ours, timer)
        peer_seconds, peer_answer = _measure(peer, timer)
        if not same(our_answer, peer_answer):
            raise AnswersDiffer(f"round {number}: ours gave {_shown(our_answer)}, the peer {_shown(peer_answer)}")
        if number:
            timings.ours_seconds.append(our_seconds)
            timings.peer_seconds.append(peer_seconds)
    return timings


def _measure(side: Callable[[], object], timer: Callable[[], float]) -> tuple[float, object]:
    with _no_garbage_collection():
        start = timer()
        answer = side()
        return timer() - start, answer


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    # A collection that one side's garbage causes would often run, and be charged, in the other's time.
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _shown(answer: object) -> str:
    text = repr(answer)
    return text if len(text) <= 200 else f"{text[:200]}..."
