"""Scopes and their streams, kept in versioned tables of a bucket.

    from accel.history.store import StreamStore
    from loaders.store import open_store

    streams = StreamStore.open(open_store("s3://bucket/prefix"))
    streams.create_scope("shop")
    orders = streams.create_stream("shop", "orders", StreamConfiguration(min_segments=2))
    orders.scale([0], [(0.0, 0.25), (0.25, 0.5)])
    orders.segments_at(yesterday_ms)

Source: PDP-35.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import suppress

from accel.errors import InvalidArgument, NotInHistory, OperationNotAllowed, Sought
from accel.history.configuration import SEGMENTS_MAX, StreamConfiguration
from accel.history.layout import HistoryLayout
from accel.history.store import places
from accel.history.store.completed import CompletedTransactions
from accel.history.store.hosts import NoHost, SegmentHost
from accel.history.store.leftovers import Leftovers
from accel.history.store.names import Names
from accel.history.store.parts import StoreParts, StreamParts
from accel.history.store.retention_runs import StreamRetention, retain
from accel.history.store.settings import HistorySettings
from accel.history.store.stream import Stream
from accel.history.store.workflows import Workflows
from accel.system import SYSTEM, Components
from loaders.errors import DataNotFound, TableMissing
from loaders.store import ObjectStore
from loaders.tables import Tables, ValueCache, read_format

CACHE_SIZE_BYTES = 64 * 2**20
CREATE_ATTEMPTS_MAX = 8


class StreamStore:
    """All streams of a bucket. Threads: any.

    Args:
        tables: where they lie; `StreamStore.open` makes them.
        system: clock, sleep and chance.
        settings: how histories are kept.
        host: holds the segments; None = this process reads and asks, and refuses what needs a host (`NoHost`).
        executor: sends calls of one step side by side; None = one after the other.
    """

    def __init__(
        self,
        tables: Tables,
        *,
        system: Components = SYSTEM,
        settings: HistorySettings = HistorySettings(),  # noqa: B008 - immutable
        host: SegmentHost | None = None,
        executor: Executor | None = None,
    ) -> None:
        self._parts = StoreParts(tables, settings, system, executor)
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
            cache=ValueCache(CACHE_SIZE_BYTES),
            executor=executor,
            if_match_quotes=None if record is None else record.if_match_quotes,
        )
        return cls(tables, system=system, settings=settings, host=host, executor=executor)

    # Scopes

    def create_scope(self, scope: str) -> bool:
        """Make a scope; False if it was there. 3 calls; 5 more in a new bucket.

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

    # Streams

    def create_stream(
        self,
        scope: str,
        name: str,
        wanted: StreamConfiguration = StreamConfiguration(),  # noqa: B008 - immutable
        time_ms: int | None = None,
        *,
        segments: int | None = None,
        first_number: int = 0,
    ) -> Stream:
        """Create a stream, or finish its creation; one that is there stays as it is.

        Args:
            scope: its scope.
            name: its name.
            wanted: what its owner wants.
            time_ms: when it is created, milliseconds since 1970; None = now.
            segments: how many it has at first; None = as many as it has at least.
            first_number: number of the first segment; higher if an earlier stream of this name had that many.

        Raises:
            NotInHistory: there is no such scope.
            InvalidArgument: not a name, or numbers out of bounds.
        """
        _check_beginning(wanted.min_segments if segments is None else segments, first_number, time_ms)
        for _ in range(CREATE_ATTEMPTS_MAX):
            identity = self._names.reserve(scope, name, self._drop_tables)
            parts = self._stream_parts(identity, self._parts.settings.layout)
            # Who finds an entry without tables gives the name to another stream. If this one's tables are made at the
            # same moment, they are dropped, by that one or in here.
            with suppress(DataNotFound):
                Workflows.of(parts).creating.run(
                    wanted,
                    self._parts.now_ms() if time_ms is None else time_ms,
                    segments=segments,
                    start_number=max(first_number, parts.first_number()),
                )
                if self._names.find(scope, name) == identity:
                    return self.stream(scope, name)
            self._drop_tables(identity)
        raise OperationNotAllowed(f"expected {scope}/{name} to be created by one at a time: try again")

    def stream(self, scope: str, name: str, *, host: SegmentHost | None = None) -> Stream:
        """Open a stream. 3 calls.

        Args:
            scope: its scope.
            name: its name.
            host: holds its segments; None = the store's.

        Raises:
            NotInHistory: there is no such stream, or its creation was cut short.
        """
        identity = self._names.find(scope, name)
        parts = self._stream_parts(identity, HistoryLayout(), host)
        try:
            layout = parts.cells.layout().get().value
        except DataNotFound as error:
            raise NotInHistory(
                f"expected a stream, found {identity} half created: create it again", Sought.STREAM
            ) from error
        return Stream(self._stream_parts(identity, layout, host))

    def delete_stream(self, scope: str, name: str) -> None:
        """Delete a stream that is sealed, or was never finished; one that is not there counts as deleted.

        Raises:
            IllegalState: it is neither.
        """
        try:
            identity = self._names.find(scope, name)
        except NotInHistory:
            return
        ending = Workflows.of(self._stream_parts(identity, self._layout_of(identity))).ending
        ending.refuse_undeletable()
        ending.delete_segments()
        ending.remember_number()
        ending.drop_tables()
        self._names.release(identity)

    def _layout_of(self, identity: places.StreamIdentity) -> HistoryLayout:
        """How a stream's history is cut into pieces; of one that is half gone, as by default."""
        try:
            seen = self._stream_parts(identity, HistoryLayout()).cells.layout().read()
        except TableMissing:
            return HistoryLayout()
        return HistoryLayout() if seen is None else seen.value

    def run_retention(self, scope: str, time_ms: int | None = None) -> list[StreamRetention]:
        """Run retention in all streams of a scope, as `retain` does; tells what became of each.

        Raises:
            NotInHistory: there is no such scope.
        """
        return [self.retain(scope, name, time_ms) for name in self.streams(scope)]

    def retain(self, scope: str, name: str, time_ms: int | None = None) -> StreamRetention:
        """Run retention in one stream of many: what is wrong with it, or in its way, stands in the answer."""
        return retain(lambda: self.stream(scope, name), f"{scope}/{name}", time_ms, self._parts.patience.pause)

    def recover(self, scope: str | None = None) -> dict[str, list[str]]:
        """Finish what dead processes left behind in all streams of a scope, or of all; gives what that was.

        Streams that are half created, so that nothing tells what they were to be, are left alone. Tables of a creation
        that was overtaken by another one of the same name are dropped (`Leftovers`).
        """
        found: dict[str, list[str]] = {}
        for each in [scope] if scope is not None else list(self.scopes()):
            for name in self.streams(each):
                try:
                    done = self.recover_stream(each, name)
                except (NotInHistory, DataNotFound):  # half created, and nothing tells as what
                    continue
                if done:
                    found[f"{each}/{name}"] = done
        CompletedTransactions(self._parts).drop_old()
        Leftovers(self._parts).drop(scope)
        return found

    def recover_stream(self, scope: str, name: str) -> list[str]:
        """Finish what dead processes left behind in one stream; gives what that was.

        Raises:
            NotInHistory: there is no such stream, or nothing of it that could be finished.
        """
        return self.stream(scope, name).recover()

    # Inside

    def _drop_tables(self, identity: places.StreamIdentity) -> None:
        Workflows.of(self._stream_parts(identity, HistoryLayout())).ending.drop_tables()

    def _stream_parts(
        self, identity: places.StreamIdentity, layout: HistoryLayout, host: SegmentHost | None = None
    ) -> StreamParts:
        return StreamParts(self._parts, identity, layout, self._host if host is None else host)


def _check_beginning(segments: int, first_number: int, time_ms: int | None) -> None:
    """Refuse what no first epoch can have, before anything is written.

    Raises:
        InvalidArgument: a number out of bounds.
    """
    if not 1 <= segments <= SEGMENTS_MAX:
        raise InvalidArgument(f"expected 1 to {SEGMENTS_MAX} segments, found {segments}")
    if first_number < 0:
        raise InvalidArgument(f"expected a first segment number of at least 0, found {first_number}")
    if time_ms is not None and time_ms < 0:
        raise InvalidArgument(f"expected a time of at least 0, found {time_ms}")
