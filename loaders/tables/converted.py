"""Forms of records whose class is not what is stored: columns that are packed, say, or objects made of parts.

record  --stored-->  fields (a `msgspec.Struct`)  --RecordForm-->  bytes          and back
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import msgspec

from loaders.errors import CorruptObject
from loaders.tables.forms import RecordForm

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)


class Codec(Protocol[T]):
    """Records of one type to bytes and back."""

    def encode(self, value: T) -> bytes:
        """The record as bytes."""
        ...

    def decode(self, data: bytes, where: str) -> T:
        """The record in these bytes; `where` names the place in errors."""
        ...


class ConvertedForm(Generic[T, S]):
    """A form whose records are of a class of ours, and not the fields that are stored. Threads: immutable.

    Args:
        record: the form of the stored fields.
        stored: turns a record into those fields.
        restored: turns fields into a record; the text names the place in errors. Its ValueErrors mean damage.
    """

    def __init__(self, record: RecordForm[S], stored: Callable[[T], S], restored: Callable[[S, str], T]) -> None:
        self.record = record
        self._stored = stored
        self._restored = restored

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.record.version})"

    @property
    def name(self) -> str:
        """What the bytes say they are."""
        return self.record.name

    def encode(self, value: T) -> bytes:
        """The record as bytes; what a table puts into its envelope. Equal records have equal bytes. O(size).

        Raises:
            FormatLimit: more than 1,048,576 rows of one kind.
        """
        return self.record.encode(self._stored(value))

    def decode(self, data: bytes, where: str) -> T:
        """The record in these bytes. O(size); nothing is allocated on the word of a length that was not checked.

        Args:
            data: what `encode` made, in this release or an earlier one.
            where: table and key, for the error's sake.

        Raises:
            FormatTooNew: a newer release wrote it: another version of the form or of its columns, or a column more.
            CorruptObject: another form, or no record of this one.
        """
        fields = self.record.decode(data, where)
        try:
            return self._restored(fields, where)
        except (ValueError, OverflowError) as error:
            expected = f"a record of form {self.name!r} with its rows in order"
            raise CorruptObject(where, len(data), expected=expected, found=str(error)) from error
