"""Marks that processors leave with a stream: cold segments, and who waits for their turn."""

from __future__ import annotations

from contextlib import suppress
from functools import cache, partial

import pytest

from accel.errors import IllegalState, InvalidArgument, StreamDeleted
from accel.testing import Crash, CrashStore, Fault, FaultStore
from loaders.store.decorated import WRITES
from tests.accel.history.store.acts import Act, commit, scale, seal
from tests.accel.history.store.bench import Bench, ids
from tests.accel.history.store.watching import Interrupted
from tests.examples import swept

LATER_MS = 2_000_000
SEGMENT = ids("1@0")[0]
SEALINGS = [scale, commit, seal]
"""Each of them seals 1@0, the last two with others."""


@cache
def prepared() -> Bench:
    """Segments 1@0 and 2@1, and a transaction of before 2@1."""
    bench = Bench()
    bench.create()
    bench.transaction("first")
    bench.scale_once()
    return bench


def ready() -> Bench:
    """The same, each time anew."""
    return prepared().clone()


def marks_of(bench: Bench) -> list[str]:
    """All marks that lie somewhere."""
    keys = [each.rpartition("/")[2] for each in bench.live_keys()]
    return [each for each in keys if each.startswith("markers")]


def try_to_mark(bench: Bench, around: Interrupted | None = None) -> None:
    """Mark 1@0, unless it is sealed."""
    with suppress(IllegalState):
        bench.stream(around=around).notes.mark_cold(SEGMENT, LATER_MS)


# Cold segments


def test_a_cold_mark_can_be_moved_and_taken_away(bench: Bench) -> None:
    stream = bench.stream()
    assert stream.notes.cold_until(0) is None
    for until_ms in (LATER_MS, LATER_MS, LATER_MS - 7):
        stream.notes.mark_cold(0, until_ms)
        assert bench.stream().notes.cold_until(0) == until_ms
    stream.notes.mark_cold(1, LATER_MS)
    for _ in range(2):
        stream.notes.remove_cold(0)
    assert [bench.stream().notes.cold_until(each) for each in (0, 1)] == [None, LATER_MS]
    stream.notes.mark_cold(0, LATER_MS)
    assert stream.notes.cold_until(0) == LATER_MS


def test_only_active_segments_are_marked_and_from_1970_on(bench: Bench) -> None:
    bench.scale_once()
    for name in ("0@0", "7@0"):
        with pytest.raises(IllegalState, match=name):
            bench.stream().notes.mark_cold(ids(name)[0], LATER_MS)
    with pytest.raises(InvalidArgument, match="-1"):
        bench.stream().notes.mark_cold(ids("2@1")[0], -1)
    assert marks_of(bench) == []


@pytest.mark.parametrize("act", SEALINGS)
def test_a_mark_goes_with_its_segment(act: Act) -> None:
    bench = ready()
    for name in ("1@0", "2@1"):
        bench.stream().notes.mark_cold(ids(name)[0], LATER_MS)
    act(bench, bench.store, bench.tick())
    assert bench.stream().notes.cold_until(SEGMENT) is None
    assert len(marks_of(bench)) == (1 if act is scale else 0)


@pytest.mark.parametrize("act", SEALINGS)
def test_whoever_marks_a_segment_while_it_is_sealed_leaves_no_mark(act: Act) -> None:
    whole = ready()
    counted = Interrupted(whole.store, None, lambda: None)
    act(whole, counted, whole.now_ms)
    for number in swept(range(counted.calls)):
        bench = ready()
        act(bench, Interrupted(bench.store, number, partial(try_to_mark, bench)), bench.now_ms)
        assert marks_of(bench) == [], f"marked before call {number}"


@pytest.mark.parametrize("act", SEALINGS)
def test_whoever_seals_a_segment_while_it_is_marked_leaves_no_mark(act: Act) -> None:
    number = 0
    while True:
        bench = ready()
        around = Interrupted(bench.store, number, partial(act, bench, bench.store, bench.now_ms))
        try_to_mark(bench, around)
        if around.calls <= number:
            break
        assert marks_of(bench) == [], f"sealed before call {number}"
        number += 1
    assert number > 5


def test_a_mark_whose_reply_is_lost_is_there(bench: Bench) -> None:
    for fault in (Fault.LOST_REPLY, Fault.SERVER_ERROR):
        for until_ms in (LATER_MS, LATER_MS + 1):
            faulty = FaultStore(bench.store, operations=WRITES)
            faulty.schedule(fault)
            bench.stream(around=faulty).notes.mark_cold(0, until_ms)
            assert bench.stream().notes.cold_until(0) == until_ms


def test_a_segment_of_a_stream_that_is_gone_is_not_marked(bench: Bench) -> None:
    stream = bench.stream()
    stream.seal()
    bench.streams().delete_stream(*stream.name.split("/"))
    with pytest.raises(StreamDeleted):
        stream.notes.mark_cold(0, LATER_MS)
    assert marks_of(bench) == []


# Whose turn it is


def test_one_waits_at_a_time_and_only_they_stop(bench: Bench) -> None:
    stream = bench.stream()
    assert stream.notes.awaited_by() is None
    turns = [stream.notes.await_turn(name) for name in ("a", "b", "a")]
    assert turns == [True, False, True]
    assert not stream.notes.end_turn("b")
    assert bench.stream().notes.awaited_by() == "a"
    assert stream.notes.end_turn("a")
    assert stream.notes.end_turn("a")
    assert stream.notes.awaited_by() is None
    assert stream.notes.await_turn("b")


@pytest.mark.parametrize("name", ["", "a" * 1001])
def test_who_waits_has_a_name(bench: Bench, name: str) -> None:
    with pytest.raises(InvalidArgument, match="1 to 1000"):
        bench.stream().notes.await_turn(name)


def test_who_stops_late_does_not_take_away_the_name_of_the_next(bench: Bench) -> None:
    """Another process of the same name stopped just now, and somebody else waits."""
    bench.stream().notes.await_turn("a")

    def change_hands(here: Bench) -> None:
        assert here.stream().notes.end_turn("a")
        assert here.stream().notes.await_turn("b")

    counted = Interrupted(bench.clone().store, None, lambda: None)
    bench.stream(around=counted).notes.end_turn("a")
    for number in range(counted.calls):
        here = bench.clone()
        here.stream(around=Interrupted(here.store, number, partial(change_hands, here))).notes.end_turn("a")
        assert here.stream().notes.awaited_by() == "b"


def test_two_who_wait_at_once_agree_on_who_does(bench: Bench) -> None:
    for fault in (Fault.LOST_REPLY, Fault.SERVER_ERROR):
        here = bench.clone()
        faulty = FaultStore(here.store, operations=WRITES)
        faulty.schedule(fault)
        assert here.stream(around=faulty).notes.await_turn("a")
        assert not here.stream().notes.await_turn("b")


def test_who_died_waiting_still_waits_until_somebody_ends_it_in_their_name(bench: Bench) -> None:
    with pytest.raises(Crash):
        bench.stream(around=CrashStore(bench.store, 0)).notes.await_turn("a")
    assert bench.stream().notes.awaited_by() is None
    bench.stream().notes.await_turn("a")
    with pytest.raises(Crash):
        bench.stream(around=CrashStore(bench.store, 0)).notes.end_turn("a")
    assert not bench.stream().notes.await_turn("b")
    assert bench.stream().notes.end_turn("a")
