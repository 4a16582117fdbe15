"""Random histories of a bucket, against a model of plain dicts that looks at one stream at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from accel.catalog.records import OPEN, Rows, StreamShard, with_delete_pending, without_collected
from accel.catalog.stream_shards import (
    check_shard,
    with_closed_ranges,
    with_open_ranges,
    with_replacement,
    with_starts,
    with_stream_objects,
)
from accel.errors import CommitRefused
from tests.accel.catalog.building import done, stream_objects
from tests.examples import examples

STREAMS = st.sampled_from([3, 4, 9])
NODES = st.sampled_from([1, 2])
OFFSETS = st.integers(0, 12)
RETENTION_MS = 5


class RefusedByModelError(Exception):
    """The model does not allow it."""


@dataclass
class Stream:
    """One stream as the model keeps it."""

    start: int
    ranges: list[tuple[int, int, int]] = field(default_factory=list)
    """[start, end) and node."""
    objects: dict[int, tuple[int, int]] = field(default_factory=dict)
    retired: set[int] = field(default_factory=set)


def opened_in(streams: dict[int, Stream], stream_id: int, node: int, start: int) -> None:
    stream = streams.get(stream_id)
    if stream is None:
        first = max(start, 0)
        streams[stream_id] = Stream(first, [(first, OPEN, node)])
        return
    _, end, owner = stream.ranges[-1]
    if end == OPEN:
        if owner != node:
            raise RefusedByModelError
        return
    if start not in (OPEN, end):
        raise RefusedByModelError
    stream.ranges.append((end, OPEN, node))


def closed_in(streams: dict[int, Stream], stream_id: int, node: int, end: int) -> None:
    stream = streams.get(stream_id)
    if stream is None:
        raise RefusedByModelError
    start, last_end, owner = stream.ranges[-1]
    if (last_end, owner) == (OPEN, node):
        if end < start:
            raise RefusedByModelError
        stream.ranges[-1] = (start, end, node)
        return
    if not any(each[1:] == (end, node) for each in stream.ranges):
        raise RefusedByModelError


def trimmed_in(streams: dict[int, Stream], stream_id: int, offset: int) -> None:
    stream = streams.get(stream_id)
    if stream is None or (stream.ranges[-1][1] != OPEN and offset > stream.ranges[-1][1]):
        raise RefusedByModelError
    if offset > stream.start:
        stream.start = offset
        stream.ranges = [*(each for each in stream.ranges[:-1] if each[1] > offset), stream.ranges[-1]]
    below = [object_id for object_id, (_, end) in stream.objects.items() if end <= stream.start]
    for object_id in below:
        del stream.objects[object_id]
        stream.retired.add(object_id)


def added_in(streams: dict[int, Stream], object_id: int, stream_id: int, start: int, end: int) -> None:
    stream = streams.get(stream_id)
    if stream is None:
        raise RefusedByModelError
    if end <= stream.start:
        stream.retired.add(object_id)
        return
    if any(start < other_end and other_start < end for other_start, other_end in stream.objects.values()):
        raise RefusedByModelError
    stream.objects[object_id] = (start, end)


class BucketHistory(RuleBasedStateMachine):
    """A bucket and its model."""

    def __init__(self) -> None:
        super().__init__()
        self.bucket = StreamShard(0)
        self.model: dict[int, Stream] = {}
        self.next_id = 1
        self.clock_ms = 100

    @rule(stream_id=STREAMS, node=NODES, start=st.one_of(st.just(OPEN), OFFSETS))
    def open_stream(self, stream_id: int, node: int, start: int) -> None:
        def change() -> StreamShard | None:
            return with_open_ranges(self.bucket, stream_id, node, 1, start)

        if self.agree(change, lambda: opened_in(self.model, stream_id, node, start)):
            assert with_open_ranges(self.bucket, stream_id, node, 1) is None

    @rule(stream_id=STREAMS, node=NODES, end=OFFSETS)
    def close_stream(self, stream_id: int, node: int, end: int) -> None:
        def change() -> StreamShard | None:
            return with_closed_ranges(self.bucket, stream_id, node, end)

        if self.agree(change, lambda: closed_in(self.model, stream_id, node, end)):
            assert change() is None

    @rule(stream_id=STREAMS, offset=OFFSETS)
    def trim(self, stream_id: int, offset: int) -> None:
        def change() -> StreamShard | None:
            return with_starts(self.bucket, stream_id, offset, self.clock_ms)

        if self.agree(change, lambda: trimmed_in(self.model, stream_id, offset)):
            assert change() is None

    @rule(stream_id=STREAMS, start=OFFSETS, length=st.integers(1, 4))
    def add_object(self, stream_id: int, start: int, length: int) -> None:
        facts = (self.next_id, stream_id, start, start + length)
        rows = stream_objects(facts)
        self.next_id += 1

        def change() -> StreamShard | None:
            return with_stream_objects(self.bucket, rows, self.clock_ms)

        if self.agree(change, lambda: added_in(self.model, *facts)):
            assert change() is None

    @rule(data=st.data(), stream_id=STREAMS)
    def merge_neighbours(self, data: st.DataObject, stream_id: int) -> None:
        stream = self.model.get(stream_id)
        ordered = sorted((run, object_id) for object_id, run in stream.objects.items()) if stream else []
        if stream is None or len(ordered) < 2:
            return
        first = data.draw(st.integers(0, len(ordered) - 2))
        group = ordered[first : first + 2]
        (start, middle), (next_start, end) = group[0][0], group[1][0]
        ids = [object_id for _, object_id in group]
        rows = stream_objects((self.next_id, stream_id, start, end))

        def replaced() -> None:
            if middle != next_start:
                raise RefusedByModelError
            for object_id in ids:
                del stream.objects[object_id]
            stream.retired |= set(ids)
            stream.objects[self.next_id] = (start, end)

        def change() -> StreamShard | None:
            return with_replacement(self.bucket, stream_id, rows, ids, self.clock_ms)

        if self.agree(change, replaced):
            assert change() is None
        self.next_id += 1

    @rule(passed_ms=st.integers(0, 4))
    def collect(self, passed_ms: int) -> None:
        self.clock_ms += passed_ms
        delete_pending, ids = with_delete_pending(self.bucket, self.clock_ms - RETENTION_MS)
        self.bucket = self.bucket if delete_pending is None else delete_pending
        if len(ids):
            self.bucket = done(without_collected(self.bucket, ids))
        for stream in self.model.values():
            assert not stream.objects.keys() & set(ids.tolist())
            stream.retired -= set(ids.tolist())

    @invariant()
    def bucket_and_model_say_the_same(self) -> None:
        assert check_shard(self.bucket) == []
        assert dict(self.bucket.streams.tolist()) == {key: each.start for key, each in self.model.items()}
        for stream_id, stream in self.model.items():
            live, retired = (of_stream(rows, stream_id) for rows in (self.bucket.stream_objects, self.bucket.retired))
            assert dict(zip(live["object_id"].tolist(), spans(live), strict=True)) == stream.objects
            assert set(retired["object_id"].tolist()) == stream.retired
            ranges = of_stream(self.bucket.ranges, stream_id)
            kept = list(zip(ranges["start"].tolist(), ranges["end"].tolist(), ranges["node_id"].tolist(), strict=True))
            assert kept == stream.ranges

    def agree(self, change: Callable[[], StreamShard | None], model: Callable[[], None]) -> bool:
        """Apply a rule to both; they must both refuse, or neither."""
        try:
            model()
        except RefusedByModelError:
            allowed = False
        else:
            allowed = True
        try:
            changed = change()
        except CommitRefused:
            assert not allowed
            return False
        assert allowed
        self.bucket = self.bucket if changed is None else changed
        return True


def of_stream(rows: Rows, stream_id: int) -> Rows:
    found: Rows = rows[rows["stream_id"] == stream_id]
    return found


def spans(rows: Rows) -> list[tuple[int, int]]:
    return list(zip(rows["start"].tolist(), rows["end"].tolist(), strict=True))


BucketHistory.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
TestBucketHistory = BucketHistory.TestCase
