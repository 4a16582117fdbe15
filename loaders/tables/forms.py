"""The bytes of a record: its form's name and version, then the record.

    | bytes | field         | meaning                                             |
    |-------|---------------|-----------------------------------------------------|
    | 1     | name's length | 1 to 255                                            |
    | n     | name          | of the form: lower-case ASCII letters, digits, "-"  |
    | 2     | version       | of the form, big endian, from 1 on                  |
    | rest  | record        | a MessagePack map from field names to values        |

So a value says by itself what it is, and anything that reads MessagePack can look into it. Fields have names, so adding
one with a default needs no new version as long as older releases may ignore it. Anything else does: whoever changes a
form raises its version, and leaves a function that turns the fields of the version before into the new ones. Older
values are upgraded while they are read, and written in the new version when they are next changed; a version that is
newer than known is refused.
"""

from __future__ import annotations

import re
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from loaders.errors import CorruptObject, FormatTooNew

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

Fields: TypeAlias = dict[str, Any]
"""A record as it was read: values by field name."""

VERSION_MAX = 0xFFFF

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,254}")
_VERSION = struct.Struct(">H")


class Form(ABC, Generic[T]):
    """A named, versioned form of a record. Threads: immutable.

    Args:
        name: lower-case letters, digits and "-".
        version: what is written; older ones are read as well.
    """

    def __init__(self, name: str, version: int) -> None:
        if not _NAME.fullmatch(name):
            raise ValueError(f"a form's name has lower-case letters, digits and '-', found {name!r}")
        if not 1 <= version <= VERSION_MAX:
            raise ValueError(f"a form's version is 1 to {VERSION_MAX}: {version}")
        self.name = name
        self.version = version
        self._head = bytes([len(name)]) + name.encode() + _VERSION.pack(version)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.version})"

    def encode(self, value: T) -> bytes:
        """The bytes of a record; equal records have equal bytes. O(size)."""
        return self._head + self._encode_record(value)

    def decode(self, data: bytes, where: str) -> T:
        """Read a record. O(size).

        Args:
            data: what `encode` made, in this release or another one.
            where: what the bytes are, for the error's sake: a key, or a table and a key.

        Raises:
            FormatTooNew: a newer release wrote it.
            CorruptObject: another form, or no record of this one.
        """
        name, version, start = _read_head(data, where)
        if name != self.name:
            raise CorruptObject(where, len(data), expected=f"a record of form {self.name!r}", found=f"one of {name!r}")
        if version > self.version:
            raise FormatTooNew(f"{where!r}: form {name!r} has version {version}, known are 1 to {self.version}")
        return self._decode_record(data[start:], version, where)

    @abstractmethod
    def _encode_record(self, value: T) -> bytes:
        """The record without its head."""

    @abstractmethod
    def _decode_record(self, data: bytes, version: int, where: str) -> T:
        """The same back, from any version that is known."""


class RecordForm(Form[S]):
    """A form whose records are `msgspec.Struct`s. Threads: immutable.

    Args:
        name: its name.
        version: what is written.
        struct: the class of the records. Its fields are checked when they are read, as is what its `__post_init__`
            raises ValueError for.
        upgrades: for each older version that may still lie somewhere, a function that takes its fields and returns
            those of the version after. A version without one is refused as corrupt.
    """

    def __init__(
        self,
        name: str,
        version: int,
        struct: type[S],
        upgrades: Mapping[int, Callable[[Fields], Fields]] | None = None,
    ) -> None:
        super().__init__(name, version)
        if struct.__struct_config__.array_like:
            raise ValueError(f"a record has field names: {struct.__name__} is array_like")
        self.struct = struct
        self._upgrades = dict(upgrades or {})
        self._encoder = msgspec.msgpack.Encoder(order="deterministic")
        self._decoder = msgspec.msgpack.Decoder(struct)

    def _encode_record(self, value: S) -> bytes:
        return self._encoder.encode(value)

    def _decode_record(self, data: bytes, version: int, where: str) -> S:
        try:
            if version == self.version:
                return self._decoder.decode(data)
            return self._upgraded(data, version)
        except (msgspec.MsgspecError, RecursionError, KeyError, TypeError, ValueError) as error:
            expected = f"a record of form {self.name!r}, version {version}"
            raise CorruptObject(where, len(data), expected=expected, found=str(error) or repr(error)) from error

    def _upgraded(self, data: bytes, version: int) -> S:
        fields = msgspec.msgpack.decode(data, type=Fields)
        for older in range(version, self.version):
            if older not in self._upgrades:
                raise ValueError(f"version {older}, which this release does not know how to upgrade")
            fields = self._upgrades[older](fields)
        return msgspec.convert(fields, self.struct)


class RowsView:
    """Many rows of a record, made when somebody looks at them. Threads: immutable.

    Args:
        count: how many there are.
        first: makes the first so many of them: a list, or a dict by name.
    """

    def __init__(self, count: int, first: Callable[[int], object]) -> None:
        self._count = count
        self.first = first

    def __len__(self) -> int:
        return self._count


def shown_rows(value: object, rows_max: int | None = None, left_out: dict[str, int] | None = None) -> Any:
    """A record that a form has expanded, as plain data with no more rows of each kind than somebody wants to see.

    Args:
        value: dicts, lists, text, numbers, `RowsView`s.
        rows_max: of each list; None = all.
        left_out: to be filled with how many rows of which list are not shown.
    """
    return _shown(value, rows_max, "record", {} if left_out is None else left_out)


def _shown(value: object, rows_max: int | None, name: str, left_out: dict[str, int]) -> object:
    if isinstance(value, dict):
        return {each: _shown(inner, rows_max, f"{name}.{each}", left_out) for each, inner in value.items()}
    if not isinstance(value, RowsView | list):
        return msgspec.to_builtins(value)
    more = 0 if rows_max is None else len(value) - rows_max
    if more > 0:
        left_out[name] = more
    count = len(value) - max(0, more)
    return msgspec.to_builtins(value.first(count) if isinstance(value, RowsView) else value[:count])


class FormRegistry:
    """All forms that somebody may want to look at, by name. Threads: any, once all are registered."""

    def __init__(self) -> None:
        self._forms: dict[str, tuple[Form[Any], Callable[[Any], object]]] = {}

    def register(self, form: Form[T], expand: Callable[[T], object] | None = None) -> None:
        """Add a form.

        Args:
            form: the form.
            expand: turns a record into dicts, lists, `RowsView`s, text and numbers, for people; by default its fields
                as they are, with bytes as base64. Its ValueErrors mean damage.

        Raises:
            ValueError: there is one of that name.
        """
        if form.name in self._forms:
            raise ValueError(f"there is a form {form.name!r} already")
        self._forms[form.name] = (form, msgspec.to_builtins if expand is None else expand)

    def names(self) -> list[str]:
        """The forms that are registered, sorted."""
        return sorted(self._forms)

    def decode_any(
        self, data: bytes, where: str, rows_max: int | None = None, left_out: dict[str, int] | None = None
    ) -> tuple[str, int, object]:
        """Read a record of any form: its form's name, the version it was written in, and what JSON can say of it.

        Args:
            data: the record's bytes.
            where: as for `Form.decode`.
            rows_max, left_out: as for `shown_rows`; rows that are left out are not made.

        Raises:
            FormatTooNew: a form or a version that this release does not know.
            CorruptObject: no record of that form.
        """
        name, version, _ = _read_head(data, where)
        if name not in self._forms:
            raise FormatTooNew(f"{where!r}: form {name!r} (version {version}) is not known; known are {self.names()}")
        form, expand = self._forms[name]
        record = form.decode(data, where)
        try:
            return name, version, shown_rows(expand(record), rows_max, left_out)
        except (ValueError, OverflowError, LookupError, TypeError, RecursionError) as error:
            expected = f"a record of form {name!r} that can be shown"
            raise CorruptObject(where, len(data), expected=expected, found=str(error) or repr(error)) from error


def form_of(data: bytes, where: str = "") -> tuple[str, int]:
    """Which form a record has: name and version, known or not.

    Raises:
        CorruptObject: no record at all.
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
