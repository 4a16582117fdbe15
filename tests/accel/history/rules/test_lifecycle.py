"""The life of a stream: its states, its creation, and what may be asked when."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from accel.errors import HistoryError, IllegalState, InvalidArgument, OperationNotAllowed
from accel.history.rules import states
from accel.history.rules.states import CreationOutcome, StreamState
from accel.history.rules.values import NUMBER_MAX

ALLOWED = {
    "UNKNOWN": {"CREATING"},
    "CREATING": {"ACTIVE"},
    "ACTIVE": {"SCALING", "TRUNCATING", "COMMITTING_TXN", "UPDATING", "SEALING", "SEALED"},
    "SCALING": {"ACTIVE"},
    "TRUNCATING": {"ACTIVE"},
    "COMMITTING_TXN": {"ACTIVE"},
    "UPDATING": {"ACTIVE"},
    "SEALING": {"SEALED"},
    "SEALED": set(),
}


@pytest.mark.parametrize("now", list(StreamState))
@pytest.mark.parametrize("wanted", list(StreamState))
def test_only_the_documented_steps_are_allowed_and_staying_is(now: StreamState, wanted: StreamState) -> None:
    if now is wanted:
        assert states.next_state(now, wanted) is None
    elif wanted.value in ALLOWED[now.value]:
        assert states.next_state(now, wanted) is wanted
    else:
        with pytest.raises(OperationNotAllowed) as caught:
            states.next_state(now, wanted)
        assert (caught.value.code, caught.value.retryable) == ("OPERATION_NOT_ALLOWED", True)


def refuses(check: Callable[[StreamState], None], now: StreamState) -> bool:
    try:
        check(now)
    except IllegalState:
        return True
    return False


def test_what_may_be_done_depends_on_the_state() -> None:
    assert {now.value for now in StreamState if refuses(states.refuse_uncreated, now)} == {"UNKNOWN", "CREATING"}
    assert {now.value for now in StreamState if refuses(states.refuse_sealed, now)} == {"SEALING", "SEALED"}
    deletable = {now.value for now in StreamState if not refuses(states.refuse_undeletable, now)}
    assert deletable == {"UNKNOWN", "CREATING", "SEALED"}


def test_who_came_first_created_the_stream() -> None:
    outcome = states.creation_outcome
    assert outcome(StreamState.CREATING, 1000, 1000) is CreationOutcome.NEW
    assert outcome(StreamState.CREATING, 1000, 1001) is CreationOutcome.EXISTS_CREATING
    assert outcome(StreamState.ACTIVE, 1000, 1000) is CreationOutcome.EXISTS_ACTIVE


def test_streams_of_one_name_never_share_a_segment_number() -> None:
    recorded: int | None = None
    starts = []
    for _ in range(10):
        starts.append(states.start_number(recorded))
        record = states.first_epoch(2, 1000, starts[-1])
        recorded = states.last_number(record)
    assert starts == [0, 2, 4, 6, 8, 10, 12, 14, 16, 18]


def test_segment_numbers_end_somewhere() -> None:
    with pytest.raises(InvalidArgument, match="room for 2"):
        states.first_epoch(2, 1000, NUMBER_MAX - 1)


def test_every_kind_of_refusal_has_a_code_and_says_what_to_do() -> None:
    kinds = HistoryError.__subclasses__()
    assert IllegalState.code == "ILLEGAL_STATE"
    assert len({kind.code for kind in kinds}) == len(kinds) == 10
    assert all(kind.code and kind.advice for kind in kinds)
