"""Random histories of one node's list, against a model that keeps every object's offsets explicitly.

After every step each uploaded offset is found in exactly one live place, and in a node's list the offsets of a stream
ascend. Writers, compactors, movers, collectors and undos come in any order.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from accel.catalog.compact import check_compaction
from accel.catalog.node_list import (
    after_undo,
    check_list,
    with_compaction,
    with_new_session,
    with_prepared,
    with_upload,
    without_expired,
    without_stream_objects,
    without_withdrawn,
)
from accel.catalog.records import NodeList, ObjectFacts, with_delete_pending, without_collected
from accel.catalog.sketches_and_ends import sketch_rows
from accel.catalog.stream_shards import check_shard, with_stream_objects, with_withdrawn, without_commits
from accel.errors import CommitRefused, SessionFenced
from range_index import ObjectRanges
from tests.accel.catalog.building import NODE, bucket_of_streams, done, facts, live_ids, size_of, stream_objects
from tests.examples import examples

STREAMS = (3, 4, 5)
RETENTION_MS = 50

Runs = dict[int, tuple[int, int]]
"""Stream id -> [start, end)."""


@dataclass(frozen=True)
class Version:
    """A list as it stood, and what happened up to then."""

    node_list: NodeList
    undos: int
    dooms: int


class ListHistory(RuleBasedStateMachine):
    """One node's list, the bucket of its streams, and the model."""

    def __init__(self) -> None:
        super().__init__()
        self.now = with_new_session(NodeList(NODE))
        self.bucket = bucket_of_streams(*STREAMS)
        self.contents: dict[int, Runs] = {}
        self.ends = dict.fromkeys(STREAMS, 0)
        self.delete_pending: set[int] = set()
        self.unsketched: set[int] = set()
        self.expired: list[int] = []
        self.versions: list[Version] = []
        self.old_compactions: list[tuple[list[tuple[int, int]], ObjectFacts | None, object]] = []
        self.clock_ms = 1000
        self.undos = 0
        self.next_id = 1

    # What the actors do

    @rule(
        lengths=st.dictionaries(st.sampled_from(STREAMS), st.integers(1, 5), min_size=1),
        own=st.sets(st.sampled_from(STREAMS)),
    )
    def upload(self, lengths: dict[int, int], own: set[int]) -> None:
        runs = {stream: (self.ends[stream], self.ends[stream] + length) for stream, length in lengths.items()}
        shared = {stream: run for stream, run in runs.items() if stream not in own}
        added = self.written(shared) if shared else None
        rows = stream_objects(
            *((self.written({stream: run}), stream, *run) for stream, run in runs.items() if stream in own)
        )
        promised = self.promise([*([] if added is None else [added]), *rows["object_id"].tolist()])
        facts_given = None if added is None else facts(added, stream_ids=shared)
        after = done(with_upload(promised, promised.epoch, facts_given, rows))
        assert with_upload(after, promised.epoch, facts_given, rows) is None
        with pytest.raises(SessionFenced):
            with_upload(promised, promised.epoch - 1, facts_given, rows)
        self.now = after
        self.ends |= {stream: end for stream, (_, end) in runs.items()}

    @precondition(lambda self: len(self.now.live) > 0)
    @rule(data=st.data(), own=st.sets(st.sampled_from(STREAMS)))
    def compact(self, data: st.DataObject, own: set[int]) -> None:
        ids = live_ids(self.now)
        first = data.draw(st.integers(0, len(ids) - 1))
        sources = ids[first : first + data.draw(st.integers(1, 4))]
        runs = self.runs_of(sources)
        shared = {stream: each[0] for stream, each in runs.items() if len(each) == 1 and stream not in own}
        split = [(stream, run) for stream, each in runs.items() if stream not in shared for run in each]
        added = self.written(shared) if shared else None
        rows = stream_objects(*((self.written({stream: run}), stream, *run) for stream, run in split))
        held = [self.ranges_of(source) for source in sources]
        assert check_compaction(held, None if added is None else self.ranges_of(added), rows, self.bucket.streams) == []
        promised = self.promise([*([] if added is None else [added]), *rows["object_id"].tolist()])
        removed = [(source, size_of(source)) for source in sources]
        target = None if added is None else facts(added, stream_ids=shared)
        after = done(with_compaction(promised, removed, target, rows, self.clock_ms))
        assert with_compaction(after, removed, target, rows, self.clock_ms + 1) is None
        self.versions = [*self.versions[-4:], Version(self.now, self.undos, len(self.delete_pending))]
        self.now = after

    @rule()
    def move(self) -> None:
        waiting = self.now.stream_objects
        if not len(waiting):
            return
        moved = with_stream_objects(self.bucket, waiting, self.clock_ms)
        if moved is not None:
            assert with_stream_objects(moved, waiting, self.clock_ms) is None
            self.bucket = moved
        self.now = done(without_stream_objects(self.now, waiting["object_id"]))

    @rule(passed_ms=st.integers(0, 30))
    def wait(self, passed_ms: int) -> None:
        self.clock_ms += passed_ms

    @rule()
    def promise_in_vain(self) -> None:
        self.now = done(with_prepared(self.now, [self.next_id], self.clock_ms + 10, None))
        self.next_id += 1

    @rule()
    def expire(self) -> None:
        left, expired = without_expired(self.now, self.clock_ms)
        self.expired += expired.tolist()
        self.now = self.now if left is None else left

    @rule()
    def doom(self) -> None:
        delete_pending, ids = with_delete_pending(self.now, self.clock_ms - RETENTION_MS)
        pending_bucket, own_ids = with_delete_pending(self.bucket, self.clock_ms - RETENTION_MS)
        self.now = self.now if delete_pending is None else delete_pending
        self.bucket = self.bucket if pending_bucket is None else pending_bucket
        self.delete_pending |= {*ids.tolist(), *own_ids.tolist()}

    @rule(share=st.integers(1, 3))
    def collect(self, share: int) -> None:
        delete_pending = self.now.retired["object_id"][self.now.retired["delete_pending"] != 0][::share]
        self.now = without_collected(self.now, delete_pending) or self.now
        delete_pending = self.bucket.retired["object_id"][self.bucket.retired["delete_pending"] != 0][::share]
        self.bucket = without_collected(self.bucket, delete_pending) or self.bucket

    @rule()
    def open_session(self) -> None:
        self.now = with_new_session(self.now)

    @precondition(lambda self: self.versions)
    @rule(data=st.data())
    def undo(self, data: st.DataObject) -> None:
        version = data.draw(st.sampled_from(self.versions))
        earlier = version.node_list
        try:
            result = after_undo(self.now, earlier, self.clock_ms)
        except CommitRefused:
            assert self.undos > version.undos or len(self.delete_pending) > version.dooms
            return
        following = self.now if result is None else result.node_list
        old = following.live["object_id"][following.live["order_id"] < earlier.next_order_id]
        assert sorted(old.tolist()) == sorted(live_ids(earlier))
        if result is None:
            return
        assert after_undo(following, earlier, self.clock_ms) is None
        # An undo takes sketches of the earlier version, for what was never away, too. What comes back and has none
        # there is sketched anew: the undo opens these objects.
        self.unsketched |= set(result.revived["object_id"].tolist())
        self.unsketched -= set(earlier.sketches["object_id"].tolist())
        self.undos += 1
        if len(result.withdrawn_stream_objects):
            bucket = done(with_withdrawn(self.bucket, result.withdrawn_stream_objects, self.clock_ms))
            assert with_withdrawn(bucket, result.withdrawn_stream_objects, self.clock_ms) is None
            assert with_stream_objects(bucket, result.withdrawn_stream_objects, self.clock_ms) is None  # a slow mover
            self.bucket = bucket
        self.bucket = without_commits(self.bucket, NODE, following.withdrawn_commits, self.clock_ms) or self.bucket
        self.now = done(without_withdrawn(following, following.withdrawn_commits))

    @precondition(lambda self: self.expired)
    @rule()
    def commit_too_late(self) -> None:
        with pytest.raises(CommitRefused, match="expected prepared ids"):
            with_upload(self.now, self.now.epoch, facts(self.expired[-1]))

    # What must always be so

    @invariant()
    def list_and_bucket_keep_their_own_rules(self) -> None:
        assert check_list(self.now) == []
        assert check_shard(self.bucket) == []

    @invariant()
    def every_offset_is_found_in_exactly_one_live_place(self) -> None:
        found: dict[int, list[tuple[int, int]]] = {stream: [] for stream in STREAMS}
        for rows in (self.now.stream_objects, self.bucket.stream_objects):
            for object_id in rows["object_id"].tolist():
                for stream, run in self.contents[object_id].items():
                    found[stream].append(run)
        in_list: dict[int, int] = {}
        for object_id in live_ids(self.now):
            for stream, run in self.contents[object_id].items():
                assert run[0] >= in_list.get(stream, 0), "offsets descend through the list"
                in_list[stream] = run[1]
                found[stream].append(run)
        for stream, runs in found.items():
            at = 0
            for start, end in sorted(runs):
                assert start == at, f"stream {stream}: {sorted(runs)}"
                at = end
            assert at == self.ends[stream]

    @invariant()
    def each_live_object_has_the_sketch_of_its_streams(self) -> None:
        sketched = set(live_ids(self.now)) - self.unsketched
        expected = sketch_rows((each, facts(each, stream_ids=self.contents[each]).sketch) for each in sketched)
        assert self.now.sketches.tolist() == expected.tolist()

    @invariant()
    def what_is_delete_pending_or_expired_never_comes_back(self) -> None:
        live = {*live_ids(self.now), *self.now.stream_objects["object_id"].tolist()}
        live |= set(self.bucket.stream_objects["object_id"].tolist())
        assert not live & self.delete_pending
        assert not live & set(self.expired)

    # The model's own

    def written(self, runs: Runs) -> int:
        object_id, self.next_id = self.next_id, self.next_id + 1
        self.contents[object_id] = dict(runs)
        return object_id

    def promise(self, ids: list[int]) -> NodeList:
        return with_prepared(self.now, ids, self.clock_ms + 1000, None) or self.now

    def runs_of(self, sources: list[int]) -> dict[int, list[tuple[int, int]]]:
        runs: dict[int, list[tuple[int, int]]] = {}
        for source in sources:
            for stream, (start, end) in self.contents[source].items():
                known = runs.setdefault(stream, [])
                if known and known[-1][1] == start:
                    known[-1] = (known[-1][0], end)
                else:
                    known.append((start, end))
        return runs

    def ranges_of(self, object_id: int) -> ObjectRanges:
        return ObjectRanges.from_ranges([(stream, *run) for stream, run in self.contents[object_id].items()])


ListHistory.TestCase.settings = settings(max_examples=examples(50), stateful_step_count=40, deadline=None)
TestListHistory = ListHistory.TestCase
