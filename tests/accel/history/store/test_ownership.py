"""Who has the stream, case by case: what a process that is late may not end, and what a refusal may not leave behind.

`test_interleavings` has all interleavings of a model; `tests.simulation` takes the steps of the code in random orders.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Event, Thread
from typing import TYPE_CHECKING

import pytest

from accel.errors import AccelError, IllegalState, OperationNotAllowed
from accel.history.rules.requests import RequestStatus
from accel.history.rules.states import StreamState
from accel.history.rules.transactions import TransactionStatus
from accel.history.store import recovering
from accel.testing import Crash, CrashStore
from tests.accel.history.store.bench import NAME, Bench, cut, ids
from tests.accel.history.store.soundness import check_sound
from tests.accel.history.store.watching import WatchedHost, interrupted
from tests.conformance.history_queries import everything
from tests.conformance.history_world import SCOPE, STREAM
from tests.conformance.steps import set_state

if TYPE_CHECKING:
    from collections.abc import Callable

    from accel.history.store import Stream


class Late:
    """A process that hangs in one kind of order to its host, until it is let go, or dies there."""

    def __init__(self, bench: Bench, slow: str, act: Callable[[Stream], object]) -> None:
        self._slow, self._dies = slow, False
        self._arrived, self._may_go = Event(), Event()
        stream = bench.opened(WatchedHost(bench.host, self._ordered)).stream(SCOPE, STREAM)
        self._thread = Thread(target=self._run, args=(act, stream))
        self._thread.start()
        assert self._arrived.wait(20)

    def _ordered(self, name: str, order: Callable[[], object]) -> object:
        if name == self._slow:
            self._arrived.set()
            assert self._may_go.wait(20)
            if self._dies:
                raise Crash(f"{name}: the process died")
        return order()

    def _run(self, act: Callable[[Stream], object], stream: Stream) -> None:
        with suppress(AccelError, Crash):
            act(stream)

    def go_on(self) -> None:
        """Go on, to the end."""
        self._may_go.set()
        self._thread.join(20)
        assert not self._thread.is_alive()

    def die(self) -> None:
        """Die, and never carry the order out."""
        self._dies = True
        self.go_on()


def first_scale(stream: Stream) -> object:
    return stream.scale(ids("0@0"), [(0.0, 0.25), (0.25, 0.5)], 1_100_000)


def second_scale(stream: Stream) -> object:
    return stream.scale(ids("1@0"), [(0.5, 0.75), (0.75, 1.0)], 1_200_000)


@pytest.mark.parametrize("is_next_dead", [False, True])
def test_a_late_scale_does_not_end_the_next_one(bench: Bench, is_next_dead: bool) -> None:
    transaction = bench.transaction("a")
    late = Late(bench, "seal", first_scale)
    assert bench.stream().recover() == ["scale"]
    following = Late(bench, "seal", second_scale)
    late.go_on()
    assert bench.stream().state() is StreamState.SCALING
    with pytest.raises(OperationNotAllowed):
        bench.stream().commit()
    assert bench.stream().transactions.status(transaction) is TransactionStatus.COMMITTING
    if is_next_dead:
        following.die()
    else:
        following.go_on()
    bench.stream().recover()
    bench.stream().commit()
    assert bench.stream().transactions.status(transaction) is TransactionStatus.COMMITTED
    check_sound(bench)
    assert bench.stream().state() is StreamState.ACTIVE


def test_a_late_truncation_does_not_count_the_next_one_as_done(bench: Bench) -> None:
    for each in ("0@0 1@0", "2@1 3@1"):
        bench.stream().scale(ids(*each.split()), [(0.0, 0.5), (0.5, 1.0)], bench.tick())
    late = Late(bench, "truncate", lambda stream: stream.truncate(cut(s2_1=0, s3_1=0)))
    assert bench.stream().recover() == ["truncate"]
    following = Late(bench, "delete", lambda stream: stream.truncate(cut(s4_2=0, s5_2=0)))
    late.go_on()
    stream = bench.stream()
    assert stream.state() is StreamState.TRUNCATING
    assert stream.truncation().updating
    following.die()
    assert stream.recover() == ["truncate"]
    assert bench.host.ids(NAME) == sorted(ids("4@2", "5@2"))
    deleted = [each for part in stream.cuts.deleted() for each in part.ids.tolist()]
    assert deleted == sorted(ids("0@0", "1@0", "2@1", "3@1"))


def test_a_late_commit_does_not_end_the_next_one(bench: Bench) -> None:
    bench.transaction("a", 5)
    late = Late(bench, "merge", lambda stream: stream.commit())
    bench.stream().recover()
    other = bench.transaction("b", 7)
    following = Late(bench, "merge", lambda stream: stream.commit())
    late.go_on()
    stream = bench.stream()
    assert stream.state() is StreamState.COMMITTING_TXN
    with pytest.raises(OperationNotAllowed):
        first_scale(stream)
    following.go_on()
    assert stream.transactions.status(other) is TransactionStatus.COMMITTED
    first_scale(stream)
    tails = bench.host.tails(NAME, stream.epochs.epoch(0).segments.ids)
    assert stream.cuts.sealed_size(ids("0@0")[0]) == tails[ids("0@0")[0]] == 19


REFUSED: dict[str, Callable[[Stream], object]] = {
    "scale": first_scale,
    "truncate": lambda stream: stream.truncate(cut(s0_0=3, s1_0=3)),
    "configure": lambda stream: stream.configure(stream.configuration()),
    "commit": lambda stream: stream.commit(),
    "seal": lambda stream: stream.seal(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_has_changed_nothing_and_is_never_carried_out(bench: Bench, name: str) -> None:
    stream = bench.stream()
    bench.transaction("a")
    set_state(stream, StreamState.SEALING if name == "configure" else StreamState.UPDATING)
    before = everything(bench), bench.live_keys(), bench.host.ids(NAME), dict(stream.head())
    with pytest.raises(OperationNotAllowed) as refused:
        REFUSED[name](stream)
    assert refused.value.retryable
    assert (everything(bench), bench.live_keys(), bench.host.ids(NAME), dict(stream.head())) == before
    assert stream.requests() == []
    if name != "configure":
        set_state(stream, StreamState.ACTIVE)
        assert stream.recover() == []
        assert stream.current_epoch().epoch == 0
        assert dict(stream.head()) == before[3]
        assert bench.host.ids(NAME) == before[2]


@pytest.mark.parametrize("is_finished", [False, True])
def test_a_transaction_that_begins_while_the_stream_is_sealed_is_withdrawn(bench: Bench, is_finished: bool) -> None:
    def act(here: Bench) -> None:
        stream = here.stream()
        if is_finished:
            stream.seal()
        else:
            set_state(stream, StreamState.SEALING)

    calls = interrupted(bench.clone().store, None, lambda: None)
    stream = bench.stream(around=calls)
    opened = calls.fitting
    stream.transactions.begin()
    assert calls.fitting - opened > 6
    for number in range(opened, calls.fitting):
        here = bench.clone()
        other = interrupted(here.store, number, lambda: act(here))  # noqa: B023 - at once
        with pytest.raises(IllegalState):
            here.stream(around=other).transactions.begin()
        assert list(here.stream().transactions.each_active()) == []


def test_a_request_for_a_stream_that_was_sealed_is_refused_for_good(bench: Bench) -> None:
    stream = bench.stream()
    asked = stream.request_scale(ids("0@0"), [(0.0, 0.25), (0.25, 0.5)])
    stream.seal()
    assert stream.recover() == []
    found = stream.scale_status(asked)
    assert found.status is RequestStatus.REFUSED
    assert "SEALED" in found.reason
    assert stream.carry_out_request(asked) == found


def test_a_request_that_is_done_and_still_has_the_stream_is_not_erased(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests that ended are erased, the oldest first, once there are many."""
    monkeypatch.setattr(recovering, "REQUESTS_KEPT_MAX", 1)
    stream = bench.stream()
    stream.carry_out_request(stream.request_scale(ids("1@0"), [(0.5, 0.75), (0.75, 1.0)], bench.tick()))
    asked = stream.request_scale(ids("0@0"), [(0.0, 0.25), (0.25, 0.5)], 1)

    def is_cut_short(here: Bench, writes: int) -> bool:
        with suppress(Crash):
            here.stream(around=CrashStore(here.store, writes)).carry_out_request(asked)
        is_done = here.stream().scale_status(asked).status is RequestStatus.DONE
        return is_done and here.stream().state() is StreamState.SCALING

    writes = next(number for number in range(100) if is_cut_short(bench.clone(), number))
    counted = interrupted(bench.clone().store, None, lambda: None)
    bench.clone().stream(around=counted).recover()
    for number in range(counted.fitting):
        here = bench.clone()
        other = interrupted(here.store, number, lambda: is_cut_short(here, writes))  # noqa: B023 - at once
        with suppress(AccelError):
            here.stream(around=other).recover()
        here.stream().recover()
        assert here.stream().state() is StreamState.ACTIVE
        assert here.stream().current_epoch().epoch == 2
