"""The bytes around every root, and how roots are read and swapped.

    | at | bytes | field     | meaning                                                    |
    |----|-------|-----------|------------------------------------------------------------|
    | 0  | 4     | magic     | AC 48 4E 54                                                |
    | 4  | 1     | version   | of this envelope: 1                                        |
    | 5  | 3     | reserved  | zero                                                       |
    | 8  | 4     | CRC-32    | of all bytes but these four                                |
    | 12 | 4     | length    | of the record                                              |
    | 16 | n     | record    | in its named, versioned form (loaders/tables/records.py)     |

All integers are big endian.

A root is swapped by a plain put: roots are hints, so of two writers the last one wins, and either root is whole. What
a root names was written before it and is never changed. Each generation's root is also kept beside its data objects,
so that the collector of old generations knows what a reader of an older root may still ask for.
"""

from __future__ import annotations

import struct
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import zstandard

from loaders.errors import AccessDenied, CorruptObject, FormatLimit, FormatTooNew, KeyMissing, RangeInvalid
from loaders.hints.errors import HintProblem, HintTrouble
from loaders.layout import HINT_ROOT_NAME, HintKind, hint_file_key, hint_root_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    import msgspec

    from loaders.store.base import Fetched, ObjectStore
    from loaders.tables.records import RecordForm

    S = TypeVar("S", bound=msgspec.Struct)

MAGIC = b"\xacHNT"
ROOT_VERSION = 1
ROOT_SIZE_BYTES_MAX = 64 << 20
"""A longer root is neither written nor read."""

_HEAD = struct.Struct(">4sB3x")
_NUMBER = struct.Struct(">I")
_RECORD_START = 16


def seal_root(record: bytes) -> bytes:
    """The bytes of a root around its record; O(size).

    Raises:
        FormatLimit: a root of more than 64 MiB.
    """
    if len(record) > ROOT_SIZE_BYTES_MAX - _RECORD_START:
        most = ROOT_SIZE_BYTES_MAX - _RECORD_START
        raise FormatLimit(f"a root's record has at most {most} bytes, this one {len(record)}")
    head, rest = _HEAD.pack(MAGIC, ROOT_VERSION), _NUMBER.pack(len(record)) + record
    return b"".join((head, _NUMBER.pack(zlib.crc32(rest, zlib.crc32(head))), rest))


def open_root(data: bytes, form: RecordForm[S], where: str) -> S:
    """The record of a root; O(size).

    Args:
        data: all bytes of the object.
        form: what the record must be.
        where: the object's key, for the problem's sake.

    Raises:
        HintProblem: corrupt, or foreign (of a newer release).

    Source: docs/hints.md, "Roots".
    """
    _check(len(data) <= ROOT_SIZE_BYTES_MAX, where, f"at most {ROOT_SIZE_BYTES_MAX} bytes", f"{len(data)}")
    _check(len(data) >= _RECORD_START and data.startswith(MAGIC), where, "a root", data[:8].hex() or "nothing")
    version = data[_HEAD.size - 4]
    if version > ROOT_VERSION:
        raise HintProblem(
            HintTrouble.FOREIGN, where, f"expected an envelope of version {ROOT_VERSION}, found {version}"
        )
    _check(data[: _HEAD.size] == _HEAD.pack(MAGIC, ROOT_VERSION), where, "the head of a root", data[:8].hex())
    rest = memoryview(data)[_HEAD.size + 4 :]
    actual, noted = zlib.crc32(rest, zlib.crc32(data[: _HEAD.size])), _NUMBER.unpack_from(data, _HEAD.size)[0]
    _check(actual == noted, where, f"a CRC-32 of {noted:#010x}", f"{actual:#010x}")
    length = _NUMBER.unpack_from(data, _RECORD_START - 4)[0]
    _check(length == len(data) - _RECORD_START, where, f"a record of {length} bytes", f"{len(data) - _RECORD_START}")
    try:
        return form.decode(data[_RECORD_START:], where)
    except FormatTooNew as error:
        raise HintProblem(HintTrouble.FOREIGN, where, str(error)) from error
    except CorruptObject as error:
        raise HintProblem(HintTrouble.CORRUPT, where, f"expected {error.expected}, found {error.found}") from error


def fetch_root(store: ObjectStore, key: str) -> Fetched | None:
    """Read the bytes of a root, however large the object there is; None if there is none. One request.

    Raises:
        HintProblem: corrupt: larger than any root, or empty.
        StoreError: the store could not say.
    """
    try:
        fetched = store.get_range(key, 0, ROOT_SIZE_BYTES_MAX)
    except (KeyMissing, AccessDenied):  # without the right to list, S3 denies what is missing
        return None
    except RangeInvalid as error:
        raise HintProblem(HintTrouble.CORRUPT, key, "expected a root, found an empty object") from error
    whole = fetched.object_size_bytes == len(fetched.body)
    _check(whole, key, f"at most {ROOT_SIZE_BYTES_MAX} bytes", f"{fetched.object_size_bytes}")
    return fetched


def fetch_changed_root(store: ObjectStore, key: str, etag: str) -> Fetched | None:
    """Read the bytes of a root unless it still has this ETag: then None. One request.

    Raises:
        HintProblem: corrupt: larger than any root.
        StoreError: the store could not say.
    """
    try:
        return store.get_if_changed(key, etag, size_bytes_max=ROOT_SIZE_BYTES_MAX)
    except CorruptObject as error:
        raise HintProblem(HintTrouble.CORRUPT, key, f"expected {error.expected}, found {error.found}") from error


def swap_root(store: ObjectStore, kind: HintKind, node_id: int, generation: int, data: bytes) -> None:
    """Make this the node's root; all that it names must lie in the store already. Two requests.

    Raises:
        StoreError: it may or may not have been swapped.
    """
    store.put(hint_file_key(kind, node_id, generation, HINT_ROOT_NAME), data)
    store.put(hint_root_key(kind, node_id), data)


@contextmanager
def damage_told(where: str) -> Iterator[None]:
    """What cannot be restored from the fields of a root, told as a problem with that hint.

    Raises:
        HintProblem: foreign if a newer release wrote it, else corrupt.
    """
    try:
        yield
    except FormatTooNew as error:
        raise HintProblem(HintTrouble.FOREIGN, where, str(error)) from error
    except (CorruptObject, ValueError, OverflowError, zstandard.ZstdError) as error:
        raise HintProblem(HintTrouble.CORRUPT, where, str(error)) from error


def check_identity(where: str, found: tuple[str, int], expected: tuple[str, int]) -> None:
    """Refuse a root of another namespace or node.

    Raises:
        HintProblem: foreign.
    """
    if found != expected:
        detail = f"expected namespace and node {expected}, found {found}"
        raise HintProblem(HintTrouble.FOREIGN, where, detail)


def _check(holds: bool, where: str, expected: str, found: str) -> None:
    if not holds:
        raise HintProblem(HintTrouble.CORRUPT, where, f"expected {expected}, found {found}")
