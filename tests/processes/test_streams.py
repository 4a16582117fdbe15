"""Writers and readers of streams in a forked process: those of its parent refuse, its own work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import accel
from accel import (
    AsyncGroupReader,
    AsyncStreamReader,
    AsyncStreamWriter,
    GroupReader,
    ObjectSegmentSource,
    ReaderGroup,
    StreamReader,
    connect,
)
from accel.errors import Closed, WrongProcess
from accel.history.store import StreamStore
from accel.streams.acknowledgements import WriteFuture
from accel.streams.segments_host import ObjectSegments
from accel.streams.uploads import TransactionName
from accel.streams.writer import StreamWriter
from loaders.store import MemoryStore
from tests.accel.streams.reader.streams import Shop, shop
from tests.processes.children import every_lock_held, in_child

STREAM = ("shop", "orders")
NO_IDS = np.array([], dtype=np.int64)


@pytest.fixture
def orders() -> Iterator[Shop]:
    """A stream with some events."""
    with shop(MemoryStore()) as made:
        with StreamWriter(made.stream, made.host) as writer:
            made.write(writer, 6)
        yield made


def source_of(orders: Shop) -> ObjectSegmentSource:
    """Where readers get the events from."""
    return ObjectSegmentSource(orders.stream, orders.accelerator, orders.store)


HOST_CALLS: dict[str, Callable[[Shop], object]] = {
    "append": lambda orders: orders.host.append(STREAM, 0, [b"x"]),
    "open_segments": lambda orders: orders.host.open_segments(STREAM, [0]),
    "flush": lambda orders: orders.host.flush(),
    "info": lambda orders: orders.host.info(STREAM, 0),
    "create": lambda orders: orders.host.create(STREAM, orders.stream.active_segments(), {}),
    "seal": lambda orders: orders.host.seal(STREAM, NO_IDS),
    "tails": lambda orders: orders.host.tails(STREAM, NO_IDS),
    "truncate": lambda orders: orders.host.truncate(STREAM, orders.stream.head()),
    "delete": lambda orders: orders.host.delete(STREAM, NO_IDS),
    "merge": lambda orders: orders.host.merge(STREAM, NO_IDS, []),
    "abort": lambda orders: orders.host.abort(STREAM, orders.stream.unique_id),
    "drop_transaction": lambda orders: orders.host.drop_transaction(
        TransactionName(orders.stream.unique_id, orders.stream.unique_id)
    ),
}


@pytest.mark.parametrize("name", HOST_CALLS)
def test_segments_refuse_each_call_in_a_child_before_they_take_a_lock(orders: Shop, name: str) -> None:
    with every_lock_held(orders.host, orders.catalog, orders.stream) as held:
        assert held > 5
        with pytest.raises(WrongProcess, match="segments of node"):
            in_child(lambda: HOST_CALLS[name](orders))
    orders.host.flush()


@pytest.mark.parametrize("name", HOST_CALLS)
def test_segments_that_are_closed_refuse_each_call(orders: Shop, name: str) -> None:
    orders.host.close()
    with pytest.raises(Closed):
        HOST_CALLS[name](orders)


def test_a_child_cannot_close_the_segments_of_its_parent(orders: Shop) -> None:
    with every_lock_held(orders.host):
        with pytest.raises(WrongProcess):
            in_child(orders.host.close)
        assert in_child(orders.host.stop) is None
    with StreamWriter(orders.stream, orders.host) as writer:
        orders.write(writer, 2)


def refused(*calls: Callable[[], object], match: str | None = None) -> None:
    """Each of these is refused in a child."""
    for call in calls:
        with pytest.raises(WrongProcess, match=match):
            in_child(call)


def in_loop(call: Callable[[], Coroutine[Any, Any, object]]) -> Callable[[], object]:
    """Await something in an event loop of its own, as a child does."""
    return lambda: asyncio.new_event_loop().run_until_complete(call())


def calls_of(writer: Any) -> tuple[Callable[[], Any], ...]:
    """The calls of a writer, or of one for tasks."""
    one, many = (b"1:x", b"1"), [(b"1:x", b"1")]
    return (
        lambda: writer.write(*one),
        lambda: writer.write_many(many),
        writer.flush,
        writer.begin_transaction,
        writer.close,
    )


def test_a_writer_refuses_each_call_in_a_child(orders: Shop) -> None:
    with StreamWriter(orders.stream, orders.host) as writer:
        with every_lock_held(writer):
            refused(*calls_of(writer), match="writer of shop/orders")
        orders.write(writer, 1)


def test_an_asynchronous_writer_refuses_each_call_in_a_child_and_goes_on_here(orders: Shop) -> None:
    async def run() -> None:
        async with AsyncStreamWriter(orders.stream, orders.host) as writer:
            for call in calls_of(writer):
                refused(in_loop(call))
                assert await (await writer.write(b"x", "key")) is not None

    asyncio.run(run())


def test_one_that_was_never_asked_for_anything_opens_nothing_in_a_child(orders: Shop) -> None:
    writer = AsyncStreamWriter(orders.stream, orders.host)
    refused(in_loop(lambda: writer.write(b"x", "key")), match="segments of node")


def test_an_event_that_is_on_its_way_is_not_waited_for_in_a_child(orders: Shop) -> None:
    with StreamWriter(orders.stream, orders.host) as writer:
        with orders.host.commits._lock:  # nothing becomes durable meanwhile
            future = WriteFuture(orders.host.commits.acks)
            refused(future.result, future.exception, lambda: future.add_done_callback(print))
        assert writer.write(b"1:x", "key 1").result() is not None


def test_readers_refuse_in_a_child_and_a_new_one_over_the_same_source_reads(orders: Shop) -> None:
    source = source_of(orders)
    with StreamReader(orders.stream, source) as reader:
        first = next(reader)
        with every_lock_held(reader, source):
            refused(lambda: next(reader), reader.next_batch, reader.skip_to_head, match="reader of shop/orders")

        def read_anew() -> list[bytes]:
            with StreamReader(orders.stream, source) as own:
                return sorted(each.payload for each in own)

        with every_lock_held(source, orders.stream, orders.store):
            anew = in_child(read_anew)
        rest = list(reader)
        assert anew == sorted(each.payload for each in (first, *rest))
    assert len(rest) == 5


def test_a_child_does_not_leave_a_group_in_the_name_of_its_parent(orders: Shop) -> None:
    group = ReaderGroup.open(orders.stream, "team")
    with GroupReader(orders.stream, source_of(orders), group, "a", follow=False) as reader:
        next(reader)
        refused(lambda: next(reader), reader.leave, reader.close, reader.rebalance, reader.skip_to_head)
        assert [each.name for each in group.state().readers] == ["a"]
        assert len(list(reader)) == 5


def test_asynchronous_readers_refuse_in_a_child_and_leave_no_group(orders: Shop) -> None:
    group, source = ReaderGroup.open(orders.stream, "team"), source_of(orders)

    async def run() -> None:
        async with (
            AsyncStreamReader(orders.stream, source) as alone,
            AsyncGroupReader(orders.stream, source, group, "a", follow=False) as member,
        ):
            for reader in (alone, member):
                await anext(reader)
            calls = (member.next_event, member.leave, member.close, member.commit, member.skip_to_head)
            refused(in_loop(lambda: anext(alone)), *(in_loop(call) for call in calls))
            assert [each.name for each in group.state().readers] == ["a"]
            for reader in (alone, member):
                assert len([each async for each in reader]) == 5

    asyncio.run(run())


def test_a_group_and_a_stream_go_on_in_a_child_whatever_lock_was_held(orders: Shop) -> None:
    group = ReaderGroup.open(orders.stream, "team")

    def ask() -> tuple[object, ...]:
        group.join("b")
        names = [each.name for each in group.state().readers]
        return names, dict(orders.stream.head()), len(orders.stream.active_segments())

    head = dict(orders.stream.head())
    with every_lock_held(group, orders.stream, orders.store):
        assert in_child(ask) == (["b"], head, 2)


def test_a_child_begins_no_transaction_with_an_id_of_its_parent(orders: Shop) -> None:
    streams = StreamStore.open(orders.store)
    stream = streams.stream(*STREAM)
    before = stream.transactions.begin()
    with every_lock_held(streams):
        child = in_child(stream.transactions.begin)
    assert len({before, child, streams.stream(*STREAM).transactions.begin()}) == 3


def test_the_host_of_a_child_fences_that_of_its_parent(orders: Shop) -> None:
    def write() -> int:
        with ObjectSegments(orders.catalog, orders.store, 4) as host:
            stream = StreamStore.open(orders.store, host=host).stream(*STREAM)
            with StreamWriter(stream, host) as writer:
                writer.write(b"1:child", "key 1")
            return len(list(StreamReader(stream, ObjectSegmentSource(stream, orders.accelerator, orders.store))))

    with every_lock_held(orders.host, orders.catalog, orders.accelerator):
        assert in_child(write) == 7


def test_a_reader_that_is_closed_says_so_and_one_that_is_finished_has_ended(orders: Shop) -> None:
    source = source_of(orders)
    reader = StreamReader(orders.stream, source)
    next(reader)
    reader.close()
    for ask in (lambda: next(reader), reader.next_batch):
        with pytest.raises(Closed, match="reader of shop/orders"):
            ask()
    with StreamReader(orders.stream, source) as whole:
        assert len(list(whole)) == 6
    assert whole.next_batch() is None


def test_a_connection_for_tasks_refuses_in_a_child_and_goes_on_here() -> None:
    async def run() -> None:
        async with connect(MemoryStore(), create=True) as streams:
            await streams.create_scope("shop")
            calls = (lambda: streams.create_scope("other"), lambda: streams.stream("shop", "orders"), streams.refresh)
            refused(*(in_loop(call) for call in calls))
            await streams.create_stream("shop", "orders", segments=1)
            async with streams.writer("shop", "orders") as writer:
                assert await (await writer.write(b"1", "key")) is not None

    asyncio.run(run())


VALUES = {
    "Answer", "CatalogSettings", "ConnectionSettings", "Ending", "Event", "FormatRecord", "MetadataImage", "ObjectRef",
    "ReaderSettings", "RecordBatch", "Request", "RetentionPolicy", "StoreSettings", "Settings", "StreamConfiguration",
}  # fmt: skip
REFUSE = {
    "AsyncConnection", "AsyncGroupReader", "AsyncStreamReader", "AsyncStreamWriter", "Connection", "GroupReader",
    "ObjectSegments", "StreamReader", "StreamWriter",
}  # fmt: skip
GO_ON = {
    "AsyncReadAccelerator", "ObjectCatalog", "ObjectSegmentSource", "PolledImages", "ReadAccelerator", "ReaderGroup",
    "StaticImages", "Stream", "StreamStore",
}  # fmt: skip


def test_of_each_public_class_it_is_told_what_becomes_of_it_in_a_child() -> None:
    """By this module, `test_fork` and `test_connecting`; a new class is put into one of the sets, with its test."""
    public = {name: getattr(accel, name) for name in accel.__all__}
    classes = {name for name, each in public.items() if isinstance(each, type) and not issubclass(each, Exception)}
    assert classes == VALUES | REFUSE | GO_ON
    tests = "".join((Path(__file__).parent / name).read_text() for name in ("test_fork.py", "test_streams.py"))
    told = tests.partition("VALUES = {")[0]
    assert [name for name in sorted((REFUSE | GO_ON) - {"AsyncConnection", "Connection"}) if name not in told] == []
