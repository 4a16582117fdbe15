"""Single values in records: numbers within bounds, names of enumerations, ids of 16 bytes.

What is out of bounds is refused before it is written and when it is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, TypeVar
from uuid import UUID

import msgspec

from accel.history.codecs.history_form import HistoryForm
from accel.history.rules.checks import INT64_MAX, checked_integer

E = TypeVar("E", bound=Enum)
S = TypeVar("S", bound=msgspec.Struct)

UUID_SIZE_BYTES: Final = 16


def checked(what: str, value: int, low: int, high: int = INT64_MAX) -> int:
    """The value itself.

    Raises:
        InvalidArgument: no integer, or one that is out of bounds.
    """
    return checked_integer(what, value, low, high)


def number_form(name: str, fields: type[S], high: int = INT64_MAX) -> HistoryForm[int, S]:
    """The form of records that are one number of 0 to ``high``.

    Args:
        name: of the form.
        fields: a class with one field, the number.
        high: the highest that is taken.
    """

    def stored(value: int) -> S:
        return fields(checked(name, value, 0, high))

    def restored(found: S, _: str) -> int:
        return checked(name, msgspec.structs.astuple(found)[0], 0, high)

    return HistoryForm(name, 1, fields, stored, restored)


def member(kind: type[E], name: str) -> E:
    """The member of an enumeration with this name; names are what is stored, as their values are for people.

    Raises:
        ValueError: there is none.
    """
    if name not in kind.__members__:
        raise ValueError(f"expected one of {', '.join(kind.__members__)}, found {name!r}")
    return kind[name]


def joined_uuids(ids: Sequence[UUID]) -> bytes:
    """16 bytes for each, one after the other."""
    return b"".join(each.bytes for each in ids)


def split_uuids(data: bytes) -> tuple[UUID, ...]:
    """The same back.

    Raises:
        ValueError: a length that is no multiple of 16.
    """
    if len(data) % UUID_SIZE_BYTES:
        raise ValueError(f"expected ids of {UUID_SIZE_BYTES} bytes each, found {len(data)} bytes")
    return tuple(UUID(bytes=data[at : at + UUID_SIZE_BYTES]) for at in range(0, len(data), UUID_SIZE_BYTES))


def optional_uuid_bytes(value: UUID | None) -> bytes:
    """The 16 bytes of an id; none for None."""
    return b"" if value is None else value.bytes


def optional_uuid(data: bytes) -> UUID | None:
    """The same back.

    Raises:
        ValueError: neither 16 bytes nor none.
    """
    if len(data) not in (0, UUID_SIZE_BYTES):
        raise ValueError(f"expected an id of {UUID_SIZE_BYTES} bytes or none, found {len(data)} bytes")
    return UUID(bytes=data) if data else None
