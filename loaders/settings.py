"""Checks settings and arguments: the fields of a frozen dataclass, and what callers pass to public functions.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Settings:
        threads: int = 8
        pause_seconds: float = 0.5
        bytes_max: int | None = None

        def __post_init__(self) -> None:
            check_settings(self, least={"pause_seconds": 0})

The annotation determines the valid values, and a valid value becomes the plain one of Python: sums of numpy's numbers
wrap, and a subclass of str can have another text than its value.

    | annotation  | accepted                                                          | becomes                        |
    |-------------|-------------------------------------------------------------------|--------------------------------|
    | `int`       | what has `__index__`, such as numpy's integers; no bool; 64 bits  | int                            |
    | `float`     | real numbers, such as numpy's; no bool, no NaN, not infinite      | float, or int                  |
    | `TimeLimit` | None, and as `float` from 0 on; infinite, or above 292 years      | the number, or None = no limit |
    | `str`       | str, its subclasses, enumerations of text                         | str: the value                 |
    | `bytes`     | bytes, bytearray, memoryview                                      | bytes: a copy, if they change  |
    | `bool`      | bool, also numpy's                                                | bool                           |
    | `Path`      | str, and what has `__fspath__`                                    | Path                           |

With ``| None``, None is valid too. `plain_arguments` does it for functions and methods of a class before they begin,
and refuses plain values where an object of a class, or a collection, is expected. `check_settings` does it for the
fields of settings: there an ``int`` is at least 1 and a ``float`` above 0, and other bounds are arguments. The name of
a number ends with its unit: ``_seconds``, ``_ms``, ``_bytes``; a number without a unit is a count. A number of seconds
is at most 292 years, because no system can wait for longer. Pure; threads: any.

Below are the defaults that several classes of settings, or a class and a function, share, and the settings of merges.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, wraps
from inspect import iscoroutinefunction, isfunction, unwrap
from numbers import Real
from os import fspath
from pathlib import Path
from reprlib import repr as short_repr
from threading import TIMEOUT_MAX
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar, cast

import numpy as np

MIB: Final = 1 << 20

CLOCK_SKEW_SECONDS_MAX: Final = 300.0
"""A clock that differs more from the store's is wrong; a time that is further ahead of now is from such a clock."""

CONNECTIONS: Final = 64
"""Concurrent requests to a store, and connections kept open for them."""

HINT_ROOTS_SIZE_BYTES_MAX: Final = 64 * MIB
"""Memory of roots of snapshots."""

HINT_TTL_SECONDS: Final = 60.0
"""Time for which a root of a snapshot is used before it is read again."""

PART_SIZE_BYTES: Final = 16 * MIB
"""The size of the parts of a large upload."""

BLOCK_INDEXES_SIZE_BYTES_MAX: Final = 64 * MIB
"""Memory of parsed indexes of objects."""

INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)

TimeLimit: TypeAlias = float | None
"""How long a call may wait, in seconds; None, or an infinite number = without limit."""

T = TypeVar("T")
Refusal: TypeAlias = Callable[[str], Exception]
Names: TypeAlias = Mapping[str, Any]
Taker: TypeAlias = Callable[[Any], Any]
SetField: TypeAlias = Callable[[Any, str, Any], None]

_NO_BOUNDS: Final[Names] = MappingProxyType({})


def check_settings(
    settings: Any, *, least: Names = _NO_BOUNDS, most: Names = _NO_BOUNDS, set_field: SetField = object.__setattr__
) -> None:
    """Check all numbers of settings, type and bounds, and make all fields plain. O(fields).

    Args:
        settings: an instance of a class whose module has ``from __future__ import annotations``.
        least: field name -> lowest number; by default 1 for an integer, above 0 for another number.
        most: field name -> highest number; by default 2^63 - 1 for an integer, finite for another number.
        set_field: sets a field although the value is frozen; that of a dataclass by default.

    Raises:
        ValueError: a value is not a number, or is out of bounds; the first such field.
    """
    make_plain(settings, set_field)
    for name, annotation in _annotations_of(settings.__class__).items():
        value = getattr(settings, name, None)
        if value is not None and annotation.startswith(("int", "float")):
            _check_bounds(name, value, least.get(name, 1 if annotation.startswith("int") else None))
            if value > most.get(name, math.inf):
                raise ValueError(f"expected {name} of at most {most[name]}, found {value}")


def make_plain(made: Any, set_field: SetField = object.__setattr__) -> None:
    """Make the fields of a frozen value plain by their annotations, in its `__post_init__`. O(fields).

    Args:
        made, set_field: as for `check_settings`.

    Raises:
        ValueError: another kind of value; the first such field.
    """
    for name, take in _takers_of(made.__class__):
        set_field(made, name, take(getattr(made, name)))


@cache
def _annotations_of(kind: type) -> Mapping[str, str]:
    return {name: each for base in kind.__mro__ for name, each in vars(base).get("__annotations__", {}).items()}


@cache
def _takers_of(kind: type) -> list[tuple[str, Taker]]:
    takers = [(name, taker(name, annotation)) for name, annotation in _annotations_of(kind).items()]
    return [(name, take) for name, take in takers if take is not _as_it_is]


def check_number(name: str, value: Any, least: float | None = None, *, is_integer: bool = False) -> None:
    """Check one number as `check_settings` does, for functions with a setting as an argument.

    Args:
        name: the name in the error.
        value: the number.
        least: the lowest one; None = 1 for an integer, above 0 for another number.
        is_integer: whether it must be an integer.

    Raises:
        ValueError: it is not such a number, or is out of bounds.
    """
    number = taker(name, "int" if is_integer else "float")(value)
    _check_bounds(name, number, 1 if least is None and is_integer else least)


def taker(name: str, annotation: object, refusal: Refusal = ValueError, names: Names = _NO_BOUNDS) -> Taker:
    """A function that returns the plain value of an argument or a field; of another annotation, the value itself.

    Args:
        name: the name in the error.
        annotation: as it is written in the code.
        refusal: makes the error of a value that is refused.
        names: of the module of the code: where they name the class of the annotation, a plain value is refused. By
            default none.
    """
    kind, _, other = str(annotation).partition(" | ")
    if other not in ("", "None") or (kind not in _KINDS and not names):
        return _as_it_is
    if kind not in _KINDS:
        return lambda value: _an_object(name, kind, value, refusal, names) if value is not None or not other else None
    expected, take = _KINDS["seconds" if kind == "float" and name.endswith("_seconds") else kind]
    plain: Any = _PLAIN.get(kind)

    def taken(value: Any) -> Any:
        if value.__class__ is plain and not (plain is int and abs(value) > INT64_MAX):
            return value
        try:
            return take(value)
        except (TypeError, ValueError, OverflowError):
            if value is None and other:
                return None
            raise refusal(f"expected {expected} as {name}, found {_shown(value)}") from None

    return taken


def plain_arguments(refusal: Refusal, *, besides: Collection[str] = ()) -> Callable[[T], T]:
    """A decorator of a class or a function: arguments become plain by their annotations before the body runs.

    Of a class it is the constructor and the public methods, without those of its bases.

    Args:
        refusal: makes the error of an argument that is refused.
        besides: methods that do it themselves.
    """

    def decorated(target: Any) -> Any:
        if isfunction(target):
            return _with_plain_arguments(target, refusal)
        for name, member in list(vars(target).items()):
            is_wrapped = isinstance(member, classmethod | staticmethod)
            function = member.__func__ if is_wrapped else member
            if isfunction(function) and name not in besides and (name == "__init__" or not name.startswith("_")):
                checked = _with_plain_arguments(function, refusal)
                setattr(target, name, type(member)(checked) if is_wrapped else checked)
        return target

    return decorated


def _with_plain_arguments(function: Any, refusal: Refusal) -> Any:
    names, code = unwrap(function).__globals__, unwrap(function).__code__
    annotations = function.__annotations__.items()
    takers = {name: taker(name, each, refusal, names) for name, each in annotations if name != "return"}
    places = code.co_argcount
    by_place = [takers.get(name, _as_it_is) for name in code.co_varnames[:places]]

    def plain_options(options: dict[str, Any]) -> dict[str, Any]:
        return {name: takers.get(name, _as_it_is)(value) for name, value in options.items()}

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        plain = [take(value) for take, value in zip(by_place, arguments, strict=False)]
        return function(*plain, *arguments[places:], **(options and plain_options(options)))

    @wraps(function)
    async def call_async(*arguments: Any, **options: Any) -> Any:
        plain = [take(value) for take, value in zip(by_place, arguments, strict=False)]
        return await function(*plain, *arguments[places:], **(options and plain_options(options)))

    if all(take is _as_it_is for take in takers.values()):
        return function
    return call_async if iscoroutinefunction(function) else call


def _as_it_is(value: T) -> T:
    return value


def _an_object(name: str, kind: str, value: T, refusal: Callable[[str], Exception], names: Mapping[str, object]) -> T:
    """The value, or what `CONVERSIONS` makes of it.

    A plain value is refused where an object is expected, what has no items where a collection is, and an object of ours
    where another kind of ours is.
    """
    base = kind.partition("[")[0]
    wanted = Iterable if base in ("Sequence", "Collection") else names.get(base)  # any order of items, as arrays
    if type(value) is wanted or not isinstance(wanted, type):
        return value
    module = type(value).__module__
    is_plain = isinstance(value, str | int | float) or module in _PLAIN_MODULES
    is_ours = module.partition(".")[0] in _OUR_PACKAGES
    if is_plain or is_ours or wanted is Iterable:
        is_one = wanted is Iterable and isinstance(value, str | bytes | bytearray | memoryview)
        if vars(wanted).get("_is_protocol"):
            fits = is_ours and all(hasattr(value, each) for each in vars(wanted) if not each.startswith("_"))
        else:
            fits = not is_one and isinstance(value, wanted)
        convert = CONVERSIONS.get(base)
        if not fits and convert is not None and (made := convert(value)) is not None:
            return cast("T", made)
        if not fits:
            raise refusal(f"expected {kind} as {name}, found {_shown(value)}")
    return value


def _no_bool(value: T) -> T:
    if isinstance(value, bool | np.bool_):
        raise TypeError
    return value


def _integer(value: Any) -> int:
    number = value if type(value) is int else operator.index(_no_bool(value))
    if not INT64_MIN <= number <= INT64_MAX:
        raise OverflowError
    return number


def _number(value: Any) -> float:
    if not isinstance(_no_bool(value), Real) or not math.isfinite(value):
        raise TypeError
    return value if type(value) in (int, float) else float(value)


def _seconds(value: Any) -> float:
    if abs(number := _number(value)) > TIMEOUT_MAX:
        raise OverflowError
    return number


def _time_limit(value: Any) -> TimeLimit:
    is_endless = value is None or (isinstance(value, Real) and float(value) > TIMEOUT_MAX)
    if not is_endless and _number(value) < 0:
        raise ValueError
    return None if is_endless else _number(value)


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError
    return value if type(value) is bytes else memoryview(value).tobytes()


def _bool(value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise TypeError
    return bool(value)


CONVERSIONS: Final[dict[str, Taker]] = {}
"""Annotation -> makes such an object of another value that can mean nothing else; returns None for all others."""

_OUR_PACKAGES: Final = {"accel", "bloom", "loaders", "range_index"}
_PLAIN_MODULES: Final = {"builtins", "datetime", "decimal", "fractions", "numpy", "pathlib"}

_KINDS: Final[Mapping[str, tuple[str, Taker]]] = {
    "int": ("an integer", _integer),
    "float": ("a finite number", _number),
    "seconds": ("a finite number of at most 292 years", _seconds),
    "TimeLimit": ("a number of seconds of at least 0", _time_limit),
    "str": ("a text", str.__str__),  # the value: a subclass may have another text
    "bytes": ("bytes", _bytes),
    "bool": ("a bool", _bool),
    "Path": ("a path", lambda path: Path(str.__str__(fspath(path)))),
}


_PLAIN: Final[Mapping[str, type]] = {"int": int, "str": str, "bytes": bytes, "bool": bool}


def _shown(value: object) -> str:
    """A value and its type; short, because it may be anything."""
    kind = type(value).__name__
    if isinstance(value, int) and value.bit_length() > 64:
        return f"one of {value.bit_length()} bits"
    return f"{short_repr(value)} of type {kind}" if isinstance(value, int | float | str | None) else kind


def _check_bounds(name: str, value: float, least: float | None) -> None:
    if least is None and value <= 0:
        raise ValueError(f"expected {name} above 0, found {value}")
    if least is not None and value < least:
        raise ValueError(f"expected {name} of at least {least}, found {value}")


@dataclass(frozen=True, slots=True)
class MergeSettings:
    """Settings of a merge. Threads: immutable.

    Memory: at most `band_size_bytes` of sources, 32 MiB of parts that are being sent, and 240 bytes a row
    of all sources. With the defaults this is below 256 MiB, including the interpreter, up to about 100,000 rows: a
    merge of 110 MiB has 165 MiB allocated and 190 MiB resident, a merge of 600 MiB 105 and 185. The difference is
    memory that glibc keeps for each reading thread; with `MALLOC_MMAP_THRESHOLD_=1048576` the last number is 130 MiB.

    Args:
        band_size_bytes: bytes of sources in memory; a group of at most this many takes one request a source, a larger
            one is read in bands of about half as much. 112 MiB.
        part_size_bytes: the least size of the parts of a large output; S3 refuses parts below 5 MiB. 16 MiB.
        parallel_requests: the number of reads, or of parts that are being sent, at once; 4.
        server_side: whether the store copies the data if it can; see `loaders.merge.merger`.

    Raises:
        ValueError: a number below 1.
    """

    band_size_bytes: int = 112 << 20
    part_size_bytes: int = PART_SIZE_BYTES
    parallel_requests: int = 4
    server_side: bool = False

    def __post_init__(self) -> None:
        check_settings(self)
