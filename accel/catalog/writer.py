"""A write session of one node: upload objects, open and close streams.

    with catalog.open_node(4) as writer:
        writer.open_streams([420000])
        writer.upload({420000: batches})

`upload` prepares an id, writes the object at its key, and commits it. A broker that writes objects by itself takes
these steps one by one: `prepare`, an `ObjectWriter` with the layout of the catalog, `commit_upload`. An object is
committed only if it is at its key, where readers of this catalog look for it: an `ObjectWriter` of this process has
written it there, or else (and in a folder always, since it may have been replaced) one request checks the key.

The session has the ends of its streams and the node's list in memory, so an upload is checked without a request, and
committed by one conditional write, whatever its number of streams. A change of the list by another process (a
compaction, the collector) costs one more read. A newer session of the same node ends this session: `SessionFenced`. A
commit that fails with an error of the store may have happened. The session finds out before it commits anything else:
the same object may be committed again, and another object with the same offsets is refused if the commit happened.

The list in memory is what the store has acknowledged. Where conditions of writes are dropped on the way, it may be
gone: the session looks back every 10 seconds of commits and at its end, and ends with `CommitsLost`.

Another node may take streams over from this node (`takeover`). The session finds out when it commits, closes or opens
such streams: `StreamsReleased`. It then drops these streams and keeps the others. Opening a dropped stream again raises
an error that names its node, or takes the stream back if the other node crashed before it had moved the stream.

Failures of an upload:

| failure                             | consequence                                                                 |
|-------------------------------------|-----------------------------------------------------------------------------|
| another object is at the id's key   | the counter is compared with all lists; if it is right, another id is taken |
| and its mark is not of this catalog | another system writes here: the session ends, and nothing is committed      |
| the reply to the put is lost        | the key is read: the object is written, or is sent again                    |
| the reply to the commit is lost     | the list is read: the commit is made, or is sent again                      |
| that fails, too                     | the session keeps the object: an upload of the same batches commits it      |
| the process crashes                 | the id's deadline passes, and the collector deletes the object, if any      |
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass

import numpy as np

from accel.catalog.argument_checks import (
    StreamBatches,
    Wanted,
    check_ref,
    check_stream_object,
    checked_count,
    checked_offsets,
    checked_owners,
    checked_starts,
    checked_streams,
    data_time_ms_of,
    deadline_ms_after,
    digest_of,
    ordered,
    refuse_discontinuous,
)
from accel.catalog.keys import require
from accel.catalog.node_list import (
    TIMES_MAX,
    refuse_clones,
    refuse_released,
    with_prepared,
    with_upload,
    without_released,
)
from accel.catalog.parts import MILLISECONDS, CatalogParts, first_unproven, refuse_misplaced
from accel.catalog.records import STREAM_END, Checkpoint, NodeList, Rows, highest_id, ids_of, make_rows
from accel.catalog.session import (
    Acknowledged,
    Claims,
    KnownNumbers,
    Recovered,
    SessionTimes,
    StreamEnds,
    TimeLog,
    make_claims,
)
from accel.catalog.shard_writes import close_ranges, move_stream_objects, open_ranges, trim_streams
from accel.catalog.takeover import KeepNumbers, SessionReleases, move_streams
from accel.catalog.whole_catalog import list_node_ids
from accel.errors import (
    AccelError,
    CatalogDamaged,
    CatalogWentBack,
    CommitRefused,
    NamespaceShared,
    ObjectExists,
    SessionFenced,
    StreamsReleased,
)
from accel.history.rules.values import checked_arguments
from accel.image import StreamObject
from accel.settings import PREPARED_SECONDS
from loaders.backoff import Backoff
from loaders.errors import StoreError, TableError
from loaders.lifetime import Closing, Lifetime
from loaders.object_ref import ObjectRef
from loaders.object_writer import ObjectWriter
from loaders.versions import Versioned
from range_index import ObjectRanges, RangesGiven

IDS_AHEAD = 4
"""Ids that are kept prepared beyond those in use, so that an upload needs no second write for its id.

The write of each commit tops them up."""

STREAM_OBJECTS_IN_LIST_MAX = 64
"""Objects of one stream that wait in a node's list until they are moved to the stream shards."""

DOUBTFUL_MAX = 1000
"""The maximum number of commits of unknown outcome that a session keeps."""

logger = logging.getLogger(__name__)


class _LandedError(Exception):
    """An earlier commit of unknown outcome was made after all."""


@checked_arguments
class NodeWriter(Closing):
    """One session of a node; `ObjectCatalog.open_node` makes it.

    A session belongs to the process that opened it, and ends with the catalog: in another process every call raises
    WrongProcess, and after the end Closed. A forked process opens a new session, which fences this one.

    Threads: any, but one call at a time; a second simultaneous call raises RuntimeError. Commits of one node are made
    one after another, because each commit continues its streams at the ends of the previous commit.
    """

    def __init__(
        self,
        parts: CatalogParts,
        seen: Versioned[NodeList],
        recovered: Recovered,
        followed: Callable[[], Versioned[NodeList] | None] = lambda: None,
    ) -> None:
        self._lifetime = Lifetime(f"a session of node {seen.value.node_id}", parts.system.process_id)
        self._parts = parts
        self._seen = seen
        self._ends = recovered.ends
        self._checkpoint = recovered.checkpoint
        self._times = SessionTimes(recovered)
        self._key = parts.keys.node_list(seen.value.node_id)
        self._busy = threading.Lock()
        self._ready: deque[tuple[int, int]] = deque()  # ids and their deadlines; each operation on it is one step
        self._doubtful: list[Claims] = []
        self._unsettled: Unsettled | None = None
        self._stopped: AccelError | None = None
        self._backoff = Backoff(parts.system.sleep, parts.system.jitter)
        self._commits_since_checkpoint = recovered.opened
        self._known_commits = seen.value.next_order_id
        self._releases = SessionReleases(seen.value.node_id, seen.value.epoch)
        self._acknowledged = Acknowledged(parts, self._key, followed)
        self.node_id = seen.value.node_id
        self.session_number = seen.value.epoch
        parts.ends.tell_session(self.node_id, self._end_now)

    def _end_block(self, error: BaseException | None) -> None:
        if error is None:
            self.close()

    def __repr__(self) -> str:
        return f"NodeWriter(node {self.node_id}, session {self.session_number}, {len(self._ends)} streams)"

    @property
    def node_list(self) -> NodeList:
        """The node's list as this session read or wrote it last."""
        return self._seen.value

    def end(self, stream_id: int) -> int | None:
        """The offset where the next upload of a stream must start; None if the stream is not open on this node."""
        self._lifetime.check()
        return self._ends.end(stream_id)

    def times(self, stream_id: int) -> Rows:
        """The times of appends to a stream that the session recovered: see `KnownTimes.of`. No request."""
        self._lifetime.check()
        return self._times.known.of(stream_id)

    def numbers(self, stream_id: int) -> KnownNumbers:
        """The numbers of a stream's writers, from the checkpoint and the list that were read last. No request."""
        self._lifetime.check()
        return self._times.numbers_of(stream_id, self._seen.value.numbers)

    def log_times(self, log: TimeLog) -> None:
        """Store the times of appends with commits and checkpoints, so that the next session need not read data."""
        self._times.log = log

    def prepare(self, count: int = 1, deadline_seconds: float = PREPARED_SECONDS) -> list[int]:
        """Prepare ids for objects that are about to be written. No request while ids of earlier commits suffice.

        Args:
            count: the number of ids.
            deadline_seconds: the minimum time that the ids are valid. An object not committed by then may be deleted.

        Raises:
            SessionFenced: a newer session writes for this node.
            InvalidArgument: an invalid count, or a deadline that is not ahead or beyond ten years.
        """
        count = checked_count(count)
        deadline_ms_after(0, deadline_seconds)
        with self._turn():
            return self._prepare(count, deadline_seconds)

    def take_prepared(self, deadline_seconds: float = PREPARED_SECONDS) -> int | None:
        """An id that an earlier commit has prepared; None if there is none. No request; safe during any other call.

        Args:
            deadline_seconds: the minimum time that the id is valid.
        """
        self._lifetime.check()
        self._check_stopped()
        needed_ms = deadline_ms_after(self._parts.now_ms(), deadline_seconds)
        with suppress(IndexError):
            while True:
                object_id, deadline_ms = self._ready.popleft()
                if deadline_ms >= needed_ms:
                    return object_id  # the ids skipped before expire: the collector removes them from the list
        return None

    def upload(
        self,
        streams: StreamBatches,
        *,
        data_time_seconds: float | None = None,
        deadline_seconds: float = PREPARED_SECONDS,
    ) -> Uploaded:
        """Write batches of streams as a new object, and commit it. When it returns, the data is durable and readable.

        One put and one conditional write as a rule; a large object is uploaded by multipart. All batches are in memory
        meanwhile. Failures: see the table in the module's docstring.

        Args:
            streams: {stream id: batches} or (stream id, batches) pairs, in any order of the streams; the batches of a
                stream continue at its end (`end`) without gaps.
            data_time_seconds: when the oldest batch was written, since 1970; now by default.
            deadline_seconds: the maximum time for writing and committing; after that the object may be deleted.

        Returns:
            The object and its ranges.

        Raises:
            CommitRefused: a stream is not open here or not continued at its end, or the deadline passed: not committed.
            StreamsReleased: another node takes some of the streams over; nothing was committed, and the object stays
                unlisted. Upload the other streams without these.
            SessionFenced: a newer session writes for this node; nothing was committed.
            NamespaceShared: another system writes objects under this namespace; nothing was committed, and the session
                has ended: all later calls raise this error.
            CommitsLost: the list lacks earlier commits of this session, which has ended; nothing was committed.
            CatalogDamaged: the counter of ids was deleted or went back.
            FormatError, FormatLimit: batches that the format cannot hold.
            StoreError, AmbiguousWrite, DataConflict: the object may have been committed. Upload the same batches again:
                they are committed once.
        """
        deadline_ms_after(0, deadline_seconds)
        time_ms = data_time_ms_of(self._parts.now_ms(), data_time_seconds)
        wanted = ordered(streams)
        with self._turn():
            self._settle()
            before = self._unsettled
            if before is None or before.digest != digest_of(wanted):
                refuse_discontinuous(wanted, self._ends)
                done = self._write(wanted, deadline_seconds)
                before = Unsettled(done, self._claims(done.ref, done.ranges, {}, time_ms), digest_of(wanted))
            self._unsettled = None
            try:
                self._commit([before.claims])
            except (StoreError, TableError) as error:
                self._unsettled = before
                error.add_note(f"object {before.uploaded.object_id} is written; upload the same batches again")
                raise
            self._upkeep()
            return before.uploaded

    def commit_upload(
        self,
        ref: ObjectRef | None,
        ranges: RangesGiven = (),
        *,
        stream_objects: Mapping[int, StreamObject] | None = None,
        data_time_seconds: float | None = None,
    ) -> None:
        """List an object that was written, and the objects of one stream that belong to the same upload.

        One conditional write, whatever the number of streams. A repetition for the same object changes nothing. One
        request more checks that an object is at its key, unless an `ObjectWriter` of this process has written it there.
        Only one object is checked, because all objects of an upload have the same layout.

        Args:
            ref: the stream set object, with its size and index size; None if the upload has only objects of one stream.
            ranges: its ranges: {stream id: (start, end)}, (stream id, start, end) rows, or `ObjectRanges`.
            stream_objects: {stream id: object of that stream alone}.
            data_time_seconds: when the oldest data was written, since 1970; now by default.

        Raises:
            CommitRefused: a stream is not open here or not continued at its end, an id is not prepared (any more), a
                size is unknown, a limit of the format is exceeded, or an object is not at its key. Nothing was written.
            StreamsReleased: another node takes some of the streams over; nothing was written.
            SessionFenced: a newer session writes for this node; nothing was written.
            StoreError, AmbiguousWrite, DataConflict: the commit may have been written; commit the same object again.
        """
        time_ms = data_time_ms_of(self._parts.now_ms(), data_time_seconds)
        if ref is not None:
            check_ref(ref)
        for stream_id, stream_object in (stream_objects or {}).items():
            check_stream_object(stream_id, stream_object)
        claims = self._claims(ref, ObjectRanges.of(ranges), stream_objects or {}, time_ms)
        with self._turn():
            self._commit([claims])
            self._upkeep()

    def commit_uploads(
        self,
        uploads: Sequence[tuple[ObjectRef, ObjectRanges]],
        *,
        ids_ahead: int | None = None,
        with_upkeep: bool = True,
    ) -> None:
        """List objects that were written in parallel: like `commit_upload` of each in turn, with one write for all.

        Args:
            uploads: objects with their ranges, at least one; each object continues its streams at the ends of the
                objects before it.
            ids_ahead: the number of ids to keep prepared for the next objects; None = `IDS_AHEAD`.
            with_upkeep: whether `upkeep` follows at once; False = the caller calls it later, so that waiters for the
                commit do not wait for the upkeep.

        Raises:
            AccelError: as `commit_upload`, for all objects together.
        """
        time_ms = self._parts.now_ms()
        for ref, _ in uploads:
            check_ref(ref)
        claims = [self._claims(ref, ranges, {}, time_ms) for ref, ranges in uploads]
        with self._turn():
            self._commit(claims, ids_ahead)
            if with_upkeep:
                self._upkeep()

    def upkeep(self) -> None:
        """Do the work due after commits: move objects of one stream to their shards, write a checkpoint if it is due.

        No request as a rule. Failures are logged; CatalogWentBack is raised.
        """
        with self._turn():
            self._upkeep()

    def register_stream_object(self, stream_id: int, stream_object: StreamObject) -> None:
        """List an object of one stream that continues the stream: `commit_upload` of this object only."""
        self.commit_upload(None, stream_objects={stream_id: stream_object})

    def open_streams(self, streams: Iterable[int] | Mapping[int, int | None], *, reopens: bool = True) -> None:
        """Begin to write streams on this node: one conditional write a touched shard.

        Args:
            streams: their ids; or {stream id: first offset} for new streams that do not start at 0.
            reopens: whether closed streams are continued, the default; else they stay closed, and `end` returns None
                for them. The conditional write decides it, whatever was read before.

        Raises:
            CommitRefused: a stream is open on another node, or has another end. Streams of other shards may have been
                opened; repeating it is safe.

        Streams that were released but not moved to another node are taken back: see `takeover`.
        """
        wanted = checked_starts(streams)
        with self._turn():
            back = self._releases.to_take_back(self._parts, wanted)
            if back:
                self._adopt(move_streams(self._parts, self.node_id, self.session_number, back))
            self._adopt(open_ranges(self._parts, self.node_id, self.session_number, wanted, reopens=reopens))

    def take_over(self, streams: Mapping[int, int], keep: KeepNumbers | None = None) -> dict[int, int]:
        """Continue streams that are open on other nodes, which the caller believes to be dead.

        The call is safe even if these nodes are alive: see `takeover`, which also has the requests.

        Args:
            streams: {stream id: the node that loses the stream}.
            keep: called with the writers' numbers of the other nodes, before the streams are moved.

        Returns:
            stream id -> the offset where the stream continues here.

        Raises:
            CommitRefused: a stream is not open on that node (any more), or its range changed meanwhile. Other streams
                may have been taken over; repeating it is safe.
            SessionFenced: a newer session writes for this node.
            StoreError, CorruptObject, TableError: it stopped half-way. Some streams may be released and have no owner:
                repeat it, here or on any node.
        """
        owners = checked_owners(streams)
        with self._turn():
            # A stream may be here, but released by a taker that did not move it: only a new range continues it.
            owners |= self._releases.to_take_back(self._parts, owners)
            rows = move_streams(self._parts, self.node_id, self.session_number, owners, keep)
            self._adopt(rows)
            return {stream_id: self._known_end(stream_id) for stream_id in rows["stream_id"].tolist()}

    def close_streams(self, stream_ids: Iterable[int]) -> dict[int, int]:
        """Close streams: end this node's ranges at the ends of the streams, so that another node can open them.

        Returns:
            stream id -> the end of its range.

        Raises:
            CommitRefused: a stream that is not open here.
            StreamsReleased: another node has continued some streams; the others are closed.
            SessionFenced: a newer session writes for this node.
        """
        wanted = checked_streams(stream_ids)
        with self._turn():
            self._settle()
            ends = {stream_id: self._known_end(stream_id) for stream_id in wanted}
            if self._doubtful:
                raise CommitRefused(f"node {self.node_id}: expected no commit in doubt, found {len(self._doubtful)}")
            self._seen, released = self._releases.release(self._parts, self._seen, ends, self._refuse_clones)
            try:
                close_ranges(self._parts, self.node_id, self.session_number, ends)
            except StreamsReleased:
                self._ends = self._ends.without(np.array(list(ends), dtype=np.int64))
                raise
            self._ends = self._ends.without(np.array(list(ends), dtype=np.int64))
            self._releases.heeded |= dict(released.tolist())
            return ends

    def trim(self, offsets: Mapping[int, int]) -> None:
        """Trim streams: release everything below an offset. ``offsets`` is {stream id: offset}, each at most the end.

        Raises:
            CommitRefused: a stream that is not open here, or an offset beyond its end.
        """
        offsets = checked_offsets(offsets)
        with self._turn():
            for stream_id, offset in offsets.items():
                end = self._known_end(stream_id)
                if offset > end:
                    expected = f"expected to trim to at most its end {end}"
                    raise CommitRefused(f"stream {stream_id}: {expected}, found {offset}")
            trim_streams(self._parts, offsets)

    def checkpoint(self) -> None:
        """Write the ends of the streams, so that the next session has few objects to open. One request."""
        with self._turn():
            self._settle()
            self._write_checkpoint()

    def close(self) -> None:
        """Write a last checkpoint. The session stays the node's session until another session is opened.

        Another failure to write the checkpoint is logged: it costs the next session time, but no data is lost.

        Raises:
            CommitsLost, CatalogWentBack: the list lacks commits of this session, or another key went back.
        """
        if self._stopped is None:
            with self._turn():
                self._acknowledged.look_back(self._seen, at_once=True)
                self._try_checkpoint()

    def stop(self, error: AccelError) -> None:
        """End the session because of an error: all later calls raise it, and nothing is committed. No request."""
        self._stopped = self._stopped or error

    def _check_stopped(self) -> None:
        if self._stopped is not None:
            raise copy(self._stopped) from self._stopped  # each caller adds its own notes

    def _end_now(self, stream_id: int) -> int | None:
        # For lookups of this process, in any thread, also after this session has ended: ends only rise.
        return self._ends.end(stream_id)

    # Internal; all called within `_turn`

    @contextmanager
    def _turn(self) -> Iterator[None]:
        # Before the lock: a lock that was held when the process was forked is never released in the child.
        self._lifetime.check()
        self._parts.lifetime.check()
        self._check_stopped()
        if not self._busy.acquire(blocking=False):
            raise RuntimeError(f"node {self.node_id}: expected one call at a time, found a second call")
        try:
            with self._acknowledged.watched(lambda: self._seen, self.stop):
                yield
        finally:
            self._busy.release()

    def _prepare(self, count: int, deadline_seconds: float) -> list[int]:
        needed_ms = deadline_ms_after(self._parts.now_ms(), deadline_seconds)
        good: list[int] = []
        while len(good) < count and (object_id := self.take_prepared(deadline_seconds)) is not None:
            good.append(object_id)
        return good + self._prepare_new(count - len(good), needed_ms) if len(good) < count else good

    def _write(self, wanted: Wanted, deadline_seconds: float) -> Uploaded:
        tried = []
        for _ in range(NEW_IDS_MAX):
            tried += self._prepare(1, deadline_seconds)
            try:
                uploaded = write_object(self._parts, self.node_id, tried[-1], wanted, self._backoff)
            except NamespaceShared as error:
                self.stop(error)
                raise
            if uploaded is not None:
                return uploaded
        raise CommitRefused(f"node {self.node_id}: expected ids without objects, found objects under all of {tried}")

    def _claims(
        self, ref: ObjectRef | None, ranges: ObjectRanges, own: Mapping[int, StreamObject], time_ms: int
    ) -> Claims:
        refs = [] if ref is None else [ref]
        unproven = first_unproven(self._parts, [*refs, *(each.ref for each in own.values())])
        return self._times.added_to(make_claims(ref, ranges, own, self.node_id, time_ms, unproven))

    def _commit(self, claims: Sequence[Claims], ids_ahead: int | None = None) -> None:
        self._settle()
        self._acknowledged.look_back(self._seen)
        self._check(claims)
        self._look_at(claims)
        more, deadline_ms = self._ids_ahead(ids_ahead), self._ahead_deadline_ms()

        def change(found: NodeList | None) -> NodeList | None:
            now = require(found, self._key.where)
            if any(doubtful.are_listed(now) for doubtful in self._doubtful if doubtful not in claims):
                raise _LandedError
            self._refuse_clones(now)
            changed = self._with_uploads(now, claims)
            known[0] = (changed or now).next_order_id
            if changed is None or not more:
                return changed
            return with_prepared(changed, more, deadline_ms, self.session_number) or changed

        before, known = self._seen, [self._known_commits]
        self._doubtful += claims
        try:
            self._seen = self._key.change(change, seen=self._seen)
        except _LandedError:
            self._forget_doubt(claims)
            self._commit(claims, ids_ahead)  # settles first; then these claims are refused if the other has the offsets
            return
        except StreamsReleased as error:
            self._forget_doubt(claims)
            self._heed(error)
            self._commit(claims, ids_ahead)  # only late releases, which the session may ignore
            return
        except (CommitRefused, SessionFenced):
            self._forget_doubt(claims)
            raise
        self._forget_doubt(claims)
        [self._known_commits] = known
        if self._seen is not before:
            self._doubtful.clear()  # a write still in flight has a condition on an old version, and fails
        self._acknowledged.add(claims)
        for each in claims:
            self._ends = self._ends.with_higher_ends(each.stream_ids, each.ends)
        self._ready += [(object_id, deadline_ms) for object_id in more if _is_prepared(self._seen.value, object_id)]
        self._commits_since_checkpoint += len(claims)

    def _heed(self, error: StreamsReleased) -> None:
        """Drop streams that were released, unless they are open here with a later range.

        Raises:
            StreamsReleased: some streams were dropped.
        """
        self._seen = self._key.read_newer(self._seen)
        self._settle()  # a write in flight has a condition on a version before the release, and fails
        lost = self._releases.heed(self._parts, self._seen.value, error.stream_ids, self._ends)
        if lost:
            self._ends = self._ends.without(np.array(lost, dtype=np.int64))
            raise StreamsReleased(self.node_id, tuple(lost))

    def _adopt(self, ranges: Rows) -> None:
        """Note that streams are open here with these ranges."""
        self._releases.adopt(ranges)
        self._ends = self._ends.with_higher_ends(ranges["stream_id"], ranges["start"])
        self._times.begin(ranges)

    def _with_uploads(self, now: NodeList, claims: Sequence[Claims]) -> NodeList | None:
        """The list with these objects, each with its own commit number; None if the list has all of them."""
        changed = now
        for each in claims:
            after = with_upload(changed, self.session_number, each.facts, each.rows)
            if after is not None:
                refuse_released(now, each.stream_ids, self._releases.heeded)
                changed = after
        return None if changed is now else without_released(changed, self._releases.heeded)

    def _forget_doubt(self, claims: Sequence[Claims]) -> None:
        self._doubtful = [doubtful for doubtful in self._doubtful if doubtful not in claims]

    def _upkeep(self) -> None:
        if len(self._seen.value.stream_objects) >= STREAM_OBJECTS_IN_LIST_MAX:
            with self._tolerated("stream objects stay in the list for now"):
                self._seen = move_stream_objects(self._parts, self.node_id)
        are_many = self._commits_since_checkpoint >= self._parts.settings.checkpoint_commits
        told = max(len(self._seen.value.times), len(self._seen.value.numbers))
        if are_many or told >= TIMES_MAX // 2:
            self._try_checkpoint()

    def _settle(self) -> None:
        """Find out which commits of unknown outcome were made; the others stay in doubt while they may still arrive."""
        if not self._doubtful:
            return
        self._seen = self._key.read_newer(self._seen)
        self._refuse_clones(self._seen.value)
        self._known_commits = self._seen.value.next_order_id
        for claims in list(self._doubtful):
            if claims.are_listed(self._seen.value):
                self._ends = self._ends.with_higher_ends(claims.stream_ids, claims.ends)
                self._doubtful.remove(claims)
        del self._doubtful[:-DOUBTFUL_MAX]

    def _refuse_clones(self, found: NodeList) -> None:
        own = [each.object_ids() for each in self._doubtful]
        refuse_clones(found, self.session_number, self._known_commits, own)

    def _check(self, claims: Sequence[Claims]) -> None:
        """Check that the commits continue their streams one after another, or were made before; else CommitRefused."""
        ends = self._ends
        for each in claims:
            self._check_one(each, ends)
            ends = ends.with_higher_ends(each.stream_ids, each.ends)

    def _check_one(self, claims: Claims, ends: StreamEnds) -> None:
        if not claims.are_listed(self._seen.value):
            try:
                ends.check_continued(claims.stream_ids, claims.starts, claims.ends)
            except CommitRefused:
                self._seen = self._key.read_newer(self._seen)  # perhaps these very objects were committed before
                if not claims.are_listed(self._seen.value):
                    self._releases.refuse_lost(claims.stream_ids)
                    raise
        if claims.are_listed(self._seen.value) and not self._ends.reach(claims.stream_ids, claims.ends):
            ids = claims.object_ids().tolist()
            raise CommitRefused(
                f"node {self.node_id}: expected objects that are not listed, or a commit that was made before, found "
                f"{ids[:5]} listed and streams that end below these ranges' ends"
            )

    def _look_at(self, claims: Sequence[Claims]) -> None:
        for each in claims:
            if each.to_look_at is None or each.are_listed(self._seen.value):
                continue
            # Apply the rule to the known list first: what the list refuses needs no request.
            with_upload(self._seen.value, self.session_number, each.facts, each.rows)
            refuse_misplaced(self._parts, each.to_look_at)

    def _ids_ahead(self, ids_ahead: int | None) -> list[int]:
        most = IDS_AHEAD if ids_ahead is None else ids_ahead
        wanted = most - len(self._ready)
        if wanted <= 0 or self._parts.ids.free_now() < wanted:
            return []
        return self._parts.ids.take(wanted)

    def _ahead_deadline_ms(self) -> int:
        return self._parts.now_ms() + int(self._parts.format.prepared_seconds * MILLISECONDS)

    def _prepare_new(self, count: int, deadline_ms: int) -> list[int]:
        self._parts.ids.note(highest_id(self._seen.value))
        ids = self._parts.ids.take(count)

        def change(now: NodeList | None) -> NodeList | None:
            return with_prepared(require(now, self._key.where), ids, deadline_ms, self.session_number)

        self._seen = self._key.change(change, seen=self._seen)
        return ids

    def _known_end(self, stream_id: int) -> int:
        end = self._ends.end(stream_id)
        if end is None:
            raise CommitRefused(f"expected a stream that is open on node {self.node_id}, found stream {stream_id}")
        return end

    def _try_checkpoint(self) -> None:
        with self._tolerated("no checkpoint could be written"):
            self._settle()
            self._write_checkpoint()

    @contextmanager
    def _tolerated(self, what: str) -> Iterator[None]:
        try:
            yield
        except CatalogWentBack:
            raise
        except AccelError as error:
            logger.warning("node %d: %s: %s", self.node_id, what, error)

    def _write_checkpoint(self) -> None:
        released = self._releases.ends  # until the streams are moved, another node may need these ends
        known = self._ends.with_higher_ends(released.stream_ids, released.ends)
        ends = make_rows(STREAM_END, stream_id=known.stream_ids, end=known.ends)
        times = self._times.kept(self._ends)
        numbers = self._times.kept_numbers(known, self._seen.value.numbers)
        checkpoint = Checkpoint(self.node_id, self._seen.value.next_order_id - 1, ends, times, numbers)

        def change(now: Checkpoint | None) -> Checkpoint | None:
            if now is None or (now.order_id, len(now.times)) < (checkpoint.order_id, len(times)):
                return checkpoint
            return None

        key = self._parts.keys.checkpoint(self.node_id)
        self._checkpoint = key.change(change, seen=self._checkpoint)
        self._commits_since_checkpoint = 0
        self._acknowledged.count()
        self._times.counts(checkpoint.order_id, times, numbers)


def _is_prepared(node_list: NodeList, object_id: int) -> bool:
    return object_id in node_list.prepared["object_id"]


# An upload's batches and object

NEW_IDS_MAX = 8
"""The maximum number of ids that are tried for one object, if other objects are at their keys."""


@dataclass(frozen=True, slots=True, eq=False)
class Uploaded:
    """An object that was written and committed.

    Args:
        ref: the object, with its sizes.
        ranges: the ranges of the object.
    """

    ref: ObjectRef
    ranges: ObjectRanges

    @property
    def object_id(self) -> int:
        """The object's id."""
        return self.ref.object_id


@dataclass(frozen=True, slots=True, eq=False)
class Unsettled:
    """An object that was written and whose commit has an unknown outcome.

    Args:
        uploaded: the object.
        claims: the claims of the commit.
        digest: of the object's batches.
    """

    uploaded: Uploaded
    claims: Claims
    digest: bytes


def write_object(
    parts: CatalogParts, node_id: int, object_id: int, wanted: Wanted, backoff: Backoff
) -> Uploaded | None:
    """Write an object at its key in this catalog; None if another object is there.

    Raises:
        CatalogDamaged: another object is there because the counter of ids went back.
        NamespaceShared: an object of another system is there.
        FormatError, FormatLimit: batches that the format cannot hold.
        StoreError: the object could not be written.
    """
    try:
        with ObjectWriter(parts.store, parts.layout, object_id, backoff=backoff, nonce=parts.system.nonce) as writer:
            for stream_id, batches in wanted:
                writer.write(stream_id, batches)
    except ObjectExists:
        _refuse_given_twice(parts, node_id, object_id)
        return None
    return Uploaded(writer.ref, writer.ranges)


def _refuse_given_twice(parts: CatalogParts, node_id: int, object_id: int) -> None:
    """Refuse an id that was allocated to another node as well; called if an object is at its key. One request a list.

    Raises:
        CatalogDamaged: the id was allocated twice, or the counter is not above all ids in use: it went back.
    """
    for other_id in list_node_ids(parts):
        seen = parts.keys.node_list(other_id).read()
        if seen is None:
            continue
        if other_id != node_id and object_id in ids_of(seen.value):
            found = f"that node {other_id} has it, too: the counter went back"
            expected = f"to be allocated to node {node_id} alone"
            raise CatalogDamaged(f"object id {object_id}: expected {expected}, found {found}")
        parts.ids.note(highest_id(seen.value))
    parts.ids.refuse_lost()
