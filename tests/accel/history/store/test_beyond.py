"""Cuts beyond the end of a segment, and cuts that no reader can be at: refused before anything changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import UUID

import pytest

from accel.errors import HostMissing, InvalidArgument, PositionBeyondEnd
from accel.history.rules.configuration import RetentionKind, RetentionPolicy, StreamConfiguration
from accel.history.rules.requests import TruncationPlan, WorkflowRequest
from accel.history.rules.retention import with_truncation
from accel.history.rules.states import StreamState, StreamStatus
from accel.history.rules.values import Integers
from accel.history.store import GivenSizes, Stream
from accel.history.store.retention_workflow import Retained
from accel.history.store.segment_host import StreamName
from accel.testing import MemorySegments
from tests.accel.history.store.bench import NAME, START_MS, Bench, cut, ids
from tests.accel.history.store.workflows import prepared, two_segments

SIZE = 7


def scaled_once(bench: Bench) -> None:
    two_segments(bench)
    bench.scale_once()


@pytest.fixture
def bench() -> Bench:
    """0@0 is sealed with 7; 1@0 has 7, and takes more; 2@1 is empty."""
    return prepared(scaled_once)


class Forgetful(MemorySegments):
    """A host that first believes to have more data than there is.

    Attributes:
        lies: how often it says so.
    """

    lies = 0

    def tails(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:
        """Present sizes, or more."""
        more, self.lies = (10 if self.lies else 0), max(0, self.lies - 1)
        return {each: size + more for each, size in super().tails(stream, ids).items()}


def hostless(bench: Bench) -> Stream:
    """The stream, in a process without a host."""
    return bench.opened(None).stream(*NAME)


BEYOND = {
    "one event": cut(s1_0=SIZE + 1, s2_1=0),
    "an empty segment": cut(s1_0=0, s2_1=1),
    "a sealed segment": cut(s0_0=SIZE + 1, s1_0=0),
    "far": cut(s1_0=2**62, s2_1=2**62),
}

ASKED: dict[str, Callable[[Stream, dict[int, int]], object]] = {
    "truncate": lambda stream, at: stream.truncate(at),
    "read by all": lambda stream, at: stream.workflows.retention.retain(START_MS + 50, at),
    "planned retention": lambda stream, at: stream.workflows.retention.plan(START_MS + 50, at),
    "check": lambda stream, at: stream.cuts.refuse_beyond(at),
}


@pytest.mark.parametrize("beyond", BEYOND)
@pytest.mark.parametrize("asked", ASKED)
def test_a_cut_beyond_the_end_is_refused_before_anything_changed(bench: Bench, asked: str, beyond: str) -> None:
    keys, given = bench.live_keys(), BEYOND[beyond]
    with pytest.raises(PositionBeyondEnd, match="up to the end of segment") as refused:
        ASKED[asked](bench.stream(), given)
    error = refused.value
    assert error.offset == given[error.segment_id] > error.end
    assert error.end == {**cut(s0_0=SIZE, s1_0=SIZE), **cut(s2_1=0)}[error.segment_id]
    assert bench.live_keys() == keys
    assert bench.stream().state() is StreamState.ACTIVE
    bench.append_all(1)
    bench.stream().split(ids("1@0")[0])


@pytest.mark.parametrize("at", [cut(s0_0=SIZE, s1_0=SIZE), cut(s1_0=SIZE, s2_1=0), cut(s1_0=3, s2_1=-1)], ids=str)
@pytest.mark.parametrize("asked", ["truncate", "read by all", "check"])
def test_a_position_up_to_the_end_is_none_beyond_it(bench: Bench, asked: str, at: dict[int, int]) -> None:
    ASKED[asked](bench.stream(), at)
    assert bench.stream().state() is StreamState.ACTIVE


def test_what_another_process_appended_a_moment_ago_is_not_beyond_the_end(bench: Bench) -> None:
    stream = bench.stream()
    with pytest.raises(PositionBeyondEnd):
        stream.truncate(cut(s1_0=SIZE + 5, s2_1=5))
    bench.append_all(5)
    stream.truncate(cut(s1_0=SIZE + 5, s2_1=5))
    assert stream.head() == cut(s1_0=SIZE + 5, s2_1=5)


# Without the segments


def test_recorded_sizes_prove_a_cut_wrong_without_a_host(bench: Bench) -> None:
    stream = hostless(bench)
    with pytest.raises(PositionBeyondEnd, match=r"end of segment 0@0, 7, found 0@0=8"):
        stream.cuts.refuse_beyond(cut(s0_0=8, s1_0=9))
    assert stream.cuts.refuse_beyond(cut(s0_0=7, s1_0=9)) == ids("1@0"), "nobody here knows where it ends"
    with pytest.raises(HostMissing):
        stream.truncate(cut(s1_0=9, s2_1=0))


def test_a_caller_with_the_data_elsewhere_is_held_to_the_sizes_that_are_known(bench: Bench) -> None:
    elsewhere = bench.streams().stream(*NAME, host=GivenSizes(cut(s1_0=20)))
    for beyond in (cut(s0_0=8, s1_0=9), cut(s1_0=21, s2_1=0)):
        with pytest.raises(PositionBeyondEnd):
            elsewhere.truncate(beyond)
    assert elsewhere.state() is StreamState.ACTIVE
    assert elsewhere.cuts.refuse_beyond(cut(s1_0=20, s2_1=4)) == ids("2@1")
    assert elsewhere.truncate(cut(s1_0=20, s2_1=4)).cut == cut(s1_0=20, s2_1=4)


def test_the_tail_is_a_cut_only_where_all_ends_are_known(bench: Bench) -> None:
    assert dict(bench.stream().cuts.tail() or {}) == cut(s1_0=SIZE, s2_1=0)
    assert hostless(bench).cuts.tail() is None
    bench.stream().seal()
    assert dict(hostless(bench).cuts.tail() or {}) == cut(s1_0=SIZE, s2_1=0)


# What is found out too late


def forgetful() -> tuple[Bench, Forgetful]:
    host = Forgetful()
    bench = Bench(host=host)
    bench.create()
    bench.append_all(SIZE)
    policy = RetentionPolicy(RetentionKind.SIZE, 10**6)
    bench.stream().configure(StreamConfiguration(min_segments=1, retention=policy))
    bench.stream().truncate(cut(s0_0=2, s1_0=3))
    bench.scale_once()
    return bench, host


def planned(bench: Bench, beyond: dict[int, int]) -> WorkflowRequest:
    """Let a truncation have the stream that no plan would have let through."""
    stream = bench.stream()
    workflows = stream.workflows
    now, wanted = stream.truncation(), stream.cuts.place_valid(beyond)
    count, size = workflows.truncations.what_ends(stream.cuts.place(now.cut), wanted)

    def plan(workflow_id: UUID) -> TruncationPlan:
        return TruncationPlan(with_truncation(now, wanted, count, size, workflow_id), now.workflow_id)

    taken = workflows.ownership.take(StreamState.TRUNCATING, plan, lambda running: running)
    assert taken is not None
    return taken


@pytest.mark.parametrize("is_written", [False, True], ids=["planned", "written"])
@pytest.mark.parametrize("by", ["recover", "another truncation", "requests", "retention"])
def test_a_truncation_that_holds_the_stream_in_vain_is_given_up(by: str, *, is_written: bool) -> None:
    """As in a bucket that was restored: the head is what it was, whoever comes next goes on, and nothing is deleted."""
    bench, _ = forgetful()
    stream, before = bench.stream(), bench.stream().truncation()
    taken = planned(bench, cut(s1_0=SIZE + 1, s2_1=0))
    if is_written:
        record = taken.plan_of(TruncationPlan).record
        stream.parts.keys.truncation().change(lambda _: record)
    keys = set(bench.host.ids(NAME))
    if by == "recover":
        assert bench.stream().recover() == ["truncate, given up"]
    elif by == "requests":
        assert bench.stream().carry_out_requests() == []
        again = bench.stream()
        assert [each for _ in range(3) for each in again.carry_out_requests()] == ["truncate, given up"]
    elif by == "retention":
        assert bench.stream().retention.retain() == (Retained.RECORDED, None)
    else:
        with pytest.raises(PositionBeyondEnd):
            bench.stream().truncate(cut(s1_0=SIZE + 1, s2_1=0))
    after = bench.stream().truncation()
    assert bench.stream().parts.status().value == StreamStatus(StreamState.ACTIVE)
    assert (after.cut, after.span, after.size_till) == (before.cut, before.span, before.size_till)
    assert (after.deleted_count, after.to_delete_count, after.updating) == (before.deleted_count, 0, False)
    assert set(bench.host.ids(NAME)) == keys
    stream.workflows.truncations.carry_out(taken)  # an hour late
    assert bench.stream().truncation() == after
    bench.append_all(9)
    bench.stream().truncate(cut(s1_0=SIZE + 1, s2_1=0))
    assert bench.stream().truncation().size_till == 2 * SIZE + 1


def test_a_host_that_finds_out_after_the_stream_was_taken_leaves_it_as_it_was() -> None:
    bench, host = forgetful()
    before = bench.stream().truncation()
    host.lies = 1
    with pytest.raises(PositionBeyondEnd):
        bench.stream().truncate(cut(s1_0=SIZE + 1, s2_1=0))
    assert host.lies == 0
    assert bench.stream().state() is StreamState.ACTIVE
    assert bench.stream().truncation().cut == before.cut
    bench.stream().split(ids("1@0")[0])


# Cuts that no reader can be at


IMPOSSIBLE = {"after a merge and a split": cut(s1_0=0, s5_3=0), "twice": cut(s1_0=1, s3_2=0), "in part": cut(s1_0=1)}

REFUSING: dict[str, Callable[[Stream, dict[int, int]], object]] = {
    "truncate": lambda stream, at: stream.truncate(at),
    "compare": lambda stream, at: stream.cuts.compare(at, at),
    "between": lambda stream, at: stream.cuts.segments_between({}, at),
    "size": lambda stream, at: stream.cuts.size_between(at, {}),
    "unread": lambda stream, at: stream.cuts.unread_size(at, at),
    "reference": lambda stream, at: stream.retention.reference_before(at),
    "read by all": lambda stream, at: stream.retention.retain(START_MS + 90, at),
    "place": lambda stream, at: stream.cuts.place_valid(at),
}


def merged_and_split(bench: Bench) -> None:
    two_segments(bench)
    stream = bench.stream()
    stream.merge(*ids("0@0", "1@0"))
    stream.split(ids("2@1")[0])
    bench.scale_once()


@pytest.mark.parametrize("impossible", IMPOSSIBLE)
@pytest.mark.parametrize("asked", REFUSING)
def test_a_cut_that_no_reader_can_be_at_is_refused(asked: str, impossible: str) -> None:
    bench = prepared(merged_and_split)
    keys = bench.live_keys()
    assert not bench.stream().cuts.is_valid(IMPOSSIBLE[impossible])
    with pytest.raises(InvalidArgument, match="that a reader can be at"):
        REFUSING[asked](bench.stream(), IMPOSSIBLE[impossible])
    assert bench.live_keys() == keys


# What is left to read


def test_what_was_truncated_is_not_unread(bench: Bench) -> None:
    stream = bench.stream()
    tail = stream.cuts.tail()
    assert tail is not None
    start = cut(s0_0=0, s1_0=0)
    assert stream.cuts.unread_size(start, tail) == 2 * SIZE
    stream.truncate(cut(s0_0=3, s1_0=1))
    assert stream.cuts.unread_size(start, tail) == 4 + 6
    assert stream.cuts.unread_size(cut(s0_0=5, s1_0=0), tail) == 2 + 6
    stream.truncate(cut(s1_0=SIZE, s2_1=0))
    assert stream.cuts.unread_size(start, tail) == 0
    bench.append_all(2)
    assert stream.cuts.unread_size(start, stream.cuts.tail() or {}) == 4
    assert stream.cuts.size_between(start, tail) == 2 * SIZE, "also what is gone"
