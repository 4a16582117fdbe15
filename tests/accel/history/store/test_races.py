"""Somebody reads between any two calls of a workflow, and threads whose requests mix in an order of a seed."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from threading import Condition, Thread
from typing import TYPE_CHECKING, TypeVar

import pytest

from accel.errors import AccelError
from loaders.store.decorated import DecoratedStore, StoreCall
from tests.accel.history.store.workflows import WORKS
from tests.world import Watched

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loaders.store import ObjectStore

Answer = TypeVar("Answer")


class Schedule:
    """Lets one of several threads send its next request at a time, in an order that a seed decides."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._changed = Condition()
        self._waiting: set[int] = set()
        self._running = 0

    def run(self, store: ObjectStore, acts: Sequence[Callable[[ObjectStore], object]]) -> None:
        """Let all act, and wait until they are through."""
        self._running = len(acts)
        threads = [Thread(target=self._act, args=(number, store, act)) for number, act in enumerate(acts)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

    def turn(self, number: int) -> None:
        """Wait until it is a thread's turn: as soon as all others wait as well, the seed chooses one."""
        with self._changed:
            self._waiting.add(number)
            self._choose()
            self._changed.wait_for(lambda: number not in self._waiting, timeout=30)

    def _act(self, number: int, store: ObjectStore, act: Callable[[ObjectStore], object]) -> None:
        schedule = self

        class Scheduled(DecoratedStore):
            def _around(self, _: StoreCall, send: Callable[[], Answer]) -> Answer:
                schedule.turn(number)
                return send()

        with suppress(AccelError):
            act(Scheduled(store))
        with self._changed:
            self._running -= 1
            self._choose()

    def _choose(self) -> None:
        if self._waiting and len(self._waiting) == self._running:
            self._waiting.discard(self._random.choice(sorted(self._waiting)))
            self._changed.notify_all()


@pytest.mark.parametrize(
    "name", ["scale", "scale that fills pieces", "commit", "rolling commit", "seal with transactions of before"]
)
def test_a_reader_always_finds_the_records_of_the_current_epoch(name: str) -> None:
    """Pitfall D9: a time told an epoch beyond the current one while a scale ran."""
    work = WORKS[name]
    bench = work.bench()
    seen = []

    def look(_: object = None) -> None:
        stream = bench.stream()
        current = stream.current_epoch()
        seen.append(current.epoch)
        assert stream.epochs.epoch(current.epoch) == current
        assert [each.epoch for each in stream.epochs.between(0, current.epoch)] == list(range(current.epoch + 1))
        assert stream.epochs.epoch_at(10**14 - 1) <= current.epoch
        for each in stream.epochs.epoch(max(current.epoch - 1, 0)).segments:
            following = stream.epochs.successors(each.id)
            assert following or stream.current_epoch().find(each.id) or current.epoch == 0

    work.act(bench, Watched(bench.store, look), bench.now_ms)
    assert len(seen) > 10
    look()
    assert bench.stream().epochs.epoch_at(10**14 - 1) == bench.stream().current_epoch().epoch
