"""Is a history linearizable: could each operation have happened at one moment between its begin and its end?

The algorithm is that of Wing and Gong, with Lowe's memory of configurations: a depth-first search through all orders
that respect real time. Next in an order may be any operation that began before the first end among those not in it.
Which of them the order has, and the state that they led to, is a configuration; one that was met before is not searched
again, as what follows depends on nothing else.

An operation without an end (its process was killed, or its reply was lost) may have happened at any moment after its
begin, or never. It is in an order only where the search puts it there, and is dropped once its model says that it could
not change anything any more.

Each key is checked by itself: a history is linearizable if and only if that of each of its objects is (Herlihy and
Wing), and the search of many short histories is much shorter than that of a long one (Horn and Kroening).

    J. M. Wing, C. Gong: Testing and Verifying Concurrent Objects. J. Parallel and Distributed Computing 17, 1993
    G. Lowe: Testing for Linearizability. Concurrency and Computation: Practice and Experience 29(4), 2017
    A. Horn, D. Kroening: Faster Linearizability Checking via P-Compositionality. FORTE 2015
    M. P. Herlihy, J. M. Wing: Linearizability: A Correctness Condition for Concurrent Objects. TOPLAS 12(3), 1990
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tests.linearizability.histories import Operation

CONFIGURATIONS_MAX = 2_000_000

State = TypeVar("State", bound=Hashable)


class Model(Protocol[State]):
    """An object whose operations happen one after the other."""

    @property
    def initial(self) -> State:
        """Before the first operation."""
        ...

    def step(self, state: State, operation: Operation) -> State | None:
        """The state after an operation; None if it could not have ended as it did, or did not end and has no effect."""
        ...

    def is_over(self, state: State, operation: Operation) -> bool:
        """Whether an operation without an end has no effect from this state on, whatever happens."""
        ...


class TooManyConfigurationsError(Exception):
    """The search was given up; nothing is known of the history."""


@dataclass(frozen=True, slots=True)
class Checked(Generic[State]):
    """What came of a check.

    Args:
        order: of the operations, by their index; of a history that is not linearizable the longest that was found.
        state: after these operations.
        obstacle: the operation that fits nowhere after them; None = the history is linearizable.
    """

    order: tuple[int, ...]
    state: State
    obstacle: Operation | None

    @property
    def is_linearizable(self) -> bool:
        return self.obstacle is None


@dataclass(frozen=True, slots=True)
class _Configuration(Generic[State]):
    """How far an order has come.

    Args:
        first: all operations before this index are in the order, or had no end.
        ahead: operations from `first` on that are in the order.
        open: operations before `first` without an end that are not in it.
        state: what they led to.
    """

    first: int
    ahead: frozenset[int]
    open: frozenset[int]
    state: State


class _Search(Generic[State]):
    """One search. Operations ascend by their begin."""

    def __init__(self, model: Model[State], operations: Sequence[Operation]) -> None:
        self._model = model
        self._operations = operations

    def begin(self) -> _Configuration[State]:
        return self._moved_on(0, frozenset(), frozenset(), self._model.initial)

    def successors(self, now: _Configuration[State]) -> Iterator[tuple[int, _Configuration[State]]]:
        """Those with an end first: most of the others never happened."""
        may_be_next = list(self._candidates(now))
        may_be_next.sort(key=lambda at: self._operations[at].has_ended, reverse=True)
        for at in may_be_next:
            state = self._model.step(now.state, self._operations[at])
            if state is not None:
                ahead = now.ahead if at in now.open else now.ahead | {at}
                yield at, self._moved_on(now.first, ahead, now.open - {at}, state)

    def _candidates(self, now: _Configuration[State]) -> Iterator[int]:
        first_end = float("inf")
        for at in range(now.first, len(self._operations)):
            if at not in now.ahead:
                operation = self._operations[at]
                if operation.began_seconds > first_end:
                    break
                first_end = min(first_end, operation.ended_seconds)
                yield at
        yield from now.open

    def _moved_on(
        self, first: int, ahead: frozenset[int], waiting: frozenset[int], state: State
    ) -> _Configuration[State]:
        passed, still_open = set(ahead), set(waiting)
        while first < len(self._operations) and (first in passed or not self._operations[first].has_ended):
            if first in passed:
                passed.discard(first)
            else:
                still_open.add(first)
            first += 1
        lasting = (at for at in still_open if not self._model.is_over(state, self._operations[at]))
        return _Configuration(first, frozenset(passed), frozenset(lasting), state)


def check(
    model: Model[State], operations: Sequence[Operation], *, configurations_max: int = CONFIGURATIONS_MAX
) -> Checked[State]:
    """Whether a history of one object is linearizable; its operations come in any order.

    Raises:
        TooManyConfigurationsError: the search was given up.
    """
    places = sorted(range(len(operations)), key=lambda at: operations[at].began_seconds)
    calls = [operations[at] for at in places]
    search = _Search(model, calls)
    begin = search.begin()
    met, order = {begin}, list[int]()
    path = [(begin, search.successors(begin))]
    best: tuple[tuple[int, ...], _Configuration[State]] = ((), begin)
    while path:
        now, following = path[-1]
        if now.first == len(calls):
            return Checked(tuple(places[at] for at in order), now.state, None)
        if (now.first, len(order)) > (best[1].first, len(best[0])):
            best = tuple(order), now
        following_one = next((each for each in following if each[1] not in met), None)
        if following_one is None:
            path.pop()
            if order:
                order.pop()
            continue
        if len(met) >= configurations_max:
            raise TooManyConfigurationsError(
                f"{len(calls)} operations took more than {configurations_max} configurations"
            )
        at, reached = following_one
        met.add(reached)
        order.append(at)
        path.append((reached, search.successors(reached)))
    return Checked(tuple(places[at] for at in best[0]), best[1].state, calls[best[1].first])
