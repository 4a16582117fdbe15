"""Where a record belongs: from its key to a number below 1, and from that to the segment that holds it.

    key            b"order-17"
    position       0.73...             64 bits of BLAKE2b, the upper 53 of them as a fraction
    segment        1@0 [0.5, 1.0)      the last one that begins at or before it

The same key has the same position for ever, in every process and every stream; so a key's records stay in order as the
segments change. Segments of one epoch share out all keys from 0 up to 1, none twice.

Source: docs/history.md, "Words".
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from accel.history.rules.ids import Integers
from accel.history.rules.segments import Keys, Segments

HASH_SIZE_BYTES: Final = 8
POSITION_BITS: Final = 53
"""What a 64-bit float holds exactly, so that no position is rounded up to 1."""


def key_position(key: bytes) -> float:
    """Where a key lies, from 0 up to, but not including, 1.

    >>> key_position(b"order-17") == key_position(b"order-17")
    True
    """
    hashed = int.from_bytes(blake2b(key, digest_size=HASH_SIZE_BYTES).digest(), "big")
    return float((hashed >> (8 * HASH_SIZE_BYTES - POSITION_BITS)) / (1 << POSITION_BITS))


def key_positions(keys: Iterable[bytes]) -> Keys:
    """Where keys lie, in their order."""
    return np.fromiter(map(key_position, keys), dtype=np.float64)


class KeyRouter:
    """Finds the segments of positions. Threads: immutable, any.

    Args:
        segments: of one epoch, in any order.

    Raises:
        ValueError: they do not share out all keys.
    """

    def __init__(self, segments: Segments) -> None:
        order = np.argsort(segments.key_starts, kind="stable")
        self.segments = segments.where(order)
        starts, ends = self.segments.key_starts, self.segments.key_ends
        if not len(starts) or starts[0] != 0 or ends[-1] != 1 or (starts[1:] != ends[:-1]).any():
            raise ValueError(f"expected segments that share out the keys from 0 to 1, found {segments}")
        self._starts: list[float] = starts.tolist()
        self._ids: list[int] = self.segments.ids.tolist()

    def segment_at(self, position: float) -> int:
        """The id of the segment that holds a position. O(log n)."""
        return self._ids[bisect_right(self._starts, position) - 1]

    def route(self, positions: ArrayLike) -> Integers:
        """The ids of the segments that hold positions, in their order. O(m log n)."""
        found: Integers = np.searchsorted(self.segments.key_starts, np.asarray(positions), side="right") - 1
        return self.segments.ids[found]


def route(segments: Segments, positions: ArrayLike) -> Integers:
    """The ids of the segments that hold positions, in their order; see `KeyRouter`."""
    return KeyRouter(segments).route(positions)


def grouped(ids: Integers) -> Iterator[tuple[int, list[int]]]:
    """Each id with the places where it stands, both ascending. O(n log n)."""
    order = np.argsort(ids, kind="stable")
    borders = np.flatnonzero(np.diff(ids[order])) + 1
    for places in np.split(order, borders) if len(ids) else ():
        yield int(ids[places[0]]), places.tolist()
