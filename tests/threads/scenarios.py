"""What sixteen threads do with what they share, and what has to be true when they are through."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from threading import Lock
from unittest.mock import patch
from uuid import UUID

import pytest

from accel import FormatRecord, ObjectCatalog, ReadAccelerator, Settings, StaticImages, StreamWriter, connect
from accel.errors import AccelError
from accel.history.store import StreamStore
from accel.image import ObjectRef, is_newer
from accel.image_source import PolledImages
from accel.lookup.slow_lookups import SLOW_LOOKUPS_MAX
from accel.lookup.stats import Counters, LookupStats, ReportLimit
from accel.metrics import AccelCollector, NamedCollectors
from accel.streams.rules.events import HostClock
from accel.streams.shared.owners import OwnersTable
from accel.system import SYSTEM, StoreClock
from accel.testing import ClockStore, MemorySegments
from loaders.format import RecordBatch
from loaders.hints.snapshots import SnapshotReader
from loaders.lifetime import PerProcess, ProcessLock
from loaders.shared_loads import SharedChunks
from loaders.store import MemoryStore
from loaders.store.hedged import HedgedStore
from loaders.threads import DaemonThreads
from tests.accel.lookup.cluster import NODE, STREAM, line_image, line_store
from tests.accel.lookup.hinting import put_real_hints
from tests.accel.streams.reader.streams import shop
from tests.accel.streams.times.indexes import Source, everything, open_index
from tests.threads.boundaries import THREADS

Act = Callable[[int, Random], object]
Scenario = Callable[[Path], AbstractContextManager[Act]]

OBJECTS = 40
LENGTH = 10
SMALL = Settings(
    parallel_loads=4,
    view_size_bytes_max=1 << 11,
    object_index_size_bytes_max=1 << 12,
    refresh_seconds=0.001,
    slow_lookup_seconds=1e-9,
)


@contextmanager
def lookups(_: Path) -> Iterator[Act]:
    """One accelerator, whose caches hold next to nothing, while images and hints come: each answer is a scan's."""
    store = line_store(OBJECTS, length=LENGTH)
    image = line_image(list(range(OBJECTS)))
    put_real_hints(store, image)
    pushed = StaticImages(image)
    versions = iter(range(1, 1_000_000))
    snapshots = SnapshotReader(store, image.namespace, SYSTEM.timer, ttl_seconds=0.001)
    with patch("accel.lookup.engine.HINT_TTL_SECONDS", 0.001):
        accelerator = ReadAccelerator(pushed, store, settings=SMALL)
    with accelerator as shared:
        collector = NamedCollectors({"shared": AccelCollector(shared)})

        def act(number: int, chance: Random) -> None:
            start = chance.randrange(OBJECTS * LENGTH)
            end = min(start + chance.randrange(1, 60), OBJECTS * LENGTH)
            expected = list(range(start // LENGTH, (end - 1) // LENGTH + 1))
            assert [each.object_id for each in shared.get_objects(STREAM, start, end, limit=9).objects] == expected
            if number % 8 == 1:
                pushed.push(line_image(list(range(OBJECTS)), version=next(versions)))
            elif number % 8 == 2:
                shared.object_committed(NODE, ObjectRef(expected[0]), {STREAM: _span(expected[0])})
            elif number % 8 == 3:
                shared.add_hints(NODE, STREAM, [(*_span(expected[-1]), expected[-1])])
            elif number % 8 == 4:
                assert sum(each.count for each in shared.read(STREAM, start, end)) >= end - start
            elif number % 8 == 5:
                shared.warm()
                assert len(snapshots.read_entries(NODE, STREAM).columns) == OBJECTS
                assert list(collector.collect())
            elif number % 8 == 6:
                told = shared.explain(STREAM, start, end, limit=9)
                assert [each.object_id for each in told.answer.objects] == expected
                assert len(shared.slow_lookups()) <= SLOW_LOOKUPS_MAX
                assert [each for each, _ in shared.hot().streams.lookups] == [STREAM]
            else:
                shared.follow()

        yield act
        shared.wait_idle()
        found = shared.stats()
        assert found.lookups.lookups >= THREADS


def _span(object_id: int) -> tuple[int, int]:
    return object_id * LENGTH, (object_id + 1) * LENGTH


@contextmanager
def commits(_: Path) -> Iterator[Act]:
    """One catalog, with a session for each two threads: what was uploaded is listed once."""
    store = MemoryStore()
    ObjectCatalog.init(store, FormatRecord(namespace="threads", stream_buckets=2))
    with ObjectCatalog.open(store) as catalog:
        writers = [catalog.open_node(each) for each in range(THREADS // 2)]
        for each, writer in enumerate(writers):
            writer.open_streams([each])
        images = catalog.images(poll_seconds=0.001, idle_poll_seconds=0.001)
        uploaded: list[int] = []

        def act(number: int, chance: Random) -> None:
            stream_id = number // 2
            writer = writers[stream_id]
            try:
                end = writer.end(stream_id) or 0
                done = writer.upload({stream_id: [RecordBatch(stream_id, 1, end, 10, b"x")]})
            except (RuntimeError, AccelError):
                pass  # its other thread was at it
            else:
                uploaded.append(done.ref.object_id)
            before = catalog.image() if chance.random() < 0.5 else images.current()
            after = catalog.refresh()
            assert not is_newer(before.version, after.version)
            assert all(each.stream_id == stream_id for stream_id, each in after.streams.items())
            catalog.parts.ids.take(chance.randrange(1, 4))

        yield act
        listed = [int(each) for writer in writers for each in writer.node_list.live["object_id"]]
        assert len(uploaded) >= len(writers)
        assert sorted(uploaded) == sorted(listed)
        ids = catalog.parts.ids.take(4)
        assert set(ids).isdisjoint(listed)
        for writer in writers:
            writer.close()


@contextmanager
def histories(_: Path) -> Iterator[Act]:
    """One store of streams: threads begin, end and commit transactions, scale, tag and list; each is done once."""
    segments = MemorySegments()
    streams = StreamStore.open(MemoryStore(), host=segments)
    streams.create_scope("shop")
    shared = streams.create_stream("shop", "orders", time_ms=0, segments=2)
    begun: list[object] = []

    def act(number: int, chance: Random) -> None:
        transaction = shared.transactions.begin()
        begun.append(transaction)
        assert transaction in shared.transactions.active()
        shared.transactions.abort(transaction)
        if number % 4 == 0:
            name = f"{number}-{chance.randrange(1 << 30)}"
            own = streams.create_stream("shop", name, time_ms=0)
            assert own.unique_id == streams.stream("shop", name).unique_id
            own.split(own.active_segments()[0].id, time_ms=1)
            own.truncate(own.head())
            own.seal()
            if number % 8:
                streams.delete_stream("shop", name)
        elif number % 4 == 1:
            with suppress(AccelError):  # somebody else splits
                shared.split(shared.active_segments()[0].id, time_ms=1)
        elif number % 4 == 2:
            with suppress(AccelError):  # somebody else does, too
                shared.configure(replace(shared.configuration(), tags=(f"tag-{number}",)))
            streams.cache_stats()
        else:
            streams.recover_stream("shop", "orders")

    yield act
    assert len(set(begun)) == len(begun)
    assert shared.transactions.active() == {}
    left = [name for name in streams.streams("shop") if name != "orders"]
    assert {int(name.partition("-")[0]) % 8 for name in left} == {0}
    streams.recover_stream("shop", "orders")
    assert sum(each.key_end - each.key_start for each in shared.active_segments()) == pytest.approx(1)


@contextmanager
def writing(_: Path) -> Iterator[Act]:
    """One writer, one host, and readers over one source: each event stands there once, in its thread's order."""
    with shop(MemoryStore()) as orders, StreamWriter(orders.stream, orders.host, writer_id=UUID(int=7)) as writer:
        orders.written.clear()
        counts: Counter[int] = Counter()
        places: list[object] = []
        source = orders.source()

        def act(number: int, chance: Random) -> None:
            events = [b"%d:%d" % (number, counts[number] + each) for each in range(3)]
            counts[number] += 3
            futures = [writer.write(each, f"key {number}") for each in events]
            if chance.random() < 0.5:
                writer.flush()
            places.extend(future.result() for future in futures)
            orders.catalog.refresh()
            segment_id = chance.choice(list(orders.stream.active_segments())).id
            source.read(segment_id, 0, 1 << 16)
            orders.host.info(("shop", "orders"), segment_id)
            orders.host.held_by(("shop", "orders"), segment_id, UUID(int=7).bytes)
            if chance.random() < 0.3:
                transaction = writer.begin_transaction()
                writer.write(b"none", "none", transaction=transaction)
                writer.abort_transaction(transaction)

        yield act
        orders.flush(writer)
        assert len(set(places)) == len(places) == sum(counts.values())
        orders.accelerator.refresh()
        found: dict[int, list[bytes]] = {}
        for event in orders.reader():
            found.setdefault(int(event.payload.split(b":")[0]), []).append(event.payload)
        assert found == {each: [b"%d:%d" % (each, at) for at in range(counts[each])] for each in range(THREADS)}


@contextmanager
def connections(_: Path) -> Iterator[Act]:
    """One connection: its parts are opened once, whoever asks first; a group's readers come and go by one object."""
    store = MemoryStore()
    with connect(store, create=True) as streams:
        streams.create_scope("shop")
        streams.create_stream("shop", "orders", segments=2)
        group = streams.group("shop", "orders", "team")
        parts: dict[str, set[int]] = {"host": set(), "catalog": set(), "accelerator": set(), "segments": set()}

        def act(number: int, chance: Random) -> None:
            for name in chance.sample(sorted(parts), len(parts)):
                part = getattr(streams, name)
                parts[name].add(id(part() if name in {"host", "segments"} else part))
            assert streams.segments().find(("shop", "orders"), [0, 1])[1] is None
            assert [each.node_id for each in OwnersTable(streams.catalog).owners()] == [streams.node_id()]
            group.join(f"reader-{number}")
            assert f"reader-{number}" in [each.name for each in group.state().readers]
            group.leave(f"reader-{number}")
            with streams.writer("shop", "orders") as writer:
                writer.write(b"%d" % number, "key").result()
            streams.cache_stats()
            assert streams.registration().owner.node_id == streams.node_id()

        yield act
        assert {name: len(found) for name, found in parts.items()} == dict.fromkeys(parts, 1)
        assert group.state().readers == ()


@contextmanager
def time_index(_: Path) -> Iterator[Act]:
    """One time index that grows, moves and is read: every record stands there once, in order."""
    store = MemoryStore()
    source = Source()
    index = open_index(store, source, moved_records_max=4)
    lock = Lock()

    def act(number: int, chance: Random) -> None:
        if number % 2:
            with lock:  # one appends at a time, as the host does
                source.time += 1
                index.append(index.end_offset + 1)
        else:
            index.move(index.end_offset)
            index.refresh()
        if index.end_offset:
            offset = chance.randrange(index.end_offset)
            assert index.locate(offset).record == offset
            assert index.read(offset, 3).covered >= 1

    yield act
    assert [end for end, _ in everything(index)] == list(range(1, index.end_offset + 1))


@contextmanager
def chunks(_: Path) -> Iterator[Act]:
    """Bytes through a store that hedges, and pages that are shared: each range has the bytes that were put."""
    store = MemoryStore()
    body = bytes(Random(1).randbytes(1 << 16))
    store.put("a", body)
    hedged = HedgedStore(store, SYSTEM.timer, lambda _: True, share=1)
    shared = SharedChunks(hedged, chunk_bytes=1 << 12, size_bytes_max=1 << 14)

    def act(_: int, chance: Random) -> None:
        start = chance.randrange(len(body) - 1)
        end = min(len(body), start + chance.randrange(1, 5000))
        assert bytes(shared.get_range("a", start, end)) == body[start:end]
        assert bytes(hedged.get_range("a", start, end).body) == body[start:end]
        hedged.stats()

    with patch("loaders.store.hedged.AFTER_SECONDS_MIN", 0.0001):
        yield act
        hedged.close()


@contextmanager
def counting(_: Path) -> Iterator[Act]:
    """What counts, reports and is made once: nothing is counted twice or lost."""
    counters = Counters(LookupStats)
    limit = ReportLimit(lambda: 0.0)
    clock = HostClock(lambda: 7)
    dated = StoreClock(ClockStore(MemoryStore(), lambda: 1000.0), lambda: 9.0, lambda: 0.0)
    made: list[object] = []
    each_once = PerProcess("a thing", object)
    lock = ProcessLock()
    threads = DaemonThreads()
    worked: list[int] = []
    pushed = StaticImages(line_image([0]))
    polled = PolledImages(pushed.current, timer=SYSTEM.timer, sleep=SYSTEM.sleep)
    rounds = 0

    def act(number: int, chance: Random) -> None:
        nonlocal rounds
        counters.add(refreshes=1, limits=2)
        limit.times()
        clock.now()
        assert dated.measure()
        assert dated() == 1000.0
        made.append(each_once())
        with lock:
            rounds += 1
        threads(lambda: worked.append(number), "work")
        pushed.push(line_image([0], version=chance.randrange(1, 1000)))
        before = polled.current().version
        polled.image_changed()
        assert not is_newer(before, polled.current().version)

    yield act
    assert counters.stats().refreshes == rounds
    assert counters.stats().limits == 2 * rounds
    assert len(set(map(id, made))) == 1


SCENARIOS: dict[str, tuple[Scenario, int]] = {
    "lookups": (lookups, 2),
    "commits": (commits, 2),
    "histories": (histories, 1),
    "writing": (writing, 1),
    "connections": (connections, 1),
    "time_index": (time_index, 4),
    "chunks": (chunks, 8),
    "counting": (counting, 8),
}
"""Each scenario, and how often each thread acts in it."""
