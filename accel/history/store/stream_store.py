"""Scopes and their streams, stored in versioned tables of a bucket.

    from accel.history.store import StreamStore
    from loaders.store import open_store

    streams = StreamStore.open(open_store("s3://bucket/prefix"), host=host)     without a host: read and request only
    streams.create_scope("shop")
    orders = streams.create_stream("shop", "orders", StreamConfiguration(min_segments=2))
    orders.scale([0], [(0.0, 0.25), (0.25, 0.5)])
    orders.segments_at(yesterday_ms)

Source: PDP-35.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, fields
from itertools import islice
from typing import Final

import numpy as np

from accel.errors import (
    HostMissing,
    IllegalState,
    InvalidArgument,
    NotInHistory,
    OperationNotAllowed,
    Sought,
    StreamDeleted,
)
from accel.history.rules.configuration import SEGMENTS_MAX, HistoryLayout, StreamConfiguration
from accel.history.rules.retention import RetentionEntry
from accel.history.rules.states import NamePhase, StreamState
from accel.history.rules.values import (
    NUMBER_MAX,
    checked_arguments,
    checked_id,
    checked_integer,
    checked_text,
)
from accel.history.store import keys
from accel.history.store.leftovers import Leftovers
from accel.history.store.lifecycle import StreamEnding
from accel.history.store.parts import StoreParts, StreamParts
from accel.history.store.recovering import Recovered, Workflows
from accel.history.store.retention_workflow import Retained
from accel.history.store.segment_host import NoHost, SegmentHost
from accel.history.store.settings import HistorySettings
from accel.history.store.stream import Stream
from accel.history.store.stream_names import NamedStream, Names, OrphanedTables, WantedStream
from accel.history.store.transaction_store import CompletedTransactions
from accel.system import SYSTEM, Components, of_store
from loaders.counting import CacheStats
from loaders.errors import DataConflict, DataNotFound, TableMissing
from loaders.store import ObjectStore
from loaders.tables import Tables, read_format

CREATE_ATTEMPTS_MAX = 8

PAGE_MAX: Final = 1000
"""Streams of one page of a listing."""

ATTEMPTS_MAX: Final = 5
ERROR_SIZE_MAX: Final = 2_000
"""Maximum number of characters of an error that are kept."""


@dataclass(frozen=True, slots=True)
class StreamPage:
    """A page of streams. Threads: immutable.

    Args:
        names: names of streams, in the order of their encoded names.
        token: for the next page; empty if this page is the last one.
    """

    names: tuple[str, ...]
    token: str = ""


@dataclass(frozen=True, slots=True)
class StreamRetention:
    """The result of a run of retention for one stream. Picklable.

    Args:
        stream: scope and name.
        outcome: the outcome.
        point: the recorded cut to which the stream was truncated; None if it was not truncated.
        error: the error of a busy or failed stream; empty otherwise.
    """

    stream: str
    outcome: Retained
    point: RetentionEntry | None = None
    error: str = ""

    @classmethod
    def stopped(cls, stream: str, outcome: Retained, error: Exception) -> StreamRetention:
        """The result for a stream whose run raised an error."""
        return cls(stream, outcome, error=f"{type(error).__name__}: {error}"[:ERROR_SIZE_MAX])


@checked_arguments
class StreamStore:
    """All streams of a bucket. Threads: any.

    Args:
        tables: contain the streams; `StreamStore.open` opens them.
        system: clock, sleep and random numbers.
        settings: settings of histories.
        host: holds the segments; None = this process reads and requests, and refuses calls that need a host (`NoHost`).
        executor: sends calls of one step in parallel; None = one after the other.
        is_initialised: whether the bucket has a format record: then the tables that all streams share were created
            before the record, and none may be missing. Otherwise `create_scope` creates them with the first scope.
    """

    def __init__(
        self,
        tables: Tables,
        *,
        system: Components = SYSTEM,
        settings: HistorySettings = HistorySettings(),  # noqa: B008 - immutable
        host: SegmentHost | None = None,
        executor: Executor | None = None,
        is_initialised: bool = False,
    ) -> None:
        self._parts = StoreParts(tables, settings, system, executor, is_initialised)
        self._names = Names(self._parts)
        self._host: SegmentHost = NoHost() if host is None else host

    @classmethod
    def open(
        cls,
        store: ObjectStore,
        *,
        system: Components = SYSTEM,
        settings: HistorySettings = HistorySettings(),  # noqa: B008 - immutable
        host: SegmentHost | None = None,
        executor: Executor | None = None,
    ) -> StreamStore:
        """Open the streams of a bucket, with conditional writes in the form that its endpoint accepts. One request.

        Args:
            store: contains the tables.
            system: clock, sleep and random numbers.
            settings: settings of histories.
            host: holds the segments; None = this process reads and requests, and refuses calls that need a host
                (`NoHost`).
            executor: sends calls of one step in parallel; None = one after the other.
        """
        record, system = read_format(store), of_store(store, system)
        tables = Tables(
            store,
            nonce=system.nonce,
            sleep=system.sleep,
            jitter=system.jitter,
            if_match_quotes=None if record is None else record.if_match_quotes,
        )
        return cls(
            tables,
            system=system,
            settings=settings,
            host=host,
            executor=executor,
            is_initialised=record is not None,
        )

    def cache_stats(self) -> CacheStats:
        """Counts of the cache of records, for all streams together. No call."""
        return self._parts.records.cache_stats()

    def now_ms(self) -> int:
        """Return milliseconds since 1970 by the store's clock. One request each 10 minutes, if it reports its time."""
        return self._parts.now_ms()

    # Scopes

    def create_scope(self, scope: str) -> bool:
        """Create a scope; return False if it exists already. 3 calls; 10 more in a new bucket.

        Raises:
            InvalidArgument: not a valid name.
        """
        return self._names.create_scope(scope)

    def delete_scope(self, scope: str) -> None:
        """Delete a scope without streams; a missing scope counts as deleted. 5 calls.

        Raises:
            IllegalState: it has streams.
        """
        self._names.delete_scope(scope)

    def scopes(self) -> Iterator[str]:
        """All scopes, in the order of their encoded names. 1 call for 1,000."""
        return self._names.scopes()

    def streams(self, scope: str) -> Iterator[str]:
        """The streams of a scope, half-created ones included. 2 calls for 1,000.

        Raises:
            NotInHistory: there is no such scope.
        """
        return self._names.streams(scope)

    def list_streams(self, scope: str, *, tag: str | None = None, token: str = "", limit: int = PAGE_MAX) -> StreamPage:
        """One page of the streams of a scope, in the order of their encoded names.

        A stream that is created or deleted meanwhile may be missing; every other stream is in exactly one page.

        Args:
            scope: scope of the streams.
            tag: return only streams with this tag, without half-created streams. 4 more calls for each stream that is
                examined: there is no index of tags.
            token: the token of the previous page; empty for the first page.
            limit: number of streams that are examined, at most 1,000; with a tag, a page may have fewer, or none.

        Raises:
            NotInHistory: there is no such scope.
            InvalidArgument: an invalid limit, tag or token.
        """
        limit = checked_integer("a limit", limit, 1, PAGE_MAX)
        if token:
            keys.checked_name("page token", token)
        names = list(islice(self._names.streams(scope, token), limit + 1))
        following = names[limit - 1] if len(names) > limit else ""
        names = names[:limit]
        if tag is not None:
            tag = checked_text("a tag", tag, low=0)
            names = [name for name in names if tag in self._tags(scope, name)]
        return StreamPage(tuple(names), following)

    def _tags(self, scope: str, name: str) -> tuple[str, ...]:
        try:
            return self.stream(scope, name).configuration().tags
        except (NotInHistory, StreamDeleted):
            return ()

    # Streams

    def create_stream(
        self,
        scope: str,
        name: str,
        wanted: StreamConfiguration | None = None,
        time_ms: int | None = None,
        *,
        segments: int | None = None,
        first_number: int = 0,
    ) -> Stream:
        """Create a stream, or finish its creation; an existing stream is returned unchanged.

        `Stream.is_new` says whether the stream was created. An existing stream is returned if it has the wanted
        configuration, even if it is sealed (see `Stream.state`) and takes no writes. A deletion that is under way is
        finished first, and then a new stream is created. If several processes create a stream at once, the first one
        decides on its time, configuration and segments; `is_new` is true for each process that took part. An existing
        stream whose configuration must be compared takes 1 more call than `stream`.

        Args:
            scope: its scope.
            name: its name.
            wanted: its configuration; None = any configuration for an existing stream, `StreamConfiguration()` for a
                new one.
            time_ms: time of the creation, milliseconds since 1970; None = now.
            segments: number of segments at first; None = the configured minimum.
            first_number: number of the first segment; higher if an earlier stream of this name used that number.

        Raises:
            NotInHistory: there is no such scope.
            InvalidArgument: not a valid name, or numbers out of bounds.
            IllegalState: it exists with another configuration, and was not changed (`Stream.configure` changes it).
        """
        asked = StreamConfiguration() if wanted is None else _checked_configuration(wanted)
        wanted_stream = WantedStream(
            wanted=asked,
            time_ms=self._parts.time_ms("the time of creation", time_ms),
            segments=checked_integer(
                "a number of segments", asked.min_segments if segments is None else segments, 1, SEGMENTS_MAX
            ),
            first_number=checked_integer("the number of a first segment", first_number, 0, NUMBER_MAX),
        )
        for _ in range(CREATE_ATTEMPTS_MAX):
            named = self._names.claim(scope, name, wanted_stream)
            is_new = named.entry.phase is NamePhase.CREATING and self._created(named)
            if is_new or named.entry.phase is NamePhase.LIVE:
                with suppress(NotInHistory):  # deleted meanwhile
                    stream = self._opened(scope, name, None, is_new=is_new)
                    if wanted is not None and not (is_new and named.entry.wanted == wanted):
                        _refuse_another(stream, wanted)
                    return stream
            elif named.entry.phase is NamePhase.DELETING:
                self._finish_deletion(named)
        raise OperationNotAllowed(f"expected one process to create {scope}/{name}, found several: try again")

    def stream(self, scope: str, name: str, *, host: SegmentHost | None = None) -> Stream:
        """Open a stream. 3 calls.

        Args:
            scope: its scope.
            name: its name.
            host: holds its segments; None = the store's.

        Raises:
            NotInHistory: there is no such stream, or its creation was interrupted.
            StreamDeleted: it is being deleted.
        """
        return self._opened(scope, name, host)

    def segment_stream(self, scope: str, name: str, segment_id: int) -> int | None:
        """The stream of the object layer with a segment's data, also while its stream is half created or being deleted.

        3 calls. None if there is no such stream, or nothing was written of the segment.

        Raises:
            NotInHistory: there is no such scope.
        """
        segment_id = checked_id(segment_id)
        named = self._names.look(scope, name)
        if named is None or named.entry.phase is NamePhase.FREE:
            return None
        try:
            key = self._stream_parts(named.identity, HistoryLayout()).keys.segment_stream(segment_id)
            versioned = key.read()
        except TableMissing:
            return None
        return None if versioned is None else versioned.value

    def _opened(self, scope: str, name: str, host: SegmentHost | None, *, is_new: bool = False) -> Stream:
        identity = self._names.find(scope, name)
        parts = self._stream_parts(identity, HistoryLayout(), host)
        try:
            layout = parts.keys.layout().get().value
        except TableMissing as error:
            raise StreamDeleted(str(identity), str(identity.unique_id)) from error
        except DataNotFound as error:
            found = f"expected a stream with a layout, found {identity} without one"
            raise NotInHistory(found, Sought.STREAM) from error
        return Stream(self._stream_parts(identity, layout, host), is_new=is_new)

    def delete_stream(self, scope: str, name: str) -> None:
        """Delete a stream that is sealed or half created; a missing stream counts as deleted.

        Raises:
            IllegalState: it is neither sealed nor half created.
            HostMissing: this process holds no segments; nothing was changed.
        """
        first: keys.StreamIdentity | None = None
        for _ in range(CREATE_ATTEMPTS_MAX):
            try:
                named = self._names.look(scope, name)
            except NotInHistory:
                return
            if named is None or named.entry.phase is NamePhase.FREE or (first or named.identity) != named.identity:
                return  # another process has deleted it meanwhile, and a new stream may have its name
            first = named.identity
            deleting: NamedStream | None = named
            if named.entry.phase is not NamePhase.DELETING:
                if named.entry.phase is NamePhase.LIVE:  # a half-created stream was acknowledged to no caller
                    self._workflows_of(named.identity).ending.refuse_undeletable()
                self._stream_parts(named.identity, HistoryLayout()).require_host("delete")
                deleting = self._names.delete(named)
            if deleting is not None and self._finish_deletion(deleting):
                return
        raise OperationNotAllowed(f"expected one process to delete {scope}/{name}, found several: try again")

    def _layout_of(self, identity: keys.StreamIdentity) -> HistoryLayout:
        """The layout of a stream's history; the default layout for a half-deleted stream."""
        try:
            versioned = self._stream_parts(identity, HistoryLayout()).keys.layout().read()
        except TableMissing:
            return HistoryLayout()
        return HistoryLayout() if versioned is None else versioned.value

    def run_retention(
        self, scope: str, time_ms: int | None = None, *, is_dry_run: bool = False
    ) -> list[StreamRetention]:
        """Run retention in all streams of a scope, as `retain` does; return the outcome of each.

        Raises:
            NotInHistory: there is no such scope.
            HostMissing: this process does not know the ends of segments; nothing was changed.
        """
        if time_ms is not None:
            time_ms = self._parts.time_ms("the time of a run", time_ms)
        names = self.streams(scope)
        if isinstance(self._host, NoHost):
            raise HostMissing("run retention in streams", scope)
        return [self.retain(scope, name, time_ms, is_dry_run=is_dry_run) for name in names]

    def retain(self, scope: str, name: str, time_ms: int | None = None, *, is_dry_run: bool = False) -> StreamRetention:
        """Run retention in one stream of many: an error or a conflict is reported in the result, not raised.

        Args:
            scope: its scope.
            name: its name.
            time_ms: time of the run, milliseconds since 1970; None = now.
            is_dry_run: write nothing, and only report what the run would do.

        Raises:
            InvalidArgument: an invalid time.
        """
        if time_ms is not None:
            time_ms = self._parts.time_ms("the time of a run", time_ms)
        pause = self._parts.backoff.pause
        return retain(lambda: self.stream(scope, name), f"{scope}/{name}", time_ms, pause, is_dry_run=is_dry_run)

    def recover(self, scope: str | None = None) -> Recovered:
        """Finish the workflows of dead processes in all streams of a scope, or of all scopes; return what was done.

        A stream that cannot be recovered does not stop the others: the result contains its error. If a creation was
        overtaken by another one of the same name, its tables and keys are dropped (`OrphanedTables`). Likewise keys
        that were written late, of deleted streams and ended transactions; those without a scope only for all scopes
        (`Leftovers`).

        Raises:
            NotInHistory: there is no such scope.
        """
        recovered = Recovered()
        if scope is not None:
            self._names.streams(scope)  # raises if there is no such scope
        for name in [scope] if scope is not None else list(self._names.scopes()):
            with recovered.collected(name):
                settled = self._settled_scope(name)
                if settled is not None:
                    recovered.done[name] = [settled]
                self._recover_streams(name, recovered)
        with recovered.collected("ends of transactions"):
            CompletedTransactions(self._parts).drop_old()
        with recovered.collected("orphaned tables"):
            OrphanedTables(self._parts).drop(scope)
        if scope is None:
            with recovered.collected("leftovers"):
                Leftovers(self._parts).drop_batches()
                Leftovers(self._parts).delete_transactions()
                Leftovers(self._parts).delete_times(self.stream)
        return recovered

    def recover_stream(self, scope: str, name: str) -> list[str]:
        """Finish the workflows of dead processes in one stream, creation and deletion too; return what was done.

        Raises:
            NotInHistory: there is no such stream.
        """
        done = ["unlist"] if self._names.drop_stale(scope, name) else []
        named = self._names.look(scope, name)
        if named is None or named.entry.phase is NamePhase.FREE:
            if done:
                return done
            raise NotInHistory(f"expected a stream of scope {scope!r}, found none named {name!r}", Sought.STREAM)
        if named.entry.phase is NamePhase.DELETING:
            self._finish_deletion(named)
            return [*done, "delete"]
        if named.entry.phase is NamePhase.CREATING:
            self._created(named)
            return [*done, "create"]
        stream = self.stream(scope, name)
        done += stream.recover()
        return [*done, "erase cuts"] if stream.workflows.retention.erase_unlisted() else done

    def parts_of(self, scope: str, name: str) -> StreamParts:
        """The parts of a stream, without a read of its own records, which may be damaged. 2 calls.

        For other modules of this library, such as repairs. Its layout is the default one.

        Raises:
            NotInHistory: there is no such stream, or its creation was interrupted.
            StreamDeleted: it is being deleted.
        """
        return self._stream_parts(self._names.find(scope, name), HistoryLayout())

    # Inside

    def _settled_scope(self, scope: str) -> str | None:
        settled = self._names.settle_scope(scope)
        self._names.drop_stale_scope(scope)
        return settled

    def _recover_streams(self, scope: str, recovered: Recovered) -> None:
        for name in self._names.streams(scope):
            with recovered.collected(f"{scope}/{name}"):
                try:
                    done = self.recover_stream(scope, name)
                except StreamDeleted:  # meanwhile
                    continue
                if done:
                    recovered.done[f"{scope}/{name}"] = done

    def _created(self, named: NamedStream) -> bool:
        """Carry out or continue a creation; return False if another process decided otherwise meanwhile."""
        entry, parts = named.entry, self._stream_parts(named.identity, self._parts.settings.layout)
        try:
            Workflows.of(parts).creating.run(
                entry.wanted, entry.time_ms, segments=entry.segments, start_number=entry.first_number
            )
        except DataNotFound:
            is_done = False  # its tables were dropped
        else:
            is_done = self._names.acknowledge(named)
        if not is_done and self._names.is_gone(named.identity):
            # The process that decided so may have cleared before this process created its last segments and tables.
            self._clear(named)
        return is_done

    def _finish_deletion(self, named: NamedStream) -> bool:
        """Continue a deletion that is decided; return False if another process wrote the entry since.

        Raises:
            NotInHistory, IllegalState: records are missing, and no other process has finished the deletion.
        """
        try:
            ending = self._clear_segments(named)
        except (NotInHistory, IllegalState):  # another process may delete it, too, and have dropped records
            self._parts.backoff.pause(1)
            now = self._names.look(named.identity.scope, named.identity.name)
            if now is not None and now.identity == named.identity and now.entry.phase is NamePhase.DELETING:
                raise
            return False
        remembered = self._names.remember(named, ending.last_number())
        if remembered is None:
            return False
        ending.drop_tables()
        self._names.release(remembered)
        return True

    def _clear(self, named: NamedStream) -> None:
        with suppress(HostMissing):  # then this process created no segments
            self._clear_segments(named)
        self._workflows_of(named.identity).ending.drop_tables()
        self._names.unlist(named)

    def _clear_segments(self, named: NamedStream) -> StreamEnding:
        entry, ending = named.entry, self._workflows_of(named.identity).ending
        ending.delete_segments(np.arange(entry.first_number, entry.first_number + entry.segments, dtype=np.int64))
        return ending

    def _workflows_of(self, identity: keys.StreamIdentity) -> Workflows:
        return Workflows.of(self._stream_parts(identity, self._layout_of(identity)))

    def _stream_parts(
        self, identity: keys.StreamIdentity, layout: HistoryLayout, host: SegmentHost | None = None
    ) -> StreamParts:
        return StreamParts(self._parts, identity, layout, self._host if host is None else host)


def _checked_configuration(wanted: StreamConfiguration) -> StreamConfiguration:
    if not isinstance(wanted, StreamConfiguration):
        raise InvalidArgument(f"expected a StreamConfiguration, found {type(wanted).__name__}")
    return wanted


def _refuse_another(stream: Stream, wanted: StreamConfiguration) -> None:
    found = stream.configuration()
    if found == wanted:
        return
    names = [each.name for each in fields(wanted) if getattr(found, each.name) != getattr(wanted, each.name)]
    expected, there = (
        ", ".join(f"{name} {getattr(configuration, name)!r}" for name in names) for configuration in (wanted, found)
    )
    raise IllegalState(f"expected {stream.name} with {expected}, found it with {there}")


def retain(
    open_stream: Callable[[], Stream],
    name: str,
    time_ms: int | None,
    pause: Callable[[int], object],
    *,
    is_dry_run: bool = False,
) -> StreamRetention:
    """Run retention in one stream of many: an error is returned in the result, not raised.

    If another workflow has the stream, the run is repeated, for `ATTEMPTS_MAX` attempts in all.

    Args:
        open_stream: opens the stream.
        name: scope and name.
        time_ms: time of the run, milliseconds since 1970; None = now.
        pause: waits before repetition number 1, 2, ...
        is_dry_run: write nothing, and only return the outcome that a run would have.
    """
    try:
        stream = open_stream()
        if is_dry_run:
            return StreamRetention(name, *stream.workflows.retention.plan(time_ms))
        return _retained(stream, name, time_ms, pause)
    except NotInHistory:
        return StreamRetention(name, Retained.UNFINISHED)
    except Exception as error:  # noqa: BLE001 - a host may raise anything, and other streams are unaffected
        return StreamRetention.stopped(name, Retained.FAILED, error)


def totals(streams: Iterable[StreamRetention]) -> dict[str, int]:
    """The number of streams of each outcome, in the order of the table; 0 for an outcome of no stream."""
    counts = Counter(stream.outcome for stream in streams)
    return {outcome.value: counts[outcome] for outcome in Retained}


def _retained(stream: Stream, name: str, time_ms: int | None, pause: Callable[[int], object]) -> StreamRetention:
    attempt = 1
    while True:
        try:
            return StreamRetention(name, *stream.workflows.retention.retain(time_ms))
        except (OperationNotAllowed, DataConflict) as error:
            if attempt == ATTEMPTS_MAX:
                return StreamRetention.stopped(name, Retained.BUSY, error)
        except (NotInHistory, DataNotFound) as error:
            outcome = Retained.FAILED if _is_whole(stream) else Retained.UNFINISHED
            return StreamRetention.stopped(name, outcome, error)
        pause(attempt)
        attempt += 1


def _is_whole(stream: Stream) -> bool:
    try:
        return stream.state() is not StreamState.CREATING
    except (NotInHistory, DataNotFound):
        return False
