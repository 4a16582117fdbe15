"""Checks of numbers, texts and cuts: those that callers and hosts give, and those that records share.

Everything that a caller or a host gives is checked by the functions `checked_*`, before the first write:

    | given             | accepted                                                                              |
    |-------------------|---------------------------------------------------------------------------------------|
    | integer           | int and integers of numpy (`operator.index`), within bounds; no bool, no float        |
    | time              | an integer of 0 <= ms < 10^14, milliseconds since 1970; not compared with the clock   |
    | key               | a finite float or integer, no bool                                                    |
    | text              | str that UTF-8 can encode, within a length                                            |
    | cut, sizes        | a mapping from segment ids to integers of 64 bits                                     |

A float is refused even if it is integral: `time.time() * 1000` is one in one of a thousand calls. Times end at 10^14,
the year 5138, so that microseconds and nanoseconds of today are refused.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Final, SupportsIndex
from uuid import UUID

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accel.errors import InvalidArgument
from accel.history.rules.ids import EPOCH_MAX, IdMap, is_segment_id

INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)

TIME_MS_END: Final = 10**14
"""One past the highest time."""

TEXT_SIZE_MAX: Final = 1000
"""Characters of names that processors and writers give themselves, and of tags."""


def checked_integer(what: str, value: object, low: int = INT64_MIN, high: int = INT64_MAX) -> int:
    """The value as an int.

    Raises:
        InvalidArgument: no integer (a bool, a float), or one that is out of bounds.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, SupportsIndex):
        raise InvalidArgument(f"expected an integer as {what}, found {value!r} of type {type(value).__name__}")
    try:
        found = operator.index(value)
    except TypeError as error:  # arrays have the method, and refuse
        raise InvalidArgument(f"expected an integer as {what}, found {type(value).__name__}") from error
    if not low <= found <= high:
        raise InvalidArgument(f"expected {what} of {low} to {high}, found {found}")
    return found


def checked_time(what: str, time_ms: object) -> int:
    """A time in milliseconds since 1970.

    Raises:
        InvalidArgument: no integer of 0 <= ms < 10^14.
    """
    return checked_integer(f"{what} in milliseconds since 1970", time_ms, 0, TIME_MS_END - 1)


def checked_duration(what: str, duration_ms: object) -> int:
    """A duration of at least 1 ms and less than 10^14 ms.

    Raises:
        InvalidArgument: it is none.
    """
    return checked_integer(f"{what} in milliseconds", duration_ms, 1, TIME_MS_END - 1)


def checked_id(segment_id: object) -> int:
    """A segment's id.

    Raises:
        InvalidArgument: it is none.
    """
    found = checked_integer("a segment id", segment_id)
    if not is_segment_id(found):
        raise InvalidArgument(f"expected a segment id, found {found}")
    return found


def checked_uuid(what: str, value: object) -> UUID:
    """The id of a transaction or a request.

    Raises:
        InvalidArgument: no UUID.
    """
    if not isinstance(value, UUID):
        raise InvalidArgument(f"expected a UUID as {what}, found {type(value).__name__}")
    return value


def checked_text(what: str, value: object, low: int = 1, high: int = TEXT_SIZE_MAX) -> str:
    """A text.

    Raises:
        InvalidArgument: no str, one that UTF-8 cannot encode, or of another length.
    """
    if not isinstance(value, str):
        raise InvalidArgument(f"expected a str as {what}, found {type(value).__name__}")
    if not low <= len(value) <= high:
        raise InvalidArgument(f"expected {what} of {low} to {high} characters, found {len(value)}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"expected {what} that UTF-8 can encode, found {value!r}") from error
    return value


def checked_numbers(what: str, values: object, low: int = INT64_MIN) -> IdMap:
    """Numbers by segment id: a cut, or sizes. O(n log n).

    Args:
        what: they are.
        values: a mapping; an `IdMap` has 64-bit integers already.
        low: the lowest that is accepted.

    Raises:
        InvalidArgument: no mapping, an id that is none, or a number that is none or out of bounds.
    """
    if not isinstance(values, Mapping):
        raise InvalidArgument(f"expected {what} by segment id, found {type(values).__name__}")
    found = values
    if not isinstance(values, IdMap):
        found = {checked_id(each): checked_integer(what, value, low) for each, value in values.items()}
    columns = IdMap.of(found)
    if len(columns) and int(columns.values_array.min()) < low:
        raise InvalidArgument(f"expected {what} of at least {low}, found {int(columns.values_array.min())}")
    return columns


def checked_keys(ranges: Iterable[Sequence[float]]) -> list[tuple[float, float]]:
    """Key ranges as pairs of floats; whether they fit is for others to say.

    Raises:
        InvalidArgument: no pairs, or a key that is no finite number.
    """
    try:
        pairs = [tuple(each) for each in ranges]
    except TypeError as error:
        raise InvalidArgument(f"expected pairs of keys, found {type(ranges).__name__}: {error}") from error
    for each in pairs:
        if len(each) != 2 or not all(map(_is_key, each)):
            raise InvalidArgument(f"expected pairs of finite keys, found {each}")
    return [(float(start), float(end)) for start, end in pairs]


def check_settings(settings: object) -> None:
    """Refuse fields of a dataclass that are no integers, or no finite numbers, where its annotations want such.

    Raises:
        InvalidArgument: the first of them.
    """
    for each in fields(settings):  # type: ignore[arg-type]  # an instance of a dataclass
        value = getattr(settings, each.name)
        if each.type == "int":
            checked_integer(each.name, value)
        elif each.type == "float" and not _is_key(value):
            raise InvalidArgument(f"expected a finite number as {each.name}, found {value!r}")


def check_epoch(where: str, epoch: int, reference_epoch: int) -> None:
    """Refuse what is no epoch, and a reference that is none or lies after it.

    Raises:
        ValueError: either of both.
    """
    if not 0 <= epoch <= EPOCH_MAX:
        raise ValueError(f"{where}: expected an epoch of 0 to {EPOCH_MAX}, found {epoch}")
    if not 0 <= reference_epoch <= epoch:
        raise ValueError(f"{where}: expected a reference of 0 to {epoch}, found {reference_epoch}")


def check_least(where: str, least: int, **numbers: int) -> None:
    """Refuse numbers that are too low.

    Raises:
        ValueError: the first of them that is.
    """
    for name, value in numbers.items():
        if value < least:
            raise ValueError(f"{where}: expected {name} of at least {least}, found {value}")


def integers(values: ArrayLike) -> NDArray[np.int64]:
    """A column of 64-bit integers, taken over and read-only.

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
    return is_number and math.isfinite(value)  # type: ignore[arg-type]  # a number by now
