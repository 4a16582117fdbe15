"""All interleavings of some processes that share a state: found state by state, each state once.

A process is a step machine: where it stands is a value, and its next step follows from that value and from the shared
state alone. So a step is computed once for each pair of the two, whatever the other processes do meanwhile. A process
may stop between any two of its steps and never go on; every state that is reached is therefore one in which some
processes may have died.

The number of schedules is the number of paths from the first state to one where nobody has a step left, by adding up
over the states in the order in which they are finished.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

S = TypeVar("S")
L = TypeVar("L")

STEPS_ALONE_MAX = 1000

Product = tuple[int, ...]
"""Numbers of the shared state and of where each process stands."""


class Violated(AssertionError):
    """An invariant does not hold."""


@dataclass(frozen=True)
class Explored:
    """What was explored.

    Attributes:
        states: different states, of all processes and what they share.
        schedules: different orders of steps from the first state to an end.
    """

    states: int
    schedules: int


class Explorer(Generic[S, L]):
    """Explores all interleavings. Not for several threads.

    Args:
        step: the next step of a process: what it makes of the shared state, and where it stands then; None = no more.
        check: raises `Violated` for a shared state in which an invariant does not hold.
        check_end: likewise, for a process that has no step left.
    """

    def __init__(
        self, step: Callable[[S, L], tuple[S, L] | None], check: Callable[[S], None], check_end: Callable[[S, L], None]
    ) -> None:
        self._step, self._check, self._check_end = step, check, check_end
        self._shared: list[S] = []
        self._shared_numbers: dict[S, int] = {}
        self._places: list[L] = []
        self._place_numbers: dict[L, int] = {}
        self._steps: dict[tuple[int, int], tuple[int, int] | None] = {}

    def explore(self, shared: S, processes: Sequence[L]) -> Explored:
        """Explore all interleavings of processes from a shared state.

        Raises:
            Violated: an invariant does not hold, or some steps repeat for ever; with one schedule that leads there.
        """
        start = (self._shared_number(shared), *map(self._place_number, processes))
        paths: dict[Product, int] = {}
        came_from: dict[Product, Product | None] = {start: None}
        opened: set[Product] = set()
        stack, now = [start], start
        try:
            while stack:
                now = stack[-1]
                if now in paths:
                    stack.pop()
                    continue
                following = self._following(now)
                pending = [each for each in following if each not in paths]
                if not pending:
                    paths[now] = sum(paths[each] for each in following) or 1
                    stack.pop()
                    continue
                _refuse_repeated(now, opened)
                for each in pending:
                    came_from[each] = now
                stack += pending
        except Violated as error:
            raise Violated(f"{error}, after {self._schedule(came_from, now)}") from error
        return Explored(len(paths), paths[start])

    def alone(self, shared: S, process: L) -> tuple[S, L]:
        """What becomes of a shared state when one process takes all its steps."""
        found = self._shared_number(shared), self._place_number(process)
        for _ in range(STEPS_ALONE_MAX):
            following = self._stepped(*found)
            if following is None:
                return self._shared[found[0]], self._places[found[1]]
            found = following
        raise Violated(f"expected a process to come to its end alone, found it in step {STEPS_ALONE_MAX}")

    def _following(self, now: Product) -> list[Product]:
        shared, found = now[0], []
        for at in range(1, len(now)):
            stepped = self._stepped(shared, now[at])
            if stepped is not None:
                found.append((stepped[0], *now[1:at], stepped[1], *now[at + 1 :]))
            else:
                self._check_end(self._shared[shared], self._places[now[at]])
        return found

    def _stepped(self, shared: int, place: int) -> tuple[int, int] | None:
        key = shared, place
        if key not in self._steps:
            found = self._step(self._shared[shared], self._places[place])
            self._steps[key] = None if found is None else (self._shared_number(found[0]), self._place_number(found[1]))
        return self._steps[key]

    def _shared_number(self, shared: S) -> int:
        number = self._shared_numbers.get(shared)
        if number is None:
            self._shared_numbers[shared] = number = len(self._shared)
            self._shared.append(shared)
            self._check(shared)
        return number

    def _place_number(self, place: L) -> int:
        number = self._place_numbers.setdefault(place, len(self._places))
        if number == len(self._places):
            self._places.append(place)
        return number

    def _schedule(self, came_from: dict[Product, Product | None], now: Product) -> str:
        steps: list[str] = []
        at: Product | None = now
        while at is not None and (before := came_from[at]) is not None:
            moved = next(i for i in range(1, len(at)) if at[i] != before[i])
            steps.append(f"{moved}:{getattr(self._places[before[moved]], 'pc', self._places[before[moved]])}")
            at = before
        return " ".join(reversed(steps))


def _refuse_repeated(now: Product, opened: set[Product]) -> None:
    if now in opened:
        raise Violated("expected every process to come to an end, found steps that repeat for ever")
    opened.add(now)
