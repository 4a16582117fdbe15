"""Do the keys of a catalog agree with one another? What a single key cannot show, its neighbours can.

A key that was deleted and made anew, put back from a copy, or filled with another's bytes is sound in itself. But keys
are written in an order, and each says something about those that were written before it:

    who says so                         what must hold then
    a checkpoint                        its node's list has as many commits; the buckets know its streams
    a kept version of a list            the list's sequence is at least as high
    a bucket                            nodes that it names have lists, with its session numbers and its commits
    a list that has commits             the directory names the node
    lists and buckets                   their object ids lie below the counter, and no id stands in two lists
    all of them                         an object is live in one place, and not live and retired

None of that can be a matter of when which key was read: what contradicts is read again, after the key that it
contradicts, and everything that is compared here only grows. So a finding of this module is damage, and nothing may be
deleted by what such a catalog says. What cannot be seen: a key that went back to a state that nothing written since
mentions (a list between two checkpoints, a bucket by streams that no checkpoint knows), and a whole bucket that went
back at once.

Threads: none of its own but those of the catalog's executor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from accel.catalog.node_list import check_list
from accel.catalog.parts import CatalogParts
from accel.catalog.problems import Kind, Problem
from accel.catalog.records import Checkpoint, NodeList, ids_of
from accel.catalog.rows import OPEN, highest_of_each, some
from accel.catalog.shard_writes import kept_places
from accel.catalog.stream_shards import check_shard, shards_of
from accel.catalog.survey import Survey, joined_ids, must_read
from loaders.errors import FormatError, TableMissing

Wrong = Callable[[NodeList, int], Problem | None]
"""What is wrong with a list, given its sequence; None if nothing is."""


def find_contradictions(parts: CatalogParts, survey: Survey, excused: frozenset[int] = frozenset()) -> list[Problem]:
    """All that lists and buckets contradict: themselves, each other, and what stands beside them.

    Args:
        parts: of the catalog.
        survey: what was read of it just before.
        excused: nodes whose lists may know less than other keys: somebody has made them anew on purpose.

    Requests: one a checkpoint, one for 1,000 kept versions of lists, one each for the directory and the counter; one
    more for each key that seems to contradict another one.

    Raises:
        StoreError, TableError, CorruptObject, FormatTooNew: something could not be read.
    """
    problems = [*contradictions_within(parts, survey), *contradictions_of_places(survey)]
    for _, _, check in CHECKS:
        problems += check(parts, survey, excused)
    return problems


def contradictions_within(parts: CatalogParts, survey: Survey) -> Iterator[Problem]:
    """What is wrong with each list and bucket by itself. No request; O(n log n) in their rows."""
    for node_id, node in survey.lists.items():
        if node.value.node_id != node_id:
            yield Problem(Kind.LIST, f"list of node {node_id}", "its own rows", f"those of node {node.value.node_id}")
        for problem in check_list(node.value):
            yield replace(problem, where=f"list of node {node_id}")
    is_whole = len(survey.buckets) == parts.format.stream_buckets
    for number, bucket in enumerate(survey.buckets):
        if is_whole and bucket.value.bucket != number:
            yield Problem(Kind.BUCKET, f"bucket {number}", "its own rows", f"those of bucket {bucket.value.bucket}")
        yield from check_shard(bucket.value, parts.format.stream_buckets)


def contradictions_of_places(survey: Survey) -> Iterator[Problem]:
    """Objects that are live in more than one place, or live and retired. No request; O(n log n)."""
    lists, buckets = [seen.value for seen in survey.lists.values()], [seen.value for seen in survey.buckets]
    live = [node_list.live["object_id"] for node_list in lists] + [
        bucket.stream_objects["object_id"] for bucket in buckets
    ]
    ids, counts = np.unique(np.concatenate([np.empty(0, dtype=np.int64), *live]), return_counts=True)
    if (counts > 1).any():
        yield Problem(Kind.PLACE, "catalog", "each live object in one place", f"{some(ids[counts > 1])} in more")
    gone = [node_list.retired["object_id"] for node_list in lists] + [bucket.retired["object_id"] for bucket in buckets]
    both = np.intersect1d(ids, joined_ids(gone))
    if len(both):
        yield Problem(Kind.PLACE, "catalog", "each object live or retired", f"{some(both)} both")


def _went_back(parts: CatalogParts, survey: Survey, excused: frozenset[int]) -> Iterator[Problem]:
    """Lists that have seen less than a checkpoint, a kept version or a bucket knows of them, and such buckets."""
    checkpoints = read_checkpoints(parts, survey)
    yield from _forgotten_streams(parts, survey, checkpoints)
    doubts: dict[int, list[Wrong]] = {}
    for node_id, wrong in (*_by_checkpoints(checkpoints), *_by_versions(parts), *_by_buckets(survey)):
        seen = survey.lists.get(node_id)
        if node_id in excused:
            continue
        if seen is None or wrong(seen.value, seen.version.sequence) is not None:
            doubts.setdefault(node_id, []).append(wrong)
    for node_id, rules in sorted(doubts.items()):
        now = parts.keys.node_list(node_id).read()  # the list may have grown since; what doubts it was read before
        if now is None:
            yield Problem(Kind.LIST, f"list of node {node_id}", "a list, for other keys name the node", "none")
            continue
        yield from filter(None, (wrong(now.value, now.version.sequence) for wrong in rules))


def _by_checkpoints(checkpoints: dict[int, Checkpoint]) -> Iterator[tuple[int, Wrong]]:
    for node_id, checkpoint in checkpoints.items():
        known = checkpoint.order_id + 1
        yield node_id, _least(lambda now, _: now.next_order_id, known, f"the {known} commits that its checkpoint knows")


def _by_versions(parts: CatalogParts) -> Iterator[tuple[int, Wrong]]:
    newest: dict[int, int] = {}
    for node_id, sequence in kept_places(parts):
        newest[node_id] = max(sequence, newest.get(node_id, 0))
    for node_id, sequence in newest.items():
        yield (
            node_id,
            _least(lambda _, now: now, sequence, f"a sequence from {sequence} on, of which a version is kept"),
        )


def _by_buckets(survey: Survey) -> Iterator[tuple[int, Wrong]]:
    epochs, commits = [], []
    for seen in survey.buckets:
        bucket = seen.value
        ranges = bucket.ranges
        epochs.append((ranges["node_id"], np.where(ranges["end"] == OPEN, ranges["epoch"], 0)))
        commits += [(rows["node_id"], rows["added_by"] + 1) for rows in (bucket.stream_objects, bucket.retired)]
    for node_id, epoch in highest_of_each(epochs):
        yield node_id, _least(lambda now, _: now.epoch, epoch, f"epoch {epoch} of an open range, or a later one")
    for node_id, commit in highest_of_each(commits):
        expected = f"the {commit} commits that its stream objects tell of"
        yield node_id, _least(lambda now, _: now.next_order_id, commit, expected)


def _least(read: Callable[[NodeList, int], int], least: int, expected: str) -> Wrong:
    def wrong(now: NodeList, sequence: int) -> Problem | None:
        value = read(now, sequence)
        where = f"list of node {now.node_id}"
        return None if value >= least else Problem(Kind.LIST, where, expected, f"{value}: deleted, or put back?")

    return wrong


def read_checkpoints(parts: CatalogParts, survey: Survey) -> dict[int, Checkpoint]:
    """The checkpoints of all nodes that have a list and one. One request a node."""
    read = parts.executor.map(lambda node_id: parts.keys.checkpoint(node_id).read(), survey.lists)
    return {node_id: seen.value for node_id, seen in zip(survey.lists, read, strict=True) if seen is not None}


def _forgotten_streams(parts: CatalogParts, survey: Survey, checkpoints: dict[int, Checkpoint]) -> Iterator[Problem]:
    """Buckets that do not know a stream which a checkpoint knows: a bucket never forgets one."""
    ends = joined_ids(checkpoint.ends["stream_id"] for checkpoint in checkpoints.values())
    known = joined_ids(seen.value.streams["stream_id"] for seen in survey.buckets)
    missing = np.setdiff1d(ends, known)
    numbers = shards_of(missing, parts.format.stream_buckets)
    for number in np.unique(numbers).tolist():
        now = must_read(parts.keys.shard(number)).value.streams["stream_id"]
        forgotten = np.setdiff1d(missing[numbers == number], now)
        if len(forgotten):
            expected = f"streams {some(forgotten)}, which a checkpoint knows"
            yield Problem(Kind.BUCKET, f"bucket {number}", expected, "none of them: put back?")


def _unnamed_nodes(parts: CatalogParts, survey: Survey, _: frozenset[int]) -> Iterator[Problem]:
    """Lists with commits that the directory does not name: readers do not see them."""
    committed = [node_id for node_id, seen in survey.lists.items() if seen.value.next_order_id]
    directory = parts.keys.directory().read()  # a session is named there before it commits
    if directory is None:
        yield Problem(Kind.DIRECTORY, "directory of nodes", "a record", "none: deleted?")
        return
    unnamed = sorted(set(committed) - set(directory.value.node_ids.tolist()))
    if unnamed:
        expected = f"nodes {some(unnamed)}, whose lists have commits"
        yield Problem(Kind.DIRECTORY, "directory of nodes", expected, "none of them: put back?")


_NONE = np.empty(0, dtype=np.int64)


def _object_id_problems(parts: CatalogParts, survey: Survey, _: frozenset[int]) -> Iterator[Problem]:
    """Object ids that were given out twice, or would be: what is wrong with their counter. One request.

    The counter is read after the ids with which it is compared; it only grows.

    Raises:
        StoreError: the counter could not be read.
    """
    key = parts.keys.object_ids()
    try:
        seen = key.read()
        highest = int(survey.known_ids().max(initial=-1))
        if seen is None:
            yield Problem(Kind.COUNTER, key.where, "a counter", "none: deleted?")
        elif seen.value.next_object_id <= highest:
            expected = f"a number above {highest}, the highest id in use"
            yield Problem(Kind.COUNTER, key.where, expected, f"{seen.value.next_object_id}: deleted, or put back?")
    except (FormatError, TableMissing) as error:
        yield Problem(Kind.COUNTER, key.where, "a counter that can be read", str(error))
    ids, counts = np.unique(
        np.concatenate([_NONE, *(np.unique(ids_of(seen.value)) for seen in survey.lists.values())]), return_counts=True
    )
    if (counts > 1).any():
        found = f"{some(ids[counts > 1])} in the lists of more"
        yield Problem(Kind.COUNTER, "catalog", "each object id given to one node", found)


CHECKS = (
    (Kind.CHECKPOINT, "what checkpoints, kept versions and buckets know of lists and streams", _went_back),
    (Kind.DIRECTORY, "the directory of nodes against the lists", _unnamed_nodes),
    (Kind.COUNTER, "the counter of object ids against lists and buckets", _object_id_problems),
)
"""What compares keys with one another: the kind of the key that it reads, and a name for where it could not be done."""
