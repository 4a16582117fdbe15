"""Seeded changes of bytes: blind ones, and ones that know records and packed columns, so that inner checks are reached.

Threads: none is shared; a `Mutator` is used by one thread.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec
import zstandard

COLUMNS_MAGIC = b"ACol"
_COLUMNS_HEAD = struct.Struct(">4sBI")
UNPACKED_MAX = 1 << 20

NUMBERS = (0, 1, 2, 127, 128, 255, 256, 4096, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 10**14)
EDGES = (*NUMBERS, 2**62, 2**63 - 1, *(-number for number in (1, 2, 2**31, 2**32, 2**62, 2**63)))
ODD_NUMBERS = ("", "-1", "0", "9" * 25, "9" * 5000, "1e999", "nan", "inf", "0x10", "1_0", " 1", "1.5", "\u0661")
TEXTS = (*ODD_NUMBERS, "\0", "..", "a" * 300)
TOKENS = (b"-", b".", b"e9", b"E400", b"[", b"]]]", b"{", b"null", b"true", b'"', b"\\u", b"%00", b"=", b" ", b"&a=1")

Change = Callable[[Random, bytearray], None]


def _at(rng: Random, data: bytearray) -> int:
    """A place, more often near one of the ends, where heads and footers lie."""
    if not data:
        return 0
    span = min(len(data), 64) if rng.random() < 0.5 else len(data)
    place = rng.randrange(span)
    return place if rng.random() < 0.5 else len(data) - 1 - place


def flip_bits(rng: Random, data: bytearray) -> None:
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        if data:
            data[_at(rng, data)] ^= 1 << rng.randrange(8)


def set_bytes(rng: Random, data: bytearray) -> None:
    if data:
        data[_at(rng, data)] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def write_number(rng: Random, data: bytearray) -> None:
    """A field of 1 to 8 bytes, either way round: what lengths and counts are made of."""
    width, place = rng.choice((1, 2, 4, 4, 8, 8)), _at(rng, data)
    old = int.from_bytes(data[place : place + width], "big")
    value = rng.choice((*EDGES, old + 1, old - 1, old * 2, len(data), len(data) + 1)) % (1 << 8 * width)
    data[place : place + width] = value.to_bytes(width, rng.choice(("big", "big", "little")))


def truncate(rng: Random, data: bytearray) -> None:
    del data[_at(rng, data) :]


def behead(rng: Random, data: bytearray) -> None:
    del data[: _at(rng, data)]


def extend(rng: Random, data: bytearray) -> None:
    piece = rng.choice((rng.randbytes(rng.randrange(1, 40)), bytes(rng.randrange(1, 64)), bytes(data[-48:])))
    data.extend(piece)


def insert(rng: Random, data: bytearray) -> None:
    place = _at(rng, data)
    data[place:place] = rng.randbytes(rng.randrange(1, 9))


def remove(rng: Random, data: bytearray) -> None:
    place = _at(rng, data)
    del data[place : place + rng.choice((1, 2, 4, 8, 16, 36))]


def repeat(rng: Random, data: bytearray) -> None:
    place, size = _at(rng, data), rng.choice((1, 4, 16, 33, 36, 48))
    data[place:place] = data[place : place + size] * rng.choice((1, 1, 2, 50))


def edit_digits(rng: Random, data: bytearray) -> None:
    """A number in a text becomes another one."""
    found = list(re.finditer(rb"-?\d+", bytes(data)))
    if found:
        match = rng.choice(found)
        told = rng.choice(
            (*(str(number) for number in EDGES), *TEXTS, match[0].decode() + ".5", match[0].decode() + "0")
        )
        data[match.start() : match.end()] = told.encode()


def nest(rng: Random, data: bytearray) -> None:
    """Lists in lists: of MessagePack, or of JSON."""
    place = _at(rng, data)
    data[place:place] = rng.choice((b"\x91", b"\x81\xa1a", b"[", b'{"a":')) * 3000


def insert_token(rng: Random, data: bytearray) -> None:
    place = _at(rng, data)
    data[place:place] = rng.choice(TOKENS)


BLIND: tuple[Change, ...] = (
    flip_bits,
    flip_bits,
    set_bytes,
    write_number,
    write_number,
    truncate,
    behead,
    extend,
    insert,
    remove,
    repeat,
    nest,
    edit_digits,
)
TEXTUAL: tuple[Change, ...] = (edit_digits, edit_digits, insert_token, *BLIND)


def damaged(rng: Random, data: bytes, others: Sequence[bytes] = (), changes: Sequence[Change] = BLIND) -> bytes:
    """The bytes after one to three changes, or the beginning of these with the end of others."""
    found = bytearray(data)
    if others and rng.random() < 0.1:
        other = rng.choice(others)
        found[_at(rng, found) :] = other[_at(rng, bytearray(other)) :]
        return bytes(found)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        rng.choice(changes)(rng, found)
    return bytes(found)


def damaged_columns(rng: Random, packed: bytes) -> bytes:
    """Packed columns with other bytes in their frame, whose size is right in most cases."""
    try:
        raw = zstandard.ZstdDecompressor().decompress(_frame(packed), max_output_size=UNPACKED_MAX)
    except (zstandard.ZstdError, struct.error):
        return damaged(rng, packed)
    raw = damaged(rng, raw)
    size = len(raw) if rng.random() < 0.9 else rng.choice((0, len(raw) + 1, 2**31, 2**32 - 1))
    frame = zstandard.ZstdCompressor(level=1, write_content_size=False).compress(raw)
    return _COLUMNS_HEAD.pack(COLUMNS_MAGIC, 1, size) + frame


def _frame(packed: bytes) -> bytes:
    rest = packed[_COLUMNS_HEAD.size :]
    if rest[:4] == b"\x50\x2a\x4d\x18":
        rest = rest[8 + int.from_bytes(rest[4:8], "little") :]
    return rest


def damaged_fields(rng: Random, fields: bytes) -> bytes:
    """MessagePack with one to three of its values changed, gone, added, or of another type."""
    try:
        value = msgspec.msgpack.decode(fields)
        for _ in range(rng.choice((1, 1, 2, 3))):
            value = _changed(rng, value)
        return msgspec.msgpack.encode(value)
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError):
        return damaged(rng, fields)  # fields that are none already


def _changed(rng: Random, value: Any) -> Any:
    if isinstance(value, dict) and value and rng.random() < 0.95:
        return _changed_map(rng, value)
    if isinstance(value, list) and value and rng.random() < 0.8:
        return _changed_list(rng, value)
    if isinstance(value, bytes) and rng.random() < 0.9:
        return _changed_bytes(rng, value)
    if isinstance(value, str) and rng.random() < 0.8:
        return rng.choice((*TEXTS, value + "x", value[:-1], value.upper()))
    if isinstance(value, int) and rng.random() < 0.9:
        return rng.choice((*EDGES, 2**64 - 1, value + 1, max(value - 1, -(2**63)))) if value < 2**64 - 1 else 0
    return rng.choice((None, True, False, 0, 2**64 - 1, 1.5, float("nan"), "text", b"", b"ACol", [], {}, [[]] * 3))


def _changed_map(rng: Random, value: dict[Any, Any]) -> dict[Any, Any]:
    name = rng.choice(list(value))
    choice = rng.random()
    if choice < 0.05:
        return {key: inner for key, inner in value.items() if key != name}
    if choice < 0.1:
        return {**value, rng.choice(("more", "version", 7)): rng.choice((0, "x", [[]]))}
    return {**value, name: _changed(rng, value[name])}


def _changed_list(rng: Random, value: list[Any]) -> list[Any]:
    place = rng.randrange(len(value))
    choice = rng.random()
    if choice < 0.2:
        return value[:place] + value[place + 1 :]
    if choice < 0.4:
        return value + value[: place + 1]
    return [*value[:place], _changed(rng, value[place]), *value[place + 1 :]]


def _changed_bytes(rng: Random, value: bytes) -> bytes:
    if value.startswith(COLUMNS_MAGIC) and rng.random() < 0.8:
        return damaged_columns(rng, value)
    return damaged(rng, value) if value else rng.choice((b"\0", b"ACol", bytes(16)))
