"""What happens to a group: who joins and goes, how far each is, which segments begin."""

from __future__ import annotations

import numpy as np
import pytest

from accel.errors import IllegalState, InvalidArgument
from accel.history.rules.values import parse_segment
from accel.streams.rules import group_state
from accel.streams.rules.group_state import ENDED, FREE, GroupMember, GroupState
from tests.accel.streams.groups.states import cut, group, named, owners_of, segment, tiles

LEFT, RIGHT, MERGED = segment("0@0", 0.0, 0.5), segment("1@0", 0.5, 1.0), segment("2@1", 0.0, 1.0)


def two_that_merge() -> GroupState:
    state = GroupState.at(cut({"0@0": 3, "1@0": 4}, LEFT, RIGHT)).after_join("a").after_join("b")
    return state.after_acquire("a", np.array([LEFT.id])).after_acquire("b", np.array([RIGHT.id]))


def test_a_new_group_stands_at_its_cut_without_readers() -> None:
    state = GroupState.at(cut({"0@0": 3, "2@1": -1}, LEFT, MERGED))
    assert named(state.position()) == {"0@0": 3, "2@1": -1}
    assert state.free.tolist() == [LEFT.id]
    assert state.readers == ()


def test_what_waits_for_nothing_begins_at_once() -> None:
    assert named(GroupState.at(cut({"2@1": -1}, MERGED)).position()) == {"2@1": 0}


def test_successors_begin_when_nothing_older_is_left_at_any_of_their_keys() -> None:
    state = two_that_merge().after_finish("a", LEFT.id, [MERGED], offset=9)
    assert named(state.position()) == {"1@0": 4, "2@1": -1}
    assert owners_of(state) == {"1@0": "b"}
    state = state.after_finish("b", RIGHT.id, [MERGED], offset=7)
    assert named(state.position()) == {"2@1": 0}
    assert owners_of(state) == {"2@1": None}


def test_a_segment_is_finished_once_and_by_its_owner() -> None:
    state = two_that_merge()
    assert state.after_finish("b", LEFT.id, [MERGED], offset=9) is state
    done = state.after_finish("a", LEFT.id, [MERGED], offset=9)
    assert done.after_finish("a", LEFT.id, [MERGED], offset=9) is done


def test_where_nothing_follows_the_group_stays_at_the_end() -> None:
    state = two_that_merge().after_finish("a", LEFT.id, [], offset=9)
    assert named(state.position()) == {"0@0": 9, "1@0": 4}
    assert state.owners.tolist() == [ENDED, 1]
    assert state.free.tolist() == []
    assert state.counts.tolist() == [0, 1]
    assert state.after_leave("a").owners.tolist() == [ENDED, 0]


def test_a_reader_joins_without_segments_and_once() -> None:
    state = group({"b": 2}).after_join("a")
    assert [each.name for each in state.readers] == ["a", "b"]
    assert owners_of(state) == {"0@0": "b", "1@0": "b"}
    assert state.after_join("b") is state


def test_a_group_has_so_many_readers_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_state, "READERS_MAX", 2)
    state = group({"a": 0, "b": 0})
    assert state.after_join("b") is state
    with pytest.raises(InvalidArgument, match="at most 2 readers"):
        state.after_join("c")


def test_others_go_on_where_a_reader_left() -> None:
    state = group({"a": 1, "b": 2, "c": 1}).after_leave("b", {1: 5, 0: 7})
    assert owners_of(state) == {"0@0": "a", "1@0": None, "2@0": None, "3@0": "c"}
    assert named(state.position()) == {"0@0": 0, "1@0": 5, "2@0": 0, "3@0": 0}
    assert state.after_leave("b", {1: 9}) is state


def test_others_go_on_where_a_dead_reader_was_when_it_told_so() -> None:
    state = group({"a": 2}).with_positions("a", {0: 5}).after_leave("a")
    assert named(state.position()) == {"0@0": 5, "1@0": 0}
    assert state.free.tolist() == [0, 1]


def test_a_position_never_goes_back() -> None:
    state = group({"a": 1}).with_positions("a", {0: 5})
    assert state.with_positions("a", {0: 3}) is state


def test_nothing_is_believed_of_the_segments_of_others() -> None:
    state = group({"a": 1, "b": 1}, free=1)
    assert state.with_positions("a", {1: 5, 2: 5, parse_segment("7@7"): 5}) is state


def test_a_segment_that_is_given_back_is_free_where_it_was_read_to() -> None:
    state = group({"a": 1, "b": 1})
    assert state.after_release("a", 1, 9) is state
    state = state.after_release("a", 0, 9)
    assert state.free.tolist() == [0]
    assert named(state.position()) == {"0@0": 9, "1@0": 0}


@pytest.mark.parametrize("wanted", [[1], [0, 1], [2], [parse_segment("7@7")]])
def test_what_is_not_free_is_not_taken(wanted: list[int]) -> None:
    state = GroupState.at(cut({"0@0": 3, "1@0": 0, "2@1": -1}, LEFT, RIGHT, segment("2@1", 0.5, 1.0)))
    state = state.after_join("a").after_join("b").after_acquire("b", np.array([1]))
    with pytest.raises(IllegalState, match="begun and are free"):
        state.after_acquire("a", np.array(wanted))


def test_what_was_truncated_is_skipped_and_the_rest_stays() -> None:
    state = two_that_merge().with_positions("b", {RIGHT.id: 6})
    then = state.after_skip(cut({"1@0": 4, "2@1": -1}, RIGHT, MERGED))
    assert named(then.position()) == {"1@0": 6, "2@1": -1}
    assert owners_of(then) == {"1@0": "b"}
    then = state.after_skip(cut({"2@1": 8}, MERGED))
    assert named(then.position()) == {"2@1": 8}
    assert owners_of(then) == {"2@1": None}


def test_a_group_that_is_not_before_the_head_stays_where_it_is() -> None:
    state = two_that_merge()
    assert state.after_skip(cut({"0@0": 3, "1@0": 2}, LEFT, RIGHT)) == state


WRONG: dict[str, tuple[list[int], list[int], tuple[GroupMember, ...]]] = {
    "too few offsets": ([0], [-1, -1], ()),
    "too few owners": ([0, 0], [-1], ()),
    "an offset below -1": ([0, -2], [-1, -1], ()),
    "an owner of what waits": ([0, -1], [-1, 0], (GroupMember("a"),)),
    "an end of what waits": ([0, -1], [-1, -2], ()),
    "an owner that is not there": ([0, 0], [-1, 1], (GroupMember("a"),)),
    "an owner below all": ([0, 0], [-1, -3], (GroupMember("a"),)),
    "a reader twice": ([0, 0], [-1, -1], (GroupMember("a"), GroupMember("a"))),
    "readers in another order": ([0, 0], [-1, -1], (GroupMember("b"), GroupMember("a"))),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_no_group_is_refused(what: str) -> None:
    offsets, owners, readers = WRONG[what]
    with pytest.raises(ValueError, match="expected"):
        GroupState(tiles(2), np.array(offsets), np.array(owners), readers)


def test_segments_that_do_not_ascend_are_refused() -> None:
    with pytest.raises(ValueError, match="ascending"):
        GroupState(tiles(2).where([1, 0]), np.zeros(2, dtype=np.int64), np.full(2, FREE))


@pytest.mark.parametrize("lag", [-1, 2**63])
def test_a_lag_is_bounded(lag: int) -> None:
    with pytest.raises(ValueError, match="lag"):
        GroupMember("a", lag)


def test_states_are_equal_by_what_they_say() -> None:
    state = group({"a": 1, "b": 1}, free=1)
    same = group({"a": 1, "b": 1}, free=1)
    assert state == same
    assert hash(state) == hash(same)
    for other in (
        state.with_positions("a", {0: 1}),
        state.after_leave("b"),
        state.after_release("a", 0),
        group({}, 3),
        "a",
    ):
        assert state != other


def test_columns_cannot_be_written_to() -> None:
    state = group({"a": 1})
    for column in (state.offsets, state.owners):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 7
