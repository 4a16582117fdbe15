"""Which rows of an index a read needs.

A read asks for ``[start, end)`` of one stream and brings a budget of bytes. The rows of a stream are sorted by offset,
so the answer is a run of them, beginning with the first row that ends after ``start``:

* It stops at a *hole*: a row that starts after the next offset wanted does not help.
* A row costs its payload, but a row that starts before the offset wanted is free. Only the first row can be such a
  one: the read uses part of it, and nobody knows how large that part is.
* It is *fulfilled* once it reaches ``end``, or once the budget is spent. Otherwise the object ends, or has a hole, and
  the caller goes on from ``next_offset`` elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from loaders.format.block_index import BlockIndex

OPEN_END = -1


class Found(NamedTuple):
    """The rows that a read needs, and where it stands after them.

    Attributes:
        rows: numbers of rows of the index, ascending.
        fulfilled: whether the end was reached or the budget spent; if not, this object has no more for the read.
        next_offset: where to go on; the start asked for, if there are no rows.
        bytes_left: what is left of the budget.
    """

    rows: tuple[int, ...]
    fulfilled: bool
    next_offset: int
    bytes_left: int


def find(index: BlockIndex, stream_id: int, start: int, end: int, max_bytes: int) -> Found:
    """Choose the rows for ``[start, end)`` of a stream within a budget; the last one may reach beyond either.

    Complexity: O(log rows) and O(1) for each row chosen.

    Args:
        index: the rows of one object.
        stream_id: the stream to read.
        start: the first offset wanted.
        end: one past the last offset wanted, or ``OPEN_END`` (-1): until the budget or the object ends.
        max_bytes: payload bytes to read at most, at least 0; the row that spends the rest is still chosen.

    Raises:
        ValueError: a negative budget.

    Source: the production reader's answers; docs/formats.md, "Finding blocks".
    """
    if max_bytes < 0:
        raise ValueError(f"expected a budget of at least 0 bytes, found {max_bytes}")
    chosen: list[int] = []
    next_offset, bytes_left = start, max_bytes
    for number in range(index.first_row_beyond(stream_id, start), len(index)):
        row = index.row(number)
        if row.stream_id != stream_id or row.start > next_offset:
            break
        if row.end == next_offset:  # no offsets in it
            continue
        if row.start == next_offset:
            bytes_left -= min(bytes_left, row.payload_bytes)
        chosen.append(number)
        next_offset = row.end
        if (end != OPEN_END and next_offset >= end) or not bytes_left:
            return Found(tuple(chosen), fulfilled=True, next_offset=next_offset, bytes_left=bytes_left)
    return Found(tuple(chosen), fulfilled=False, next_offset=next_offset, bytes_left=bytes_left)
