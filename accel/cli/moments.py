"""Moments and ages for people. Machines get milliseconds since 1970, and seconds."""

from __future__ import annotations

from datetime import UTC, datetime

from accel.units import time_text

_LONG_AGES = ((86_400.0, "d"), (3_600.0, "h"))
_LONG_FROM = 2.0


def moment_text(milliseconds: int) -> str:
    """A moment by the second, as UTC.

    >>> moment_text(1_800_000_000_500)
    '2027-01-15 08:00:00Z'
    """
    return datetime.fromtimestamp(milliseconds // 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def age_text(seconds: float) -> str:
    """A time that may be days.

    >>> age_text(259_200), age_text(10_800), age_text(600), age_text(-3)
    ('3.0 d', '3.0 h', '10.0 m', '0.0 us')
    """
    for factor, unit in _LONG_AGES:
        if seconds >= _LONG_FROM * factor:
            return f"{seconds / factor:.1f} {unit}"
    return time_text(max(seconds, 0.0))
