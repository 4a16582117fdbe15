"""The last 48 bytes of an object: where its block index lies, and of which kind the object is.

    | bytes | field          | meaning                                                              |
    |-------|----------------|----------------------------------------------------------------------|
    | 8     | index position | first byte of the block index, counted from the start of the object  |
    | 4     | index size     | its length in bytes, a multiple of 36                                |
    | 28    | reserved       | zero; carries no meaning and is not looked at                        |
    | 8     | magic          | 0x88E241B785F4CFF7, or ...F8 for a composite object (composite.py)   |

All integers are big endian. Nothing lies between the index and the footer, so the two numbers and the size of the
object must agree to the byte. That one equation is worth much: it finds an index that runs past the end or into the
footer, and a size in somebody's metadata that is not the size of this object.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from loaders.errors import CorruptObject

FOOTER_SIZE_BYTES = 48
ROW_SIZE_BYTES = 36
MAGIC = 0x88E241B785F4CFF7
COMPOSITE_MAGIC = 0x88E241B785F4CFF8

_LAYOUT = struct.Struct(">qi28xQ")


@dataclass(frozen=True, slots=True)
class Footer:
    """Where the block index of one object lies. Threads: immutable."""

    index_position: int
    index_size_bytes: int
    composite: bool = False

    @property
    def index_end(self) -> int:
        """One past the last byte of the block index; the footer starts here."""
        return self.index_position + self.index_size_bytes

    def encode(self) -> bytes:
        """The 48 bytes that close the object."""
        magic = COMPOSITE_MAGIC if self.composite else MAGIC
        return _LAYOUT.pack(self.index_position, self.index_size_bytes, magic)


def decode_footer(tail: bytes | memoryview, *, object_size_bytes: int, key: str) -> Footer:
    """Read the footer at the end of ``tail``, the last bytes of an object.

    Complexity: O(1); the index itself is not touched.

    Args:
        tail: at least the last 48 bytes of the object, at most the whole object.
        object_size_bytes: length of the whole object; the index must end where the footer starts.
        key: the object's key, for the error's sake.

    Raises:
        CorruptObject: too short, wrong magic, or an index that does not fill whole rows up to the footer.

    Source: docs/formats.md, "Footer".
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
