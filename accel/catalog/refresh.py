"""Reading the changes of the catalog: the state that a reader keeps, the keys that it reads, and the image it builds.

    round 1    the directory of nodes, and each node's list      conditional GETs, all in parallel
    round 2    lists of nodes that are new in the directory      after round 1
    round 3    the stream shards                                 conditional GETs, all in parallel
    then       lists and shards -> a metadata image              unchanged parts are taken from the previous image

For an unchanged key the answer is 304, without a body, and the parts built from it are kept. Lists are read before
shards, because writers write in the opposite order: a stream object is added to a shard before it is dropped from a
list, so a reader sees data twice rather than not at all.

**By listing.** The rounds above cost one request a key, although most keys did not change. A reader that follows
(`CatalogFollower.follow`) lists the keys first: one request returns the ETags of 1,000 keys, and only keys with another
ETag are read, as above. The order is the same, for the same reason:

    round 1    LIST the lists and the directory, then conditional GETs of the changed ones
    round 2    lists of new nodes
    round 3    only now LIST the shards, then conditional GETs of the changed ones

A server may show a write late in its listings. Then a reader sees the write later; but an object must not be missing in
both list and shard. So if an object has left a list, the shards, which may contain it now, are read without a listing.
A listing confirms nothing: only a read of each key itself confirms that the state was the newest at that time. So
`follow` reads all keys if the last such read is long ago, and where listings fail or save nothing (a server whose
listings have other ETags).

**Contradictions.** A node's list must contain every session and commit that the shards contain. If it does not, a
session or commit was made between the reads, and all keys are read once more; or the list or the directory went back in
time, and then the refresh fails. An undo cannot keep the order above: its first write is the list's. If an undo is made
between rounds 1 and 3, the shards have retired the objects that it withdraws, and the lists do not contain yet the
objects that it restores. `node_list.is_led_back` detects this, and all keys are read once more. These repeated reads
use no listings.

**The image.** A reader refreshes about every second, and usually only a few lists changed. Unchanged parts are shared
by identity: a list that is the same record, or lists the same objects, keeps its `NodeImage`, with all facts that
lookups found out about it; a shard that is the same record keeps its streams. So comparing two images takes time only
for the changed parts.

**Its streams.** An image may have hundreds of thousands of streams, of which a reader needs a few. So the columns of
the shards are kept as they are, and a stream is made from slices of them, checked, and kept when it is first looked up:

    streams         17   23   ...       one row a stream
    ranges          17   17   23 ...    neighbouring rows of one stream: a slice, found by two searches
    stream objects  17   23   23 ...    likewise; and those that are still in the lists of nodes

A commit writes stream objects into its node's list; they are moved to their shards afterwards, and then dropped from
the list. So a reader sees some of them twice, and some in an old list after the shard has added and removed them again.
A row of a list counts unless the shard shows that it is outdated:

- the shard has an object of the same id, live or retired;
- the stream was trimmed to the row's end or beyond it;
- a stream object of the shard holds all of the row's offsets: it replaced the object.

In the opposite case, an undone commit leaves the list first and the shards later: rows of the shard that were added by
a withdrawn commit of a list do not count.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from accel.catalog.keys import NODE_LISTS, NODES, STREAM_SHARDS, CatalogKeys, must_read
from accel.catalog.node_list import is_led_back
from accel.catalog.records import (
    OPEN,
    STREAM_OBJECT,
    NodeDirectory,
    NodeList,
    Numbered,
    Rows,
    StreamShard,
    by_stream,
    highest_of_each,
    no_rows,
)
from accel.catalog.sketches_and_ends import KnownEnds, NodeFacts
from accel.catalog.stream_shards import shard_of, shards_of
from accel.errors import CatalogDamaged, CatalogWentBack, ImageRefused
from accel.image import (
    GivenUpRange,
    ImageVersion,
    MetadataImage,
    NodeImage,
    OwnershipRange,
    StreamImage,
    StreamObject,
    VersionVector,
    is_newer,
    make_stream,
    node_of_columns,
)
from loaders.errors import StoreError
from loaders.object_ref import ObjectRef
from loaders.tables.typed_key import TypedKey
from loaders.threads import map_bounded
from loaders.versions import Versioned

# Catching up

T = TypeVar("T")
U = TypeVar("U")

REREADS_MAX = 3
"""The maximum number of repeated reads of a refresh because of an undo or a new session in between."""

LISTING_PAUSE_SECONDS = 60.0
"""The time without listings after a listing that failed, or that saved nothing."""

ETags = Mapping[tuple[str, str], str]
"""(table, key) -> ETag, from a listing."""


@dataclass(frozen=True, slots=True, eq=False)
class CatalogState:
    """The records that were read, with the image built from them. Not of one instant: see the module's docstring.

    At `confirmed_seconds` of the timer, no key had a newer version.
    """

    directory: Versioned[NodeDirectory]
    lists: Mapping[int, Versioned[NodeList]]
    shards: tuple[Versioned[StreamShard], ...]
    version: VersionVector
    built: BuiltImage
    confirmed_seconds: float

    def node_lists(self) -> dict[int, NodeList]:
        """Node id -> its list."""
        return {node_id: seen.value for node_id, seen in self.lists.items()}


class CatalogFollower:
    """Keeps the last state, and refreshes it on request.

    Args:
        keys: the catalog's keys.
        namespace: of the objects.
        shard_count: the number of stream shards in the format record.
        executor: sends the requests of a round.
        timer: seconds, from any start.
        ends: the known ends of streams, for the images; None = no ends.

    Threads: any. Two threads that refresh at once both send requests; the newer state is kept. If neither is newer, one
    of them reads again: a refresh returns everything that was written before it began.
    """

    def __init__(
        self,
        keys: CatalogKeys,
        namespace: str,
        shard_count: int,
        executor: Executor,
        timer: Callable[[], float],
        *,
        ends: KnownEnds | None = None,
    ) -> None:
        self._keys = keys
        self._ends = ends
        self._timer = timer
        self._lists_from_seconds = -math.inf
        self._namespace = namespace
        self._shard_count = shard_count
        self._executor = executor
        self._lock = threading.Lock()
        self._state: CatalogState | None = None

    def state(self) -> CatalogState:
        """The state that was read last; read now if there is none."""
        state = self._state
        return self.refresh() if state is None else state

    def read_last(self, node_id: int) -> Versioned[NodeList] | None:
        """A node's list as it was read last; None if it was not read. No request."""
        return None if self._state is None else self._state.lists.get(node_id)

    def refresh(self) -> CatalogState:
        """Read all changes: one conditional GET a key, in two or three rounds.

        If the directory has another generation than before (`undo.restored`), the earlier state does not count: all
        keys are read again, and the new image is newer than every image of an earlier generation.

        Raises:
            StoreError: the catalog cannot be read now.
            CatalogWentBack: a key has an older version than before, and the directory has no new generation.
            CatalogDamaged: a key is gone, or shards contain nodes, sessions or commits that the lists do not contain.
            CorruptObject, FormatTooNew: a key is damaged, or a newer release wrote it.
        """
        return self._catch_up(self._state, None)

    def follow(self, confirm_seconds: float) -> CatalogState:
        """Read the changes that listings show: two requests, and one for each changed key.

        Args:
            confirm_seconds: if the last read of all keys is at least this long ago, the call is `refresh`.

        Raises:
            As `refresh`. A failed listing is no error: then all keys are read.
        """
        before, now_seconds = self._state, self._timer()
        if before is None or now_seconds - before.confirmed_seconds >= confirm_seconds:
            return self.refresh()
        return self._catch_up(before, self._listed(NODE_LISTS, NODES))

    def _catch_up(self, before: CatalogState | None, listed: ETags | None) -> CatalogState:
        after = self._read_joined(before, listed)
        for _ in range(REREADS_MAX):
            kept = self._keep(after)
            if kept.version == after.version or is_newer(kept.version, after.version):
                return kept
            # Another thread has read some keys before this one, and other keys after it: neither state has everything.
            after = self._read_joined(kept, None)
        return self._keep(after)

    def _read_joined(self, before: CatalogState | None, listed: ETags | None) -> CatalogState:
        """Read all changes, until lists and shards do not contradict each other."""
        try:
            after = self._read(before, listed)
        except CatalogWentBack:
            if before is None or not self._is_renewed(before):
                raise
            before, after = None, self._read(None)
        if before is not None and after.version.generation != before.version.generation:
            before, after = None, self._read(None)
        known = before
        for _ in range(REREADS_MAX):
            if not _is_torn(after, before) and _behind(after, known) is None:
                break
            before, after = after, self._read(after)
        else:
            behind = None if before is None else _behind(replace(after, shards=before.shards), known)
            if behind is not None:  # behind shards that were read before these lists: no commit was made in between
                raise CatalogDamaged(behind)
        return after

    def _keep(self, after: CatalogState) -> CatalogState:
        with self._lock:
            now = self._state
            if now is None:
                self._state = after
            else:
                # `newer` is at least as new in every key, so the confirmation of the other state holds for it, too.
                newer = after if is_newer(after.version, now.version) else now
                if newer is after or after.version == now.version:
                    confirmed_seconds = max(now.confirmed_seconds, after.confirmed_seconds)
                    self._state = replace(newer, confirmed_seconds=confirmed_seconds)
            return self._state or after

    def _read(self, before: CatalogState | None, listed: ETags | None = None) -> CatalogState:
        """Read all keys; with a listing of the lists, only the keys that it and one of the shards show as changed."""
        started_seconds = self._timer()
        known = {} if before is None else before.lists
        directory_flight = self._executor.submit(self._read_directory, before, listed)
        again = [(self._keys.node_list(node_id), seen) for node_id, seen in known.items()]
        lists = dict(zip(known, self._read_again(again, listed), strict=True))
        directory = directory_flight.result()
        missing = [node_id for node_id in directory.value.node_ids.tolist() if node_id not in lists]
        lists.update(zip(missing, self._all(must_read, map(self._keys.node_list, missing)), strict=True))
        is_listing = listed is not None and not _has_lost_objects(known, lists)
        shards = tuple(self._read_shards(before, self._listed(STREAM_SHARDS) if is_listing else None))
        confirmed_seconds = started_seconds if before is None or listed is None else before.confirmed_seconds
        version = _version(directory, lists, shards)
        if before is not None and version == before.version:
            return replace(before, confirmed_seconds=confirmed_seconds)
        built = build_image(
            self._namespace,
            {node_id: seen.value for node_id, seen in lists.items()},
            [seen.value for seen in shards],
            version,
            None if before is None else before.built,
            ends=self._ends,
        )
        return CatalogState(directory, lists, shards, version, built, confirmed_seconds)

    def _listed(self, *tables: str) -> ETags | None:
        """The ETags of these tables' keys from a listing; None if it fails, or if listings are paused."""
        if self._timer() < self._lists_from_seconds:
            return None
        try:
            return self._keys.tables.etags(tables)
        except StoreError:
            self._lists_from_seconds = self._timer() + LISTING_PAUSE_SECONDS
            return None

    def _is_renewed(self, before: CatalogState) -> bool:
        return must_read(self._keys.directory()).value.generation > before.version.generation

    def _read_directory(self, before: CatalogState | None, listed: ETags | None) -> Versioned[NodeDirectory]:
        key = self._keys.directory()
        if before is None:
            return must_read(key)
        return key.read_newer(before.directory) if _may_differ(key, before.directory, listed) else before.directory

    def _read_shards(self, before: CatalogState | None, listed: ETags | None) -> list[Versioned[StreamShard]]:
        keys = [self._keys.shard(number) for number in range(self._shard_count)]
        if before is None:
            return self._all(must_read, keys)
        return self._read_again(list(zip(keys, before.shards, strict=True)), listed)

    def _read_again(
        self, pairs: Sequence[tuple[TypedKey[T], Versioned[T]]], listed: ETags | None
    ) -> list[Versioned[T]]:
        """The current values of keys, in order; keys that a listing shows unchanged are not read."""
        due = [at for at, (key, seen) in enumerate(pairs) if _may_differ(key, seen, listed)]
        values = [seen for _, seen in pairs]
        for at, value in zip(due, self._all(self._again, (pairs[at] for at in due)), strict=True):
            values[at] = value
        same = sum(values[at] is pairs[at][1] for at in due)
        if listed is not None and same > max(2, len(pairs) // 2):
            self._lists_from_seconds = self._timer() + LISTING_PAUSE_SECONDS
        return values

    def _all(self, read: Callable[[T], U], asked: Iterable[T]) -> list[U]:
        return map_bounded(self._executor, read, asked)

    @staticmethod
    def _again(asked: tuple[TypedKey[T], Versioned[T]]) -> Versioned[T]:
        key, seen = asked
        return key.read_newer(seen)


def _may_differ(key: TypedKey[T], seen: Versioned[T], listed: ETags | None) -> bool:
    return listed is None or listed.get((key.table_name, key.key)) != seen.version.etag


def _has_lost_objects(before: Mapping[int, Versioned[NodeList]], after: Mapping[int, Versioned[NodeList]]) -> bool:
    """Whether an object has left a list: a shard may have its data now. O(n log n) for changed lists."""
    for node_id, seen in before.items():
        now = after[node_id]
        if now is seen:
            continue
        for earlier, later in (
            (seen.value.live["object_id"], now.value.live["object_id"]),
            (seen.value.stream_objects["object_id"], now.value.stream_objects["object_id"]),
        ):
            is_longer = len(later) >= len(earlier) and np.array_equal(later[: len(earlier)], earlier)
            if not is_longer and not np.isin(earlier, later).all():
                return True
    return False


def _is_torn(after: CatalogState, before: CatalogState | None) -> bool:
    known = before.shards if before is not None else (None,) * len(after.shards)
    changed = [seen.value for seen, other in zip(after.shards, known, strict=True) if seen is not other]
    lists = after.node_lists() if changed else {}
    return any(is_led_back(lists, shard) for shard in changed)


def _behind(after: CatalogState, before: CatalogState | None) -> str | None:
    """A session or commit that shards contain and their node's list lacks, as an error's text; None if there is none.

    Lists are read before shards, so a session or commit in between is no damage: the difference is gone when all keys
    are read again. If each repetition finds a new difference, lists are compared with the shards that were read before
    them. O(rows of the changed shards).
    """
    known = before.shards if before is not None else (None,) * len(after.shards)
    changed = [seen.value for seen, other in zip(after.shards, known, strict=True) if seen is not other]
    for expected, columns in (("epoch", _epochs(changed)), ("next_order_id", _commits(changed))):
        for node_id, least in highest_of_each(columns):
            seen = after.lists.get(node_id)
            found = None if seen is None else getattr(seen.value, expected)
            if found is None or found < least:
                wanted = f"a list of node {node_id} with {expected} of at least {least}, as in stream shards"
                return f"expected {wanted}, found {'none in the directory' if found is None else found}: put back?"
    return None


def _epochs(shards: Iterable[StreamShard]) -> Numbered:
    return [
        (shard.ranges["node_id"], np.where(shard.ranges["end"] == OPEN, shard.ranges["epoch"], 0)) for shard in shards
    ]


def _commits(shards: Iterable[StreamShard]) -> Numbered:
    rows = (rows for shard in shards for rows in (shard.stream_objects, shard.retired))
    return [(some_rows["node_id"], some_rows["added_by"] + 1) for some_rows in rows if len(some_rows)]


def _version(
    directory: Versioned[NodeDirectory],
    lists: Mapping[int, Versioned[NodeList]],
    shards: tuple[Versioned[StreamShard], ...],
) -> VersionVector:
    parts = {"directory": directory.version.sequence}
    parts |= {f"node/{node_id}": seen.version.sequence for node_id, seen in lists.items()}
    parts |= {f"bucket/{number}": seen.version.sequence for number, seen in enumerate(shards)}
    return VersionVector(parts, directory.value.generation)


# The image


@dataclass(frozen=True, slots=True, eq=False)
class BuiltImage:
    """An image, and the records it was built from, for building the next image. Threads: any.

    Args:
        image: the image.
        lists: node id -> its list.
        parts: the streams of each shard, in the order of the shards' numbers.
    """

    image: MetadataImage
    lists: Mapping[int, NodeList]
    parts: tuple[ShardStreams, ...]


def build_image(
    namespace: str,
    lists: Mapping[int, NodeList],
    shards: Sequence[StreamShard],
    version: ImageVersion,
    previous: BuiltImage | None = None,
    *,
    ends: KnownEnds | None = None,
) -> BuiltImage:
    """Build the image of lists and shards.

    Args:
        namespace: of the objects.
        lists: node id -> its list.
        shards: all stream shards, in the order of their numbers.
        version: of the image.
        previous: the previous image, from earlier records of the same catalog; its unchanged parts are shared.
        ends: the known ends of streams, the same object for all images of a catalog; None = no ends.

    Raises:
        ImageRefused: a list or a shard has the wrong number. A contradiction in a stream is raised when the stream is
            looked up, so that other streams are not affected.

    Complexity: O(n log n) in the objects of lists that changed, no loop over objects or streams in Python.
    """
    for number, shard in enumerate(shards):
        if shard.bucket != number:
            raise ImageRefused(
                f"expected stream shard {number} of {len(shards)}, found shard {shard.bucket} in its place"
            )
    for node_id, node_list in lists.items():
        if node_list.node_id != node_id:
            raise ImageRefused(f"expected a list of node {node_id}, found one of node {node_list.node_id} in its place")
    nodes = {node_id: _node(node_list, previous, ends) for node_id, node_list in lists.items()}
    parts = _parts(lists.values(), shards, previous)
    unchanged = previous is not None and parts == previous.parts
    streams = previous.image.streams if previous is not None and unchanged else ShardedStreams(parts)
    return BuiltImage(MetadataImage(version, namespace, streams, nodes), dict(lists), parts)


def _node(now: NodeList, previous: BuiltImage | None, ends: KnownEnds | None) -> NodeImage:
    before = None if previous is None else previous.lists.get(now.node_id)
    if previous is not None and before is not None and (before is now or _same_objects(before, now)):
        return previous.image.nodes[now.node_id]
    live = now.live
    return node_of_columns(
        now.node_id,
        object_ids=live["object_id"].copy(),  # contiguous, as searches need it
        order_ids=live["order_id"].copy(),
        sizes_bytes=live["size_bytes"].copy(),
        index_sizes_bytes=live["index_size_bytes"].copy(),
        attributes=live["attributes"].copy(),
        tail_checksums=live["tail_checksum"].copy(),
        facts=NodeFacts(now, None if ends is None else partial(ends.end, now.node_id)),
    )


def _same_objects(before: NodeList, now: NodeList) -> bool:
    return np.array_equal(before.live, now.live) and np.array_equal(before.sketches, now.sketches)


def _parts(
    lists: Iterable[NodeList], shards: Sequence[StreamShard], previous: BuiltImage | None
) -> tuple[ShardStreams, ...]:
    lists = list(lists)
    late = _late_rows(lists, len(shards))
    withdrawn = frozenset((node_list.node_id, commit) for node_list in lists for commit in node_list.withdrawn_commits)
    before = previous.parts if previous is not None and len(previous.parts) == len(shards) else [None] * len(shards)
    none = no_rows(STREAM_OBJECT)
    return tuple(
        _part(shard, late.get(shard.bucket, none), withdrawn, known)
        for shard, known in zip(shards, before, strict=True)
    )


def _part(shard: StreamShard, late: Rows, withdrawn: Commits, before: ShardStreams | None) -> ShardStreams:
    unchanged = before is not None and before.shard is shard and before.withdrawn == withdrawn
    if before is not None and unchanged and np.array_equal(before.late, late):
        return before
    return ShardStreams(shard, late, withdrawn)


def _late_rows(lists: Iterable[NodeList], shard_count: int) -> dict[int, Rows]:
    """Stream objects that are still in lists, by the shard of their streams."""
    waiting = [node_list.stream_objects for node_list in lists if len(node_list.stream_objects)]
    if not waiting or not shard_count:
        return {}
    rows = by_stream(np.concatenate(waiting), "start")
    numbers = shards_of(rows["stream_id"], shard_count)
    return {int(number): rows[numbers == number] for number in np.unique(numbers)}


# Its streams

INT64_MAX = 2**63 - 1

_RANGE_FIELDS = ["range_index", "start", "end", "node_id"]  # in the order in which the parts of an image take them
_OBJECT_FIELDS = ["object_id", "size_bytes", "index_size_bytes", "attributes", "tail_checksum", "start", "end"]

Commits = frozenset[tuple[int, int]]
"""(node, number) of commits to the lists of nodes."""


class ShardStreams:
    """The streams of one shard, each made when it is first looked up. Threads: any; two may make the same stream.

    Args:
        shard: the shard.
        late: STREAM_OBJECT rows of this shard's streams that are in lists of nodes, ascending by (stream id, start).
        withdrawn: commits whose rows in the shard do not count.
    """

    def __init__(self, shard: StreamShard, late: Rows, withdrawn: Commits) -> None:
        self.stream_ids = _stream_ids(shard.streams)
        self.shard = shard
        self.late = late
        self.withdrawn = withdrawn
        self._range_ids = _stream_ids(shard.ranges)
        self._object_ids = _stream_ids(shard.stream_objects)
        self._retired_ids = _stream_ids(shard.retired)
        self._late_ids = _stream_ids(late)
        self._made: dict[int, StreamImage] = {}

    def __len__(self) -> int:
        return len(self.stream_ids)

    def __contains__(self, stream_id: int) -> bool:
        return self._position(stream_id) >= 0

    def find(self, stream_id: int) -> StreamImage | None:
        """A stream; None if the shard does not have it.

        Raises:
            ImageRefused: the records of this stream contradict themselves.

        Complexity: O(log shard + rows of the stream) once; then O(1).
        """
        made = self._made.get(stream_id)
        if made is None and (position := self._position(stream_id)) >= 0:
            made = self._made[stream_id] = self._make(stream_id, int(self.shard.streams["start_offset"][position]))
        return made

    def _position(self, stream_id: int) -> int:
        at = int(self.stream_ids.searchsorted(stream_id))
        return at if at < len(self) and self.stream_ids[at] == stream_id else -1

    def _make(self, stream_id: int, start_offset: int) -> StreamImage:
        rows = self.shard.ranges[_slice(self._range_ids, stream_id)]
        ranges = [OwnershipRange(*row) for row in rows[_RANGE_FIELDS].tolist()]
        moved = self.shard.stream_objects[_slice(self._object_ids, stream_id)]
        late = self.late[_slice(self._late_ids, stream_id)]
        objects = _stream_objects(self._not_withdrawn(moved) if self.withdrawn else moved)
        if len(late):
            retired = self.shard.retired[_slice(self._retired_ids, stream_id)]
            known = {*moved["object_id"].tolist(), *retired["object_id"].tolist()}
            late_objects = [candidate for candidate in _stream_objects(late) if candidate.ref.object_id not in known]
            objects += [
                late_object
                for late_object in late_objects
                if late_object.end > start_offset and not _replaced(late_object, objects)
            ]
        return make_stream(stream_id, start_offset, ranges, objects, self._given_up(stream_id))

    def _given_up(self, stream_id: int) -> list[GivenUpRange]:
        rows = self.shard.given_up
        if not len(rows):
            return []
        chosen = rows[_slice(_stream_ids(rows), stream_id)]
        return [GivenUpRange(*row) for row in chosen[["start", "end", "object_id"]].tolist()]

    def _not_withdrawn(self, rows: Rows) -> Rows:
        commits = rows[["node_id", "added_by"]].tolist()
        kept: Rows = rows[np.array([commit not in self.withdrawn for commit in commits], dtype=np.bool_)]
        return kept


class ShardedStreams(Mapping[int, StreamImage]):
    """All streams of an image: stream id -> stream, each made when it is first looked up. Threads: any.

    Length, iteration over ids and ``in`` make no stream.

    Args:
        parts: the streams of each shard, in the order of the shards' numbers.
    """

    def __init__(self, parts: Sequence[ShardStreams]) -> None:
        self._parts = tuple(parts)
        self._length = sum(map(len, self._parts))

    def __getitem__(self, stream_id: int) -> StreamImage:
        part = self._part(stream_id)
        stream = None if part is None else part.find(stream_id)
        if stream is None:
            raise KeyError(stream_id)
        return stream

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

    def _part(self, stream_id: int) -> ShardStreams | None:
        is_possible = 0 <= stream_id <= INT64_MAX and self._parts
        return self._parts[shard_of(int(stream_id), len(self._parts))] if is_possible else None


def _stream_ids(rows: Rows) -> NDArray[np.int64]:
    # A field of a structured array is strided; each search would copy the whole column.
    return np.ascontiguousarray(rows["stream_id"])


def _slice(stream_ids: NDArray[np.int64], stream_id: int) -> slice:
    return slice(int(stream_ids.searchsorted(stream_id)), int(stream_ids.searchsorted(stream_id, side="right")))


def _replaced(late: StreamObject, objects: Iterable[StreamObject]) -> bool:
    return any(listed.start <= late.start and late.end <= listed.end for listed in objects)


def _stream_objects(rows: Rows) -> list[StreamObject]:
    return [StreamObject(ObjectRef(*facts), start, end) for *facts, start, end in rows[_OBJECT_FIELDS].tolist()]
