"""Names of segments and transactions: plain numbers that tell when their bearer came to be.

    | id             | bits | high                      | low                            |
    |----------------|------|---------------------------|--------------------------------|
    | segment id     | 64   | 32: epoch of its creation | 32: number within the stream   |
    | transaction id | 128  | 32: reference epoch       | 96: a counter                  |

Segment ids ascend with the epochs of their creation. Of two segments that overlap, the one with the higher id is the
later one: all comparisons of positions in a stream rest on this. People read and write them as ``number@epoch``, so
``3@1`` is segment number 3, created in epoch 1. Numbers are not unique: when a transaction is committed after the
stream has changed, its old segments come once more, with the same numbers and a higher epoch.
"""

from __future__ import annotations

import re
from typing import Final
from uuid import UUID

EPOCH_MAX: Final = 2**31 - 1
NUMBER_MAX: Final = 2**31 - 1
COUNTER_MAX: Final = 2**96 - 1

NUMBER_BITS: Final = 32
NUMBER_MASK: Final = 2**NUMBER_BITS - 1

_COUNTER_BITS: Final = 96
_TEXT = re.compile(r"(0|[1-9][0-9]{0,9})@(0|[1-9][0-9]{0,9})", re.ASCII)


def make_id(epoch: int, number: int) -> int:
    """The id of the segment with this number that was created in this epoch.

    Raises:
        ValueError: an epoch or a number below 0 or above 2^31 - 1.
    """
    _check("epoch", epoch, EPOCH_MAX)
    _check("segment number", number, NUMBER_MAX)
    return epoch << NUMBER_BITS | number


def epoch_of(segment_id: int) -> int:
    """The epoch in which the segment was created."""
    return segment_id >> NUMBER_BITS


def number_of(segment_id: int) -> int:
    """The segment's number within its stream."""
    return segment_id & NUMBER_MASK


def is_segment_id(value: int) -> bool:
    """Whether a number can be a segment's id: both of its halves are at most 2^31 - 1."""
    return 0 <= epoch_of(value) <= EPOCH_MAX and number_of(value) <= NUMBER_MAX


def segment_text(segment_id: int) -> str:
    """A segment's id as people write it.

    >>> segment_text(make_id(epoch=1, number=3))
    '3@1'
    """
    return f"{number_of(segment_id)}@{epoch_of(segment_id)}"


def parse_segment(text: str) -> int:
    """A segment's id from what people write.

    >>> parse_segment("3@1") == make_id(epoch=1, number=3)
    True

    Raises:
        ValueError: not two decimal numbers with an @ between them, or one of them too large.
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError(f"a segment is written as number@epoch, such as 3@1: found {text!r}")
    return make_id(epoch=int(match[2]), number=int(match[1]))


def physical_name(scope: str, stream: str, segment_id: int) -> str:
    """The name under which stores of segments know a segment.

    >>> physical_name("shop", "orders", make_id(epoch=1, number=3))
    'shop/orders/3.#epoch.1'

    Source: PDP-32.
    """
    return f"{scope}/{stream}/{number_of(segment_id)}.#epoch.{epoch_of(segment_id)}"


def make_transaction_id(reference_epoch: int, counter: int) -> UUID:
    """The id of a transaction that began while the stream's segments were those of an epoch.

    Args:
        reference_epoch: the reference of the current epoch, so that duplicates of an epoch share its transactions.
        counter: a number that no other transaction has, below 2^96.

    Raises:
        ValueError: a number out of bounds.
    """
    _check("reference epoch", reference_epoch, EPOCH_MAX)
    _check("transaction counter", counter, COUNTER_MAX)
    return UUID(int=reference_epoch << _COUNTER_BITS | counter)


def transaction_epoch(transaction_id: UUID) -> int:
    """The reference epoch in which a transaction began."""
    return transaction_id.int >> _COUNTER_BITS


def _check(name: str, value: int, maximum: int) -> None:
    if not 0 <= value <= maximum:
        raise ValueError(f"expected {name} of 0 to {maximum}, found {value}")
