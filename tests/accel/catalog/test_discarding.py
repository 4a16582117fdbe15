"""What is given up is deleted, unless it is listed or may yet be."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from accel.catalog import ObjectCatalog
from accel.catalog.shard_writes import move_stream_objects
from accel.errors import CatalogMissing, CommitRefused
from loaders.errors import AmbiguousWrite, StoreUnavailable
from loaders.store import ObjectStore
from loaders.store.decorated import DecoratedStore, StoreCall
from tests.world import LAYOUT, Interrupted, World, held, is_write

Answer = TypeVar("Answer")


class Merging(World):
    """Stream 1 has two objects of its own in its bucket; an object is written that is to replace them."""

    def __init__(self) -> None:
        super().__init__()
        with self.session(1) as (catalog, writer):
            self.sources = writer.prepare(2)
            for at, object_id in enumerate(self.sources):
                writer.register_stream_object(1, self.put_stream_object(object_id, 1, at, at + 1))
            move_stream_objects(catalog.parts, 4)
            [self.object_id] = catalog.prepare(4, 1)
            self.merged = self.put_stream_object(self.object_id, 1, 0, 2)

    def register(self, catalog: ObjectCatalog) -> None:
        catalog.register_stream_object(1, self.merged, self.sources)

    def exists(self, object_id: int) -> bool:
        return object_id in self.object_ids()


def is_bucket_write(call: StoreCall) -> bool:
    return is_write(call) and "stream-buckets" in call.key


class Unclear(DecoratedStore):
    """Carries out its writes of buckets and loses the replies, and any other answer after that, until it is healed."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self._is_lost = False

    def heal(self) -> None:
        self._is_lost = False

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        answer = None if self._is_lost else super()._around(call, send)
        self._is_lost = self._is_lost or is_bucket_write(call)
        if answer is None or self._is_lost:
            raise StoreUnavailable(call.operation, call.key, "no reply")
        return answer


@pytest.fixture
def world() -> Merging:
    return Merging()


def test_what_was_written_for_nothing_is_deleted_and_can_be_committed_no_more(world: Merging) -> None:
    with world.open() as catalog:
        catalog.discard(4, [world.object_id])
        assert not world.exists(world.object_id)
        with pytest.raises(CommitRefused, match="prepared"):
            world.register(catalog)
        assert [each[0] for each in held(catalog, 1)] == world.sources


def test_an_object_whose_registration_ended_unclear_stays_if_it_is_listed(world: Merging) -> None:
    unclear = Unclear(world.memory)
    with world.open(unclear) as catalog:
        with pytest.raises(AmbiguousWrite):
            world.register(catalog)
        unclear.heal()
        catalog.discard(4, [world.object_id])
    with world.open() as catalog:
        assert held(catalog, 1) == [(world.object_id, 0, 2)]
        assert world.exists(world.object_id)


def test_an_object_that_was_registered_stays(world: Merging) -> None:
    with world.open() as catalog:
        world.register(catalog)
        catalog.discard(4, [world.object_id])
        assert held(catalog, 1) == [(world.object_id, 0, 2)]
        assert world.exists(world.object_id)


def test_a_registration_that_comes_late_does_not_list_what_was_discarded(world: Merging) -> None:

    def give_up() -> None:
        with world.open() as other:
            other.discard(4, [world.object_id])

    with (
        world.open(Interrupted(world.memory, give_up, fits=is_bucket_write)) as slow,
        pytest.raises(CommitRefused, match="prepared"),
    ):
        world.register(slow)
    with world.open() as catalog:
        assert [each[0] for each in held(catalog, 1)] == world.sources
    assert not world.exists(world.object_id)


def test_ids_without_objects_and_ids_that_nobody_promised_are_given_up_without_ado(world: Merging) -> None:
    with world.open() as catalog:
        ids = catalog.prepare(4, 2)
        world.memory.put(LAYOUT.object_key(ids[1]), b"damaged", mark=world.mark(ids[1]))
        catalog.discard(4, [*ids, 1_000_000, *world.sources])
        assert all(map(world.exists, world.sources))
        assert not any(map(world.exists, ids))
        assert not set(ids) & set(catalog.parts.keys.node_list(4).change(lambda _: None).value.prepared["object_id"])
        with pytest.raises(CatalogMissing):
            catalog.discard(5, ids)


def test_an_object_that_was_registered_and_cannot_be_read_stays(world: Merging) -> None:
    with world.open() as catalog:
        world.register(catalog)
        world.memory.put(LAYOUT.object_key(world.object_id), b"damaged")
        catalog.discard(4, [world.object_id])
    assert world.exists(world.object_id)


def test_discarding_an_object_of_many_streams_touches_no_bucket(world: Merging) -> None:
    with world.open() as catalog:
        [object_id] = catalog.prepare(4, 1)
        world.put(object_id, [(1, 0, 1), (2, 0, 1)])
        before = [info.etag for info in world.memory.list("accel/tables/stream-buckets/")]
        catalog.discard(4, [object_id])
        assert [info.etag for info in world.memory.list("accel/tables/stream-buckets/")] == before
        assert not world.exists(object_id)
