"""A stretch of bytes of one object: one ranged GET."""

from __future__ import annotations

from typing import NamedTuple


class ByteSpan(NamedTuple):
    """Bytes ``[start, end)`` of the object at a key: one ranged GET.

    Attributes:
        key: the object.
        start: first byte.
        end: one past the last byte.
        object_size_bytes: how long the object is; one of another length is another object.
        first: number of the first item (a row group, or an entry of a pack in the order of its plan) in the span.
        stop: one past the number of the last item.
    """

    key: str
    start: int
    end: int
    object_size_bytes: int
    first: int
    stop: int

    @property
    def size_bytes(self) -> int:
        """How many bytes."""
        return self.end - self.start
