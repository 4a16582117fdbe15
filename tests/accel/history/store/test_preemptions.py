"""Three processes at one stream, in the real code: each may stop between two calls, of the store or of the host.

This binds the model of `test_interleavings` to the code. Process A carries out a workflow and stops before one of its
calls; C recovers the stream, wholly; B begins another workflow and stops before one of its calls; then A goes on to its
end, and B. Afterwards the stream is recovered, and everything must agree, at the host too. Any orders, faults and
deaths are met in `tests.simulation`, which looks at the end with `check_sound`, too.

ACCEL_TEST_EXAMPLES_FACTOR chooses more of the schedules, 1000 all.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache
from itertools import product
from threading import Semaphore, Thread
from typing import TYPE_CHECKING

import pytest

from accel.errors import AccelError
from accel.history.rules.states import StreamState
from accel.history.rules.transactions import TransactionStatus
from tests.accel.history.store.bench import NAME, Bench, cut
from tests.accel.history.store.watching import Watched, WatchedHost
from tests.accel.history.store.workflows import scaled
from tests.conformance.history_queries import everything
from tests.conformance.history_world import SCOPE, STREAM
from tests.examples import examples

if TYPE_CHECKING:
    from collections.abc import Callable

    from accel.history.store import Stream

KEY, OTHER_KEY = 0.6, 0.7
TAG = "changed"
CUT = cut(s2_1=1, s3_2=2)


class Steps:
    """A process that takes so many calls as it may, and stops before the next one.

    Args:
        bench: the stream.
        act: what it does.
    """

    def __init__(self, bench: Bench, act: Callable[[Stream], object]) -> None:
        self.error: AccelError | None = None
        self.failure: Exception | None = None
        self.is_over = False
        self.calls = 0
        self._left: int | None = 0
        self._may_go, self._stopped = Semaphore(0), Semaphore(0)
        self._act = act
        self._bench = bench
        Thread(target=self._run, daemon=True).start()

    def go(self, calls: int | None = None) -> None:
        """Let it take some calls; None = all that are left."""
        if not self.is_over:
            self._left = calls
            self._may_go.release()
            self._stopped.acquire()
        if self.failure is not None:
            raise self.failure

    def before_call(self) -> None:
        """Stop here if no call is left."""
        while self._left == 0:
            self._stopped.release()
            self._may_go.acquire()
        self.calls += 1
        self._left = None if self._left is None else self._left - 1

    def _called(self, order: Callable[[], object]) -> object:
        self.before_call()
        return order()

    def _run(self) -> None:
        self._may_go.acquire()
        try:
            host = WatchedHost(self._bench.host, lambda _, order: self._called(order))
            streams = self._bench.opened(host, Watched(self._bench.store, self.before_call))
            self._act(streams.stream(SCOPE, STREAM))
        except AccelError as error:
            self.error = error
        except Exception as error:  # noqa: BLE001 - raised again in the thread of the test
            self.failure = error
        self.is_over = True
        self._stopped.release()


def today(bench: Bench) -> None:
    """Transactions of the segments of today."""
    scaled(bench)
    bench.transaction("first")
    bench.transaction("second")
    bench.transaction("open", commit=None)


def before(bench: Bench) -> None:
    """Transactions of other segments."""
    bench.create()
    bench.append_all(7)
    bench.transaction("first")
    for _ in range(3):
        bench.scale_once()
        bench.append_all(5)
    bench.transaction("open", commit=None)


def _split_at(key: float) -> Callable[[Stream], object]:
    def act(stream: Stream) -> object:
        for found in stream.active_segments():
            if found.key_start < key < found.key_end:
                return stream.scale([found.id], [(found.key_start, key), (key, found.key_end)])
        return None  # another process has done it

    return act


WORKS: dict[str, Callable[[Stream], object]] = {
    "scale": _split_at(KEY),
    "scale another": _split_at(OTHER_KEY),
    "commit": lambda stream: stream.commit(),
    "truncate": lambda stream: stream.truncate(CUT),
    "configure": lambda stream: stream.configure(replace(stream.configuration(), tags=(TAG,))),
    "seal": lambda stream: stream.seal(),
}

STREAMS: dict[str, Callable[[Bench], object]] = {"today": today, "before": before}


@cache
def prepared(name: str) -> Bench:
    bench = Bench()
    STREAMS[name](bench)
    bench.tick(100)
    return bench


@cache
def calls_of(name: str, work: str) -> int:
    """How many calls a workflow takes alone."""
    alone = Steps(prepared(name).clone(), WORKS[work])
    alone.go()
    assert alone.error is None
    return alone.calls


def has_effect(bench: Bench, work: str) -> bool:
    """Whether a workflow has left what only it leaves."""
    stream = bench.stream()
    records = stream.epochs.between(0, stream.current_epoch().epoch)
    ends = {segment.key_end for record in records for segment in record.segments}
    return {
        "scale": lambda: KEY in ends,
        "scale another": lambda: OTHER_KEY in ends,
        "truncate": lambda: dict(stream.head()) == CUT,
        "configure": lambda: TAG in stream.configuration().tags,
    }.get(work, lambda: False)()


def check_sound(bench: Bench) -> None:
    """Everything agrees once the stream is recovered, and it can be scaled."""
    stream = bench.stream()
    stream.recover()
    assert stream.recover() == []
    everything(bench)
    state = stream.state()
    assert state in (StreamState.ACTIVE, StreamState.SEALED)
    _check_host(bench, stream)
    _check_transactions(bench, stream)
    if state is StreamState.ACTIVE:
        epoch = stream.current_epoch().epoch
        bench.scale_once()
        assert stream.current_epoch().epoch == epoch + 1
        assert stream.recover() == []
        assert stream.requests() == []


def _check_host(bench: Bench, stream: Stream) -> None:
    records = stream.epochs.between(0, stream.current_epoch().epoch)
    known = {each for record in records for each in record.segments.ids.tolist()}
    deleted = {each for part in stream.cuts.deleted() for each in part.ids.tolist()}
    assert not stream.truncation().updating
    assert set(bench.host.ids(NAME)) == known - deleted
    active = set() if stream.state() is StreamState.SEALED else set(stream.active_segments().ids.tolist())
    for each in known - deleted - active:
        assert stream.cuts.sealed_size(each) == bench.host._sizes[NAME, each], each
        assert (NAME, each) in bench.host._sealed


def _check_transactions(bench: Bench, stream: Stream) -> None:
    epochs = [set(each.segments.ids.tolist()) for each in stream.epochs.between(0, stream.current_epoch().epoch)]
    for name, transaction in bench.transactions.items():
        merged = bench.host._merged.get((NAME, transaction))
        if stream.transactions.status(transaction) is TransactionStatus.COMMITTED:
            assert merged is not None, name
            assert set(merged) in epochs, name
        else:
            assert merged is None, name


def check_after(bench: Bench, processes: dict[str, Steps]) -> None:
    """`check_sound`, and what was refused has left nothing."""
    for work, each in processes.items():
        if each.error is not None:
            assert not has_effect(bench, work), (work, each.error)
    check_sound(bench)
    for work, each in processes.items():
        if each.error is not None:
            assert not has_effect(bench, work), (work, each.error)


def chosen(name: str, works: tuple[str, str], count: int) -> list[tuple[int, int]]:
    """Where A and B stop: so many of all pairs of calls, spread out evenly."""
    every = [*product(range(calls_of(name, works[0])), range(calls_of(name, works[1])))]
    return every if count >= len(every) else [every[at * len(every) // count] for at in range(count)]


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("work", WORKS)
def test_a_process_that_is_late_harms_no_other(name: str, work: str) -> None:
    count = 0
    for other, act in WORKS.items():
        for stops in chosen(name, (work, other), examples(3)):
            bench = prepared(name).clone()
            first, second = Steps(bench, WORKS[work]), Steps(bench, act)
            recovering = Steps(bench, lambda stream: stream.recover())
            first.go(stops[0])
            recovering.go()
            second.go(stops[1])
            first.go()
            second.go()
            assert recovering.error is None, stops
            try:
                check_after(bench, {} if work == other else {work: first, other: second})
            except AssertionError as error:
                raise AssertionError(f"{work} stops before call {stops[0]}, {other} before {stops[1]}") from error
            count += 1
    sys.stdout.write(f"{name}, {work}: {count} schedules\n")
    assert count >= examples(3) * len(WORKS) or count >= 1_000
