"""Columns by segment id: numbers as a map, ids as a set, without an object for each of them.

    IdMap     numbers by segment id, such as a stream cut (offsets) or sealed sizes; reads like a dict
    IdSet     segment ids; reads like a set

A cut of a large stream has tens of thousands of entries. Here each takes 16 bytes, and looking up many is one search in
a sorted column.

Threads: both are immutable, any thread may read them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accel.history.ids import NUMBER_MASK, NUMBER_MAX, segment_text

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

    def with_values(self, changed: Mapping[int, int]) -> IdMap:
        """The same with some values added or replaced."""
        return IdMap.of({**self, **changed})

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

    def united(self, other: IdSet) -> IdSet:
        """Ids of either."""
        return IdSet(np.union1d(self.ids, other.ids))

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
