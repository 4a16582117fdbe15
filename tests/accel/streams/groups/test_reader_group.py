"""A group in its table: made once, found again, changed by whoever reads."""

from __future__ import annotations

import pytest

from accel.errors import InvalidArgument, NotInHistory
from accel.streams.groups import ReaderGroup, groups_table
from loaders.store import MemoryStore
from tests.accel.history.store.bench import Bench, cut
from tests.accel.history.store.watching import interrupted
from tests.accel.streams.groups.states import named, owners_of
from tests.conformance.history_world import CallCounter


@pytest.fixture
def bench() -> Bench:
    """A stream of two segments, of which the second was split."""
    made = Bench()
    made.create(2)
    made.append_all(7)
    made.stream().scale([1], [(0.5, 0.75), (0.75, 1.0)], made.tick())
    return made


def opened(bench: Bench) -> ReaderGroup:
    return ReaderGroup.open(bench.stream(), "group")


def test_a_new_group_begins_at_the_head_of_the_stream(bench: Bench) -> None:
    assert named(opened(bench).position()) == {"0@0": 0, "1@0": 0}
    bench.stream().truncate(cut(s0_0=3, s2_1=0, s3_1=0))
    assert named(ReaderGroup.open(bench.stream(), "other").position()) == {"0@0": 3, "2@1": 0, "3@1": 0}


def test_a_new_group_begins_at_the_cut_that_it_is_given(bench: Bench) -> None:
    bench.append_all(5)
    group = ReaderGroup.open(bench.stream(), "group", cut(s0_0=3, s2_1=5, s3_1=0))
    assert named(group.position()) == {"0@0": 3, "2@1": 5, "3@1": 0}


def test_what_waits_for_nothing_in_that_cut_begins(bench: Bench) -> None:
    group = ReaderGroup.open(bench.stream(), "group", cut(s0_0=3, s2_1=-1, s3_1=-1))
    assert named(group.position()) == {"0@0": 3, "2@1": 0, "3@1": 0}


def test_a_group_that_is_there_stays_where_it_is(bench: Bench) -> None:
    group = opened(bench)
    group.join("a")
    group.rebalance("a", {}, 0)
    group.rebalance("a", cut(s0_0=5, s1_0=1), 0)
    again = ReaderGroup.open(bench.stream(), "group", cut(s0_0=7, s2_1=0, s3_1=0))
    assert named(again.position()) == {"0@0": 5, "1@0": 1}
    assert owners_of(again.state()) == {"0@0": "a", "1@0": "a"}


@pytest.mark.parametrize("wrong", [{}, cut(s0_0=3), cut(s0_0=3, s1_0=2, s2_1=5, s3_1=0)])
def test_a_cut_that_nobody_can_stand_at_is_refused(bench: Bench, wrong: dict[int, int]) -> None:
    with pytest.raises(InvalidArgument, match="covers all keys"):
        ReaderGroup.open(bench.stream(), "group", wrong)
    assert list(ReaderGroup.names(bench.stream())) == []


@pytest.mark.parametrize("wrong", [cut(s7_7=1), cut(s7_0=1)])
def test_a_cut_of_segments_that_the_stream_does_not_have_is_refused(bench: Bench, wrong: dict[int, int]) -> None:
    with pytest.raises(NotInHistory):
        ReaderGroup.open(bench.stream(), "group", wrong)


@pytest.mark.parametrize("name", ["", "a/b", ".", "é", "a" * 201])
def test_names_are_those_of_scopes(bench: Bench, name: str) -> None:
    with pytest.raises(InvalidArgument, match="reader group"):
        ReaderGroup.open(bench.stream(), name)
    with pytest.raises(InvalidArgument, match="reader"):
        opened(bench).join(name)


def test_groups_of_a_stream_know_nothing_of_each_other(bench: Bench) -> None:
    assert list(ReaderGroup.names(bench.stream())) == []
    one, other = (ReaderGroup.open(bench.stream(), name) for name in ("one", "other"))
    for group, position in ((one, cut(s0_0=5)), (other, cut(s0_0=2))):
        group.join("a")
        group.rebalance("a", {}, 0)
        group.rebalance("a", position, 0)
    assert one.position()[0] == 5
    assert other.position()[0] == 2
    assert list(ReaderGroup.names(bench.stream())) == ["one", "other"]
    assert repr(one) == "ReaderGroup('scope/stream', 'one')"


def test_a_stream_that_is_made_again_has_no_groups(bench: Bench) -> None:
    opened(bench)
    before = groups_table(bench.stream())
    bench.stream().seal()
    bench.streams().delete_stream("scope", "stream")
    bench.create(1)
    assert groups_table(bench.stream()) != before
    assert list(ReaderGroup.names(bench.stream())) == []
    assert named(opened(bench).position()) == {"4@0": 0}


def test_a_group_that_was_deleted_tells_its_readers(bench: Bench) -> None:
    group = opened(bench)
    group.join("a")
    group.delete()
    group.delete()
    for ask in (
        lambda: group.rebalance("a", {}, 0),
        lambda: group.join("b"),
        lambda: group.leave("a"),
        lambda: group.finish("a", 0, [], offset=7),
        group.position,
        group.lag,
    ):
        with pytest.raises(NotInHistory, match="reader group of scope/stream"):
            ask()
    assert list(ReaderGroup.names(bench.stream())) == []
    assert opened(bench).state().readers == ()


@pytest.mark.parametrize("call", range(3))
def test_whichever_call_another_comes_between_both_are_in_the_group(bench: Bench, call: int) -> None:
    opened(bench)
    outrun = interrupted(bench.store, call, lambda: opened(bench).join("b"))
    ReaderGroup.open(bench.stream(around=outrun), "group").join("a")
    assert [each.name for each in opened(bench).state().readers] == ["a", "b"]
    assert outrun.fitting > call


def test_a_group_goes_on_at_the_head_when_it_is_asked_to(bench: Bench) -> None:
    group = opened(bench)
    group.join("a")
    positions = {each.segment.id: each.offset for each in group.rebalance("a", {}, 0).start}
    assert group.skip_to_head() == group.position()
    bench.append_all(2)
    bench.stream().truncate(cut(s0_0=3, s2_1=2, s3_1=-1))
    assert named(group.position()) == {"0@0": 0, "1@0": 0}
    assert named(group.skip_to_head()) == {"0@0": 3, "2@1": 2, "3@1": 0}
    todo = group.rebalance("a", positions, 0)
    assert [(str(each.segment), each.offset) for each in todo.start] == [("0@0", 3), ("2@1", 2), ("3@1", 0)]
    assert todo.stop == tuple(cut(s1_0=0))


def test_what_calls_cost(bench: Bench) -> None:
    store = bench.store
    assert isinstance(store, MemoryStore)
    counted = CallCounter(store)
    stream = bench.stream(around=counted)

    def calls(before: int) -> int:
        return counted.calls - before

    before = counted.calls
    group = ReaderGroup.open(stream, "group")
    assert calls(before) <= 6
    before = counted.calls
    ReaderGroup.open(stream, "group")
    assert calls(before) == 1
    before = counted.calls
    group.join("a")
    assert calls(before) == 2
    before = counted.calls
    group.rebalance("a", {}, 0)
    assert calls(before) == 2
    before = counted.calls
    group.rebalance("a", cut(s0_0=0, s1_0=0), 0)
    assert calls(before) == 1
    before = counted.calls
    group.position()
    assert calls(before) == 1
