"""What is closed says so with an error of ours: afterwards, and to those who are at work just then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from threading import Thread
from typing import Any

import pytest

from accel import AsyncReadAccelerator, ReadAccelerator, StaticImages
from accel.catalog import ObjectCatalog
from accel.errors import AccelError, Closed, NoThread
from accel.image import ObjectRef
from loaders.store import MemoryStore, ObjectStore
from loaders.tables import FormatRecord
from loaders.threads import DaemonThreads, Threads
from tests.accel.lookup.cluster import NODE, STREAM, accelerator, line_image, line_store
from tests.processes.children import Held

CALLS: dict[str, Callable[[ReadAccelerator], object]] = {
    "get_objects": lambda one: one.get_objects(STREAM, 0, 30),
    "explain": lambda one: one.explain(STREAM, 0, 30),
    "fetch": lambda one: one.fetch(STREAM, 0, 30, timeout_seconds=0),
    "read": lambda one: list(one.read(STREAM, 0, 30)),
    "warm": lambda one: one.warm(),
    "refresh": lambda one: one.refresh(),
    "replace_image": lambda one: one.replace_image(line_image([0, 1], version=1)),
    "object_committed": lambda one: one.object_committed(NODE, ObjectRef(0), {STREAM: (0, 10)}),
    "add_hints": lambda one: one.add_hints(NODE, STREAM, [(0, 10, 0)]),
    "image_version": lambda one: one.image_version,
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("is_warm", [False, True])
def test_a_closed_accelerator_refuses_each_call(name: str, *, is_warm: bool) -> None:
    with accelerator(line_store(3), line_image([0, 1, 2])) as one:
        if is_warm:
            one.get_objects(STREAM, 0, 30)
    with pytest.raises(Closed, match="accelerator that is open"):
        CALLS[name](one)
    one.close()
    assert one.stats().lookups.lookups == int(is_warm)


ASYNC_CALLS: dict[str, Callable[[AsyncReadAccelerator], Coroutine[Any, Any, object]]] = {
    "get_objects": lambda one: one.get_objects(STREAM, 0, 30),
    "explain": lambda one: one.explain(STREAM, 0, 30),
    "fetch": lambda one: one.fetch(STREAM, 0, 30, timeout_seconds=0),
    "read": lambda one: anext(one.read(STREAM, 0, 30)),
    "warm": lambda one: one.warm(),
}


@pytest.mark.parametrize("name", ASYNC_CALLS)
def test_a_closed_asynchronous_accelerator_refuses_each_call(name: str) -> None:
    async def run() -> None:
        async with AsyncReadAccelerator(StaticImages(line_image([0, 1, 2])), line_store(3)) as one:
            pass
        with pytest.raises(Closed):
            await ASYNC_CALLS[name](one)

    asyncio.run(run())


def outcome(act: Callable[[], object], told: list[object]) -> None:
    """Append what something gives, or raises."""
    try:
        told.append(act())
    except BaseException as error:  # noqa: BLE001 - whatever it is, the test wants to see it
        told.append(error)


@pytest.mark.parametrize("name", ["get_objects", "fetch", "read"])
def test_who_is_loading_when_it_is_closed_gets_an_error_of_ours_or_the_answer(name: str) -> None:
    store = Held(line_store(64))
    one = accelerator(store, line_image(list(range(64))), policy="window:1", use_hints=False)
    told: list[object] = []
    asking = [
        Thread(target=outcome, args=(lambda: CALLS[name](one), told)),
        Thread(target=outcome, args=(lambda: one.get_objects(STREAM, 0, 640, limit=64), told)),
    ]
    for each in asking:
        each.start()
    store.begun.wait()
    closing = Thread(target=one.close)
    closing.start()
    with suppress(Closed):  # it says so before it waits for what is under way
        while one.image_version is not None:
            pass
    store.may_go_on.set()
    for each in (*asking, closing):
        each.join()
    assert [type(each) for each in told] == [Closed, Closed]


def test_who_is_waiting_on_a_loop_when_it_is_closed_gets_an_error_of_ours() -> None:
    store = Held(line_store(64))

    async def run() -> list[object]:
        async with opened(store) as one:
            asked = [asyncio.ensure_future(one.get_objects(STREAM, 0, 640, limit=64)) for _ in range(3)]
            await asyncio.to_thread(store.begun.wait)
            closing = asyncio.ensure_future(one.close())
            await asyncio.sleep(0)
            store.may_go_on.set()
            await closing
            return await asyncio.gather(*asked, return_exceptions=True)

    assert [type(each) for each in asyncio.run(run())] == [Closed] * 3


@asynccontextmanager
async def opened(store: ObjectStore) -> AsyncIterator[AsyncReadAccelerator]:
    """An accelerator with one thread, which is closed by the test."""
    yield AsyncReadAccelerator(StaticImages(line_image(list(range(64)))), store)


CATALOG_CALLS: dict[str, Callable[[ObjectCatalog], object]] = {
    "image": lambda catalog: catalog.image(),
    "refresh": lambda catalog: catalog.refresh(),
    "refresh_state": lambda catalog: catalog.refresh_state(),
    "images": lambda catalog: catalog.images(),
    "stream_end": lambda catalog: catalog.stream_end(1),
    "open_node": lambda catalog: catalog.open_node(4),
    "prepare": lambda catalog: catalog.prepare(4, 1),
    "discard": lambda catalog: catalog.discard(4, [0]),
    "close_streams": lambda catalog: catalog.close_streams([1]),
    "trim": lambda catalog: catalog.trim({1: 0}),
    "parts": lambda catalog: catalog.parts,
}


@pytest.mark.parametrize("name", CATALOG_CALLS)
def test_a_closed_catalog_refuses_each_call(name: str) -> None:
    store = MemoryStore()
    ObjectCatalog.init(store, FormatRecord(namespace="shop", stream_buckets=2))
    with ObjectCatalog.open(store) as catalog:
        catalog.refresh()
    with pytest.raises(Closed, match="catalog that is open"):
        CATALOG_CALLS[name](catalog)
    assert catalog.format.namespace == "shop"
    catalog.close()


def test_sessions_and_sources_of_a_closed_catalog_say_so() -> None:
    store = MemoryStore()
    ObjectCatalog.init(store, FormatRecord(namespace="shop", stream_buckets=2))
    with ObjectCatalog.open(store) as catalog:
        source = catalog.images()
        writer = catalog.open_node(4)
    for ask in (writer.prepare, writer.checkpoint, lambda: writer.open_streams([1]), lambda: source.wait_newer(0, 0)):
        with pytest.raises(Closed):
            ask()


def test_a_catalog_that_is_closed_while_it_refreshes_ends_with_an_error_of_ours_or_the_image() -> None:
    memory = MemoryStore()
    ObjectCatalog.init(memory, FormatRecord(namespace="shop", stream_buckets=2))
    store = Held(memory)
    store.may_go_on.set()
    catalog = ObjectCatalog.open(store)
    store.may_go_on.clear()
    store.begun.clear()
    told: list[object] = []
    asking = Thread(target=outcome, args=(catalog.refresh, told))
    asking.start()
    store.begun.wait()
    closing = Thread(target=catalog.close)
    closing.start()
    store.may_go_on.set()
    asking.join()
    closing.join()
    assert not isinstance(told[0], Exception) or isinstance(told[0], AccelError)


def test_threads_that_end_say_so_and_what_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = Threads(1, "some")
    assert threads.submit(max, 1, 2).result() == 2
    threads.shutdown()
    with pytest.raises(Closed, match="'some'"):
        threads.submit(max, 1, 2)
    others = Threads(1, "others")

    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("loaders.threads.start_thread", DaemonThreads())
    monkeypatch.setattr(Thread, "start", refuse)
    with pytest.raises(NoThread, match="limit"):
        others.submit(max, 1, 2)
