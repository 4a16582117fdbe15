"""What requests are for, what they cost, and what repetitions by the client cost."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TypeVar

import botocore.endpoint
import pytest

import accel
from accel import ReadAccelerator
from accel.catalog.collect import collect, plan_collection
from accel.catalog.keys import IMPORT_PROGRESS, JOB_RUNS, TABLES
from accel.compaction import CompactionSettings, compact, plan_compaction
from accel.hint_building import HintChoice, build_hints, plan_hints
from loaders.errors import KeyMissing, StoreThrottled
from loaders.store import CountingStore, MemoryStore, ObjectStore, S3Store, StoreSettings
from loaders.store.bill import CATALOG_TABLES, Prices, RequestCause, caused_by, request_cause
from loaders.store.decorated import DecoratedStore, StoreCall, received_bytes
from loaders.threads import Threads
from tests.accel.lookup.driving import Clock
from tests.servers.scripted import HANG_UP, ScriptedServer, found, refusal
from tests.world import NODE, World

Answer = TypeVar("Answer")

STREAM = 1
SETTINGS = CompactionSettings(max_objects_per_node=2, target_objects=1)


class OwnCount(DecoratedStore):
    """A count of requests and bytes that knows no causes."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.counts: Counter[str] = Counter()

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        self.counts.update(requests=1, sent=call.sent_bytes)
        answer = send()
        self.counts.update(received=received_bytes(answer))
        return answer


def test_tables_of_the_catalog_are_known_by_their_names() -> None:
    assert {*TABLES, IMPORT_PROGRESS, JOB_RUNS} == set(CATALOG_TABLES)


def test_the_outer_cause_holds_within_and_in_threads_and_ends_with_its_block() -> None:
    threads = Threads(2, "test")
    with caused_by(RequestCause.COMPACTION):
        with caused_by(RequestCause.DATA):
            assert request_cause("get", "accel/hints/packs/node-1/root") is RequestCause.COMPACTION
        assert threads.submit(request_cause, "get", "a").result() is RequestCause.COMPACTION
    assert threads.submit(request_cause, "get", "a").result() is RequestCause.LOOKUP
    threads.shutdown()


@pytest.mark.parametrize(
    ("operation", "key", "cause"),
    [
        ("get_tail", "a2000000/DEFAULT/42", RequestCause.LOOKUP),
        ("put", "a2000000/DEFAULT/42", RequestCause.UPLOAD),
        ("get_if_changed", "accel/tables/node-lists/0000000004", RequestCause.REFRESH),
        ("list", "accel/tables/node-lists/", RequestCause.FOLLOW),
        ("put", "accel/tables/node-lists/0000000004", RequestCause.UPLOAD),
        ("get", "accel/format", RequestCause.REFRESH),
        ("get", "accel/tables/_system%2Fscopes/x", RequestCause.HISTORY),
        ("put", "accel/tables/owners/0000000004", RequestCause.HISTORY),
        ("get_range", "accel/hints/snapshots/node-4/root", RequestCause.HINTS),
        ("put", "accel/probe/conditions", RequestCause.PROBE),
        ("date", "", RequestCause.PROBE),
        ("put", "accel/time/7/00000000000000000000", RequestCause.STREAM_WRITE),
        ("get", "accel/time/7/00000000000000000000", RequestCause.STREAM_READ),
        ("put", "accel/journal/1", RequestCause.GC),
        ("list", "", RequestCause.OTHER),
    ],
)
def test_a_request_without_a_named_cause_gets_it_from_its_key(operation: str, key: str, cause: RequestCause) -> None:
    assert request_cause(operation, key) is cause


def test_each_part_of_a_catalogs_life_has_its_cause_and_all_add_up_to_the_stores_own_count() -> None:
    world = World()
    own = OwnCount(world.memory)
    store = CountingStore(own, world.clock)

    def grown(of: Callable[[], object]) -> set[str]:
        before = store.snapshot()
        of()
        now = store.snapshot()
        added = [(each.requests, each.sent_bytes, each.received_bytes) for each in now.by_cause.values()]
        assert tuple(map(sum, zip(*added, strict=True))) == (
            own.counts["requests"],
            own.counts["sent"],
            own.counts["received"],
        )
        return {str(cause) for cause in (now - before).by_cause}

    with world.open(store) as catalog:
        with catalog.open_node(NODE) as writer:
            writer.open_streams([STREAM])
            uploads = grown(lambda: [world.upload(writer, {STREAM: (at, at + 1)}) for at in range(6)])
        images = catalog.images()
        with ReadAccelerator(images, store, system=world.system) as accelerator:
            world.wait(60)
            assert grown(accelerator.refresh) <= {"refresh", "follow", "probe"}
            assert "lookup" in grown(lambda: accelerator.get_objects(STREAM, 0, limit=2))
            assert "data" in grown(lambda: list(accelerator.read(STREAM, 0, 2)))
            assert accelerator.stats().bill.by_cause.keys() >= {"lookup", "data"}
        world.wait(7200)
        assert "hints" in grown(lambda: build_hints(catalog, plan_hints(catalog, HintChoice())))
        compaction = grown(lambda: compact(catalog, plan_compaction(catalog, SETTINGS)))
        world.wait(86_400 * 5)
        gc = grown(lambda: collect(catalog, plan_collection(catalog)))
    assert "upload" in uploads
    assert compaction == {"compaction"}
    assert gc == {"gc"}


def test_a_streams_requests_are_told_as_history_writes_and_reads() -> None:
    store = CountingStore(MemoryStore())
    with accel.connect(store, create=True) as streams:
        streams.create_scope("shop")
        streams.create_stream("shop", "orders")
        before = store.snapshot()
        with streams.writer("shop", "orders") as writer:
            writer.write(b"an event", key="a")
        written = (store.snapshot() - before).by_cause
        before = store.snapshot()
        with streams.reader("shop", "orders") as reader:
            assert next(reader).payload == b"an event"
        read = (store.snapshot() - before).by_cause
    assert written[RequestCause.STREAM_WRITE].sent_bytes > 0
    assert read[RequestCause.STREAM_READ].received_bytes > 0
    assert store.snapshot().by_cause[RequestCause.HISTORY].requests > 0


def test_a_month_costs_what_the_present_rate_costs() -> None:
    clock = Clock()
    store = CountingStore(MemoryStore(), clock)
    store.put("a", b"12345")
    assert store.bill().month_price is None  # it is not known yet
    for _ in range(120):
        clock.seconds += 10
        store.get("a")
    bill = store.bill()
    assert bill.currency == "USD"
    assert bill.price == pytest.approx((120 * 0.0004 + 0.005) / 1000)
    assert 600 <= bill.rate_seconds < 700
    # a read each ten seconds; the write is too long ago
    assert bill.month_price == pytest.approx(30 * 8640 * 0.0004 / 1000, rel=0.02)
    assert bill.by_cause["upload"].month_price == 0
    assert bill.by_cause["lookup"].received_bytes == 600
    clock.seconds += 3600
    assert store.bill(Prices(per_thousand_reads=1.0)).month_price == pytest.approx(0, abs=100)
    clock.seconds += 3600
    assert store.bill().month_price == 0


def test_deletes_are_free_and_a_reset_begins_anew() -> None:
    clock = Clock()
    store = CountingStore(MemoryStore(), clock)
    for _ in range(10):
        store.delete("a")
    assert store.bill().price == 0
    store.put("a", b"")
    store.reset()
    clock.seconds += 120
    assert (store.bill().price, store.bill().month_price) == (0, 0)


def test_a_request_that_ends_with_any_exception_is_counted() -> None:
    store = CountingStore(MemoryStore())
    with pytest.raises(TypeError):
        store.put("a", "text, not bytes")  # type: ignore[arg-type]  # that is the mistake
    assert store.snapshot().total.requests == 1


@pytest.fixture
def client(scripted: ScriptedServer, aws_environment: pytest.MonkeyPatch) -> CountingStore:
    clock = Clock()

    def sleep(_: float) -> None:
        clock.seconds += 2

    aws_environment.setattr(botocore.endpoint, "time", SimpleNamespace(sleep=sleep))
    return CountingStore(S3Store("bucket", StoreSettings(endpoint_url=scripted.url, attempts=3)), clock)


def test_what_a_client_repeats_is_counted_with_its_time_and_throttling_is_named(
    client: CountingStore, scripted: ScriptedServer
) -> None:
    scripted.expect(refusal(503, "SlowDown"), HANG_UP, found(b"12345"))
    assert client.get("a").body == b"12345"
    total = client.snapshot().total
    assert (total.requests, total.failures, total.repeated, total.throttled) == (1, 0, 2, 1)
    assert total.lost_seconds == 4  # two pauses
    assert client.bill().price == pytest.approx(3 * 0.0004 / 1000)
    scripted.expect(*[refusal(503, "SlowDown")] * 3)
    with pytest.raises(StoreThrottled, match="SlowDown"):
        client.get("a")
    scripted.expect(refusal(404, "NoSuchKey"))
    with pytest.raises(KeyMissing):
        client.get("a")
    total = client.snapshot().total
    assert (total.requests, total.failures, total.repeated, total.throttled) == (3, 2, 4, 4)
    assert ("get", "StoreThrottled") in client.request_seconds()
    assert client.is_failing is False


def test_two_stores_that_count_one_request_both_know_its_repetitions(
    client: CountingStore, scripted: ScriptedServer
) -> None:
    outer = CountingStore(client)
    scripted.expect(refusal(503, "SlowDown"), found(b"12345"))
    with ThreadPoolExecutor(1) as executor:
        executor.submit(outer.get, "a").result()
    assert threading.active_count() > 0
    assert (outer.snapshot().total.repeated, client.snapshot().total.repeated) == (1, 1)
