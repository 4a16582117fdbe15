"""What the owner of a stream wants: how many segments, when to scale, what to keep, what its offsets count.

Threads: all records are immutable, any thread may read them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, unique
from typing import Final
from uuid import UUID

SEGMENTS_MAX: Final = 750_000
"""Of one stream at one time; a limit against slips, far above what brokers run."""


@unique
class OffsetUnit(Enum):
    """What offsets, cuts and sizes of a stream count."""

    RECORDS = "records"
    BYTES = "bytes"


@unique
class ScalingKind(Enum):
    """What a segment's load is measured by, if it is."""

    FIXED = "fixed"
    EVENTS = "events a second"
    BYTES = "kilobytes a second"


@unique
class RetentionKind(Enum):
    """What limits how much of a stream is kept."""

    TIME = "time"
    SIZE = "size"


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """When a stream's segments are split and merged.

    Args:
        kind: what is measured; FIXED = they stay as they are, unless somebody scales by hand.
        target_rate: wanted load of one segment, in the kind's unit; 0 for FIXED.
        scale_factor: into how many a hot segment is split; 1 for FIXED.

    Raises:
        ValueError: a rate or factor that does not fit the kind.
    """

    kind: ScalingKind = ScalingKind.FIXED
    target_rate: int = 0
    scale_factor: int = 1

    def __post_init__(self) -> None:
        is_fixed = self.kind is ScalingKind.FIXED
        if is_fixed and (self.target_rate, self.scale_factor) != (0, 1):
            raise ValueError(f"expected no rate and factor 1 of a fixed policy, found {self}")
        if not is_fixed and (self.target_rate < 1 or not 2 <= self.scale_factor <= SEGMENTS_MAX):
            raise ValueError(f"expected a rate of at least 1 and a factor of at least 2, found {self}")


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """What is kept of a stream.

    Args:
        kind: what the limits are: milliseconds of time, or a size in the stream's offset unit.
        minimum: at least so much is kept, if there is so much.
        maximum: not more than so much is kept where a recorded cut allows it; None = no such limit.

    Raises:
        ValueError: a minimum below 0, or a maximum below the minimum.
    """

    kind: RetentionKind
    minimum: int
    maximum: int | None = None

    def __post_init__(self) -> None:
        if self.minimum < 0 or (self.maximum is not None and self.maximum < self.minimum):
            raise ValueError(f"expected 0 <= minimum <= maximum, found {self.minimum} and {self.maximum}")


@dataclass(frozen=True, slots=True)
class StreamConfiguration:
    """What the owner of a stream wants.

    Args:
        min_segments: so many it has at first, and never fewer.
        scaling: when its segments change.
        retention: what is kept; None = everything.
        offset_unit: what offsets, cuts and sizes count; never changes.
        tags: words to find it by, ascending, each once.

    Raises:
        ValueError: no segment, more than 750,000, or tags out of order.
    """

    min_segments: int = 1
    scaling: ScalingPolicy = field(default_factory=ScalingPolicy)
    retention: RetentionPolicy | None = None
    offset_unit: OffsetUnit = OffsetUnit.RECORDS
    tags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.min_segments <= SEGMENTS_MAX:
            raise ValueError(f"expected 1 to {SEGMENTS_MAX} segments, found {self.min_segments}")
        if list(self.tags) != sorted(set(self.tags)):
            raise ValueError(f"expected tags in order, each once, found {self.tags}")


@dataclass(frozen=True, slots=True)
class ConfigurationRecord:
    """The configuration as it is stored.

    Args:
        configuration: what the owner wants.
        workflow_id: the change that wrote it last; None = as the stream was created.
    """

    configuration: StreamConfiguration
    workflow_id: UUID | None = None
