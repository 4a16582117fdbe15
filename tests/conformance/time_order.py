"""Time order cases: segments of one host, their time indexes, and a reader that goes through them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accel.streams.rules.arrival_order import Lag, Orderer, Standing
from accel.streams.rules.events import HostClock
from accel.streams.time_index import SegmentTimeIndex, part_cache
from loaders.store import MemoryStore, ObjectStore
from range_index.segment_times import NO_TOKEN
from tests.conformance.report import Report, same


@dataclass
class Cursor:
    """How far the reader is in a segment."""

    offset: int = 0
    token: int = NO_TOKEN


@dataclass
class World:
    """A host with its clock, and one reader.

    Attributes:
        store: where parts of indexes move to.
        wall: what the source of the clock says.
        indexes: of the segments, by name.
        sealed: which of these are.
        cursors: of the segments that the reader has.
        lag: of the reader.
    """

    store: ObjectStore = field(default_factory=MemoryStore)
    wall: int = 0
    indexes: dict[str, SegmentTimeIndex] = field(default_factory=dict)
    sealed: set[str] = field(default_factory=set)
    cursors: dict[str, Cursor] = field(default_factory=dict)
    lag: Lag = field(default_factory=Lag)

    def __post_init__(self) -> None:
        self.clock = HostClock(lambda: self.wall)
        self.cache = part_cache()

    def index(self, name: str) -> SegmentTimeIndex:
        """The index of a segment, which comes into being when it is first named."""
        if name not in self.indexes:
            stream_id = len(self.indexes)
            self.indexes[name] = SegmentTimeIndex.open(self.store, stream_id, self.clock, cache=self.cache)
        return self.indexes[name]

    def standing(self, name: str) -> Standing[str]:
        """How a segment of the reader stands, all its data being at hand."""
        cursor, index = self.cursors[name], self.index(name)
        if cursor.offset < index.end_offset:
            return Standing(name, index.read(cursor.offset, 1, cursor.token).value)
        return Standing(name, None, is_drained=name in self.sealed)


def run(path: Path, data: dict[str, Any], report: Report) -> None:
    """All cases of a file."""
    for case in data["cases"]:
        run_case(f"{path.name}: {case['name']}", case, World(), report)


def run_case(name: str, case: dict[str, Any], world: World, report: Report) -> None:
    """All steps of a case, on a host that has no segments yet."""
    for number, step in enumerate(case["steps"]):
        with report.check(f"{name}, step {number}, {step[0]}"):
            _check_step(world, step)


def is_time_order(data: Any) -> bool:
    """Whether a file holds cases of this format."""
    cases = data.get("cases") if isinstance(data, dict) else None
    return isinstance(cases, list) and bool(cases) and all(_is_case(case) for case in cases)


def _is_case(case: Any) -> bool:
    steps = case.get("steps") if isinstance(case, dict) else None
    return isinstance(steps, list) and bool(steps) and all(isinstance(step, list) and step for step in steps)


def _check_step(world: World, step: list[Any]) -> None:
    op, *args = step
    expected = args.pop() if args and isinstance(args[-1], dict) else {}
    found = OPS[op](world, *args)
    if "expect" in expected:
        same("answer", found, expected["expect"])


def _wall(world: World, time: int) -> None:
    world.wall = time


def _append(world: World, name: str, count: int) -> None:
    index = world.index(name)
    if count:
        index.append(index.end_offset + count)


def _merge(world: World, name: str, count: int) -> None:
    index = world.index(name)
    index.merge(index.end_offset + count)


def _bulk(world: World, name: str, times: int, count: int, step: int) -> None:
    for _ in range(times):
        _append(world, name, count)
        world.wall += step


def _index(world: World, name: str) -> object:
    return [row for piece in world.index(name).pieces() for row in piece.rows.tolist()]


def _read(world: World, name: str, offset: int, count: int, token: int | None) -> object:
    index = world.index(name)
    answers = [index.read(offset, count, each) for each in (NO_TOKEN if token is None else token, NO_TOKEN)]
    given, without = ([each.covered, each.values.tolist(), each.token] for each in answers)
    same("answer without a token", without, given)
    return given


def _locate(world: World, name: str, offset: int, probes_max: int) -> int:
    found = world.index(name).locate(offset)
    if found.probes > probes_max:
        raise AssertionError(f"probes: expected at most {probes_max}, found {found.probes}")
    return found.record


def _flush(world: World, name: str, offset: int) -> int:
    return world.index(name).move(offset)


def _tier(world: World, name: str) -> object:
    index = world.index(name)
    return [index.parts, index.records_in_memory]


def _bytes(world: World, name: str) -> str:
    return world.index(name)._view().memory.encode().hex()


def _reader(world: World, names: list[str]) -> None:
    world.cursors = {name: Cursor() for name in names}
    world.lag = Lag()


def _next(world: World, count: int) -> object:
    name = _select(world)
    if name is None:
        return None
    cursor = world.cursors[name]
    times = world.index(name).read(cursor.offset, count, cursor.token)
    if not times.covered:
        return None  # drained: there is nothing to read, only to release
    cursor.offset, cursor.token = cursor.offset + times.covered, times.token
    world.lag.read(int(times.values[-1]))
    return [name, times.value]


def _lag(world: World, now: int) -> int:
    return world.lag.at(now)


def _seal(world: World, name: str) -> None:
    world.sealed.add(name)


def _select(world: World) -> str | None:
    chosen = Orderer(map(world.standing, world.cursors)).choose()
    return None if chosen is None else chosen.segment


def _release(world: World, name: str) -> None:
    del world.cursors[name]


OPS: dict[str, Callable[..., object]] = {
    "wall": _wall,
    "append": _append,
    "merge": _merge,
    "bulk": _bulk,
    "index": _index,
    "read": _read,
    "locate": _locate,
    "flush": _flush,
    "tier": _tier,
    "bytes": _bytes,
    "reader": _reader,
    "next": _next,
    "lag": _lag,
    "seal": _seal,
    "select": _select,
    "release": _release,
}
