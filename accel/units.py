"""Text forms of sizes, times, moments and counts, to write and parse. Values are bytes, seconds, and ms since 1970."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from threading import TIMEOUT_MAX

_SIZE_STEPS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SIZES = {**_SIZE_STEPS, "KB": 10**3, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_TIMES = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", re.ASCII)
_PLAIN = re.compile(r"\s*\d+(?:\.\d+)?\s*", re.ASCII)


def milliseconds(seconds: float) -> int:
    """The millisecond that a clock is in, exactly: n for every time from n / 1000 on.

    A product alone would be wrong: 1.001 * 1000 is less than 1001.

    >>> milliseconds(1.001), milliseconds(1_760_000_000.1239)
    (1001, 1760000000123)
    """
    nearest = round(seconds * 1000)
    return nearest if nearest / 1000 <= seconds else nearest - 1


def size_text(size_bytes: int) -> str:
    """A size with a suitable unit.

    >>> size_text(512), size_text(10784), size_text(52 << 20)
    ('512 B', '10.5 KiB', '52.0 MiB')
    """
    for unit, factor in reversed(_SIZE_STEPS.items()):
        if size_bytes >= factor:
            return f"{size_bytes} B" if factor == 1 else f"{size_bytes / factor:.1f} {unit}"
    return f"{size_bytes} B"


def time_text(seconds: float) -> str:
    """A time with a suitable unit.

    >>> time_text(0.0000052), time_text(0.0152), time_text(2.5), time_text(600)
    ('5.2 us', '15.2 ms', '2.5 s', '10.0 m')
    """
    if seconds < 0.001:
        return f"{seconds * 1e6:.1f} us"
    if seconds < 1:
        return f"{seconds * 1e3:.1f} ms"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} m"


def parse_size(text: str) -> int:
    """A size in bytes from a text; KiB is 1,024 bytes, KB is 1,000.

    >>> parse_size("64MiB"), parse_size("512"), parse_size("1.5 GiB"), parse_size("64MB")
    (67108864, 512, 1610612736, 64000000)

    Raises:
        ValueError: not a number with a known unit.
    """
    return round(_parse(text, "a size such as 64MiB", _SIZES))


def parse_time(text: str) -> float:
    """Seconds from a text.

    >>> parse_time("10m"), parse_time("500ms"), parse_time("2.5"), parse_time("1h30m")
    (600.0, 0.5, 2.5, 5400.0)

    Raises:
        ValueError: not a number with a known unit, or several of these from the largest unit to the smallest; or more
            than 292 years, for which no system can wait.
    """
    if (seconds := _parse(text, "a time such as 10m or 1h30m", _TIMES)) > TIMEOUT_MAX:
        raise ValueError(f"expected a time of at most 292 years, found {text!r}")
    return seconds


def _parse(text: str, expected: str, units: Mapping[str, float]) -> float:
    """The sum of parts such as "1h" and "30m"; a number without a unit must be the only part."""
    total, at, above = 0.0, 0, math.inf
    if _PLAIN.fullmatch(text):
        total, at = float(text), len(text)
    while (part := _PART.match(text, at)) is not None and units.get(part[2], math.inf) < above:
        at, above = part.end(), units[part[2]]
        total += float(part[1]) * above
    if not at or at < len(text) or math.isinf(total):
        raise ValueError(f"expected {expected} ({', '.join(units)}), found {text!r}")
    return total


def count_text(number: int, noun: str) -> str:
    """A number of things; the noun is in the plural unless the number is 1.

    >>> count_text(1, "object"), count_text(2, "object")
    ('1 object', '2 objects')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


_LONG_AGES = ((86_400.0, "d"), (3_600.0, "h"))
_LONG_FROM = 2.0


def moment_text(milliseconds: int) -> str:
    """A moment by the second, as UTC.

    >>> moment_text(1_800_000_000_500)
    '2027-01-15 08:00:00Z'
    """
    return datetime.fromtimestamp(milliseconds // 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def age_text(seconds: float) -> str:
    """A time that may be days long.

    >>> age_text(259_200), age_text(10_800), age_text(600), age_text(-3)
    ('3.0 d', '3.0 h', '10.0 m', '0.0 us')
    """
    for factor, unit in _LONG_AGES:
        if seconds >= _LONG_FROM * factor:
            return f"{seconds / factor:.1f} {unit}"
    return time_text(max(seconds, 0.0))
