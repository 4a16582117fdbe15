"""Giving up: prepared ids are given back, and what was written under them is deleted.

Step by step:

    1. the indexes of the objects are opened, to learn which of them hold one stream alone
    2. the ids are taken out of the prepared ones; what is not prepared any more is left alone, for it may be listed
    3. an object of one stream may be listed in the bucket of its stream although it is still prepared; then it is left
       alone, too. Else the bucket is written anew, as it is: a registration that is on its way (of somebody who gave it
       up as lost, say) loses its race by that, asks whether its id is prepared, and is refused
    4. the rest is deleted; the collector does what is left undone here

An object that cannot be read may be of any stream: all buckets are asked for it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from accel.catalog.keys import require
from accel.catalog.node_list import without_prepared
from accel.catalog.parts import CatalogParts, open_bounded
from accel.catalog.records import NodeList, StreamShard
from accel.catalog.shard_writes import read_list
from accel.catalog.stream_shards import shard_of
from accel.catalog.survey import must_read
from accel.errors import FormatError, KeyMissing
from loaders.object_ref import ObjectRef

_MANY = -1
"""As the stream of an object that holds any other number of streams than one."""


def discard(parts: CatalogParts, node_id: int, object_ids: Iterable[int]) -> None:
    """Give up ids that were prepared for a writer of a node's objects; what was committed meanwhile stays.

    Requests: one an object, one or two for the list, two a bucket that is touched, and one for 1,000 deletes.

    Raises:
        CatalogMissing: the node has no list.
        StoreError, TableError: what could not be deleted now is deleted by the collector.
    """
    wanted = list(dict.fromkeys(object_ids))
    written = _written(parts, node_id, wanted)
    taken = _taken_back(parts, node_id, wanted)
    listed = _registered(parts, {object_id: written[object_id] for object_id in taken if object_id in written})
    going = [object_id for object_id in taken if object_id in written and object_id not in listed]
    for failure in parts.store.delete_many([parts.layout.object_key(object_id) for object_id in going])[:1]:
        raise failure.error


def _written(parts: CatalogParts, node_id: int, object_ids: list[int]) -> dict[int, int | None]:
    """Object id -> the only stream that it holds, or _MANY; None if it cannot be read. Without those that are not."""
    streams: dict[int, int | None] = {}
    wanted = ((node_id, ObjectRef(object_id)) for object_id in object_ids)
    for ref, load in open_bounded(parts.loader, wanted, parts.settings.parallel_requests):
        try:
            stream_ids = load.result().ranges.stream_ids
        except KeyMissing as error:
            if error.key != parts.layout.object_key(ref.object_id):  # it links objects that are gone
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
    """Which of these objects stand in buckets; those of one stream cannot come there any more."""
    unknown = [object_id for object_id, stream_id in streams.items() if stream_id is None]
    by_bucket: dict[int, list[int]] = {}
    for object_id, stream_id in streams.items():
        if stream_id is not None and stream_id != _MANY:
            by_bucket.setdefault(shard_of(stream_id, parts.format.stream_buckets), []).append(object_id)
    registered: set[int] = set()
    for number, object_ids in by_bucket.items():
        registered |= _registered_in(parts, number, np.array(object_ids, dtype=np.int64))
    for number in range(parts.format.stream_buckets if unknown else 0):
        registered |= _known(must_read(parts.keys.shard(number)).value, np.array(unknown, dtype=np.int64))
    return registered


def _registered_in(parts: CatalogParts, number: int, ids: NDArray[np.int64]) -> set[int]:
    registered: set[int] = set()
    key = parts.keys.shard(number)

    def change(now: StreamShard | None) -> StreamShard | None:
        nonlocal registered
        bucket = require(now, key.where)
        registered = _known(bucket, ids)
        return None if len(registered) == len(ids) else bucket

    key.change(change)
    return registered


def _known(bucket: StreamShard, ids: NDArray[np.int64]) -> set[int]:
    known = np.concatenate((bucket.stream_objects["object_id"], bucket.retired["object_id"]))
    return set(ids[np.isin(ids, known)].tolist())
