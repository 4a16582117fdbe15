"""What the readers at work of the benchmark give: all of it, in order, whatever the machine does."""

from __future__ import annotations

import numpy as np

from accel.streams.reader import Order
from benchmarks.order_latency import Given, read_history, read_tail, write_history

EVENTS = 4_000


def test_history_comes_whole_and_in_the_order_of_time() -> None:
    bucket = write_history(EVENTS)
    for follow in (False, True):
        given = read_history(bucket, 1, Order.TIME, events=EVENTS, follow=follow)
        assert len(given.out_of_order_ms) == EVENTS
        assert given.out_of_order_ms.max() == 0
    assert len(read_history(bucket, 1, Order.SEGMENT, events=EVENTS).out_of_order_ms) == EVENTS


def test_both_readers_of_the_tail_get_the_same_events() -> None:
    ours, peer = read_tail(0.3)
    assert len(ours.delays_ms) == len(peer.delays_ms) > 0


def test_events_of_a_batch_count_each() -> None:
    given = Given.of([(10, 15, 2), (30, 30, 1), (20, 40, 3)])
    assert given.out_of_order_ms.tolist() == [0, 0, 0, 10, 10, 10]
    assert given.delays_ms.tolist() == [5, 5, 0, 20, 20, 20]
    assert np.median(given.delays_ms) == given.delay_ms
