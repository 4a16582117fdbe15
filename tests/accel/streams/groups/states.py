"""States of groups as tests write them down."""

from __future__ import annotations

import numpy as np

from accel.history.rules.cuts import PlacedCut, place_offsets
from accel.history.rules.segments import SegmentRecord, Segments
from accel.history.rules.values import IdMap, make_id, parse_segment
from accel.streams.rules.group_state import FREE, GroupMember, GroupState

CREATED_MS = 1_760_000_000_123


def segment(name: str, start: float, end: float) -> SegmentRecord:
    """One segment, such as 3@1."""
    return SegmentRecord(parse_segment(name), CREATED_MS, start, end)


def cut(offsets: dict[str, int], *segments: SegmentRecord) -> PlacedCut:
    """A cut of some of these segments."""
    known = Segments.of(each for each in sorted(segments, key=lambda each: each.id) if str(each) in offsets)
    return place_offsets(known, IdMap(known.ids, [offsets[str(each)] for each in known]))


def named(position: IdMap | dict[int, int]) -> dict[str, int]:
    """Offsets by names of segments."""
    return {f"{each & 0xFFFFFFFF}@{each >> 32}": offset for each, offset in position.items()}


def tiles(count: int) -> Segments:
    """So many segments of epoch 0."""
    bounds = np.linspace(0.0, 1.0, count + 1)
    return Segments.make([make_id(0, each) for each in range(count)], CREATED_MS, bounds[:-1], bounds[1:])


def group(counts: dict[str, int], free: int = 0) -> GroupState:
    """A group whose readers have so many segments each, and so many are free."""
    names = sorted(counts)
    owners = [at for at, name in enumerate(names) for _ in range(counts[name])] + [FREE] * free
    readers = tuple(map(GroupMember, names))
    column = np.array(owners, dtype=np.int64)
    return GroupState(tiles(len(owners)), np.zeros(len(owners), dtype=np.int64), column, readers)


def owners_of(state: GroupState) -> dict[str, str | None]:
    """The owner of each segment that has begun."""
    rows = zip(state.segments, state.offsets.tolist(), state.owners.tolist(), strict=True)
    return {str(each): state.readers[at].name if at >= 0 else None for each, offset, at in rows if offset >= 0}
