"""The write load of segments, and the scales that a stream's policy requires. No clock, no store.

A host counts the appends to its segments: a total that only grows. `SegmentRates` turns samples of the total into
exponentially weighted averages over windows: of two ticks at rate x that are d seconds apart, the older one counts
exp(-d / window) times as much. The averages are divided by the sum of all weights since the first sample, so a short
measurement does not lower a rate.

    | window        | 2 min            | 5 min            | 10 min              | 20 min           |
    |---------------|------------------|------------------|---------------------|------------------|
    | hot if any is | > 5 x the target | > 2 x the target | > 1.25 x the target |                  |
    | cold if all   | < half of it     | < half of it     | < half of it        | < half of it     |

A window counts once the segment was measured for the length of the window. A hot segment is split into ceil(rate /
target) parts, at most the policy's factor, and only while the load lasts: the shortest window is above the target. Two
cold neighbours are merged if the stream keeps its minimum number of segments. So a steady load does not split and merge
in turn: a merged segment has a rate below the target, and a segment is hot above 1.25 times the target.

Neither young segments nor streams within the cool-down of any scale, by any caller, are scaled.

Source: the auto-scaling of Pravega (its processor of segment loads, its auto-scale task), with these changes: the hot
factor of 10 minutes is 1.25 instead of 1, all windows of a cold segment are below half, and two are merged, not three.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from accel.history.rules.configuration import SEGMENTS_MAX, ScalingKind, StreamConfiguration
from accel.history.rules.epochs import EpochRecord
from accel.history.rules.segments import KeyRanges, SegmentRecord, split_range
from loaders.settings import CLOCK_SKEW_SECONDS_MAX

WINDOWS_SECONDS: Final = (120.0, 300.0, 600.0, 1200.0)
"""The lengths of the windows over which rates are averaged."""

HOT_FACTORS: Final = (5.0, 2.0, 1.25)
"""One for each of the first windows: a segment with a rate above this multiple of the target is hot."""

COLD_FACTOR: Final = 0.5
"""A segment whose rates are below this multiple of the target in all windows is cold; a merged pair is not hot."""

YOUNG_SECONDS: Final = 600.0
"""The time after its creation in which a segment is not scaled."""

COOLDOWN_SECONDS: Final = 120.0
"""The time after a scale in which a stream is not scaled again."""

SCALE_SEGMENTS_MAX: Final = 100
"""The largest number of segments that one scale seals and creates together."""

KIB: Final = 1024
MILLISECONDS: Final = 1000
ROWS_OF_A_MERGE: Final = 3


@dataclass(frozen=True, slots=True)
class SegmentRates:
    """Averages of one segment's load. Threads: immutable.

    Args:
        since_seconds: the time of its first sample, by a timer that never falls.
        at_seconds: the time of its last sample.
        total: the total of the last sample.
        averages: the average of each window, in units a second, not yet divided by the sum of the weights.
    """

    since_seconds: float
    at_seconds: float
    total: int
    averages: tuple[float, ...]

    @classmethod
    def begin(cls, now_seconds: float, total: int) -> SegmentRates:
        """Return the rates after the first sample."""
        return cls(now_seconds, now_seconds, total, (0.0,) * len(WINDOWS_SECONDS))

    @property
    def measured_seconds(self) -> float:
        """The time from the first sample to the last one."""
        return self.at_seconds - self.since_seconds

    def after(self, now_seconds: float, total: int) -> SegmentRates:
        """Return the rates after another sample; unchanged if no time passed, so that the next sample counts it all.

        If the total fell, it is from another counter, and the measurement begins again.
        """
        passed = now_seconds - self.at_seconds
        if total < self.total:
            return SegmentRates.begin(now_seconds, total)
        if passed <= 0:
            return self
        rate = (total - self.total) / passed
        averages = []
        for average, window in zip(self.averages, WINDOWS_SECONDS, strict=True):
            kept = math.exp(-passed / window)
            averages.append(average * kept + rate * (1 - kept))
        return SegmentRates(self.since_seconds, now_seconds, total, tuple(averages))

    def rates(self) -> tuple[float, ...]:
        """Return the average of each window up to the length of the measurement, in units a second, shortest first."""
        measured = self.measured_seconds
        known = zip(self.averages, WINDOWS_SECONDS, strict=True)
        return tuple(average / -math.expm1(-measured / window) for average, window in known if window <= measured)


class SegmentLoad(NamedTuple):
    """The change that the load of a segment requires.

    Attributes:
        parts: the number of parts to split the segment into; 1 = it is not hot.
        is_cold: whether it may be merged with a neighbour that is cold, too.
    """

    parts: int = 1
    is_cold: bool = False


def load_of(rates: SegmentRates, target: float) -> SegmentLoad:
    """Return the change that the load of a segment requires.

    Args:
        rates: the rates of the segment.
        target: the target load of one segment, in the units of its rates; see `target_of`.
    """
    known = rates.rates()
    if not known:
        return SegmentLoad()
    hot = [rate for rate, factor in zip(known, HOT_FACTORS, strict=False) if rate > factor * target]
    if hot and known[0] > target:
        return SegmentLoad(parts=max(2, math.ceil(max(hot) / target)))
    is_whole = len(known) == len(WINDOWS_SECONDS)
    return SegmentLoad(is_cold=is_whole and max(known) < COLD_FACTOR * target)


def target_of(configuration: StreamConfiguration) -> float:
    """Return the target load of one segment: events or bytes a second (1 KB = 1,024 bytes); 0 = no target."""
    scaling = configuration.scaling
    return scaling.target_rate * (KIB if scaling.kind is ScalingKind.BYTES else 1)


@dataclass(frozen=True, slots=True)
class WantedScale:
    """A scale that a policy requires.

    Args:
        seal: ids of the segments to seal, in the order of their keys.
        new_ranges: the key ranges of the new segments, in the order of the keys.
        splits: how many of the segments are split.
        merged: those of the new ranges that replace two segments.
    """

    seal: tuple[int, ...]
    new_ranges: KeyRanges
    splits: int
    merged: tuple[tuple[float, float], ...]

    @property
    def merges(self) -> int:
        """How many pairs of segments are merged."""
        return len(self.merged)


def wanted_scale(
    current: EpochRecord,
    loads: Mapping[int, SegmentLoad],
    configuration: StreamConfiguration,
    now_ms: int,
) -> WantedScale | None:
    """Return the scale that a stream needs now; None = none. O(segments).

    The pairs of cold segments are formed from the lowest key upwards. An epoch or a segment whose time is far ahead of
    now, by a wrong clock, is not waited for.

    Args:
        current: the current epoch.
        loads: the loads of its segments that are open here, by id.
        configuration: the configuration of the stream.
        now_ms: milliseconds since 1970.
    """
    if _is_recent(current.creation_time_ms, now_ms, COOLDOWN_SECONDS):
        return None
    ordered = sorted(current.segments, key=lambda each: each.key_start)
    old = [each for each in ordered if not _is_recent(each.creation_time_ms, now_ms, YOUNG_SECONDS)]
    known = [(each, loads[each.id]) for each in old if each.id in loads]
    rows = SCALE_SEGMENTS_MAX
    scale: list[tuple[tuple[int, ...], list[tuple[float, float]]]] = []
    count = len(ordered)
    for segment, load in sorted(known, key=lambda each: -each[1].parts):
        parts = _parts(segment, load, configuration, min(rows - 1, SEGMENTS_MAX - count + 1))
        if len(parts) > 1:
            scale.append(((segment.id,), parts))
            rows -= 1 + len(parts)
            count += len(parts) - 1
    spare = min(len(ordered) - configuration.min_segments, rows // ROWS_OF_A_MERGE)
    for low, high in _cold_pairs(known)[: max(spare, 0)]:
        scale.append(((low.id, high.id), [(low.key_start, high.key_end)]))
    if not scale:
        return None
    scale.sort(key=lambda each: each[1][0])
    seal = tuple(segment_id for ids, _ in scale for segment_id in ids)
    ranges = KeyRanges.of(each for _, new in scale for each in new)
    merged = tuple(new[0] for ids, new in scale if len(ids) > 1)
    return WantedScale(seal, ranges, len(scale) - len(merged), merged)


def is_ahead(time_ms: int, now_ms: int) -> bool:
    """Whether a time is so far ahead of now that a wrong clock must have said it."""
    return time_ms - now_ms > CLOCK_SKEW_SECONDS_MAX * MILLISECONDS


def _is_recent(time_ms: int, now_ms: int, seconds: float) -> bool:
    return now_ms - time_ms < seconds * MILLISECONDS and not is_ahead(time_ms, now_ms)


def _parts(
    segment: SegmentRecord, load: SegmentLoad, configuration: StreamConfiguration, most: int
) -> list[tuple[float, float]]:
    """Return the ranges to split a hot segment into; none if it is not hot, or its range has too few keys."""
    parts = min(load.parts, configuration.scaling.scale_factor, most)
    if parts < 2:
        return []
    try:
        return list(split_range(segment.key_start, segment.key_end, parts))
    except ValueError:
        return []


def _cold_pairs(known: list[tuple[SegmentRecord, SegmentLoad]]) -> list[tuple[SegmentRecord, SegmentRecord]]:
    pairs = []
    before: SegmentRecord | None = None
    for segment, load in known:
        if not load.is_cold:
            before = None
        elif before is not None and before.key_end == segment.key_start:
            pairs.append((before, segment))
            before = None
        else:
            before = segment
    return pairs
