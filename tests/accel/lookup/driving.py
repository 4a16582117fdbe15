"""Drives lookups by hand, without stores and threads: what a search asks for is taken from a dictionary."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from accel.errors import AccelError, KeyMissing
from accel.image import MetadataImage, ObjectRef
from accel.lookup.answer import Answer, Request
from accel.lookup.explain import Trace
from accel.lookup.index_cache import SharedIndexCache
from accel.lookup.search import search
from accel.lookup.search_requests import IndexCache, OpenObjects, Reply, Searching
from accel.settings import Settings
from loaders.plan import Policy, Spread
from range_index import ObjectRanges
from tests.models.worlds import World


def ranges_of(world: World) -> dict[int, ObjectRanges]:
    """What each object of a world holds, as arrays; with the marks for holes inside."""
    made = {}
    for object_id, held in world.contents.items():
        ids = sorted(held)
        gaps = world.gaps.get(object_id, {})
        made[object_id] = make_ranges([(each, *held[each]) for each in ids], {each for each in ids if each in gaps})
    return made


def make_ranges(rows: list[tuple[int, int, int]], holed: set[int] | None = None) -> ObjectRanges:
    """Ranges from rows; the streams named are marked as having a hole inside."""
    rows = sorted(rows)
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    mask = np.array([row[0] in (holed or set()) for row in rows], dtype=np.bool_)
    ids, starts, ends = (np.ascontiguousarray(column) for column in columns)
    return ObjectRanges.from_columns(ids, starts, ends, mask)


class Clock:
    """A clock that moves when told."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def __call__(self) -> float:
        return self.seconds


def index_cache(settings: Settings | None = None, clock: Clock | None = None) -> SharedIndexCache:
    """An empty index cache with a clock that stands still."""
    return SharedIndexCache(settings or Settings(hashed_ids_max=64), clock or Clock(), lambda: 0.5)


@dataclass
class Driver:
    """Answers what searches ask for, and counts."""

    contents: dict[int, ObjectRanges]
    known: SharedIndexCache | None = None
    opened: list[list[int]] = field(default_factory=list)
    broken: dict[int, AccelError] = field(default_factory=dict)
    stop_after_rounds: int | None = None

    def run(self, steps: Searching[Answer]) -> Answer:
        sent: dict[int, Reply] | None = None
        try:
            wanted = next(steps)
            while True:
                self.opened.append([ref.object_id for ref in wanted.refs()])
                out_of_time = self.stop_after_rounds is not None and len(self.opened) > self.stop_after_rounds
                sent = None if out_of_time else self.replies(wanted)
                wanted = steps.send(sent)
        except StopIteration as stop:
            answer: Answer = stop.value
            return answer

    def replies(self, wanted: OpenObjects) -> dict[int, Reply]:
        """What the wanted objects hold; remembered, too."""
        return {
            at: self.open(wanted.node.node_id, ref) for at, ref in zip(wanted.positions, wanted.refs(), strict=True)
        }

    def open(self, node_id: int, ref: ObjectRef) -> Reply:
        if ref.object_id in self.broken:
            return self.broken[ref.object_id]
        if ref.object_id not in self.contents:
            return KeyMissing("get_range", str(ref.object_id), "no such key")
        ranges = self.contents[ref.object_id]
        if self.known is not None:
            self.known.learn(node_id, ref, ranges)
        return ranges

    @property
    def gets(self) -> int:
        return sum(map(len, self.opened))


def look_up(
    image: MetadataImage,
    driver: Driver,
    request: Request,
    *,
    policy: Policy | None = None,
    hints: IndexCache | None = None,
    trace: Trace | None = None,
    tolerate_gone: bool = False,
) -> Answer:
    """One search over a driver's contents, with its index cache or other hints."""
    known = hints or driver.known or index_cache()
    steps = search(request, image, known, policy or Spread(), trace=trace, tolerate_gone=tolerate_gone)
    return driver.run(steps)
