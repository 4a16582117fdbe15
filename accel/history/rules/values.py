"""Ids of segments and transactions, columns of numbers by segment id, and the checks of arguments.

    | id             | bits | high                      | low                            |
    |----------------|------|---------------------------|--------------------------------|
    | segment id     | 64   | 32: epoch of its creation | 32: number within the stream   |
    | transaction id | 128  | 32: reference epoch       | 96: a counter                  |

Segment ids ascend with the epochs of their creation. Of two segments that overlap, the segment with the higher id is
later: all comparisons of positions in a stream depend on this. The text of an id is ``number@epoch``: ``3@1`` is
segment number 3, created in epoch 1. Numbers are not unique: when a transaction is committed after the stream has
changed, its old segments are repeated, with the same numbers and a higher epoch.

    IdMap     numbers by segment id, such as a stream cut (offsets) or sealed sizes; reads like a dict
    IdSet     segment ids; reads like a set

A cut of a large stream has tens of thousands of entries. In columns, each entry takes 16 bytes, and one search finds
many entries.

The functions `checked_*` check all values from callers and hosts, before the first write:

    | value             | accepted                                                                              |
    |-------------------|---------------------------------------------------------------------------------------|
    | integer           | int and integers of numpy (`operator.index`), within bounds; no bool, no float        |
    | time              | an integer of 0 <= ms < 10^14, milliseconds since 1970; not compared with the clock   |
    | key               | a finite float or integer, no bool                                                    |
    | text              | str that UTF-8 can encode, within a length                                            |
    | segment id        | an integer that is a valid id, or its text: "3@1"                                     |
    | cut, sizes        | a mapping from segment ids to integers of 64 bits; each segment once                  |

A float is refused even if it is integral: `time.time() * 1000` is integral in one of a thousand calls. Times end at
10^14, the year 5138, so that present times in microseconds or nanoseconds are refused.

Threads: maps and sets are immutable, any thread may read them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, TypeAlias
from uuid import UUID

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accel.errors import InvalidArgument
from loaders.settings import plain_arguments, taker

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
    """The text of a segment's id.

    >>> segment_text(make_id(epoch=1, number=3))
    '3@1'
    """
    return f"{number_of(segment_id)}@{epoch_of(segment_id)}"


def parse_segment(text: str) -> int:
    """A segment's id from its text.

    >>> parse_segment("3@1") == make_id(epoch=1, number=3)
    True

    Raises:
        ValueError: not two decimal numbers with an @ between them, or one of them too large.
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError(f"expected a segment as number@epoch, such as 3@1, found {text!r}")
    return make_id(epoch=int(match[2]), number=int(match[1]))


def make_transaction_id(reference_epoch: int, counter: int) -> UUID:
    """The id of a transaction that began while the stream's segments were those of an epoch.

    Args:
        reference_epoch: the reference of the current epoch, so that duplicates of an epoch share its transactions.
        counter: a number below 2^96 that no other transaction has.

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

SegmentId: TypeAlias = int | str
"""A segment's id, or the text of the id, as an argument."""

Cut: TypeAlias = Mapping[int, int] | Mapping[str, int]
"""Offsets by segment, as an argument."""


class IdMap(Mapping[int, int]):
    """Numbers by segment id: two columns, ascending by id. It equals any mapping of the same content.

    Args:
        ids: segment ids, strictly ascending.
        values: a number for each id.

    Raises:
        ValueError: invalid ids, ids that do not ascend, or another number of values.
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
        """Convert any mapping; an `IdMap` is returned unchanged."""
        if isinstance(values, IdMap):
            return values
        ids = np.fromiter(values.keys(), dtype=np.int64, count=len(values))
        order = np.argsort(ids)
        return cls(ids[order], np.fromiter(values.values(), dtype=np.int64, count=len(values))[order])

    def get_many(self, ids: ArrayLike, default: int) -> Integers:
        """The values of many ids, and a default for missing ids. O(m log n)."""
        positions = self.positions_of(ids)
        if not len(self.ids):
            return np.full(len(positions), default, dtype=np.int64)
        return np.where(positions >= 0, self.values_array[positions], default)

    def positions_of(self, ids: ArrayLike) -> Integers:
        """The positions of ids, -1 for missing ids."""
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
        ids: segment ids, strictly ascending.

    Raises:
        ValueError: invalid ids, or ids that do not ascend.
    """

    __slots__ = ("ids",)

    def __init__(self, ids: ArrayLike = ()) -> None:
        self.ids: Integers = _frozen(np.asarray(ids, dtype=np.int64))
        check_ascending(self.ids)

    @classmethod
    def of(cls, ids: Collection[int] | Integers) -> IdSet:
        """Make a set from ids in any order; repeated ids count once."""
        return cls(np.unique(np.fromiter(ids, dtype=np.int64, count=len(ids))))

    def without(self, other: Integers) -> IdSet:
        """The ids that are not in `other`."""
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
    """The positions of ids among ascending ids, -1 for missing ids. O(m log n)."""
    if not len(ascending):
        return np.full(len(wanted), -1, dtype=np.int64)
    positions = np.searchsorted(ascending, wanted)
    positions[positions == len(ascending)] = 0
    return np.where(ascending[positions] == wanted, positions, -1)


def check_ascending(ids: Integers) -> None:
    """Check that a column has strictly ascending segment ids.

    Raises:
        ValueError: more than one dimension, or ids that are invalid or do not ascend.
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
    """The texts of the first few ids, for messages."""
    known = np.asarray(ids, dtype=np.int64)
    shown = ", ".join(segment_text(segment_id) for segment_id in known[:5].tolist())
    return f"{shown}, ..." if len(known) > 5 else shown or "none"


def _frozen(column: Integers) -> Integers:
    column.setflags(write=False)
    return column


NO_IDS: Final = IdSet()
NOTHING: Final = IdMap()


INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)

TIME_MS_END: Final = 10**14
"""One past the highest time."""

TEXT_SIZE_MAX: Final = 1000
"""Maximum number of characters in names of processors and writers, and in tags."""


checked_arguments: Final = plain_arguments(InvalidArgument)
"""A decorator of public classes and functions; see `loaders.settings`."""


def checked_integer(what: str, value: object, low: int = INT64_MIN, high: int = INT64_MAX) -> int:
    """The value as an int.

    Raises:
        InvalidArgument: not an integer (a bool, a float), or an integer out of bounds.
    """
    number: int = taker(what, "int", InvalidArgument)(value)
    if not low <= number <= high:
        raise InvalidArgument(f"expected {what} of {low} to {high}, found {number}")
    return number


def checked_time(what: str, time_ms: object) -> int:
    """A time in milliseconds since 1970.

    Raises:
        InvalidArgument: not an integer of 0 <= ms < 10^14.
    """
    return checked_integer(f"{what} in milliseconds since 1970", time_ms, 0, TIME_MS_END - 1)


def checked_duration(what: str, duration_ms: object) -> int:
    """A duration of at least 1 ms and less than 10^14 ms.

    Raises:
        InvalidArgument: not such a duration.
    """
    return checked_integer(f"{what} in milliseconds", duration_ms, 1, TIME_MS_END - 1)


def read_id(segment_id: object) -> int:
    """A segment's id from a number or its text; a number is not checked to be a valid id.

    >>> read_id("3@1") == read_id(make_id(epoch=1, number=3))
    True

    Raises:
        InvalidArgument: neither a number nor the text of an id.
    """
    if not isinstance(segment_id, str):
        return checked_integer("a segment id", segment_id)
    try:
        return parse_segment(segment_id)
    except ValueError as error:
        raise InvalidArgument(str(error)) from error


def checked_id(segment_id: object) -> int:
    """A valid segment id from a number or its text.

    Raises:
        InvalidArgument: not a valid id.
    """
    number = read_id(segment_id)
    if not is_segment_id(number):
        raise InvalidArgument(f"expected a segment id, found {number}")
    return number


def checked_uuid(what: str, value: object) -> UUID:
    """The id of a transaction or a request.

    Raises:
        InvalidArgument: not a UUID.
    """
    if not isinstance(value, UUID):
        raise InvalidArgument(f"expected a UUID as {what}, found {type(value).__name__}")
    return value


def checked_text(what: str, value: object, low: int = 1, high: int = TEXT_SIZE_MAX) -> str:
    """A text.

    Raises:
        InvalidArgument: not a str, a str that UTF-8 cannot encode, or one of another length.
    """
    text: str = taker(what, "str", InvalidArgument)(value)
    if not low <= len(text) <= high:
        raise InvalidArgument(f"expected {what} of {low} to {high} characters, found {len(text)}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"expected {what} that UTF-8 can encode, found {text!r}") from error
    return text


def checked_numbers(what: str, values: object, low: int = INT64_MIN) -> IdMap:
    """Numbers by segment id: a cut, or sizes. O(n log n).

    Args:
        what: name of the numbers, for errors.
        values: a mapping; an `IdMap` has 64-bit integers already.
        low: the lowest accepted number.

    Raises:
        InvalidArgument: not a mapping, an invalid id, or a value that is not an integer within bounds.
    """
    if not isinstance(values, Mapping):
        raise InvalidArgument(f"expected {what} by segment id, found {type(values).__name__}")
    numbers = values
    if not isinstance(values, IdMap):
        numbers = {checked_id(segment_id): checked_integer(what, value, low) for segment_id, value in values.items()}
        if len(numbers) < len(values):
            raise InvalidArgument(f"expected {what} with each segment once, found one as a number and as text")
    columns = IdMap.of(numbers)
    if len(columns) and int(columns.values_array.min()) < low:
        raise InvalidArgument(f"expected {what} of at least {low}, found {int(columns.values_array.min())}")
    return columns


def checked_keys(ranges: Iterable[Sequence[float]]) -> list[tuple[float, float]]:
    """Key ranges as pairs of floats; it is not checked whether they fit together.

    Raises:
        InvalidArgument: not pairs, or a key that is not a finite number.
    """
    try:
        pairs = [tuple(pair) for pair in ranges]
    except TypeError as error:
        raise InvalidArgument(f"expected pairs of keys, found {type(ranges).__name__}: {error}") from error
    for pair in pairs:
        if len(pair) != 2 or not all(map(_is_key, pair)):
            raise InvalidArgument(f"expected pairs of finite keys, found {pair}")
    return [(float(start), float(end)) for start, end in pairs]


def check_epoch(where: str, epoch: int, reference_epoch: int) -> None:
    """Check an epoch and its reference epoch.

    Raises:
        ValueError: an invalid epoch, or a reference that is invalid or after the epoch.
    """
    if not 0 <= epoch <= EPOCH_MAX:
        raise ValueError(f"{where}: expected an epoch of 0 to {EPOCH_MAX}, found {epoch}")
    if not 0 <= reference_epoch <= epoch:
        raise ValueError(f"{where}: expected a reference of 0 to {epoch}, found {reference_epoch}")


def check_least(where: str, least: int, **numbers: int) -> None:
    """Check that numbers are not too low.

    Raises:
        ValueError: the first number below `least`.
    """
    for name, value in numbers.items():
        if value < least:
            raise ValueError(f"{where}: expected {name} of at least {least}, found {value}")


def integers(values: ArrayLike) -> NDArray[np.int64]:
    """A read-only column of 64-bit integers; an array is not copied.

    Raises:
        ValueError: not a single column.
    """
    column = np.asarray(values, dtype=np.int64)
    if column.ndim != 1:
        raise ValueError(f"expected one column of numbers, found {column.ndim} dimensions")
    column.setflags(write=False)
    return column


def _is_key(value: object) -> bool:
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return is_number and math.isfinite(value)  # type: ignore[arg-type]  # checked to be a number
