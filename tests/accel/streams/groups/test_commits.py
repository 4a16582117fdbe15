"""What a group takes as read: what the caller has finished with, and no more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from accel import Event, GroupReader
from accel.errors import Closed, IllegalState, ReaderStalled
from tests.accel.streams.groups.team import NEVER_SECONDS, Team, for_threads_and_tasks, one_batch, written
from tests.accel.streams.reader.streams import QUICK, Shop, by_key

pytestmark = for_threads_and_tasks

PATIENT = replace(QUICK, reorder_wait_seconds=10.0)


@pytest.fixture
def segments() -> int:
    return 1


def die(readers: Team, name: str) -> None:
    """Nobody hears of it any more, and its lease is over."""
    readers.die(name)
    readers.group.reader_offline(name)


def payloads(events: list[Event]) -> list[bytes]:
    return [event.payload for event in events]


def test_an_event_is_read_when_the_next_one_is_asked_for(orders: Shop, readers: Team) -> None:
    one_batch(orders, *(b"0:%d" % number for number in range(10)))
    member = readers.join("a")
    stored = [next(member) for _ in range(5)][:-1]  # it dies with the fifth in hand
    member.rebalance()
    die(readers, "a")
    rest = list(readers.join("b", follow=False))
    assert payloads(stored + rest) == [b"0:%d" % number for number in range(10)]


def test_a_batch_is_read_when_the_next_one_is_asked_for(orders: Shop, readers: Team) -> None:
    one_batch(orders, b"0:1", b"0:2")
    one_batch(orders, b"0:3", b"0:4")
    member = readers.join("a")
    first, second = member.next_batch(), member.next_batch()
    assert first is not None
    assert second is not None
    member.rebalance()
    assert readers.group.position()[0] == second.offset == first.next_offset
    die(readers, "a")
    assert payloads(list(readers.join("b", follow=False))) == payloads(list(second))


def test_whoever_commits_by_hand_has_again_all_that_was_not_committed(orders: Shop, readers: Team) -> None:
    """The probe buffer_loss: 30 given, none stored; the next one begins at the first."""
    one_batch(orders, *(b"0:%d" % number for number in range(40)))
    member = readers.join("a", every_seconds=1e-6, auto_commit=False)
    given = [next(member) for _ in range(10)]
    member.commit()
    given += [next(member) for _ in range(20)]
    assert readers.group.position() == {0: 10}
    die(readers, "a")
    again = list(readers.join("b", follow=False))
    assert payloads(given[:10] + again) == [b"0:%d" % number for number in range(40)]


@pytest.mark.parametrize("auto_commit", [True, False])
def test_who_leaves_with_an_event_in_hand_leaves_it_to_others_unless_it_commits(
    orders: Shop, readers: Team, auto_commit: bool
) -> None:
    one_batch(orders, b"0:1", b"0:2", b"0:3")
    member = readers.join("a", auto_commit=auto_commit)
    assert [next(member).payload, next(member).payload] == [b"0:1", b"0:2"]
    member.leave()
    again = [b"0:2"] if auto_commit else [b"0:1", b"0:2"]
    assert [next(member).payload for _ in again] == again
    member.commit()
    member.close()
    assert payloads(list(readers.join("b", follow=False))) == [b"0:3"]


def test_an_error_in_the_callers_work_loses_nothing(orders: Shop, readers: Team) -> None:
    one_batch(orders, b"0:1", b"0:2")

    def work(reader: GroupReader) -> None:
        with reader:
            for event in reader:
                raise ZeroDivisionError(event.payload)

    with pytest.raises(ZeroDivisionError, match="0:1"):
        work(readers.join("a"))
    with pytest.raises(ZeroDivisionError, match="0:1"):
        work(readers.join("b"))


def test_what_follows_a_segment_waits_for_the_commit_of_its_end(orders: Shop, readers: Team) -> None:
    written(orders, 12)
    orders.split()
    written(orders, 12)
    member = readers.join("a", auto_commit=False, settings=PATIENT)
    given: list[Event] = []
    commits = 0
    while len(given) < 24:
        batch = member.next_batch(timeout_seconds=20)
        given += batch or ()
        if batch is None:  # at once, not when the time is over
            held = readers.group.position()
            assert 0 in held or not commits
            member.commit()
            commits += 1
    assert by_key(given) == orders.written
    assert commits == 1
    assert 0 not in readers.group.position()


def test_an_iteration_that_can_only_go_on_after_a_commit_says_so(orders: Shop, readers: Team) -> None:
    one_batch(orders, b"0:1", b"0:2")
    orders.split()
    one_batch(orders, b"0:3")
    member = readers.join("a", auto_commit=False)
    assert [next(member).payload, next(member).payload] == [b"0:1", b"0:2"]
    with pytest.raises(ReaderStalled, match="expected a commit, found none since the end of 0@0"):
        next(member)
    member.commit()
    assert next(member).payload == b"0:3"


def test_who_does_not_follow_and_commits_by_hand_ends_when_it_has_committed_all(orders: Shop, readers: Team) -> None:
    one_batch(orders, b"0:1", b"0:2")
    member = readers.join("a", follow=False, auto_commit=False)
    assert payloads(list(member)) == [b"0:1", b"0:2"]
    ends = [member.is_finished]
    assert readers.group.position() == {0: 0}
    member.commit()
    assert readers.group.position() == {0: 2}
    assert list(member) == []
    assert [*ends, member.is_finished] == [False, True]
    assert readers.group.state().readers == ()


@pytest.mark.parametrize("segments", [2])
def test_of_a_segment_that_is_in_hand_nothing_is_given_up_before_a_commit(orders: Shop, readers: Team) -> None:
    written(orders, 24)
    member = readers.join("a", auto_commit=False)
    while len({event.segment_id for event in readers.own("a")}) < 2:
        readers.ask("a")
    readers.join("b")
    for _ in range(5):
        readers.ask("b")
        member.rebalance()
    assert len(member.position()) == 2
    member.commit()
    assert len(member.position()) == 1
    readers.read_all()
    assert by_key(readers.events) == orders.written


def test_a_commit_of_one_that_was_taken_for_dead_stores_nothing(orders: Shop, readers: Team) -> None:
    one_batch(orders, b"0:1", b"0:2")
    member = readers.join("a", auto_commit=False, every_seconds=NEVER_SECONDS)
    next(member)
    readers.group.reader_offline("a")
    with pytest.raises(IllegalState, match="silent for longer than its lease"):
        member.commit()
    assert readers.group.position() == {0: 0}
    assert next(member).payload == b"0:1"


def test_nothing_is_committed_before_the_first_event_and_after_the_end(readers: Team) -> None:
    member = readers.join("a")
    member.commit()
    assert readers.group.state().readers == ()
    member.close()
    with pytest.raises(Closed):
        member.commit()
