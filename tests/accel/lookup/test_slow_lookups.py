"""Slow lookups are kept as they were, within bounds; fast ones, and those of memory, leave nothing."""

from __future__ import annotations

import asyncio
import json
import logging
from threading import Thread
from typing import Any

import pytest

from accel import AsyncReadAccelerator, MetadataImage, ReadAccelerator, Settings, StaticImages, StillPending
from accel.errors import InvalidRequest, LookupTimedOut, ObjectLost
from accel.lookup.answer import Request
from accel.lookup.explain import Round, Trace
from accel.lookup.slow_lookups import REASONS, SlowLookups
from loaders.layout import ObjectLayout
from loaders.store import CountingStore, Fetched
from tests.accel.lookup.cluster import NODE, STREAM, accelerator, line_image, line_store, settled, system
from tests.accel.lookup.driving import Clock
from tests.accel.lookup.test_accelerator import Gate

IMAGE = line_image(list(range(40)))


class Slow(CountingStore):
    """A store each of whose reads of an index moves the clock on, by a second if nobody says."""

    def __init__(self, store: CountingStore, clock: Clock, seconds: float = 1.0) -> None:
        super().__init__(store)
        self.clock = clock
        self.seconds = seconds

    def get_tail(self, key: str, length: int) -> Fetched:
        self.clock.seconds += self.seconds
        return super().get_tail(key, length)


class SlowBlocks(CountingStore):
    """A store each of whose reads of blocks moves the clock on by a minute."""

    def __init__(self, store: CountingStore, clock: Clock) -> None:
        super().__init__(store)
        self.clock = clock

    def get_range(self, key: str, start: int, end: int) -> Fetched:
        self.clock.seconds += 60.0
        return super().get_range(key, start, end)


def test_a_slow_lookup_is_kept_with_its_trace_and_one_of_memory_is_not(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    with accelerator(Slow(line_store(40), clock), IMAGE, clock, slow_lookup_seconds=0.5) as one:
        answer = one.get_objects(STREAM, 5, 25)
        assert one.get_objects(STREAM, 5, 25).objects == answer.objects
        [slow] = one.slow_lookups()
        assert slow.explanation.answer.objects == answer.objects
        assert slow.explanation.seconds >= 1.0
        assert slow.explanation.trace.round_count == answer.rounds > 0
        assert slow.explanation.requests > 0
        assert slow.text().splitlines()[1].startswith(f"stream {STREAM}   offsets [5, 25)")
        assert json.loads(json.dumps(slow.to_dict()))["ended_ms"] == slow.ended_ms
        for start in range(100, 400, 100):
            one.get_objects(STREAM, start, start + 5, 1)
        told = [record for record in caplog.records if record.name == "accel.lookup.slow_lookups"]
        assert len(told) == 1
        assert told[0].levelno == logging.WARNING
        assert f"a lookup of stream {STREAM} from 5 on took" in told[0].getMessage()


def test_nothing_is_kept_where_it_is_off_or_fast() -> None:
    clock = Clock()
    with accelerator(Slow(line_store(40), clock), IMAGE, clock) as one:
        one.get_objects(STREAM, 5, 25)
        assert one.slow_lookups() == ()
    with accelerator(line_store(40), IMAGE, Clock(), slow_lookup_seconds=0.5) as one:
        one.get_objects(STREAM, 5, 25)
        assert one.slow_lookups() == ()


def test_the_last_ones_are_kept_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accel.lookup.slow_lookups.SLOW_LOOKUPS_MAX", 2)
    clock = Clock()
    with settled(Slow(line_store(40), clock), IMAGE, clock, slow_lookup_seconds=0.5) as one:
        for object_id in (5, 4, 3):
            one.get_objects(STREAM, object_id * 10, object_id * 10 + 1, 1)
            clock.seconds += 700.0  # views expire
            one.get_objects(STREAM, 300 + object_id * 10, 301 + object_id * 10, 1)
        assert len(one.slow_lookups()) == 2


def test_one_that_failed_is_kept_and_a_wrong_question_is_not() -> None:
    clock, store = Clock(), line_store(3)
    store.delete(ObjectLayout().object_key(1))
    with accelerator(Slow(store, clock), line_image([0, 1, 2]), clock, slow_lookup_seconds=0.5) as one:
        with pytest.raises(ObjectLost):
            one.get_objects(STREAM, 10, 20)
        [slow] = one.slow_lookups()
        assert isinstance(slow.explanation.error, ObjectLost)
        with pytest.raises(InvalidRequest):
            one.get_objects(STREAM, -5, 20)
        assert len(one.slow_lookups()) == 1


def test_an_awaited_lookup_that_was_given_up_is_kept() -> None:
    clock, gate = Clock(), Gate(line_store(1))
    settings = Settings(slow_lookup_seconds=0.5)

    async def scenario() -> None:
        source = StaticImages(line_image([0]))
        async with AsyncReadAccelerator(source, gate, settings=settings, system=system(clock)) as one:
            task = asyncio.ensure_future(one.get_objects(STREAM, 0, 5))
            await asyncio.to_thread(gate.waiting.acquire)
            clock.seconds = 3.0
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            gate.opened.set()
            [slow] = one.slow_lookups()
            assert isinstance(slow.explanation.error, LookupTimedOut)
            assert slow.explanation.seconds == 3.0

    asyncio.run(scenario())


def test_a_fetch_that_waits_for_data_is_not_slow_for_that() -> None:
    with accelerator(line_store(3), line_image([0, 1, 2]), slow_lookup_seconds=0.5) as one:
        with pytest.raises(StillPending):
            one.fetch(STREAM, 20, 60, timeout_seconds=0.0)
        assert one.slow_lookups() == ()


# -- lookups of reads --------------------------------------------------------------------------------------------------


def test_a_slow_lookup_of_a_read_is_kept_with_its_trace() -> None:
    clock = Clock()
    with accelerator(Slow(line_store(40), clock, 0.125), IMAGE, clock, slow_lookup_seconds=0.1) as one:
        assert len(list(one.read(STREAM, 5, 25))) == 3
        [slow] = one.slow_lookups()
        assert (slow.explanation.request.start, slow.explanation.request.end) == (5, 25)
        assert [each.object_id for each in slow.explanation.answer.objects] == [0, 1, 2]
        assert slow.explanation.trace.round_count > 0
        assert slow.explanation.requests > 0
        # Threads that load move the clock at any moment, also between two rounds.
        assert slow.explanation.seconds >= max(each.seconds for each in slow.explanation.trace.rounds)
        assert slow.explanation.seconds >= 0.125
        list(one.read(STREAM, 5, 25))  # memory answers
        assert len(one.slow_lookups()) == 1


def test_a_lookup_that_a_read_begins_again_is_kept() -> None:
    clock = Clock()
    with accelerator(Slow(line_store(40), clock, 6.0), IMAGE, clock, slow_lookup_seconds=0.5) as one:
        assert len(list(one.read(STREAM, 5, 25))) == 3
        slow, *_ = one.slow_lookups()
        assert "began the lookup again with the newest image" in str(slow.explanation.error)


def test_a_read_that_rests_between_two_batches_or_waits_for_blocks_makes_no_lookup_slow() -> None:
    clock = Clock()
    with accelerator(line_store(40), IMAGE, clock, slow_lookup_seconds=0.5) as one:
        for _ in one.read(STREAM, 5):
            clock.seconds += 60.0
        assert one.slow_lookups() == ()
    with accelerator(SlowBlocks(line_store(1), clock), line_image([0]), clock, slow_lookup_seconds=0.5) as one:
        assert len(list(one.read(STREAM, 5, 10))) == 1
        assert one.slow_lookups() == ()


def test_reads_ask_for_the_same_with_the_log_and_without() -> None:
    counted = []
    for seconds in (None, 0.5):
        store = line_store(40)
        with settled(store, IMAGE, slow_lookup_seconds=seconds) as one:
            read = [(each.base_offset, each.end_offset) for each in one.read(STREAM, 5, 395)]
        counted.append((read, store.snapshot().gets))
    assert counted[0] == counted[1]


# -- why it was slow ---------------------------------------------------------------------------------------------------


class LateImages(StaticImages):
    """A source that has no image that may be used until it is asked, which takes 3 seconds each time."""

    def __init__(self, image: MetadataImage, clock: Clock) -> None:
        super().__init__(image)
        self.clock = clock
        self.is_late = False

    def is_due(self) -> bool:
        return False

    def cached(self) -> MetadataImage | None:
        return None if self.is_late else super().current()

    def current(self) -> MetadataImage:
        if self.is_late:
            self.clock.seconds += 3.0
            self.is_late = False
        return super().current()


def one_by_one(store: Slow, image: MetadataImage | StaticImages, clock: Clock, **settings: Any) -> ReadAccelerator:
    """An accelerator with one request at a time, so that the clock of each is its own."""
    few = {"parallel_loads": 1, "max_wait_load_seconds": 1e6, "use_hints": False, "slow_lookup_seconds": 0.5}
    return settled(store, image, clock, **{**few, **settings})


@pytest.mark.parametrize("call", ["lookup", "read"])
def test_the_reason_of_one_that_waited_for_an_image_is_the_image(call: str) -> None:
    clock = Clock()
    source = LateImages(IMAGE, clock)
    with one_by_one(Slow(line_store(40), clock, 0.1), source, clock) as one:
        source.is_late = True
        if call == "lookup":
            one.get_objects(STREAM, 5, 25)
        else:
            list(one.read(STREAM, 5, 25))
        [slow] = one.slow_lookups()
        assert (slow.reason, slow.waits.image_seconds) == ("image", 3.0)
        # The clock of a request that begins in its thread at once may have moved before the read looks at it.
        assert 3.0 <= slow.explanation.seconds <= 3.0 + slow.waits.store_seconds + 1e-6
        assert one.stats().slow_lookups["image"] == 1


def test_the_reason_of_one_with_a_slow_request_is_the_store() -> None:
    clock = Clock()
    with one_by_one(Slow(line_store(1), clock, 2.0), line_image([0]), clock) as one:
        one.get_objects(STREAM, 0, 5)
        [slow] = one.slow_lookups()
        assert (slow.reason, slow.waits.longest_seconds, slow.waits.store_seconds) == ("store", 2.0, 2.0)
        told = slow.summary()
        assert told["cost"]["requests"] == 1
        assert told["cost"]["hedged"] == 0
        assert "slow by: store" in slow.text()
        assert told["lines"][5].startswith("waited   0.0 us for an image; 2.0 s for 1 request together, 2.0 s for one")


def test_the_reason_of_one_that_opens_what_was_evicted_is_that() -> None:
    clock = Clock()
    small = {"object_index_size_bytes_max": 1, "view_size_bytes_max": 1, "filter_size_bytes_max": 1}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("accel.lookup.engine.BLOCK_INDEXES_SIZE_BYTES_MAX", 0)
        one = one_by_one(Slow(line_store(40), clock), IMAGE, clock, **small)
        one.get_objects(STREAM, 5, 25)
    with one:
        one.get_objects(STREAM, 5, 25)
        reasons = [each.reason for each in one.slow_lookups()]
        assert reasons == ["cold", "evicted"]
        assert one.slow_lookups()[1].waits.opened_again > 0


def test_a_request_that_is_still_under_way_is_the_reason() -> None:
    clock, gate = Clock(), Gate(line_store(1))
    with accelerator(gate, line_image([0]), clock, slow_lookup_seconds=0.5, use_hints=False) as one:
        waiting = Thread(target=one.get_objects, args=(STREAM, 0, 5))
        waiting.start()
        gate.waiting.acquire()
        clock.seconds = 3.0
        one.get_objects(STREAM, 0, 5, deadline_seconds=0.0)
        gate.opened.set()
        waiting.join()
        assert [each.reason for each in one.slow_lookups()] == ["store"]


def noted(seconds: float, trace: Trace) -> str:
    clock = Clock()
    slow = SlowLookups(0.5, "spread", clock, clock)
    slow.note(Request(STREAM, 0), LookupTimedOut("a test"), trace, seconds)
    return slow.recent()[0].reason


def test_one_that_waited_for_the_requests_of_others_or_for_threads_says_so() -> None:
    joined = Trace(joined=1)
    assert noted(2.0, joined) == "joined"
    assert noted(2.0, Trace()) == "threads"
    opened = Round(1, 0, NODE, 1, 0, 0, 0, 0, 1, -1, 1, "unknown", requests=4)
    queued = Trace(events=[opened])
    queued.times.spans.append([0.0, 0.5])
    assert noted(2.0, queued) == "threads"
    assert set(SlowLookups(0.5, "spread", Clock(), Clock()).counts()) == set(REASONS)
