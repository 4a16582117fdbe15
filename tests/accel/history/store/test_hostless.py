"""A store without a host reads and asks: what needs the segments is refused before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from accel.errors import HostMissing
from accel.history.rules.configuration import StreamConfiguration
from accel.history.rules.requests import RequestStatus
from accel.history.rules.states import StreamState
from accel.history.rules.transactions import TransactionStatus
from accel.history.store import Stream, StreamStore
from accel.testing import Crash
from loaders.store import ObjectStore
from tests.accel.history.store.bench import NAME, Bench, cut, ids
from tests.accel.history.store.watching import WatchedHost
from tests.conformance.history_world import SCOPE, STREAM, CallCounter
from tests.conformance.steps import begin_truncation, set_state

HALVES = [(0.0, 0.25), (0.25, 0.5)]


def hostless(bench: Bench) -> StreamStore:
    """The same bucket, without a host."""
    return bench.opened(None)


def stream_of(bench: Bench) -> Stream:
    return hostless(bench).stream(SCOPE, STREAM)


def bytes_of(store: ObjectStore) -> dict[str, bytes]:
    return {info.key: store.get(info.key).body for info in store.list("")}


REFUSED: dict[str, Callable[[StreamStore, Stream], object]] = {
    "scale": lambda _, stream: stream.scale(ids("0@0"), HALVES),
    "truncate": lambda _, stream: stream.truncate(cut(s0_0=5, s1_0=5)),
    "commit": lambda _, stream: stream.commit(),
    "seal": lambda _, stream: stream.seal(),
    "retention": lambda _, stream: stream.retention.run(),
    "retention of a scope": lambda streams, _: streams.run_retention(SCOPE),
    "carry out requests": lambda _, stream: stream.carry_out_requests(),
    "carry out a request": lambda _, stream: stream.carry_out_request(UUID(int=1)),
    "finish a truncation": lambda _, stream: stream.workflows.truncations.finish_running(),
    "recover what died": lambda _, stream: stream.recover(),
    "delete what is sealed": lambda streams, _: streams.delete_stream(SCOPE, STREAM),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_the_segments_is_refused_and_nothing_is_written(bench: Bench, name: str) -> None:
    bench.transaction("t")
    if name == "recover what died":
        begin_truncation(bench.stream(), cut(s0_0=5, s1_0=5))
    if name == "delete what is sealed":
        bench.stream().seal()
    before = bytes_of(bench.store)
    with pytest.raises(HostMissing):
        REFUSED[name](hostless(bench), stream_of(bench))
    assert bytes_of(bench.store) == before


def test_what_needs_no_segments_works_without_a_host(bench: Bench) -> None:
    streams = hostless(bench)
    assert streams.create_scope("other")
    made = streams.create_stream("other", "made", StreamConfiguration(min_segments=2))
    assert made.recover() == []
    made.configure(StreamConfiguration(min_segments=1))
    opened = made.transactions.begin()
    assert made.transactions.ping(opened, 1_000).status is TransactionStatus.OPEN
    assert (streams.recover().done, streams.recover().failed) == ({}, {})
    assert made.retention.purge() == 0
    assert made.state() is StreamState.ACTIVE


def test_a_commit_that_was_decided_without_a_host_is_made_by_a_process_with_one(bench: Bench) -> None:
    transaction = bench.transaction("t", size=3, commit=None)
    asking = stream_of(bench)
    assert asking.transactions.seal(transaction, commit=True) is TransactionStatus.COMMITTING
    assert bench.stream().carry_out_requests() == ["commit"]
    assert asking.transactions.status(transaction) is TransactionStatus.COMMITTED
    assert bench.host.tails(NAME, asking.active_segments().ids) == {0: 10, 1: 10}


@pytest.mark.parametrize("is_expired", [False, True])
def test_an_abort_without_a_host_is_ended_by_a_process_with_one(bench: Bench, *, is_expired: bool) -> None:
    transaction = bench.transaction("t", commit=None)
    asking = stream_of(bench)
    if is_expired:
        bench.tick(10**7)
        assert asking.transactions.abort_expired() == [transaction]
    else:
        assert asking.transactions.abort(transaction) is TransactionStatus.ABORTING
    assert asking.transactions.status(transaction) is TransactionStatus.ABORTING
    assert bench.stream().transactions.abort_expired() == []
    assert asking.transactions.status(transaction) is TransactionStatus.ABORTED


def test_a_scale_is_asked_for_and_carried_out_by_the_process_that_holds_the_segments(bench: Bench) -> None:
    asking, holding = stream_of(bench), bench.stream()
    request = asking.request_scale(ids("0@0"), HALVES, bench.now_ms + 1)
    assert asking.scale_status(request).status is RequestStatus.WAITING
    assert holding.current_epoch().epoch == 0
    assert holding.carry_out_requests() == ["scale"]
    assert asking.scale_status(request).status is RequestStatus.DONE
    assert asking.cuts.sealed_size(0) == 7
    assert (holding.state(), holding.carry_out_requests()) == (StreamState.ACTIVE, [])


def test_a_workflow_of_another_process_is_left_to_it_until_the_second_look(bench: Bench) -> None:
    def dies(name: str, order: Callable[[], object]) -> object:
        if name == "seal":
            raise Crash
        return order()

    dying = bench.opened(WatchedHost(bench.host, dies))
    with pytest.raises(Crash):
        dying.stream(SCOPE, STREAM).scale(ids("0@0"), HALVES)
    holding = bench.stream()
    assert (holding.carry_out_requests(), holding.state()) == ([], StreamState.SCALING)
    assert (holding.carry_out_requests(), holding.state()) == (["scale"], StreamState.ACTIVE)
    assert holding.cuts.sealed_size(0) == 7


def test_a_stream_that_is_being_sealed_is_sealed_at_the_second_look(bench: Bench) -> None:
    holding = bench.stream()
    set_state(holding, StreamState.SEALING)
    assert [holding.carry_out_requests() for _ in range(3)] == [[], ["seal"], []]
    assert holding.state() is StreamState.SEALED


def test_a_look_takes_four_calls_however_many_requests_have_ended(bench: Bench) -> None:

    for _ in range(3):
        [oldest, *_] = bench.stream().active_segments()
        stream_of(bench).request_scale([oldest.id], [(oldest.key_start, oldest.key_end)], bench.tick())
        assert bench.stream().carry_out_requests() == ["scale"]
    counter = CallCounter(bench.store)
    holding = bench.stream(around=counter)
    holding.carry_out_requests()
    counter.calls = 0
    assert holding.carry_out_requests() == []
    assert counter.calls == 4
