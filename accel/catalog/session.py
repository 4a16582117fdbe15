"""Opening a session, recovering the ends of the node's streams, and the objects that a commit adds.

From the moment `open_session` returns, no other session commits for this node:

    1. the counter of ids   read after the node's list (or all other lists, if the node is new): a counter that is not
                            above the ids in it went back
    2. the node's list      its session number is raised; every later commit of an older session is refused
    3. the directory        the node is added, if it is new
    4. the stream shards    the session number of the node's open ranges is raised, so that an older session cannot
                            close one of the streams any more at an outdated end
    5. the ends             the ends of these streams are recovered (`recover_ends`)

A crash in between leaves a node without a session, and the next opening starts over.

Only a node that has never written gets a new list. If the directory names the node, a stream has a range of it, or it
has a checkpoint, the node's list was deleted: with an empty list in its place, the offsets of its streams would start
again at 0, and all its objects would look like orphans.

**Recovering the ends.** The end of an open stream is not stored in one place: that would cost a write for each stream
and upload. The end is the highest of

    the checkpoint of the node        ends as of some order id, written at intervals of commits
    objects of the list since then    their indexes, one GET each; or the time records of their commits, no GET
    objects of one stream             in the shards, and in the list until they are moved there
    the stream itself                 the start of its open range, and its first kept offset: data below that may be
                                      gone from all objects

This holds while objects are compacted, too: an output of a compaction counts as "since" if any of its sources does
(`last_order_id`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from accel.catalog.keys import must_read, require
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
    joined_ids,
    no_rows,
    refs_of,
    some,
    stream_object_rows,
)
from accel.catalog.stream_shards import shards_of
from accel.errors import AccelError, CatalogDamaged, CatalogWentBack, CommitRefused, CommitsLost
from accel.image import StreamObject
from loaders.errors import StoreError
from loaders.format import ROW_SIZE_BYTES
from loaders.object_ref import ObjectRef
from loaders.tables.columns import ROWS_MAX
from loaders.tables.typed_key import TypedKey
from loaders.threads import map_bounded
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
        """From columns in any order; of a stream with several ends, the highest counts.

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
        """The next offset of a stream; None for other streams. Complexity: O(log n)."""
        at = int(np.searchsorted(self.stream_ids, stream_id))
        if at == len(self) or self.stream_ids[at] != stream_id:
            return None
        return int(self.ends[at])

    def with_higher_ends(self, stream_ids: NDArray[np.int64], ends: NDArray[np.int64]) -> StreamEnds:
        """The ends, raised to the given ones where those are higher, with new streams added. Complexity: O(n log n)."""
        return StreamEnds.of(np.concatenate((self.stream_ids, stream_ids)), np.concatenate((self.ends, ends)))

    def without_others(self, stream_ids: NDArray[np.int64]) -> StreamEnds:
        """The ends of these streams only."""
        kept = np.isin(self.stream_ids, stream_ids)
        return StreamEnds(self.stream_ids[kept], self.ends[kept])

    def without(self, stream_ids: NDArray[np.int64]) -> StreamEnds:
        """The ends of all streams but these."""
        kept = ~np.isin(self.stream_ids, stream_ids)
        return StreamEnds(self.stream_ids[kept], self.ends[kept])

    def reach(self, stream_ids: NDArray[np.int64], ends: NDArray[np.int64]) -> bool:
        """Whether all these streams end at these offsets or above. Complexity: O(m log n)."""
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
            CommitRefused: a stream that is not open here, a range that does not begin at its stream's end, or an empty
                range; the error names the first, with what was expected and found.

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
                    f"found [{starts[first]}, {ends[first]}){known} ({len(positions)} streams in all)"
                )


def columns_of(ranges: ObjectRanges) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Stream ids, starts and ends of an object's ranges."""
    starts = ranges.starts.astype(np.int64)
    return ranges.stream_ids, starts, starts + ranges.lengths.astype(np.int64)


# The objects that a commit adds


@dataclass(frozen=True, slots=True, eq=False)
class Claims:
    """The objects of one commit with their ranges.

    Args:
        facts: the stream set object, if there is one.
        rows: STREAM_OBJECT rows.
        stream_ids: the streams of all objects, ascending, each once.
        starts: of the same length.
        ends: of the same length.
        to_look_at: an object that must still be checked to be at its key; None if all are known to be there.
    """

    facts: ObjectFacts | None
    rows: Rows
    stream_ids: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    to_look_at: ObjectRef | None = None

    def object_ids(self) -> NDArray[np.int64]:
        """The ids of all objects of the commit."""
        own = [] if self.facts is None else [self.facts.object_id]
        return np.concatenate((np.array(own, dtype=np.int64), self.rows["object_id"]))

    def are_listed(self, node_list: NodeList) -> bool:
        """Whether a list has any of these objects: then it has them all, because one write adds them."""
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
    """The claims of a commit.

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
    """The times of appends to the node's streams, from its checkpoint and its list. Threads: immutable, any.

    Args:
        covered: the last commit that the checkpoint covers.
        checkpoint: TIME_RECORD rows of the checkpoint.
        since: TIME_RECORD rows of the list, of commits after the checkpoint.
    """

    covered: int = -1
    checkpoint: Rows = field(default_factory=lambda: no_rows(TIME_RECORD))
    since: Rows = field(default_factory=lambda: no_rows(TIME_RECORD))

    def of(self, stream_id: int) -> Rows:
        """The TIME_RECORD rows of a stream with consecutive records, up to the first gap.

        The first row is record 0, or the last record that has moved to a part of the time index. Rows after a gap are
        ignored: they follow appends whose times are missing in the list. O(rows).
        """
        first, after = np.searchsorted(self.checkpoint["stream_id"], [stream_id, stream_id + 1])
        rows = join_rows(self.checkpoint[first:after], self.since[self.since["stream_id"] == stream_id])
        if first == after and len(rows) and rows["record"][0] != 0:
            return no_rows(TIME_RECORD)
        follows = (np.diff(rows["record"]) == 1) & (np.diff(rows["end"]) > 0) & (np.diff(rows["value"]) >= 0)
        breaks = np.flatnonzero(~follows)
        return rows[: breaks[0] + 1] if len(breaks) else rows

    def without(self, stream_ids: NDArray[np.int64]) -> Rows:
        """The rows of all streams but these, ascending by (stream id, record)."""
        others = np.unique(np.concatenate((self.checkpoint["stream_id"], self.since["stream_id"])))
        others = others[~np.isin(others, stream_ids)]
        pieces = [self.of(stream_id) for stream_id in others.tolist()]
        return by_stream(np.concatenate([no_rows(TIME_RECORD), *pieces]), "record")


NUMBERS_MAX = 65_536
"""The maximum number of WRITER_NUMBER rows of a checkpoint."""


class TimeLog(Protocol):
    """Records the times of appends to streams, and the numbers of their events. Threads: any."""

    def appended(self, stream_ids: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Rows:
        """TIME_RECORD rows of the appends within these ranges, without their commit; each stream is passed once."""
        ...

    def kept(self, ends: StreamEnds) -> Rows:
        """The rows of the log's streams up to these ends, as in `Checkpoint.times`."""
        ...

    def numbered(self, stream_ids: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Rows:
        """WRITER_NUMBER rows of the events within these ranges, without their commit, one a stream and writer."""
        ...

    def kept_numbers(self, ends: StreamEnds) -> Rows:
        """The rows of the log's streams up to these ends, as in `Checkpoint.numbers`."""
        ...

    def stream_ids(self) -> NDArray[np.int64]:
        """The streams of the log."""
        ...


class KnownNumbers(NamedTuple):
    """Which events of writers are durable in a stream, from the node's checkpoint and its list.

    Args:
        rows: WRITER_NUMBER rows of the stream. Rows that claim to be complete and are of an earlier range are left out:
            another node had the stream in between.
        start: the start of the node's range of the stream; 0 if the stream is not open.
        are_missing: whether some rows were left out, because they were too many.
    """

    rows: Rows
    start: int
    are_missing: bool


class Recovered(NamedTuple):
    """The state of a node's streams that a new session recovers.

    Args:
        ends: the ends of the streams that are open on the node.
        opened: the number of objects that were committed since the checkpoint.
        times: the times of appends to the node's streams.
        checkpoint: the node's checkpoint; None if there is none.
        starts: the starts of the node's open ranges of the streams.
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
    """The times of appends: those that a session recovered, and those of its log. Threads: any; its session sets them.

    Args:
        recovered: the state that the session recovered.

    Attributes:
        log: returns the times of new appends; None = their times are not recorded.
        counted: the last commit that the newest checkpoint covers.
    """

    def __init__(self, recovered: Recovered) -> None:
        self.known = recovered.times
        self._numbers = recovered.numbers
        self._starts = recovered.starts
        self.log: TimeLog | None = None
        self.counted = self.known.covered

    def added_to(self, claims: Claims) -> Claims:
        """The claims with their times and numbers, for the list."""
        if claims.facts is None:
            return claims
        columns = (claims.stream_ids, claims.starts, claims.ends)
        if self.log is None:
            times, numbers = no_rows(TIME_RECORD), no_rows(WRITER_NUMBER)
        else:
            times, numbers = self.log.appended(*columns), self.log.numbered(*columns)
        return replace(claims, facts=replace(claims.facts, times=times, counted=self.counted, numbers=numbers))

    def kept(self, ends: StreamEnds) -> Rows:
        """TIME_RECORD rows for a checkpoint, of all streams in `ends`; no rows if they would be too many."""
        rows = no_rows(TIME_RECORD) if self.log is None else self.log.kept(ends)
        others = self.known.without(self._logged())
        rows = join_rows(rows, others[np.isin(others["stream_id"], ends.stream_ids)])
        return by_stream(rows, "record") if len(rows) <= ROWS_MAX else no_rows(TIME_RECORD)

    def kept_numbers(self, ends: StreamEnds, since: Rows) -> Rows:
        """WRITER_NUMBER rows for a checkpoint; if they are too many, those of the writers that wrote last.

        Args:
            ends: of the streams.
            since: rows of the node's list.
        """
        rows = no_rows(WRITER_NUMBER) if self.log is None else self.log.kept_numbers(ends)
        known = self._known_numbers(since)
        is_kept = np.isin(known["stream_id"], ends.stream_ids) & ~np.isin(known["stream_id"], self._logged())
        rows = join_rows(rows, known[is_kept])
        if len(rows) > NUMBERS_MAX:
            rows = _last_writers(rows)
        return rows[np.argsort(rows["stream_id"], kind="stable")]

    def begin(self, ranges: Rows) -> None:
        """Note the starts of ranges that were opened on the node."""
        self._starts = self._starts.with_higher_ends(ranges["stream_id"], ranges["start"])

    def numbers_of(self, stream_id: int, since: Rows) -> KnownNumbers:
        """The numbers of the writers of a stream. O(rows).

        Args:
            stream_id: the stream.
            since: rows of the node's list.
        """
        rows, start = self._known_numbers(since), self._starts.end(stream_id) or 0
        is_past = (rows["writer_high"] == 0) & (rows["writer_low"] == 0) & (rows["number"] < start)
        are_missing = bool((rows["stream_id"] == NO_STREAM).any())
        return KnownNumbers(rows[(rows["stream_id"] == stream_id) & ~is_past], start, are_missing)

    def _known_numbers(self, since: Rows) -> Rows:
        """The rows of the newest checkpoint, and those of the node's list after it."""
        return join_rows(self._numbers, since[since["commit"] > self.counted])

    def counts(self, commit: int, times: Rows, numbers: Rows) -> None:
        """Note that a checkpoint was written, with these rows."""
        self.known = KnownTimes(commit, times[~np.isin(times["stream_id"], self._logged())])
        self._numbers = numbers
        self.counted = commit

    def _logged(self) -> NDArray[np.int64]:
        return _no_ids() if self.log is None else self.log.stream_ids()


def _last_writers(rows: Rows) -> Rows:
    """The rows of the writers that wrote last; rows without a writer say where others were forgotten."""
    is_whole = (rows["writer_high"] == 0) & (rows["writer_low"] == 0)
    order = np.lexsort((-rows["value"], ~is_whole))
    kept, lost = rows[order[:NUMBERS_MAX]], rows[order[NUMBERS_MAX:]]
    kept["settled"][is_whole[order[:NUMBERS_MAX]] & np.isin(kept["stream_id"], lost["stream_id"])] = 1
    return kept


# Looking back

LOOK_SECONDS = 10.0
"""A session compares its list with the stored one, if commits are made, after this time."""

ACKNOWLEDGED_MAX = 10_000
"""The maximum number of objects that a session looks for."""


class Acknowledged:
    """The objects of a session's commits, and whether the node's list still has them.

    A session writes its list without reading it, since the store says that the condition held. If a gateway drops the
    condition, two writers replace each other's lists, and both are told that all is well. So from time to time the list
    is compared with the session's last version: one must follow from the other, as far as their 8 ancestors show, and
    the objects of commits since the checkpoint must be listed, live or retired. Objects are looked for only while no
    collector can have deleted them. Objects of one stream are not looked for: they move to stream shards.

    Threads: one at a time, as the session.

    Args:
        parts: of the catalog.
        key: the node's list.
        followed: returns the list that a follower of this process read last; None if none did.
    """

    def __init__(
        self, parts: CatalogParts, key: TypedKey[NodeList], followed: Callable[[], Versioned[NodeList] | None]
    ) -> None:
        self._parts = parts
        self._key = key
        self._followed = followed
        self._compared: Versioned[NodeList] | None = None
        self._looked_seconds = parts.system.timer()
        self._looked_at = 0
        self._back_before = parts.keys.went_back
        self._ids: dict[int, tuple[float, float]] = {}
        self._counted: tuple[int, ...] = ()

    @contextmanager
    def watched(self, seen: Callable[[], Versioned[NodeList]], stop: Callable[[AccelError], object]) -> Iterator[None]:
        """Carry out a call of the session; if any key went back, here or elsewhere in this process, it is stopped.

        Args:
            seen: returns the list as the session wrote or read it last.
            stop: ends the session with an error.

        Raises:
            CommitsLost: commits were lost, or the call found that its list went back.
            CatalogWentBack: another key went back.
        """
        try:
            if (back := self._parts.keys.went_back) is not self._back_before and back is not None:
                raise copy(back)
            yield
        except CatalogWentBack as error:
            lost = None if isinstance(error, CommitsLost) else self._lost(seen())
            stop(lost or error)
            if lost is not None:
                raise lost from error
            raise

    def _lost(self, seen: Versioned[NodeList]) -> CommitsLost | None:
        try:
            self.compare(seen, self._key.fetch(None), is_newest=True)
        except CommitsLost as lost:
            return lost
        except AccelError:
            return None  # that the catalog went back is enough
        return None

    def add(self, claims: Iterable[Claims]) -> None:
        """Note that commits were acknowledged."""
        now = self._parts.system.timer(), self._parts.system.clock()
        self._ids |= {each.facts.object_id: now for each in claims if each.facts is not None}
        while len(self._ids) > ACKNOWLEDGED_MAX:
            del self._ids[next(iter(self._ids))]

    def count(self) -> None:
        """Note that a checkpoint was written: after the next look, the objects so far are not looked for any more."""
        self._counted = tuple(self._ids)

    def look_back(self, seen: Versioned[NodeList], *, at_once: bool = False) -> None:
        """Compare the session's list with the stored one. No request as a rule; at most one, mostly without a body.

        Args:
            seen: the list as the session wrote or read it last.
            at_once: whether to look however short ago the last look was.

        Raises:
            CommitsLost: commits are missing.
        """
        followed, now_seconds = self._followed(), self._parts.system.timer()
        if followed is not None and followed is not self._compared:
            self._compared = followed
            self.compare(seen, followed, is_newest=followed.version.sequence >= seen.version.sequence)
            if followed.version.sequence >= self._looked_at:
                self._looked(seen, now_seconds)
        if at_once or now_seconds - self._looked_seconds >= LOOK_SECONDS:
            with suppress(StoreError):
                self.compare(seen, self._key.fetch(seen), is_newest=True)
                self._looked(seen, now_seconds)

    def compare(self, seen: Versioned[NodeList], found: Versioned[NodeList] | None, *, is_newest: bool) -> None:
        """Compare the session's list with another version. No request.

        Args:
            seen: as for `look_back`.
            found: the other version; None = the key is missing.
            is_newest: whether `found` must be the same version or a later one; otherwise it may be an earlier one.

        Raises:
            CommitsLost: commits are missing.
        """
        if found is seen:
            return
        follows = found is not None and (
            found.version.follows(seen.version) or (not is_newest and seen.version.follows(found.version))
        )
        lost = self._missing(found) if is_newest or not follows else ()
        if lost or not follows:
            now = None if found is None else (found.version.sequence, found.version.nonce)
            raise CommitsLost(self._key.where, (seen.version.sequence, seen.version.nonce), now, lost)

    def _missing(self, found: Versioned[NodeList] | None) -> tuple[int, ...]:
        record, system = self._parts.format, self._parts.system
        kept_seconds = max(record.retention_seconds, 2 * record.max_image_age_seconds)
        # A timer may stop while the machine sleeps, and a clock may be set back: each may say that it was long ago.
        timer, clock = system.timer() - kept_seconds, system.clock() - kept_seconds
        self._ids = {each: at for each, at in self._ids.items() if at[0] > timer and at[1] > clock}
        ids = np.fromiter(self._ids, dtype=np.int64)
        if found is not None:
            ids = ids[~np.isin(ids, joined_ids([found.value.live["object_id"], found.value.retired["object_id"]]))]
        return tuple(ids.tolist())

    def _looked(self, seen: Versioned[NodeList], now_seconds: float) -> None:
        self._looked_seconds, self._looked_at = now_seconds, seen.version.sequence
        for object_id in self._counted:
            self._ids.pop(object_id, None)
        self._counted = ()


# Opening


def open_session(parts: CatalogParts, node_id: int) -> tuple[Versioned[NodeList], Recovered]:
    """Fence older sessions of a node; returns its list, and the result of `recover_ends`.

    Requests: two for the list, one or two for the directory, one for the counter, one or two a shard, one for the
    checkpoint, and one for each object that was committed after it without time records; for a new node one more a
    shard, and one a list.

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
    """The shard with this session number in the node's open ranges; None if all have it already, or a higher one."""
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
    """Refuse to open a node that has written before, but has no list.

    Raises:
        CatalogDamaged: the node has written before.
    """
    traces = []
    if node_id in directory.node_ids:
        traces.append("the directory names the node")
    if parts.keys.checkpoint(node_id).read() is not None:
        traces.append("it has a checkpoint")
    shards = map_bounded(parts.executor, must_read, map(parts.keys.shard, range(parts.format.stream_buckets)))
    ranges = sum(int((shard.value.ranges["node_id"] == node_id).sum()) for shard in shards)
    if ranges:
        traces.append(f"it has {ranges} ranges of streams")
    if traces and parts.keys.node_list(node_id).read() is None:  # another first session may have made it meanwhile
        raise CatalogDamaged(f"expected the list of node {node_id} in {where}, found none, but {' and '.join(traces)}")


def _note_ids_of_others(parts: CatalogParts, directory: NodeDirectory) -> None:
    # A new node has no list with the ids in use, so the lists of other nodes are read; unreadable lists are skipped.
    for node_id in directory.node_ids.tolist():
        with suppress(AccelError):
            seen = parts.keys.node_list(node_id).read()
            parts.ids.note(-1 if seen is None else highest_id(seen.value))


def _with_node(known: NodeDirectory, node_id: int) -> NodeDirectory | None:
    if node_id in known.node_ids:
        return None
    return replace(known, node_ids=np.union1d(known.node_ids, np.array([node_id], dtype=np.int64)))


def _adopt(parts: CatalogParts, node_id: int, session_number: int, number: int) -> Versioned[StreamShard]:
    key = parts.keys.shard(number)
    seen = must_read(key)
    return key.change(lambda now: with_session_number(require(now, key.where), node_id, session_number), seen=seen)


# Recovering the ends


def recover_ends(parts: CatalogParts, node_list: NodeList, shards: Sequence[StreamShard]) -> Recovered:
    """Recover the ends of the node's open streams, and the times of appends.

    Requests: one for the checkpoint, and one for each object committed since (two if its index is large); none for
    objects whose commits have time records: see `told_by_times`.

    Raises:
        CatalogDamaged: the checkpoint or a shard contains a later commit than the list, or the checkpoint or an object
            contains streams that no shard contains: one of the records went back.
        StoreError, CorruptObject: a listed object could not be opened.
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
    """Which objects need not be opened, because time records contain the ends of all their streams; and these ends.

    A stream has one block or more in an object, and the object's index has 36 bytes a block. So if the number of blocks
    of an object equals the number of streams with records in its commit, the object has no other stream. An output of a
    compaction is always opened.

    Args:
        objects: LIVE rows.
        times: TIME_RECORD rows of the list, which has rows for all appends of a commit or for none.

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
    """Refuse a list that lacks a commit which another record contains.

    Raises:
        CatalogDamaged: the list lacks the commit.
    """
    if commit < node_list.next_order_id:
        return
    now = parts.keys.node_list(node_list.node_id).read()  # a newer session may have committed it just now
    if now is None or commit >= now.value.next_order_id:
        seen = "no list" if now is None else f"{now.value.next_order_id}"
        where = f"list of node {node_list.node_id}"
        raise CatalogDamaged(
            f"{where}: expected the {commit + 1} commits that {witness} contains, found {seen}: put back?"
        )


def _refuse_strangers(
    parts: CatalogParts, known: NDArray[np.int64], stream_ids: NDArray[np.int64], witness: str
) -> None:
    """Refuse shards that lack a stream which another record contains: a stream is never removed from its shard.

    Raises:
        CatalogDamaged: the shards lack a stream.
    """
    unknown = np.setdiff1d(stream_ids, known)
    numbers = np.unique(shards_of(unknown, parts.format.stream_buckets)).tolist()
    now = [must_read(parts.keys.shard(number)).value.streams["stream_id"] for number in numbers]
    unknown = np.setdiff1d(unknown, joined_ids(now))  # a newer session may have opened some just now
    if len(unknown):
        expected = f"streams {some(unknown)}, which {witness} contains"
        raise CatalogDamaged(f"stream shards: expected {expected}, found none of them: put back?")


def _open_streams(node_id: int, shards: Sequence[StreamShard]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    rows = np.concatenate([shard.ranges for shard in shards])
    mine = rows[(rows["node_id"] == node_id) & (rows["end"] == OPEN)]
    return mine["stream_id"], mine["start"]
