"""Looking at objects: whoever stops half-way is not held up by what is still being opened."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from accel.catalog import CatalogSettings
from accel.catalog.parts import open_each
from loaders.object_index import OpenedObject
from loaders.store.decorated import DecoratedStore, StoreCall
from tests.world import World

Reply = TypeVar("Reply")


class _Stuck(DecoratedStore):
    """All requests but the first wait until they are let go."""

    def __init__(self, world: World) -> None:
        super().__init__(world.store)
        self.gate = threading.Event()
        self.waiting = threading.Event()
        self._calls = 0

    def _around(self, call: StoreCall, send: Callable[[], Reply]) -> Reply:
        self._calls += 1
        if self._calls > 1:
            self.waiting.set()
            assert self.gate.wait(60), call
        return send()


def test_closing_does_not_wait_for_what_is_under_way() -> None:
    world = World(settings=CatalogSettings(parallel_requests=2))
    refs = [world.put(object_id, [(1, object_id, object_id + 1)])[0] for object_id in range(2)]
    with world.open() as catalog:
        stuck = _Stuck(world)
        opened = open_each(replace(catalog.parts, store=stuck), ((4, ref) for ref in refs))
        assert isinstance(next(opened)[1], OpenedObject)
        closing = threading.Thread(target=opened.close)  # type: ignore[attr-defined]  # it is a generator
        closing.start()
        closing.join(30)
        was_held_up = closing.is_alive()
        stuck.gate.set()
        closing.join(30)
    assert not was_held_up
