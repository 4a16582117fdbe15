"""Measures two sides of a ratio in one run.

A single speed depends more on the machine and its load than on the code. So each benchmark measures Accel ("ours") and
a peer alternately, in one process, on the same input, and requires that both return the same answers. Medians and their
ratio are reported, with their spread, which shows their precision.
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
    """Ours and the peer returned different answers, so their speeds cannot be compared."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The spread of the rounds, in the unit of their median.

    Args:
        low: the fastest round.
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
    """One line of results.

    Args:
        name: of the benchmark, and of the variant if there are several.
        value: ours, the median of all rounds.
        unit: of both values.
        peer: a description of the peer.
        peer_value: the peer's median.
        ratio: peer / ours for times, bytes and requests; above 1, ours is better.
        runs: the number of measured rounds.
        goal: the ratio to reach; None if there is no goal.
        spread: of our rounds; None if the value is exact.
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
        """A line of two numbers that are the same in each run."""
        return cls(name, value, unit, peer, peer_value, peer_value / value, 1, goal)

    def as_json(self) -> dict[str, str | float | int]:
        """The line as ``--json`` prints it."""
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
    """Seconds of each round, for both sides, in the order of the rounds."""

    ours_seconds: list[float]
    peer_seconds: list[float]

    def compare(self, name: str, *, peer: str, unit: str, calls: int = 1, goal: float | None = None) -> Comparison:
        """The line of results.

        Args:
            name: of the line.
            peer: a description of the peer.
            unit: one of s, ms, us, ns.
            calls: the number of calls in a round; the values are those of one call.
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
        rounds: the number of measured rounds of each side, at least 1.
        same: whether two answers are equal; its time is not measured.
        timer: returns seconds; `time.thread_time` if one thread computes without waiting, and the rounds of one side
            are so much longer that on a shared machine only they would be interrupted.

    Raises:
        AnswersDiffer: the two sides returned different answers.
        ValueError: fewer than one round.
    """
    if rounds < 1:
        raise ValueError(f"expected at least 1 round, found {rounds}")
    timings = Timings([], [])
    for number in range(rounds + 1):
        our_seconds, our_answer = _measure(ours, timer)
        peer_seconds, peer_answer = _measure(peer, timer)
        if not same(our_answer, peer_answer):
            raise AnswersDiffer(f"round {number}: ours returned {_shown(our_answer)}, the peer {_shown(peer_answer)}")
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
    # A collection due to one side's garbage would often run in the other side's time.
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
