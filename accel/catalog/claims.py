"""What one commit adds to a node: objects, and the offsets of streams that they hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accel.catalog.records import NodeList
from accel.catalog.rows import NO_COMMIT, STREAM_OBJECT, ObjectFacts, Rows, make_rows
from accel.catalog.stream_ends import columns_of
from accel.errors import CommitRefused
from accel.image import StreamObject
from loaders.object_ref import UNKNOWN, ObjectRef
from range_index import ObjectRanges

STREAMS_AN_OBJECT_MAX = 20_000
"""As in the production system: the most streams of one stream set object."""


@dataclass(frozen=True, slots=True, eq=False)
class Claims:
    """Objects of one commit with all that they hold.

    Args:
        facts: the stream set object, if there is one.
        rows: STREAM_OBJECT rows.
        stream_ids: the streams of all of them, ascending, each once.
        starts: of the same length.
        ends: of the same length.
        to_look_at: one of the objects, if nobody has seen yet that it lies where readers look.
    """

    facts: ObjectFacts | None
    rows: Rows
    stream_ids: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    to_look_at: ObjectRef | None = None

    def object_ids(self) -> NDArray[np.int64]:
        """The ids of all these objects."""
        own = [] if self.facts is None else [self.facts.object_id]
        return np.concatenate((np.array(own, dtype=np.int64), self.rows["object_id"]))

    def are_listed(self, node_list: NodeList) -> bool:
        """Whether a list has some of these objects: then it has them all, for one write brings them."""
        places = (node_list.live, node_list.retired, node_list.stream_objects)
        ids = self.object_ids()
        return any(bool(np.isin(ids, rows["object_id"]).any()) for rows in places)


def make_claims(
    ref: ObjectRef | None,
    ranges: ObjectRanges,
    own: Mapping[int, StreamObject],
    node_id: int,
    time_ms: int,
    to_look_at: ObjectRef | None = None,
) -> Claims:
    """Put together what a commit adds.

    Raises:
        CommitRefused: an object without its sizes, a range with a hole, too many streams, or a stream in two objects.
    """
    stream_ids, starts, ends = columns_of(ranges)
    if ref is None and len(ranges.stream_ids):
        raise CommitRefused(f"expected an object for {len(ranges.stream_ids)} streams, found none")
    if len(stream_ids) > STREAMS_AN_OBJECT_MAX:
        raise CommitRefused(f"expected at most {STREAMS_AN_OBJECT_MAX} streams in an object, found {len(stream_ids)}")
    if len(ranges.holed):
        raise CommitRefused(f"expected streams without holes, found one in stream {stream_ids[ranges.holed[0]]}")
    rows = stream_object_rows(own.items(), node_id, time_ms)
    all_ids = np.concatenate((stream_ids, rows["stream_id"]))
    order = np.argsort(all_ids, kind="stable")
    twice = np.flatnonzero(np.diff(all_ids[order]) == 0)
    if len(twice):
        raise CommitRefused(f"expected each stream in one object, found {all_ids[order][twice[0]]} in two")
    return Claims(
        None if ref is None else facts_of(ref, time_ms),
        rows,
        all_ids[order],
        np.concatenate((starts, rows["start"]))[order],
        np.concatenate((ends, rows["end"]))[order],
        to_look_at,
    )


def facts_of(ref: ObjectRef, data_time_ms: int) -> ObjectFacts:
    """What a list says of an object.

    Raises:
        CommitRefused: its size or the size of its index is unknown.
    """
    _check_sizes(ref)
    sizes = (ref.size_bytes, ref.index_size_bytes)
    return ObjectFacts(ref.object_id, data_time_ms, *sizes, ref.attributes, ref.tail_checksum)


def stream_object_rows(own: Iterable[tuple[int, StreamObject]], node_id: int, time_ms: int) -> Rows:
    """STREAM_OBJECT rows of (stream id, object) pairs.

    Raises:
        CommitRefused: the size of an object or of its index is unknown.
    """
    pairs = list(own)
    refs = [each.ref for _, each in pairs]
    for ref in refs:
        _check_sizes(ref)
    return make_rows(
        STREAM_OBJECT,
        object_id=[ref.object_id for ref in refs],
        stream_id=[stream_id for stream_id, _ in pairs],
        start=[each.start for _, each in pairs],
        end=[each.end for _, each in pairs],
        size_bytes=[ref.size_bytes for ref in refs],
        index_size_bytes=[ref.index_size_bytes for ref in refs],
        attributes=[ref.attributes for ref in refs],
        tail_checksum=[ref.tail_checksum for ref in refs],
        data_time_ms=np.full(len(pairs), time_ms),
        node_id=np.full(len(pairs), node_id),
        added_by=np.full(len(pairs), NO_COMMIT),
    )


def _check_sizes(ref: ObjectRef) -> None:
    if UNKNOWN in (ref.size_bytes, ref.index_size_bytes):
        raise CommitRefused(
            f"object {ref.object_id}: expected its size and index size, so that readers open it with one request, "
            f"found {ref.size_bytes} and {ref.index_size_bytes}"
        )
