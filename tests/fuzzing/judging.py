"""What one input comes to: refused by an error of ours, harmless, or another value; anything else is a `Defect`.

Threads: any; nothing is kept.
"""

from __future__ import annotations

import dataclasses
import struct
import tracemalloc
from array import array
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

import msgspec
import numpy as np

MESSAGE_SIZE_MAX = 20_000
"""Longest message of an error, in characters."""

TEXT_SIZE_FACTOR = 5
"""What somebody typed may be shown to them whole, escaped."""

MEMORY_FACTOR = 10
MEMORY_FREE_BYTES = 256 << 10
"""What any input may take: error, small objects, buffers of the decompressor."""

SECONDS_A_KILOBYTE = 0.05
"""Of CPU time; judged outside of CI, with a wide factor."""

Refusals = tuple[type[Exception], ...]


class Verdict(Enum):
    """What an input comes to."""

    REFUSED = "refused by an error of ours"
    HARMLESS = "read as it was written"
    OTHER = "read as another value"


class Defect(Exception):
    """A decoder did what none may do."""


@dataclass(frozen=True, slots=True)
class Decoder:
    """One decoder of the project, and what is known of it.

    Args:
        name: of its folder in the corpus.
        functions: the public functions it stands for, as "module:qualified name".
        read: the bytes to a value.
        seeds: bytes that it reads, by name; makes them.
        errors: how it refuses.
        write: the value to bytes that are read as an equal value; None where there is no way back, and what it returns
            for a value without one.
        seal: the bytes with their checksum repaired.
        change: a further kind of change, which knows the format.
        is_checked: whether a checksum covers all bytes: then no change of a seed is read as another value.
        declared_bytes: of rows that the input declares: their number times the size of a row.
        is_text: whether its input is text.
    """

    name: str
    functions: tuple[str, ...]
    read: Callable[[bytes], object]
    seeds: Callable[[], Mapping[str, bytes]]
    errors: Refusals
    write: Callable[[Any], bytes | None] | None = None
    seal: Callable[[bytes], bytes] | None = None
    change: Callable[[Any, bytes], bytes] | None = None
    is_checked: bool = False
    declared_bytes: Callable[[bytes], int] = lambda _: 0
    is_text: bool = False


def of(function: Any) -> str:
    """A function as it is registered: "module:qualified name"."""
    return f"{function.__module__}:{function.__qualname__}"


def judge(decoder: Decoder, data: bytes, expected: AbstractSet[object] = frozenset()) -> Verdict:
    """Read an input.

    Args:
        decoder: what reads it.
        data: the input.
        expected: plain forms of the values that count as unchanged.

    Raises:
        Defect: another exception than the decoder's own, an endless message, or no way back to an equal value.
    """
    try:
        value = decoder.read(data)
    except decoder.errors as error:
        if len(str(error)) > MESSAGE_SIZE_MAX + TEXT_SIZE_FACTOR * len(data) * decoder.is_text:
            raise Defect(f"{decoder.name}: a message of {len(str(error))} characters for {len(data)} bytes") from None
        return Verdict.REFUSED
    except Exception as error:
        raise Defect(f"{decoder.name}: {type(error).__name__}: {str(error)[:300]}") from error
    found = plain(value)
    if decoder.write is not None:
        _check_way_back(decoder, value, found)
    return Verdict.HARMLESS if found in expected else Verdict.OTHER


def _check_way_back(decoder: Decoder, value: object, found: object) -> None:
    assert decoder.write is not None
    try:
        data = decoder.write(value)
        again = found if data is None else plain(decoder.read(data))
    except Exception as error:
        raise Defect(f"{decoder.name}: read, but not written again: {type(error).__name__}: {error}"[:500]) from error
    if again != found:
        raise Defect(f"{decoder.name}: expected the same value after writing it, found {str(again)[:200]}")


def check_memory(decoder: Decoder, data: bytes) -> int:
    """Read an input while memory is counted; the most that it took, in bytes.

    Raises:
        Defect: more than ten times the input and the rows that it declares.
    """
    allowed = MEMORY_FACTOR * (len(data) + decoder.declared_bytes(data)) + MEMORY_FREE_BYTES
    tracemalloc.start()
    try:
        decoder.read(data)
    except Exception:  # noqa: BLE001, S110 - what it raises is `judge`'s to say
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    if peak > allowed:
        raise Defect(f"{decoder.name}: expected at most {allowed} bytes of memory for {len(data)}, found {peak}")
    return peak


def plain(value: Any) -> object:
    """A value as nested tuples of bytes, numbers and texts: equal for equal values, whatever their classes compare.

    Raises:
        TypeError: a class that is not known here.
    """
    if value is None or isinstance(value, bool | int | str | bytes | UUID | Enum):
        return (type(value).__name__, value)
    if isinstance(value, PurePath):
        return ("path", str(value))
    if isinstance(value, float):
        return ("float", struct.pack(">d", value))
    if isinstance(value, np.ndarray):
        return ("array", str(value.dtype), value.shape, value.tobytes())
    if isinstance(value, array | memoryview | bytearray):
        return ("bytes", bytes(value))
    return _plain_of_parts(value)


def _plain_of_parts(value: Any) -> object:
    if isinstance(value, msgspec.Struct):
        return (type(value).__name__, *(plain(getattr(value, name)) for name in value.__struct_fields__))
    if dataclasses.is_dataclass(value):
        fields = [field.name for field in dataclasses.fields(value)]
        return (type(value).__name__, *(plain(getattr(value, name)) for name in fields))
    if isinstance(value, Mapping):
        return ("map", *sorted(((plain(key), plain(inner)) for key, inner in value.items()), key=repr))
    if isinstance(value, AbstractSet):
        return ("set", *sorted(map(plain, value), key=repr))
    if isinstance(value, list | tuple):
        return tuple(map(plain, value))
    names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    if not names:
        raise TypeError(f"expected a value that can be compared, found {type(value).__name__}")
    return (type(value).__name__, *(plain(getattr(value, name)) for name in names if not name.startswith("__")))
