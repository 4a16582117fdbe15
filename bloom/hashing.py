"""From a stream's id to the eight numbers that choose its bits.

    message   16 bytes of salt, then the id in decimal digits
    digest    xxh3_128 of the message, 16 bytes
    pieces    the digest as eight unsigned 16-bit little-endian numbers

Slice j of a filter uses bit ``piece[j] % bits_per_slice``; at 1 % there are seven slices, and the last piece is not
used. The pieces do not depend on the size of a filter, so an id is hashed once for all of them. The salt is what
pybloom_live derives for its first (here its only) hash: the xxh3_128 of four zero bytes.

Stream ids are int64 and not negative; anything else is refused.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import xxhash
from numpy.typing import NDArray

from bloom.xxh3 import NUMBER_END, SaltedDecimalHash

PIECES: Final = 8
SALT: Final = xxhash.xxh3_128_digest(bytes(4))
STREAM_ID_MAX: Final = 2**63 - 1

_HASH: Final = SaltedDecimalHash(SALT)
_EMPTY_SLOT: Final = -1


def hash_id(stream_id: int) -> NDArray[np.uint16]:
    """The pieces of one stream id, shape ``(8,)``.

    Raises:
        ValueError: negative, or more than 2 ** 63 - 1.
    """
    if not 0 <= stream_id <= STREAM_ID_MAX:
        raise ValueError(f"expected a stream id from 0 to {STREAM_ID_MAX}, found {stream_id}")
    return np.frombuffer(_digest(stream_id), dtype="<u2")


def hash_ids(stream_ids: NDArray[np.int64]) -> NDArray[np.uint16]:
    """The pieces of many stream ids, shape ``(len(stream_ids), 8)``.

    Complexity: O(len(stream_ids)), about 33 ns an id; 250 ns where one of them has more than 16 digits.

    Raises:
        ValueError: an id is negative.
    """
    _refuse_negative(stream_ids)
    if not len(stream_ids):
        return np.empty((0, PIECES), dtype="<u2")
    if stream_ids.max() < NUMBER_END:
        return _HASH.digests(stream_ids).view("<u2")
    digests = b"".join([_digest(stream_id) for stream_id in stream_ids.tolist()])
    return np.frombuffer(digests, dtype="<u2").reshape(-1, PIECES)


def _refuse_negative(stream_ids: NDArray[np.int64]) -> None:
    if len(stream_ids) and stream_ids.min() < 0:
        raise ValueError(f"expected stream ids of at least 0, found {stream_ids.min()}")


def _digest(stream_id: int) -> bytes:
    return xxhash.xxh3_128_digest(SALT + b"%d" % stream_id)


class PieceCache:
    """Remembers the pieces of ids, so that a stream in many objects is hashed once.

    A table of fixed size in which each id has one possible slot, found without a loop. Two ids that share a slot
    displace each other, which costs a second hashing and nothing else: a slot is believed only if it names the very id.
    Ids that lie densely, as a cluster's do, share no slots until there are more of them than slots.

    Not thread-safe: the caller's lock guards it. A row read while another thread writes it could carry one id with the
    pieces of another, and a filter built from it would deny what its object holds.

    Args:
        ids_max: upper bound of the ids remembered, rounded down to a power of two; 32 bytes each, allocated at once.

    Raises:
        ValueError: ``ids_max`` is less than 1.
    """

    __slots__ = ("_rows", "_slot_bits")

    def __init__(self, ids_max: int = 262_144) -> None:
        if ids_max < 1:
            raise ValueError(f"expected room for at least 1 id, found {ids_max}")
        self._slot_bits = ids_max.bit_length() - 1
        # A row is the id, two words of four pieces each, and one to spare: numpy gathers rows of 32 bytes the quickest.
        self._rows = np.full((1 << self._slot_bits, 4), _EMPTY_SLOT, dtype=np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of the table, which never grows."""
        return self._rows.nbytes

    def hash_ids(self, stream_ids: NDArray[np.int64]) -> NDArray[np.uint16]:
        """The same as the function of this name, hashing only what is not remembered.

        Complexity: O(len(stream_ids)), about 4 ns an id that is remembered.

        Raises:
            ValueError: an id is negative.
        """
        _refuse_negative(stream_ids)
        slots = (stream_ids ^ (stream_ids >> self._slot_bits)) & (len(self._rows) - 1)
        rows = self._rows.take(slots, axis=0)
        missing = np.flatnonzero(rows[:, 0] != stream_ids)
        if len(missing):
            rows[missing, 0] = stream_ids[missing]
            rows[missing, 1:3] = hash_ids(stream_ids[missing]).view(np.int64)
            self._rows[slots[missing]] = rows[missing]  # where ids of one call share a slot the last one stays
        return rows[:, 1:3].view("<u2")
