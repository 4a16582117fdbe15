"""Something else happens between any two writes of a compaction: another one, an upload, a trim, a collection."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from accel.compaction import CompactionReport, Status, compact, plan_compaction
from loaders.store import ObjectStore
from loaders.store.decorated import WRITES, DecoratedStore, StoreCall
from tests.accel.compaction.world import ONE_AT_A_TIME, Cluster, all_of_it, keys_of
from tests.world import World

NODE, OTHER = 4, 7
SETTINGS = all_of_it(max_sources_per_group=3, split_size_bytes=400)
WRITES_MAX = 100

Answer = TypeVar("Answer")


class InterruptedStore(DecoratedStore):
    """Does something else before a chosen write. Threads: one at a time."""

    def __init__(self, store: ObjectStore, before_write: int, interrupt: Callable[[], None]) -> None:
        super().__init__(store)
        self.writes = 0
        self._before_write = before_write
        self._interrupt = interrupt

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        if call.operation in WRITES:
            self.writes += 1
            if self.writes == self._before_write + 1:
                self._interrupt()
        return send()


def another_compaction(world: World, cluster: Cluster) -> None:
    with world.open() as catalog:
        compact(catalog, plan_compaction(catalog, all_of_it(max_sources_per_group=2, nodes=frozenset({NODE}))))
    cluster.check()


def the_same_compaction(world: World, cluster: Cluster) -> None:
    with world.open() as catalog:
        compact(catalog, plan_compaction(catalog, SETTINGS))
    cluster.check()


def an_upload(world: World, cluster: Cluster) -> None:
    del world
    cluster.upload(NODE, {1: 1, 5: 1}, own={2: 2})


def a_trim_and_a_move(world: World, cluster: Cluster) -> None:
    del world
    cluster.trim(1, 4)
    cluster.move(2, OTHER)
    cluster.upload(OTHER, {2: 1})


def a_trim_of_all_there_is(world: World, cluster: Cluster) -> None:
    del world
    cluster.trim(1, 5)
    cluster.trim(2, 20)


def a_late_collection(world: World, cluster: Cluster) -> None:
    """A compactor that was suspended for days: its promises have run out."""
    del world
    cluster.collect_later()


INTERRUPTS = {
    each.__name__: each
    for each in (
        another_compaction,
        the_same_compaction,
        an_upload,
        a_trim_and_a_move,
        a_trim_of_all_there_is,
        a_late_collection,
    )
}


def run(interrupt: str, before_write: int) -> tuple[CompactionReport, bool]:
    """A compaction that is interrupted, and what must be true after it; gives whether it was."""
    world = World(settings=ONE_AT_A_TIME)
    cluster = Cluster(world, world.open())
    for _ in range(5):
        cluster.upload(NODE, {1: 1, 2: 4})
    cluster.trim(1, 2)
    store = InterruptedStore(world.store, before_write, lambda: INTERRUPTS[interrupt](world, cluster))
    with world.open(store) as catalog:
        report = compact(catalog, plan_compaction(catalog, SETTINGS))
    cluster.check()
    cluster.collect_later()
    cluster.check()
    cluster.check_ends()
    assert keys_of(world) == cluster.listed_keys()
    return report, store.writes > before_write


@pytest.mark.parametrize("interrupt", INTERRUPTS)
def test_what_happens_between_two_writes_does_no_harm(interrupt: str) -> None:
    seen: set[Status] = set()
    for number in range(WRITES_MAX):
        report, was_interrupted = run(interrupt, number)
        seen |= {each.status for each in report.groups}
        if not was_interrupted:
            assert number > 5
            break
    else:
        pytest.fail(f"expected fewer than {WRITES_MAX} writes")
    assert Status.COMMITTED in seen
    if interrupt in {"another_compaction", "the_same_compaction"}:
        assert Status.LOST in seen
        assert Status.FAILED not in seen, "what the other compaction did is no failure"
    if interrupt == "a_late_collection":
        assert Status.FAILED in seen, "nobody did it"
    if interrupt in {"an_upload", "a_trim_and_a_move", "a_trim_of_all_there_is"}:
        assert seen == {Status.COMMITTED}
