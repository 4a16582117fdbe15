"""Reads that are sent twice: when, how many, which answer counts, and what is left running."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from loaders.errors import KeyMissing, StoreUnavailable
from loaders.layout import HINTS_PREFIX, TABLES_PREFIX, HintKind, ObjectLayout, hint_root_key
from loaders.store import CountingStore, MemoryStore, ObjectStore
from loaders.store.decorated import Answer, DecoratedStore, StoreCall
from loaders.store.hedged import BURST, SAMPLES_MIN, HedgedStore
from loaders.tracing import RequestTimes, timed

KEY = ObjectLayout().object_key(1)
TABLE_KEY = f"{TABLES_PREFIX}node-lists/4"


class Gated(DecoratedStore):
    """The first read after `close_gate` hangs until the gate is opened; errors may be put in for some reads."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.gates: list[threading.Event] = []
        self.opened: list[threading.Event] = []
        self.errors: list[Exception | None] = []

    def close_gate(self) -> threading.Event:
        self.gates.append(threading.Event())
        self.opened.append(self.gates[-1])
        return self.gates[-1]

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        error = self.errors.pop(0) if self.errors else None
        if call.key in (KEY, TABLE_KEY) and self.gates:
            assert self.gates.pop(0).wait(20)
        if error is not None:
            raise error
        return send()


@contextmanager
def hedged(
    *, share: float = 0.05, after_seconds_min: float = 0.02, abandoned_max: int = 2, warm: int = SAMPLES_MIN
) -> Iterator[tuple[HedgedStore, Gated, CountingStore]]:
    """A store that has timed enough reads, all of them at once."""
    counted = CountingStore(MemoryStore())
    for key in (KEY, TABLE_KEY):
        counted.put(key, bytes(range(256)))
    gated = Gated(counted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("loaders.store.hedged.AFTER_SECONDS_MIN", after_seconds_min)
        patch.setattr("loaders.store.hedged.ABANDONED_MAX", abandoned_max)
        yield from _hedged(gated, counted, share, warm)


def _hedged(
    gated: Gated, counted: CountingStore, share: float, warm: int
) -> Iterator[tuple[HedgedStore, Gated, CountingStore]]:
    store = HedgedStore(gated, lambda: 0.0, ObjectLayout().is_immutable, share=share)
    for _ in range(warm):
        store.get_range(KEY, 0, 10)
    counted.reset()
    try:
        yield store, gated, counted
    finally:
        for gate in gated.opened:
            gate.set()
        store.close()


def test_a_slow_read_is_sent_again_and_the_first_answer_counts() -> None:
    with hedged() as (store, gated, counted):
        gate = gated.close_gate()
        assert store.get_range(KEY, 1, 4).body == b"\x01\x02\x03"
        assert (store.stats().hedged, store.stats().won, store.stats().abandoned) == (1, 1, 1)
        gate.set()
        store.close()
        assert store.stats().abandoned == 0
        assert counted.snapshot().gets == 2


def test_a_lookup_that_times_its_requests_counts_those_sent_again() -> None:
    times = RequestTimes()
    with hedged() as (store, gated, _), timed(times):
        gated.close_gate()
        store.get_range(KEY, 1, 4)
        store.get_range(KEY, 1, 4)
    assert times.until(0.0)[2] == 1


def test_before_enough_reads_were_timed_none_is_sent_twice() -> None:
    with hedged(warm=SAMPLES_MIN - 1) as (store, gated, counted):
        gate = gated.close_gate()
        threading.Timer(0.1, gate.set).start()
        assert len(store.get_tail(KEY, 5).body) == 5
        assert (store.stats().hedged, counted.snapshot().gets) == (0, 1)


def test_what_may_change_is_never_read_twice() -> None:
    layout = ObjectLayout()
    assert layout.is_immutable(layout.object_key(7))
    assert layout.is_immutable(f"{HINTS_PREFIX}packs/node-4/1/00000")
    assert not layout.is_immutable(hint_root_key(HintKind.PACKS, 4))
    with hedged() as (store, gated, counted):
        gate = gated.close_gate()
        threading.Timer(0.1, gate.set).start()
        store.get_range(TABLE_KEY, 0, 1)
        store.get(TABLE_KEY)
        assert (store.stats().hedged, counted.snapshot().gets) == (0, 2)


def test_no_more_are_sent_twice_than_the_share_and_a_burst_allow() -> None:
    with hedged(after_seconds_min=0.001, abandoned_max=1000) as (store, gated, counted):
        count = 60
        for _ in range(count):
            gate = gated.close_gate()
            threading.Timer(0.02, gate.set).start()
            store.get_range(KEY, 0, 1)
            gated.gates.clear()
        assert 1 <= store.stats().hedged <= BURST + 0.05 * count
    assert counted.snapshot().gets <= count + BURST + 0.05 * count


def test_a_share_of_0_sends_nothing_twice() -> None:
    with hedged(share=0) as (store, gated, counted):
        threading.Timer(0.1, gated.close_gate().set).start()
        store.get_range(KEY, 0, 1)
        assert counted.snapshot().gets == 1


def test_abandoned_requests_are_bounded() -> None:
    with hedged() as (store, gated, _):
        for _ in range(2):
            gated.close_gate()
            store.get_range(KEY, 0, 1)
        assert store.stats().abandoned == 2
        gate = gated.close_gate()
        threading.Timer(0.1, gate.set).start()
        store.get_range(KEY, 0, 1)  # waits for the only request
        assert store.stats().hedged == 2


def test_an_error_that_a_retry_may_help_waits_for_the_other_request() -> None:
    with hedged() as (store, gated, _):
        gate = gated.close_gate()
        gated.errors = [None, StoreUnavailable("get_range", KEY, "it is down")]
        threading.Timer(0.1, gate.set).start()
        assert store.get_range(KEY, 0, 1).body == b"\x00"


def test_an_error_that_no_retry_helps_is_the_answer() -> None:
    with hedged() as (store, gated, _):
        gated.close_gate()
        gated.errors = [None, KeyMissing("get_range", KEY, "no such key")]
        with pytest.raises(KeyMissing):
            store.get_range(KEY, 0, 1)
        assert store.stats().abandoned == 1


def test_a_large_read_is_sent_once() -> None:
    with hedged() as (store, gated, counted):
        threading.Timer(0.1, gated.close_gate().set).start()
        store.get_range(KEY, 0, 2 << 20)
        assert counted.snapshot().gets == 1


def test_a_closed_store_reads_and_leaves_no_thread() -> None:
    with hedged() as (store, _, _):
        store.close()
        assert len(store.get_range(KEY, 0, 3).body) == 3
        assert not [each for each in threading.enumerate() if each.name.startswith("accel-hedge")]
