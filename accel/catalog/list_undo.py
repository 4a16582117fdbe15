"""Taking back bad commits of a node's list, while the objects that they replaced still exist.

Undoing leads to an earlier version of the list, plus all that was uploaded since. It is not enough to write the earlier
version again: later commits may stand on the bad one. So commits are followed by their numbers:

    an object of the earlier version is not live now       -> the commit that retired it is taken back
    a commit that is taken back had an output               -> the output goes; if another commit has retired it since,
                                                               that one is taken back, too
    a commit that is taken back had sources                 -> they come back, unless they are outputs that go

Compactions among objects that were uploaded later are left alone. Each commit can be taken back once: what an undo has
withdrawn never comes back, so a version that an undo has led away from cannot be reached any more. What comes out must
list exactly the objects of the earlier version below its next order id; otherwise it is refused, too.

Objects of one stream that the commits made lie in the streams' buckets, or wait in the list for that. Those in the list
go at once; for the others the list remembers the commits (`withdrawn_commits`), until `stream_rules.without_commits`
has been applied to all buckets. In between both the sources and the objects made of them are found: twice, not never.
None of them was merged into another one meanwhile: see `merging`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from accel.catalog.list_checks import overlapping_spans
from accel.catalog.list_commits import retired_rows
from accel.catalog.records import NodeList
from accel.catalog.rows import LIVE, NO_COMMIT, Rows, joined, retyped, some
from accel.errors import CommitRefused


@dataclass(frozen=True, slots=True, eq=False)
class Undo:
    """What undoing does.

    Args:
        node_list: the list that follows.
        revived: LIVE rows that came back.
        withdrawn: ids of objects that were live and are retired now.
        withdrawn_stream_objects: STREAM_OBJECT rows that waited in the list; they are to be put into their buckets as
            retired, so that they are collected in time.
        commits: ascending; their stream objects must be withdrawn from all buckets.
    """

    node_list: NodeList
    revived: Rows
    withdrawn: NDArray[np.int64]
    withdrawn_stream_objects: Rows
    commits: tuple[int, ...]


def undone(now: NodeList, earlier: NodeList, now_ms: int) -> Undo | None:
    """Lead the list back to an earlier version of it, keeping what was uploaded since.

    The epoch and the promised ids stay as they are.

    Args:
        now: the list.
        earlier: the same list as it was.
        now_ms: milliseconds since 1970; what goes is retired at that time.

    Returns:
        None if all objects of the earlier version are live, and nothing else is below its next order id.

    Raises:
        CommitRefused: an object that would have to come back is doomed or collected, the versions are not of one
            list, or another undo lies between them.
    """
    where = _checked_place(now, earlier)
    commits = _commits_to_undo(now, earlier, where)
    if not commits:
        _refuse_differences(now.live, earlier, where)
        return None
    numbers = np.array(sorted(commits), dtype=np.int64)
    goes = np.isin(now.live["added_by"], numbers)
    revived = retyped(_revivable(now, numbers, where), LIVE)
    live = np.sort(joined(now.live[~goes], revived), order="order_id")
    _refuse_differences(live, earlier, where)
    waiting = np.isin(now.stream_objects["added_by"], numbers)
    following = replace(
        now,
        next_order_id=now.next_order_id + 1,
        live=live,
        retired=_retired(now, numbers, revived, retired_rows(now.live[goes], now_ms, NO_COMMIT)),
        stream_objects=now.stream_objects[~waiting],
        withdrawn_commits=tuple(sorted(commits | set(now.withdrawn_commits))),
    )
    return Undo(
        following,
        revived,
        now.live["object_id"][goes],
        now.stream_objects[waiting],
        tuple(int(each) for each in numbers),
    )


def _checked_place(now: NodeList, earlier: NodeList) -> str:
    where = f"list of node {now.node_id}"
    if earlier.node_id != now.node_id:
        raise CommitRefused(f"{where}: expected an earlier version of it, found one of node {earlier.node_id}")
    if earlier.next_order_id > now.next_order_id:
        found = f"{earlier.next_order_id} as its next order id, now {now.next_order_id}"
        raise CommitRefused(f"{where}: expected an earlier version of it, found {found}")
    return where


def _commits_to_undo(now: NodeList, earlier: NodeList, where: str) -> set[int]:
    missing = np.setdiff1d(earlier.live["object_id"], now.live["object_id"])
    lost = np.setdiff1d(missing, now.retired["object_id"])
    if len(lost):
        raise CommitRefused(f"{where}: expected the objects that are to come back, found {some(lost)} collected")
    found = np.isin(now.retired["object_id"], missing)
    withdrawn = now.retired["object_id"][found & (now.retired["retired_by"] == NO_COMMIT)]
    if len(withdrawn):
        raise CommitRefused(
            f"{where}: expected commits to take back, found {some(withdrawn)} withdrawn by an earlier undo"
        )
    commits: set[int] = set()
    while fresh := set(now.retired["retired_by"][found].tolist()) - commits:
        commits |= fresh
        # Outputs of these commits that another commit has retired since: that one stands on them.
        found = np.isin(now.retired["added_by"], sorted(commits))
    return commits


def _revivable(now: NodeList, commits: NDArray[np.int64], where: str) -> Rows:
    sources = now.retired[np.isin(now.retired["retired_by"], commits)]
    doomed = sources["object_id"][sources["doomed"] != 0]
    if len(doomed):
        raise CommitRefused(f"{where}: expected objects that nobody deletes yet, found {some(doomed)} being deleted")
    return sources[~np.isin(sources["added_by"], commits)]


def _retired(now: NodeList, commits: NDArray[np.int64], revived: Rows, went: Rows) -> Rows:
    kept = now.retired[~np.isin(now.retired["object_id"], revived["object_id"])]
    # Outputs that were replaced by outputs: with their commits taken back, none is left that they could go back to.
    kept["retired_by"][np.isin(kept["retired_by"], commits)] = NO_COMMIT
    return joined(kept, went)


def _refuse_differences(live: Rows, earlier: NodeList, where: str) -> None:
    overlaps = overlapping_spans(live)
    if len(overlaps):
        pair = live["object_id"][overlaps[0] : overlaps[0] + 2]
        raise CommitRefused(
            f"{where}: expected objects of disjoint order ids, found {some(pair)}: an earlier undo lies between"
        )
    old = live["object_id"][live["order_id"] < earlier.next_order_id]
    differing = np.setxor1d(old, earlier.live["object_id"])
    if len(differing):
        raise CommitRefused(
            f"{where}: expected to come to the objects of the earlier version, found {some(differing)} to differ: "
            "an earlier undo lies between"
        )
