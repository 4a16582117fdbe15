"""XXH3 with 128 bits of many short messages at once: a fixed salt and a decimal number behind it.

The hash library takes one message a call, which costs about as much as everything else that is done to build a filter.
The messages here differ in nothing but a number, so the algorithm can be written as a few operations on whole arrays.

    | bytes  | of a message                                       |
    |--------|----------------------------------------------------|
    | 16     | the salt, the same for all                         |
    | 1..16  | the number in decimal digits, no sign, no padding  |

XXH3 reads a message of 17 to 32 bytes as two overlapping halves: its first 16 bytes, which are our salt, so that
everything made of them is a constant; and its last 16 bytes, which are the digits, with the end of the salt before them
where the digits are fewer than 16. Numbers of 17 digits and more take another branch of the algorithm and are left to
the library (bloom/hashing.py).

Source: the specification of xxHash, "XXH3 algorithm", medium inputs (17 to 128 bytes), seed 0, default secret.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

SALT_SIZE_BYTES: Final = 16
NUMBER_END: Final = 10**16
"""Numbers from here on have more than 16 digits."""

_UINT64_MASK: Final = 2**64 - 1
_SECRET: Final = tuple(  # the first 32 bytes of the algorithm's default secret, as little-endian words
    int.from_bytes(bytes.fromhex(word), "little")
    for word in ("b8fe6c3923a44bbe", "7c01812cf721ad1c", "ded46de9839097db", "7240a4a4b7b3671f")
)
# Arrays of one element rather than scalars: numpy warns when a scalar wraps around, and wrapping is what a hash does.
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
        # Sixteen digits with leading zeros come from a table, four at a time; then the salt's end replaces the zeros.
        upper = numbers // 10**8
        lower = numbers - upper * 10**8
        first = _eight_digits(upper) & self._digit_masks[0].take(digit_counts)
        second = _eight_digits(lower) & self._digit_masks[1].take(digit_counts)
        return first | self._salt_tails[0].take(digit_counts), second | self._salt_tails[1].take(digit_counts)


def _word(value: int) -> NDArray[np.uint64]:
    return np.array([value], dtype=np.uint64)


def _words_by_digits(rows: Iterable[bytes]) -> NDArray[np.uint64]:
    # Two words a number of digits; the words first, so that each is one contiguous table.
    words = np.frombuffer(b"".join(rows), dtype="<u8").astype(np.uint64)
    return np.ascontiguousarray(words.reshape(-1, 2).T)


def _eight_digits(numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    upper = numbers // 10_000
    lower = numbers - upper * 10_000
    return _FOUR_DIGITS.take(upper) | _FOUR_DIGITS.take(lower) << _HALF


def _folded_product(left: NDArray[np.uint64], right: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The two halves of the 128-bit products, XORed; school multiplication in halves of 32 bits."""
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
