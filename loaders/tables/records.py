"""Records and their bytes: the class of a record determines its stored form.

    | bytes | field         | meaning                                             |
    |-------|---------------|-----------------------------------------------------|
    | 1     | name's length | 1 to 255                                            |
    | n     | name          | of the form: lower-case ASCII letters, digits, "-"  |
    | 2     | version       | of the form, big endian, from 1 on                  |
    | rest  | record        | a MessagePack map from field names to values        |

So a value contains the name of its form, and any MessagePack reader can decode its record.

**Classes.** The class of a record is a frozen dataclass or a `msgspec.Struct`. MessagePack stores most fields as they
are annotated, a UUID as its 16 bytes. Other types have a `Packing`: enumerations and nested records have one by their
type, a field by its annotation, and types of arrays by a table that the form names:

    @dataclass(frozen=True)
    class Checkpoint:
        node_id: int
        order_id: int
        ends: Annotated[Rows, Columns(STREAM_END)]

    CHECKPOINT = RecordForm("node-checkpoint", 1, Checkpoint)

`RecordForm` derives the stored struct (``node_id: int, order_id: int, ends: bytes``) and both conversions. Records that
are read pass the same checks of their class as new records: a ValueError of the class means damage.

    record  --Packing.pack-->  stored fields (a `msgspec.Struct`)  --msgspec-->  bytes          and back

**Versions.** Another version than that of this release is refused, a newer one as such. An unknown field is ignored.
"""

from __future__ import annotations

import dataclasses
import operator
import re
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from types import UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    Protocol,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
import numpy as np
from numpy.typing import NDArray

from loaders.errors import CorruptObject, FormatTooNew
from loaders.tables.columns import ROWS_MAX, is_packed, pack_columns, unpack_any, unpack_columns

T = TypeVar("T")
E = TypeVar("E", bound=Enum)

VERSION_MAX = 0xFFFF
INT64_MAX: Final = 2**63 - 1

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,254}")
_VERSION = struct.Struct(">H")


class Codec(Protocol[T]):
    """Converts records of one type to bytes and back."""

    def encode(self, value: T) -> bytes:
        """The record as bytes."""
        ...

    def decode(self, data: bytes, where: str) -> T:
        """The record in these bytes; `where` is the place, for errors."""
        ...


class Packing(ABC, Generic[T]):
    """Converts a value to a stored field of a record and back. Threads: immutable.

    Attributes:
        stored: the type of the stored field, which msgspec checks.
    """

    stored: Any

    @abstractmethod
    def pack(self, value: T) -> Any:
        """The stored field."""

    @abstractmethod
    def unpack(self, stored: Any, where: str) -> T:
        """The value; `where` is the place, for errors.

        Raises:
            ValueError, CorruptObject: the stored field is invalid.
        """


class Columns(Packing[NDArray[np.void]]):
    """Rows of 64-bit integers as packed columns (see `loaders.tables.columns`).

    Args:
        dtype: the fields of a row.
        rows_max: more rows are refused before they are unpacked.
    """

    stored = bytes

    def __init__(self, dtype: np.dtype[np.void], rows_max: int = ROWS_MAX) -> None:
        self.dtype, self.rows_max = dtype, rows_max

    def pack(self, value: NDArray[np.void]) -> bytes:
        """The packed columns."""
        return pack_columns(value)

    def unpack(self, stored: bytes, where: str) -> NDArray[np.void]:
        """The rows."""
        return unpack_columns(stored, self.dtype, where, rows_max=self.rows_max)


class Listed(Packing[NDArray[np.int64]]):
    """A short array of integers as a list of numbers; more than `numbers_max` are refused."""

    def __init__(self, numbers_max: int) -> None:
        self.stored = Annotated[list[int], msgspec.Meta(max_length=numbers_max)]

    def pack(self, value: NDArray[np.int64]) -> list[int]:
        """The numbers."""
        numbers: list[int] = value.tolist()
        return numbers

    def unpack(self, stored: list[int], where: str) -> NDArray[np.int64]:  # noqa: ARG002 - the others' arguments
        """The array."""
        return np.array(stored, dtype=np.int64)


class ByName(Packing[E]):
    """A member of an enumeration by its name; its value is for display and may change."""

    stored = str

    def __init__(self, kind: type[E]) -> None:
        self.kind = kind

    def pack(self, value: E) -> str:
        """The name."""
        return value.name

    def unpack(self, stored: str, where: str) -> E:  # noqa: ARG002 - the others' arguments
        """The member."""
        if stored not in self.kind.__members__:
            raise ValueError(f"expected one of {', '.join(self.kind.__members__)}, found {stored!r}")
        return self.kind[stored]


class Bounded(Packing[int]):
    """A number of 0 to `high`, checked when it is written and when it is read; `what` is its name in errors."""

    stored = int

    def __init__(self, what: str, high: int = INT64_MAX) -> None:
        self.what, self.high = what, high

    def pack(self, value: int) -> int:
        """The number."""
        number = operator.index(value)
        if not 0 <= number <= self.high:
            raise ValueError(f"expected {self.what} of 0 to {self.high}, found {number}")
        return number

    def unpack(self, stored: int, where: str) -> int:  # noqa: ARG002 - the others' arguments
        """The number."""
        return self.pack(stored)


class Optional(Packing[T | None]):
    """A value with a packing, or nil for None."""

    def __init__(self, packing: Packing[T]) -> None:
        self._packing = packing
        self.stored = packing.stored | None

    def pack(self, value: T | None) -> Any:
        """The stored field, or None."""
        return None if value is None else self._packing.pack(value)

    def unpack(self, stored: Any, where: str) -> T | None:
        """The value, or None."""
        return None if stored is None else self._packing.unpack(stored, where)


Packings: TypeAlias = Mapping[Any, Packing[Any]]
"""Annotated type -> packing of its values."""


class Nested(Packing[T]):
    """A record as a struct of its fields.

    Args:
        record: its class, a dataclass or a `msgspec.Struct`.
        by_type: packings of further types, in this record and in nested records.
        by_field: packings of single fields; they take precedence over annotations.
    """

    def __init__(
        self,
        record: type[T],
        by_type: Packings | None = None,
        *,
        by_field: Mapping[str, Packing[Any]] | None = None,
    ) -> None:
        hints = get_type_hints(record, include_extras=True)
        names = _attributes(record)
        found = {name: (by_field or {}).get(name) or packing_of(hints[name], by_type) for name in names}
        fields = [(name, hints[name] if packing is None else packing.stored) for name, packing in found.items()]
        self.record = record
        self.stored = msgspec.defstruct(f"Stored{record.__name__}", fields, frozen=True)
        self._packings = {name: packing for name, packing in found.items() if packing is not None}
        self._same = [name for name in names if name not in self._packings]

    @property
    def is_packed(self) -> bool:
        """Whether any field is stored in another form."""
        return bool(self._packings)

    def pack(self, value: T) -> msgspec.Struct:
        """The stored fields."""
        fields = {name: getattr(value, name) for name in self._same}
        for name, packing in self._packings.items():
            fields[name] = packing.pack(getattr(value, name))
        stored: msgspec.Struct = self.stored(**fields)
        return stored

    def unpack(self, stored: msgspec.Struct, where: str) -> T:
        """The record."""
        fields = msgspec.structs.asdict(stored)
        for name, packing in self._packings.items():
            fields[name] = packing.unpack(fields[name], f"{where}, {name}")
        return self.record(**fields)


class OneField(Packing[T]):
    """A value that is not a record, as a struct with one field.

    Args:
        name: of the field.
        packing: of the value, or the type that msgspec checks.
    """

    def __init__(self, name: str, packing: Packing[T] | type[T]) -> None:
        self.name = name
        self._packing = packing if isinstance(packing, Packing) else None
        stored = packing.stored if isinstance(packing, Packing) else packing
        self.stored = msgspec.defstruct("StoredValue", [(name, stored)], frozen=True)

    def pack(self, value: T) -> msgspec.Struct:
        """The struct."""
        made: msgspec.Struct = self.stored(value if self._packing is None else self._packing.pack(value))
        return made

    def unpack(self, stored: msgspec.Struct, where: str) -> T:
        """The value."""
        value: T = getattr(stored, self.name)
        return value if self._packing is None else self._packing.unpack(value, f"{where}, {self.name}")


class Converted(Packing[T]):
    """A value that is stored as an equivalent value of another type.

    Args:
        packing: the packing of the other value; the class of a record.
        convert: returns the other value.
        restore: returns the value, from the other value and the place for errors.
    """

    def __init__(
        self, packing: Packing[Any] | type[Any], convert: Callable[[T], Any], restore: Callable[[Any, str], T]
    ) -> None:
        self._packing = _packing_of_record(packing)
        self.stored = packing if self._packing is None else self._packing.stored
        self._convert, self._restore = convert, restore

    def pack(self, value: T) -> Any:
        """The stored form of the other value."""
        other = self._convert(value)
        return other if self._packing is None else self._packing.pack(other)

    def unpack(self, stored: Any, where: str) -> T:
        """The value."""
        return self._restore(stored if self._packing is None else self._packing.unpack(stored, where), where)


def packing_of(annotation: Any, by_type: Packings | None = None) -> Packing[Any] | None:
    """The packing of a field with this annotation; None = it is stored unchanged."""
    if get_origin(annotation) is Annotated:
        named = [extra for extra in annotation.__metadata__ if isinstance(extra, Packing)]
        return named[0] if named else packing_of(get_args(annotation)[0], by_type)
    if by_type is not None and annotation in by_type:
        return by_type[annotation]
    if get_origin(annotation) in (Union, UnionType) and type(None) in get_args(annotation):
        [packing, *others] = [packing_of(each, by_type) for each in get_args(annotation) if each is not type(None)]
        return None if packing is None or others else Optional(packing)
    return _packing_of_class(annotation, by_type) if isinstance(annotation, type) else None


def _packing_of_class(kind: type[Any], by_type: Packings | None) -> Packing[Any] | None:
    if issubclass(kind, Enum):
        return ByName(kind)
    return Nested(kind, by_type) if dataclasses.is_dataclass(kind) else None


def _attributes(record: type[Any]) -> list[str]:
    if issubclass(record, msgspec.Struct):
        return list(record.__struct_fields__)
    return [field.name for field in dataclasses.fields(record)]


class RecordForm(Generic[T]):
    """A named, versioned form of a record. Threads: immutable.

    Args:
        name: lower-case letters, digits and "-".
        version: the version that is written and read.
        record: the class of the records, or the `Packing` that converts them to structs. A `msgspec.Struct` without
            packed fields is stored unchanged, its defaults included.

    Raises:
        ValueError: an invalid name or version, or a struct whose fields have no names in the bytes.
    """

    def __init__(self, name: str, version: int, record: type[T] | Packing[T]) -> None:
        if not _NAME.fullmatch(name):
            raise ValueError(f"expected a form's name of lower-case letters, digits and '-', found {name!r}")
        if not 1 <= version <= VERSION_MAX:
            raise ValueError(f"expected a form's version of 1 to {VERSION_MAX}, found {version}")
        self.name, self.version = name, version
        self._packing = _packing_of_record(record)
        self.struct: type[msgspec.Struct] = record if self._packing is None else self._packing.stored  # type: ignore[assignment]
        if self.struct.__struct_config__.array_like:
            raise ValueError(f"expected a record with field names, found {self.struct.__name__}, which is array_like")
        self._head = bytes([len(name)]) + name.encode() + _VERSION.pack(version)
        self._encoder = msgspec.msgpack.Encoder(order="deterministic", uuid_format="bytes")
        self._decoder = msgspec.msgpack.Decoder(self.struct)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.version})"

    def encode(self, value: T) -> bytes:
        """The bytes of a record; equal records have equal bytes. O(size).

        Raises:
            FormatLimit: more than 1,048,576 rows of one kind.
        """
        return self.encode_fields(value if self._packing is None else self._packing.pack(value))

    def decode(self, data: bytes, where: str) -> T:
        """Decode a record. O(size); no memory is allocated by a length that was not checked.

        Args:
            data: the result of `encode`, of this release or another one.
            where: the place of the bytes, for errors: a key, or a table and a key.

        Raises:
            FormatTooNew: a newer release wrote it: a newer version of the form or of its columns, or more columns.
            CorruptObject: another form, or not a record of this form.
        """
        fields = self.decode_fields(data, where)
        try:
            return self.restore(fields, where)
        except (ValueError, OverflowError) as error:
            expected = f"a record of form {self.name!r} with its rows in order"
            raise CorruptObject(where, len(data), expected=expected, found=str(error)) from error

    def encode_fields(self, fields: Any) -> bytes:
        """The bytes of stored fields, an instance of `struct`."""
        return self._head + self._encoder.encode(fields)

    def decode_fields(self, data: bytes, where: str) -> Any:
        """Decode the stored fields, an instance of `struct`; their rows stay packed.

        Raises:
            FormatTooNew, CorruptObject: as for `decode`.
        """
        name, version, start = _read_head(data, where)
        if name != self.name:
            raise CorruptObject(where, len(data), expected=f"a record of form {self.name!r}", found=f"one of {name!r}")
        if version > self.version:
            raise FormatTooNew(f"{where!r}: expected form {name!r} of version {self.version}, found {version}")
        expected = f"a record of form {self.name!r}, version {self.version}"
        if version < self.version:
            raise CorruptObject(where, len(data), expected=expected, found=f"version {version}")
        try:
            return self._decoder.decode(memoryview(data)[start:])
        except (msgspec.MsgspecError, RecursionError, ValueError) as error:
            raise CorruptObject(where, len(data) - start, expected=expected, found=str(error) or repr(error)) from error

    def restore(self, fields: Any, where: str) -> T:
        """The record of stored fields.

        Raises:
            ValueError, OverflowError, CorruptObject: the fields are invalid.
        """
        record: T = fields if self._packing is None else self._packing.unpack(fields, where)
        return record

    def expand(self, fields: Any) -> object:
        """Stored fields as dicts, lists, numbers and views of rows, for display: each row is a dict."""
        return _expanded(fields)


def _packing_of_record(record: type[T] | Packing[T]) -> Packing[T] | None:
    if isinstance(record, Packing):
        return record
    nested = Nested(record)
    return None if issubclass(record, msgspec.Struct) and not nested.is_packed else nested


class RowsView:
    """Many rows of a record, which are built when they are shown. Threads: immutable.

    Args:
        count: the number of rows.
        first: builds this number of first rows: a list, or a dict by name.
    """

    def __init__(self, count: int, first: Callable[[int], object]) -> None:
        self._count = count
        self.first = first

    def __len__(self) -> int:
        return self._count


def _expanded(value: object) -> object:
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, dict):
        return {name: _expanded(inner) for name, inner in value.items()}
    if isinstance(value, bytes) and is_packed(value):
        rows = unpack_any(value, "packed columns")
        return RowsView(len(rows), partial(_first_rows, rows))
    return list(value) if isinstance(value, tuple) else value


def _first_rows(rows: NDArray[np.void], count: int) -> list[dict[str, int]]:
    return [dict(zip(rows.dtype.names or (), row, strict=True)) for row in rows[:count].tolist()]


def shown_rows(value: object, rows_max: int | None = None, left_out: dict[str, int] | None = None) -> Any:
    """An expanded record as plain data, with a bounded number of rows of each list.

    Args:
        value: dicts, lists, text, numbers, `RowsView`s.
        rows_max: bound on the rows of each list; None = all rows.
        left_out: filled by the call: list -> the number of rows that are not shown.
    """
    return _shown(value, rows_max, "record", {} if left_out is None else left_out)


def _shown(value: object, rows_max: int | None, name: str, left_out: dict[str, int]) -> object:
    if isinstance(value, dict):
        return {key: _shown(inner, rows_max, f"{name}.{key}", left_out) for key, inner in value.items()}
    if not isinstance(value, RowsView | list):
        return msgspec.to_builtins(value)
    more = 0 if rows_max is None else len(value) - rows_max
    if more > 0:
        left_out[name] = more
    count = len(value) - max(0, more)
    return msgspec.to_builtins(value.first(count) if isinstance(value, RowsView) else value[:count])


class FormRegistry:
    """All forms that can be shown, by name. Threads: any, once all forms are registered."""

    def __init__(self) -> None:
        self._forms: dict[str, RecordForm[Any]] = {}

    def register(self, *forms: RecordForm[Any]) -> None:
        """Add forms.

        Raises:
            ValueError: a form of that name is registered already.
        """
        for form in forms:
            if form.name in self._forms:
                raise ValueError(f"expected a new form, found that {form.name!r} is registered already")
            self._forms[form.name] = form

    def names(self) -> list[str]:
        """The names of the registered forms, sorted."""
        return sorted(self._forms)

    def decode_any(
        self, data: bytes, where: str, rows_max: int | None = None, left_out: dict[str, int] | None = None
    ) -> tuple[str, int, object]:
        """Decode a record of any form: its form's name, its stored version, and its fields as plain data for JSON.

        Args:
            data: the record's bytes.
            where: as for `RecordForm.decode`.
            rows_max, left_out: as for `shown_rows`; rows that are left out are not built.

        Raises:
            FormatTooNew: a form or a version that this release does not know.
            CorruptObject: not a record of that form.
        """
        name, version, _ = _read_head(data, where)
        if name not in self._forms:
            raise FormatTooNew(f"{where!r}: expected a form of {self.names()}, found {name!r} (version {version})")
        form = self._forms[name]
        fields = form.decode_fields(data, where)
        try:
            return name, version, shown_rows(form.expand(fields), rows_max, left_out)
        except (ValueError, OverflowError, LookupError, TypeError, RecursionError) as error:
            expected = f"a record of form {name!r} that can be shown"
            raise CorruptObject(where, len(data), expected=expected, found=str(error) or repr(error)) from error


def form_of(data: bytes, where: str = "") -> tuple[str, int]:
    """The name and version of a record's form, registered or not.

    Raises:
        CorruptObject: not a record.
    """
    name, version, _ = _read_head(data, where)
    return name, version


def _read_head(data: bytes, where: str) -> tuple[str, int, int]:
    start = 1 + (data[0] if data else 0)
    end = start + _VERSION.size
    try:
        name = data[1:start].decode("ascii")
    except UnicodeDecodeError:
        name = ""
    if len(data) < end or not _NAME.fullmatch(name):
        expected = "a record, which begins with its form's name and version"
        raise CorruptObject(where, len(data), expected=expected, found=data[:24].hex() or "nothing")
    version = _VERSION.unpack_from(data, start)[0]
    if version == 0:
        raise CorruptObject(where, len(data), expected="a form's version of at least 1", found="0")
    return name, version, end
