"""The size of a filter, and the bits of an id in it: both as pybloom_live computes them.

**Size**: slices and bits for a number of ids.

A filter consists of ``slices`` equal runs of bits; one hash value selects one bit in each. For a capacity of n ids and
an error rate p:

    slices          k = ceil(log2(1 / p))                                7 at 1 %
    bits per slice  m = ceil(n * |ln p| / (k * (ln 2) ** 2))             12,324 for 9,000 ids at 1 %
    bits                k * m                                            86,268, so 10,784 bytes

These are the formulas of pybloom_live, with the same floating point operations, because a stored filter must have the
size that its reader computes.

A digest has eight pieces, hence at most eight slices. With fewer than 2 ** 15 bits a slice the pieces have 16 bits; at
1 % this is up to a capacity of 23,929. Larger filters are *wide*: their pieces have 32 bits, of another hash, as
pybloom_live changes its hash there. It uses that hash for six to eight slices, and a third one for fewer; wide filters
of fewer slices are neither built nor read, nor filters of 2 ** 21 bits a slice and more.

Filters that are tested together (bloom/filter_matrix.py) must have equal geometry, so a filter is not built for the
exact number of its ids but for the next of a fixed list of capacities, the classes. They are the preferred numbers of
ISO 3 (the R10 series, ten a decade, about x 1.25 apart) from 100 to 1,000,000, and 23,929, the largest capacity that is
not wide.

**Hash**: the eight numbers that select the bits of a stream's id.

    |         | up to 23,929 ids at 1 %                         | wide                                            |
    |---------|-------------------------------------------------|-------------------------------------------------|
    | message | 16 bytes of salt, then the id in decimal digits | 32 bytes of salt, then the id in decimal digits |
    | digest  | xxh3_128 of the message, 16 bytes               | sha256 of the message, 32 bytes                 |
    | pieces  | eight unsigned 16-bit little-endian numbers     | eight unsigned 32-bit little-endian numbers     |

Slice j of a filter uses bit ``piece[j] % bits_per_slice``; at 1 % there are seven slices, and the last piece is not
used. The pieces do not depend on the size of a filter, so an id is hashed once for all filters, and once more for all
wide ones. The salt is the one that pybloom_live derives for its first (here its only) hash: the digest of four zero
bytes.

Stream ids are int64 and not negative; other values are refused.

**Many ids at once.** The hash library takes one message a call, which costs about as much as all other steps of
building a filter. The messages differ only in a number, so `SaltedDecimalHash` implements XXH3 as a few operations on
whole arrays; sha256, with its 64 rounds, would not become faster by this, and is called for each id:

    | bytes  | of a message                                       |
    |--------|----------------------------------------------------|
    | 16     | the salt, the same for all                         |
    | 1..16  | the number in decimal digits, no sign, no padding  |

XXH3 reads a message of 17 to 32 bytes as two overlapping halves: its first 16 bytes, which are the salt, so that all
values computed from them are constants; and its last 16 bytes, which are the digits, preceded by the end of the salt if
there are fewer than 16 digits. Numbers of 17 digits and more take another branch of the algorithm and are hashed by the
library.

Source: the specification of xxHash, "XXH3 algorithm", medium inputs (17 to 128 bytes), seed 0, default secret.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import xxhash
from numpy.typing import NDArray

ERROR_RATE: Final = 0.01
"""The expected share of absent streams that a full filter does not exclude."""

SLICES_MAX: Final = 8
"""A digest has eight pieces, one for each slice."""

WIDE_SLICE_BITS: Final = 2**15
"""From this number of bits a slice on, pybloom_live uses pieces of 32 bits."""

WIDE_SLICES_MIN: Final = 6
"""Wide filters of fewer slices use a third hash, which is not implemented."""

SLICE_BITS_MAX: Final = 2**21 - 1
"""The maximum number of bits a slice, which limits the memory of a filter."""

NARROW_CAPACITY_MAX: Final = 23_929
"""The largest capacity at 1 % that is not wide."""

CAPACITY_MAX: Final = 1_000_000
"""The largest class."""

# fmt: off
CAPACITY_CLASSES: Final = (
    100, 125, 160, 200, 250, 315, 400, 500, 630, 800,
    1_000, 1_250, 1_600, 2_000, 2_500, 3_150, 4_000, 5_000, 6_300, 8_000,
    10_000, 12_500, 16_000, 20_000, NARROW_CAPACITY_MAX, 25_000, 31_500, 40_000, 50_000, 63_000, 80_000,
    100_000, 125_000, 160_000, 200_000, 250_000, 315_000, 400_000, 500_000, 630_000, 800_000, CAPACITY_MAX,
)
# fmt: on
"""The capacities that filters are built for unless a caller passes another one."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """The shape of a filter; filters of equal geometry use the same bit for the same id.

    Immutable: any thread may use it.

    Args:
        capacity: the number of ids that the filter is built for, at least 1.
        error_rate: the rate of false positives at that number of ids, between 0 and 1.

    Raises:
        ValueError: an invalid capacity or error rate, or one that needs a hash that is not implemented.
    """

    capacity: int
    error_rate: float = ERROR_RATE
    slices: int = field(init=False, compare=False)
    bits_per_slice: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        # A comparison with NaN is false, so the conditions describe the allowed values, not the refused ones.
        if not 2.0**-SLICES_MAX <= self.error_rate < 1.0 or 1.0 / self.error_rate <= 1.0:
            raise ValueError(f"expected an error rate from 1/{2**SLICES_MAX} to below 1, found {self.error_rate}")
        if self.capacity < 1:
            raise ValueError(f"expected a capacity of at least 1, found {self.capacity}")
        slices = math.ceil(math.log(1.0 / self.error_rate, 2))  # noqa: FURB163 - log2 may round differently
        bits = math.ceil(self.capacity * abs(math.log(self.error_rate)) / (slices * math.log(2) ** 2))
        if bits > SLICE_BITS_MAX:
            found = f"{bits} for a capacity of {self.capacity}"
            raise ValueError(f"expected at most {SLICE_BITS_MAX} bits a slice, found {found} at {self.error_rate}")
        if bits >= WIDE_SLICE_BITS and slices < WIDE_SLICES_MIN:
            found = f"{slices} at {self.error_rate}"
            raise ValueError(f"expected at least {WIDE_SLICES_MIN} slices of {bits} bits, found {found}")
        object.__setattr__(self, "slices", slices)
        object.__setattr__(self, "bits_per_slice", bits)

    @property
    def is_wide(self) -> bool:
        """Whether the pieces have 32 bits, from another hash."""
        return self.bits_per_slice >= WIDE_SLICE_BITS

    @property
    def bits(self) -> int:
        """The number of bits of the filter."""
        return self.slices * self.bits_per_slice

    @property
    def filter_size_bytes(self) -> int:
        """The bytes of the bits, rounded up, without a header."""
        return (self.bits + 7) // 8


def class_for(count: int) -> int | None:
    """The capacity class for an object of ``count`` distinct streams: the smallest that is sufficient.

    None means that such an object has no filter. An object with more than 1,000,000 streams is always a candidate; an
    empty object is excluded by its empty index.

    Complexity: O(1).
    """
    if not 0 < count <= CAPACITY_MAX:
        return None
    return CAPACITY_CLASSES[bisect_left(CAPACITY_CLASSES, count)]


SALT_SIZE_BYTES: Final = 16
NUMBER_END: Final = 10**16
"""Numbers from here on have more than 16 digits."""

_UINT64_MASK: Final = 2**64 - 1
_SECRET: Final = tuple(  # the first 32 bytes of the algorithm's default secret, as little-endian words
    int.from_bytes(bytes.fromhex(word), "little")
    for word in ("b8fe6c3923a44bbe", "7c01812cf721ad1c", "ded46de9839097db", "7240a4a4b7b3671f")
)
# Arrays of one element rather than scalars: numpy warns when a scalar wraps around, which is intended in a hash.
_PRIME_1: Final = np.array([0x9E3779B185EBCA87], dtype=np.uint64)
_PRIME_2: Final = np.array([0xC2B2AE3D27D4EB4F], dtype=np.uint64)
_PRIME_4: Final = np.array([0x85EBCA77C2B2AE63], dtype=np.uint64)
_PRIME_AVALANCHE: Final = np.array([0x165667919E3779F9], dtype=np.uint64)
_LOW_HALF: Final = np.array([2**32 - 1], dtype=np.uint64)
_HALF: Final = np.array([32], dtype=np.uint64)
_AVALANCHE_SHIFT: Final = np.array([37], dtype=np.uint64)

_POWERS_OF_TEN: Final = 10 ** np.arange(1, 16, dtype=np.int64)
_FOUR_DIGITS: Final = np.array([b"%04d" % number for number in range(10_000)]).view("<u4").astype(np.uint64)


class SaltedDecimalHash:
    """The digests of ``salt + decimal number``.

    Immutable: any thread may use it.

    Args:
        salt: the 16 bytes before each number.
    """

    __slots__ = ("_digit_masks", "_salt_mix", "_salt_sum", "_salt_tails")

    def __init__(self, salt: bytes) -> None:
        if len(salt) != SALT_SIZE_BYTES:
            raise ValueError(f"expected a salt of {SALT_SIZE_BYTES} bytes, found {len(salt)}")
        first, second = int.from_bytes(salt[:8], "little"), int.from_bytes(salt[8:], "little")
        product = (first ^ _SECRET[0]) * (second ^ _SECRET[1])
        self._salt_mix = _word((product ^ product >> 64) & _UINT64_MASK)
        self._salt_sum = _word((first + second) & _UINT64_MASK)
        self._digit_masks = _words_by_digits(b"\0" * (16 - digits) + b"\xff" * digits for digits in range(17))
        self._salt_tails = _words_by_digits(salt[digits:] + b"\0" * digits for digits in range(17))

    def digests(self, numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The digests in their canonical byte order, shape ``(len(numbers), 16)``.

        Complexity: O(len(numbers)), about 33 ns a number.

        Args:
            numbers: each at least 0 and below ``NUMBER_END``, in any order; not checked.
        """
        digit_counts = np.searchsorted(_POWERS_OF_TEN, numbers, side="right") + 1
        first, second = self._last_sixteen_bytes(numbers, digit_counts)
        size = (digit_counts + SALT_SIZE_BYTES).astype(np.uint64)
        low = (size * _PRIME_1 + self._salt_mix) ^ (first + second)
        high = _folded_product(first ^ _word(_SECRET[2]), second ^ _word(_SECRET[3])) ^ self._salt_sum
        digests = np.empty((len(numbers), 2), dtype=">u8")
        digests[:, 0] = -_avalanche(low * _PRIME_1 + high * _PRIME_4 + size * _PRIME_2)
        digests[:, 1] = _avalanche(low + high)
        return digests.view(np.uint8)

    def _last_sixteen_bytes(
        self, numbers: NDArray[np.int64], digit_counts: NDArray[np.intp]
    ) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        # A table contains the digits with leading zeros, four at a time; then the salt's end replaces the zeros.
        upper = numbers // 10**8
        lower = numbers - upper * 10**8
        first = _eight_digits(upper) & self._digit_masks[0].take(digit_counts)
        second = _eight_digits(lower) & self._digit_masks[1].take(digit_counts)
        return first | self._salt_tails[0].take(digit_counts), second | self._salt_tails[1].take(digit_counts)


def _word(value: int) -> NDArray[np.uint64]:
    return np.array([value], dtype=np.uint64)


def _words_by_digits(rows: Iterable[bytes]) -> NDArray[np.uint64]:
    # Two words for each number of digits; transposed, so that each word is one contiguous table.
    words = np.frombuffer(b"".join(rows), dtype="<u8").astype(np.uint64)
    return np.ascontiguousarray(words.reshape(-1, 2).T)


def _eight_digits(numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    upper = numbers // 10_000
    lower = numbers - upper * 10_000
    return _FOUR_DIGITS.take(upper) | _FOUR_DIGITS.take(lower) << _HALF


def _folded_product(left: NDArray[np.uint64], right: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The two halves of the 128-bit products, XORed; long multiplication in halves of 32 bits."""
    left_low, left_high = left & _LOW_HALF, left >> _HALF
    right_low, right_high = right & _LOW_HALF, right >> _HALF
    high_low = left_high * right_low
    middle = (left_low * right_low >> _HALF) + (high_low & _LOW_HALF) + left_low * right_high
    upper = (high_low >> _HALF) + (middle >> _HALF) + left_high * right_high
    folded: NDArray[np.uint64] = upper ^ (left * right)
    return folded


def _avalanche(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    words = (words ^ words >> _AVALANCHE_SHIFT) * _PRIME_AVALANCHE
    mixed: NDArray[np.uint64] = words ^ words >> _HALF
    return mixed


PIECES: Final = 8
SALT: Final = xxhash.xxh3_128_digest(bytes(4))
WIDE_SALT: Final = hashlib.sha256(bytes(4)).digest()
STREAM_ID_MAX: Final = 2**63 - 1

Pieces = NDArray[np.unsignedinteger[Any]]
"""Rows of eight numbers of 16 bits, or of 32 bits for a wide geometry."""

_HASH: Final = SaltedDecimalHash(SALT)
_EMPTY_SLOT: Final = -1


def hash_id(stream_id: int, *, is_wide: bool = False) -> Pieces:
    """The pieces of one stream id, shape ``(8,)``: 0.7 us, 1 us for wide ones.

    Raises:
        ValueError: an id that is negative, or more than 2 ** 63 - 1.
    """
    if not 0 <= stream_id <= STREAM_ID_MAX:
        raise ValueError(f"expected a stream id from 0 to {STREAM_ID_MAX}, found {stream_id}")
    if is_wide:
        return np.frombuffer(_wide_digest(stream_id), dtype="<u4")
    return np.frombuffer(_digest(stream_id), dtype="<u2")


def hash_ids(stream_ids: NDArray[np.int64], *, is_wide: bool = False) -> Pieces:
    """The pieces of many stream ids, shape ``(len(stream_ids), 8)``.

    Complexity: O(len(stream_ids)), about 33 ns an id; 250 ns if one of them has more than 16 digits, 0.5 us for wide
    pieces.

    Raises:
        ValueError: an id is negative.
    """
    _refuse_negative(stream_ids)
    if not len(stream_ids):
        return np.empty((0, PIECES), dtype=piece_dtype(is_wide=is_wide))
    if is_wide:
        return np.frombuffer(b"".join(map(_wide_digest, stream_ids.tolist())), dtype="<u4").reshape(-1, PIECES)
    if stream_ids.max() < NUMBER_END:
        return _HASH.digests(stream_ids).view("<u2")
    return np.frombuffer(b"".join(map(_digest, stream_ids.tolist())), dtype="<u2").reshape(-1, PIECES)


def piece_dtype(*, is_wide: bool) -> np.dtype[Any]:
    """The type of the pieces of a geometry."""
    return np.dtype("<u4" if is_wide else "<u2")


def _refuse_negative(stream_ids: NDArray[np.int64]) -> None:
    if len(stream_ids) and stream_ids.min() < 0:
        raise ValueError(f"expected stream ids of at least 0, found {stream_ids.min()}")


def _digest(stream_id: int) -> bytes:
    return xxhash.xxh3_128_digest(SALT + b"%d" % stream_id)


def _wide_digest(stream_id: int) -> bytes:
    return hashlib.sha256(WIDE_SALT + b"%d" % stream_id).digest()


HASHED_IDS_MAX: Final = 262_144
"""The default maximum number of ids in a `PieceCache`."""


class PieceCache:
    """Caches the pieces of ids, so that a stream in many objects is hashed once.

    The cache is a table of fixed size in which each id has one possible slot, found without a loop. Two ids with the
    same slot displace each other, which only costs a second hashing: a slot is used only if it contains exactly this
    id. Dense ids, as those of a cluster, do not share slots until there are more ids than slots. Wide pieces have a
    separate table, which is created on first use.

    Not thread-safe: the caller's lock guards it. A row read while another thread writes it could contain one id with
    the pieces of another, and a filter built from it would exclude streams that its object holds.

    Args:
        ids_max: maximum number of ids, rounded down to a power of two; 32 bytes each, allocated at once, and 40 bytes
            each for wide pieces.

    Raises:
        ValueError: ``ids_max`` is less than 1.
    """

    __slots__ = ("_rows", "_slot_bits", "_wide_rows")

    def __init__(self, ids_max: int = HASHED_IDS_MAX) -> None:
        if ids_max < 1:
            raise ValueError(f"expected ids_max of at least 1, found {ids_max}")
        self._slot_bits = ids_max.bit_length() - 1
        # A row is the id, two words of four pieces each, and a spare word: numpy gathers rows of 32 bytes fastest.
        self._rows = self._make_rows(4)
        self._wide_rows: NDArray[np.int64] | None = None  # the id, and four words of two pieces each

    @property
    def nbytes(self) -> int:
        """Bytes of the tables; it grows only when the second table is created."""
        return self._rows.nbytes + (0 if self._wide_rows is None else self._wide_rows.nbytes)

    def hash_ids(self, stream_ids: NDArray[np.int64], *, is_wide: bool = False) -> Pieces:
        """As the function `hash_ids`, but hashes only ids that are not in the cache.

        Complexity: O(len(stream_ids)), about 4 ns an id that is in the cache.

        Raises:
            ValueError: an id is negative.
        """
        _refuse_negative(stream_ids)
        table, words = self._table(is_wide=is_wide)
        slots = (stream_ids ^ (stream_ids >> self._slot_bits)) & (len(table) - 1)
        rows = table.take(slots, axis=0)
        missing = np.flatnonzero(rows[:, 0] != stream_ids)
        if len(missing):
            rows[missing, 0] = stream_ids[missing]
            rows[missing, 1:words] = hash_ids(stream_ids[missing], is_wide=is_wide).view(np.int64)
            table[slots[missing]] = rows[missing]  # if ids of one call share a slot, the last one is kept
        return rows[:, 1:words].view(piece_dtype(is_wide=is_wide))

    def _table(self, *, is_wide: bool) -> tuple[NDArray[np.int64], int]:
        if not is_wide:
            return self._rows, 3
        if self._wide_rows is None:
            self._wide_rows = self._make_rows(5)
        return self._wide_rows, 5

    def _make_rows(self, words: int) -> NDArray[np.int64]:
        return np.full((1 << self._slot_bits, words), _EMPTY_SLOT, dtype=np.int64)
