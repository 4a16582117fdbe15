"""Committing a group that was merged: one swap in its node's list, or none.

A commit that fails on the way may have happened. It is repeated as it is: done before, it changes nothing. A commit
that is refused cannot succeed any more, because a source is gone (another compaction took it) or the outputs' promise
has run out. Then the outputs are discarded, and that group alone is lost.
"""

from __future__ import annotations

from dataclasses import dataclass

from accel.catalog.catalog import ObjectCatalog
from accel.catalog.records import NodeList
from accel.compaction.executing import GroupOutcome, give_up
from accel.compaction.plan import Group
from accel.errors import AccelError, AmbiguousWrite

ATTEMPTS_MAX = 5
"""How often one commit is tried; the table layer below repeats each of its requests besides."""

FIRST_PAUSE_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Committed:
    """The group's sources are retired, and its outputs are listed."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The group was not committed.

    Args:
        reason: why.
    """

    reason: str


def commit_outcome(catalog: ObjectCatalog, outcome: GroupOutcome) -> Committed | Lost:
    """Commit a group; if that is impossible, give up what was written for it.

    Requests: those of `ObjectCatalog.commit_compaction`, without opening any object.
    """
    system = catalog.parts.system
    error: AccelError | None = None
    for attempt in range(ATTEMPTS_MAX):
        if attempt:
            system.sleep(FIRST_PAUSE_SECONDS * 2**attempt * (0.5 + system.jitter()))
        try:
            catalog.commit_compaction(
                outcome.group.node_id,
                outcome.group.sources,
                outcome.added,
                outcome.stream_objects,
                ranges=outcome.ranges,
            )
        except AccelError as caught:
            error = caught
            if not (caught.retryable or isinstance(caught, AmbiguousWrite)):
                break
        else:
            return Committed()
    give_up(catalog, outcome.group.node_id, outcome.object_ids)
    return Lost(f"{type(error).__name__}: {error}")


def is_open(node_list: NodeList | None, group: Group) -> bool:
    """Whether all of a group's sources are still live, with their sizes."""
    if node_list is None:
        return False
    live = node_list.live
    sizes = dict(zip(live["object_id"].tolist(), live["size_bytes"].tolist(), strict=True))
    return all(sizes.get(ref.object_id) == ref.size_bytes for ref in group.sources)


def is_done(node_list: NodeList | None, group: Group) -> bool:
    """Whether one commit took exactly this group's sources out of the list. Known as long as they are kept for undo."""
    if node_list is None:
        return False
    retired = node_list.retired
    by = dict(zip(retired["object_id"].tolist(), retired["retired_by"].tolist(), strict=True))
    commits = {by.get(ref.object_id) for ref in group.sources}
    if len(commits) != 1 or None in commits:
        return False
    return int((retired["retired_by"] == commits.pop()).sum()) == len(group.sources)
