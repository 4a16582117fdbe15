"""Ids of segments and transactions, and columns of numbers by segment id.

    | id             | bits | high                      | low                            |
    |----------------|------|---------------------------|--------------------------------|
    | segment id     | 64   | 32: epoch of its creation | 32: number within the stream   |
    | transaction id | 128  | 32: reference epoch       | 96: a counter                  |

Segment ids ascend with the epochs of their creation. Of two segments that overlap, the one with the higher id is the
later one: all comparisons of positions in a stream rest on this. People read and write them as ``number@epoch``, so
``3@1`` is segment number 3, created in epoch 1. Numbers are not unique: when a transaction is committed after the
stream has changed, its old segments come once more, with the same numbers and a higher epoch.

    IdMap     numbers by segment id, such as a stream cut (offsets) or sealed sizes; reads like a dict
    IdSet     segment ids; reads like a set

A cut of a large stream has tens of thousands of entries. As a column each takes 16 bytes, and looking up many is one
search.

Threads: maps and sets are immutable, any thread may read them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Final, TypeAlias
from uuid import UUID

import numpy as np
from numpy.typing import ArrayLike, NDArray

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


Integers: TypeAlias = NDArray[np.int64]


class IdMap(Mapping[int, int]):
    """Numbers by segment id: two columns, ascending by id. It equals any mapping of the same content.

    Args:
        ids: segment ids, strictly ascending.
        values: a number for each.

    Raises:
        ValueError: ids that are none, or do not ascend, or another count of values.
    """

    __slots__ = ("ids", "values_array")

    def __init__(self, ids: ArrayLike = (), values: ArrayLike = ()) -> None:
        self.ids: Integers = _frozen(np.asarray(ids, dtype=np.int64))
        self.values_array: Integers = _frozen(np.asarray(values, dtype=np.int64))
        check_ascending(self.ids)
        if self.ids.shape != self.values_array.shape:
            raise ValueError(
                f"expected a value for each id, found {len(self.ids)} ids, {len(self.values_array)} values"
            )

    @classmethod
    def of(cls, values: Mapping[int, int]) -> IdMap:
        """From any mapping; an `IdMap` is returned as it is."""
        if isinstance(values, IdMap):
            return values
        ids = np.fromiter(values.keys(), dtype=np.int64, count=len(values))
        order = np.argsort(ids)
        return cls(ids[order], np.fromiter(values.values(), dtype=np.int64, count=len(values))[order])

    def get_many(self, ids: ArrayLike, default: int) -> Integers:
        """The values of many ids at once, and a default for those that are not here. O(m log n)."""
        positions = self.positions_of(ids)
        if not len(self.ids):
            return np.full(len(positions), default, dtype=np.int64)
        return np.where(positions >= 0, self.values_array[positions], default)

    def positions_of(self, ids: ArrayLike) -> Integers:
        """Where ids stand, -1 for those that do not."""
        return positions_in(self.ids, np.asarray(ids, dtype=np.int64))

    def __getitem__(self, segment_id: int) -> int:
        position = int(self.positions_of([segment_id])[0])
        if position < 0:
            raise KeyError(segment_id)
        return int(self.values_array[position])

    def __iter__(self) -> Iterator[int]:
        return iter(self.ids.tolist())

    def __len__(self) -> int:
        return len(self.ids)

    def __hash__(self) -> int:
        return hash((self.ids.tobytes(), self.values_array.tobytes()))

    def __repr__(self) -> str:
        shown = ", ".join(f"{segment_text(key)}: {value}" for key, value in list(self.items())[:5])
        return f"<{len(self)} by id: {shown}{', ...' if len(self) > 5 else ''}>"


class IdSet(Collection[int]):
    """Segment ids, ascending. It equals any set of the same content.

    Args:
        ids: strictly ascending.

    Raises:
        ValueError: ids that are none, or do not ascend.
    """

    __slots__ = ("ids",)

    def __init__(self, ids: ArrayLike = ()) -> None:
        self.ids: Integers = _frozen(np.asarray(ids, dtype=np.int64))
        check_ascending(self.ids)

    @classmethod
    def of(cls, ids: Collection[int] | Integers) -> IdSet:
        """From ids in any order; repeated ones count once."""
        return cls(np.unique(np.fromiter(ids, dtype=np.int64, count=len(ids))))

    def without(self, other: Integers) -> IdSet:
        """Ids that are not among others."""
        return IdSet(self.ids[~np.isin(self.ids, other)])

    def __contains__(self, segment_id: object) -> bool:
        return isinstance(segment_id, int) and bool(positions_in(self.ids, np.array([segment_id]))[0] >= 0)

    def __iter__(self) -> Iterator[int]:
        return iter(self.ids.tolist())

    def __len__(self) -> int:
        return len(self.ids)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, IdSet):
            return np.array_equal(self.ids, other.ids)
        return set(self) == other if isinstance(other, AbstractSet) else NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self))

    def __repr__(self) -> str:
        return f"<{len(self)} ids: {some_ids(self.ids)}>"


def positions_in(ascending: Integers, wanted: Integers) -> Integers:
    """Where ids stand among ascending ones, -1 for those that do not. O(m log n)."""
    if not len(ascending):
        return np.full(len(wanted), -1, dtype=np.int64)
    found = np.searchsorted(ascending, wanted)
    found[found == len(ascending)] = 0
    return np.where(ascending[found] == wanted, found, -1)


def check_ascending(ids: Integers) -> None:
    """Refuse what is not a column of strictly ascending segment ids.

    Raises:
        ValueError: it is not.
    """
    if ids.ndim != 1:
        raise ValueError(f"expected one column of ids, found {ids.ndim} dimensions")
    if not len(ids):
        return
    if (ids[1:] <= ids[:-1]).any():
        at = int((ids[1:] <= ids[:-1]).argmax())
        raise ValueError(f"expected ascending ids, each once, found {ids[at + 1]} after {ids[at]}")
    if ids[0] < 0 or ((ids & NUMBER_MASK) > NUMBER_MAX).any():
        raise ValueError(f"expected segment ids, found {ids[0]} to {ids[-1]}")


def some_ids(ids: ArrayLike) -> str:
    """The first few ids, as people read them, for messages."""
    known = np.asarray(ids, dtype=np.int64)
    shown = ", ".join(segment_text(each) for each in known[:5].tolist())
    return f"{shown}, ..." if len(known) > 5 else shown or "none"


def _frozen(column: Integers) -> Integers:
    column.setflags(write=False)
    return column


NO_IDS: Final = IdSet()
NOTHING: Final = IdMap()
