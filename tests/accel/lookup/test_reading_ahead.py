"""Reads that look ahead: what they give, where errors are raised, how much they have under way, and what they leave."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from accel.errors import Closed, StoreUnavailable
from loaders.format import RecordBatch
from loaders.layout import ObjectLayout
from loaders.store import CountingStore, ObjectStore
from loaders.store.decorated import Answer, DecoratedStore, StoreCall
from tests.accel.lookup.cluster import BOTH_DRIVERS, STREAM, accelerator, line_image, line_store


class Watched(DecoratedStore):
    """Lets requests through in an order of its own, and counts how many are under way."""

    def __init__(self, store: ObjectStore, rng: random.Random | None = None) -> None:
        super().__init__(store)
        self.rng = rng
        self.lock = threading.Lock()
        self.now = self.most = self.calls = 0
        self.gather: int | None = None
        self.broken: str | None = None
        self.stuck: str | None = None
        self.go = threading.Event()

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        with self.lock:
            self.calls += 1
            self.now += 1
            self.most = max(self.most, self.now)
            if self.gather is not None and self.most >= self.gather:
                self.go.set()
            held = self.gather is not None and self.calls > 100
            delay = self.rng.choice([0, 0, 0.001]) if self.rng is not None else 0
        try:
            if delay:
                self.go.wait(delay)
            if held or call.key == self.stuck:
                self.go.wait(20)
            if call.key == self.broken:
                raise StoreUnavailable("get_range", call.key, "it is down")
            return send()
        finally:
            with self.lock:
                self.now -= 1


def spans(read: list[RecordBatch]) -> list[tuple[int, int]]:
    return [(each.base_offset, each.end_offset) for each in read]


@BOTH_DRIVERS
def test_a_long_read_has_many_requests_under_way_and_no_more_than_the_settings_allow(driver: Any) -> None:
    store = Watched(line_store(300), random.Random(7))
    store.gather = 8  # in mid-read, requests are answered once eight are under way, however threads are scheduled
    with accelerator(store, line_image(list(range(300)), end=-1), driver=driver, parallel_loads=16) as one:
        assert len(list(one.read(STREAM, 0))) == 300
    assert 8 <= store.most <= 16


def test_a_long_read_costs_two_requests_an_object() -> None:
    counted = line_store(300)
    with accelerator(counted, line_image(list(range(300)), end=-1)) as one:
        assert len(list(one.read(STREAM, 0))) == 300
    assert counted.snapshot().gets == 600


def test_a_read_that_is_left_after_its_first_batch_has_fetched_one_span() -> None:
    counted = line_store(100)
    with accelerator(counted, line_image(list(range(100)), end=-1), policy="window:5") as one:
        reading = one.read(STREAM, 0)
        assert next(reading).base_offset == 0
        reading.close()
    assert counted.snapshot().gets == 5 + 1


def test_a_read_within_a_budget_fetches_no_more_than_that() -> None:
    counted = line_store(100)
    with accelerator(counted, line_image(list(range(100)), end=-1), policy="window:5") as one:
        assert len(list(one.read(STREAM, 0, max_bytes=1))) == 1
    assert counted.snapshot().gets == 5 + 1


def test_what_is_read_ahead_is_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accel.lookup.reading.WINDOW_SIZE_BYTES", 1)
    store = Watched(line_store(100), random.Random(3))
    with accelerator(store, line_image(list(range(100)), end=-1), parallel_loads=32, policy="load-all") as one:
        one.get_objects(STREAM, 0, limit=100)
        store.most = 0
        assert len(list(one.read(STREAM, 0))) == 100
    assert store.most == 1


def test_an_error_is_raised_behind_the_records_before_it() -> None:
    store = Watched(line_store(30))
    with accelerator(store, line_image(list(range(30)))) as one:
        one.get_objects(STREAM, 0, 300, 30)
        store.broken = ObjectLayout().object_key(12)
        reading = one.read(STREAM, 0, 300)
        got: list[RecordBatch] = []
        with pytest.raises(StoreUnavailable):
            got.extend(reading)
        assert len(got) == 0 or got[-1].end_offset <= 120
        assert reading.next_offset == 120


@BOTH_DRIVERS
def test_a_slow_object_does_not_hold_back_the_ones_before_it(driver: Any) -> None:
    store = Watched(line_store(30))
    with accelerator(store, line_image(list(range(30))), driver=driver) as one:
        one.get_objects(STREAM, 0, 300, 30)
        store.stuck = ObjectLayout().object_key(12)
        reading = one.read(STREAM, 0, 300)
        assert [next(reading).base_offset for _ in range(12)] == list(range(0, 120, 10))
        store.go.set()
        assert len(list(reading)) == 18
    assert not [each for each in threading.enumerate() if each.name.startswith(("accel-load", "accel-hedge"))]


def test_a_closed_read_begins_nothing_more_and_says_that_it_is_closed() -> None:
    store = Watched(line_store(200))
    counted = CountingStore(store)
    with accelerator(counted, line_image(list(range(200))), parallel_loads=1) as one:
        one.get_objects(STREAM, 0, 2000, 200)
        counted.reset()
        store.stuck = ObjectLayout().object_key(3)
        with one.read(STREAM, 0, 2000) as reading:
            next(reading)
        with pytest.raises(Closed):
            next(reading)
        assert reading.next_offset == 10
        store.go.set()
    assert counted.snapshot().gets <= 4  # what had not begun was given up
