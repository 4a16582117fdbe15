"""Composite objects: an index over the blocks of other objects.

Compaction of one long stream need not copy any bytes: it writes a small object that links the old ones.

    | bytes | field    | meaning                                                       |
    |-------|----------|---------------------------------------------------------------|
    | 1     | magic    | 0x52                                                          |
    | 4     | count    | linked objects                                                |
    | 14 n  | links    | one for each, see below                                       |
    | 36 m  | index    | rows as in a normal object; positions are in the linked one   |
    | 48    | footer   | magic 0x88E241B785F4CFF8, index position = 5 + 14 n           |

    | bytes | field     | meaning                                                      |
    |-------|-----------|--------------------------------------------------------------|
    | 8     | object id | the linked object                                            |
    | 4     | first row | the first row of the index with blocks of it                 |
    | 2     | bucket    | the bucket of the linked object                              |

All integers are big endian. Row k belongs to the link with the greatest first row <= k. The size of such an object in
metadata is the sum of the linked blocks, not its own size: read the object whole, never by its tail.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from loaders.errors import CorruptObject
from loaders.format.block_index import BlockIndex, decode_block_index
from loaders.format.tail import FOOTER_SIZE_BYTES, Footer, decode_footer

LINKS_MAGIC = 0x52

_HEADER = struct.Struct(">Bi")
_LINK = struct.Struct(">qih")


class LinkedObject(NamedTuple):
    """An object whose blocks a composite object uses, from row ``first_row`` of its index on."""

    object_id: int
    first_row: int
    bucket: int


@dataclass(frozen=True, slots=True, eq=False)
class CompositeObject:
    """The links of a composite object and its index; positions in the index are positions in the linked objects.

    Threads: immutable, so any thread may read it.
    """

    links: tuple[LinkedObject, ...]
    index: BlockIndex

    def locate(self, row_number: int) -> LinkedObject:
        """The object that holds the blocks of a row of the index; O(log links).

        Raises:
            IndexError: there is no such row.
        """
        if not 0 <= row_number < len(self.index):
            raise IndexError(f"expected a row below {len(self.index)}, found {row_number}")
        return self.links[bisect_right(self.links, row_number, key=attrgetter("first_row")) - 1]


def decode_composite(data: bytes | memoryview, *, key: str) -> CompositeObject:
    """Read a whole composite object.

    Complexity: O(links + rows), no loop in Python over rows.

    Args:
        data: the whole object.
        key: the object's key, for the error.

    Raises:
        CorruptObject: the footer of another kind of object; links that do not fill the space before the index, or do
            not divide its rows among them; rows that ``decode_block_index`` refuses.

    Source: docs/reference/objects.md, "Composite object".
    """
    size_bytes = len(data)
    corrupt = partial(CorruptObject, key, size_bytes)
    footer = decode_footer(data, object_size_bytes=size_bytes, key=key)
    if not footer.composite:
        raise corrupt(expected="a composite object", found="the footer of a normal one")
    view = memoryview(data)
    links = _decode_links(view[: footer.index_position], corrupt)
    rows = view[footer.index_position : size_bytes - FOOTER_SIZE_BYTES]
    index = decode_block_index(rows, data_size_bytes=None, key=key, object_size_bytes=size_bytes)
    _check_links(links, len(index), corrupt)
    return CompositeObject(links, index)


def encode_composite(links: tuple[LinkedObject, ...], index: BlockIndex) -> bytes:
    """The bytes of a composite object; the numbers must fit their fields, and the links divide the rows among them."""
    head = _HEADER.pack(LINKS_MAGIC, len(links)) + b"".join(_LINK.pack(*link) for link in links)
    return head + index.data + Footer(len(head), len(index.data), composite=True).encode()


def _decode_links(data: memoryview, corrupt: Callable[..., CorruptObject]) -> tuple[LinkedObject, ...]:
    if len(data) < _HEADER.size:
        raise corrupt(expected=f"{_HEADER.size} bytes or more before the index", found=f"{len(data)}")
    magic, count = _HEADER.unpack_from(data)
    if magic != LINKS_MAGIC:
        raise corrupt(expected=f"links magic {LINKS_MAGIC:#x}", found=f"{magic:#x}")
    if len(data) != _HEADER.size + count * _LINK.size:
        found = f"{len(data)} bytes before the index"
        raise corrupt(expected=f"{_HEADER.size} bytes and {_LINK.size} for each of {count} links", found=found)
    return tuple(map(LinkedObject._make, _LINK.iter_unpack(data[_HEADER.size :])))


def _check_links(links: tuple[LinkedObject, ...], row_count: int, corrupt: Callable[..., CorruptObject]) -> None:
    for link in links:
        if link.object_id < 0 or not 0 <= link.first_row < row_count:
            raise corrupt(expected=f"links to objects from rows below {row_count} on", found=f"{link}")
    if row_count and (not links or links[0].first_row):
        raise corrupt(expected="a link that begins at row 0", found=f"{links[0] if links else 'no links'}")
    for earlier, later in pairwise(links):
        if later.first_row <= earlier.first_row:
            raise corrupt(expected="links ascending by first row", found=f"{earlier}, then {later}")
