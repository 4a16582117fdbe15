"""Checks of the arguments of a catalog's callers before a write: ids, offsets, counts, times, sizes, batches.

A number is an integer: of Python or numpy, no bool, no float, no text, and within 64 bits. Times are seconds since
1970; milliseconds or nanoseconds in their place would be thousands of years ahead, and are refused. A deadline is at
most ten years away. The checks send no request.

Threads: any; pure functions.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from xxhash import xxh3_128

from accel.catalog.parts import MILLISECONDS
from accel.catalog.records import INT64_MAX, STREAMS_AN_OBJECT_MAX
from accel.errors import CommitRefused, InvalidArgument, UnknownNode
from accel.history.rules.values import TIME_MS_END, checked_integer
from accel.image import StreamObject
from loaders.format import RecordBatch
from loaders.object_ref import ObjectRef
from loaders.tables.columns import ROWS_MAX

if TYPE_CHECKING:
    from accel.catalog.session import StreamEnds

DEADLINE_SECONDS_MAX = 10 * 366 * 86_400.0
"""Ten years: a longer deadline is probably in another unit."""

NODE_ID_MAX = 10**10 - 1
"""The highest node id that a key can contain."""

StreamBatches = Mapping[int, Iterable[RecordBatch]] | Iterable[tuple[int, Iterable[RecordBatch]]]
"""Batches by stream, as callers may pass them."""

Wanted = Sequence[tuple[int, Sequence[RecordBatch]]]
"""Batches by stream, ascending, each stream once, none empty."""


def checked_node(node_id: object) -> int:
    """The argument as a node id.

    Raises:
        InvalidArgument: no integer of 0 to 10^10 - 1.
    """
    return checked_integer("a node id", node_id, 0, NODE_ID_MAX)


def refuse_unknown_nodes(nodes: Iterable[int] | None, known: Mapping[int, object]) -> None:
    """Refuse nodes that are not among the known ones; None is no node.

    Raises:
        UnknownNode: some are not.
    """
    if unknown := sorted(set(nodes or ()) - known.keys()):
        names = ", ".join(map(str, sorted(known))) or "none"
        raise UnknownNode(f"expected nodes of this catalog ({names}), found {', '.join(map(str, unknown))}")


def checked_stream(stream_id: object) -> int:
    """The argument as a stream id.

    Raises:
        InvalidArgument: no integer of 0 to 2^63 - 1.
    """
    return checked_integer("a stream id", stream_id, 0, INT64_MAX)


def checked_streams(stream_ids: Iterable[object]) -> list[int]:
    """Stream ids, in their order.

    Raises:
        InvalidArgument: an invalid stream id.
    """
    return [checked_stream(stream_id) for stream_id in stream_ids]


def checked_objects(object_ids: Iterable[object]) -> list[int]:
    """Object ids, in their order.

    Raises:
        InvalidArgument: an id that is no integer of 0 to 2^63 - 1.
    """
    return [checked_integer("an object id", object_id, 0, INT64_MAX) for object_id in object_ids]


def checked_offsets(offsets: Mapping[int, int]) -> dict[int, int]:
    """Offsets by stream.

    Raises:
        InvalidArgument: a stream id or an offset that is no integer of 0 to 2^63 - 1.
    """
    return {
        checked_stream(stream_id): checked_integer(f"an offset of stream {stream_id}", offset, 0, INT64_MAX)
        for stream_id, offset in offsets.items()
    }


def checked_starts(streams: Iterable[int] | Mapping[int, int | None]) -> dict[int, int | None]:
    """First offsets by stream; None where the catalog determines the offset.

    Raises:
        InvalidArgument: as `checked_offsets`.
    """
    if not isinstance(streams, Mapping):
        return dict.fromkeys(checked_streams(streams))
    given = checked_offsets({stream_id: offset for stream_id, offset in streams.items() if offset is not None})
    return {stream_id: given.get(stream_id) for stream_id in checked_streams(streams)}


def checked_owners(streams: Mapping[int, int]) -> dict[int, int]:
    """Node ids by stream.

    Raises:
        InvalidArgument: an invalid stream id or node id.
    """
    return {checked_stream(stream_id): checked_node(node_id) for stream_id, node_id in streams.items()}


def checked_count(count: object) -> int:
    """The argument as a number of ids.

    Raises:
        InvalidArgument: no integer of 1 to 1,048,576, which is more than a list can contain.
    """
    return checked_integer("a count of ids", count, 1, ROWS_MAX)


def deadline_ms_after(now_ms: int, seconds: float) -> int:
    """The deadline in milliseconds: now plus the given seconds.

    Raises:
        InvalidArgument: no number above 0, or more than ten years.
    """
    if not 0 < seconds <= DEADLINE_SECONDS_MAX:
        raise InvalidArgument(f"expected a deadline above 0 and of at most ten years, found {seconds!r} seconds")
    return now_ms + int(seconds * MILLISECONDS)


def data_time_ms_of(now_ms: int, seconds: float | None) -> int:
    """When data was written, in milliseconds since 1970; None is now.

    Raises:
        InvalidArgument: a time before 1970, or after 5138.
    """
    if seconds is None:
        return now_ms
    if not 0 <= seconds < TIME_MS_END / MILLISECONDS:
        raise InvalidArgument(f"expected a time of data in seconds since 1970, up to 5138, found {seconds!r}")
    return int(seconds * MILLISECONDS)


def check_ref(ref: ObjectRef) -> None:
    """Refuse an object whose id or sizes are invalid numbers; -1 is an unknown size.

    Raises:
        InvalidArgument: a number is invalid; the error names the first.
    """
    checked_integer("an object id", ref.object_id, 0, INT64_MAX)
    for name in ("size_bytes", "index_size_bytes", "tail_checksum"):
        checked_integer(f"{name} of object {ref.object_id}", getattr(ref, name), -1, INT64_MAX)
    checked_integer(f"attributes of object {ref.object_id}", ref.attributes, -(2**31), INT64_MAX)


def check_stream_object(stream_id: object, stream_object: StreamObject) -> None:
    """Refuse an object of one stream with invalid numbers.

    Raises:
        InvalidArgument: a number is invalid; the error names the first.
    """
    checked_stream(stream_id)
    check_ref(stream_object.ref)
    for name in ("start", "end"):
        checked_integer(f"{name} of object {stream_object.ref.object_id}", getattr(stream_object, name), 0, INT64_MAX)


def ordered(streams: StreamBatches) -> Wanted:
    """Batches by stream, ascending; streams without batches are left out. Loads all batches into memory.

    Raises:
        InvalidArgument: a stream id, or a number of a batch, that is no integer of 64 bits.
        CommitRefused: no batch at all, a stream twice, or more than 20,000 streams.
    """
    pairs = streams.items() if isinstance(streams, Mapping) else streams
    kept = sorted(
        ((checked_stream(stream_id), tuple(batches)) for stream_id, batches in pairs), key=operator.itemgetter(0)
    )
    wanted = [(stream_id, batches) for stream_id, batches in kept if batches]
    if not wanted:
        raise CommitRefused("expected batches to upload, found none")
    for (before, _), (after, _) in pairwise(wanted):
        if before == after:
            raise CommitRefused(f"expected each stream once, found stream {after} twice")
    if len(wanted) > STREAMS_AN_OBJECT_MAX:
        raise CommitRefused(f"expected at most {STREAMS_AN_OBJECT_MAX} streams in an object, found {len(wanted)}")
    for _, batches in wanted:
        for batch in batches:
            _check_batch(batch)
    return wanted


def _check_batch(batch: RecordBatch) -> None:
    base, count = batch.base_offset, batch.count
    if base >= 0 and max(abs(batch.epoch), base + abs(count)) <= INT64_MAX and abs(count) < 1 << 31:
        return  # quick, for a million batches
    where = f"a batch of stream {batch.stream_id}"
    checked_integer(f"the epoch of {where}", batch.epoch)
    checked_integer(f"the base offset of {where}", base, 0, INT64_MAX)
    checked_integer(f"the count of {where}", count, -(2**31), 2**31 - 1)
    if base + abs(count) > INT64_MAX:
        raise InvalidArgument(f"expected an end of {where} of at most {INT64_MAX}, found {base + abs(count)}")


def refuse_discontinuous(wanted: Wanted, ends: StreamEnds) -> None:
    """Check that batches continue their streams at their ends without gaps. No request.

    Raises:
        CommitRefused: they do not.
    """
    for stream_id, batches in wanted:
        for before, after in pairwise(batches):
            if before.end_offset != after.base_offset:
                found = f"[{before.base_offset}, {before.end_offset}) and then {after.base_offset}"
                raise CommitRefused(f"stream {stream_id}: expected batches without holes, found {found}")
    rows = [(stream_id, batches[0].base_offset, batches[-1].end_offset) for stream_id, batches in wanted]
    ends.check_continued(*np.array(rows, dtype=np.int64).T)


_BATCH = struct.Struct(">qqqqq")


def digest_of(wanted: Wanted) -> bytes:
    """A hash of batches: batches with equal hashes make the same object. O(bytes)."""
    hashed = xxh3_128()
    for stream_id, batches in wanted:
        for batch in batches:
            hashed.update(_BATCH.pack(stream_id, batch.epoch, batch.base_offset, batch.count, len(batch.payload)))
            hashed.update(batch.payload)
    return hashed.digest()
