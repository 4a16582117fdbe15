"""`accel.connect`: one call gives streams, writers and readers, whose parts are opened when needed, closed together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any
from uuid import uuid4

import pytest

import accel
from accel import AsyncConnection, CatalogSettings, Connection, ConnectionSettings, Event, FormatRecord, ReaderSettings
from accel.errors import CatalogMissing, Closed, CommitRefused, InvalidArgument, OwnerUnreachable
from accel.streams.settings import SegmentsSettings
from accel.streams.shared.owners import OwnersTable
from loaders.store import CountingStore, MemoryStore, StoreSettings
from tests.servers.fixtures import Endpoint, new_bucket

FORMAT = FormatRecord(namespace="test", stream_buckets=2)
QUICK = ReaderSettings(idle_seconds=0.005, reorder_wait_seconds=0.02)
SMALL = ConnectionSettings(catalog=CatalogSettings(parallel_requests=2), segments=SegmentsSettings())
KEYS = ("anna", "carl", "dora")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def connected(store: MemoryStore | CountingStore, node_id: int | None = None) -> Connection:
    """A connection to a catalog of two buckets, which is made if it is not there."""
    return accel.connect(store, node_id=node_id, create=FORMAT, settings=SMALL)


def written(connection: Connection, *payloads: bytes) -> None:
    """Write events of three keys to a stream, made if it is not there, and close the writer."""
    connection.create_scope("shop")
    connection.create_stream("shop", "orders", segments=2)
    with connection.writer("shop", "orders") as writer:
        for at, payload in enumerate(payloads):
            writer.write(payload, key=KEYS[at % len(KEYS)])


def payloads(events: Iterator[Event]) -> list[bytes]:
    """Of all events, sorted."""
    return sorted(event.payload for event in events)


def read(connection: Connection, from_cut: Mapping[int, int] | None = None) -> list[bytes]:
    """All events of the stream."""
    with connection.reader("shop", "orders", from_cut=from_cut, settings=QUICK) as reader:
        return payloads(reader)


def stored(store: MemoryStore) -> list[bytes]:
    """What another process reads."""
    with connected(store) as streams:
        return read(streams)


async def made(streams: AsyncConnection) -> None:
    """Make the stream."""
    await streams.create_scope("shop")
    await streams.create_stream("shop", "orders", segments=2)


def test_one_call_is_enough_to_write_and_to_read() -> None:
    with accel.connect(f"memory://{uuid4().hex}/some/prefix", create=True) as streams:
        written(streams, b"1", b"2", b"3")
        assert read(streams) == [b"1", b"2", b"3"]


def test_under_asyncio_writers_and_readers_of_groups_are_closed_with_the_connection(store: MemoryStore) -> None:
    async def run() -> None:
        async with connected(store) as streams:
            await made(streams)
            await streams.writer("shop", "orders")  # nothing is ever asked of it
            writer = await streams.writer("shop", "orders")
            future = await writer.write(b"1", key="anna")
            reader = await streams.group_reader("shop", "orders", "billing", "one", settings=QUICK)
            await future
            assert (await anext(reader)).payload == b"1"
            await reader.commit()
            group = await streams.group("shop", "orders", "billing")
            assert [each.name for each in (await asyncio.to_thread(group.state)).readers] == ["one"]
            unflushed = await writer.write(b"2", key="anna")
        assert unflushed.done()
        for ended in (writer.write(b"3", key="anna"), anext(reader)):
            with pytest.raises(Closed):
                await ended

    asyncio.run(run())
    with connected(store) as streams:
        assert streams.group("shop", "orders", "billing").state().readers == ()
        assert read(streams) == [b"1", b"2"]


def test_under_asyncio_nothing_is_made_durable_after_an_error_and_groups_are_left(store: MemoryStore) -> None:
    lingering = replace(SMALL, segments=SegmentsSettings(linger_seconds=600.0))

    async def run() -> None:
        async with accel.connect(store, create=FORMAT, settings=lingering) as streams:
            await made(streams)
            reader = await streams.group_reader("shop", "orders", "billing", "one", settings=QUICK)
            assert await reader.next_batch(timeout_seconds=0.0) is None
            writer = await streams.writer("shop", "orders")
            await writer.write(b"1", key="anna")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(run())
    with connected(store) as streams:
        assert streams.group("shop", "orders", "billing").state().readers == ()
        assert read(streams) == []


# What is opened, and when


def test_connecting_sends_nothing_and_a_reader_opens_no_session(store: MemoryStore) -> None:
    with connected(store) as streams:
        written(streams, b"1")
    counting = CountingStore(store)
    streams = accel.connect(counting, settings=SMALL)
    assert counting.reset().total.requests == 0
    with streams:
        assert read(streams) == [b"1"]
    assert {name for name in counting.snapshot().by_operation if name.startswith("put")} == set()


def test_entering_is_one_request(store: MemoryStore) -> None:
    with connected(store):
        pass
    counting = CountingStore(store)
    with accel.connect(counting, settings=SMALL):
        assert counting.reset().total.requests == 1


def test_threads_that_ask_for_a_part_at_once_share_it(store: MemoryStore) -> None:
    begun = Barrier(4)
    with connected(store) as streams, ThreadPoolExecutor(4) as threads:

        def asked(_: int) -> object:
            begun.wait(timeout=30)
            return streams.host()

        assert len(set(map(id, threads.map(asked, range(4))))) == 1


def test_the_parts_are_at_hand(store: MemoryStore) -> None:
    with connected(store, node_id=7) as streams:
        written(streams, b"1")
        assert streams.store is store
        assert streams.node_id() == 7
        assert streams.catalog.format.namespace == "test"
        assert list(streams.stream_store.streams("shop")) == ["orders"]
        assert streams.host().waiting_bytes == 0
        stream = streams.stream("shop", "orders")
        tail = streams.host().tails(("shop", "orders"), stream.active_segments().ids)
        assert sum(tail.values()) == 1
        assert len(streams.accelerator.get_objects(stream.segment_stream(0), 0, 1).objects) <= 1
        assert streams.registration().owner.node_id == 7


# Node ids


def test_a_node_id_is_drawn_for_each_process_that_writes(store: MemoryStore) -> None:
    with connected(store) as one, connected(store) as other:
        _ = one.host(), other.host()
        assert one.node_id() != other.node_id()
        one.host().flush()  # is not fenced


def test_a_drawn_node_id_is_used_again_by_those_who_come_later(store: MemoryStore) -> None:
    drawn = set()
    for _ in range(3):
        with connected(store) as streams:
            written(streams, b"1")
            drawn.add(streams.node_id())
    assert len(drawn) == 1
    with connected(store) as streams:
        assert len(OwnersTable(streams.catalog).owners()) == 1


# Workflows


def test_a_stream_is_scaled_by_the_session_that_is_opened_for_it(store: MemoryStore) -> None:
    with connected(store) as streams:
        streams.create_scope("shop")
        stream = streams.create_stream("shop", "orders")
        assert stream.scale([0], [(0.0, 0.5), (0.5, 1.0)]).epoch == 1
        written(streams, b"1", b"2")
        stream.truncate(stream.segments_at(stream.current_epoch().creation_time_ms))
        stream.seal()
        streams.stream_store.delete_stream("shop", "orders")
        assert list(streams.stream_store.streams("shop")) == []


# Several processes that write one stream

SECRET = "a secret of the shop"  # noqa: S105 - of tests


def test_processes_share_a_stream_and_each_writes_all_keys(store: MemoryStore) -> None:
    with accel.connect(store, create=FORMAT, listen="127.0.0.1:0", secret=SECRET, settings=SMALL) as one:
        written(one, b"1", b"2", b"3")
        address = one.registration().owner.address
        with accel.connect(store, owners=[address], secret=SECRET, settings=SMALL) as other:
            written(other, b"4", b"5", b"6")
            with other.writer("shop", "orders") as writer:
                assert writer.write(b"7", key="anna").result() is not None
            stream = other.stream("shop", "orders")
            assert stream.merge(*stream.active_segments().ids.tolist()).epoch == 1
            written(other, b"8")
        assert read(one) == [b"%d" % at for at in range(1, 9)]


def test_an_owner_that_cannot_be_asked_is_named_and_its_segments_are_taken_over_when_it_has_ended(
    store: MemoryStore,
) -> None:
    with connected(store) as one:
        written(one, b"1")
        with connected(store) as other:
            writer = other.writer("shop", "orders")
            future = writer.write(b"2", key="anna")
            with pytest.raises(OwnerUnreachable, match=f"node {one.node_id()} without an address"):
                writer.flush()
            assert not future.done()
            one.close()
            assert future.result() is not None
    assert stored(store) == [b"1", b"2"]


def test_an_application_of_the_connection_takes_events(store: MemoryStore) -> None:
    with accel.connect(store, create=FORMAT, address="http://one", secret=SECRET, settings=SMALL) as one:
        written(one)
        one.host().open_segments(("shop", "orders"), [0])
        assert one.registration().owner.address == "http://one"
        assert [route.path for route in one.forwarding_app().routes] == ["/accel/append", "/accel/carry-out"]  # type: ignore[attr-defined]  # they are routes with paths


def test_secrets_come_from_arguments_files_and_the_environment(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ACCEL_FORWARDING_SECRET", "ACCEL_FORWARDING_SECRET_FILE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InvalidArgument, match="ACCEL_FORWARDING_SECRET"):
        accel.connect(store, owners=["http://one"])
    path = tmp_path / "secret"
    path.write_text(f"{SECRET}\n")
    accel.connect(store, owners=["http://one"], secret=path)
    monkeypatch.setenv("ACCEL_FORWARDING_SECRET_FILE", str(path))
    accel.connect(store, owners=["http://one"])
    monkeypatch.setenv("ACCEL_FORWARDING_SECRET", "short")
    with pytest.raises(InvalidArgument, match="16 characters"):
        accel.connect(store, owners=["http://one"])
    assert SECRET not in repr(accel.connect(store, owners=["http://one"], secret=SECRET))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"listen": "8080"}, "host:port"),
        ({"listen": "localhost:http"}, "host:port"),
        ({"listen": "0.0.0.0:8080"}, "by which others reach"),
        ({"address": "one:8080"}, "expected an address"),
        ({"owners": ["http://one/path"]}, "expected an address"),
    ],
)
def test_what_nobody_could_reach_is_refused(store: MemoryStore, options: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidArgument, match=expected):
        accel.connect(store, secret=SECRET, **options)


# Where there is no catalog


def test_no_catalog_is_made_unless_it_is_asked_for(store: MemoryStore) -> None:
    with pytest.raises(CatalogMissing), accel.connect(store):
        pass
    with accel.connect(store, create=True) as streams:
        assert streams.catalog.format.namespace == "accel"
    with accel.connect(store) as streams:
        assert streams.catalog.format.namespace == "accel"


def test_any_catalog_will_do_unless_one_is_named(store: MemoryStore) -> None:
    with connected(store):
        pass
    with accel.connect(store, create=True) as streams:
        assert streams.catalog.format.namespace == "test"
    with pytest.raises(CommitRefused), accel.connect(store, create=FormatRecord(namespace="other", stream_buckets=2)):
        pass


# The end


def test_what_was_given_out_is_closed_with_the_connection(store: MemoryStore) -> None:
    with connected(store) as streams:
        written(streams)
        writer = streams.writer("shop", "orders")
        writer.write(b"1", key="anna")
        reader = streams.reader("shop", "orders", follow=True, settings=QUICK)
    for ended in (lambda: writer.write(b"2", key="anna"), reader.next_batch, lambda: streams.catalog):
        with pytest.raises(Closed):
            ended()
    assert stored(store) == [b"1"]
    streams.close()  # does nothing a second time


def test_after_an_error_nothing_is_made_durable(store: MemoryStore) -> None:
    def fail() -> None:
        with connected(store) as streams:
            written(streams)
            writer = streams.writer("shop", "orders")
            writer.write(b"1", key="anna")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert stored(store) == []


def test_it_connects_to_an_endpoint(moto_endpoint: Endpoint, aws_environment: pytest.MonkeyPatch) -> None:  # noqa: ARG001 - sets credentials
    url = f"s3://{new_bucket(moto_endpoint.client)}/some/prefix"
    with accel.connect(url, create=FORMAT, s3=StoreSettings(endpoint_url=moto_endpoint.url)) as streams:
        written(streams, b"1", b"2")
        assert read(streams) == [b"1", b"2"]
