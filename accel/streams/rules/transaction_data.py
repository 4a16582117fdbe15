"""The bytes of a transaction: its events, as its writer had them before the commit.

Events of a transaction enter their segments only when the transaction is committed, and by then the stream may have
other segments than when the events were written. So the events are stored in an object of their own, with the position
of each event's key, which determines the segment. One object contains one transaction; it never changes, and is deleted
when the events are in the segments or the transaction was aborted.

    | at             | bytes     | type | field     | meaning                                                  |
    |----------------|-----------|------|-----------|----------------------------------------------------------|
    | 0              | 4         |      | magic     | "ATxn"                                                   |
    | 4              | 1         | u1   | version   | 1                                                        |
    | 5              | 3         |      |           | zeros                                                    |
    | 8              | 4         | u4   | count     | events, at least 1                                       |
    | 12             | 4         | u4   | CRC-32    | of all bytes after it                                    |
    | 16             | 8 * count | f8   | positions | of the events' keys, each from 0 up to, not including, 1 |
    | 16 + 8 * count | 4 * count | u4   | lengths   | bytes of each event                                      |
    | 16 + 12 * count|           |      | events    | one after the other, in the order of writing             |

All numbers are big endian.

Source: docs/reference/events.md, "Data of a transaction".
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from accel.history.rules.segments import Keys
from loaders.errors import CorruptObject, FormatLimit

MAGIC: Final = b"ATxn"
VERSION: Final = 1
HEADER: Final = struct.Struct(">4sB3xII")
EVENT_OVERHEAD_BYTES: Final = 12
"""Bytes of the position and the length of an event."""

SIZE_BYTES_MAX: Final = 1 << 30
"""The largest object that is written or read."""

_POSITION: Final = np.dtype(">f8")
_LENGTH: Final = np.dtype(">u4")


@dataclass(frozen=True, slots=True, eq=False)
class TransactionEvents:
    """Events of a transaction. Threads: immutable.

    Args:
        positions: the positions of their keys.
        payloads: the payload of each event.
    """

    positions: Keys
    payloads: Sequence[bytes]

    def __len__(self) -> int:
        return len(self.payloads)

    @property
    def size_bytes(self) -> int:
        """The size of the object. O(events)."""
        return HEADER.size + EVENT_OVERHEAD_BYTES * len(self.payloads) + sum(map(len, self.payloads))


def encode_transaction(events: TransactionEvents) -> bytes:
    """Return the bytes of a transaction. O(bytes).

    Raises:
        FormatLimit: more than 1 GiB.
        ValueError: no event, or a different number of positions.
    """
    count = len(events)
    if not count or len(events.positions) != count:
        raise ValueError(f"expected events, a position for each, found {count} and {len(events.positions)}")
    if events.size_bytes > SIZE_BYTES_MAX:
        raise FormatLimit(f"expected a transaction of at most {SIZE_BYTES_MAX} bytes, found {events.size_bytes}")
    lengths = np.fromiter(map(len, events.payloads), dtype=np.int64, count=count)
    columns = (events.positions.astype(_POSITION).tobytes(), lengths.astype(_LENGTH).tobytes())
    body = b"".join((*columns, *events.payloads))
    return HEADER.pack(MAGIC, VERSION, count, zlib.crc32(body)) + body


def decode_transaction(data: bytes, key: str) -> TransactionEvents:
    """Return the events of a transaction. O(events).

    Args:
        data: the whole object.
        key: the object's key, for errors.

    Raises:
        CorruptObject: damaged bytes, or numbers that contradict each other.
    """
    count = _checked_count(data, key)
    positions = np.frombuffer(data, dtype=_POSITION, count=count, offset=HEADER.size).astype(np.float64)
    lengths_at = HEADER.size + _POSITION.itemsize * count
    lengths = np.frombuffer(data, dtype=_LENGTH, count=count, offset=lengths_at).astype(np.int64)
    start = HEADER.size + EVENT_OVERHEAD_BYTES * count
    if int(lengths.sum()) != len(data) - start:
        raise _corrupt(data, key, f"events of {len(data) - start} bytes", f"{lengths.sum()}")
    if not ((positions >= 0) & (positions < 1)).all():
        raise _corrupt(data, key, "positions from 0 up to 1", f"{positions.min()} to {positions.max()}")
    ends = (start + np.cumsum(lengths)).tolist()
    starts = [start, *ends[:-1]]
    return TransactionEvents(positions, [data[at:end] for at, end in zip(starts, ends, strict=True)])


def _checked_count(data: bytes, key: str) -> int:
    if len(data) < HEADER.size:
        raise _corrupt(data, key, f"a header of {HEADER.size} bytes", f"{len(data)} bytes")
    magic, version, count, checksum = HEADER.unpack_from(data)
    if (magic, version) != (MAGIC, VERSION):
        raise _corrupt(data, key, f"{MAGIC!r}, version {VERSION}", f"{magic!r}, version {version}")
    most = (len(data) - HEADER.size) // EVENT_OVERHEAD_BYTES
    if not 0 < count <= most:
        raise _corrupt(data, key, f"1 to {most} events", f"{count}")
    if zlib.crc32(memoryview(data)[HEADER.size :]) != checksum:
        raise _corrupt(data, key, f"the checksum {checksum:#010x}", "another one")
    return int(count)


def _corrupt(data: bytes, key: str, expected: str, found: str) -> CorruptObject:
    return CorruptObject(key, len(data), expected=expected, found=found)
