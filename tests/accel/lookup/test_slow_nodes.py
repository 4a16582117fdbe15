"""A node whose requests hang: lookups and reads of other nodes do not wait for its threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from accel import MetadataImage, ReadAccelerator, Settings, StaticImages
from accel.errors import AccelError
from loaders.layout import ObjectLayout
from loaders.shared_loads import SharedChunks
from loaders.store import MemoryStore
from loaders.store.decorated import Answer, DecoratedStore, StoreCall
from tests.accel.lookup.cluster import BOTH_DRIVERS, image_of, put, system
from tests.accel.lookup.driving import Clock

SLOW, QUICK, OWN = 4, 6, 8
"""Streams: of the node that hangs, of another node, and one with objects of its own only. Nodes have the same ids."""

OBJECTS = 40
LAYOUT = ObjectLayout()
THREADS = 4


class HungStore(DecoratedStore):
    """Reads of the objects of one node hang until `go` is set."""

    def __init__(self, store: MemoryStore, hung: frozenset[str]) -> None:
        super().__init__(store)
        self.hung = hung
        self.go = threading.Event()
        self.hanging = threading.Semaphore(0)

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        if call.key in self.hung:
            self.hanging.release()
            assert self.go.wait(60)
        return send()


def cluster() -> tuple[HungStore, MetadataImage]:
    store = MemoryStore()
    listed = {node_id: range(100 * at, 100 * at + OBJECTS) for at, node_id in enumerate((SLOW, QUICK))}
    own = [(500 + at, 10 * at, 10 * at + 10) for at in range(OBJECTS)]
    for node_id, ids in listed.items():
        for order, object_id in enumerate(ids):
            put(store, object_id, [(node_id, 10 * order, 10 * order + 10)])
    for object_id, start, end in own:
        put(store, object_id, [(OWN, start, end)])
    owned = {SLOW: (SLOW, -1), QUICK: (QUICK, -1), OWN: (QUICK, -1)}
    hung = frozenset(LAYOUT.object_key(object_id) for object_id in range(OBJECTS))
    return HungStore(store, hung), image_of(owned, listed, own={OWN: own})


SETTINGS = Settings(parallel_loads=THREADS, hedge_percent=0, use_hints=False)


@contextmanager
def hung(ask: Callable[[ReadAccelerator, int], object], driver: Any) -> Iterator[ReadAccelerator]:
    """An accelerator all of whose threads hang in requests to one node, for a time that makes them slow."""
    store, image = cluster()
    clock = Clock()
    one = driver(StaticImages(image), store, settings=SETTINGS, system=system(clock))
    with ThreadPoolExecutor(THREADS) as callers:
        try:
            asked = [callers.submit(ask, one, number) for number in range(THREADS)]
            for _ in range(THREADS):
                assert store.hanging.acquire(timeout=60)
            clock.seconds = SETTINGS.max_wait_load_seconds
            yield one
            assert not any(each.done() for each in asked)
        finally:
            store.go.set()
            one.close()
    assert [each for each in asked if not isinstance(each.exception(), AccelError | None)] == []


def look_up(one: ReadAccelerator, number: int) -> object:
    return one.get_objects(SLOW, 97 * number, limit=100)


def read(one: ReadAccelerator, number: int) -> object:
    return list(one.read(SLOW, 97 * number))


@BOTH_DRIVERS
@pytest.mark.parametrize("ask", [look_up, read])
def test_a_node_that_hangs_leaves_lookups_and_reads_of_others_their_threads(
    ask: Callable[[ReadAccelerator, int], object], driver: Any
) -> None:
    with hung(ask, driver) as one:
        answer = one.get_objects(QUICK, 205, 225)
        assert [each.object_id for each in answer.objects] == [120, 121, 122]
        assert [batch.base_offset for batch in one.read(QUICK, 300, 330)] == [300, 310, 320]
        assert [batch.base_offset for batch in one.read(OWN, 0, 400)] == list(range(0, 400, 10))
        assert len(one.places(one.get_objects(QUICK, 0, 40, limit=9))) == 4


def test_chunks_of_reads_are_fetched_in_the_share_of_their_node() -> None:
    store, image = cluster()
    clock, chunks = Clock(), SharedChunks(store)
    with ThreadPoolExecutor(1) as caller:
        one = ReadAccelerator(StaticImages(image), store, settings=SETTINGS, system=system(clock))
        store.hung = frozenset()
        assert len(one.get_objects(SLOW, 0, limit=OBJECTS).objects) == OBJECTS  # the objects' indexes are known
        store.hung = frozenset(LAYOUT.object_key(object_id) for object_id in range(OBJECTS))
        asked = caller.submit(lambda: list(one.read(SLOW, 0, 400, ranges=chunks)))
        for _ in range(THREADS // 2):  # each of these is waited for by a further call
            assert store.hanging.acquire(timeout=60)
        clock.seconds = SETTINGS.max_wait_load_seconds
        assert len(list(one.read(QUICK, 0, 400, ranges=chunks))) == OBJECTS
        assert not asked.done()
        store.go.set()
        assert len(asked.result(60)) == OBJECTS
        one.close()
