"""Positions beyond the end of a segment: readers, groups and truncations refuse them, and name the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import product

import pytest

import accel
from accel.errors import PositionBeyondEnd
from accel.history.rules.values import IdMap
from accel.streams.connection import Connection
from accel.streams.groups import ReaderGroup
from loaders.store import MemoryStore

WRITTEN = 10


class Orders:
    """A stream of one segment with some events.

    Attributes:
        streams: the connection that wrote them.
        stream: the stream.
    """

    def __init__(self, streams: Connection) -> None:
        self.streams = streams
        streams.create_scope("shop")
        self.stream = streams.create_stream("shop", "orders", segments=1)
        self.writer = streams.writer("shop", "orders")
        self.write(WRITTEN)

    def write(self, count: int) -> None:
        """Write events, and let readers of this connection see them."""
        for _ in range(count):
            self.writer.write(b"event", key="k")
        self.writer.flush()
        self.streams.accelerator.refresh()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def orders(store: MemoryStore) -> Iterator[Orders]:
    with accel.connect(store, create=True) as streams:
        yield Orders(streams)


def all_of(streams: Connection, **options: object) -> list[bytes]:
    """Events of the stream, until its present end."""
    with streams.reader("shop", "orders", **options) as reader:  # type: ignore[arg-type]  # options of a reader
        return [event.payload for event in reader]


def followed(streams: Connection, at: int) -> object:
    with streams.reader("shop", "orders", from_cut={0: at}, follow=True) as reader:
        return reader.next_batch(timeout_seconds=30)


def awaited(streams: Connection, at: int, *, follow: bool) -> object:
    async def first() -> object:
        async with streams as opened, opened.reader("shop", "orders", from_cut={0: at}, follow=follow) as reader:
            return await reader.next_batch(30)

    return asyncio.run(first())


READ: dict[str, Callable[[Connection, int], object]] = {
    "to the end": lambda streams, at: all_of(streams, from_cut={0: at}),
    "on and on": followed,
    "up to there": lambda streams, at: all_of(streams, to_cut={0: at}),
    "tasks, to the end": lambda streams, at: awaited(streams, at, follow=False),
    "tasks, on and on": lambda streams, at: awaited(streams, at, follow=True),
    "a new group": lambda streams, at: streams.group("shop", "orders", "g", from_cut={0: at}),
    "a group that moves": lambda streams, at: streams.group("shop", "orders", "g").reset({0: at}),
}


@pytest.mark.parametrize("read", READ)
def test_nothing_is_read_from_beyond_the_end(store: MemoryStore, orders: Orders, read: str) -> None:
    for is_sealed, at in product((False, True), (WRITTEN + 1, 1000)):
        if is_sealed and len(orders.stream.active_segments()) == 1:
            orders.stream.split(0)
        with accel.connect(store) as streams, pytest.raises(PositionBeyondEnd) as refused:
            READ[read](streams, at)
        assert (refused.value.segment_id, refused.value.offset, refused.value.end) == (0, at, WRITTEN)
        assert f"the end of segment 0@0, {WRITTEN}, found 0@0={at}" in str(refused.value)


@pytest.mark.parametrize("read", ["to the end", "a new group", "a group that moves", "tasks, to the end"])
def test_the_end_itself_is_a_position(store: MemoryStore, orders: Orders, read: str) -> None:
    with accel.connect(store) as streams:
        READ[read](streams, WRITTEN)
    assert all_of(orders.streams, from_cut={0: WRITTEN}) == []
    assert all_of(orders.streams, to_cut={0: WRITTEN}) == [b"event"] * WRITTEN
    orders.stream.truncate({0: WRITTEN})
    with accel.connect(store) as streams:
        READ[read](streams, WRITTEN)


def test_a_position_that_another_process_read_a_moment_ago_is_right(store: MemoryStore, orders: Orders) -> None:
    with accel.connect(store) as behind:
        assert len(all_of(behind)) == WRITTEN
        reader = behind.reader("shop", "orders", from_cut={0: WRITTEN + 5}, follow=True)
        orders.write(7)
        batch = reader.next_batch(30)
        assert batch is not None
        assert (batch.offset, len(list(batch))) == (WRITTEN + 5, 2)
        assert behind.group("shop", "orders", "g", from_cut={0: WRITTEN + 7}).position() == {0: WRITTEN + 7}


def test_a_reader_that_follows_may_end_where_the_stream_has_not_come_yet(orders: Orders) -> None:
    with orders.streams.reader("shop", "orders", to_cut={0: WRITTEN + 2}, follow=True) as reader:
        assert [next(reader).payload for _ in range(WRITTEN)] == [b"event"] * WRITTEN
        orders.write(5)
        assert len(list(reader)) == 2


def test_to_check_a_cut_opens_no_session(store: MemoryStore, orders: Orders) -> None:
    before = {info.key for info in store.list("")}
    with accel.connect(store) as streams:
        with pytest.raises(PositionBeyondEnd):
            streams.group("shop", "orders", "g", from_cut={0: 11})
        with pytest.raises(PositionBeyondEnd):
            streams.stream("shop", "orders").cuts.refuse_beyond({0: 11})
        assert streams.stream("shop", "orders").cuts.tail() == IdMap([0], [WRITTEN])
        assert {info.key for info in store.list("")} == before
    assert orders.streams.stream("shop", "orders").cuts.tail() == IdMap([0], [WRITTEN]), "and with one it says the same"


def test_the_end_of_a_segment_that_another_node_took_over_is_the_newest() -> None:
    """What a session was the last to write is no end once another node writes."""
    store = MemoryStore()
    with accel.connect(store, create=True, node_id=1) as streams:
        orders = Orders(streams)
        with accel.connect(store, node_id=2) as others:
            others.host().take_over(("shop", "orders"), {0: 1})
            with others.writer("shop", "orders") as writer:
                for _ in range(5):
                    writer.write(b"later", key="k")
        orders.stream.cuts.refuse_beyond({0: WRITTEN + 5})
        with pytest.raises(PositionBeyondEnd):
            orders.stream.cuts.refuse_beyond({0: WRITTEN + 6})
        streams.stop()


# Positions that were stored before


def restored(store: MemoryStore, kept: dict[str, bytes]) -> None:
    """Put a bucket back to an older state, except what groups of readers have stored."""
    for info in list(store.list("")):
        if "readerGroups" not in info.key and info.key not in kept:
            store.delete(info.key)
    for key, body in kept.items():
        if "readerGroups" not in key:
            store.put(key, body)


def test_the_position_of_a_group_in_a_bucket_that_was_restored_is_refused_until_the_group_is_moved() -> None:
    store = MemoryStore()
    with accel.connect(store, create=True) as streams:
        orders = Orders(streams)
        kept = {info.key: bytes(store.get(info.key).body) for info in store.list("")}
        orders.write(7)
        with streams.group_reader("shop", "orders", "g", "one", follow=False) as reader:
            assert len(list(reader)) == WRITTEN + 7
        streams.stop()
    restored(store, kept)
    with accel.connect(store) as streams:
        reader = streams.group_reader("shop", "orders", "g", "two")
        with pytest.raises(PositionBeyondEnd, match=r"end of segment 0@0, 10, found 0@0=17"):
            reader.next_batch(30)
        reader.close()
        group = ReaderGroup.open(streams.stream("shop", "orders"), "g")
        assert group.behind() == 0
        group.reset({0: WRITTEN})
        with streams.group_reader("shop", "orders", "g", "two", follow=False) as again:
            assert list(again) == []
