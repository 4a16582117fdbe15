"""The configuration of a stream, and the layout of its history.

    StreamConfiguration   number of segments, scaling, retention, offset unit, tags
    HistoryLayout         epochs in a chunk, sizes in a shard; stored with the stream, so that all processes use the
                          same sizes (the root of the index of times contains the sizes of the index)

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
"""Maximum number of segments of a stream at one time; a limit against mistakes, far above the numbers in practice."""


@unique
class OffsetUnit(Enum):
    """The unit of offsets, cuts and sizes of a stream."""

    RECORDS = "records"
    BYTES = "bytes"


@unique
class ScalingKind(Enum):
    """The measure of a segment's load, if it is measured."""

    FIXED = "fixed"
    EVENTS = "events a second"
    BYTES = "kilobytes a second"


@unique
class RetentionKind(Enum):
    """The kind of the limits of retention."""

    TIME = "time"
    SIZE = "size"


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """The policy by which a stream's segments are split and merged.

    Args:
        kind: the measure of load; FIXED = segments do not change, unless a person scales the stream.
        target_rate: wanted load of one segment, in the kind's unit; 0 for FIXED.
        scale_factor: number of segments that a hot segment is split into; 1 for FIXED.

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
            raise ValueError(f"expected a fixed policy with rate 0 and factor 1, found {self}")
        if not is_fixed and (self.target_rate < 1 or not 2 <= self.scale_factor <= SEGMENTS_MAX):
            raise ValueError(f"expected a rate of at least 1 and a factor of at least 2, found {self}")


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """The limits of the data that is kept of a stream.

    Args:
        kind: the unit of the limits: milliseconds of time, or a size in the stream's offset unit.
        minimum: the data within this limit is kept. Limits of time are below 10^14.
        maximum: data beyond this limit is deleted if a recorded cut allows it; None = no such limit.

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
    """The configuration of a stream.

    Args:
        min_segments: its number of segments at first, and the minimum later: if it is raised, processes that write the
            stream split segments until it has them.
        scaling: the policy by which its segments change.
        retention: the limits of the data that is kept; None = all data is kept.
        offset_unit: the unit of offsets, cuts and sizes; never changes.
        tags: words to search for, ascending, each once.

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
    """A stored configuration.

    Args:
        configuration: the configuration.
        workflow_id: the change that wrote it last; None = the creation of the stream.
    """

    configuration: StreamConfiguration
    workflow_id: UUID | None = None


PIECE_MAX: Final = 1_000_000


@unique
class ShardBy(Enum):
    """The property of a segment that determines the shard of its size."""

    EPOCH = "creation epoch"
    NUMBER = "segment number"


@dataclass(frozen=True, slots=True)
class HistoryLayout:
    """The sizes of the chunks and shards of a history. Threads: immutable.

    Args:
        chunk_size: number of epochs in a chunk of the history.
        shard_size: number of epochs, or of segment numbers, whose sealed sizes are in one shard.
        shard_by: whether shards count epochs or segment numbers.

    Raises:
        ValueError: a size below 1 or above 1,000,000.
    """

    chunk_size: int = 1000
    shard_size: int = 1000
    shard_by: ShardBy = ShardBy.EPOCH

    def __post_init__(self) -> None:
        for name, what in (("chunk_size", "epochs in a chunk"), ("shard_size", "a shard's size")):
            object.__setattr__(self, name, checked_integer(what, getattr(self, name), 1, PIECE_MAX))


DEFAULT_LAYOUT: Final = HistoryLayout()
"""The layout of new streams, and of streams without a record of their layout."""
