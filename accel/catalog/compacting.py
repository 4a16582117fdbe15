"""Committing a compaction: a run of a node's objects is swapped for what was made of them.

    1. indexes of the sources and of the outputs are compared: nothing may be lost, nothing claimed that was not there
    2. the list as it stands is kept as a version of its own, so that this commit can be undone
    3. one conditional write of the list: sources retired, successor and stream objects listed
    4. stream objects move on to the buckets of their streams; versions beyond the last few are erased

Uploads change the list all the time, so step 3 is *rebased*: on a lost race the rule is applied to what stands there
now. It refuses if a source is gone, or if the outputs' ids are no longer promised: then the outputs are to be given up,
and the collector deletes them when their promise has run out (at once after `discard`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from accel.catalog.cell import Seen, standing
from accel.catalog.compact import refuse_lossy_compaction
from accel.catalog.keys import NODE_LIST_HISTORY, list_version_prefix
from accel.catalog.node_list import with_compaction
from accel.catalog.parts import CatalogParts
from accel.catalog.records import ListVersion, NodeList, StreamBucket
from accel.catalog.rows import Rows, facts_of, stream_object_rows
from accel.catalog.shard_writes import move_stream_objects, read_list
from accel.catalog.stream_shards import buckets_of
from accel.errors import AccelError, CatalogDamaged
from accel.image import StreamObject
from loaders.object_ref import ObjectRef
from range_index import ObjectRanges

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class CompactionRanges:
    """What sources and output hold, as whoever merged them read it from their indexes. Picklable.

    Args:
        sources: in the order of `Compaction.removed`.
        output: what the object of many streams holds; None if there is none.
    """

    sources: tuple[ObjectRanges, ...]
    output: ObjectRanges | None


@dataclass(frozen=True, slots=True, eq=False)
class Compaction:
    """One group that was compacted, ready to be committed.

    Args:
        node_id: whose list.
        removed: the sources, with their sizes; neighbours in the list.
        added: the object made of them, with its sizes; None if there is none.
        stream_objects: (stream id, object of that stream alone) pairs made of them.
        ranges: what sources and output hold, if that was read already; else their indexes are opened.
    """

    node_id: int
    removed: Sequence[ObjectRef]
    added: ObjectRef | None
    stream_objects: Sequence[tuple[int, StreamObject]]
    ranges: CompactionRanges | None = None


def commit_compaction(parts: CatalogParts, compaction: Compaction) -> NodeList:
    """Commit a group; gives the list as it is then. Repeated, it changes nothing.

    Requests: one an index of sources and output (none if their ranges are given), one a bucket that has some of their
    streams, and six or more for the list and its versions.

    Raises:
        CommitRefused: a source is gone, the outputs do not hold what the sources hold, or a promise has run out.
        ValueError: ranges of other objects than are given.
        StoreError, AmbiguousWrite, DataConflict: it may have happened; commit the same group again.
    """
    node_id = compaction.node_id
    cell = parts.cells.node_list(node_id)
    now_ms = parts.now_ms()
    facts = None if compaction.added is None else facts_of(compaction.added, now_ms)
    rows = stream_object_rows(compaction.stream_objects, node_id, now_ms)
    removed = [(ref.object_id, ref.size_bytes) for ref in compaction.removed]

    def change(found: NodeList | None) -> NodeList | None:
        return with_compaction(standing(found, cell.where), removed, facts, rows, parts.now_ms())

    seen = read_list(cell, node_id)
    following = change(seen.value)  # refuses early, before anything is opened or written
    if following is not None:
        _check_outputs(parts, compaction, rows)
        keep_version(parts, seen)
        seen = cell.change(change, seen=seen)
    return _tidied(parts, node_id, seen)


def keep_version(parts: CatalogParts, seen: Seen[NodeList]) -> None:
    """Keep a list as it stands, for `undo`; versions beyond the last few are erased when a commit is done.

    Uploads are not kept: they take nothing out, and undoing leads back past them without losing them.
    """
    sequence = seen.version.sequence
    version = ListVersion(sequence, seen.value)
    parts.cells.list_version(seen.value.node_id, sequence).create_if_absent(version, final=True)


def erase_old_versions(parts: CatalogParts, node_id: int) -> None:
    """Erase all but the newest `list_versions_kept` versions of a list. One listing, and a delete each."""
    table = parts.cells.tables.table(NODE_LIST_HISTORY)
    keys = list(table.keys(list_version_prefix(node_id)))
    for key in keys[: -parts.settings.list_versions_kept]:
        table.erase(key)


def _check_outputs(parts: CatalogParts, compaction: Compaction, rows: Rows) -> None:
    held = _opened(parts, compaction) if compaction.ranges is None else _given(compaction, compaction.ranges)
    none = np.empty(0, dtype=np.int64)
    ids = np.unique(np.concatenate([none, *(each.stream_ids for each in held.sources)]))
    numbers = np.unique(buckets_of(ids, parts.format.stream_buckets)).tolist()
    streams = [bucket.streams for bucket in parts.executor.map(partial(_read_bucket, parts), numbers)]
    known = np.concatenate([StreamBucket(0).streams, *streams])
    refuse_lossy_compaction(held.sources, held.output, rows, known[np.isin(known["stream_id"], ids)])


def _opened(parts: CatalogParts, compaction: Compaction) -> CompactionRanges:
    sources = tuple(each.ranges for each in parts.open_all(compaction.node_id, compaction.removed))
    added = [] if compaction.added is None else [compaction.added]
    outputs = [each.ranges for each in parts.open_all(compaction.node_id, added)]
    return CompactionRanges(sources, outputs[0] if outputs else None)


def _given(compaction: Compaction, ranges: CompactionRanges) -> CompactionRanges:
    given = (len(ranges.sources), ranges.output is not None)
    wanted = (len(compaction.removed), compaction.added is not None)
    if given != wanted:
        raise ValueError(f"expected ranges of (sources, is there an output) {wanted}, found {given}")
    return ranges


def _read_bucket(parts: CatalogParts, number: int) -> StreamBucket:
    seen = parts.cells.bucket(number).read()
    if seen is None:
        raise CatalogDamaged(f"expected bucket {number} of streams, found none: it was deleted")
    return seen.value


def _tidied(parts: CatalogParts, node_id: int, seen: Seen[NodeList]) -> NodeList:
    try:
        if len(seen.value.stream_objects) or seen.value.withdrawn_commits:
            seen = move_stream_objects(parts, node_id)
        erase_old_versions(parts, node_id)
    except AccelError:
        # The commit stands; what is left to tidy is done by the next one.
        logger.warning("node %d: committed, but not tidied up", node_id, exc_info=True)
    return seen.value
