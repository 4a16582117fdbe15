"""The bytes of one kind of record: a named form, a checksum, the record's fields.

    | bytes | field         | meaning                                                        |
    |-------|---------------|----------------------------------------------------------------|
    | 1     | name's length | 1 to 255                                                       |
    | n     | name          | of the form                                                    |
    | 2     | version       | of the form                                                    |
    | 4     | CRC-32        | of the name, the version (2 bytes) and the fields              |
    | rest  | fields        | a MessagePack map from field names to values                   |

All integers are big endian. Fields that list many numbers are packed columns (see `loaders.tables.columns`).

A table keeps a checksum around each value already. These records have one of their own because they live on without
their table: a history's immutable values stay in caches as bytes for hours, and are decoded again and again.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Any, Generic, TypeVar
from uuid import UUID

import msgspec

from accel.errors import InvalidArgument
from accel.history.codecs.plain import plain
from loaders.errors import CorruptObject, FormatLimit
from loaders.tables.records import Packing, RecordForm

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

_CHECKSUM = struct.Struct(">I")
_VERSION = struct.Struct(">H")


class _Pair(Packing[T]):
    """A record that two functions turn into stored fields, and back."""

    def __init__(self, stored: type[S], pack: Callable[[T], S], unpack: Callable[[Any, str], T]) -> None:
        self.stored, self._pack, self._unpack = stored, pack, unpack

    def pack(self, value: T) -> msgspec.Struct:
        """The stored fields."""
        return self._pack(value)

    def unpack(self, stored: Any, where: str) -> T:
        """The record."""
        return self._unpack(stored, where)


class HistoryForm(RecordForm[T], Generic[T, S]):
    """The form of a record of a history. Threads: immutable.

    Args:
        name: of the form.
        version: what is written.
        fields: the class of the fields that are stored.
        stored: turns a record into those fields.
        restored: turns fields into a record; the text names the place in errors. Its ValueErrors mean damage.
    """

    def __init__(
        self, name: str, version: int, fields: type[S], stored: Callable[[T], S], restored: Callable[[S, str], T]
    ) -> None:
        super().__init__(name, version, _Pair(fields, stored, restored))

    def encode(self, value: T) -> bytes:
        """The record as bytes, which were read back: no record is written that nobody can read. O(size), twice.

        Raises:
            InvalidArgument: a record that would be refused when it is read, or read as another one.
            FormatLimit: more than 1,048,576 rows of one kind.
        """
        try:
            data = super().encode(value)
            same = self.decode(data, f"a record to be written, form {self.name!r}") == value
        except FormatLimit:
            raise
        except (ValueError, TypeError, OverflowError, CorruptObject, msgspec.ValidationError) as error:
            raise InvalidArgument(
                f"expected a record of form {self.name!r} that can be read, found: {error}"
            ) from error
        if not same:
            raise InvalidArgument(f"expected a record of form {self.name!r} that is read as it is, found {value!r}")
        return data

    def expand(self, fields: S) -> object:
        """Stored fields as dicts, lists, text and numbers, for people; what they have packed is shown unpacked."""
        value = self.restore(fields, self.name)
        return plain(fields if isinstance(value, int | str | UUID) else value)

    def _enclosed(self, stored: bytes) -> bytes:
        return _CHECKSUM.pack(self._checksum(self.version, stored)) + stored

    def _disclosed(self, data: bytes, version: int, where: str) -> bytes:
        if len(data) < _CHECKSUM.size:
            raise CorruptObject(where, len(data), expected="a checksum of 4 bytes", found=f"{len(data)}")
        stored = data[_CHECKSUM.size :]
        expected, found = _CHECKSUM.unpack_from(data)[0], self._checksum(version, stored)
        if expected != found:
            raise CorruptObject(where, len(data), expected=f"a CRC-32 of {expected:#010x}", found=f"{found:#010x}")
        return stored

    def _checksum(self, version: int, stored: bytes) -> int:
        return zlib.crc32(stored, zlib.crc32(self.name.encode() + _VERSION.pack(version)))
