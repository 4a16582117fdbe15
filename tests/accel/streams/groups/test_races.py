"""Several processes change a group at once: in the end it is as if one had come after the other.

One does all of it between two calls of the other, whichever two; or their requests mix, as a seed decides.
"""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING, TypeVar

import pytest

from accel.errors import HistoryError
from loaders.store.decorated import WRITES, DecoratedStore, StoreCall
from tests.accel.history.store.watching import Interrupted
from tests.accel.streams.groups.acts import MEETINGS, Act, Meeting, state

if TYPE_CHECKING:
    from collections.abc import Callable

    from accel.streams.rules.group_state import GroupState
    from loaders.store import ObjectStore
    from tests.accel.history.store.bench import Bench

Answer = TypeVar("Answer")

CALLS_MAX = 100


def answer(act: Act, bench: Bench, store: ObjectStore) -> object:
    """What somebody is told: an answer, or why there is none."""
    try:
        return act(bench, store)
    except HistoryError as error:
        return type(error)


def in_turn(meeting: Meeting) -> list[tuple[GroupState, dict[int, object]]]:
    """What may come of it: the state, and what each was told, if one comes after the other."""
    found = []
    for order in permutations(range(len(meeting.acts))):
        bench = meeting.bench()
        told = {number: answer(meeting.acts[number], bench, bench.store) for number in order}
        found.append((state(bench), told))
    return found


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", [name for name, meeting in MEETINGS.items() if len(meeting.acts) == 2])
def test_whichever_two_calls_another_comes_between_it_is_as_if_they_had_come_in_turn(name: str, turned: bool) -> None:
    meeting = MEETINGS[name]
    allowed = in_turn(meeting)
    first, second = (1, 0) if turned else (0, 1)
    whole = meeting.bench()
    counted = Interrupted(whole.store, None, lambda: None)
    answer(meeting.acts[first], whole, counted)
    assert 0 < counted.calls < CALLS_MAX
    for number in range(counted.calls):
        bench = meeting.bench()
        told: dict[int, object] = {}

        def come_between() -> None:
            told[second] = answer(meeting.acts[second], bench, bench.store)  # noqa: B023 - at once

        told[first] = answer(meeting.acts[first], bench, Interrupted(bench.store, number, come_between))
        assert (state(bench), told) in allowed, f"before call {number}"


class Outrun(DecoratedStore):
    """Lets somebody else write before each write."""

    def __init__(self, store: ObjectStore, write: Callable[[int], object]) -> None:
        super().__init__(store)
        self._write = write
        self._writes = 0

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        if call.operation in WRITES:
            self._writes += 1
            self._write(self._writes)
        return send()
