"""A small cluster in memory: a world's objects really written, and accelerators over them."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self, TypeVar

import pytest

from accel import AsyncReadAccelerator, MetadataImage, ReadAccelerator, Settings, StaticImages
from accel.lookup.drivers import Script
from accel.system import NONCE_SIZE_BYTES, Components
from loaders.layout import ObjectLayout
from loaders.store import CountingStore, MemoryStore, ObjectStore
from loaders.threads import start_thread
from tests.accel.lookup.driving import Clock
from tests.builders import write_set_object
from tests.models.worlds import World

T = TypeVar("T")

STREAM = 7
NODE = 1

STARTED_SECONDS = 1_800_000_000
"""Seconds since 1970 when a test's clock stands at 0."""

_numbers = itertools.count(1)  # one for the whole session: no two systems ever give the same nonce


def store_of(world: World) -> MemoryStore:
    """A store with all objects of a world, in the object format."""
    store = MemoryStore()
    for object_id, held in world.contents.items():
        rows = [(stream_id, *span) for stream_id, span in held.items()]
        put(store, object_id, rows, gaps=world.gaps[object_id])
    return store


def put(
    store: ObjectStore,
    object_id: int,
    rows: list[tuple[int, int, int]],
    *,
    gaps: dict[int, tuple[int, int]] | None = None,
) -> int:
    """Write one object; returns its size in bytes."""
    body = write_set_object(rows, gaps=gaps)
    store.put(ObjectLayout().object_key(object_id), body)
    return len(body)


def system(clock: Clock | None = None) -> Components:
    """A clock that moves when told, sleep that moves it, no chance, counted nonces; images are asked for inline."""
    clock = clock or Clock()

    def sleep(seconds: float) -> None:
        clock.seconds += seconds

    return Components(
        timer=clock,
        sleep=sleep,
        jitter=lambda: 0.5,
        clock=lambda: STARTED_SECONDS + clock.seconds,
        nonce=lambda: next(_numbers).to_bytes(NONCE_SIZE_BYTES, "big"),
        start=lambda work, name: work() if name == "accel-image" else start_thread(work, name),
    )


def image_of(
    owned: Mapping[int, tuple[int, int]],
    listed: Mapping[int, Iterable[int]],
    version: int = 0,
    *,
    sizes: Mapping[int, int] | None = None,
    own: Mapping[int, list[tuple[int, int, int]]] | None = None,
) -> MetadataImage:
    """Streams, each owned by one node up to an offset, and what nodes list.

    Args:
        owned: stream -> its node, and where the range ends.
        listed: node -> its objects, in order.
        version: of the image.
        sizes: of objects, where they are known.
        own: stream -> objects of its own: id, start, end.
    """
    streams = []
    for stream_id, (node_id, end) in owned.items():
        ranges = [{"range_index": 0, "start": 0, "end": end, "node_id": node_id}]
        objects = [
            {"object_id": each, "start": first, "end": last} for each, first, last in (own or {}).get(stream_id, [])
        ]
        streams.append({"stream_id": stream_id, "start_offset": 0, "ranges": ranges, "stream_objects": objects})
    known = {each: {"size": size} for each, size in (sizes or {}).items()}
    nodes = []
    for node_id, ids in listed.items():
        rows = [{"object_id": each, "order_id": order, **known.get(each, {})} for order, each in enumerate(ids)]
        nodes.append({"node_id": node_id, "stream_set_objects": rows})
    return MetadataImage.from_dict({"streams": streams, "nodes": nodes}, version)


def line_image(objects: list[int], version: int = 0, *, end: int = 10_000) -> MetadataImage:
    """One stream on one node, whose list is these objects."""
    return image_of({STREAM: (NODE, end)}, {NODE: objects}, version)


def line_store(count: int, *, length: int = 10) -> CountingStore:
    """Objects 0, 1, 2, ... with `length` offsets of the stream each, one after another."""
    store = MemoryStore()
    for each in range(count):
        put(store, each, [(1, each, each + 1), (STREAM, each * length, (each + 1) * length)])
    return CountingStore(store)


LOADING_THREADS = 4


def accelerator(
    store: ObjectStore,
    source: StaticImages | MetadataImage,
    clock: Clock | None = None,
    *,
    driver: Any = ReadAccelerator,
    **settings: Any,
) -> ReadAccelerator:
    """An accelerator with four threads and a clock that stands still; a busy machine makes it repeat no request."""
    return _made(driver, store, source, clock, settings)


def settled(
    store: ObjectStore, source: StaticImages | MetadataImage, clock: Clock | None = None, **settings: Any
) -> ReadAccelerator:
    """As `accelerator`; when a call ends, so have all requests that it began: they may be counted."""
    return _made(Settled, store, source, clock, settings)


def _made(
    kind: type[ReadAccelerator],
    store: ObjectStore,
    source: StaticImages | MetadataImage,
    clock: Clock | None,
    settings: dict[str, Any],
) -> ReadAccelerator:
    source = StaticImages(source) if isinstance(source, MetadataImage) else source
    chosen = Settings(**{"parallel_loads": LOADING_THREADS, "hashed_ids_max": 64, "hedge_percent": 0, **settings})
    return kind(source, store, settings=chosen, system=system(clock))


class Awaited:
    """The accelerator for asyncio behind calls that wait, so that a test of threads drives it, too.

    Each call is a task of an event loop that runs in a thread of its own.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._one = AsyncReadAccelerator(*args, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        async def closing() -> None:
            await self._one.close()
            if others := asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.wait(others, timeout=60)

        if not self._loop.is_closed():
            self.waited(closing())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def waited(self, found: Any) -> Any:
        """What was awaited, if it has to be."""
        return asyncio.run_coroutine_threadsafe(found, self._loop).result(60) if inspect.iscoroutine(found) else found

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._one, name)
        return found if not callable(found) else lambda *args, **options: self.waited(found(*args, **options))

    def read(self, *args: Any, **options: Any) -> AwaitedReading:
        return AwaitedReading(self, self._one.read(*args, **options))


class AwaitedReading:
    """A read of it."""

    def __init__(self, accelerator: Awaited, reading: Any) -> None:
        self._accelerator = accelerator
        self._reading = reading

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        async def following() -> Any:
            return await anext(self._reading, None)

        if (found := self._accelerator.waited(following())) is None:
            raise StopIteration
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reading, name)


BOTH_DRIVERS = pytest.mark.parametrize("driver", [ReadAccelerator, Awaited], ids=["threads", "asyncio"])


class Settled(ReadAccelerator):
    """Each call ends when all that it began has ended.

    A lookup does not wait for what it can do without: that is still under way when the answer is there.
    """

    def _run(self, script: Script[T]) -> T:
        try:
            return super()._run(script)
        finally:
            self.wait_idle()
