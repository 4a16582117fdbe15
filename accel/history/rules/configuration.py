"""What the owner of a stream wants, and how its history is cut into pieces.

    StreamConfiguration   how many segments, when to scale, what to keep, what offsets count
    HistoryLayout         epochs in a chunk, sizes in a shard; recorded with the stream, so that all processes find the
                          same pieces (the index of times records its own in its root)

Threads: all records are immutable, any thread may read them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, unique
from typing import Final
from uuid import UUID

from accel.errors import InvalidArgument
from accel.history.rules.values import INT64_MAX, TIME_MS_END, checked_integer, checked_text

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
        kind: what is measured; FIXED = segments do not change, unless a person scales the stream.
        target_rate: wanted load of one segment, in the kind's unit; 0 for FIXED.
        scale_factor: into how many a hot segment is split; 1 for FIXED.

    Raises:
        ValueError: a rate or factor that does not fit the kind.
    """

    kind: ScalingKind = ScalingKind.FIXED
    target_rate: int = 0
    scale_factor: int = 1

    def __post_init__(self) -> None:
        _check_member(ScalingKind, self.kind)
        object.__setattr__(self, "target_rate", checked_integer("a target rate", self.target_rate))
        object.__setattr__(self, "scale_factor", checked_integer("a scale factor", self.scale_factor))
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
        minimum: at least so much is kept, if there is so much. Of times both limits are below 10^14.
        maximum: not more than so much is kept where a recorded cut allows it; None = no such limit.

    Raises:
        ValueError: a minimum below 0, or a maximum below the minimum.
    """

    kind: RetentionKind
    minimum: int
    maximum: int | None = None

    def __post_init__(self) -> None:
        _check_member(RetentionKind, self.kind)
        high = TIME_MS_END - 1 if self.kind is RetentionKind.TIME else INT64_MAX
        object.__setattr__(self, "minimum", checked_integer("a minimum", self.minimum, high=high))
        if self.maximum is not None:
            object.__setattr__(self, "maximum", checked_integer("a maximum", self.maximum, high=high))
        if self.minimum < 0 or (self.maximum is not None and self.maximum < self.minimum):
            raise ValueError(f"expected 0 <= minimum <= maximum, found {self.minimum} and {self.maximum}")


@dataclass(frozen=True, slots=True)
class StreamConfiguration:
    """What the owner of a stream wants.

    Args:
        min_segments: its number of segments at first, and never fewer.
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
        _check_member(OffsetUnit, self.offset_unit)
        least = checked_integer("a least number of segments", self.min_segments, 1, SEGMENTS_MAX)
        object.__setattr__(self, "min_segments", least)
        _check_member(ScalingPolicy, self.scaling)
        _check_member((RetentionPolicy, type(None)), self.retention)
        _check_member((tuple, list), self.tags)
        object.__setattr__(self, "tags", tuple(checked_text("a tag", tag, low=0) for tag in self.tags))
        if list(self.tags) != sorted(set(self.tags)):
            raise ValueError(f"expected tags in order, each once, found {self.tags}")


def _check_member(kinds: type | tuple[type, ...], value: object) -> None:
    if not isinstance(value, kinds):
        names = " or ".join(kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
        raise InvalidArgument(f"expected a {names}, found {value!r}")


@dataclass(frozen=True, slots=True)
class ConfigurationRecord:
    """The configuration as it is stored.

    Args:
        configuration: what the owner wants.
        workflow_id: the change that wrote it last; None = as the stream was created.
    """

    configuration: StreamConfiguration
    workflow_id: UUID | None = None


PIECE_MAX: Final = 1_000_000


@unique
class ShardBy(Enum):
    """The property of a segment that decides on the shard of its size."""

    EPOCH = "creation epoch"
    NUMBER = "segment number"


@dataclass(frozen=True, slots=True)
class HistoryLayout:
    """How a history is cut into pieces. Threads: immutable.

    Args:
        chunk_size: epochs in a chunk of the history.
        shard_size: epochs, or segment numbers, whose sealed sizes lie in one shard.
        shard_by: which of both.

    Raises:
        ValueError: pieces of less than 1, or more than 1,000,000.
    """

    chunk_size: int = 1000
    shard_size: int = 1000
    shard_by: ShardBy = ShardBy.EPOCH

    def __post_init__(self) -> None:
        for name, what in (("chunk_size", "epochs in a chunk"), ("shard_size", "a shard's size")):
            object.__setattr__(self, name, checked_integer(what, getattr(self, name), 1, PIECE_MAX))


DEFAULT_LAYOUT: Final = HistoryLayout()
"""Of new streams, and of those without a record of their layout."""
