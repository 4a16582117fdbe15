"""The bytes around a value are those of the golden files, and damage to any of them is found."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace

import pytest

from loaders.errors import CorruptObject, FormatLimit, FormatTooNew
from loaders.store import MemoryStore
from loaders.store.base import Fetched
from loaders.store.decorated import DecoratedStore
from loaders.tables import Version, read_format
from loaders.tables.conditional_write import Stored, decode_stored, encode_stored
from tests.loaders.tables.golden import golden
from tests.loaders.tables.worlds import World, items_of

PLACE = "owners/stream%2F7"
NONCE = bytes(range(0xA0, 0xB0))
EARLIER = b"".join(bytes([each]) * 16 for each in (0xB3, 0xB2, 0xB1)).ljust(128, b"\0")
GOLDEN = {
    "envelope-value": Stored(b"node 3", Version("e", 4, NONCE, ancestors=EARLIER)),
    "envelope-final": Stored(b"", Version("e", 1, NONCE, final=True, ancestors=bytes(128))),
    "envelope-tombstone": Stored(None, Version("e", 4, NONCE, ancestors=EARLIER)),
}


def resealed(data: bytes) -> bytes:
    """The same bytes with a checksum that fits them."""
    checksum = zlib.crc32(data[164:], zlib.crc32(data[:160], zlib.crc32(PLACE.encode())))
    return data[:160] + checksum.to_bytes(4, "big") + data[164:]


@pytest.mark.parametrize("name", GOLDEN)
def test_the_bytes_are_pinned(name: str) -> None:
    assert encode_stored(GOLDEN[name], PLACE) == golden(name)
    found = decode_stored(golden(name), PLACE, etag="e", where="k")
    assert found == GOLDEN[name]
    assert (found.version.final, found.version.ancestors) == (
        GOLDEN[name].version.final,
        GOLDEN[name].version.ancestors,
    )


@pytest.mark.parametrize("name", GOLDEN)
def test_every_damaged_byte_and_every_cut_is_found(name: str) -> None:
    data = golden(name)
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x40
        with pytest.raises((CorruptObject, FormatTooNew), match="accel/tables/t/k"):
            decode_stored(bytes(damaged), PLACE, etag="e", where="accel/tables/t/k")
        with pytest.raises(CorruptObject):
            decode_stored(data[:position], PLACE, etag="e", where="accel/tables/t/k")
    with pytest.raises(CorruptObject):
        decode_stored(data + b"\0", PLACE, etag="e", where="k")


@pytest.mark.parametrize(
    ("at", "byte", "expected"),
    [
        (5, 3, "flags"),
        (5, 4, "flags"),
        (6, 1, "reserve"),
        (15, 0, "sequence"),
        (167, 7, "a value of 7 bytes"),
        (164, 0xFF, "a value of 4278190086 bytes"),
        (5, 1, "a tombstone of 164 bytes"),
    ],
)
def test_what_contradicts_itself_is_refused_although_its_checksum_fits(at: int, byte: int, expected: str) -> None:
    data = bytearray(golden("envelope-value"))
    data[at] = byte
    with pytest.raises(CorruptObject, match=expected):
        decode_stored(resealed(bytes(data)), PLACE, etag="e", where="k")


def test_a_tombstone_without_its_flag_is_refused() -> None:
    data = bytearray(golden("envelope-tombstone"))
    data[5] = 0
    with pytest.raises(CorruptObject, match="at least 168 bytes"):
        decode_stored(resealed(bytes(data)), PLACE, etag="e", where="k")


@pytest.mark.parametrize("version", [3, 255])
def test_a_newer_envelope_is_refused_whatever_follows_it(version: int) -> None:
    data = bytearray(golden("envelope-value"))
    data[4] = version
    for newer in (bytes(data), bytes(data[:20])):
        with pytest.raises(FormatTooNew, match=f"'k': expected an envelope of version 2, found {version}"):
            decode_stored(newer, PLACE, etag="e", where="k")


@pytest.mark.parametrize("name", GOLDEN)
@pytest.mark.parametrize("other", ["owners/stream%2F8", "owner/stream%2F7", "owners/stream%2F7/", "", "format"])
def test_the_bytes_of_another_place_are_refused_and_both_are_named(name: str, other: str) -> None:
    message = rf"'k'.*a CRC-32 of 0x.* over '{other}' and these bytes.*written for another key"
    with pytest.raises(CorruptObject, match=message):
        decode_stored(golden(name), other, etag="e", where="k")


def test_an_envelope_without_its_place_is_refused() -> None:
    data = bytearray(golden("envelope-value"))
    data[4] = 1
    with pytest.raises(CorruptObject, match="expected an envelope of version 2, found 1"):
        decode_stored(bytes(data), PLACE, etag="e", where="k")


def test_a_value_too_long_for_its_table_is_neither_written_nor_read() -> None:
    world = World(MemoryStore())
    world.table()
    table = world.tables().table("t", value_size_bytes_max=10)
    table.create("k", b"x" * 10)
    with pytest.raises(FormatLimit, match="at most 10 bytes as the value at 't/k2', found 11"):
        table.create("k2", b"x" * 11)
    assert list(table.keys()) == ["k"]
    version = world.tables().table("t").create("k2", b"x" * 11)
    assert table.get("k").value == b"x" * 10
    touches: tuple[Callable[[], object], ...] = (
        lambda: table.get("k2"),
        lambda: list(items_of(table)),
        lambda: table.change("k2", lambda _: b""),
        lambda: table.get_if_newer("k2", replace(version, etag="another")),
    )
    for touch in touches:
        with pytest.raises(CorruptObject, match=r"'accel/tables/t/k2' .*at most 178 bytes, found 179"):
            touch()


@pytest.mark.parametrize("key", ["accel/format", "accel/tables/t/!table", "accel/tables/t/k"])
def test_of_an_object_longer_than_its_key_may_hold_no_byte_is_read(key: str) -> None:
    reads: list[int] = []

    class Huge(DecoratedStore):
        """A store with one object of 600 MB, whose body cannot be read."""

        def get(self, key: str, *, size_bytes_max: int | None = None) -> Fetched:
            if key != huge:
                return super().get(key, size_bytes_max=size_bytes_max)
            reads.append(size_bytes_max or 0)
            raise CorruptObject(key, 600 << 20, expected=f"at most {size_bytes_max} bytes", found="more")

    huge, world = key, World(MemoryStore())
    world.table()
    store = Huge(world.store)
    read = (lambda: read_format(store)) if key == "accel/format" else (lambda: world.tables(store).table("t").get("k"))
    with pytest.raises(CorruptObject, match=key):
        read()
    limits = {"accel/format": 168 + (1 << 14), "accel/tables/t/!table": 168, "accel/tables/t/k": 168 + (64 << 20)}
    assert reads == [limits[key]]


def test_damage_in_a_table_names_the_key_and_a_newer_value_is_not_written_over() -> None:
    world = World(MemoryStore())
    table = world.table()
    version = table.create("k", b"1")
    world.store.put("accel/tables/t/k", b"garbage")
    for touch in (lambda: table.get("k"), lambda: list(items_of(table)), lambda: table.create("k", b"2")):
        with pytest.raises(CorruptObject, match="'accel/tables/t/k'"):
            touch()
    newer = bytearray(golden("envelope-value"))
    newer[4] = 3
    world.store.put("accel/tables/t/k", bytes(newer))
    for write in (
        lambda: table.get("k"),
        lambda: table.update("k", b"2", version),
        lambda: table.change("k", lambda _: b"2"),
        lambda: table.delete("k"),
        lambda: table.create_if_absent("k", b"2"),
    ):
        with pytest.raises(FormatTooNew):
            write()
    assert world.store.get("accel/tables/t/k").body == bytes(newer)


def test_a_version_follows_another_unless_both_name_one_that_differs() -> None:
    nonces = [bytes([number]) * 16 for number in range(1, 31)]

    def version(sequence: int, history: list[bytes]) -> Version:
        """The version that a line of writes has come to."""
        before = b"".join(reversed(history[: sequence - 1]))[: 8 * 16].ljust(8 * 16, b"\0")
        return Version("e", sequence, history[sequence - 1], ancestors=before)

    other = [*nonces[:4], *(bytes([number]) * 16 for number in range(101, 130))]
    for sequence in range(5, 14):
        assert version(sequence, nonces).follows(version(5, nonces))
        assert not version(sequence, other).follows(version(5, nonces))  # parted at the fifth write, named up to here
        assert version(sequence, other).follows(version(4, nonces))
    assert version(14, other).follows(version(5, nonces))  # nine writes later: nobody can tell
    assert not version(4, nonces).follows(version(5, nonces))
