"""How much a segment is written, and which scale a stream's policy wants for it. No clock, no store.

A segment's appends are counted where they are made: a total that only grows. `SegmentRates` turns samples of the total
into averages over windows, each an exponentially weighted one: of two ticks at rate x that are d seconds apart, the
older one counts exp(-d / window) times as much. Divided by what all weights since the first sample add up to, a
segment that was measured for a short time has no lower rate than it had.

    | window        | 2 min            | 5 min            | 10 min              | 20 min           |
    |---------------|------------------|------------------|---------------------|------------------|
    | hot if any is | > 5 x the target | > 2 x the target | > 1.25 x the target |                  |
    | cold if all   | < half of it     | < half of it     | < half of it        | < half of it     |

A window counts once the segment was measured for so long. A hot segment is split into as many parts as its rate has
targets, at most the policy's factor, and only while the load lasts: the shortest window is above the target. Two cold
neighbours become one, where the stream keeps its least number of segments. So at a steady load nothing changes to and
fro: what is merged has less than twice half of the target, and a segment is hot above 1.25 of it.

Nothing is done within the cool-down of any scale of the stream, by any caller, nor to a young segment.

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
from accel.streams.settings import ScalingSettings

KIB: Final = 1024
MILLISECONDS: Final = 1000
ROWS_OF_A_MERGE: Final = 3


@dataclass(frozen=True, slots=True)
class SegmentRates:
    """Averages of one segment's load. Threads: immutable.

    Args:
        since_seconds: when its first sample was taken, by a timer that never falls.
        at_seconds: when its last one was taken.
        total: what the last one counted.
        averages: of each window, in units a second, not yet divided by the sum of the weights.
    """

    since_seconds: float
    at_seconds: float
    total: int
    averages: tuple[float, ...]

    @classmethod
    def begin(cls, now_seconds: float, total: int, settings: ScalingSettings) -> SegmentRates:
        """After the first sample."""
        return cls(now_seconds, now_seconds, total, (0.0,) * len(settings.windows_seconds))

    @property
    def measured_seconds(self) -> float:
        """From the first sample to the last one."""
        return self.at_seconds - self.since_seconds

    def after(self, now_seconds: float, total: int, settings: ScalingSettings) -> SegmentRates:
        """With another sample. Itself if no time went by, so that the next one counts what came meanwhile.

        A total that fell is that of another counter: measuring begins anew.
        """
        passed = now_seconds - self.at_seconds
        if total < self.total:
            return SegmentRates.begin(now_seconds, total, settings)
        if passed <= 0:
            return self
        rate = (total - self.total) / passed
        averages = []
        for average, window in zip(self.averages, settings.windows_seconds, strict=True):
            kept = math.exp(-passed / window)
            averages.append(average * kept + rate * (1 - kept))
        return SegmentRates(self.since_seconds, now_seconds, total, tuple(averages))

    def rates(self, settings: ScalingSettings) -> tuple[float, ...]:
        """The average of each window that is not longer than it was measured, in units a second, shortest first."""
        measured = self.measured_seconds
        known = zip(self.averages, settings.windows_seconds, strict=True)
        return tuple(average / -math.expm1(-measured / window) for average, window in known if window <= measured)


class SegmentLoad(NamedTuple):
    """What the load of a segment asks for.

    Attributes:
        parts: into how many it is to be split; 1 = it is not hot.
        is_cold: whether it may be merged with a neighbour that is cold, too.
        is_own: whether this process has the segment open.
    """

    parts: int = 1
    is_cold: bool = False
    is_own: bool = True


def load_of(rates: SegmentRates, target: float, settings: ScalingSettings) -> SegmentLoad:
    """What the load of a segment asks for.

    Args:
        rates: of the segment.
        target: wanted load of one segment, in the units of its rates; see `target_of`.
        settings: what is hot, and what cold.
    """
    known = rates.rates(settings)
    if not known:
        return SegmentLoad()
    hot = [rate for rate, factor in zip(known, settings.hot_factors, strict=False) if rate > factor * target]
    if hot and known[0] > target:
        return SegmentLoad(parts=max(2, math.ceil(max(hot) / target)))
    is_whole = len(known) == len(settings.windows_seconds)
    return SegmentLoad(is_cold=is_whole and max(known) < settings.cold_factor * target)


def target_of(configuration: StreamConfiguration) -> float:
    """The wanted load of one segment: events a second, or bytes of 1,024 a kilobyte; 0 = none is wanted."""
    scaling = configuration.scaling
    return scaling.target_rate * (KIB if scaling.kind is ScalingKind.BYTES else 1)


@dataclass(frozen=True, slots=True)
class WantedScale:
    """A scale that a policy asks for.

    Args:
        seal: ids of segments, in the order of their keys.
        new_ranges: what replaces theirs, likewise.
        splits: how many of the segments are split.
        merged: the ranges among the new ones that replace two segments.
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
    settings: ScalingSettings,
) -> WantedScale | None:
    """The scale that a stream needs now; None = none. O(segments).

    The pairs of cold segments are formed from the lowest key upwards, and a pair is merged by the owner of its lower
    segment: so of two owners with the same knowledge one asks.

    Args:
        current: the epoch.
        loads: of its segments as far as they are known, by id.
        configuration: of the stream.
        now_ms: milliseconds since 1970.
        settings: young segments, cool-down, and how much one scale may change.
    """
    if now_ms - current.creation_time_ms < settings.cooldown_seconds * MILLISECONDS:
        return None
    young_ms = settings.young_seconds * MILLISECONDS
    ordered = sorted(current.segments, key=lambda each: each.key_start)
    old = [each for each in ordered if now_ms - each.creation_time_ms >= young_ms]
    known = [(each, loads[each.id]) for each in old if each.id in loads]
    rows = settings.segments_max
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
        if loads[low.id].is_own:
            scale.append(((low.id, high.id), [(low.key_start, high.key_end)]))
    if not scale:
        return None
    scale.sort(key=lambda each: each[1][0])
    seal = tuple(segment_id for ids, _ in scale for segment_id in ids)
    ranges = KeyRanges.of(each for _, new in scale for each in new)
    merged = tuple(new[0] for ids, new in scale if len(ids) > 1)
    return WantedScale(seal, ranges, len(scale) - len(merged), merged)


def _parts(
    segment: SegmentRecord, load: SegmentLoad, configuration: StreamConfiguration, most: int
) -> list[tuple[float, float]]:
    """The ranges that a hot segment is split into; none if it is not hot, or its range has too few keys."""
    parts = min(load.parts, configuration.scaling.scale_factor, most)
    if parts < 2 or not load.is_own:
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
