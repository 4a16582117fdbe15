"""Bytes that are no value are told apart from values, and replaced only while they stand there."""

from __future__ import annotations

import pytest

from accel.testing import Fault, FaultStore
from loaders.errors import AmbiguousWrite, CorruptObject, DataConflict, DataNotFound, FormatTooNew, TableMissing
from loaders.store.decorated import WRITES
from loaders.tables import Entry
from loaders.tables.conditional_write import SEQUENCE_JUMP, VALUE_SIZE_BYTES_MAX, VALUE_START
from loaders.tables.typed_key import Inspected
from tests.loaders.tables.worlds import World


def store_key(world: World) -> str:
    """The only key that is not a marker."""
    return next(info.key for info in world.store.list("") if not info.key.endswith("/!table"))


def damaged(world: World, *, byte: int = 60) -> Inspected[bytes]:
    """A key with five versions, of which one byte is another."""
    table = world.table()
    version = table.create("k", b"1")
    for each in (b"2", b"3", b"4", b"5"):
        version = table.update("k", each, version)
    body = bytearray(world.store.get(store_key(world)).body)
    body[byte] ^= 1
    world.store.put(store_key(world), bytes(body))
    return world.table().inspect("k")


def test_a_value_is_inspected_as_it_is_read_and_nothing_is_nothing(memory: World) -> None:
    table = memory.table()
    version = table.create("k", b"1")
    assert table.inspect("k").seen == Entry(b"1", version)
    table.delete("k", version)
    assert table.inspect("k").is_missing
    assert table.inspect("other").is_missing
    with pytest.raises(TableMissing):
        memory.tables().table("none").inspect("k")


def test_damaged_bytes_are_replaced_and_versions_go_on_above_all_that_there_were(memory: World) -> None:
    found = damaged(memory)
    assert isinstance(found.error, CorruptObject)
    memory.table().key("k", final=True).restore(b"new", found)
    entry = memory.table().get("k")
    assert entry.value == b"new"
    assert entry.version.final
    assert entry.version.sequence == SEQUENCE_JUMP + 5 + 1


@pytest.mark.parametrize("body", [b"", b"\xacVAL", bytes(200), b"\xacVAL\x02\x00\x00\x00" + b"\xff" * 200])
def test_a_number_that_is_not_plausible_does_not_count(memory: World, body: bytes) -> None:
    damaged(memory)
    memory.store.put(store_key(memory), body)
    memory.table().key("k").restore(b"new", memory.table().inspect("k"))
    assert memory.table().get("k").version.sequence == SEQUENCE_JUMP + 1


def test_bytes_longer_than_any_value_are_replaced(memory: World) -> None:
    damaged(memory)
    memory.store.put(store_key(memory), bytes(VALUE_START + VALUE_SIZE_BYTES_MAX + 1))
    memory.table().key("k").restore(b"new", memory.table().inspect("k"))
    assert memory.table().get("k").value == b"new"


def test_a_tombstone_replaces_damaged_bytes(memory: World) -> None:
    found = damaged(memory)
    memory.table().key("k").restore(None, found)
    assert memory.table().find("k") is None
    assert list(memory.table().keys()) == []


def test_what_a_newer_release_wrote_is_told_apart(memory: World) -> None:
    assert isinstance(damaged(memory, byte=4).error, FormatTooNew | CorruptObject)
    body = bytearray(memory.store.get(store_key(memory)).body)
    body[4] = 200
    memory.store.put(store_key(memory), bytes(body))
    assert memory.table().inspect("k").is_newer


def test_a_value_that_can_be_read_is_only_replaced_as_such_by_another_one(memory: World) -> None:
    table = memory.table()
    version = table.create("k", b"1", final=True)
    unreadable: Inspected[bytes] = Inspected(
        version.etag, None, CorruptObject("k", 1, expected="a record", found="none")
    )
    with pytest.raises(DataConflict):
        table.key("k").restore(b"2", unreadable)
    with pytest.raises(DataConflict):
        table.key("k").restore(b"1", table.inspect("k"))
    table.key("k").restore(b"2", table.inspect("k"))
    assert memory.table().get("k").value == b"2"
    assert memory.table().get("k").version.sequence == 2


def test_other_bytes_than_those_that_were_found_are_not_replaced(memory: World) -> None:
    found = damaged(memory)
    memory.store.put(store_key(memory), b"others")
    with pytest.raises(DataConflict):
        memory.table().key("k").restore(b"2", found)
    memory.store.delete(store_key(memory))
    with pytest.raises(DataNotFound):
        memory.table().key("k").restore(b"2", found)


@pytest.mark.parametrize("fault", [Fault.TIMEOUT, Fault.CONFLICT, Fault.SERVER_ERROR, Fault.PRECONDITION])
def test_a_reply_that_is_lost_is_settled(memory: World, fault: Fault) -> None:
    found = damaged(memory)
    store = FaultStore(memory.store, operations=WRITES)
    store.schedule(fault)
    table = memory.tables(store, attempts=3, settle_attempts=3).table("t")
    before = memory.store.get(store_key(memory)).body
    try:
        table.key("k").restore(b"new", found)
    except (AmbiguousWrite, CorruptObject):
        assert memory.store.get(store_key(memory)).body == before  # the bytes are there still: repeat it
        memory.table().key("k").restore(b"new", found)
    assert memory.table().get("k").value == b"new"
