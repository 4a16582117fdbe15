"""From the tail of an object to its block index: how much to read, and what to do when it was too little.

The index lies at the end of an object and its size is known only from the footer behind it. So a reader guesses: it
reads the last bytes of the object in one request and hopes that they hold the whole index.

    object  |  data blocks ...                 | block index              | footer |
                                                        |<---- tail, as guessed -->|
                                               |<-gap ->|   what is still missing

If they do not, the footer in them says exactly which bytes are missing, and one more request brings those; the tail
need not be read again. Nothing here reads a store: ``open_tail`` either returns the index or names the missing bytes.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from loaders.errors import CorruptObject
from loaders.format.block_index import BLOCK_SIZE_BYTES_MIN, BlockIndex, decode_block_index
from loaders.format.footer import FOOTER_SIZE_BYTES, ROW_SIZE_BYTES, Footer, decode_footer

_MEBIBYTE = 1 << 20


class MissingBytes(NamedTuple):
    """The bytes ``[start, end)`` of the object that have to stand before the tail for it to hold the whole index."""

    start: int
    end: int


def guess_tail_size_bytes(object_size_bytes: int) -> int:
    """How many bytes a reader that knows nothing else reads from the end: 8 KiB, and one row for each whole MiB.

    The guess holds 226 rows of a small object and 242 of one of 16 MiB; an object of 9,000 streams needs 324,048 bytes.

    >>> guess_tail_size_bytes(16 << 20), guess_tail_size_bytes(48)
    (8768, 48)

    Source: the production reader, docs/formats.md, "Opening an object".
    """
    return min(object_size_bytes, 8192 + object_size_bytes // _MEBIBYTE * ROW_SIZE_BYTES)


def index_span(tail: bytes | memoryview, *, object_size_bytes: int, key: str) -> tuple[int, int]:
    """The bytes ``[start, end)`` of the block index within the object; for objects of both kinds.

    Complexity: O(1).

    Args:
        tail: at least the last 48 bytes of the object, at most the whole object.
        object_size_bytes: length of the whole object.
        key: the object's key, for the error's sake.

    Raises:
        CorruptObject: the footer is wrong, or the data cannot hold as many blocks as the index would have rows.
    """
    footer = decode_footer(tail, object_size_bytes=object_size_bytes, key=key)
    _check_rows_plausible(footer, object_size_bytes, key)
    return footer.index_position, footer.index_end


def open_tail(tail: bytes | memoryview, *, object_size_bytes: int, key: str) -> BlockIndex | MissingBytes:
    """Read the block index of a normal object from its last bytes.

    After ``MissingBytes`` fetch those, put them before the tail, and call again: the second call always answers.

    Complexity: O(rows), no loop in Python; O(1) if bytes are missing.

    Args:
        tail: at least the last 48 bytes of the object, at most the whole object; not kept.
        object_size_bytes: length of the whole object.
        key: the object's key, for the error's sake.

    Raises:
        CorruptObject: the footer or a row of the index is wrong, or the object is a composite one, whose index speaks
            of other objects' bytes (read it whole, with ``decode_composite``).
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
    """A CRC-32 of an object's size, block index and footer: what its reader fetches anyhow.

    The bytes of an object do not name its key. A list that keeps this number of each object tells an object from
    another one that was put in its place, unless both hold blocks of the same streams, offsets and sizes. It says
    nothing of the blocks' payload.

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
    """Refuse an object whose tail is not the one that was committed.

    Args:
        expected: the checksum that the metadata says; -1 if it says none, and then nothing is refused.
        found: that of the bytes, as of `tail_checksum`.
        object_size_bytes: length of the whole object, for the error's sake.
        key: likewise.

    Raises:
        CorruptObject: they differ.
    """
    if expected not in (-1, found):
        wanted = f"the index and footer that were committed under this key, with CRC-32 {expected:#010x}"
        seen = f"those of another object, with CRC-32 {found:#010x}"
        raise CorruptObject(key, object_size_bytes, expected=wanted, found=seen)


def _check_rows_plausible(footer: Footer, object_size_bytes: int, key: str) -> None:
    # Before a lying footer makes anyone fetch half an object in search of its index.
    rows = footer.index_size_bytes // ROW_SIZE_BYTES
    if not footer.composite and rows * BLOCK_SIZE_BYTES_MIN > footer.index_position:
        expected = f"an index of at most {footer.index_position // BLOCK_SIZE_BYTES_MIN} rows"
        found = f"{rows} rows for {footer.index_position} bytes of blocks"
        raise CorruptObject(key, object_size_bytes, expected=expected, found=found)
