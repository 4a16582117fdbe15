"""Scopes and their streams, kept in versioned tables of a bucket.

    from accel.history.store import StreamStore
    from loaders.store import open_store

    streams = StreamStore.open(open_store("s3://bucket/prefix"), host=host)     without one: read, and ask
    streams.create_scope("shop")
    orders = streams.create_stream("shop", "orders", StreamConfiguration(min_segments=2))
    orders.scale([0], [(0.0, 0.25), (0.25, 0.5)])
    orders.segments_at(yesterday_ms)

Source: PDP-35.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from accel.history.rules.states import NamePhase
from accel.history.rules.values import (
    NUMBER_MAX,
    Integers,
    checked_integer,
    checked_numbers,
    checked_text,
    checked_time,
)
from accel.history.store import keys
from accel.history.store.hosts import GivenSizes, NoHost, SegmentHost
from accel.history.store.lifecycle import StreamEnding
from accel.history.store.names import NamedStream, Names, OrphanedTables, WantedStream
from accel.history.store.parts import HistorySettings, StoreParts, StreamParts
from accel.history.store.recovering import Recovered, Workflows
from accel.history.store.repair import Repair, Repairing
from accel.history.store.retention_workflow import StreamRetention, retain
from accel.history.store.stream import Stream
from accel.history.store.transaction_store import CompletedTransactions
from accel.system import SYSTEM, Components
from loaders.counting import CacheStats
from loaders.errors import DataNotFound, TableMissing
from loaders.store import ObjectStore
from loaders.tables import Tables, read_format

CREATE_ATTEMPTS_MAX = 8

PAGE_MAX: Final = 1000
"""Streams of one page of a listing."""


@dataclass(frozen=True, slots=True)
class StreamPage:
    """A page of streams. Threads: immutable.

    Args:
        names: of streams, in the order of their encoded names.
        token: for the next page; empty if this is the last one.
    """

    names: tuple[str, ...]
    token: str = ""


class StreamStore:
    """All streams of a bucket. Threads: any.

    Args:
        tables: where they lie; `StreamStore.open` makes them.
        system: clock, sleep and chance.
        settings: how histories are kept.
        host: holds the segments; None = this process reads and asks, and refuses what needs a host (`NoHost`).
        executor: sends calls of one step side by side; None = one after the other.
        is_initialised: whether the bucket has a format record: then the tables that all streams share were made before
            it, and none may be missing. Otherwise the first scope makes them.
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
        """The streams of a bucket, with conditional writes as its endpoint wants them. One request.

        Args:
            store: where everything lies.
            system: clock, sleep and chance.
            settings: how histories are kept.
            host: holds the segments; None = this process reads and asks, and refuses what needs a host (`NoHost`).
            executor: sends calls of one step side by side; None = one after the other.
        """
        record = read_format(store)
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
        """What the cache of records holds, of all streams together, and how it fared. No call."""
        return self._parts.records.cache_stats()

    # Scopes

    def create_scope(self, scope: str) -> bool:
        """Make a scope; False if it was there. 3 calls; 10 more in a new bucket.

        Raises:
            InvalidArgument: not a name.
        """
        return self._names.create_scope(scope)

    def delete_scope(self, scope: str) -> None:
        """Delete a scope without streams; one that is not there counts as deleted. 5 calls.

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

        A stream that is created or deleted meanwhile may be in it or not; all others are in one page, once.

        Args:
            scope: which.
            tag: those only that have it, which leaves out half-created ones. 4 calls more for each stream that is
                looked at: there is no index of tags.
            token: of the page before; empty for the first.
            limit: how many streams are looked at, at most 1,000; with a tag a page may have fewer, and none.

        Raises:
            NotInHistory: there is no such scope.
            InvalidArgument: a limit, a tag or a token that is none.
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
        """Create a stream, or finish its creation; one that is there stays as it is, and is returned.

        `Stream.is_new` tells which of both it was. One that is there is returned if its configuration is the wanted
        one, also if it is sealed (`Stream.state` tells), and takes no writes. One that is being deleted is deleted to
        its end first, and another one created in its place. Of several who create a stream at once the first decides on
        its time, its configuration and its segments; `is_new` is told to each that took part. 1 call more than
        `stream` for one that is there, and has to be compared.

        Args:
            scope: its scope.
            name: its name.
            wanted: what its owner wants; None = whatever a stream that is there has, `StreamConfiguration()` for a new
                one.
            time_ms: when it is created, milliseconds since 1970; None = now.
            segments: how many it has at first; None = as many as it has at least.
            first_number: number of the first segment; higher if an earlier stream of this name had that many.

        Raises:
            NotInHistory: there is no such scope.
            InvalidArgument: not a name, or numbers out of bounds.
            IllegalState: it is there with another configuration; nothing was changed (`Stream.configure` does).
        """
        asked = StreamConfiguration() if wanted is None else _checked_configuration(wanted)
        wanted_stream = WantedStream(
            wanted=asked,
            time_ms=self._parts.now_ms() if time_ms is None else checked_time("the time of creation", time_ms),
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
        raise OperationNotAllowed(f"expected {scope}/{name} to be created by one at a time: try again")

    def stream(self, scope: str, name: str, *, host: SegmentHost | None = None) -> Stream:
        """Open a stream. 3 calls.

        Args:
            scope: its scope.
            name: its name.
            host: holds its segments; None = the store's.

        Raises:
            NotInHistory: there is no such stream, or its creation was cut short.
            StreamDeleted: it is being deleted.
        """
        return self._opened(scope, name, host)

    def _opened(self, scope: str, name: str, host: SegmentHost | None, *, is_new: bool = False) -> Stream:
        identity = self._names.find(scope, name)
        parts = self._stream_parts(identity, HistoryLayout(), host)
        try:
            layout = parts.keys.layout().get().value
        except TableMissing as error:
            raise StreamDeleted(str(identity), str(identity.unique_id)) from error
        except DataNotFound as error:
            raise NotInHistory(f"expected a stream with a layout, found {identity} without", Sought.STREAM) from error
        return Stream(self._stream_parts(identity, layout, host), is_new=is_new)

    def delete_stream(self, scope: str, name: str) -> None:
        """Delete a stream that is sealed, or was never finished; one that is not there counts as deleted.

        Raises:
            IllegalState: it is neither.
            HostMissing: this process holds no segments; nothing was changed.
        """
        for _ in range(CREATE_ATTEMPTS_MAX):
            try:
                named = self._names.look(scope, name)
            except NotInHistory:
                return
            if named is None or named.entry.phase is NamePhase.FREE:
                return
            deleting: NamedStream | None = named
            if named.entry.phase is not NamePhase.DELETING:
                if named.entry.phase is NamePhase.LIVE:  # what is half created was acknowledged to nobody
                    self._workflows_of(named.identity).ending.refuse_undeletable()
                self._stream_parts(named.identity, HistoryLayout()).require_host("delete")
                deleting = self._names.delete(named)
            if deleting is not None and self._finish_deletion(deleting):
                return
        raise OperationNotAllowed(f"expected {scope}/{name} to be deleted by one at a time: try again")

    def _layout_of(self, identity: keys.StreamIdentity) -> HistoryLayout:
        """How a stream's history is cut into pieces; of one that is half gone, as by default."""
        try:
            versioned = self._stream_parts(identity, HistoryLayout()).keys.layout().read()
        except TableMissing:
            return HistoryLayout()
        return HistoryLayout() if versioned is None else versioned.value

    def run_retention(
        self, scope: str, time_ms: int | None = None, *, is_dry_run: bool = False
    ) -> list[StreamRetention]:
        """Run retention in all streams of a scope, as `retain` does; tells what became of each.

        Raises:
            NotInHistory: there is no such scope.
            HostMissing: this process does not know how far segments reach; nothing was changed.
        """
        if time_ms is not None:
            time_ms = checked_time("the time of a run", time_ms)
        names = self.streams(scope)
        if isinstance(self._host, NoHost):
            raise HostMissing("run retention in streams", scope)
        return [self.retain(scope, name, time_ms, is_dry_run=is_dry_run) for name in names]

    def retain(self, scope: str, name: str, time_ms: int | None = None, *, is_dry_run: bool = False) -> StreamRetention:
        """Run retention in one stream of many: what is wrong with it, or in its way, stands in the answer.

        Args:
            scope: its scope.
            name: its name.
            time_ms: when, milliseconds since 1970; None = now.
            is_dry_run: write nothing, and only tell what would become of it.

        Raises:
            InvalidArgument: a time that is none.
        """
        if time_ms is not None:
            time_ms = checked_time("the time of a run", time_ms)
        pause = self._parts.backoff.pause
        return retain(lambda: self.stream(scope, name), f"{scope}/{name}", time_ms, pause, is_dry_run=is_dry_run)

    def recover(self, scope: str | None = None) -> Recovered:
        """Finish what dead processes left behind in all streams of a scope, or of all; tells what that was.

        A stream that cannot be recovered does not hold up the others: its error stands in the answer. Tables and keys
        of a creation that was overtaken by another one of the same name are dropped (`OrphanedTables`).

        Raises:
            NotInHistory: there is no such scope.
        """
        recovered = Recovered()
        if scope is not None:
            self._names.streams(scope)  # refuses a scope that is not there
        for name in [scope] if scope is not None else list(self._names.scopes()):
            with recovered.collected(name):
                settled = self._settled_scope(name)
                if settled is not None:
                    recovered.done[name] = [settled]
                self._recover_streams(name, recovered)
        with recovered.collected("ends of transactions"):
            CompletedTransactions(self._parts).drop_old()
        with recovered.collected("tables that nobody names"):
            OrphanedTables(self._parts).drop(scope)
        return recovered

    def recover_stream(self, scope: str, name: str) -> list[str]:
        """Finish what dead processes left behind in one stream, its creation and its deletion too; gives what that was.

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

    def repair_stream(
        self, scope: str, name: str, *, apply: bool = False, sizes: Mapping[int, int] | None = None
    ) -> Repair:
        """Find records of a stream that are damaged, missing or contradict others, and rebuild those that follow.

        May run beside workflows (`Repairing`). Reads all records of the stream, past every cache; a client that has a
        damaged record decoded already goes on with it until it is opened anew.

        Args:
            scope: its scope.
            name: its name.
            apply: whether to write; otherwise nothing is changed.
            sizes: of sealed segments, by id, where a shard of them is lost; a host that holds the segments is asked for
                the others.

        Raises:
            NotInHistory: there is no such stream, or its creation was cut short.
            StreamDeleted: it is being deleted.
            OperationNotAllowed: workflows began and ended all the time.
            InvalidArgument: sizes that are none.
        """
        told = checked_numbers("sizes of sealed segments", sizes or {}, 0)
        identity = self._names.find(scope, name)

        def known(ids: Integers) -> Mapping[int, int]:
            known = {segment_id: told[segment_id] for segment_id in ids.tolist() if segment_id in told}
            others = ids[told.positions_of(ids) < 0]
            if isinstance(self._host, NoHost | GivenSizes) or not len(others):
                return known
            tails = self._host.tails((scope, name), others)
            return {**known, **checked_numbers("sizes that the host tells", tails, 0)}

        try:
            return Repairing(self._parts, identity, known).run(apply=apply)
        except TableMissing as error:
            raise StreamDeleted(str(identity), str(identity.unique_id)) from error

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
        """Carry a creation out, or go on with it; False if somebody else decided otherwise meanwhile."""
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
            # The process that decided so may have looked before this process made the last of it.
            self._clear(named)
        return is_done

    def _finish_deletion(self, named: NamedStream) -> bool:
        """Go on with a deletion that is decided; False if somebody wrote to the entry since."""
        ending = self._clear_segments(named)
        remembered = self._names.remember(named, ending.last_number())
        if remembered is None:
            return False
        ending.drop_tables()
        self._names.release(remembered)
        return True

    def _clear(self, named: NamedStream) -> None:
        with suppress(HostMissing):  # then it made no segments
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
