"""The bytes around every stored value, which distinguish the versions of its key.

    | at  | bytes | field          | meaning                                                           |
    |-----|-------|----------------|-------------------------------------------------------------------|
    | 0   | 4     | magic          | AC 56 41 4C                                                       |
    | 4   | 1     | version        | of this envelope: 2                                               |
    | 5   | 1     | flags          | 1: a tombstone; 2: a final value                                  |
    | 6   | 2     | reserved       | zero                                                              |
    | 8   | 8     | sequence       | 1 for the first version of a key, +1 with every write             |
    | 16  | 16    | nonce          | random bytes of this write alone                                  |
    | 32  | 128   | ancestors      | nonces of the 8 versions before, newest first; zeros if missing   |
    | 160 | 4     | CRC-32         | of the value's place, then of all bytes but these four            |
    | 164 | 4     | value's length | not in a tombstone                                                |
    | 168 | n     | value          | not in a tombstone                                                |

All integers are big endian.

The *place* is table and key as in the S3 key, ``<table>/<key>``, in ASCII (``format`` of the format record). It is not
stored: a reader knows the place, and adds it. So a value, a tombstone or a marker at another key than the one it was
written for is as corrupt as one with a damaged byte. A prefix with all keys below it may be copied or moved.

A versioned delete writes a tombstone: 164 bytes, which no live value can have, so a listing distinguishes both by size.
The nonce makes the bytes of every write unique, and with them its ETag: a value that is written again does not look
unchanged to a writer that read it long ago. The nonces of earlier versions show the outcome of a write whose reply was
lost, even after other writers have overwritten it.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from loaders.errors import CorruptObject, FormatLimit, FormatTooNew
from loaders.versions import Entry, Version, Versioned

MAGIC = b"\xacVAL"
ENVELOPE_VERSION = 2
TOMBSTONE_SIZE_BYTES = 164
"""Size of a stored tombstone; no stored value has this size."""

VALUE_START = 168
VALUE_SIZE_BYTES_MAX = 64 << 20
"""Longest value, in one PUT and one GET, and in memory for both. Keys with smaller values have a lower limit."""

SEQUENCE_JUMP = 1 << 32
"""A value that replaces damaged bytes adds this to their sequence number: more than the number of writes of any key."""

_SEQUENCE_PLAUSIBLE_END = 1 << 62
_HEAD = struct.Struct(">4sBB2xQ16s128s")
_NUMBER = struct.Struct(">I")
_VERSION_AT = 4
_RESERVED = slice(6, 8)
_TOMBSTONE = 1
_FINAL = 2


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored value or tombstone.

    Args:
        value: the value; None for a tombstone.
        version: its version.
    """

    value: bytes | None
    version: Version

    @property
    def is_tombstone(self) -> bool:
        """Whether the key is deleted."""
        return self.value is None

    @property
    def entry(self) -> Entry | None:
        """The value with its version; None for a tombstone."""
        return None if self.value is None else Versioned(self.value, self.version)


def encode_stored(stored: Stored, place: str, value_size_bytes_max: int = VALUE_SIZE_BYTES_MAX) -> bytes:
    """The bytes to put. O(size); the ETag is not part of them.

    Args:
        stored: the value or tombstone.
        place: its place: the encoded names of table and key, with a slash between.
        value_size_bytes_max: the longest value that its readers accept.

    Raises:
        FormatLimit: the value is too long.
    """
    version, value = stored.version, stored.value
    flags = (_TOMBSTONE if value is None else 0) | (_FINAL if version.final else 0)
    ancestors = version.ancestors or bytes(128)
    head = _HEAD.pack(MAGIC, ENVELOPE_VERSION, flags, version.sequence, version.nonce, ancestors)
    body = b""
    if value is not None:
        if len(value) > value_size_bytes_max:
            raise FormatLimit(
                f"expected at most {value_size_bytes_max} bytes as the value at {place!r}, found {len(value)}"
            )
        body = _NUMBER.pack(len(value)) + value
    return b"".join((head, _NUMBER.pack(_checksum(place, head, body)), body))


def decode_stored(data: bytes, place: str, *, etag: str, where: str) -> Stored:
    """Decode the bytes at a key. O(size).

    Args:
        data: all bytes of the object.
        place: its place, as for `encode_stored`.
        etag: its ETag, which becomes part of the version.
        where: the object's key, for errors.

    Raises:
        FormatTooNew: a newer release wrote it.
        CorruptObject: damage, or the bytes of another key.

    Source: docs/reference/tables.md, "Envelope".
    """
    _check_head(data, place, where)
    _, _, flags, sequence, nonce, ancestors = _HEAD.unpack_from(data)
    version = Version(etag, sequence, nonce, bool(flags & _FINAL), ancestors)
    if flags & _TOMBSTONE:
        _expect(len(data) == TOMBSTONE_SIZE_BYTES, data, where, "a tombstone of 164 bytes", f"{len(data)}")
        return Stored(None, version)
    _expect(len(data) >= VALUE_START, data, where, f"at least {VALUE_START} bytes", f"{len(data)}")
    length = _NUMBER.unpack_from(data, TOMBSTONE_SIZE_BYTES)[0]
    _expect(length == len(data) - VALUE_START, data, where, f"a value of {length} bytes", f"{len(data) - VALUE_START}")
    return Stored(data[VALUE_START:], version)


def sequence_beyond(data: bytes) -> int:
    """A sequence number above those of all versions of a key whose bytes are damaged now.

    The number in the bytes may be damaged, or that of another key: the result is above that number, if it is plausible,
    and at least `SEQUENCE_JUMP`, which is more than the number of writes of any key.
    """
    known = int.from_bytes(data[8:16], "big") if data.startswith(MAGIC) and len(data) >= _HEAD.size else 0
    return SEQUENCE_JUMP + (known if known < _SEQUENCE_PLAUSIBLE_END else 0)


def _check_head(data: bytes, place: str, where: str) -> None:
    # The magic is checked first, then the version, then all that a newer version may have changed.
    known_start = len(data) > _VERSION_AT and data.startswith(MAGIC)
    _expect(known_start, data, where, f"a stored value, which begins with {MAGIC.hex()}", data[:8].hex() or "nothing")
    version = data[_VERSION_AT]
    if version > ENVELOPE_VERSION:
        raise FormatTooNew(f"object {where!r}: expected an envelope of version {ENVELOPE_VERSION}, found {version}")
    _expect(version == ENVELOPE_VERSION, data, where, f"an envelope of version {ENVELOPE_VERSION}", f"{version}")
    _expect(len(data) >= TOMBSTONE_SIZE_BYTES, data, where, f"at least {TOMBSTONE_SIZE_BYTES} bytes", f"{len(data)}")
    checksum = _NUMBER.unpack_from(data, _HEAD.size)[0]
    actual = _checksum(place, data[: _HEAD.size], memoryview(data)[TOMBSTONE_SIZE_BYTES:])
    found = f"{checksum:#010x}: the bytes are damaged, or were written for another key"
    _expect(actual == checksum, data, where, f"a CRC-32 of {actual:#010x} over {place!r} and these bytes", found)
    flags = data[_VERSION_AT + 1]
    _expect(flags in {0, _TOMBSTONE, _FINAL}, data, where, "flags of 0, 1 or 2", f"{flags}")
    _expect(not any(data[_RESERVED]), data, where, "two zero bytes in reserve", data[_RESERVED].hex())
    _expect(any(data[8:16]), data, where, "a sequence number of at least 1", "0")


def _checksum(place: str, head: bytes, body: bytes | memoryview) -> int:
    # No place contains the magic's first byte, so the end of the place is unambiguous.
    return zlib.crc32(body, zlib.crc32(head, zlib.crc32(place.encode("ascii"))))


def _expect(holds: bool, data: bytes, where: str, expected: str, found: str) -> None:
    if not holds:
        raise CorruptObject(where, len(data), expected=expected, found=found)
