"""An upload in one call: what `NodeWriter.upload` is given, what it writes, and where an object must lie.

    1. the batches are checked: each stream is open here and goes on where it ended, without holes
    2. an id is promised; the object is written under it, in the catalog's own layout, and never over another object
    3. one conditional write of the node's list

| what goes wrong                     | what follows                                                                |
|-------------------------------------|-----------------------------------------------------------------------------|
| another object lies at the id's key | the counter is compared with all lists; if it is right, another id is taken |
| the reply to the put is lost        | the key is read: written, or sent again                                     |
| the reply to the commit is lost     | the list is read: committed, or sent again                                  |
| that fails, too                     | the session remembers the object: an upload of the same batches commits it  |
| the process dies                    | the promise runs out, and the collector deletes the object if it is there   |

An object that somebody else has written (`commit_upload`) is committed only if it lies where readers of this catalog
will look for it: in the store and under the key that its writer says, or else its key is looked at.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from xxhash import xxh3_128

from accel.catalog.claims import STREAMS_AN_OBJECT_MAX, Claims
from accel.catalog.object_ids import highest_id, ids_of
from accel.catalog.parts import CatalogParts
from accel.catalog.stream_ends import StreamEnds
from accel.catalog.survey import list_node_ids
from accel.errors import CatalogDamaged, CommitRefused, ObjectExists
from loaders.backoff import Backoff
from loaders.format import RecordBatch
from loaders.object_creation import stored_size_bytes
from loaders.object_ref import UNKNOWN, ObjectRef
from loaders.object_writer import ObjectWriter
from range_index import ObjectRanges

StreamBatches = Mapping[int, Iterable[RecordBatch]] | Iterable[tuple[int, Iterable[RecordBatch]]]
"""What is uploaded: {stream id: batches}, or (stream id, batches) pairs; batches in the order of their offsets."""

NEW_IDS_MAX = 8
"""So many ids are tried for one object, if other objects lie at their keys."""

_BATCH = struct.Struct(">qqqqq")

Wanted = Sequence[tuple[int, Sequence[RecordBatch]]]
"""Batches by stream, ascending, each stream once, none empty."""


@dataclass(frozen=True, slots=True, eq=False)
class Uploaded:
    """An object that was written and committed.

    Args:
        ref: the object, with its sizes.
        ranges: what it holds.
    """

    ref: ObjectRef
    ranges: ObjectRanges

    @property
    def object_id(self) -> int:
        """The object's id."""
        return self.ref.object_id


@dataclass(frozen=True, slots=True, eq=False)
class Unsettled:
    """An object that was written, and of which is not known whether it is committed.

    Args:
        uploaded: the object.
        claims: with which it was to be committed.
        digest: of its batches.
    """

    uploaded: Uploaded
    claims: Claims
    digest: bytes


def ordered(streams: StreamBatches) -> Wanted:
    """Batches by stream, ascending; streams without batches are left out. All of them are in memory then.

    Raises:
        CommitRefused: no batch at all, a stream twice, or more than 20,000 streams.
    """
    pairs = streams.items() if isinstance(streams, Mapping) else streams
    kept = sorted(((stream_id, tuple(batches)) for stream_id, batches in pairs), key=lambda pair: pair[0])
    wanted = [(stream_id, batches) for stream_id, batches in kept if batches]
    if not wanted:
        raise CommitRefused("expected batches to upload, found none")
    for (before, _), (after, _) in pairwise(wanted):
        if before == after:
            raise CommitRefused(f"expected each stream once, found stream {after} twice")
    if len(wanted) > STREAMS_AN_OBJECT_MAX:
        raise CommitRefused(f"expected at most {STREAMS_AN_OBJECT_MAX} streams in an object, found {len(wanted)}")
    return wanted


def refuse_discontinuous(wanted: Wanted, ends: StreamEnds) -> None:
    """See to it that batches go on where their streams ended, and leave nothing out. No request.

    Raises:
        CommitRefused: they do not.
    """
    for stream_id, batches in wanted:
        for before, after in pairwise(batches):
            if before.end_offset != after.base_offset:
                found = f"[{before.base_offset}, {before.end_offset}) and then {after.base_offset}"
                raise CommitRefused(f"stream {stream_id}: expected batches without holes, found {found}")
    rows = [(stream_id, batches[0].base_offset, batches[-1].end_offset) for stream_id, batches in wanted]
    ends.continued_by(*np.array(rows, dtype=np.int64).T)


def digest_of(wanted: Wanted) -> bytes:
    """A hash of batches: equal ones make the same object. O(bytes)."""
    hashed = xxh3_128()
    for stream_id, batches in wanted:
        for each in batches:
            hashed.update(_BATCH.pack(stream_id, each.epoch, each.base_offset, each.count, len(each.payload)))
            hashed.update(each.payload)
    return hashed.digest()


def write_object(
    parts: CatalogParts, node_id: int, object_id: int, wanted: Wanted, backoff: Backoff
) -> Uploaded | None:
    """Write an object where readers of this catalog look for it; None if another object lies there.

    Raises:
        CatalogDamaged: another object lies there because the counter of ids went back.
        FormatError, FormatLimit: batches that the format cannot hold.
        StoreError: it could not be written.
    """
    try:
        with ObjectWriter(parts.store, parts.layout, object_id, backoff=backoff) as writer:
            for stream_id, batches in wanted:
                writer.write(stream_id, batches)
    except ObjectExists:
        _refuse_given_twice(parts, node_id, object_id)
        return None
    return Uploaded(writer.ref, writer.ranges)


def _refuse_given_twice(parts: CatalogParts, node_id: int, object_id: int) -> None:
    """Find out whether an id that has an object already was given to another node as well. One request a list.

    Raises:
        CatalogDamaged: it was, or the counter is not above all ids in use: it went back.
    """
    for each in list_node_ids(parts):
        seen = parts.cells.node_list(each).read()
        if seen is None:
            continue
        if each != node_id and object_id in ids_of(seen.value):
            found = f"that node {each} has it, too: the counter went back"
            raise CatalogDamaged(f"object id {object_id}: expected to be given to node {node_id} alone, found {found}")
        parts.ids.note(highest_id(seen.value))
    parts.ids.refuse_lost()


def first_unproven(parts: CatalogParts, refs: Iterable[ObjectRef]) -> ObjectRef | None:
    """The first object of which this process does not know that it lies where readers look; None if there is none.

    Raises:
        CommitRefused: one was written somewhere else.
    """
    found = None
    for ref in refs:
        key = parts.layout.object_key(ref.object_id)
        if ref.proof is not None and ref.proof.key != key:
            raise CommitRefused(
                f"object {ref.object_id}: expected it at {key!r}, where readers look, found it written at "
                f"{ref.proof.key!r}: write it with the layout of this catalog, namespace {parts.layout.namespace!r}"
            )
        if found is None and (ref.proof is None or ref.proof.store is not parts.store):
            found = ref
    return found


def refuse_misplaced(parts: CatalogParts, ref: ObjectRef) -> None:
    """See to it that an object lies where readers look for it, with its size. One request.

    Raises:
        CommitRefused: it does not.
        StoreError: the store could not say.
    """
    key = parts.layout.object_key(ref.object_id)
    size_bytes = stored_size_bytes(parts.store, key)
    if size_bytes is None or (size_bytes != ref.size_bytes and not ref.is_composite and ref.size_bytes != UNKNOWN):
        found = "none" if size_bytes is None else f"one of {size_bytes}"
        raise CommitRefused(
            f"object {ref.object_id}: expected an object of {ref.size_bytes} bytes at {key!r}, where readers of "
            f"namespace {parts.layout.namespace!r} look, found {found}"
        )
