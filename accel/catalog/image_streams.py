"""The streams of an image, read out of the catalog's buckets when they are asked for.

An image may have hundreds of thousands of streams, of which a reader asks for some. So no stream is built with the
image: the columns of the buckets are kept as they are, and a stream is cut out of them, checked, and remembered when it
is first looked up.

    streams         17   23   ...       one row a stream
    ranges          17   17   23 ...    neighbouring rows of one stream: a slice, found by two searches
    stream objects  17   23   23 ...    likewise; and those that still stand in the lists of nodes

Stream objects reach a bucket late. A commit writes them into its node's list, and they are moved to their buckets
afterwards, in front of being dropped from the list. So a reader sees some of them twice, and some in a list long after
the bucket had them and let go of them again. A row of a list counts unless the bucket knows better:

- it has, or had, an object of the same id;
- the stream was trimmed to the row's end or beyond it;
- a stream object of the bucket holds all of the row's offsets: it replaced the object.

The other way round, a commit that is undone leaves the list first and the buckets later: rows of the bucket that a list
calls withdrawn do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from accel.catalog.records import StreamBucket
from accel.catalog.rows import Rows
from accel.catalog.stream_rules import bucket_of
from accel.image import OwnershipRange, StreamImage, StreamObject, make_stream
from loaders.object_ref import ObjectRef

INT64_MAX = 2**63 - 1

_RANGE_FIELDS = ["range_index", "start", "end", "node_id"]  # in the order in which the parts of an image take them
_OBJECT_FIELDS = ["object_id", "size_bytes", "index_size_bytes", "attributes", "tail_checksum", "start", "end"]

Commits = frozenset[tuple[int, int]]
"""(node, number) of commits to the lists of nodes."""


class BucketStreams:
    """The streams of one bucket, each made when it is first asked for. Threads: any; two may make the same one.

    Args:
        bucket: what the bucket holds.
        late: STREAM_OBJECT rows of this bucket's streams that stand in lists of nodes, ascending by (stream id, start).
        withdrawn: commits whose rows in the bucket do not count.
    """

    def __init__(self, bucket: StreamBucket, late: Rows, withdrawn: Commits) -> None:
        self.stream_ids = _stream_ids(bucket.streams)
        self.bucket = bucket
        self.late = late
        self.withdrawn = withdrawn
        self._range_ids = _stream_ids(bucket.ranges)
        self._object_ids = _stream_ids(bucket.stream_objects)
        self._retired_ids = _stream_ids(bucket.retired)
        self._late_ids = _stream_ids(late)
        self._made: dict[int, StreamImage] = {}

    def __len__(self) -> int:
        return len(self.stream_ids)

    def __contains__(self, stream_id: int) -> bool:
        return self._position(stream_id) >= 0

    def find(self, stream_id: int) -> StreamImage | None:
        """A stream; None if the bucket does not have it.

        Raises:
            ImageRefused: what the catalog says of this stream contradicts itself.

        Complexity: O(log bucket) and what the stream has, once; then O(1).
        """
        made = self._made.get(stream_id)
        if made is None and (position := self._position(stream_id)) >= 0:
            made = self._made[stream_id] = self._make(stream_id, int(self.bucket.streams["start_offset"][position]))
        return made

    def _position(self, stream_id: int) -> int:
        at = int(self.stream_ids.searchsorted(stream_id))
        return at if at < len(self) and self.stream_ids[at] == stream_id else -1

    def _make(self, stream_id: int, start_offset: int) -> StreamImage:
        rows = self.bucket.ranges[_slice(self._range_ids, stream_id)]
        ranges = [OwnershipRange(*row) for row in rows[_RANGE_FIELDS].tolist()]
        moved = self.bucket.stream_objects[_slice(self._object_ids, stream_id)]
        late = self.late[_slice(self._late_ids, stream_id)]
        objects = _stream_objects(self._not_withdrawn(moved) if self.withdrawn else moved)
        if len(late):
            retired = self.bucket.retired[_slice(self._retired_ids, stream_id)]
            known = {*moved["object_id"].tolist(), *retired["object_id"].tolist()}
            late_objects = [each for each in _stream_objects(late) if each.ref.object_id not in known]
            objects += [each for each in late_objects if each.end > start_offset and not _replaced(each, objects)]
        return make_stream(stream_id, start_offset, ranges, objects)

    def _not_withdrawn(self, rows: Rows) -> Rows:
        commits = rows[["node_id", "added_by"]].tolist()
        kept: Rows = rows[np.array([commit not in self.withdrawn for commit in commits], dtype=np.bool_)]
        return kept


class BucketedStreams(Mapping[int, StreamImage]):
    """All streams of an image: stream id -> stream, each made when it is first asked for. Threads: any.

    Length, iteration over ids and ``in`` make none.

    Args:
        parts: the streams of each bucket, in the order of the buckets' numbers.
    """

    def __init__(self, parts: Sequence[BucketStreams]) -> None:
        self._parts = tuple(parts)
        self._length = sum(map(len, self._parts))

    def __getitem__(self, stream_id: int) -> StreamImage:
        part = self._part(stream_id)
        found = None if part is None else part.find(stream_id)
        if found is None:
            raise KeyError(stream_id)
        return found

    def __iter__(self) -> Iterator[int]:
        for part in self._parts:
            yield from part.stream_ids.tolist()

    def __len__(self) -> int:
        return self._length

    def __contains__(self, stream_id: object) -> bool:
        if not isinstance(stream_id, int | np.integer):
            return False
        number = int(stream_id)
        part = self._part(number)
        return part is not None and number in part

    def _part(self, stream_id: int) -> BucketStreams | None:
        is_possible = 0 <= stream_id <= INT64_MAX and self._parts
        return self._parts[bucket_of(int(stream_id), len(self._parts))] if is_possible else None


def _stream_ids(rows: Rows) -> NDArray[np.int64]:
    # A field of a structured array is strided; each search would copy it as a whole.
    return np.ascontiguousarray(rows["stream_id"])


def _slice(stream_ids: NDArray[np.int64], stream_id: int) -> slice:
    return slice(int(stream_ids.searchsorted(stream_id)), int(stream_ids.searchsorted(stream_id, side="right")))


def _replaced(late: StreamObject, objects: Iterable[StreamObject]) -> bool:
    return any(each.start <= late.start and late.end <= each.end for each in objects)


def _stream_objects(rows: Rows) -> list[StreamObject]:
    return [StreamObject(ObjectRef(*facts), start, end) for *facts, start, end in rows[_OBJECT_FIELDS].tolist()]
