"""Looking at an object changes nothing: members, doubles, copies and comparisons, as debuggers and tests make them."""

from __future__ import annotations

import asyncio
import copy
import gc
import inspect
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Any
from unittest import mock

import pytest

import accel
from accel import AsyncReadAccelerator
from accel.errors import CatalogMissing, Closed, WrongProcess
from accel.streams.shared.owners import OwnersTable
from loaders.store import MemoryStore

SECONDS = 60.0


class Counted:
    """A store that counts writes. Threads: any."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not name.startswith(("put", "delete")):
            return found

        def write(*arguments: Any, **options: Any) -> Any:
            self.writes += 1
            return found(*arguments, **options)

        return write


@pytest.fixture
def store() -> Any:
    made = Counted(MemoryStore())
    with accel.connect(made, create=True) as streams:
        streams.create_scope("shop")
        streams.create_stream("shop", "orders", segments=1)
        streams.writer("shop", "orders").write(b"an order", key="anna").result(SECONDS)
    return made


def begun(before: set[threading.Thread]) -> list[str]:
    """The threads that work and did not before, once those whose work has just ended are idle."""

    def new() -> list[threading.Thread]:
        return [each for each in threading.enumerate() if each not in before and each.name != "accel-idle"]

    for _ in range(1_000):
        if new():
            threading.Event().wait(0.01)
    return [each.name for each in new()]


def copied(opened: object) -> object:
    with suppress(WrongProcess):  # as for `pickle`
        return copy.copy(opened)
    return None


LOOKS: dict[str, Callable[[Any], object]] = {
    "members": inspect.getmembers,
    "names": dir,
    "text": repr,
    "double": lambda opened: mock.Mock(spec=opened),
    "specified double": mock.create_autospec,
    "copy": copied,
    "truth": bool,
    "equal": lambda opened: opened == opened,  # noqa: PLR0124 - that is what is looked at
    "unequal": lambda opened: opened == object(),
    "hash": hash,
}


def fresh(store: Any) -> Iterator[Any]:
    yield accel.connect(store)
    yield accel.connect(store, create=True, node_id=1)
    yield accel.connect(store, listen="127.0.0.1:0", secret="x" * 20)
    for create in (False, True):
        yield accel.connect(Counted(MemoryStore()), create=create)


def opened(store: Any) -> Iterator[Any]:
    with accel.connect(store) as streams:
        yield streams
        writer = streams.writer("shop", "orders")
        future = writer.write(b"an order", key="anna")
        writer.flush()
        yield from (streams, writer, future)
        yield from (streams.host(), streams.segments(), streams.registration())
        reader = streams.reader("shop", "orders")
        yield from (reader, next(reader), streams.reader("shop", "orders").next_batch())
        yield from (streams.stream("shop", "orders"), streams.group("shop", "orders", "billing"))
        yield streams.group_reader("shop", "orders", "billing", "one")
        yield from (streams.catalog, streams.accelerator, streams.stream_store, streams.catalog.images())
        yield from (streams.catalog.open_node(70), OwnersTable(streams.catalog), accel.Settings())
        yield AsyncReadAccelerator(streams.catalog.images(), store)


async def opened_for_tasks(store: Any, look: Callable[[Any], None]) -> None:
    async with accel.connect(store) as streams:
        look(streams)
        look(streams.writer("shop", "orders"))
        async with streams.writer("shop", "orders") as writer, streams.reader("shop", "orders") as reader:
            look(writer)
            look(reader)
            look(await streams.group_reader("shop", "orders", "billing", "two"))


def test_a_look_writes_nothing_starts_nothing_and_raises_nothing(store: Any) -> None:
    def look(each: Any) -> None:
        inner: Any = each.store if isinstance(each, accel.Connection) else store
        before, threads = (store.writes, inner.writes), set(threading.enumerate())
        for name, take in LOOKS.items():
            take(each)
            assert (store.writes, inner.writes) == before, (name, each)
            assert not begun(threads), (name, each)

    for each in chain(fresh(store), opened(store)):
        look(each)
    asyncio.run(opened_for_tasks(store, look))
    gc.collect()


def test_a_look_at_a_closed_connection_says_that_it_is_closed(store: Any) -> None:
    streams = accel.connect(store)
    streams.close()
    with pytest.raises(Closed):
        inspect.getmembers(streams)
    assert repr(streams)


def test_a_catalog_that_is_missing_is_an_attribute_that_is_missing_until_a_call_makes_it() -> None:
    store = Counted(MemoryStore())
    streams = accel.connect(store, create=True)
    assert not hasattr(streams, "catalog")
    with pytest.raises(CatalogMissing):
        _ = streams.stream_store
    assert store.writes == 0
    streams.create_scope("shop")
    assert streams.catalog.format.namespace == "accel"
    streams.close()


def test_objects_that_belong_to_a_process_refuse_in_words_to_be_pickled(store: Any) -> None:
    for each in chain(fresh(store), opened(store)):
        with suppress(WrongProcess):
            assert pickle.dumps(each)
