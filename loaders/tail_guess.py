"""How many bytes to read from the end of an object whose index size nobody told us.

The production reader reads about 8 KiB. Objects of many streams need much more (324,048 bytes for 9,000), and then a
second request. But the objects of one node are alike: the index sizes of those opened last tell what the next one
needs. A guess that is too large costs a few bytes, one that is too small a request; so it leans to the large side.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from loaders.format import FOOTER_SIZE_BYTES, guess_tail_size_bytes

REMEMBERED_SIZES = 64
REMEMBERED_GROUPS_MAX = 1024
TAIL_SIZE_BYTES_MAX = 8 << 20
"""A guess never asks for more than this: the index of 233,000 rows."""


class TailGuess:
    """Learns index sizes by group (a node) and guesses the next one. Not thread-safe: its owner's lock guards it."""

    def __init__(self) -> None:
        self._sizes: OrderedDict[int, deque[int]] = OrderedDict()

    def learn(self, group: int, index_size_bytes: int) -> None:
        """An object of this group turned out to have an index of this size."""
        sizes = self._sizes.setdefault(group, deque(maxlen=REMEMBERED_SIZES))
        sizes.append(index_size_bytes)
        self._sizes.move_to_end(group)
        if len(self._sizes) > REMEMBERED_GROUPS_MAX:
            self._sizes.popitem(last=False)

    def size_bytes(self, group: int, object_size_bytes: int | None) -> int:
        """Bytes to read from the end, footer included; of an object of this size, or None where that is unknown.

        The largest of the last 64 indexes of the group and an eighth more, at least what the production reader would
        take. Complexity: O(64).
        """
        sizes = self._sizes.get(group)
        learnt = max(sizes) * 9 // 8 + FOOTER_SIZE_BYTES if sizes else 0
        if object_size_bytes is None:
            return max(min(learnt, TAIL_SIZE_BYTES_MAX), guess_tail_size_bytes(1 << 20))
        wanted = max(min(learnt, TAIL_SIZE_BYTES_MAX), guess_tail_size_bytes(object_size_bytes))
        return min(wanted, object_size_bytes)
