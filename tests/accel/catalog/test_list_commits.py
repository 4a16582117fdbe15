"""Commits to a node's list: what they do, that doing them twice does nothing, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from accel.catalog.node_list import (
    NO_STREAM_OBJECTS,
    PREPARED_MAX,
    TIMES_MAX,
    check_list,
    with_compaction,
    with_extended,
    with_new_session,
    with_prepared,
    with_upload,
    without_expired,
)
from accel.catalog.records import NO_STREAM, TIME_RECORD, WRITER_NUMBER, NodeList, ObjectFacts, make_rows, no_rows
from accel.errors import CommitRefused, SessionFenced
from tests.accel.catalog.building import (
    FAR_MS,
    NODE,
    compacted,
    done,
    facts,
    list_of,
    live_ids,
    prepared,
    size_of,
    spans,
    stream_objects,
    uploaded,
)


def test_uploads_stand_in_the_order_of_their_commits_whatever_their_ids() -> None:
    now = list_of(30, 10, 20)
    assert live_ids(now) == [30, 10, 20]
    assert spans(now) == [(0, 0), (1, 1), (2, 2)]
    assert now.next_order_id == 3
    assert now.live["added_by"].tolist() == [0, 1, 2]
    assert not len(now.prepared)
    assert check_list(now) == []


def test_an_upload_keeps_the_facts_of_its_object() -> None:
    now = prepared(list_of(), 10)
    now = done(with_upload(now, 1, ObjectFacts(10, 77, 1 << 33, 324_000, 4)))
    row = now.live[["object_id", "data_time_ms", "size_bytes", "index_size_bytes", "attributes"]][0]
    assert row.tolist() == (10, 77, 1 << 33, 324_000, 4)


def test_times_of_an_upload_wait_until_a_checkpoint_has_them_and_are_never_too_many() -> None:
    def timed(now: NodeList, object_id: int, rows: int, counted: int = -1) -> NodeList:
        times = make_rows(TIME_RECORD, stream_id=7, record=np.arange(rows), end=1, value=1, commit=0)
        added = replace(facts(object_id), times=times, counted=counted)
        return done(with_upload(prepared(now, object_id), 1, added))

    now = timed(timed(list_of(), 10, 2), 11, 3)
    assert now.times["commit"].tolist() == [0, 0, 1, 1, 1]
    assert with_upload(now, 1, facts(11)) is None
    assert len(uploaded(now, 12).times) == 5  # an upload that tells of none changes none
    assert timed(now, 12, 1, counted=0).times["commit"].tolist() == [1, 1, 1, 2]
    full = timed(now, 12, TIMES_MAX - 5)
    assert len(full.times) == TIMES_MAX
    assert len(timed(full, 13, 1).times) == TIMES_MAX
    assert timed(full, 13, 1, counted=2).times["commit"].tolist() == [3]


def test_numbers_of_an_upload_wait_likewise_and_the_list_says_that_some_were_left_out() -> None:
    def numbered(now: NodeList, object_id: int, rows: int, counted: int = -1) -> NodeList:
        columns = dict.fromkeys(WRITER_NUMBER.names or (), 1) | {"number": np.arange(rows)}
        told = make_rows(WRITER_NUMBER, **columns)
        added = replace(facts(object_id), times=no_rows(TIME_RECORD), numbers=told, counted=counted)
        return done(with_upload(prepared(now, object_id), 1, added))

    now = numbered(numbered(list_of(), 10, 2), 11, 3)
    assert now.numbers["commit"].tolist() == [0, 0, 1, 1, 1]
    assert numbered(now, 12, 1, counted=0).numbers["commit"].tolist() == [1, 1, 1, 2]
    full = numbered(now, 12, TIMES_MAX - 5)
    assert NO_STREAM not in full.numbers["stream_id"]
    for object_id in (13, 14):
        full = numbered(full, object_id, 1)
    assert full.numbers[["stream_id", "commit"]][full.numbers["stream_id"] == NO_STREAM].tolist() == [(NO_STREAM, 4)]
    assert NO_STREAM in numbered(full, 15, 1, counted=3).numbers["stream_id"]
    assert numbered(full, 15, 1, counted=4).numbers["commit"].tolist() == [5]


def test_stream_objects_of_an_upload_wait_in_the_list_sorted_and_named() -> None:
    now = uploaded(list_of(), 10, stream_objects((12, 8, 0, 5), (11, 7, 5, 9)))
    rows = now.stream_objects
    assert rows[["object_id", "stream_id", "start", "end"]].tolist() == [(11, 7, 5, 9), (12, 8, 0, 5)]
    assert rows[["node_id", "added_by"]].tolist() == [(NODE, 0)] * 2
    only_own = uploaded(now, None, stream_objects((13, 9, 0, 1)))
    assert live_ids(only_own) == [10]
    assert only_own.next_order_id == 2


def test_an_upload_counts_as_done_even_when_its_object_was_compacted_or_its_session_fenced() -> None:
    now = with_new_session(compacted(list_of(10, 11), [10, 11], 12))
    assert with_upload(now, 1, facts(10)) is None
    with pytest.raises(SessionFenced, match=r"expected session number 1, found 2"):
        with_upload(prepared(now, 13), 1, facts(13))


def test_promising_again_only_moves_deadlines_ahead() -> None:
    now = done(with_prepared(list_of(), [12, 10], 1000, 1))
    assert with_prepared(now, [10, 12], 900, 1) is None
    later = done(with_prepared(now, [12, 11], 2000, 1))
    assert later.prepared.tolist() == [(10, 1000), (11, 2000), (12, 2000)]


def test_a_promise_is_extended_only_while_it_stands() -> None:
    now = done(with_prepared(list_of(), [10], 1000, 1))
    assert done(with_extended(now, [10], 3000, None)).prepared.tolist() == [(10, 3000)]
    with pytest.raises(CommitRefused, match="expected prepared ids, found none for 11"):
        with_extended(now, [10, 11], 3000, None)


def test_a_fenced_session_promises_nothing_but_a_compactor_needs_none() -> None:
    now = with_new_session(list_of(10))
    with pytest.raises(SessionFenced):
        with_prepared(now, [11], FAR_MS, 1)
    assert len(done(with_prepared(now, [11], FAR_MS, None)).prepared) == 1


def test_a_compaction_takes_the_place_and_the_oldest_time_of_its_sources() -> None:
    now = compacted(list_of(10, 11, 12, 13), [12, 11], 20, now_ms=5000)
    assert live_ids(now) == [10, 20, 13]
    assert spans(now) == [(0, 0), (1, 2), (3, 3)]
    assert now.live["data_time_ms"][1] == 1011
    assert now.live["added_by"].tolist() == [0, 4, 3]
    assert now.retired[["object_id", "retired_at_ms", "retired_by", "delete_pending"]].tolist() == [
        (11, 5000, 4, 0),
        (12, 5000, 4, 0),
    ]
    again = compacted(now, [20, 13], 21)
    assert spans(again) == [(0, 0), (1, 3)]
    assert check_list(again) == []


def test_a_list_is_known_to_be_empty_whatever_commits_left_no_live_object() -> None:
    never = list_of()
    only_streams = uploaded(never, None, stream_objects((20, 7, 0, 5)))
    emptied = compacted(list_of(10), [10], None, stream_objects((30, 8, 0, 5)))
    again = uploaded(emptied, None, stream_objects((40, 9, 0, 5)))
    for now in (never, only_streams, emptied, again):
        assert not len(now.live)
        assert now.emptied == now.next_order_id
    damaged = replace(list_of(10), live=list_of().live)
    later = uploaded(damaged, None, stream_objects((40, 9, 0, 5)))
    for now in (damaged, later, list_of(10)):
        assert now.emptied != now.next_order_id


def test_a_compaction_that_is_committed_twice_happens_once() -> None:
    for target, rows in (
        (facts(20), NO_STREAM_OBJECTS),
        (None, stream_objects((21, 7, 0, 5))),
        (None, NO_STREAM_OBJECTS),
    ):
        before = prepared(list_of(10, 11), 20, 21)
        removed = [(10, size_of(10)), (11, size_of(11))]
        after = done(with_compaction(before, removed, target, rows, 5000))
        assert with_compaction(after, removed, target, rows, 6000) is None
        assert with_compaction(with_new_session(uploaded(after, 30)), removed, target, rows, 6000) is None


def merged(now: NodeList, *sources: int, sizes: Sequence[int] = ()) -> NodeList | None:
    """The list after a compaction into object 20."""
    removed = [(each, size_of(each)) for each in sources] if not sizes else list(zip(sources, sizes, strict=True))
    return with_compaction(now, removed, facts(20), NO_STREAM_OBJECTS, 5000)


def added(now: NodeList, each: ObjectFacts | None, *ranges: tuple[int, int, int, int]) -> NodeList | None:
    """The list after an upload of an object, and of objects of one stream."""
    return with_upload(now, 1, each, stream_objects(*ranges))


def expired() -> NodeList:
    """A list whose promise of object 10 has run out."""
    return done(without_expired(done(with_prepared(list_of(), [10], 1000, 1)), 1000)[0])


def three() -> NodeList:
    """Objects 10 to 12, and 20 promised."""
    return prepared(list_of(10, 11, 12), 20)


def two_ids() -> NodeList:
    """Objects 10 and 11 promised."""
    return prepared(list_of(), 10, 11)


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "an id that was never promised": (lambda: added(list_of(), facts(10)), "prepared ids, found none for 10"),
    "an id whose promise ran out": (lambda: added(expired(), facts(10)), "node 4: expected prepared ids, found none"),
    **{
        f"a promise of listed object {listed}": (
            lambda listed=listed: with_prepared(  # type: ignore[misc]  # bound now
                compacted(list_of(10, 11), [10], 12, stream_objects((13, 7, 0, 5))), [20, listed], FAR_MS, 1
            ),
            f"expected ids that no object has, found {listed} listed",
        )
        for listed in (10, 11, 12, 13)
    },
    "more promises than a list holds": (
        lambda: with_prepared(
            done(with_prepared(list_of(), range(PREPARED_MAX), FAR_MS, 1)), [PREPARED_MAX + 1], FAR_MS, 1
        ),
        "expected at most 10000 prepared ids, found 10000 and 1 more",
    ),
    "a source that was compacted": (
        lambda: merged(prepared(compacted(list_of(10, 11, 12), [10, 11], 21), 20), 11, 12),
        "expected sources that are live, found 11 gone, 1 of them retired",
    ),
    "a source that never was": (lambda: merged(three(), 99), "found 99 gone, 0 of them retired"),
    "a source of another size": (
        lambda: merged(three(), 10, sizes=[5]),
        "expected object 10 of 5 bytes, found 100010 in the list",
    ),
    "sources apart": (lambda: merged(three(), 10, 12), "expected neighbouring sources, found 11 between them"),
    "no sources": (lambda: merged(three()), "expected one or more sources, each once"),
    "a source twice": (lambda: merged(three(), 10, 10), "expected one or more sources, each once"),
    "objects of one commit in part": (
        lambda: added(prepared(list_of(10), 11), facts(10), (11, 7, 0, 5)),
        "expected objects of one commit, found 10 listed and 11 prepared",
    ),
    "claims that overlap": (
        lambda: added(prepared(uploaded(list_of(), 10, stream_objects((11, 7, 0, 5))), 12), None, (12, 7, 4, 6)),
        r"object 11 with \[0, 5\) of stream 7 and object 12 with \[4, 6\)",
    ),
    "nothing": (lambda: added(two_ids(), None), "at least one object to commit, found none"),
    "a negative size": (
        lambda: added(two_ids(), ObjectFacts(10, 0, -1, 36)),
        "object 10: expected size_bytes of at least 0, found -1",
    ),
    "a negative index size": (
        lambda: added(two_ids(), ObjectFacts(10, 0, 5, -1)),
        "object 10: expected index_size_bytes of at least 0, found -1",
    ),
    "an empty range": (
        lambda: added(two_ids(), None, (11, 7, 5, 5)),
        r"expected an end above the start, found object 11 with \[5, 5\) of stream 7",
    ),
    "a negative start": (lambda: added(two_ids(), None, (11, 7, -2, 5)), "start of at least 0, found object 11"),
    "an object of two streams": (lambda: added(two_ids(), None, (11, 7, 0, 5), (11, 8, 0, 5)), "each object once"),
    "an object of one stream and of many": (
        lambda: added(two_ids(), facts(11), (11, 7, 0, 5)),
        "expected each object once, found 11 twice",
    ),
    "too many stream objects": (
        lambda: added(list_of(), None, *((number, number, 0, 1) for number in range(10_001))),
        "expected at most 10000 stream objects in a commit, found 10001",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_committed_is_refused(what: str) -> None:
    commit, message = REFUSED[what]
    with pytest.raises(CommitRefused, match=message):
        commit()
