"""Memory for parts, used again and again.

A part is some 16 MiB. Memory of that size comes from the system page by page each time it is allocated, and clearing
and mapping these pages takes longer than copying into them. So the few parts that are in memory at once share a few
buffers: one is filled while others are being sent, and comes back when its request is done.
"""

from __future__ import annotations

import io
from collections.abc import Iterable

from loaders.store import Body


class PartBuffer:
    """Memory for one part. One thread at a time."""

    def __init__(self) -> None:
        self._stream = io.BytesIO()
        self._view: memoryview | None = None
        self.capacity_bytes = 0

    def fill(self, pieces: Iterable[Body]) -> memoryview:
        """Put pieces one behind another; the bytes stay until `clear`.

        Complexity: O(bytes), no step in Python a piece.

        Raises:
            BufferError: it is full, and was not cleared.
        """
        self._stream.seek(0)
        self._stream.writelines(pieces)
        size_bytes = self._stream.tell()
        self.capacity_bytes = max(self.capacity_bytes, size_bytes)
        self._view = self._stream.getbuffer()[:size_bytes]
        return self._view

    def clear(self) -> None:
        """Let go what is in it; nobody may look at those bytes any more."""
        if self._view is not None:
            self._view.release()
            self._view = None


class PartBuffers:
    """The buffers of one merge. One thread at a time.

    Args:
        size_bytes_max: of all that are kept for later; a buffer that comes back beyond that is given up.
    """

    def __init__(self, size_bytes_max: int) -> None:
        self._size_bytes_max = size_bytes_max
        self._free: list[PartBuffer] = []

    def take(self) -> PartBuffer:
        """An empty buffer: one that was used before, if there is one."""
        return self._free.pop() if self._free else PartBuffer()

    def give_back(self, buffer: PartBuffer) -> None:
        """What was in it is sent."""
        buffer.clear()
        if sum(each.capacity_bytes for each in self._free) + buffer.capacity_bytes <= self._size_bytes_max:
            self._free.append(buffer)
