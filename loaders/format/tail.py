"""The end of an object: the footer, and the block index before it.

The last 48 bytes are the footer. It contains the position of the block index and the kind of the object:

    | bytes | field          | meaning                                                              |
    |-------|----------------|----------------------------------------------------------------------|
    | 8     | index position | first byte of the block index, counted from the start of the object  |
    | 4     | index size     | its length in bytes, a multiple of 36                                |
    | 28    | reserved       | zero; without meaning, and not checked                               |
    | 8     | magic          | 0x88E241B785F4CFF7, or ...F8 for a composite object (composite.py)   |

All integers are big endian. The footer follows the index directly, so the two numbers and the size of the object must
agree to the byte. This check finds an index that runs past the end or into the footer, and a size in metadata that is
not the size of this object.

**How much to read.** Only the footer, behind the index, contains the size of the index. So a reader guesses: it reads
the last bytes of the object in one request, which usually hold the whole index.

    object  |  data blocks ...                 | block index              | footer |
                                                        |<---- tail, as guessed -->|
                                               |<-gap ->|   missing bytes

If they do not, the footer in them determines the missing bytes, which one more request reads; the tail need not be read
again. Nothing here reads a store: ``open_tail`` returns either the index or the range of the missing bytes.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import NamedTuple

from loaders.errors import CorruptObject
from loaders.format.block_index import BLOCK_SIZE_BYTES_MIN, ROW_SIZE_BYTES, BlockIndex, decode_block_index

FOOTER_SIZE_BYTES = 48
MAGIC = 0x88E241B785F4CFF7
COMPOSITE_MAGIC = 0x88E241B785F4CFF8

_LAYOUT = struct.Struct(">qi28xQ")


@dataclass(frozen=True, slots=True)
class Footer:
    """The position of the block index in one object. Threads: immutable."""

    index_position: int
    index_size_bytes: int
    composite: bool = False

    @property
    def index_end(self) -> int:
        """One past the last byte of the block index; the footer starts here."""
        return self.index_position + self.index_size_bytes

    def encode(self) -> bytes:
        """The last 48 bytes of the object."""
        magic = COMPOSITE_MAGIC if self.composite else MAGIC
        return _LAYOUT.pack(self.index_position, self.index_size_bytes, magic)


def decode_footer(tail: bytes | memoryview, *, object_size_bytes: int, key: str) -> Footer:
    """Read the footer at the end of ``tail``, the last bytes of an object.

    Complexity: O(1); the index itself is not touched.

    Args:
        tail: at least the last 48 bytes of the object, at most the whole object.
        object_size_bytes: length of the whole object; the index must end where the footer starts.
        key: the object's key, for the error.

    Raises:
        CorruptObject: too short, wrong magic, or an index that does not fill whole rows up to the footer.

    Source: docs/reference/objects.md, "Footer".
    """
    if not FOOTER_SIZE_BYTES <= len(tail) <= object_size_bytes:
        expected = f"a tail of {FOOTER_SIZE_BYTES} to {object_size_bytes} bytes"
        raise CorruptObject(key, object_size_bytes, expected=expected, found=f"{len(tail)} bytes")
    position, size_bytes, magic = _LAYOUT.unpack_from(tail, len(tail) - FOOTER_SIZE_BYTES)
    if magic not in (MAGIC, COMPOSITE_MAGIC):
        raise CorruptObject(key, object_size_bytes, expected=f"footer magic {MAGIC:#x}", found=f"{magic:#x}")
    footer = Footer(position, size_bytes, magic == COMPOSITE_MAGIC)
    _check(footer, object_size_bytes, key)
    return footer


def _check(footer: Footer, object_size_bytes: int, key: str) -> None:
    footer_start = object_size_bytes - FOOTER_SIZE_BYTES
    if footer.index_position < 0 or footer.index_size_bytes < 0:
        expected = "an index at a position and of a size of at least 0"
        found = f"position {footer.index_position}, size {footer.index_size_bytes}"
        raise CorruptObject(key, object_size_bytes, expected=expected, found=found)
    if footer.index_end != footer_start:
        expected = f"an index that ends at {footer_start}, where the footer starts"
        raise CorruptObject(key, object_size_bytes, expected=expected, found=_misplaced(footer, object_size_bytes))
    if footer.index_size_bytes % ROW_SIZE_BYTES:
        expected = f"an index of whole {ROW_SIZE_BYTES}-byte rows"
        raise CorruptObject(key, object_size_bytes, expected=expected, found=f"{footer.index_size_bytes} bytes")


def _misplaced(footer: Footer, object_size_bytes: int) -> str:
    where = f"[{footer.index_position}, {footer.index_end})"
    if footer.index_end > object_size_bytes:
        return f"{where}, which runs past the end of the object"
    if footer.index_end > object_size_bytes - FOOTER_SIZE_BYTES:
        return f"{where}, which runs into the footer"
    return f"{where}, which leaves a gap: a size that is not this object's, or lost bytes"


_MEBIBYTE = 1 << 20


class MissingBytes(NamedTuple):
    """The bytes ``[start, end)`` of the object that are missing before the tail, so that it holds the whole index."""

    start: int
    end: int


def guess_tail_size_bytes(object_size_bytes: int) -> int:
    """The number of bytes to read from the end if the index size is unknown: 8 KiB, and one row for each whole MiB.

    The guess holds 226 rows of a small object and 242 rows of an object of 16 MiB; an object of 9,000 streams needs
    324,048 bytes.

    >>> guess_tail_size_bytes(16 << 20), guess_tail_size_bytes(48)
    (8768, 48)

    Source: the production reader, docs/reference/objects.md, "Opening an object".
    """
    return min(object_size_bytes, 8192 + object_size_bytes // _MEBIBYTE * ROW_SIZE_BYTES)


def open_tail(tail: bytes | memoryview, *, object_size_bytes: int, key: str) -> BlockIndex | MissingBytes:
    """Read the block index of a normal object from its last bytes.

    After ``MissingBytes``, fetch these bytes, put them before the tail, and call again: the second call always returns
    the index.

    Complexity: O(rows), no loop in Python; O(1) if bytes are missing.

    Args:
        tail: at least the last 48 bytes of the object, at most the whole object; not kept.
        object_size_bytes: length of the whole object.
        key: the object's key, for the error.

    Raises:
        CorruptObject: the footer or a row of the index is wrong, or the object is a composite one, whose index
            describes bytes of other objects (read it whole, with ``decode_composite``).
    """
    footer = decode_footer(tail, object_size_bytes=object_size_bytes, key=key)
    if footer.composite:
        raise CorruptObject(key, object_size_bytes, expected="a normal object", found="the footer of a composite one")
    _check_rows_plausible(footer, object_size_bytes, key)
    tail_start = object_size_bytes - len(tail)
    if footer.index_position < tail_start:
        return MissingBytes(footer.index_position, min(tail_start, footer.index_end))
    index = memoryview(tail)[footer.index_position - tail_start : -FOOTER_SIZE_BYTES]
    return decode_block_index(
        index, data_size_bytes=footer.index_position, key=key, object_size_bytes=object_size_bytes
    )


def tail_checksum(tail: bytes | memoryview, *, object_size_bytes: int, index_size_bytes: int) -> int:
    """A CRC-32 of an object's size, block index and footer, which every reader fetches.

    The bytes of an object do not contain its key. A list with this number of each object detects that an object was
    replaced by another, unless both hold blocks of the same streams, offsets and sizes. The checksum does not cover the
    blocks' payload.

    Complexity: O(size of the index).

    Args:
        tail: the last bytes of the object, at least index and footer.
        object_size_bytes: length of the whole object; its 8 bytes, big endian, come first.
        index_size_bytes: of its block index.

    Returns:
        0 to 2^32 - 1.
    """
    size = object_size_bytes.to_bytes(8, "big")
    return zlib.crc32(memoryview(tail)[len(tail) - index_size_bytes - FOOTER_SIZE_BYTES :], zlib.crc32(size))


def check_tail(expected: int, found: int, *, object_size_bytes: int, key: str) -> None:
    """Refuse an object whose tail is not the committed one.

    Args:
        expected: the checksum in the metadata; -1 if there is none, and then nothing is refused.
        found: the checksum of the bytes, by `tail_checksum`.
        object_size_bytes: length of the whole object, for the error.
        key: the object's key, for the error.

    Raises:
        CorruptObject: the checksums differ.
    """
    if expected not in (-1, found):
        wanted = f"the index and footer that were committed under this key, with CRC-32 {expected:#010x}"
        seen = f"those of another object, with CRC-32 {found:#010x}"
        raise CorruptObject(key, object_size_bytes, expected=wanted, found=seen)


def _check_rows_plausible(footer: Footer, object_size_bytes: int, key: str) -> None:
    # Prevents that a reader fetches half an object because of a false footer.
    rows = footer.index_size_bytes // ROW_SIZE_BYTES
    if not footer.composite and rows * BLOCK_SIZE_BYTES_MIN > footer.index_position:
        expected = f"an index of at most {footer.index_position // BLOCK_SIZE_BYTES_MIN} rows"
        found = f"{rows} rows for {footer.index_position} bytes of blocks"
        raise CorruptObject(key, object_size_bytes, expected=expected, found=found)
