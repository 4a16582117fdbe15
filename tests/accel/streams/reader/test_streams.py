"""Reading a stream that is written, scaled, truncated and compacted meanwhile: all layers, in memory and on S3."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

from accel import AsyncStreamReader, Event, StreamReader, StreamWriter
from accel.compaction import CompactionSettings, compact, plan_compaction
from accel.errors import InvalidArgument, PositionTruncated, ReaderStalled
from accel.history.rules.configuration import OffsetUnit
from accel.history.rules.values import IdMap, Integers
from accel.history.store import StreamStore
from accel.history.store.epoch_store import EpochReading
from accel.streams.reader import Order
from accel.streams.rules.events import EventBatch
from accel.streams.rules.reader_core import AskEnd, Fill, SegmentEnd, SegmentEvents
from accel.streams.rules.settings import ReaderSettings
from accel.streams.segment_source import ObjectSegmentSource
from accel.system import SYSTEM
from loaders.errors import StoreUnavailable
from loaders.shared_loads import SharedChunks
from loaders.store import CountingStore, MemoryStore, ObjectStore
from range_index.segment_times import NO_TOKEN
from tests.accel.streams.reader.streams import (
    KEYS,
    NAME,
    QUICK,
    SCOPE,
    Around,
    Kind,
    Shop,
    by_key,
    drained,
    for_threads_and_tasks,
    shop,
)
from tests.examples import places
from tests.servers.stores import ON_S3, store_on_s3

TIMEOUT_SECONDS = 60.0


def read_on(reader: StreamReader, count: int) -> list[Event]:
    """So many events of a reader that follows."""
    events: list[Event] = []
    while len(events) < count:
        batch = reader.next_batch(TIMEOUT_SECONDS)
        assert batch is not None, f"expected {count} events, found {len(events)}"
        events += batch
    return events


def busy_life(opened: Shop, turn: int = 60) -> IdMap:
    """Five scales and a rolling transaction, so many events in between; gives a cut in the middle of it."""
    with StreamWriter(opened.stream, opened.host) as writer:
        opened.write(writer, turn)
        transaction, events = opened.write_apart(writer, turn // 2)
        opened.split()
        opened.write(writer, turn)
        writer.commit_transaction(transaction)
        opened.committed(events)
        opened.write(writer, turn)
        opened.split(at=1)
        opened.write(writer, turn)
        opened.merge()
        with opened.reader() as reader:
            for _ in range(100 * turn // 60):
                next(reader)
            cut = reader.position()
        opened.write(writer, turn)
        opened.split()
        opened.write(writer, turn // 2)
        opened.merge()
        opened.write(writer, turn)
    return cut


def compact_all(opened: Shop) -> None:
    settings = CompactionSettings(rewrite_all=True, min_age_seconds=0.0)
    report = compact(opened.catalog, plan_compaction(opened.catalog, settings))
    assert report.groups
    opened.catalog.refresh()


def lifetime(store: ObjectStore) -> None:
    """One reader follows from the beginning, one goes from cut to cut, one begins where the stream was truncated."""
    with shop(store) as opened, opened.reader(follow=True) as following:
        cut = busy_life(opened)
        assert by_key(read_on(following, opened.count)) == opened.written

        with opened.reader() as reader:
            whole = list(reader)
        assert by_key(whole) == opened.written

        opened.stream.truncate(cut)
        compact_all(opened)
        stepwise: list[Event] = []
        position: Mapping[int, int] = cut
        while True:
            with opened.reader(position) as reader:
                taken = [event for _, event in zip(range(37), reader, strict=False)]
                position = reader.position()
            stepwise += taken
            if not taken:
                break
        with opened.reader() as reader:
            from_head = list(reader)
        left = {key: payloads[-len(by_key(from_head)[key]) :] for key, payloads in opened.written.items()}
        assert by_key(from_head) == by_key(stepwise) == left
        assert len(from_head) == opened.count - 100

        with StreamWriter(opened.stream, opened.host) as writer:
            opened.write(writer, 24)
        assert len(read_on(following, 24)) == 24


def test_a_stream_end_to_end_in_memory() -> None:
    lifetime(MemoryStore())


@pytest.mark.parametrize("name", ON_S3)
def test_a_stream_end_to_end_on_s3(request: pytest.FixtureRequest, name: str) -> None:
    with store_on_s3(request, name) as store:
        lifetime(store)


@pytest.mark.parametrize("unit", list(OffsetUnit))
def test_from_every_position_a_reader_gives_the_same_rest(unit: OffsetUnit) -> None:
    with shop(MemoryStore(), unit=unit) as opened:
        busy_life(opened, turn=KEYS)
        with opened.reader() as reader:
            whole, positions = [], [reader.position()]
            for event in reader:
                whole.append(event)
                positions.append(reader.position())
        assert all(map(opened.stream.cuts.is_valid, positions))
        for at in places(len(positions), 0, every=4):
            position = positions[at]
            with opened.reader(position) as reader:
                rest = by_key(reader)
            assert rest == by_key(whole[at:]), at


def test_a_reader_with_the_defaults_tells_that_it_passed_nothing_over(orders: Shop) -> None:
    busy_life(orders)
    with StreamReader(orders.stream, orders.source()) as reader:
        values = [event.value for event in reader]
        stats = reader.stats()
    assert values == sorted(values)
    assert stats.passes == {"timed out": 0, "failed": 0, "tail": 0}
    assert stats.held_seconds >= 0


def test_an_answer_tells_for_which_image_it_is_complete(orders: Shop) -> None:
    segment_id = orders.stream.active_segments()[0].id
    source = orders.source()
    pictures = []
    with StreamWriter(orders.stream, orders.host) as writer:
        for _ in range(3):
            orders.write(writer, 24)
            orders.accelerator.refresh()
            found = source.fill(Fill(segment_id, 0, 1 << 20))
            assert found.newest >= found.as_of
            pictures.append(found.as_of)
    assert pictures == sorted(set(pictures))


def test_values_are_those_of_the_time_index_where_it_has_moved(steady_orders: Shop) -> None:
    steady_orders.fill(24, flushes=6)
    steady_orders.split()
    moved = [info.key for info in steady_orders.store.list("accel/time/")]
    assert moved
    with steady_orders.reader() as reader:
        by_index = [(event.segment_id, event.offset, event.value) for event in reader]
    for key in moved:
        steady_orders.store.delete(key)
    with steady_orders.reader() as reader:
        assert sorted((event.segment_id, event.offset, event.value) for event in reader) == sorted(by_index)


def test_asyncio_gives_what_threads_give(orders: Shop) -> None:
    busy_life(orders)
    with orders.reader_of(AsyncStreamReader) as awaited, orders.reader() as reader:
        assert by_key(awaited) == by_key(reader) == orders.written
        assert awaited.position() == reader.position()


def test_an_async_reader_that_waits_is_woken_and_may_be_cancelled(orders: Shop) -> None:
    async def read() -> int:
        async with AsyncStreamReader(orders.stream, orders.source(), follow=True, settings=QUICK) as reader:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(reader), 0.05)
            assert await reader.next_batch(0.01) is None
            with StreamWriter(orders.stream, orders.host) as writer:
                await asyncio.to_thread(orders.write, writer, KEYS)
            return len([await anext(reader) for _ in range(KEYS)])

    assert asyncio.run(read()) == KEYS


def test_a_reader_behind_the_head_is_told_and_may_go_on_there(orders: Shop) -> None:
    cut = busy_life(orders)
    orders.stream.truncate(cut)
    orders.catalog.refresh()
    with orders.reader(dict(cut)) as reader:
        kept = {event.payload for event in reader}
    given: list[bytes] = []
    with orders.reader(dict.fromkeys(orders.stream.epochs.epoch(0).segments.ids.tolist(), 0)) as reader:
        with pytest.raises(PositionTruncated) as told:  # what it had fetched before may come first
            given.extend(event.payload for event in reader)
        assert told.value.head == dict(cut)
        reader.skip_to_head()
        given.extend(event.payload for event in reader)
    assert len(kept) == orders.count - 100
    assert kept <= set(given)
    assert len(given) == len(set(given))


def test_a_reader_between_cuts_gives_what_lies_between(orders: Shop) -> None:
    busy_life(orders)
    with orders.reader() as reader:
        before = [next(reader) for _ in range(50)]
        start = reader.position()
        between = [next(reader) for _ in range(120)]
        end = reader.position()
    with orders.reader(start, to_cut=end) as reader:
        assert by_key(reader) == by_key(between)
        assert reader.position() == end
    assert len(before) == 50
    with pytest.raises(InvalidArgument):
        orders.reader(end, to_cut=start)


def test_a_reader_by_segment_gives_every_event_too(orders: Shop) -> None:
    busy_life(orders)
    with orders.reader(order=Order.SEGMENT) as reader:
        assert by_key(reader) == orders.written


def test_a_batch_is_what_is_left_of_it(orders: Shop) -> None:
    with StreamWriter(orders.stream, orders.host) as writer:
        writer.write_many((payload, "one key") for payload in (b"0:1", b"0:2", b"0:3"))
        orders.flush(writer)
    with orders.reader() as reader:
        first = next(reader)
        batch = reader.next_batch()
        assert batch is not None
        assert [first.payload, *(each.payload for each in batch)] == [b"0:1", b"0:2", b"0:3"]
        assert reader.next_batch() is None
        assert next(reader, None) is None


def test_a_sealed_stream_comes_to_an_end_though_it_is_followed(orders: Shop) -> None:
    orders.fill(24)
    with orders.reader(follow=True) as reader:
        read_on(reader, 24)
        orders.stream.seal()
        orders.catalog.refresh()
        assert reader.next_batch(TIMEOUT_SECONDS) is None
        assert orders.stream.cuts.is_valid(reader.position())


def test_a_stream_that_is_deleted_leaves_neither_data_nor_times(orders: Shop) -> None:
    busy_life(orders)
    streams = StreamStore.open(orders.store, host=orders.host)
    ids = [orders.stream.segment_stream(each) for each in orders.stream.active_segments().ids.tolist()]
    orders.stream.seal()
    streams.delete_stream("shop", "orders")
    image = orders.catalog.refresh()
    assert list(orders.store.list("accel/time/")) == []
    assert all(image.streams[each].start_offset > 0 for each in ids if each in image.streams)


def test_an_idle_segment_is_asked_again_though_others_always_have_events(orders: Shop) -> None:
    busy, idle = orders.stream.active_segments().ids.tolist()
    has_more = threading.Event()

    class Endless:
        """One segment never ends; the other has one event, some time later."""

        def fill(self, fill: Fill) -> SegmentEvents:
            if fill.segment_id == idle and not (has_more.is_set() and not fill.offset):
                return SegmentEvents((), fill.offset)
            offsets, value = np.array([fill.offset, fill.offset + 1]), int(fill.segment_id == busy)
            batch = EventBatch(fill.segment_id, value, offsets, b"0:0", np.array([0, 3]))
            return SegmentEvents((batch,), fill.offset + 1)

        def ask_end(self, step: AskEnd) -> SegmentEnd:
            del step
            return SegmentEnd(None)

    with StreamReader(orders.stream, Endless(), follow=True, settings=QUICK) as reader:
        assert {read_on(reader, 1)[0].segment_id for _ in range(50)} == {busy}
        has_more.set()
        seen = (read_on(reader, 1)[0].segment_id for _ in range(100_000))
        assert idle in seen


def test_a_peer_reads_bytes_with_their_values_and_goes_on_with_a_token(steady_orders: Shop) -> None:
    steady_orders.fill(24, flushes=6)
    segment_id = steady_orders.stream.active_segments()[0].id
    with steady_orders.reader() as reader:
        events = [event for event in reader if event.segment_id == segment_id]
    source = steady_orders.source()
    whole = source.read(segment_id, 0, 1 << 20)
    assert whole.data == b"".join(event.payload for event in events)
    assert sorted(set(whole.values.tolist())) == sorted({event.value for event in events})
    first = source.read(segment_id, 0, 1)
    offset = sum(1 for event in events if event.value == first.value)
    with_token, without = (
        source.read(segment_id, offset, 1 << 20, first.token),
        source.read(segment_id, offset, 1 << 20),
    )
    assert first.data + with_token.data == whole.data == first.data + without.data
    assert with_token.values.tolist() == without.values.tolist()
    assert with_token.token == without.token


def test_a_follower_of_an_index_that_was_empty_goes_on_with_tokens_all_the_same(steady_orders: Shop) -> None:
    segment_id = steady_orders.stream.active_segments()[0].id
    source = steady_orders.source()
    tokens, offset, token = [], 0, NO_TOKEN
    with StreamWriter(steady_orders.stream, steady_orders.host) as writer:
        for _ in range(6):
            steady_orders.write(writer, 24)
            steady_orders.accelerator.refresh()
            found = source.fill(Fill(segment_id, offset, 1 << 20, token))
            offset, token = found.next_offset, found.token
            tokens.append(token)
    whole = steady_orders.source().fill(Fill(segment_id, 0, 1 << 20))
    assert tokens == list(range(1, 7))
    assert whole.token == 6
    middle = source.fill(Fill(segment_id, whole.batches[3].offset, 1))
    assert middle.token == NO_TOKEN  # one who begins in the middle of what has not moved knows no number


def test_an_index_that_was_empty_is_asked_again_for_data_that_logs_no_time(
    steady_orders: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment_id = steady_orders.stream.active_segments()[0].id
    source = steady_orders.source()
    values, offset = [], 0
    monkeypatch.setattr("accel.streams.open_segments.encode_events", lambda payloads, *_: b"".join(payloads))
    with StreamWriter(steady_orders.stream, steady_orders.host) as writer:
        for _ in range(9):  # the index moves each third time
            steady_orders.write(writer, 24)
            steady_orders.accelerator.refresh()
            found = source.fill(Fill(segment_id, offset, 1 << 20))
            offset = found.next_offset
            values += [batch.value > 0 for batch in found.batches]
    assert values == [False, False, True] * 3


def end_of(source: ObjectSegmentSource, segment_id: int) -> SegmentEnd:
    """What becomes of a segment, as a reader asks for it: after its last read, and again if that was too early."""
    while True:
        source.fill(Fill(segment_id, 0, 1 << 20))
        end = source.ask_end(AskEnd(segment_id))
        if not end.is_stale:
            return end


def test_the_end_of_a_segment_is_asked_for_at_its_end_not_after_each_request(steady_orders: Shop) -> None:
    steady_orders.fill(24, flushes=20)
    steady_orders.split()
    asked: Counter[tuple[type, int]] = Counter()

    class Counted(Around):
        def fill(self, fill: Fill) -> SegmentEvents:
            asked[Fill, fill.segment_id] += 1
            return super().fill(fill)

        def ask_end(self, step: AskEnd) -> SegmentEnd:
            end = super().ask_end(step)
            asked[AskEnd, step.segment_id] += not end.is_stale
            return end

    settings = replace(QUICK, fill_bytes=64, buffer_bytes_max=1 << 20)
    with steady_orders.reader(source=Counted(steady_orders.source()), settings=settings) as reader:
        assert by_key(list(reader)) == steady_orders.written
    segment_ids = {segment_id for _, segment_id in asked}
    assert max(asked[Fill, segment_id] for segment_id in segment_ids) > 4
    assert all(asked[AskEnd, segment_id] <= 2 for segment_id in segment_ids)


def test_that_nothing_follows_a_segment_is_believed_only_of_a_sealed_stream(
    orders: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.fill(24)
    first = orders.stream.active_segments()[0].id
    orders.split()
    source = orders.source()
    with monkeypatch.context() as patched:
        patched.setattr(EpochReading, "successors", lambda *_: {})  # as it was before the scale
        assert end_of(source, first) == SegmentEnd(None)
    assert len(end_of(source, first).successors) == 2
    orders.stream.seal()
    last = orders.stream.active_segments()[0].id
    assert end_of(orders.source(), last) == SegmentEnd(orders.stream.cuts.sealed_size(last))


def test_a_reader_that_follows_is_told_and_asks_by_no_timer(orders: Shop) -> None:
    never = ReaderSettings(idle_seconds=3600.0)
    with StreamReader(orders.stream, orders.source(), follow=True, settings=never) as reader:
        for count in (24, 48):
            with StreamWriter(orders.stream, orders.host) as writer:
                orders.write(writer, 24)
            orders.accelerator.image_changed()
            given = 0
            while given < 24:
                batch = reader.next_batch(TIMEOUT_SECONDS)
                assert batch is not None
                given += len(batch)
            assert sum(reader.position().values()) == count


def test_while_an_image_is_watched_for_the_history_is_asked_only_when_it_has_changed(orders: Shop) -> None:
    clock = [0.0]
    counted = CountingStore(orders.store)
    stream = StreamStore.open(counted).stream(SCOPE, NAME)
    source = ObjectSegmentSource(stream, orders.accelerator, counted, system=replace(SYSTEM, timer=lambda: clock[0]))
    segment_id = orders.stream.active_segments()[0].id

    def requests_of_ends(seconds: int) -> int:
        before = counted.snapshot().total.requests
        for _ in range(seconds):
            clock[0] += 1
            while True:
                source.fill(Fill(segment_id, 0, 1))
                if not source.ask_end(AskEnd(segment_id)).is_stale:
                    break
        return counted.snapshot().total.requests - before

    requests_of_ends(1)
    each_second = requests_of_ends(1)
    assert each_second
    told = source.watch()
    assert requests_of_ends(30) == 0
    orders.fill(24)
    orders.accelerator.image_changed()
    assert told.result(TIMEOUT_SECONDS)
    source.watch()
    assert requests_of_ends(1) >= each_second
    assert requests_of_ends(20) == 0
    assert requests_of_ends(60) == each_second


@pytest.mark.parametrize("ends", ["sealed", "scaled"])
def test_an_end_that_the_image_shows_before_the_history_is_asked_for_each_second(orders: Shop, ends: str) -> None:
    clock = [0.0]
    source = orders.source(system=replace(SYSTEM, timer=lambda: clock[0]))
    orders.fill(24)
    segment = orders.stream.active_segments()[0]

    def end() -> int | None:
        while True:
            clock[0] += 1.5
            source.fill(Fill(segment.id, 0, 1))
            if not (found := source.ask_end(AskEnd(segment.id))).is_stale:
                return found.size

    found_meanwhile: list[int | None] = []
    seal = orders.host.seal

    def seal_and_look(name: tuple[str, str], ids: Integers) -> Mapping[int, int]:
        sizes = seal(name, ids)
        orders.catalog.refresh()
        orders.accelerator.refresh()
        source.watch()
        found_meanwhile.append(end())
        return sizes

    with mock.patch.object(orders.host, "seal", seal_and_look):
        if ends == "sealed":
            orders.stream.seal()
        else:
            orders.stream.split(segment.id)
    size = orders.stream.cuts.sealed_size(segment.id)
    assert size
    assert (found_meanwhile, end()) == ([None], size)


class Outage(Around):
    """Answers nothing before some time has passed. A clock of its own: a request that fails takes two seconds."""

    def __init__(self, opened: Shop, end_seconds: float) -> None:
        super().__init__(opened.source())
        self.seconds, self._end_seconds = 0.0, end_seconds

    def timer(self) -> float:
        self.seconds += 0.001  # whoever looks at it waits for something
        return self.seconds

    def fill(self, fill: Fill) -> SegmentEvents:
        if self.seconds < self._end_seconds:
            self.seconds += 2
            raise StoreUnavailable("get", "key", "an outage")
        return super().fill(fill)


@pytest.mark.usefixtures("short_pauses")
@for_threads_and_tasks
def test_a_reader_outlives_an_outage_by_itself(orders: Shop, kind: Kind, caplog: pytest.LogCaptureFixture) -> None:
    orders.fill(24)
    source = Outage(orders, 20)
    with orders.reader_of(kind, source, system=replace(SYSTEM, timer=source.timer)) as reader:
        assert by_key(reader) == orders.written
    assert source.seconds >= 20
    assert "is read again" in caplog.text


@pytest.mark.usefixtures("short_pauses")
def test_an_outage_that_is_too_long_is_an_error_and_a_reader_that_is_asked_again_goes_on(orders: Shop) -> None:
    orders.fill(24)
    source, settings = Outage(orders, 20), replace(QUICK, retry_seconds=5.0)
    with orders.reader(source=source, settings=settings, system=replace(SYSTEM, timer=source.timer)) as reader:
        with pytest.raises(StoreUnavailable):
            next(reader)
        assert source.seconds < 20
        source.seconds = 20
        assert by_key(drained(reader, StoreUnavailable)) == orders.written


def test_a_reader_that_waits_in_vain_for_what_must_be_there_gives_up(orders: Shop) -> None:
    orders.fill(24)
    orders.split()
    sealed = orders.stream.epochs.epoch(0).segments[0].id

    class Short(Around):
        def fill(self, fill: Fill) -> SegmentEvents:
            found = super().fill(fill)
            return SegmentEvents((), fill.offset) if fill.segment_id == sealed else found

    source, impatient = Short(orders.source()), ReaderSettings(idle_seconds=0.01, stall_seconds=0.05)
    with orders.reader(source=source, settings=impatient) as reader, pytest.raises(ReaderStalled, match="0@0 at 0"):
        list(reader)


def ahead_of(opened: Shop, store: ObjectStore) -> tuple[StreamReader, SharedChunks]:
    """A reader that reads ahead in small pieces, and its chunks."""
    chunks = SharedChunks(store, chunk_bytes=256, size_bytes_max=4096, used_least=0)
    source = replace(opened, store=store).source(chunks=chunks)
    bounds = replace(QUICK, fill_bytes=60, buffer_bytes_max=800)
    return opened.reader(source=source, settings=bounds), chunks


def test_reading_ahead_fetches_no_byte_more(steady_orders: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    steady_orders.fill(400)
    fetched = []
    for ahead_share in (0.0, 0.5):
        monkeypatch.setattr("accel.streams.rules.reader_core.AHEAD_SHARE", ahead_share)
        reader, chunks = ahead_of(steady_orders, steady_orders.store)
        with reader:
            assert by_key(reader) == steady_orders.written
        steady_orders.accelerator.wait_idle()
        fetched.append(chunks.stats().fetched_bytes)
    assert fetched[0] == fetched[1]


def test_a_stream_that_is_truncated_and_compacted_while_it_is_read_ahead(orders: Shop) -> None:
    orders.fill(60, flushes=8)
    reader, _ = ahead_of(orders, orders.store)
    with reader:
        given = [next(reader) for _ in range(60)]
        compact_all(orders)
        orders.stream.truncate(reader.position())
        orders.catalog.refresh()
        given.extend(reader)
    assert by_key(given) == orders.written


@for_threads_and_tasks
def test_events_are_asked_for_one_by_one_within_a_time(orders: Shop, kind: Kind) -> None:
    with orders.reader_of(kind, follow=True) as reader:
        assert reader.next_event(timeout_seconds=0.0) is None
        orders.fill(30)
        events = [reader.next_event(TIMEOUT_SECONDS) for _ in range(30)]
        assert reader.next_event(timeout_seconds=0.0) is None
        assert not reader.is_finished
    assert by_key(event for event in events if event) == orders.written
    with orders.reader_of(kind) as reader:
        assert len(list(iter(reader.next_event, None))) == 30
        assert reader.is_finished
