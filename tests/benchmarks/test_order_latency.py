"""What the readers at work of the benchmark give: all of it, in order, whatever the machine does."""

from __future__ import annotations

from dataclasses import replace

from accel import ObjectCatalog, ObjectSegmentSource, ReadAccelerator
from accel.history.store import StreamStore
from accel.streams.reader import Order
from accel.streams.rules.reader_core import AskEnd, Fill, Step
from accel.system import SYSTEM
from benchmarks.order import (
    FIRST_REQUESTS,
    POLL_REQUESTS,
    POLL_SECONDS,
    SEALED_REQUESTS,
    SLOW_BUFFERS,
    read_slowly,
    write_history,
)
from benchmarks.streams import NAME, SCOPE
from loaders.store import CountingStore

EVENTS = 2_000


def test_on_a_store_with_latencies_many_segments_come_in_order_within_the_buffers() -> None:
    store = write_history(EVENTS, segments=16)
    ours, peer = (read_slowly(store, 0.1, order, EVENTS) for order in (Order.TIME, Order.SEGMENT))
    assert ours.behind_ms == 0 < peer.behind_ms
    assert ours.buffered_bytes <= SLOW_BUFFERS.buffer_bytes_max


def test_the_simulation_makes_as_many_requests_as_a_source_of_objects() -> None:
    store, now = CountingStore(write_history(EVENTS)), [0.0]
    system = replace(SYSTEM, timer=lambda: now[0])
    with (
        ObjectCatalog.open(store, system=system) as catalog,
        ReadAccelerator(catalog.images(), store, system=system) as accelerator,
    ):
        stream = StreamStore.open(store).stream(SCOPE, NAME)
        source = ObjectSegmentSource(stream, accelerator, store, system=system)
        sealed, *_, other, active = stream.epochs.epoch(0).segments.ids.tolist()

        def asked(step: Step) -> tuple[int, int]:
            before = store.snapshot()
            end = 0
            if isinstance(step, Fill):
                end = source.fill(step).next_offset
            else:
                source.ask_end(step)
            after = store.snapshot()
            return sum(each.requests for each in after.by_operation.values()) - sum(
                each.requests for each in before.by_operation.values()
            ), end

        asked(Fill(other, 0, 1 << 20))  # the first one fetches what the segments share
        requests, end = asked(Fill(active, 0, 1 << 20))
        assert requests == FIRST_REQUESTS  # its events lie in objects that the first one fetched
        assert asked(Fill(active, end, 1 << 20))[0] == 0
        now[0] += 1
        asked(AskEnd(active))
        asked(Fill(sealed, 0, 1 << 20))
        assert asked(AskEnd(sealed))[0] == SEALED_REQUESTS
        assert asked(AskEnd(active))[0] == 0
        now[0] += 2 * POLL_SECONDS
        assert asked(AskEnd(active))[0] == POLL_REQUESTS
