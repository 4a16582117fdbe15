"""Retention: cuts are recorded as time goes by, and the stream is truncated to the one that keeps what shall be kept.

    recorded cuts      0 ......... 100 ......... 200 ......... 300 .... now = 330
    minimum 150 ms                 ^ the newest that keeps 150 ms: the stream may be truncated here, and no further
    maximum 250 ms                 ^ the oldest that keeps no more than 250 ms

Without readers to wait for, a stream is truncated to its minimum. With them, to what all have read, but not beyond the
minimum; and not less than its maximum asks for, whatever they have read. Where cuts are so far apart that both limits
contradict each other, the minimum wins: nothing is deleted that was promised to be kept.

Source: PDP-32; docs/history.md for the limits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from accel.history.configuration import RetentionKind, RetentionPolicy
from accel.history.id_columns import Integers
from accel.history.records import RetentionEntry, RetentionSet


def with_entry(now: RetentionSet, entry: RetentionEntry) -> RetentionSet | None:
    """The set with one more cut; None if it was not recorded after all others."""
    if len(now) and entry.recording_time_ms <= now[-1].recording_time_ms:
        return None
    return RetentionSet(np.append(now.times_ms, entry.recording_time_ms), np.append(now.sizes, entry.recorded_size))


def up_to(now: RetentionSet, time_ms: int) -> RetentionSet:
    """Those recorded at or before a time: to be deleted, record by record, before the set is written without them."""
    return now[: int(np.searchsorted(now.times_ms, time_ms, side="right"))]


def without_up_to(now: RetentionSet, time_ms: int) -> RetentionSet | None:
    """The set without those recorded at or before a time; None if there are none."""
    count = len(up_to(now, time_ms))
    return now[count:] if count else None


def find_by_time(now: RetentionSet, time_ms: int) -> RetentionEntry | None:
    """The last cut that was recorded at or before a time. O(log n)."""
    return now[-1] if len(now := up_to(now, time_ms)) else None


def find_by_size(now: RetentionSet, size: int) -> RetentionEntry | None:
    """The cut with the greatest size that is not above one; of several the last. O(n), as nothing orders sizes."""
    return _greatest(now, np.where(now.sizes <= size, now.sizes, -1))


def first_by_time(now: RetentionSet, time_ms: int) -> RetentionEntry | None:
    """The first cut that was recorded at or after a time. O(log n)."""
    at = int(np.searchsorted(now.times_ms, time_ms, side="left"))
    return now[at] if at < len(now) else None


def first_by_size(now: RetentionSet, size: int) -> RetentionEntry | None:
    """The first cut with a size of at least one. O(n)."""
    enough = np.flatnonzero(now.sizes >= size)
    return now[int(enough[0])] if len(enough) else None


def reference_before(now: RetentionSet, is_before: Callable[[RetentionEntry], bool]) -> RetentionEntry | None:
    """The last recorded cut that a cut is equal to or after.

    Complexity: O(log n) questions: cuts are recorded at the stream's end, so each is equal to or after all before it.

    Args:
        now: the recorded cuts.
        is_before: whether the cut that is asked about is equal to or after a recorded one (`cuts.is_equal_or_after`).
    """
    low, high = 0, len(now)
    while low < high:
        middle = (low + high) // 2
        if is_before(now[middle]):
            low = middle + 1
        else:
            high = middle
    return now[low - 1] if low else None


def truncation_point(
    now: RetentionSet,
    policy: RetentionPolicy,
    now_ms: int,
    tail_size: int,
    read_by_all: RetentionEntry | None = None,
    *,
    has_readers: bool = False,
) -> RetentionEntry | None:
    """The recorded cut to which a stream is to be truncated.

    Args:
        now: the recorded cuts.
        policy: what is kept.
        now_ms: milliseconds since 1970.
        tail_size: how much lies before the stream's end, since it began, in its offset unit.
        read_by_all: the last recorded cut that all readers have passed (`reference_before`); None = none of them.
        has_readers: whether there are readers to wait for.

    Returns:
        None if nothing may be deleted. A cut that the stream was truncated to before may come again.
    """
    by_time = policy.kind is RetentionKind.TIME
    end = now_ms if by_time else tail_size
    find, find_first = (find_by_time, first_by_time) if by_time else (find_by_size, first_by_size)
    newest = find(now, end - policy.minimum)
    if newest is None or not has_readers:
        return newest
    wanted = [each for each in (read_by_all, _limit(policy, now, end, find_first)) if each is not None]
    return min(newest, max(wanted)) if wanted else None


def _limit(
    policy: RetentionPolicy,
    now: RetentionSet,
    end: int,
    find_first: Callable[[RetentionSet, int], RetentionEntry | None],
) -> RetentionEntry | None:
    # The first one that keeps no more than the maximum: the one before it would keep more. Where all fits, none. By
    # time all is taken to fit while no cut was recorded as long ago as that: nobody knows how old older data is.
    if policy.maximum is None or end <= policy.maximum:
        return None
    if policy.kind is RetentionKind.TIME and find_by_time(now, end - policy.maximum) is None:
        return None
    return find_first(now, end - policy.maximum)


def _greatest(now: RetentionSet, values: Integers) -> RetentionEntry | None:
    if not len(now) or values.max() < 0:
        return None
    return now[int(np.flatnonzero(values == values.max())[-1])]
