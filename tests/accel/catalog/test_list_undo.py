"""Undoing leads to exactly the earlier objects plus later uploads, or is refused; what is delete pending stays so."""

from __future__ import annotations

import pytest

from accel.catalog.node_list import Undo, after_undo, check_list
from accel.catalog.records import NodeList, with_delete_pending, without_collected
from accel.errors import CommitRefused
from tests.accel.catalog.building import compacted, done, list_of, live_ids, stream_objects, uploaded

NOW_MS = 9000


def undo(now: NodeList, earlier: NodeList) -> Undo:
    result = done(after_undo(now, earlier, NOW_MS))
    assert check_list(result.node_list) == []
    return result


def test_a_compaction_of_later_uploads_alone_is_left_alone() -> None:
    earlier = list_of(10, 11)
    now = compacted(earlier, [10, 11], 20)
    now = compacted(uploaded(uploaded(now, 12), 13), [12, 13], 21)
    result = undo(now, earlier)
    assert live_ids(result.node_list) == [10, 11, 21]
    assert result.commits == (2,)


def test_commits_that_stand_on_the_bad_one_are_taken_back_with_it() -> None:
    earlier = list_of(10, 11)
    now = compacted(uploaded(compacted(earlier, [10, 11], 20), 12), [20, 12], 21)
    result = undo(now, earlier)
    assert live_ids(result.node_list) == [10, 11, 12]
    assert result.commits == (2, 4)
    assert sorted(result.node_list.retired["object_id"].tolist()) == [20, 21]


def test_where_nothing_was_taken_out_there_is_nothing_to_undo() -> None:
    earlier = list_of(10, 11)
    assert after_undo(uploaded(earlier, 12), earlier, NOW_MS) is None
    assert after_undo(earlier, earlier, NOW_MS) is None
    result = undo(compacted(earlier, [10, 11], 20), earlier)
    assert after_undo(result.node_list, earlier, NOW_MS) is None


def test_an_undo_in_between_cannot_be_undone() -> None:
    earlier = list_of(10, 11, 12)
    between = compacted(earlier, [10, 11], 20)
    split = compacted(earlier, [10], None, stream_objects((20, 7, 0, 5)))
    for version in (between, split):
        now = undo(version, earlier).node_list
        with pytest.raises(CommitRefused, match="earlier undo"):
            after_undo(now, version, NOW_MS)


def test_a_commit_is_not_taken_back_twice() -> None:
    earlier = list_of(10, 11)
    between = compacted(earlier, [10], 20, stream_objects((21, 7, 0, 5)))
    now = undo(compacted(between, [20, 11], None), earlier).node_list
    now = compacted(now, [10], None, stream_objects((22, 7, 0, 5)))
    with pytest.raises(CommitRefused, match="expected commits to undo, found 20 withdrawn by an earlier undo"):
        after_undo(now, between, NOW_MS)


def test_an_object_that_is_delete_pending_is_never_revived() -> None:
    earlier = list_of(10, 11)
    now = done(with_delete_pending(compacted(earlier, [10, 11], 20, now_ms=5000), 5001)[0])
    with pytest.raises(CommitRefused, match="expected objects that are not delete pending, found 10, 11 being deleted"):
        after_undo(now, earlier, NOW_MS)
    with pytest.raises(CommitRefused, match="expected the objects that must be restored, found 10, 11 collected"):
        after_undo(done(without_collected(now, [10, 11])), earlier, NOW_MS)


def test_a_version_of_another_list_or_of_the_future_is_refused() -> None:
    now = list_of(10)
    with pytest.raises(CommitRefused, match="expected an earlier version of this list, found one of node 5"):
        after_undo(now, NodeList(5), NOW_MS)
    with pytest.raises(CommitRefused, match="found 2 as its next order id, now 1"):
        after_undo(now, uploaded(now, 11), NOW_MS)
