"""Sizes of sealed segments, and how much of a stream lies between two cuts.

Sizes are written when segments are sealed, into shards of many segments, so that adding up takes a read a shard and not
a read a segment. Shards go by the epoch of a segment's creation; or by its number, as the first draft has it, but then
all duplicates of a segment meet in one shard, which may grow without bound.

All sizes count in the stream's offset unit.

Source: PDP-32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum, unique
from typing import Final

import numpy as np

from accel.errors import InvalidArgument
from accel.history.id_columns import IdMap, Integers
from accel.history.ids import NUMBER_BITS, NUMBER_MASK
from accel.history.segments import Segments

UNKNOWN_SIZE: Final = -1


@unique
class ShardBy(Enum):
    """What decides in which shard the size of a segment lies."""

    EPOCH = "creation epoch"
    NUMBER = "segment number"


def shard_numbers(ids: Integers, shard_size: int, shard_by: ShardBy = ShardBy.EPOCH) -> Integers:
    """In which shard the size of each segment lies."""
    values = ids >> NUMBER_BITS if shard_by is ShardBy.EPOCH else ids & NUMBER_MASK
    return values // shard_size


def by_shard(sizes: IdMap, shard_size: int, shard_by: ShardBy = ShardBy.EPOCH) -> dict[int, IdMap]:
    """Sizes as they go into shards, by shard number, ascending."""
    shards = shard_numbers(sizes.ids, shard_size, shard_by)
    return {
        shard: IdMap(sizes.ids[shards == shard], sizes.values_array[shards == shard])
        for shard in np.unique(shards).tolist()
    }


def with_sizes(shard: IdMap, sizes: IdMap) -> IdMap | None:
    """A shard with sizes added; None if it has them all already.

    What a shard has is kept: sizes are read after the segments are sealed, and do not change any more.
    """
    new = shard.positions_of(sizes.ids) < 0
    if not new.any():
        return None
    ids = np.concatenate((shard.ids, sizes.ids[new]))
    order = np.argsort(ids)
    return IdMap(ids[order], np.concatenate((shard.values_array, sizes.values_array[new]))[order])


def unsized(segments: Segments, end: IdMap) -> Integers:
    """Ids of segments whose sealed sizes are needed to add up what lies before a cut: those that it does not name."""
    return segments.ids[end.positions_of(segments.ids) < 0]


def size_of(segments: Segments, start: IdMap, end: IdMap, sizes: IdMap) -> int:
    """How much of some segments lies between two cuts.

    | named by   | counts                        |
    |------------|-------------------------------|
    | both       | from one offset to the other  |
    | end only   | up to its offset              |
    | start only | from its offset to the end    |
    | neither    | all of it                     |

    A size that is not known counts 0, and so does what would be negative.

    Args:
        segments: those between the cuts (`cuts.between`), or a part of them.
        start: offsets by segment id.
        end: offsets by segment id.
        sizes: of the sealed segments, as far as they are known.
    """
    begins = np.maximum(start.get_many(segments.ids, 0), 0)
    is_ended = end.positions_of(segments.ids) >= 0
    ends = np.where(is_ended, end.get_many(segments.ids, 0), sizes.get_many(segments.ids, UNKNOWN_SIZE))
    return int(np.maximum(ends - begins, 0).sum())


def size_between(
    parts: Iterable[Segments], start: IdMap, end: IdMap, read_sizes: Callable[[Integers], Mapping[int, int]]
) -> int:
    """How much of a stream lies between two cuts.

    Args:
        parts: the segments between them, in parts (`cuts.between`).
        start: offsets by segment id.
        end: offsets by segment id.
        read_sizes: gives sealed sizes by segment id, as far as they are known; called once a part.
    """
    total = 0
    for part in parts:
        asked = unsized(part, end)
        total += size_of(part, start, end, IdMap.of(read_sizes(asked)) if len(asked) else IdMap())
    return total


def size_till(between: int, recorded_size: int) -> int:
    """How much lies before a cut: what lies between it and an earlier one, and what lies before that.

    Raises:
        InvalidArgument: a recorded size below 0.
    """
    if recorded_size < 0:
        raise InvalidArgument(f"expected a recorded size of at least 0, found {recorded_size}")
    return between + recorded_size
