"""Several processes change a group at once: in the end it is as if one had come after the other.

One does all of it between two calls of the other, whichever two; or their requests mix, as a seed decides.
"""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING, TypeVar

import pytest

from accel.errors import HistoryError
from loaders.errors import DataConflict
from loaders.store.decorated import WRITES, DecoratedStore, StoreCall
from tests.accel.history.store.test_races import Schedule
from tests.accel.history.store.watching import Interrupted
from tests.accel.streams.groups.acts import GIVES_UP, MEETINGS, Act, Meeting, group, state
from tests.examples import examples

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


@pytest.mark.parametrize("name", MEETINGS)
def test_whose_requests_mix_end_as_if_they_had_come_in_turn(name: str) -> None:
    meeting = MEETINGS[name]
    allowed = in_turn(meeting)
    for seed in range(examples(6)):
        bench = meeting.bench()
        told: dict[int, object] = {}

        def one(number: int, store: ObjectStore) -> None:
            told[number] = answer(meeting.acts[number], bench, store)  # noqa: B023 - at once

        acts = [lambda store, number=number: one(number, store) for number in range(len(meeting.acts))]
        Schedule(seed).run(bench.store, acts)
        assert (state(bench), told) in allowed, f"seed {seed}"


def test_no_reader_is_told_to_read_what_another_one_reads() -> None:
    """Both call at once, again and again, until each has its share."""
    for seed in range(examples(6)):
        bench = MEETINGS["three"].bench()
        reading: dict[str, dict[int, int]] = {"a": dict.fromkeys(range(4), 0), "b": {}}
        for turn in range(4):

            def call(name: str, store: ObjectStore) -> None:
                mine = reading[name]  # noqa: B023 - at once
                todo = group(bench, store).rebalance(name, dict(mine), 0)  # noqa: B023 - at once
                for each in todo.stop:
                    del mine[each]
                mine.update({each.segment.id: each.offset for each in todo.start})

            Schedule(seed * 10 + turn).run(
                bench.store, [lambda store: call("a", store), lambda store: call("b", store)]
            )
            assert not reading["a"].keys() & reading["b"].keys()
        assert sorted(map(len, reading.values())) == [2, 2]


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


def test_who_loses_all_races_is_told_and_may_call_again() -> None:
    bench = MEETINGS["one gives up, one takes"].bench()
    other = group(bench, bench.store)
    outrun = Outrun(bench.store, lambda number: other.rebalance("b", {}, number))
    with pytest.raises(DataConflict) as raised:
        GIVES_UP(bench, outrun)
    assert raised.value.retryable
    assert state(bench).counts.tolist() == [4, 0]
    GIVES_UP(bench, bench.store)
    assert state(bench).counts.tolist() == [3, 0]
