"""What leaves a list: ids past their deadline, retired objects that are delete pending first, rows that moved on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from accel.catalog.node_list import (
    with_prepared,
    without_expired,
    without_prepared,
    without_stream_objects,
    without_withdrawn,
)
from accel.catalog.records import with_delete_pending, without_collected
from accel.errors import CommitRefused
from tests.accel.catalog.building import compacted, done, list_of, live_ids, stream_objects, uploaded


def test_promises_expire_at_their_deadline() -> None:
    now = done(with_prepared(done(with_prepared(list_of(), [10], 1000, 1)), [11], 2000, 1))
    assert without_expired(now, 999)[0] is None
    left, expired = without_expired(now, 1000)
    assert expired.tolist() == [10]
    assert done(left).prepared.tolist() == [(11, 2000)]


def test_promises_can_be_given_back() -> None:
    now = done(with_prepared(list_of(), [10, 11], 1000, 1))
    left = done(without_prepared(now, [11, 99]))
    assert left.prepared["object_id"].tolist() == [10]
    assert without_prepared(left, [11]) is None


def test_only_what_was_retired_long_enough_ago_is_doomed() -> None:
    now = compacted(compacted(list_of(10, 11), [10], 20, now_ms=5000), [11], 21, now_ms=6000)
    assert with_delete_pending(now, 5000)[0] is None
    doomed, ids = with_delete_pending(now, 5001)
    assert ids.tolist() == [10]
    assert done(doomed).retired[["object_id", "doomed"]].tolist() == [(10, 1), (11, 0)]


def test_what_an_earlier_collector_doomed_is_found_again() -> None:
    now = done(with_delete_pending(compacted(list_of(10, 11), [10], 20, now_ms=5000), 5001)[0])
    again, ids = with_delete_pending(now, 5001)
    assert again is None
    assert ids.tolist() == [10]
    assert with_delete_pending(now, 0)[1].tolist() == [10]


def test_only_doomed_objects_are_forgotten() -> None:
    now = compacted(compacted(list_of(10, 11), [10], 20, now_ms=5000), [11], 21, now_ms=6000)
    now = done(with_delete_pending(now, 5001)[0])
    left = done(without_collected(now, [10]))
    assert left.retired["object_id"].tolist() == [11]
    assert without_collected(left, [10]) is None
    for spared in (11, 20):
        with pytest.raises(
            CommitRefused, match=f"expected deleted objects to be delete pending before, found {spared}"
        ):
            without_collected(now, [10, spared])


def test_stream_objects_that_moved_to_their_buckets_are_forgotten() -> None:
    now = uploaded(list_of(), 10, stream_objects((11, 7, 0, 5), (12, 8, 0, 5)))
    left = done(without_stream_objects(now, [11]))
    assert left.stream_objects["object_id"].tolist() == [12]
    assert live_ids(left) == [10]
    assert without_stream_objects(left, [11]) is None


def test_undone_commits_are_forgotten_once_their_stream_objects_are_withdrawn() -> None:
    now = replace(list_of(10), withdrawn_commits=(3, 5))
    left = done(without_withdrawn(now, [3]))
    assert left.withdrawn_commits == (5,)
    assert without_withdrawn(left, [3]) is None
