"""What is no number, no time, no name is refused at the public edge: nothing is written, and the stream stays whole."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, Final, cast
from uuid import UUID

import numpy as np
import pytest

from accel.errors import HistoryError, InvalidArgument
from accel.history.rules.configuration import (
    RetentionKind,
    RetentionPolicy,
    ScalingKind,
    ScalingPolicy,
    StreamConfiguration,
)
from accel.history.rules.scaling import ScaleRequest
from accel.history.rules.segments import KeyRanges
from accel.history.rules.states import StreamState
from accel.history.rules.values import INT64_MAX, TIME_MS_END, make_transaction_id
from accel.history.store import GivenSizes, Stream, StreamStore
from accel.repair.streams import repair_stream
from tests.accel.history.store.bench import START_MS, Bench, cut, ids
from tests.accel.history.store.watching import WatchedHost
from tests.accel.history.store.workflows import prepared, two_segments
from tests.conformance.history_world import SCOPE, STREAM

NO_INTEGERS: Final = (
    1.0,
    1.5,
    math.nan,
    math.inf,
    True,
    "1",
    b"1",
    np.float64(1),
    np.bool_(True),
    [1],
    2**63,
    -(2**70),
)
NO_TIMES: Final = (*NO_INTEGERS, -1, TIME_MS_END, 2**62, 1_700_000_000_000_000, np.int64(-1))
NO_COUNTS: Final = (*NO_INTEGERS, 0, -1)
NO_IDS: Final = (*NO_INTEGERS, -1, 2**31)
NO_TEXTS: Final = (5, b"name", None, "x" * 1001, "\ud800", ["name"])
NO_NAMES: Final = (5, b"name", None, "", ".", "a/b", "_system", "a" * 201, "\ud800", "größe")
NO_SEGMENTS: Final = ("", "0", "0@", "3.#epoch.5", "x@1", "0@x", "0@99999999999")
NO_CUTS: Final = (
    *({ids("0@0")[0]: each, ids("1@0")[0]: 0} for each in NO_INTEGERS),
    *({each: 0, ids("1@0")[0]: 0} for each in (*NO_INTEGERS[:4], *NO_SEGMENTS, -1, 2**31)),
    {0: 1, "0@0": 2},
    [0, 1],
    5,
)
NO_RANGES: Final = (
    *([(0.0, each), (each, 0.5)] for each in (math.nan, math.inf, "0.25", None, True)),
    [(0.0, 0.25, 0.5)],
    [0.0, 0.5],
    5,
)
NO_TRANSACTIONS: Final = ("1", 5, None, b"1" * 16)
NOBODY: Final = make_transaction_id(0, 77)
FIRST: Final = ids("0@0")
SPLIT: Final = [(0.0, 0.25), (0.25, 0.5)]

OnStream = Callable[[Stream, Any], object]
OnStore = Callable[[StreamStore, Any], object]

STREAM_EDGES: dict[str, tuple[tuple[object, ...], OnStream]] = {
    "segment_streams": ((*NO_IDS, *NO_SEGMENTS), lambda stream, bad: stream.segment_streams([bad])),
    "split": ((*NO_IDS, *NO_SEGMENTS), lambda stream, bad: stream.split(bad)),
    "split, parts": ((*NO_COUNTS, 1), lambda stream, bad: stream.split("0@0", bad)),
    "split, time": (NO_TIMES, lambda stream, bad: stream.split("0@0", 2, bad)),
    "merge": ((*NO_IDS, *NO_SEGMENTS), lambda stream, bad: stream.merge(bad, "1@0")),
    "merge, time": (NO_TIMES, lambda stream, bad: stream.merge("0@0", "1@0", time_ms=bad)),
    "request_split": ((*NO_IDS, *NO_SEGMENTS), lambda stream, bad: stream.request_split(bad)),
    "request_split, parts": ((*NO_COUNTS, 1), lambda stream, bad: stream.request_split("0@0", bad)),
    "request_split, time": (NO_TIMES, lambda stream, bad: stream.request_split("0@0", 2, bad)),
    "request_merge": ((*NO_IDS, *NO_SEGMENTS), lambda stream, bad: stream.request_merge(bad, "1@0")),
    "request_merge, time": (NO_TIMES, lambda stream, bad: stream.request_merge("0@0", "1@0", time_ms=bad)),
    "scale_progress": ((*NO_INTEGERS, -1, 99), lambda stream, bad: stream.scale_progress(bad)),
    "segment_stream": (NO_INTEGERS, lambda stream, bad: stream.segment_stream(bad)),
    "epoch": ((*NO_INTEGERS, -1), lambda stream, bad: stream.epochs.epoch(bad)),
    "epochs": ((*NO_INTEGERS, -1), lambda stream, bad: list(stream.epochs.between(bad, 0))),
    "epochs to": (NO_INTEGERS, lambda stream, bad: list(stream.epochs.between(0, bad))),
    "segment": (NO_IDS, lambda stream, bad: stream.epochs.segment(bad)),
    "successors": (NO_IDS, lambda stream, bad: stream.epochs.successors(bad)),
    "predecessors": (NO_IDS, lambda stream, bad: stream.epochs.predecessors(bad)),
    "epoch_at": (NO_TIMES, lambda stream, bad: stream.epochs.epoch_at(bad)),
    "segments_at": (NO_TIMES, lambda stream, bad: stream.segments_at(bad)),
    "sealed_size": (NO_IDS, lambda stream, bad: stream.cuts.sealed_size(bad)),
    "scales": (NO_TIMES, lambda stream, bad: list(stream.epochs.scales(bad, START_MS))),
    "scales to": (NO_TIMES, lambda stream, bad: list(stream.epochs.scales(0, bad))),
    "recorded_cut": (NO_TIMES, lambda stream, bad: stream.retention.cut(bad)),
    "compare": (NO_CUTS, lambda stream, bad: stream.cuts.compare(bad, cut(s0_0=1, s1_0=1))),
    "compare with": (NO_CUTS, lambda stream, bad: stream.cuts.compare(cut(s0_0=1, s1_0=1), bad)),
    "is_valid": (NO_CUTS, lambda stream, bad: stream.cuts.is_valid(bad)),
    "span": (NO_CUTS, lambda stream, bad: stream.cuts.span(bad)),
    "segments_between": (NO_CUTS, lambda stream, bad: stream.cuts.segments_between({}, bad)),
    "size_between": (NO_CUTS, lambda stream, bad: stream.cuts.size_between({}, bad)),
    "configure": ((5, None, "fast", {"min_segments": 2}), lambda stream, bad: stream.configure(bad)),
    "scale, ids": ((*NO_IDS, *NO_SEGMENTS), lambda stream, bad: stream.scale([bad], SPLIT)),
    "scale, no list": ((0, 1.5, None), lambda stream, bad: stream.scale(bad, SPLIT)),
    "scale, keys": (NO_RANGES, lambda stream, bad: stream.scale(FIRST, bad)),
    "scale, time": (NO_TIMES, lambda stream, bad: stream.scale(FIRST, SPLIT, bad)),
    "request_scale, ids": (NO_IDS, lambda stream, bad: stream.request_scale([bad], SPLIT)),
    "request_scale, keys": (NO_RANGES, lambda stream, bad: stream.request_scale(FIRST, bad)),
    "request_scale, time": (NO_TIMES, lambda stream, bad: stream.request_scale(FIRST, SPLIT, bad)),
    "scale_status": (NO_TRANSACTIONS, lambda stream, bad: stream.scale_status(bad)),
    "carry_out_request": (NO_TRANSACTIONS, lambda stream, bad: stream.carry_out_request(bad)),
    "truncate": (NO_CUTS, lambda stream, bad: stream.truncate(bad)),
    "run_retention": (NO_TIMES, lambda stream, bad: stream.retention.run(bad)),
    "run_retention, cut": (NO_CUTS, lambda stream, bad: stream.retention.run(START_MS + 9, bad)),
    "begin_transaction, lease": (NO_COUNTS, lambda stream, bad: stream.transactions.begin(lease_ms=bad)),
    "begin_transaction, writer": (
        tuple(each for each in NO_TEXTS if each is not None),
        lambda stream, bad: stream.transactions.begin(writer_id=bad),
    ),
    "end_transaction": (NO_TRANSACTIONS, lambda stream, bad: stream.transactions.seal(bad, commit=True)),
    "ping_transaction": (NO_TRANSACTIONS, lambda stream, bad: stream.transactions.ping(bad, 5)),
    "ping_transaction, lease": (NO_COUNTS, lambda stream, bad: stream.transactions.ping(opened(stream), bad)),
    "transaction_status": (NO_TRANSACTIONS, lambda stream, bad: stream.transactions.status(bad)),
    "commit": (NO_TIMES, lambda stream, bad: stream.commit(bad)),
    "commit, limit": (NO_COUNTS, lambda stream, bad: stream.commit(limit=bad)),
    "abort_transaction": (NO_TRANSACTIONS, lambda stream, bad: stream.transactions.abort(bad)),
    "workflows: a scale": (
        NO_TIMES,
        lambda stream, bad: stream.workflows.scales.run(ScaleRequest((0,), KeyRanges.of(SPLIT), bad)),
    ),
    "workflows: its sizes": (
        (*NO_INTEGERS, -1),
        lambda stream, bad: stream.workflows.writing.write_sizes({FIRST[0]: bad}),
    ),
    "workflows: a sealing": (NO_TIMES, lambda stream, bad: stream.workflows.ending.seal(bad)),
    "workflows: a recorded cut": (NO_TIMES, lambda stream, bad: stream.workflows.retention.add(bad, 5, {0: 1})),
    "workflows: its size": (
        (*NO_INTEGERS, -1),
        lambda stream, bad: stream.workflows.retention.add(START_MS, bad, {0: 1}),
    ),
    "workflows: its offsets": (NO_CUTS, lambda stream, bad: stream.workflows.retention.add(START_MS, 5, bad)),
    "workflows: a purge": (NO_COUNTS, lambda stream, bad: stream.workflows.retention.purge(bad)),
    "workflows: a longest life": (NO_COUNTS, lambda stream, bad: stream.workflows.transactions.begin(longest_ms=bad)),
    "workflows: a writer's time": (
        NO_TIMES,
        lambda stream, bad: stream.workflows.transactions.seal(opened(stream), commit=True, commit_time_ms=bad),
    ),
}

STORE_EDGES: dict[str, tuple[tuple[object, ...], OnStore]] = {
    "create_scope": (NO_NAMES, lambda streams, bad: streams.create_scope(bad)),
    "delete_scope": (NO_NAMES, lambda streams, bad: streams.delete_scope(bad)),
    "streams": (NO_NAMES, lambda streams, bad: list(streams.streams(bad))),
    "list_streams": (NO_NAMES, lambda streams, bad: streams.list_streams(bad)),
    "list_streams, tag": ((5, b"a"), lambda streams, bad: streams.list_streams(SCOPE, tag=bad)),
    "list_streams, token": (("/", 5), lambda streams, bad: streams.list_streams(SCOPE, token=bad)),
    "list_streams, limit": ((*NO_COUNTS, 1001), lambda streams, bad: streams.list_streams(SCOPE, limit=bad)),
    "create_stream": (NO_NAMES, lambda streams, bad: streams.create_stream(SCOPE, bad)),
    "create_stream, scope": (NO_NAMES, lambda streams, bad: streams.create_stream(bad, "new")),
    "create_stream, wanted": ((5, "", {}), lambda streams, bad: streams.create_stream(SCOPE, "new", bad)),
    "create_stream, time": (NO_TIMES, lambda streams, bad: streams.create_stream(SCOPE, "new", time_ms=bad)),
    "create_stream, segments": (
        (*NO_COUNTS, 1_000_001),
        lambda streams, bad: streams.create_stream(SCOPE, "new", segments=bad),
    ),
    "create_stream, number": (
        (*NO_INTEGERS, -1, 2**31),
        lambda streams, bad: streams.create_stream(SCOPE, "new", first_number=bad),
    ),
    "stream": (NO_NAMES, lambda streams, bad: streams.stream(SCOPE, bad)),
    "stream, scope": (NO_NAMES, lambda streams, bad: streams.stream(bad, STREAM)),
    "segment_stream": (NO_INTEGERS, lambda streams, bad: streams.segment_stream(SCOPE, STREAM, bad)),
    "segment_stream, name": (NO_NAMES, lambda streams, bad: streams.segment_stream(SCOPE, bad, 0)),
    "delete_stream": (NO_NAMES, lambda streams, bad: streams.delete_stream(SCOPE, bad)),
    "run_retention": (NO_TIMES, lambda streams, bad: streams.run_retention(SCOPE, bad)),
    "retain": (NO_TIMES, lambda streams, bad: streams.retain(SCOPE, STREAM, bad)),
    "recover": (NO_NAMES[:2], lambda streams, bad: streams.recover(bad)),
    "parts_of": (NO_NAMES, lambda streams, bad: streams.parts_of(SCOPE, bad)),
    "repair_stream": (NO_NAMES, lambda streams, bad: repair_stream(streams, SCOPE, bad, apply=True)),
    "repair_stream, sizes": (
        (*NO_INTEGERS, -1),
        lambda streams, bad: repair_stream(streams, SCOPE, STREAM, apply=True, sizes={ids("0@0")[0]: bad}),
    ),
    "recover_stream": (NO_NAMES, lambda streams, bad: streams.recover_stream(SCOPE, bad)),
}

WITHOUT_NUMBERS: Final = {"open"}
"""Methods whose arguments are components."""


def opened(stream: Stream) -> UUID:
    return next(iter(stream.transactions.each_active()))[0]


def state_of(bench: Bench) -> object:
    """What the bucket and the host have."""
    return [(info.key, info.etag) for info in bench.store.list("")], vars(bench.host) | {"_lock": None}


def two_transactions(bench: Bench) -> None:
    two_segments(bench)
    bench.transaction("open", commit=None)
    bench.transaction("committing")


@pytest.fixture
def busy() -> Bench:
    return prepared(two_transactions)


def check_refused(bench: Bench, act: Callable[[Any], object], bad: object) -> None:
    before = deepcopy(state_of(bench))
    with pytest.raises(HistoryError):
        act(bad)
    assert state_of(bench) == before, bad


@pytest.mark.parametrize("name", STREAM_EDGES)
def test_a_stream_refuses_what_is_none_and_stays_as_it_was(busy: Bench, name: str) -> None:
    bad_ones, act = STREAM_EDGES[name]
    stream = busy.stream()
    for bad in bad_ones:
        check_refused(busy, lambda value: act(stream, value), bad)
    assert stream.state() is StreamState.ACTIVE


@pytest.mark.parametrize("name", STORE_EDGES)
def test_a_store_of_streams_refuses_what_is_none_and_stays_as_it_was(busy: Bench, name: str) -> None:
    bad_ones, act = STORE_EDGES[name]
    streams = busy.streams()
    for bad in bad_ones:
        check_refused(busy, lambda value: act(streams, value), bad)
    assert list(streams.streams(SCOPE)) == [STREAM]


@pytest.mark.parametrize(("kind", "edges"), [(Stream, STREAM_EDGES), (StreamStore, STORE_EDGES)])
def test_every_public_method_that_takes_something_is_tried(kind: type, edges: Mapping[str, object]) -> None:
    tried = {name.partition(",")[0].partition(" ")[0] for name in edges}
    methods = inspect.getmembers(kind, inspect.isroutine)
    wanted = {
        name for name, each in methods if not name.startswith("_") and len(inspect.signature(each).parameters) > 1
    }
    assert wanted - tried - WITHOUT_NUMBERS == set()


@pytest.mark.parametrize("bad", NO_INTEGERS)
@pytest.mark.parametrize(
    "make",
    [
        lambda bad: StreamConfiguration(min_segments=bad),
        lambda bad: RetentionPolicy(RetentionKind.TIME, bad),
        lambda bad: RetentionPolicy(RetentionKind.SIZE, 0, bad),
        lambda bad: ScalingPolicy(ScalingKind.EVENTS, bad, 2),
        lambda bad: ScalingPolicy(ScalingKind.EVENTS, 5, bad),
        lambda bad: GivenSizes({0: bad}),
    ],
)
def test_a_policy_refuses_what_is_no_integer(make: Callable[[object], object], bad: object) -> None:
    with pytest.raises(InvalidArgument):
        make(bad)


@pytest.mark.parametrize("tags", ["abc", [5], (b"x",), None, ("\ud800",), ("x" * 1001,)])
def test_tags_are_texts(tags: Any) -> None:
    with pytest.raises(InvalidArgument):
        StreamConfiguration(tags=tags)


def test_integers_of_numpy_are_integers(bench: Bench) -> None:
    stream: Any = bench.stream()  # a caller without types
    time_ms: Any = np.int64(START_MS + 10)
    stream.scale(np.array(FIRST), np.array(SPLIT), time_ms)
    bench.append_all(1)
    stream.truncate({np.int64(each): np.int32(1) for each in ids("1@0", "2@1", "3@1")})
    least, size = cast("Any", (np.int16(2), np.int64(1)))
    stream.configure(StreamConfiguration(min_segments=least, retention=RetentionPolicy(RetentionKind.SIZE, size)))
    assert bench.stream().epochs.epoch_at(time_ms) == 1
    assert type(bench.stream().configuration().min_segments) is int
    assert dict(bench.stream().head()) == dict.fromkeys(ids("1@0", "2@1", "3@1"), 1)


def test_the_last_time_that_is_one_leaves_a_stream_that_goes_on(bench: Bench) -> None:
    """Epochs that follow begin a millisecond later each."""
    bench.now_ms = TIME_MS_END - 1
    stream = bench.stream()
    stream.scale(FIRST, SPLIT, TIME_MS_END - 1)
    stream.scale(ids("2@1"), [(0.0, 0.125), (0.125, 0.25)], 5)
    assert [each.creation_time_ms for each in bench.stream().epochs.between(1, 2)] == [TIME_MS_END - 1, TIME_MS_END]
    assert bench.stream().epochs.epoch_at(TIME_MS_END - 1) == 1
    assert bench.streams().recover().is_whole


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1.0, 1.7e18])
def test_a_clock_that_tells_no_time_is_refused_before_anything_is_written(bench: Bench, seconds: float) -> None:
    before = state_of(bench)
    stream = bench.stream()
    bench.now_ms = seconds * 1000  # type: ignore[assignment]  # what the clock says
    with pytest.raises(InvalidArgument):
        stream.scale(FIRST, SPLIT)
    with pytest.raises(InvalidArgument):
        stream.transactions.begin()
    assert state_of(bench) == before


@pytest.mark.parametrize(
    "act",
    [
        lambda stream: stream.scale(FIRST, SPLIT),
        lambda stream: stream.commit(),
        lambda stream: stream.retention.run(),
        lambda stream: stream.seal(),
    ],
    ids=["scale", "commit", "retention", "seal"],
)
@pytest.mark.parametrize("bad", [*NO_INTEGERS, -1])
def test_a_host_that_tells_what_is_no_size_breaks_nothing(
    bench: Bench, act: Callable[[Stream], object], bad: object
) -> None:
    bench.transaction("committing")

    def told(name: str, order: Callable[[], Any]) -> object:
        found = order()
        if name in ("seal", "tails"):
            return dict.fromkeys(found, bad)
        return {each: dict.fromkeys(offsets, bad) for each, offsets in found.items()} if name == "merge" else found

    with pytest.raises(InvalidArgument, match="from the host"):
        act(bench.opened(WatchedHost(bench.host, told)).stream(SCOPE, STREAM))
    assert bench.streams().recover().is_whole
    assert bench.stream().state() in (StreamState.ACTIVE, StreamState.SEALED)
    known = [bench.stream().cuts.sealed_size(each) for each in FIRST]
    assert all(each is None or 0 <= each < INT64_MAX for each in known)
