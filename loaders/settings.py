"""Checks settings: numbers of a frozen dataclass against bounds, with the same error messages everywhere.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Settings:
        threads: int = 8
        pause_seconds: float = 0.5
        bytes_max: int | None = None

        def __post_init__(self) -> None:
            check_settings(self, least={"pause_seconds": 0})

The annotation determines the valid values. An ``int`` is an integer of 1 to 2^63 - 1, a ``float`` a finite number above
0; with ``| None``, None is valid too. Other bounds are arguments. Fields of other types are not checked: the class of
the settings checks them, and relations between fields. The name of a number ends with its unit: ``_seconds``, ``_ms``,
``_bytes``; a number without a unit is a count. Pure; threads: any.

Below are the defaults that several classes of settings, or a class and a function, share, and the settings of retries
and merges.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, fields
from numbers import Real
from types import MappingProxyType
from typing import Any, Final

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

_NO_BOUNDS: Final[Mapping[str, float]] = MappingProxyType({})


def check_settings(
    settings: object, *, least: Mapping[str, float] = _NO_BOUNDS, most: Mapping[str, float] = _NO_BOUNDS
) -> None:
    """Check all numbers of settings: their type and their bounds. O(fields).

    Args:
        settings: an instance of a dataclass whose module has ``from __future__ import annotations``.
        least: field name -> lowest number; by default 1 for an integer, above 0 for another number.
        most: field name -> highest number; by default 2^63 - 1 for an integer, finite for another number.

    Raises:
        ValueError: a value is not a number, or is out of bounds; the first such field.
    """
    for setting in fields(settings):  # type: ignore[arg-type]  # an instance of a dataclass
        kind, _, other = str(setting.type).partition(" | ")
        value = getattr(settings, setting.name)
        if kind not in ("int", "float") or (value is None and other == "None"):
            continue
        check_number(setting.name, value, least.get(setting.name), is_integer=kind == "int")
        highest = most.get(setting.name, INT64_MAX if kind == "int" else math.inf)
        if value > highest:
            raise ValueError(f"expected {setting.name} of at most {highest}, found {value}")


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
    expected = "an integer" if is_integer else "a finite number"
    if not (_is_integer(value) if is_integer else _is_finite(value)):
        raise ValueError(f"expected {expected} as {name}, found {value!r}")
    _check_bounds(name, value, 1 if least is None and is_integer else least)


def _is_integer(value: Any) -> bool:
    try:
        return not isinstance(value, bool) and isinstance(operator.index(value), int)
    except TypeError:  # arrays have the method, but it raises
        return False


def _is_finite(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)


def _check_bounds(name: str, value: float, least: float | None) -> None:
    if least is None and value <= 0:
        raise ValueError(f"expected {name} above 0, found {value}")
    if least is not None and value < least:
        raise ValueError(f"expected {name} of at least {least}, found {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings:
    """Bounds on repetition.

    Attributes:
        attempts: how often a change is applied before its writer gives up.
        settle_attempts: how often one write is sent, and how often its key is read to find the outcome.
        backoff_seconds: longest pause before the first repetition; doubled with each further one.
        backoff_seconds_max: bound on the doubled pause.
    """

    attempts: int = 32
    settle_attempts: int = 8
    backoff_seconds: float = 0.02
    backoff_seconds_max: float = 2.0

    def __post_init__(self) -> None:
        check_settings(self, least={"backoff_seconds": 0, "backoff_seconds_max": self.backoff_seconds})


@dataclass(frozen=True, slots=True)
class MergeSettings:
    """Settings of a merge. Threads: immutable.

    Memory: at most `band_size_bytes` of sources, `sending_size_bytes` of parts that are being sent, and 240 bytes a row
    of all sources. With the defaults this is below 256 MiB, including the interpreter, up to about 100,000 rows: a
    merge of 110 MiB has 165 MiB allocated and 190 MiB resident, a merge of 600 MiB 105 and 185. The difference is
    memory that glibc keeps for each reading thread; with `MALLOC_MMAP_THRESHOLD_=1048576` the last number is 130 MiB.

    Args:
        band_size_bytes: bytes of sources in memory; a group of at most this many takes one request a source, a larger
            one is read in bands of about half as much. 112 MiB.
        part_size_bytes: the least size of the parts of a large output; S3 refuses parts below 5 MiB. 16 MiB.
        sending_size_bytes: bytes of parts that are being sent; 32 MiB.
        parallel_requests: the number of reads, or of parts that are being sent, at once; 4.
        server_side: whether the store copies the data if it can; see `loaders.merge.merger`.

    Raises:
        ValueError: a number below 1.
    """

    band_size_bytes: int = 112 << 20
    part_size_bytes: int = PART_SIZE_BYTES
    sending_size_bytes: int = 32 << 20
    parallel_requests: int = 4
    server_side: bool = False

    def __post_init__(self) -> None:
        check_settings(self)
