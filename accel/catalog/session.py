"""The opening of a session, where the node's streams end, and what a commit adds to them.

From the moment `open_session` returns, nobody else commits for this node:

    1. the counter of ids   read after the node's list (those of the others, if the node is new): one that is not above
                            the ids in it went back
    2. the node's list      its session number is raised; every later commit of an older session meets it and is refused
    3. the directory        the node is added, if it is new
    4. the stream shards    the session number of the node's open ranges is raised, so that an older session cannot
                            close one of its streams any more at an end that is out of date
    5. the ends             where each of these streams ended (`recover_ends`)

A crash in between leaves a node without a session, and the next opening starts over.

Only a node that has never written gets a new list. If the directory names it, if a stream has a range of it, or if it
has a checkpoint, its list was deleted: an empty one in its place would begin the offsets of its streams anew, and all
its objects would look like orphans.

**Recovering the ends.** Nobody keeps the end of an open stream in one place: that would be a write a stream and upload.
It is the highest of

    the checkpoint of the node        ends as of some order id, written at intervals of commits
    objects of the list since then    their indexes, one GET each; or the time records of their commits, no GET
    objects of one stream             in the shards, and in the list until they are moved there
    the stream itself                 the start of its open range, and its first kept offset: data below that may be
                                      gone from all objects

That holds while objects are compacted, too: an object that a compaction made counts as "since" if any of its sources
does (`last_order_id`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from accel.catalog.keys import require
from accel.catalog.node_list import with_new_session
from accel.catalog.parts import CatalogParts
from accel.catalog.records import (
    NO_STREAM,
    OPEN,
    STREAMS_AN_OBJECT_MAX,
    TIME_RECORD,
    WRITER_NUMBER,
    Checkpoint,
    NodeDirectory,
    NodeList,
    ObjectFacts,
    Rows,
    StreamShard,
    by_stream,
    facts_of,
    highest_id,
    join_rows,
    no_rows,
    refs_of,
    some,
    stream_object_rows,
)
from accel.catalog.stream_shards import shards_of
from accel.catalog.survey import joined_ids, must_read
from accel.errors import AccelError, CatalogDamaged, CommitRefused
from accel.image import StreamObject
from loaders.format import ROW_SIZE_BYTES
from loaders.object_ref import ObjectRef
from loaders.parallel import map_bounded
from loaders.tables.columns import ROWS_MAX
from loaders.versions import Versioned
from range_index import ObjectRanges


def _no_ids() -> NDArray[np.int64]:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class StreamEnds:
    """The next offset of each stream. Threads: immutable, any.

    Args:
        stream_ids: ascending, each once.
        ends: of the same length.
    """

    stream_ids: NDArray[np.int64] = field(default_factory=_no_ids)
    ends: NDArray[np.int64] = field(default_factory=_no_ids)

    @classmethod
    def of(cls, stream_ids: NDArray[np.int64], ends: NDArray[np.int64]) -> StreamEnds:
        """From columns in any order; of a stream that stands there more than once, the highest end counts.

        Complexity: O(n log n).
        """
        order = np.lexsort((ends, stream_ids))
        ids, highest = stream_ids[order], ends[order]
        last_of_stream = np.ones(len(ids), dtype=np.bool_)
        last_of_stream[:-1] = ids[1:] != ids[:-1]
        return cls(ids[last_of_stream], highest[last_of_stream])

    def __len__(self) -> int:
        return len(self.stream_ids)

    def end(self, stream_id: int) -> int | None:
        """The next offset of a stream; None if it is not among these. Complexity: O(log n)."""
        at = int(np.searchsorted(self.stream_ids, stream_id))
        if at == len(self) or self.stream_ids[at] != stream_id:
            return None
        return int(self.ends[at])

    def with_higher_ends(self, stream_ids: NDArray[np.int64], ends: NDArray[np.int64]) -> StreamEnds:
        """With these ends where they are higher, and these streams added. Complexity: O(n log n)."""
        return StreamEnds.of(np.concatenate((self.stream_ids, stream_ids)), np.concatenate((self.ends, ends)))

    def without_others(self, stream_ids: NDArray[np.int64]) -> StreamEnds:
        """Without all other streams."""
        kept = np.isin(self.stream_ids, stream_ids)
        return StreamEnds(self.stream_ids[kept], self.ends[kept])

    def without(self, stream_ids: NDArray[np.int64]) -> StreamEnds:
        """Without these streams."""
        kept = ~np.isin(self.stream_ids, stream_ids)
        return StreamEnds(self.stream_ids[kept], self.ends[kept])

    def reach(self, stream_ids: NDArray[np.int64], ends: NDArray[np.int64]) -> bool:
        """Whether all these streams end at these offsets or further on. Complexity: O(m log n)."""
        if not len(self):
            return not len(stream_ids)
        at = np.minimum(np.searchsorted(self.stream_ids, stream_ids), len(self) - 1)
        return bool(((self.stream_ids[at] == stream_ids) & (self.ends[at] >= ends)).all())

    def check_continued(
        self, stream_ids: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> None:
        """Check that ranges [start, end) begin where their streams end.

        Args:
            stream_ids: ascending, each once.
            starts: of the same length.
            ends: of the same length.

        Raises:
            CommitRefused: a stream that is not open here, one that is not continued, or an empty range; the first one
                is named, with what was expected and what was found.

        Complexity: O(m log n) for m ranges, no loop in Python.
        """
        if len(stream_ids) and not len(self):
            raise CommitRefused(f"expected streams that are open on this node, found {stream_ids[0]}; none is open")
        at = np.minimum(np.searchsorted(self.stream_ids, stream_ids), max(len(self) - 1, 0))
        for wrong, expected in (
            (self.stream_ids[at] != stream_ids, "a stream that is open on this node"),
            (self.ends[at] != starts, "a start where the stream ended"),
            (ends <= starts, "an end above the start"),
        ):
            positions = np.flatnonzero(wrong)
            if len(positions):
                first = int(positions[0])
                known = f"; the stream ended at {self.ends[at[first]]}" if expected.startswith("a start") else ""
                raise CommitRefused(
                    f"stream {stream_ids[first]}: expected {expected}, "
                    f"found [{starts[first]}, {ends[first]}){known} ({len(positions)} streams alike)"
                )


def columns_of(ranges: ObjectRanges) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Stream ids, starts and ends of what an object holds."""
    starts = ranges.starts.astype(np.int64)
    return ranges.stream_ids, starts, starts + ranges.lengths.astype(np.int64)


# What a commit adds


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
        None if ref is None else facts_of(ref, time_ms, stream_ids),
        rows,
        all_ids[order],
        np.concatenate((starts, rows["start"]))[order],
        np.concatenate((ends, rows["end"]))[order],
        to_look_at,
    )


@dataclass(frozen=True, slots=True, eq=False)
class KnownTimes:
    """When appends to the node's streams arrived, as its checkpoint and its list have it. Threads: immutable, any.

    Args:
        covered: the commit that the checkpoint goes up to.
        checkpoint: TIME_RECORD rows of the checkpoint.
        since: those of the list, of commits behind it.
    """

    covered: int = -1
    checkpoint: Rows = field(default_factory=lambda: no_rows(TIME_RECORD))
    since: Rows = field(default_factory=lambda: no_rows(TIME_RECORD))

    def of(self, stream_id: int) -> Rows:
        """TIME_RECORD rows of a stream, with records that follow one another, as far as they do.

        The first one is record 0, or the last of those that have moved to parts of the time index. Rows that do not go
        on there come behind appends that nobody has told the list of, and count for nothing. O(rows).
        """
        first, after = np.searchsorted(self.checkpoint["stream_id"], [stream_id, stream_id + 1])
        rows = join_rows(self.checkpoint[first:after], self.since[self.since["stream_id"] == stream_id])
        if first == after and len(rows) and rows["record"][0] != 0:
            return no_rows(TIME_RECORD)
        follows = (np.diff(rows["record"]) == 1) & (np.diff(rows["end"]) > 0) & (np.diff(rows["value"]) >= 0)
        breaks = np.flatnonzero(~follows)
        return rows[: breaks[0] + 1] if len(breaks) else rows

    def without(self, stream_ids: NDArray[np.int64]) -> Rows:
        """Those of all streams but these, ascending by (stream id, record)."""
        others = np.unique(np.concatenate((self.checkpoint["stream_id"], self.since["stream_id"])))
        others = others[~np.isin(others, stream_ids)]
        pieces = [self.of(stream_id) for stream_id in others.tolist()]
        return by_stream(np.concatenate([no_rows(TIME_RECORD), *pieces]), "record")


NUMBERS_MAX = 65_536
"""The most rows of writers' numbers that a checkpoint has."""


class TimeLog(Protocol):
    """Holds when appends to streams arrived, and the numbers of their events. Threads: any."""

    def appended(self, stream_ids: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Rows:
        """TIME_RECORD rows of appends within these ranges, without their commit; no stream is asked for twice."""
        ...

    def kept(self, ends: StreamEnds) -> Rows:
        """Rows of the streams that it has, up to these ends, as in `Checkpoint.times`."""
        ...

    def numbered(self, stream_ids: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Rows:
        """WRITER_NUMBER rows of the events within these ranges, without their commit, one a stream and writer."""
        ...

    def kept_numbers(self, ends: StreamEnds) -> Rows:
        """Rows of the streams that it has, up to these ends, as in `Checkpoint.numbers`."""
        ...

    def stream_ids(self) -> NDArray[np.int64]:
        """The streams that it has."""
        ...


class KnownNumbers(NamedTuple):
    """Which events of writers are durable in a stream, as the node's checkpoint and its list have it.

    Args:
        rows: WRITER_NUMBER rows of the stream. Those that say to have all, and are of a range of before, are left out:
            another node had the stream in between.
        start: where the node's range of the stream begins; 0 if it is not open.
        are_missing: whether some rows were left out, since they were too many.
    """

    rows: Rows
    start: int
    are_missing: bool


class Recovered(NamedTuple):
    """What a new session knows of a node's streams.

    Args:
        ends: of those that it has open.
        opened: how many objects were committed since the checkpoint.
        times: when appends to them arrived.
        checkpoint: the node's, if it has one.
        starts: where the node's open ranges of the streams begin.
    """

    ends: StreamEnds
    opened: int
    times: KnownTimes
    checkpoint: Versioned[Checkpoint] | None
    starts: StreamEnds

    @property
    def numbers(self) -> Rows:
        """WRITER_NUMBER rows of the checkpoint."""
        return no_rows(WRITER_NUMBER) if self.checkpoint is None else self.checkpoint.value.numbers


class SessionTimes:
    """When appends arrived: what a session found, and what it is told. Threads: any; its session sets it.

    Args:
        recovered: what it found.

    Attributes:
        log: tells of what is appended; None = nobody does.
        counted: the commit that the newest checkpoint goes up to.
    """

    def __init__(self, recovered: Recovered) -> None:
        self.known = recovered.times
        self._numbers = recovered.numbers
        self._starts = recovered.starts
        self.log: TimeLog | None = None
        self.counted = self.known.covered

    def added_to(self, claims: Claims) -> Claims:
        """The same with times, for the list."""
        if claims.facts is None:
            return claims
        columns = (claims.stream_ids, claims.starts, claims.ends)
        if self.log is None:
            times, numbers = no_rows(TIME_RECORD), no_rows(WRITER_NUMBER)
        else:
            times, numbers = self.log.appended(*columns), self.log.numbered(*columns)
        return replace(claims, facts=replace(claims.facts, times=times, counted=self.counted, numbers=numbers))

    def kept(self, ends: StreamEnds) -> Rows:
        """For a checkpoint: those of all streams that end here; none at all if they were too many."""
        rows = no_rows(TIME_RECORD) if self.log is None else self.log.kept(ends)
        others = self.known.without(self._logged())
        rows = join_rows(rows, others[np.isin(others["stream_id"], ends.stream_ids)])
        return by_stream(rows, "record") if len(rows) <= ROWS_MAX else no_rows(TIME_RECORD)

    def kept_numbers(self, ends: StreamEnds, since: Rows) -> Rows:
        """For a checkpoint: those of all streams that end here, of the writers that wrote last if they are too many.

        Args:
            ends: of the streams.
            since: rows of the node's list.
        """
        rows = no_rows(WRITER_NUMBER) if self.log is None else self.log.kept_numbers(ends)
        known = self._known_numbers(since)
        is_kept = np.isin(known["stream_id"], ends.stream_ids) & ~np.isin(known["stream_id"], self._logged())
        rows = join_rows(rows, known[is_kept])
        if len(rows) > NUMBERS_MAX:
            rows = rows[np.argsort(-rows["value"], kind="stable")[:NUMBERS_MAX]]
        return rows[np.argsort(rows["stream_id"], kind="stable")]

    def begin(self, ranges: Rows) -> None:
        """Streams are open here, by these ranges."""
        self._starts = self._starts.with_higher_ends(ranges["stream_id"], ranges["start"])

    def numbers_of(self, stream_id: int, since: Rows) -> KnownNumbers:
        """Numbers of writers of a stream. O(rows).

        Args:
            stream_id: the stream.
            since: rows of the node's list.
        """
        rows, start = self._known_numbers(since), self._starts.end(stream_id) or 0
        is_past = (rows["writer_high"] == 0) & (rows["writer_low"] == 0) & (rows["number"] < start)
        are_missing = bool((rows["stream_id"] == NO_STREAM).any())
        return KnownNumbers(rows[(rows["stream_id"] == stream_id) & ~is_past], start, are_missing)

    def _known_numbers(self, since: Rows) -> Rows:
        """Those of the newest checkpoint, and of the node's list behind it."""
        return join_rows(self._numbers, since[since["commit"] > self.counted])

    def counts(self, commit: int, times: Rows, numbers: Rows) -> None:
        """A checkpoint is written, with these rows."""
        self.known = KnownTimes(commit, times[~np.isin(times["stream_id"], self._logged())])
        self._numbers = numbers
        self.counted = commit

    def _logged(self) -> NDArray[np.int64]:
        return _no_ids() if self.log is None else self.log.stream_ids()


# Opening


def open_session(parts: CatalogParts, node_id: int) -> tuple[Versioned[NodeList], Recovered]:
    """Fence older sessions of a node; gives its list, and what `recover_ends` gives.

    Requests: two for the list, one or two for the directory, one for the counter, one or two a shard, one for the
    checkpoint, and one an object that was committed after it without time records; for a new node one more a shard, and
    one a list.

    Raises:
        CatalogDamaged: the node's list, the directory, a shard or the counter was deleted, or the counter is not above
            the ids in the list. Nothing was written.
        StoreError, TableError: the catalog could not be read or written.
        CorruptObject, KeyMissing: an object committed after the checkpoint could not be opened.
    """
    directory = parts.keys.directory()
    seen_directory = directory.read()  # before the list: a first session writes it afterwards
    known = require(None if seen_directory is None else seen_directory.value, directory.where)
    seen = _opened_list(parts, node_id, known)
    directory.change(lambda now: _with_node(require(now, directory.where), node_id), seen=seen_directory)
    adopt = partial(_adopt, parts, node_id, seen.value.epoch)
    shards = [seen_shard.value for seen_shard in map_bounded(parts.executor, adopt, range(parts.format.stream_buckets))]
    parts.ids.note(highest_id(*shards))
    return seen, recover_ends(parts, seen.value, shards)


def with_session_number(shard: StreamShard, node_id: int, session_number: int) -> StreamShard | None:
    """A shard whose open ranges of this node are of this session; None if they are so already, or of a newer one."""
    ranges = shard.ranges
    older = (ranges["node_id"] == node_id) & (ranges["end"] == OPEN) & (ranges["epoch"] < session_number)
    if not older.any():
        return None
    raised = ranges.copy()
    raised["epoch"][older] = session_number
    return StreamShard(shard.bucket, shard.streams, raised, shard.stream_objects, shard.retired)


def _opened_list(parts: CatalogParts, node_id: int, known: NodeDirectory) -> Versioned[NodeList]:
    key = parts.keys.node_list(node_id)
    seen = key.read()
    if seen is None:
        _refuse_lost_list(parts, known, node_id, key.where)
        _note_ids_of_others(parts, known)
        parts.ids.refuse_lost()
        return key.change(lambda now: with_new_session(now or NodeList(node_id)))
    parts.ids.note(highest_id(seen.value))
    parts.ids.refuse_lost()
    return key.change(lambda now: with_new_session(require(now, key.where)), seen=seen)


def _refuse_lost_list(parts: CatalogParts, directory: NodeDirectory, node_id: int, where: str) -> None:
    """Refuse a node that has written before, and has no list.

    Raises:
        CatalogDamaged: it is one.
    """
    traces = []
    if node_id in directory.node_ids:
        traces.append("the directory names the node")
    if parts.keys.checkpoint(node_id).read() is not None:
        traces.append("it has a checkpoint")
    shards = map_bounded(parts.executor, partial(_shard, parts), range(parts.format.stream_buckets))
    ranges = sum(int((shard.value.ranges["node_id"] == node_id).sum()) for shard in shards)
    if ranges:
        traces.append(f"it has {ranges} ranges of streams")
    if traces and parts.keys.node_list(node_id).read() is None:  # another first session may have made it meanwhile
        raise CatalogDamaged(f"expected the list of node {node_id} in {where}, found none, but {' and '.join(traces)}")


def _note_ids_of_others(parts: CatalogParts, directory: NodeDirectory) -> None:
    # A new node has no list that shows which ids are in use. One of another node that cannot be read shows nothing.
    for node_id in directory.node_ids.tolist():
        with suppress(AccelError):
            seen = parts.keys.node_list(node_id).read()
            parts.ids.note(-1 if seen is None else highest_id(seen.value))


def _with_node(known: NodeDirectory, node_id: int) -> NodeDirectory | None:
    if node_id in known.node_ids:
        return None
    return replace(known, node_ids=np.union1d(known.node_ids, np.array([node_id], dtype=np.int64)))


def _adopt(parts: CatalogParts, node_id: int, session_number: int, number: int) -> Versioned[StreamShard]:
    seen = _shard(parts, number)
    key = parts.keys.shard(number)
    return key.change(lambda now: with_session_number(require(now, key.where), node_id, session_number), seen=seen)


def _shard(parts: CatalogParts, number: int) -> Versioned[StreamShard]:
    key = parts.keys.shard(number)
    return require(key.read(), key.where)


# Recovering the ends


def recover_ends(parts: CatalogParts, node_list: NodeList, shards: Sequence[StreamShard]) -> Recovered:
    """Where the node's open streams end, how many indexes had to be opened to learn it, and times of appends.

    Requests: one for the checkpoint, and one an object committed since (two if its index is large), but for those
    whose commits tell when appends arrived: see `told_by_times`.

    Raises:
        CatalogDamaged: the checkpoint or a shard knows of more commits than the list has seen, or the checkpoint or an
            object of streams that no shard knows: one of them went back.
        StoreError, CorruptObject: an object that is listed could not be opened.
    """
    node_id = node_list.node_id
    for number, shard in enumerate(shards):
        for rows in (shard.stream_objects, shard.retired):
            mine = rows["added_by"][rows["node_id"] == node_id]
            refuse_behind(parts, node_list, int(mine.max(initial=-1)), f"stream shard {number}")
    known = np.unique(np.concatenate([shard.streams["stream_id"] for shard in shards]))
    owned, starts = _open_streams(node_id, shards)
    ends = StreamEnds.of(owned, starts)
    checkpoint = parts.keys.checkpoint(node_id).read()
    covered, times = -1, no_rows(TIME_RECORD)
    if checkpoint is not None:
        covered, times = checkpoint.value.order_id, checkpoint.value.times
        refuse_behind(parts, node_list, covered, "its checkpoint")
        _refuse_strangers(parts, known, checkpoint.value.ends["stream_id"], f"the checkpoint of node {node_id}")
        ends = ends.with_higher_ends(checkpoint.value.ends["stream_id"], checkpoint.value.ends["end"])
    since = node_list.live[node_list.live["last_order_id"] > covered]
    is_told, told_ends = told_by_times(since, node_list.times)
    _refuse_strangers(parts, known, told_ends.stream_ids, f"the list of node {node_id}")
    ends = ends.with_higher_ends(told_ends.stream_ids, told_ends.ends).without_others(owned)
    for opened in parts.open_all(node_id, refs_of(since[~is_told])):
        stream_ids, _, object_ends = columns_of(opened.ranges)
        _refuse_strangers(parts, known, stream_ids, f"object {opened.ref.object_id} in the list of node {node_id}")
        ends = ends.with_higher_ends(stream_ids, object_ends).without_others(owned)
    for rows in [node_list.stream_objects, *(shard.stream_objects for shard in shards)]:
        ends = ends.with_higher_ends(rows["stream_id"], rows["end"])
    for shard in shards:
        ends = ends.with_higher_ends(shard.streams["stream_id"], shard.streams["start_offset"])
    known_times = KnownTimes(covered, times, node_list.times[node_list.times["commit"] > covered])
    starts_now = StreamEnds.of(owned, starts)
    return Recovered(ends.without_others(owned), len(since), known_times, checkpoint, starts_now)


def told_by_times(objects: Rows, times: Rows) -> tuple[NDArray[np.bool_], StreamEnds]:
    """Which objects need not be opened, since time records tell where all their streams end; and these ends.

    A stream has one block or more in an object, and the object's index has 36 bytes a block. So an object with as many
    blocks as its commit has streams with records has no other stream. One that a compaction made is always opened.

    Args:
        objects: LIVE rows.
        times: TIME_RECORD rows of the list: of each append of a commit, or of none.

    Complexity: O(n log n) for n records.
    """
    pairs = np.unique(times[["commit", "stream_id"]])
    commits, streams = np.unique(pairs["commit"], return_counts=True)
    if not len(commits):
        return np.zeros(len(objects), dtype=np.bool_), StreamEnds()
    at = np.minimum(np.searchsorted(commits, objects["order_id"]), len(commits) - 1)
    is_told = (commits[at] == objects["order_id"]) & (objects["order_id"] == objects["last_order_id"])
    is_told &= streams[at] * ROW_SIZE_BYTES == objects["index_size_bytes"]
    rows = times[np.isin(times["commit"], objects["order_id"][is_told])]
    return is_told, StreamEnds.of(rows["stream_id"], rows["end"])


def refuse_behind(parts: CatalogParts, node_list: NodeList, commit: int, witness: str) -> None:
    """Refuse a list that has not seen a commit which somebody else knows of.

    Raises:
        CatalogDamaged: it has not.
    """
    if commit < node_list.next_order_id:
        return
    now = parts.keys.node_list(node_list.node_id).read()  # a newer session may have committed it just now
    if now is None or commit >= now.value.next_order_id:
        seen = "no list" if now is None else f"{now.value.next_order_id}"
        where = f"list of node {node_list.node_id}"
        raise CatalogDamaged(
            f"{where}: expected the {commit + 1} commits that {witness} knows, found {seen}: put back?"
        )


def _refuse_strangers(
    parts: CatalogParts, known: NDArray[np.int64], stream_ids: NDArray[np.int64], witness: str
) -> None:
    """Refuse shards that do not know a stream which somebody else knows: a shard never forgets one.

    Raises:
        CatalogDamaged: they do not.
    """
    strangers = np.setdiff1d(stream_ids, known)
    numbers = np.unique(shards_of(strangers, parts.format.stream_buckets)).tolist()
    now = [must_read(parts.keys.shard(number)).value.streams["stream_id"] for number in numbers]
    strangers = np.setdiff1d(strangers, joined_ids(now))  # a newer session may have opened some just now
    if len(strangers):
        expected = f"streams {some(strangers)}, which {witness} knows"
        raise CatalogDamaged(f"stream shards: expected {expected}, found none of them: put back?")


def _open_streams(node_id: int, shards: Sequence[StreamShard]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    rows = np.concatenate([shard.ranges for shard in shards])
    mine = rows[(rows["node_id"] == node_id) & (rows["end"] == OPEN)]
    return mine["stream_id"], mine["start"]
