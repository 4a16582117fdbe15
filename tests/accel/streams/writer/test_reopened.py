"""A segment that a node opens again in a running process: its reader's image may be older than the segment's end."""

from __future__ import annotations

import pytest

from accel.errors import SessionFenced, StreamsReleased
from accel.testing import Crash
from tests.accel.streams.writer.world import NAME, NODE, Process, World, created, ids_of

OTHER = NODE + 1
FIRST, SECOND = ids_of("0@0", "1@0")


def append(process: Process, segment_id: int, count: int) -> None:
    """Make this number of events durable, one by one."""
    for _ in range(count):
        process.host.append(NAME, segment_id, [b"an event"])
        process.host.flush()


def with_old_image(world: World, process: Process) -> None:
    """Let a process read an image now, as it does when it takes a segment over; time does not go by afterwards."""
    with world.process(node_id=NODE + 2) as third:
        append(third, SECOND, 1)
    process.host.take_over(NAME, {SECOND: NODE + 2})


@pytest.mark.parametrize("is_taken_over", [False, True], ids=["opened", "taken over from the dead taker"])
def test_a_segment_that_a_dead_taker_released_is_continued_from_the_newest_data(
    monkeypatch: pytest.MonkeyPatch, is_taken_over: bool
) -> None:
    def die(*_: object) -> None:
        raise Crash

    world = created()
    with world.process() as owner:
        append(owner, FIRST, 2)
        with_old_image(world, owner)
        append(owner, FIRST, 3)
        with world.process(node_id=OTHER) as taker, monkeypatch.context() as patch:
            patch.setattr("accel.catalog.takeover.edit_shards", die)  # after the release, before the move
            with pytest.raises(Crash):
                taker.host.take_over(NAME, {FIRST: NODE})
        lost = owner.host.append(NAME, FIRST, [b"not durable"])
        owner.host.flush()
        assert isinstance(lost.exception(), StreamsReleased)
        if is_taken_over:
            owner.host.take_over(NAME, {FIRST: OTHER})
        else:
            owner.host.open_segments(NAME, [FIRST])
        assert owner.host.info(NAME, FIRST).end_offset == 5
        append(owner, FIRST, 1)
    assert len(world.batches()[FIRST]) == 6


@pytest.mark.parametrize("is_same_node", [False, True], ids=["another node", "a newer session"])
def test_a_session_that_missed_that_others_continued_its_segment_says_so(world: World, is_same_node: bool) -> None:
    """Its end was older than the time index, and it asked whether a commit was undone."""
    with world.process() as owner:
        append(owner, FIRST, 1)
        owner.host._segments.forget(owner.host._segments.listed())  # as after a start that failed
        with world.process(node_id=NODE if is_same_node else OTHER) as other:
            if not is_same_node:
                other.host.take_over(NAME, {FIRST: NODE})
            append(other, FIRST, 5)  # enough for an object of its time index
            with pytest.raises(SessionFenced if is_same_node else StreamsReleased):
                owner.host.append(NAME, FIRST, [b"an event"])
            append(other, FIRST, 1)
    assert len(world.batches()[FIRST]) == 7
