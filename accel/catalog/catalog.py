"""The object catalog: the metadata image, kept in versioned tables next to the objects.

    store = open_store("s3://bucket/prefix")
    ObjectCatalog.init(store, FormatRecord(namespace="shop"))      once a bucket
    with ObjectCatalog.open(store) as catalog:
        with catalog.open_node(4) as writer: ...                   a broker writes: see `writer`
        catalog.image()                                            a reader reads the image
        ReadAccelerator(catalog.images(), store)                   ... or looks up, with images that follow the catalog

Readers need no right to write. The records, byte by byte: docs/reference/catalog-records.md; why commits are safe:
docs/explanation/catalog.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from accel.catalog.argument_checks import (
    check_ref,
    check_stream_object,
    checked_count,
    checked_node,
    checked_objects,
    checked_offsets,
    checked_stream,
    checked_streams,
    deadline_ms_after,
)
from accel.catalog.compact import Compaction, CompactionRanges, commit_compaction, discard
from accel.catalog.keys import require
from accel.catalog.node_list import with_extended, with_prepared
from accel.catalog.parts import (
    MILLISECONDS,
    CatalogParts,
    catalog_parts,
    existing_format,
    first_unproven,
    identified,
    make_catalog,
    refuse_misplaced,
)
from accel.catalog.records import OPEN, NodeList, StreamShard, highest_id, stream_object_rows
from accel.catalog.refresh import CatalogFollower, CatalogState
from accel.catalog.session import open_session, recover_ends
from accel.catalog.shard_writes import read_list, refuse_undoable, trim_streams
from accel.catalog.stream_shards import shard_of, with_replacement
from accel.catalog.writer import NodeWriter
from accel.errors import Closed, CommitRefused
from accel.history.rules.values import checked_arguments
from accel.image import MetadataImage, StreamImage, StreamObject
from accel.image_source import ConfirmedImage, PolledImages
from accel.settings import IDLE_POLL_SECONDS, POLL_SECONDS, CatalogSettings
from accel.system import SYSTEM, Components
from loaders.lifetime import Closing, PerProcess
from loaders.object_ref import ObjectRef
from loaders.store import ObjectStore
from loaders.tables import FormatRecord


@checked_arguments
class ObjectCatalog(Closing):
    """An existing catalog; `open` returns it.

    Threads: any. No lock is held over I/O. A forked process may use the catalog of its parent: the child gets its own
    connections, threads and free ids, and reads the image again. A session belongs to one process (`NodeWriter`).
    A catalog cannot be pickled; send the store. After `close`, calls of the catalog and of its sessions raise Closed.
    """

    def __init__(self, make_parts: Callable[[], CatalogParts], system: Components) -> None:
        self._is_closed = False

        def opened() -> _Opened:
            parts = make_parts()
            keys, record = parts.keys, parts.format
            follower = CatalogFollower(
                keys, record.namespace, record.stream_buckets, parts.executor, parts.system.timer, ends=parts.ends
            )
            return _Opened(parts, follower)

        self._opened = PerProcess("a catalog", opened, system.process_id)
        self._format = self._opened().parts.format

    @classmethod
    def init(
        cls,
        store: ObjectStore,
        wanted: FormatRecord | None = None,
        *,
        namespace: str | None = None,
        settings: CatalogSettings | None = None,
        system: Components = SYSTEM,
    ) -> tuple[str, ...]:
        """Make an empty catalog; an existing catalog with the same choices is left as it is.

        The call may be repeated after a crash at any write. If only the format record was lost, it is written again.

        Args:
            store: the store to make the catalog in.
            wanted: the format record: its namespace, and the times that all users agree on.
            namespace: instead of ``wanted``: this namespace, with the defaults of all other fields.
            settings: choices of this process.
            system: clock, sleep and random source.

        Returns:
            What a user should know about the store of a new catalog, in sentences; empty if nothing. Objects in its
            namespace, in the first 100 pages of the store's listing; keys that were not looked at; a store that loses
            the metadata that prove who wrote an object.

        Raises:
            CommitRefused: the store contains a catalog with other choices, complete or begun.
            CatalogDamaged: the store contains a catalog whose format record and other keys are missing.
            RequestRefused: the endpoint does not enforce conditions on writes.
            TypeError: neither or both of ``wanted`` and ``namespace``.
        """
        if wanted is None and namespace is not None:
            wanted = FormatRecord(namespace=namespace)
        elif not isinstance(wanted, FormatRecord) or namespace is not None:
            found = "both" if wanted is not None and namespace is not None else repr(wanted)
            raise TypeError(f"expected a FormatRecord, or namespace= and a name, found {found}")
        return make_catalog(store, wanted, settings or CatalogSettings(), system)

    @classmethod
    def open(
        cls, store: ObjectStore, *, settings: CatalogSettings | None = None, system: Components = SYSTEM
    ) -> ObjectCatalog:
        """Open the catalog of a store. One request; nothing is written.

        Raises:
            CatalogMissing: the store contains no catalog.
            FormatTooNew: a newer release made the catalog.
        """
        record = existing_format(store)
        return cls(lambda: catalog_parts(store, record, settings or CatalogSettings(), system), system)

    def _end_block(self, _: BaseException | None) -> None:
        self.close()

    def close(self) -> None:
        """Stop the catalog's threads after running requests end. Its sessions and image sources cannot be used then."""
        self._is_closed = True
        if (opened := self._opened.here()) is not None:
            opened.parts.lifetime.close()
            for pool in opened.parts.threads:
                pool.shutdown(wait=True)

    @property
    def format(self) -> FormatRecord:
        """The format record: what all users of this catalog agree on."""
        return self._format

    @property
    def parts(self) -> CatalogParts:
        """The parts of the opened catalog, for maintenance."""
        return self._parts

    @property
    def _parts(self) -> CatalogParts:
        return self._open().parts

    def _writing_parts(self) -> CatalogParts:
        """The parts, of a catalog with an id: the first writer gives one to a catalog of an older release."""
        opened = self._open()
        if not opened.parts.layout.catalog_id:
            opened.parts = identified(opened.parts)
        return opened.parts

    @property
    def _follower(self) -> CatalogFollower:
        return self._open().follower

    def _open(self) -> _Opened:
        """This process's parts and follower; raises Closed if the catalog is closed."""
        if self._is_closed:
            raise Closed("expected a catalog that is open, found it closed")
        return self._opened()

    # Reading

    def image(self) -> MetadataImage:
        """The image that was read last; read now if it was never read."""
        return self._follower.state().built.image

    def refresh(self) -> MetadataImage:
        """Read all changes and return the image. One conditional GET a watched key; an unchanged key sends no body.

        Raises:
            StoreError: the catalog cannot be read now.
            CatalogMissing, CorruptObject, FormatTooNew: the catalog is missing, damaged, or made by a newer release.
        """
        return self.refresh_state().built.image

    def refresh_state(self) -> CatalogState:
        """Read all changes and return the whole state: image, lists and shards."""
        return self._follower.refresh()

    def images(self, poll_seconds: float = POLL_SECONDS, idle_poll_seconds: float = IDLE_POLL_SECONDS) -> PolledImages:
        """A source of images for an accelerator. It polls at intervals, and when a lookup's answer is short.

        A poll is `follow`: two listings and a conditional GET for each changed key, or a refresh. An image that no
        refresh could confirm for `max_image_age_seconds` is not served any more: `ImageTooOld`.

        The source also reads checkpoints from time to time, so that lookups know the ends of streams:
        see `sketches_and_ends`.

        Args:
            poll_seconds: from one poll to the next.
            idle_poll_seconds: the same after 10 seconds without a change: by default less than one request a second.
        """
        system = self._parts.system
        return PolledImages(
            self.follow,
            confirm=self.refresh,
            timer=system.timer,
            sleep=system.sleep,
            wait=system.wait,
            poll_seconds=poll_seconds,
            max_age_seconds=self.format.max_image_age_seconds,
            idle_poll_seconds=max(poll_seconds, idle_poll_seconds),
            memory=self._parts.ends.memory,
        )

    def follow(self) -> ConfirmedImage:
        """Read the changes that listings show, and return the image with the time of the last refresh.

        For a process that follows the catalog: two listings, and a conditional GET for each changed key; once in 64
        commits of a node one more, for its checkpoint (see `sketches_and_ends`). Half of `max_image_age_seconds` after
        the last refresh, and where listings fail, the call is a refresh.

        Raises:
            AccelError: as `refresh`.
        """
        state = self._follower.follow(self.format.max_image_age_seconds / 2)
        self._parts.ends.catch_up(self._parts.keys, self._parts.executor, state.node_lists())
        return ConfirmedImage(state.built.image, state.confirmed_seconds)

    def stream_end(self, stream_id: int) -> int:
        """The current end offset of a stream.

        Requests: a refresh; for an open stream also those of `session.recover_ends`.

        Raises:
            CommitRefused: an unknown stream.
        """
        stream_id = checked_stream(stream_id)
        return self._ends([stream_id])[stream_id]

    def stream_ends(self, stream_ids: Iterable[int]) -> dict[int, int]:
        """The current end offsets of streams, by id. Requests: as `stream_end`, for all together.

        Raises:
            CommitRefused: an unknown stream.
        """
        return self._ends(checked_streams(stream_ids))

    # Writing

    def open_node(self, node_id: int) -> NodeWriter:
        """Begin to write for a node; from then on older sessions of the node are refused.

        Requests and errors: see `session`.
        """
        node_id, parts, follower = checked_node(node_id), self._writing_parts(), self._follower
        return NodeWriter(parts, *open_session(parts, node_id), lambda: follower.read_last(node_id))

    def prepare(self, node_id: int, count: int, deadline_seconds: float | None = None) -> list[int]:
        """Prepare ids for a compactor of a node's objects; the node's session continues.

        Args:
            node_id: the node whose list will contain the outputs.
            count: the number of ids.
            deadline_seconds: how long the ids are valid; by default the format record's `prepared_seconds`.

        Raises:
            InvalidArgument: an invalid node id or count, or a deadline that is not ahead or beyond ten years.
            CatalogMissing: the node was never opened.
            CatalogDamaged: the counter of ids was deleted, or is not above the ids in the node's list.
        """
        node_id, count = checked_node(node_id), checked_count(count)
        self._writing_parts()
        now_ms = self._parts.now_ms()
        if deadline_seconds is None:
            deadline_ms = now_ms + int(self.format.prepared_seconds * MILLISECONDS)
        else:
            deadline_ms = deadline_ms_after(now_ms, deadline_seconds)
        key = self._parts.keys.node_list(node_id)
        seen = read_list(key, node_id)
        self._parts.ids.note(highest_id(seen.value))
        ids = self._parts.ids.take(count)

        def change(now: NodeList | None) -> NodeList | None:
            return with_prepared(require(now, key.where), ids, deadline_ms, None)

        key.change(change, seen=seen)
        return ids

    def discard(self, node_id: int, object_ids: Iterable[int]) -> None:
        """Give up prepared ids and delete the objects written under them; committed and registered objects stay.

        Requests and errors: see `discard`.
        """
        discard(self._parts, checked_node(node_id), checked_objects(object_ids))

    def commit_compaction(
        self,
        node_id: int,
        removed: Iterable[ObjectRef],
        added: ObjectRef | None,
        stream_objects: Iterable[tuple[int, StreamObject]] = (),
        *,
        ranges: CompactionRanges | None = None,
    ) -> None:
        """Replace neighbouring objects of a node by the objects that were merged from them; see `compact`.

        Args:
            node_id: the node of the list.
            removed: the sources, neighbours in the list, with their sizes.
            added: the object merged from the sources, prepared before, with its sizes; None if there is none.
            stream_objects: (stream id, object of that stream alone) pairs made from the sources.
            ranges: the ranges of sources and output, if the caller has just read them: saves opening the objects.

        Raises:
            CommitRefused: a source is gone, the outputs do not hold what the sources hold, or a deadline has passed:
                give up the group (`discard`).
            StoreError, AmbiguousWrite, DataConflict: the commit may have happened; commit the same group again.
        """
        compaction = Compaction(checked_node(node_id), tuple(removed), added, tuple(stream_objects), ranges)
        for ref in (*compaction.removed, *(() if added is None else (added,))):
            check_ref(ref)
        for stream_id, stream_object in compaction.stream_objects:
            check_stream_object(stream_id, stream_object)
        commit_compaction(self._parts, compaction)

    def close_streams(self, stream_ids: Iterable[int]) -> dict[int, int]:
        """Close streams whose owner is dead: fence the owner's sessions and find the ends at the tail of its list.

        Returns:
            stream id -> the end of its last range.
        """
        wanted = checked_streams(stream_ids)
        image = self.refresh()
        by_node: dict[int, list[int]] = {}
        ends: dict[int, int] = {}
        for stream_id in wanted:
            last = _known(image, stream_id).ranges[-1]
            if last.end == OPEN:
                by_node.setdefault(last.node_id, []).append(stream_id)
            else:
                ends[stream_id] = last.end
        for node_id, mine in by_node.items():
            with self.open_node(node_id) as writer:
                ends |= writer.close_streams(mine)
        return ends

    def trim(self, offsets: Mapping[int, int]) -> None:
        """Trim streams: release everything below an offset. ``offsets`` is {stream id: offset}.

        Raises:
            CommitRefused: an unknown stream, or an offset beyond its end.
        """
        offsets = checked_offsets(offsets)
        ends = self._ends(offsets)
        for stream_id, offset in offsets.items():
            if offset > ends[stream_id]:
                found = f"{offset}; it ends at {ends[stream_id]}"
                raise CommitRefused(f"stream {stream_id}: expected to trim to at most its end, found {found}")
        trim_streams(self._parts, offsets)

    def register_stream_object(self, stream_id: int, stream_object: StreamObject, replaces: Iterable[int]) -> None:
        """Replace neighbouring objects of one stream by an object that was merged from them.

        An object that continues a stream is registered by the session of its node instead.

        Args:
            stream_id: the stream.
            stream_object: the new object, prepared before; it holds exactly the offsets of the replaced objects.
            replaces: the ids of the replaced objects.

        Raises:
            CommitRefused: a replaced object is gone, or an undo can remove it (see `shard_writes`); the replaced
                objects do not cover the new one exactly; the new one's deadline has passed, or it is not at its key.
        """
        check_stream_object(stream_id, stream_object)
        gone = checked_objects(replaces)
        rows = stream_object_rows([(stream_id, stream_object)], 0, self._parts.now_ms())
        unproven = first_unproven(self._parts, [stream_object.ref])
        number = shard_of(stream_id, self.format.stream_buckets)

        key = self._parts.keys.shard(number)

        def change(now: StreamShard | None) -> StreamShard | None:
            shard = require(now, key.where)
            changed = with_replacement(shard, stream_id, rows, gone, self._parts.now_ms())
            if changed is not None:
                sources = np.isin(shard.stream_objects["object_id"], gone)
                refuse_undoable(self._parts, shard.stream_objects[sources])
                self._extend_deadline(stream_object.ref.object_id)
                if unproven is not None:
                    refuse_misplaced(self._parts, unproven)
            return changed

        key.change(change)

    def _extend_deadline(self, object_id: int) -> None:
        # The prepared id is in another key than the one about to be written, so no single write can check both:
        # the deadline of the id is moved far beyond the time that the write may take. The collector drops the id
        # later, and finds the object listed.
        deadline_ms = self._parts.now_ms() + int(self.format.prepared_seconds * MILLISECONDS)
        for node_id, seen in self.refresh_state().lists.items():
            if object_id in seen.value.prepared["object_id"]:
                extend = partial(_extended, node_id=node_id, object_id=object_id, deadline_ms=deadline_ms)
                self._parts.keys.node_list(node_id).change(extend, seen=seen)
                return
        raise CommitRefused(f"object {object_id}: expected a prepared id, found that it is not prepared (any more)")

    def _ends(self, stream_ids: Iterable[int]) -> dict[int, int]:
        state = self.refresh_state()
        image, shards = state.built.image, [seen.value for seen in state.shards]
        ends: dict[int, int] = {}
        recovered = {}
        for stream_id in stream_ids:
            last = _known(image, stream_id).ranges[-1]
            if last.end != OPEN:
                ends[stream_id] = last.end
                continue
            if last.node_id not in recovered:
                node_list = state.lists[last.node_id].value
                recovered[last.node_id] = recover_ends(self._parts, node_list, shards).ends
            ends[stream_id] = recovered[last.node_id].end(stream_id) or 0
        return ends


@dataclass(slots=True, eq=False)
class _Opened:
    """One process's parts and follower of a catalog. Threads: any; the parts change once, and only their catalog id."""

    parts: CatalogParts
    follower: CatalogFollower


def _known(image: MetadataImage, stream_id: int) -> StreamImage:
    stream = image.streams.get(stream_id)
    if stream is None or not stream.ranges:
        raise CommitRefused(f"expected a stream of this catalog, found {stream_id}")
    return stream


def _extended(now: NodeList | None, *, node_id: int, object_id: int, deadline_ms: int) -> NodeList | None:
    return with_extended(require(now, f"the list of node {node_id}"), [object_id], deadline_ms, None)
