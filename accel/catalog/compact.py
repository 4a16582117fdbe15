"""Ending a compaction: a run of a node's objects is replaced by the outputs, or the outputs are given up.

    1. the ranges of the sources are compared with the claims of the outputs (`check_compaction`)
    2. the current list is kept as a version, so that this commit can be undone
    3. one conditional write of the list: sources retired, successor and stream objects listed
    4. stream objects move on to the shards of their streams; versions beyond the last few are erased

Uploads change the list all the time, so step 3 is *rebased*: after a lost race the rule is applied to the current list.
The rule refuses if a source is gone, or if the outputs' ids are no longer prepared: the caller then gives up the
outputs, and the collector deletes them when their deadline has passed (at once after `discard`).

The comparison of step 1:

    sources, in list order     A [0, 10)  B [10, 25)          C [40, 50)     of one stream; [25, 40) is a hole
    outputs                    one object [0, 25)    and one stream object [40, 50)

    nothing is lost        every kept offset of a source is claimed by an output
    nothing is invented    no output claims an offset that no source holds
    no hole is bridged     a claim is one run without a gap, so [0, 50) would claim [25, 40) as well
    nothing is twice       no two outputs claim the same offset
    order                  in list order the offsets of a stream ascend through the sources

Offsets below a stream's first kept offset may be left out. Where the range of a source has a hole inside, its index
does not contain the place of the hole: then the first and last offset of the range must be claimed, and no claim may
contain the whole range. The check takes O(n log n) in the ranges of all objects, without a loop over streams in Python.

Giving up (`discard`) returns prepared ids and deletes the objects that were written under them:

    1. the indexes of the objects are opened, to find the objects of one stream alone
    2. the ids are removed from the prepared ids; an object whose id is not prepared any more may be listed, and stays
    3. an object of one stream that its shard lists although its id is still prepared stays, too. If the shard does not
       list it, the shard is written again, unchanged: a registration in progress loses its race by that, checks whether
       its id is prepared, and is refused
    4. of the other objects those with a mark of this catalog are deleted (`proof`); the collector deletes those for
       which this failed

An object that cannot be read may be of any stream: all shards are searched for it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accel.catalog.keys import NODE_LIST_HISTORY, list_version_prefix, must_read, require
from accel.catalog.node_list import STREAM_OBJECTS_A_COMMIT_MAX, with_compaction, without_prepared
from accel.catalog.parts import CatalogParts, open_bounded
from accel.catalog.proof import Standing, prove_all
from accel.catalog.records import (
    STREAMS_AN_OBJECT_MAX,
    ListVersion,
    NodeList,
    Rows,
    StreamShard,
    by_stream,
    facts_of,
    starts_of,
    stream_object_rows,
)
from accel.catalog.shard_writes import move_stream_objects, read_list
from accel.catalog.stream_shards import shard_of, shards_of
from accel.errors import AccelError, CatalogDamaged, CommitRefused, FormatError, KeyMissing
from accel.image import StreamObject
from loaders.errors import names_key
from loaders.object_ref import ObjectRef
from loaders.tables import raw_key
from loaders.threads import map_bounded
from loaders.versions import Versioned
from range_index import ObjectRanges

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class CompactionRanges:
    """The ranges of sources and output, from their indexes at the time of the merge. Picklable.

    Args:
        sources: the ranges of each source, in the order of `Compaction.removed`.
        output: the ranges of the object of many streams; None if there is none.
    """

    sources: tuple[ObjectRanges, ...]
    output: ObjectRanges | None


@dataclass(frozen=True, slots=True, eq=False)
class Compaction:
    """One group that was compacted, ready to be committed.

    Args:
        node_id: the node of the list.
        removed: the sources, with their sizes; neighbours in the list.
        added: the object merged from the sources, with its sizes; None if there is none.
        stream_objects: (stream id, object of that stream alone) pairs made from the sources.
        ranges: the ranges of sources and output, if they were read already; else their indexes are opened.
    """

    node_id: int
    removed: Sequence[ObjectRef]
    added: ObjectRef | None
    stream_objects: Sequence[tuple[int, StreamObject]]
    ranges: CompactionRanges | None = None


def commit_compaction(parts: CatalogParts, compaction: Compaction) -> NodeList:
    """Commit a group and return the list after the commit. A repetition changes nothing.

    Requests: one an index of sources and output (none if their ranges are given), one a shard that has some of their
    streams, and six or more for the list and its versions.

    Raises:
        CommitRefused: a source is gone, the outputs do not hold what the sources hold, or an output is not prepared.
        ValueError: the number of ranges differs from the number of objects.
        StoreError, AmbiguousWrite, DataConflict: the commit may have happened; commit the same group again.
    """
    node_id = compaction.node_id
    key = parts.keys.node_list(node_id)
    now_ms = parts.now_ms()
    facts = None if compaction.added is None else facts_of(compaction.added, now_ms)
    rows = stream_object_rows(compaction.stream_objects, node_id, now_ms)
    removed = [(ref.object_id, ref.size_bytes) for ref in compaction.removed]
    checksums = {ref.object_id: ref.tail_checksum for ref in compaction.removed}

    def change(now_listed: NodeList | None) -> NodeList | None:
        return with_compaction(require(now_listed, key.where), removed, facts, rows, parts.now_ms(), checksums)

    seen = read_list(key, node_id)
    following = change(seen.value)  # refuses early, before anything is opened or written
    if following is not None:
        output = _check_outputs(parts, compaction, rows)
        if compaction.added is not None and output is not None:
            facts = facts_of(compaction.added, now_ms, output.stream_ids)
        keep_version(parts, seen)
        seen = key.change(change, seen=seen)
    return _tidied(parts, node_id, seen)


def keep_version(parts: CatalogParts, seen: Versioned[NodeList]) -> None:
    """Keep the current version of a list, for `undo`; versions beyond the last few are erased after a commit.

    No version is kept for an upload: an upload removes nothing, and an undo keeps the uploads since its version.
    """
    sequence = seen.version.sequence
    version = ListVersion(sequence, seen.value)
    parts.keys.list_version(seen.value.node_id, sequence).create_if_absent(version)


LIST_VERSIONS_KEPT = 5
"""Versions of a list that are kept for `undo` after commits that take objects out."""


def erase_old_versions(parts: CatalogParts, node_id: int) -> None:
    """Erase all but the newest versions of a list, which `undo` may need. One listing, and a delete each."""
    table = parts.keys.tables.table(NODE_LIST_HISTORY)
    keys = list(table.keys(list_version_prefix(node_id)))
    for key in keys[:-LIST_VERSIONS_KEPT]:
        raw_key(table, key).erase()


def _check_outputs(parts: CatalogParts, compaction: Compaction, rows: Rows) -> ObjectRanges | None:
    """The ranges of the object of many streams; None if there is none.

    Raises:
        CommitRefused: the outputs do not hold what the sources hold.
    """
    held = _opened(parts, compaction) if compaction.ranges is None else _given(compaction, compaction.ranges)
    none = np.empty(0, dtype=np.int64)
    ids = np.unique(np.concatenate([none, *(source.stream_ids for source in held.sources)]))
    numbers = np.unique(shards_of(ids, parts.format.stream_buckets)).tolist()
    streams = [shard.streams for shard in map_bounded(parts.executor, partial(_read_shard, parts), numbers)]
    known = np.concatenate([StreamShard(0).streams, *streams])
    refuse_lossy_compaction(held.sources, held.output, rows, known[np.isin(known["stream_id"], ids)])
    return held.output


def _opened(parts: CatalogParts, compaction: Compaction) -> CompactionRanges:
    sources = tuple(opened.ranges for opened in parts.open_all(compaction.node_id, compaction.removed))
    added = [] if compaction.added is None else [compaction.added]
    outputs = [opened.ranges for opened in parts.open_all(compaction.node_id, added)]
    return CompactionRanges(sources, outputs[0] if outputs else None)


def _given(compaction: Compaction, ranges: CompactionRanges) -> CompactionRanges:
    given = (len(ranges.sources), ranges.output is not None)
    wanted = (len(compaction.removed), compaction.added is not None)
    if given != wanted:
        raise ValueError(f"expected ranges of (sources, is there an output) {wanted}, found {given}")
    return ranges


def _read_shard(parts: CatalogParts, number: int) -> StreamShard:
    seen = parts.keys.shard(number).read()
    if seen is None:
        raise CatalogDamaged(f"expected stream shard {number}, found none: it was deleted")
    return seen.value


def _tidied(parts: CatalogParts, node_id: int, seen: Versioned[NodeList]) -> NodeList:
    try:
        if len(seen.value.stream_objects) or seen.value.withdrawn_commits:
            seen = move_stream_objects(parts, node_id)
        erase_old_versions(parts, node_id)
    except AccelError:
        # The commit is made; the next commit tidies up.
        logger.warning("node %d: committed, but not tidied up", node_id, exc_info=True)
    return seen.value


PROBLEMS_OF_A_KIND_MAX = 10


class _Spans(NamedTuple):
    """Ranges [start, end) of streams, each with its object: the object's position among the sources or the outputs."""

    stream_ids: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    objects: NDArray[np.int64]

    def where(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> _Spans:
        return _Spans(*(column[chosen] for column in self))

    def text(self, at: int) -> str:
        return f"[{self.starts[at]}, {self.ends[at]}) of stream {self.stream_ids[at]}"


def refuse_lossy_compaction(
    sources: Sequence[ObjectRanges], output: ObjectRanges | None, stream_objects: Rows, streams: Rows
) -> None:
    """Raise for the problems that `check_compaction` finds.

    Raises:
        CommitRefused: there is at least one problem; the error names all of them.
    """
    problems = check_compaction(sources, output, stream_objects, streams)
    if problems:
        raise CommitRefused("expected outputs that hold exactly what the sources hold: " + "; ".join(problems))


def check_compaction(
    sources: Sequence[ObjectRanges], output: ObjectRanges | None, stream_objects: Rows, streams: Rows
) -> list[str]:
    """The problems of a compaction, one sentence each; empty if there are none.

    Args:
        sources: the ranges of each source, in list order.
        output: the ranges of the object of many streams; None if there is none.
        stream_objects: STREAM_OBJECT rows of the objects of one stream.
        streams: STREAM rows with the first kept offset of each stream, in any order; other streams are kept from 0.
    """
    problems = list(_limits(output, stream_objects))
    held, is_holed = _held(sources)
    claimed = _claimed(output, stream_objects)
    unordered = [*_unordered(held), *_claimed_twice(claimed)]
    if unordered:  # the checks below join ranges end to end, and would report misleading problems
        return problems + unordered
    kept, still_kept = _kept(held, np.sort(streams, order="stream_id"))
    problems += _lost(kept, is_holed[still_kept], claimed)
    problems += _invented(held, claimed)
    problems += _bridged(kept.where(is_holed[still_kept]), claimed)
    return problems


def _limits(output: ObjectRanges | None, stream_objects: Rows) -> Iterator[str]:
    if len(stream_objects) > STREAM_OBJECTS_A_COMMIT_MAX:
        yield f"expected at most {STREAM_OBJECTS_A_COMMIT_MAX} stream objects, found {len(stream_objects)}"
    if output is None:
        return
    if len(output) > STREAMS_AN_OBJECT_MAX:
        yield f"expected at most {STREAMS_AN_OBJECT_MAX} streams in the output, found {len(output)}"
    for stream_id in output.stream_ids[output.holed[:PROBLEMS_OF_A_KIND_MAX]]:
        yield f"expected one run of each stream in the output, found a hole inside stream {stream_id}"


def _held(sources: Sequence[ObjectRanges]) -> tuple[_Spans, NDArray[np.bool_]]:
    holed = [np.zeros(len(source), dtype=np.bool_) for source in sources]
    for marks, source in zip(holed, sources, strict=True):
        marks[source.holed] = True
    spans = _joined([_of_object(source, number) for number, source in enumerate(sources)])
    order = np.lexsort((spans.objects, spans.stream_ids))
    order = order[spans.ends[order] > spans.starts[order]]
    return spans.where(order), np.concatenate([np.empty(0, dtype=np.bool_), *holed])[order]


def _claimed(output: ObjectRanges | None, stream_objects: Rows) -> _Spans:
    rows = by_stream(stream_objects, "start")
    own = _Spans(rows["stream_id"], rows["start"], rows["end"], np.ones(len(rows), dtype=np.int64))
    spans = _joined([own] if output is None else [_of_object(output, 0), own])
    return spans.where(np.lexsort((spans.starts, spans.stream_ids)))


def _of_object(ranges: ObjectRanges, number: int) -> _Spans:
    return _Spans(ranges.stream_ids, ranges.starts, ranges.ends, np.full(len(ranges), number, dtype=np.int64))


def _joined(parts: Sequence[_Spans]) -> _Spans:
    none = np.empty(0, dtype=np.int64)
    return _Spans(*(np.concatenate([none, *columns]) for columns in zip(*parts, strict=True))) if parts else _NOTHING


def _unordered(held: _Spans) -> Iterator[str]:
    wrong = _follow_badly(held)
    for at in wrong[:PROBLEMS_OF_A_KIND_MAX]:
        found = (
            f"{held.text(at)} in source {held.objects[at]} before {held.text(at + 1)} in source {held.objects[at + 1]}"
        )
        yield f"expected ascending offsets through the sources, found {found}{_more(wrong)}"


def _claimed_twice(claimed: _Spans) -> Iterator[str]:
    wrong = _follow_badly(claimed)
    for at in wrong[:PROBLEMS_OF_A_KIND_MAX]:
        yield f"expected each offset in one output, found {claimed.text(at)} and {claimed.text(at + 1)}{_more(wrong)}"


def _follow_badly(spans: _Spans) -> NDArray[np.int64]:
    same = spans.stream_ids[1:] == spans.stream_ids[:-1]
    positions: NDArray[np.int64] = np.flatnonzero(same & (spans.starts[1:] < spans.ends[:-1]))
    return positions


def _kept(held: _Spans, streams: Rows) -> tuple[_Spans, NDArray[np.bool_]]:
    starts = np.maximum(held.starts, starts_of(streams, held.stream_ids))
    still_kept = starts < held.ends
    return held._replace(starts=starts).where(still_kept), still_kept


def _lost(kept: _Spans, is_holed: NDArray[np.bool_], claimed: _Spans) -> Iterator[str]:
    runs = _runs(claimed)
    holed = kept.where(is_holed)
    edges = (holed._replace(ends=holed.starts + 1), holed._replace(starts=holed.ends - 1))
    for wanted in (kept.where(~is_holed), *edges):
        lost = np.flatnonzero(~_lie_within(wanted, runs))
        for at in lost[:PROBLEMS_OF_A_KIND_MAX]:
            found = f"{wanted.text(at)} of source {wanted.objects[at]} not claimed, or only in part"
            yield f"expected all kept offsets in the outputs, found {found}{_more(lost)}"


def _invented(held: _Spans, claimed: _Spans) -> Iterator[str]:
    filled = claimed.where(claimed.ends > claimed.starts)
    invented = np.flatnonzero(~_lie_within(filled, _runs(held)))
    for at in invented[:PROBLEMS_OF_A_KIND_MAX]:
        yield f"expected claims that the sources hold without a gap, found {filled.text(at)}{_more(invented)}"


def _bridged(holed: _Spans, claimed: _Spans) -> Iterator[str]:
    bridged = np.flatnonzero(_lie_within(holed, claimed))
    for at in bridged[:PROBLEMS_OF_A_KIND_MAX]:
        found = f"{holed.text(at)} of source {holed.objects[at]} claimed as a whole"
        yield f"expected no claim across the hole of a source, found {found}{_more(bridged)}"


def _runs(spans: _Spans) -> _Spans:
    """Join the touching spans of each stream; the spans do not overlap and ascend by (stream id, start)."""
    filled = spans.where(spans.ends > spans.starts)
    if not len(filled.starts):
        return filled
    begins = np.ones(len(filled.starts), dtype=np.bool_)
    begins[1:] = (filled.stream_ids[1:] != filled.stream_ids[:-1]) | (filled.starts[1:] != filled.ends[:-1])
    lasts = np.append(np.flatnonzero(begins)[1:], len(begins)) - 1
    return filled.where(begins)._replace(ends=filled.ends[lasts])


def _lie_within(inner: _Spans, outer: _Spans) -> NDArray[np.bool_]:
    """Which inner spans are within one of the outer spans, which ascend by (stream id, start) and do not overlap."""
    if not len(outer.starts):
        return np.zeros(len(inner.starts), dtype=np.bool_)
    both = _joined([outer, inner])
    is_inner = np.arange(len(both.starts)) >= len(outer.starts)
    order = np.lexsort((is_inner, both.starts, both.stream_ids))
    # Sorted together, the last outer span before an inner span is the only one that may contain the inner span.
    floors = np.maximum.accumulate(np.where(is_inner[order], -1, order))
    floor = np.empty(len(inner.starts), dtype=np.int64)
    floor[order[is_inner[order]] - len(outer.starts)] = floors[is_inner[order]]
    same = (floor >= 0) & (outer.stream_ids[floor] == inner.stream_ids)
    is_within: NDArray[np.bool_] = same & (outer.ends[floor] >= inner.ends)
    return is_within


def _more(positions: NDArray[np.int64]) -> str:
    return f" ({len(positions)} in all)" if len(positions) > 1 else ""


_NOTHING = _Spans(*(np.empty(0, dtype=np.int64) for _ in range(4)))


# Giving up

_MANY = -1
"""The stream of an object with no stream, or with two or more."""


def discard(parts: CatalogParts, node_id: int, object_ids: Iterable[int]) -> None:
    """Give up ids that were prepared for a writer of a node's objects; objects committed meanwhile stay.

    Requests: two an object, one or two for the list, two a shard that is touched, and one for 1,000 deletes.

    Raises:
        CatalogMissing: the node has no list.
        StoreError, TableError: not all objects could be deleted; the collector deletes the others.
    """
    wanted = list(dict.fromkeys(object_ids))
    written = _written(parts, node_id, wanted)
    taken = _taken_back(parts, node_id, wanted)
    listed = _registered(parts, {object_id: written[object_id] for object_id in taken if object_id in written})
    going = [object_id for object_id in taken if object_id in written and object_id not in listed]
    verdicts = zip(going, prove_all(parts, map(ObjectRef, going)), strict=True)
    ours = [object_id for object_id, verdict in verdicts if verdict.standing is Standing.OURS]
    for failure in parts.store.delete_many([parts.layout.object_key(object_id) for object_id in ours])[:1]:
        raise failure.error


def _written(parts: CatalogParts, node_id: int, object_ids: list[int]) -> dict[int, int | None]:
    """Object id -> its only stream, or _MANY; None if the object cannot be read. Without objects that do not exist."""
    streams: dict[int, int | None] = {}
    wanted = ((node_id, ObjectRef(object_id)) for object_id in object_ids)
    for ref, load in open_bounded(parts.loader, wanted, parts.settings.parallel_requests):
        try:
            stream_ids = load.result().ranges.stream_ids
        except KeyMissing as error:
            if not names_key(error, parts.layout.object_key(ref.object_id)):  # the object links objects that are gone
                streams[ref.object_id] = None
        except FormatError:
            streams[ref.object_id] = None
        else:
            streams[ref.object_id] = int(stream_ids[0]) if len(stream_ids) == 1 else _MANY
    return streams


def _taken_back(parts: CatalogParts, node_id: int, object_ids: list[int]) -> list[int]:
    taken: list[int] = []
    key = parts.keys.node_list(node_id)

    def change(node_list: NodeList | None) -> NodeList | None:
        now = require(node_list, key.where)
        prepared = set(now.prepared["object_id"].tolist())
        taken[:] = [object_id for object_id in object_ids if object_id in prepared]
        return without_prepared(now, object_ids)

    key.change(change, seen=read_list(key, node_id))
    return taken


def _registered(parts: CatalogParts, streams: dict[int, int | None]) -> set[int]:
    """Which of these objects are in shards; from now on, no object of one stream among them can be registered."""
    unknown = [object_id for object_id, stream_id in streams.items() if stream_id is None]
    by_shard: dict[int, list[int]] = {}
    for object_id, stream_id in streams.items():
        if stream_id is not None and stream_id != _MANY:
            by_shard.setdefault(shard_of(stream_id, parts.format.stream_buckets), []).append(object_id)
    registered: set[int] = set()
    for number, object_ids in by_shard.items():
        registered |= _registered_in(parts, number, np.array(object_ids, dtype=np.int64))
    for number in range(parts.format.stream_buckets if unknown else 0):
        registered |= _known(must_read(parts.keys.shard(number)).value, np.array(unknown, dtype=np.int64))
    return registered


def _registered_in(parts: CatalogParts, number: int, ids: NDArray[np.int64]) -> set[int]:
    registered: set[int] = set()
    key = parts.keys.shard(number)

    def change(now: StreamShard | None) -> StreamShard | None:
        nonlocal registered
        shard = require(now, key.where)
        registered = _known(shard, ids)
        return None if len(registered) == len(ids) else shard

    key.change(change)
    return registered


def _known(shard: StreamShard, ids: NDArray[np.int64]) -> set[int]:
    known = np.concatenate((shard.stream_objects["object_id"], shard.retired["object_id"]))
    return set(ids[np.isin(ids, known)].tolist())
