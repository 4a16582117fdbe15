"""A session of writing for one node: upload objects, open and close streams.

    with catalog.open_node(4) as writer:
        writer.open_streams([420000])
        writer.upload({420000: batches})

`upload` promises an id, writes the object where readers look, and commits it. A broker that writes objects by itself
takes these steps one by one: `prepare`, an `ObjectWriter` with the layout of the catalog, `commit_upload`.

The session knows in memory where each of its streams ended and what the node's list holds, so an upload is checked
without a request, and committed by one conditional write, whatever its number of streams. Somebody else's change of the
list (a compaction, the collector) costs one more read. A newer session of the same node ends this one: `SessionFenced`.

A commit that fails with an error of the store may have happened. The session finds out before it commits anything else,
so the same object may be committed again, and an object that took its place is refused if it did happen.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Self

import numpy as np

from accel.catalog import list_rules
from accel.catalog.bucket_edits import close_ranges, open_ranges, trim_streams
from accel.catalog.cell import Seen
from accel.catalog.claims import Claims, make_claims
from accel.catalog.learning import Learned
from accel.catalog.moving import move_stream_objects
from accel.catalog.object_ids import highest_id
from accel.catalog.parts import MILLISECONDS, CatalogParts
from accel.catalog.records import Checkpoint, NodeList
from accel.catalog.rows import STREAM_END, make_rows
from accel.catalog.uploading import (
    NEW_IDS_MAX,
    StreamBatches,
    Unsettled,
    Uploaded,
    Wanted,
    digest_of,
    first_unproven,
    ordered,
    refuse_discontinuous,
    refuse_misplaced,
    write_object,
)
from accel.errors import AccelError, CatalogDamaged, CommitRefused, SessionFenced
from accel.image_parts import StreamObject
from accel.lookup.ranges_given import RangesGiven, ranges_of
from loaders.backoff import Backoff, RetrySettings
from loaders.errors import StoreError, TableError
from loaders.lifetime import Lifetime
from loaders.object_ref import ObjectRef

DOUBTFUL_MAX = 1000
"""Commits of unknown outcome that a session remembers."""

logger = logging.getLogger(__name__)


class _LandedError(Exception):
    """An earlier commit whose outcome was unknown turns out to have happened."""


class NodeWriter:
    """One session of a node; `ObjectCatalog.open_node` makes it.

    It is of the process that opened it, and ends with the catalog: elsewhere every call raises WrongProcess, later
    Closed. A process that is forked opens a session of its own, which fences this one.

    Threads: any, but one call at a time; a second one at the same time raises RuntimeError. Commits of one node follow
    one another, because each continues its streams where the one before ended them.
    """

    def __init__(self, parts: CatalogParts, seen: Seen[NodeList], learned: Learned) -> None:
        self._lifetime = Lifetime(f"a session of node {seen.value.node_id}", parts.system.process_id)
        self._parts = parts
        self._seen = seen
        self._ends = learned.ends
        self._cell = parts.cells.node_list(seen.value.node_id)
        self._busy = threading.Lock()
        self._ready: list[tuple[int, int]] = []
        self._doubtful: list[Claims] = []
        self._unsettled: Unsettled | None = None
        self._backoff = Backoff(RetrySettings(), parts.system.sleep, parts.system.jitter)
        self._commits_since_checkpoint = learned.opened
        self.node_id = seen.value.node_id
        self.epoch = seen.value.epoch

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()

    def __repr__(self) -> str:
        return f"NodeWriter(node {self.node_id}, epoch {self.epoch}, {len(self._ends)} streams)"

    @property
    def node_list(self) -> NodeList:
        """The node's list as this session saw it last."""
        return self._seen.value

    def end(self, stream_id: int) -> int | None:
        """Where the next upload of a stream has to start; None if the stream is not open on this node."""
        self._lifetime.check()
        return self._ends.end(stream_id)

    def prepare(self, count: int = 1, deadline_seconds: float = 3600.0) -> list[int]:
        """Promise ids for objects that are about to be written. No request while ids of earlier commits suffice.

        Args:
            count: how many.
            deadline_seconds: how long they must be good for at least. What is not committed by then may be deleted.

        Raises:
            SessionFenced: a newer session writes for this node.
            ValueError: a count below 1, or a deadline that is not ahead.
        """
        if count < 1 or deadline_seconds <= 0:
            raise ValueError(f"expected a count and a deadline above 0, found {count} and {deadline_seconds} seconds")
        with self._turn():
            return self._prepare(count, deadline_seconds)

    def upload(
        self,
        streams: StreamBatches,
        *,
        data_time_seconds: float | None = None,
        deadline_seconds: float = 3600.0,
    ) -> Uploaded:
        """Write batches of streams as a new object, and commit it. What it returns is durable, and readers find it.

        One put and one conditional write as a rule; a large object goes out by multipart. All batches are in memory
        meanwhile. What happens when something fails: see `uploading`.

        Args:
            streams: {stream id: batches} or (stream id, batches) pairs, in any order of the streams; the batches of a
                stream go on where it ended (`end`) and leave nothing out.
            data_time_seconds: when the oldest of it was written, since 1970; now by default.
            deadline_seconds: how long writing and committing may take; after that the object may be deleted.

        Returns:
            The object and the ranges that it holds.

        Raises:
            CommitRefused: a stream is not open here or not continued, or it took longer than the deadline. Nothing was
                committed.
            SessionFenced: a newer session writes for this node; nothing was committed.
            CatalogDamaged: the counter of ids was deleted or went back.
            FormatError, FormatLimit: batches that the format cannot hold.
            StoreError, AmbiguousWrite, DataConflict: it may have been committed. Upload the same batches again: they
                are committed once.
        """
        if deadline_seconds <= 0:
            raise ValueError(f"expected a deadline above 0, found {deadline_seconds} seconds")
        wanted = ordered(streams)
        with self._turn():
            self._settle()
            before = self._unsettled
            if before is None or before.digest != digest_of(wanted):
                refuse_discontinuous(wanted, self._ends)
                uploaded = self._write(wanted, deadline_seconds)
                time_ms = self._parts.now_ms() if data_time_seconds is None else int(data_time_seconds * MILLISECONDS)
                claims = make_claims(uploaded.ref, uploaded.ranges, {}, self.node_id, time_ms)
                before = Unsettled(uploaded, claims, digest_of(wanted))
            self._unsettled = None
            try:
                self._commit(before.claims)
            except (StoreError, TableError) as error:
                self._unsettled = before
                error.add_note(f"object {before.uploaded.object_id} is written; upload the same batches again")
                raise
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

        One conditional write, whatever the number of streams. Repeated for the same object it changes nothing. Besides,
        one byte of an object is read, to see that it lies where readers look: not of those that an `ObjectWriter` of
        this process has written there, and of one only, because all of an upload lie in one layout.

        Args:
            ref: the stream set object, with its size and index size; None if the upload has only objects of one stream.
            ranges: what it holds: {stream id: (start, end)}, (stream id, start, end) rows, or `ObjectRanges`.
            stream_objects: {stream id: object of that stream alone}.
            data_time_seconds: when its oldest data was written, since 1970; now by default.

        Raises:
            CommitRefused: a stream is not open here or not continued where it ended, an id was not prepared (any
                more), a size is unknown, the format's limits are passed, or an object does not lie where readers look.
                Nothing was written.
            SessionFenced: a newer session writes for this node; nothing was written.
            StoreError, AmbiguousWrite, DataConflict: it may have been written; commit the same object again.
        """
        time_ms = self._parts.now_ms() if data_time_seconds is None else int(data_time_seconds * MILLISECONDS)
        own = stream_objects or {}
        unproven = first_unproven(self._parts, [*([] if ref is None else [ref]), *(each.ref for each in own.values())])
        claims = make_claims(ref, ranges_of(ranges), own, self.node_id, time_ms, unproven)
        with self._turn():
            self._commit(claims)

    def register_stream_object(self, stream_id: int, stream_object: StreamObject) -> None:
        """List an object of one stream that continues it; `commit_upload` with nothing else."""
        self.commit_upload(None, stream_objects={stream_id: stream_object})

    def open_streams(self, streams: Iterable[int] | Mapping[int, int | None]) -> None:
        """Begin to write streams on this node: one conditional write a bucket that is touched.

        Args:
            streams: their ids; or {stream id: first offset} for streams that are new and do not start at 0.

        Raises:
            CommitRefused: a stream is open on another node, or known with another end. Streams of other buckets may
                have been opened; repeating it is safe.
        """
        wanted = dict(streams) if isinstance(streams, Mapping) else dict.fromkeys(streams)
        with self._turn():
            starts = open_ranges(self._parts, self.node_id, self.epoch, wanted)
            self._ends = self._ends.raised(*starts)

    def close_streams(self, stream_ids: Iterable[int]) -> dict[int, int]:
        """End this node's ranges of streams where they stand, so that another node can open them.

        Returns:
            stream id -> the end of its range.

        Raises:
            CommitRefused: a stream that is not open here.
            SessionFenced: a newer session writes for this node.
        """
        with self._turn():
            self._settle()
            ends = {stream_id: self._known_end(stream_id) for stream_id in stream_ids}
            if self._doubtful:
                raise CommitRefused(f"node {self.node_id}: expected no commit in doubt, found {len(self._doubtful)}")
            close_ranges(self._parts, self.node_id, self.epoch, ends)
            self._ends = self._ends.without(np.array(list(ends), dtype=np.int64))
            return ends

    def trim(self, offsets: Mapping[int, int]) -> None:
        """Let go what streams hold below an offset: {stream id: offset}, none beyond its stream's end.

        Raises:
            CommitRefused: a stream that is not open here, or an offset beyond its end.
        """
        with self._turn():
            for stream_id, offset in offsets.items():
                end = self._known_end(stream_id)
                if offset > end:
                    raise CommitRefused(
                        f"stream {stream_id}: expected to trim to at most its end {end}, found {offset}"
                    )
            trim_streams(self._parts, offsets)

    def checkpoint(self) -> None:
        """Write down where the streams end, so that the next session has few objects to open. Two requests."""
        with self._turn():
            self._settle()
            self._write_checkpoint()

    def close(self) -> None:
        """Write a last checkpoint. The session stays the node's until another one is opened.

        A checkpoint that cannot be written is logged: it costs the next session time, and nobody data.
        """
        with self._turn():
            self._try_checkpoint()

    # Inside; all of it within `_turn`

    @contextmanager
    def _turn(self) -> Iterator[None]:
        # First of all: a lock that was held when the process was forked is never released in this one.
        self._lifetime.check()
        self._parts.lifetime.check()
        if not self._busy.acquire(blocking=False):
            raise RuntimeError(f"node {self.node_id}: expected one call at a time, found a second one")
        try:
            yield
        finally:
            self._busy.release()

    def _prepare(self, count: int, deadline_seconds: float) -> list[int]:
        needed_ms = self._parts.now_ms() + int(deadline_seconds * MILLISECONDS)
        good = [object_id for object_id, deadline_ms in self._ready if deadline_ms >= needed_ms][:count]
        if len(good) < count:
            good += self._promise(count - len(good), needed_ms)
        self._ready = [each for each in self._ready if each[0] not in good]
        return good

    def _write(self, wanted: Wanted, deadline_seconds: float) -> Uploaded:
        tried = []
        for _ in range(NEW_IDS_MAX):
            tried += self._prepare(1, deadline_seconds)
            uploaded = write_object(self._parts, self.node_id, tried[-1], wanted, self._backoff)
            if uploaded is not None:
                return uploaded
        raise CommitRefused(f"node {self.node_id}: expected ids without objects, found objects under all of {tried}")

    def _commit(self, claims: Claims) -> None:
        self._settle()
        self._check(claims)
        self._look_at(claims)
        more, deadline_ms = self._ids_ahead(), self._ahead_deadline_ms()

        def change(found: NodeList | None) -> NodeList | None:
            now = self._found(found)
            if any(each.are_listed(now) for each in self._doubtful if each is not claims):
                raise _LandedError
            changed = list_rules.with_upload(now, self.epoch, claims.facts, claims.rows)
            if changed is None or not more:
                return changed
            return list_rules.with_prepared(changed, more, deadline_ms, self.epoch)

        before = self._seen
        self._doubtful.append(claims)
        try:
            self._seen = self._cell.change(change, seen=self._seen)
        except _LandedError:
            self._doubtful.remove(claims)
            self._commit(claims)  # settles first; then this one is refused if the other took its place
            return
        except (CommitRefused, SessionFenced):
            self._doubtful.remove(claims)
            raise
        self._doubtful.remove(claims)
        if self._seen is not before:
            self._doubtful.clear()  # whatever is still on its way names a version that is no longer there
        self._ends = self._ends.raised(claims.stream_ids, claims.ends)
        self._ready += [(object_id, deadline_ms) for object_id in more if _is_promised(self._seen.value, object_id)]
        self._after_commit()

    def _after_commit(self) -> None:
        self._commits_since_checkpoint += 1
        if len(self._seen.value.stream_objects) >= self._parts.settings.stream_objects_in_list_max:
            try:
                self._seen = move_stream_objects(self._parts, self.node_id)
            except AccelError:
                logger.warning("node %d: stream objects stay in the list for now", self.node_id, exc_info=True)
        if self._commits_since_checkpoint >= self._parts.settings.checkpoint_commits:
            self._try_checkpoint()

    def _settle(self) -> None:
        """Learn what became of commits whose outcome is unknown; they stay in doubt while they may still arrive."""
        if not self._doubtful:
            return
        self._seen = self._cell.read_newer(self._seen)
        for claims in list(self._doubtful):
            if claims.are_listed(self._seen.value):
                self._ends = self._ends.raised(claims.stream_ids, claims.ends)
                self._doubtful.remove(claims)
        del self._doubtful[:-DOUBTFUL_MAX]

    def _check(self, claims: Claims) -> None:
        """That a commit continues its streams, or was made before.

        Raises:
            CommitRefused: it does neither.
        """
        if not claims.are_listed(self._seen.value):
            try:
                self._ends.continued_by(claims.stream_ids, claims.starts, claims.ends)
            except CommitRefused:
                self._seen = self._cell.read_newer(self._seen)  # perhaps these very objects were committed before
                if not claims.are_listed(self._seen.value):
                    raise
        if claims.are_listed(self._seen.value) and not self._ends.reach(claims.stream_ids, claims.ends):
            ids = claims.object_ids().tolist()
            raise CommitRefused(
                f"node {self.node_id}: expected objects that are not listed, or a commit that was made before, found "
                f"{ids[:5]} listed and streams that do not reach as far as these ranges"
            )

    def _look_at(self, claims: Claims) -> None:
        if claims.to_look_at is None or claims.are_listed(self._seen.value):
            return
        # What the list refuses is refused without a request.
        list_rules.with_upload(self._seen.value, self.epoch, claims.facts, claims.rows)
        refuse_misplaced(self._parts, claims.to_look_at)

    def _ids_ahead(self) -> list[int]:
        wanted = self._parts.settings.ids_ahead - len(self._ready)
        if wanted <= 0 or self._parts.ids.free_now() < wanted:
            return []
        return self._parts.ids.take(wanted)

    def _ahead_deadline_ms(self) -> int:
        return self._parts.now_ms() + int(self._parts.format.prepared_seconds * MILLISECONDS)

    def _promise(self, count: int, deadline_ms: int) -> list[int]:
        self._parts.ids.note(highest_id(self._seen.value))
        ids = self._parts.ids.take(count)

        def change(found: NodeList | None) -> NodeList | None:
            return list_rules.with_prepared(self._found(found), ids, deadline_ms, self.epoch)

        self._seen = self._cell.change(change, seen=self._seen)
        return ids

    def _found(self, found: NodeList | None) -> NodeList:
        if found is None:
            raise CatalogDamaged(f"expected the list of node {self.node_id}, found none: it was deleted")
        return found

    def _known_end(self, stream_id: int) -> int:
        end = self._ends.end(stream_id)
        if end is None:
            raise CommitRefused(f"expected a stream that is open on node {self.node_id}, found stream {stream_id}")
        return end

    def _try_checkpoint(self) -> None:
        try:
            self._settle()
            self._write_checkpoint()
        except AccelError:
            logger.warning("node %d: no checkpoint could be written", self.node_id, exc_info=True)

    def _write_checkpoint(self) -> None:
        ends = make_rows(STREAM_END, stream_id=self._ends.stream_ids, end=self._ends.ends)
        checkpoint = Checkpoint(self.node_id, self._seen.value.next_order_id - 1, ends)

        def change(found: Checkpoint | None) -> Checkpoint | None:
            is_older = found is None or found.order_id < checkpoint.order_id
            return checkpoint if is_older else None

        self._parts.cells.checkpoint(self.node_id).change(change)
        self._commits_since_checkpoint = 0


def _is_promised(node_list: NodeList, object_id: int) -> bool:
    return object_id in node_list.prepared["object_id"]
