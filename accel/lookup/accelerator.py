"""The accelerator for threads, and the common base of it and the accelerator for asyncio: each call as a script.

    accelerator = ReadAccelerator(StaticImages(image), store)
    answer = accelerator.get_objects(stream_id=420000, start=1000, end=1600, limit=4)
    for batch in accelerator.read(stream_id=420000, start=1000, end=1600):
        ...

`drivers.py` carries out each step of a lookup or a read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from accel.errors import AccelError, Closed, InvalidRequest, LookupTimedOut, OffsetBeyondEnd, UnknownStream
from accel.image import OPEN_END, ImageVersion, MetadataImage, ObjectRef
from accel.image_source import ImageSource
from accel.lookup.answer import Answer, Request, checked_arguments, plain_deadline, plain_request
from accel.lookup.drivers import (
    ANSWER_SECONDS,
    Deadline,
    Fetcher,
    ReadingBase,
    Script,
    SideBySide,
    Wait,
    checked_requests,
    current_image,
    refuse_unknown,
    still_pending,
    wait_newer,
)
from accel.lookup.engine import Engine
from accel.lookup.following import Asked
from accel.lookup.hints import WarmReport
from accel.lookup.lookup import Asking
from accel.lookup.reading import BYTES_MAX, SPAN_SIZE_BYTES_MAX, Ranges
from accel.lookup.stats import AcceleratorStats, count_answers, count_error
from accel.settings import Settings
from accel.system import SYSTEM, Components
from loaders.format import BatchColumns, RecordBatch, find
from loaders.format.index import block_spans
from loaders.lifetime import Closing, PerProcess
from loaders.object_index import ObjectIndexLoader
from loaders.settings import INT64_MAX, TimeLimit, plain_arguments
from loaders.store import ObjectStore
from loaders.threads import uninterrupted
from range_index import ObjectRanges, RangesGiven

if TYPE_CHECKING:
    from accel.lookup.explain import Explanation, Trace
    from accel.lookup.hot import HotReport
    from accel.lookup.slow_lookups import SlowLookup
    from accel.lookup.stream_map import StreamMap


T = TypeVar("T")

Outcomes = dict[int, Answer | AccelError]
"""Outcomes by the number of the request in a call with many requests."""


@dataclass(frozen=True, slots=True)
class BytePlace:
    """Bytes of one object that hold whole blocks of a stream, for clients that fetch them themselves.

    Args:
        object_id: the object; for a composite object, the linked object.
        start_byte, end_byte: [start, end) in that object.
        start, end: the offsets in these blocks; they may extend beyond the request at both ends.
    """

    object_id: int
    start_byte: int
    end_byte: int
    start: int
    end: int


def places_of(loader: ObjectIndexLoader, answer: Answer, max_bytes: int) -> list[BytePlace]:
    """The byte ranges of an answer, in the order of offsets. Blocks until the indexes are open.

    Args:
        loader: opens indexes.
        answer: of a lookup.
        max_bytes: of payload; the block that reaches it is the last one.

    Raises:
        StoreError, CorruptObject: an object could not be opened.
    """
    return list(_places(loader, answer, max_bytes))


def _places(loader: ObjectIndexLoader, answer: Answer, max_bytes: int) -> Iterator[BytePlace]:
    request = answer.request
    offset, bytes_left = request.start, max_bytes
    loads = [loader.open(-1 if each.node_id is None else each.node_id, each.ref) for each in answer.objects]
    for found, load in zip(answer.objects, loads, strict=True):
        if bytes_left <= 0:
            return
        opened = load.result.result()
        chosen = find(opened.index, request.stream_id, offset, request.end, bytes_left)
        for link, rows in block_spans(opened.index, opened.composite, chosen.rows, SPAN_SIZE_BYTES_MAX):
            object_id = found.object_id if link is None else link
            first, last = rows[0], rows[-1]
            yield BytePlace(object_id, first.position, last.position + last.size_bytes, first.start, last.end)
        offset, bytes_left = found.end, chosen.bytes_left


@checked_arguments
class AcceleratorBase:
    """The common base of both accelerators.

    A forked process may use the accelerator of its parent: the accelerator has empty caches and its own threads there.
    An accelerator cannot be pickled: send the store to a spawned process instead. Once an accelerator is closed, calls
    raise Closed, except `stats`, `hot`, `slow_lookups`, `image_age_seconds` and `is_source_failing`; a running call
    that has more to load raises Closed as well.

    Args:
        source: returns metadata images.
        store: contains the objects; `open_store` returns one for a URL.
        settings: limits and options.
        system: clock, sleep and randomness; the real ones by default.
    """

    def __init__(
        self,
        source: ImageSource,
        store: ObjectStore,
        *,
        settings: Settings | None = None,
        system: Components = SYSTEM,
    ) -> None:
        self._is_closed = False
        self._engines = PerProcess(
            "an accelerator",
            lambda: Engine(source, store, settings=settings or Settings(), system=system),
            system.process_id,
        )

    @property
    def _engine(self) -> Engine:
        """The engine of this process; raises Closed if the accelerator is closed."""
        if self._is_closed:
            raise Closed("expected an accelerator that is open, found it closed")
        return self._engines()

    def _close_engine(self) -> None:
        """Close the engine of this process; blocks until its running requests have ended."""
        self._is_closed = True
        if (engine := self._engines.here()) is not None:
            engine.close()

    def object_committed(self, node_id: int, ref: ObjectRef, ranges: RangesGiven) -> None:
        """Report an object that this process wrote itself, so that lookups of this process need not open it.

        Args:
            node_id: the node that the object was committed for.
            ref: the object.
            ranges: its ranges: {stream id: (start, end)}, (stream id, start, end) rows, or `ObjectRanges`; each range
                without a hole inside.

        Raises:
            ValueError: ranges that repeat a stream or are inverted.
        """
        self._engine.commit(node_id, ref, ObjectRanges.of(ranges))

    def replace_image(self, image: MetadataImage) -> bool:
        """Install an image if it is newer than the current one, and drop cached data of objects that it does not list.

        Returns:
            Whether the image was installed. An older or equal image changes nothing.

        Raises:
            ImageRefused: an image of another namespace, or of another kind of version.
        """
        return uninterrupted(partial(self._engine.images.install, image))

    def image_changed(self) -> None:
        """Report that there is a newer image: the image source is asked for it in the background.

        For callers with a channel that reports commits: lookups then use a new image sooner than by polling. The method
        does not block, and may be called for every change, from any thread. If the source has a method `image_changed`
        (as `PolledImages` and the catalog's images do), it is called first.
        """
        self._engine.images.changed()

    def next_image(self, version: ImageVersion, timeout_seconds: float) -> Asked:
        """Start to wait for an image newer than this version, in the background; does not block.

        For followers: the source is asked as often as for a waiting fetch, and at once after `image_changed`. All
        waiting callers share one query.

        Args:
            version: of the caller's image.
            timeout_seconds: how long to wait; at most 5 seconds.

        Returns:
            A future: the image; None = there was none in time; `RefreshFailed` = the source failed, so whether there
            is one is unknown. The future raises as `refresh`.
        """
        return self._engine.images.ask_next(version, timeout_seconds)

    @property
    def image_age_seconds(self) -> float:
        """Seconds since the current image was known to be the newest."""
        return self._engines().images.age_seconds()

    @property
    def image_version(self) -> ImageVersion:
        """The version of the image that a lookup would begin with now.

        Raises:
            ImageTooOld: there is no image that may be used.
        """
        return self._engine.images.current().version

    def version_at_hand(self) -> ImageVersion | None:
        """The version of the current image; None if no image may be used. Does not block.

        If the next query for an image is due, it is started in the background, as by a lookup.

        Raises:
            ImageTooOld, CatalogWentBack: a source that does not poll has no image that may be used.
        """
        image = self._engine.images.cached()
        return None if image is None else image.version

    @property
    def is_source_failing(self) -> bool:
        """Whether the last query to the image source failed."""
        return self._engines().images.is_failing

    def stream_map(self, stream_id: int, offset: int | None = None) -> StreamMap:
        """A map of a stream's objects, from the installed image and the caches in memory. Loads nothing.

        Args:
            stream_id: the stream.
            offset: if a list has more than 20,000 objects, the map contains those around this offset; None = the last
                ones.

        Raises:
            UnknownStream: the installed image does not have the stream.

        Complexity: O(objects of the nodes that own it).
        """
        from accel.lookup.stream_map import map_stream  # noqa: PLC0415 - few callers need maps

        engine = self._engine
        return map_stream(engine.images.image, engine.index_cache, stream_id, offset)

    def object_key(self, object_id: int) -> str:
        """The key of an object in the store."""
        return self._engine.layout.object_key(object_id)

    def places(self, answer: Answer, *, max_bytes: int = BYTES_MAX) -> list[BytePlace]:
        """The byte ranges of an answer's offsets in its objects, for callers that fetch the bytes themselves; blocks.

        Makes one request for each object whose block index is not in memory, in parallel.

        Args:
            answer: of a lookup of this accelerator.
            max_bytes: of payload; the block that reaches it is the last one.

        Raises:
            StoreError, CorruptObject: an object could not be opened.
        """
        return places_of(self._engine.loader, answer, max_bytes)

    def add_hints(self, node_id: int, stream_id: int, entries: Iterable[tuple[int, int, int]]) -> None:
        """Add (start, end, object id) entries of a stream, each of which must be correct for its object.

        Lookups ignore an entry of an object that their image does not list.
        """
        rows = list(entries)
        starts, ends, object_ids = ([row[column] for row in rows] for column in range(3))
        entered = partial(self._engine.index_cache.add_entries, node_id, stream_id, starts, ends, object_ids)
        uninterrupted(entered)

    def stats(self) -> AcceleratorStats:
        """Counts, and memory use with its limits. Complexity: O(1) except for sums over caches."""
        engine = self._engines()
        return engine.alone(engine.stats)

    def slow_lookups(self) -> tuple[SlowLookup, ...]:
        """The last lookups that took `Settings.slow_lookup_seconds` or longer, the latest one last; () if it is None.

        They are lookups of `get_objects`, `explain`, `fetch` and `read`, including failed and abandoned ones. A read
        makes several lookups, one after the other; the time between two batches of the read is not counted.
        """
        slow = self._engines().slow_lookups
        return () if slow is None else slow.recent()

    def hot(self) -> HotReport:
        """The streams and nodes with most lookups, GETs and bytes over the last 10 minutes, as `accel.lookup.hot` says.

        Lookups of reads are not counted as lookups; the GETs and bytes of reads are, except those of `Ranges`.
        """
        engine = self._engines()
        return engine.alone(engine.hot.report)

    def _begin(self, engine: Engine, request: Request) -> Answer | Asking[Answer] | None:
        """The answer, if memory proves all of it; else the remaining steps; None if no image may be used now."""
        try:
            image = engine.images.cached()
            begun = None if image is None else engine.begin_lookup(request, image)
        except AccelError as error:
            count_error(engine.counters, error)
            raise
        return engine.finished(begun) if isinstance(begun, Answer) else begun

    def _begin_many(self, requests: list[Request]) -> tuple[Outcomes, dict[int, Asking[Answer] | None]]:
        """By number, the outcomes that memory and one image decide, and begun steps of the rest; all become plain."""
        engine = self._engine
        outcomes: Outcomes = {}
        rest: dict[int, Asking[Answer] | None] = {}
        answers: list[Answer] = []
        try:
            image = engine.images.cached()
        except AccelError:
            image = None  # each lookup raises the error itself
        for number, asked in enumerate(requests):
            try:
                requests[number] = request = plain_request(asked)
                begun = None if image is None else engine.begin_lookup(request, image)
            except AccelError as error:
                count_error(engine.counters, error)
                outcomes[number] = error
                continue
            if isinstance(begun, Answer):
                outcomes[number] = begun
                answers.append(begun)
            else:
                rest[number] = begun
        count_answers(engine.counters, answers)
        engine.hot.count_all(answers)
        return outcomes, rest

    def _look_up(
        self,
        request: Request,
        deadline_seconds: TimeLimit,
        trace: Trace | None = None,
        *,
        begun: Asking[Answer] | None = None,
        images: Deadline | None = None,
    ) -> Script[Answer]:
        slow = self._engine.slow_lookups
        if slow is None:
            return (yield from self._search(request, deadline_seconds, trace, begun=begun, images=images))
        trace = slow.new_trace() if trace is None else trace  # `begun` has no trace: the lookup begins again
        outcome: Answer | AccelError | None = None
        timer = self._engine.system.timer
        started = timer()
        try:
            answer = outcome = yield from self._search(request, deadline_seconds, trace, images=images)
        except AccelError as error:
            outcome = error
            raise
        except GeneratorExit:
            outcome = LookupTimedOut("the caller abandoned the lookup")
            raise
        finally:
            if outcome is not None:
                slow.note(request, outcome, trace, timer() - started)
        return answer

    def _search(
        self,
        request: Request,
        deadline_seconds: TimeLimit,
        trace: Trace | None = None,
        *,
        begun: Asking[Answer] | None = None,
        images: Deadline | None = None,
    ) -> Script[Answer]:
        engine = self._engine
        deadline = Deadline(engine.system.timer, deadline_seconds)
        images = images or deadline
        try:
            if begun is None:
                started_seconds = engine.system.timer()
                image = yield from current_image(engine, images)
                if trace is not None:
                    trace.image_seconds += engine.system.timer() - started_seconds
                answer = engine.begin_lookup(request, image, trace)
                if isinstance(answer, Answer):
                    return engine.finished(answer)
                begun = answer
            return engine.finished((yield from Fetcher(engine, request.stream_id, deadline, trace, images).run(begun)))
        except AccelError as error:
            count_error(engine.counters, error)
            raise

    def _explain(self, request: Request, deadline_seconds: TimeLimit) -> Script[Explanation]:
        from accel.lookup.explain import Explanation, Trace  # noqa: PLC0415 - few callers explain, all look up

        engine, trace = self._engine, Trace()
        timer = engine.system.timer
        started = timer()
        outcome: Answer | AccelError
        try:
            outcome = yield from self._look_up(request, deadline_seconds, trace)
        except InvalidRequest:
            raise
        except AccelError as error:
            outcome = error
        seconds, hints = timer() - started, engine.hint_states(trace.node_ids)
        drawn = self._map_around(request) if trace.node_ids else None
        return Explanation(request, outcome, trace, seconds, engine.policy_name, hints, drawn)

    def _map_around(self, request: Request) -> StreamMap | None:
        from accel.lookup.stream_map import EXPLAINED_MAX, map_stream  # noqa: PLC0415 - likewise

        engine, stream_id = self._engine, request.stream_id
        try:
            return map_stream(
                engine.images.image, engine.index_cache, stream_id, request.start, objects_max=EXPLAINED_MAX
            )
        except UnknownStream:  # a newer image was installed, which does not have the stream
            return None

    def _fetch(self, request: Request, timeout_seconds: float) -> Script[Answer]:
        engine = self._engine
        if timeout_seconds < 0:
            raise InvalidRequest(f"expected timeout_seconds of at least 0, found {timeout_seconds!r}")
        deadline = Deadline(engine.system.timer, timeout_seconds, ANSWER_SECONDS)
        while True:
            try:
                answer = yield from self._look_up(request, None, images=deadline)
            except UnknownStream as error:
                yield from refuse_unknown(engine, error, deadline)
                continue
            if answer.satisfies_fetch:
                return answer
            if answer.stream_end is not None and answer.is_beyond_end:
                if not (yield from wait_newer(engine, answer.image_version, Deadline(engine.system.timer, 0.0))):
                    raise OffsetBeyondEnd(request.stream_id, request.start, answer.stream_end)
                continue
            if not (yield from wait_newer(engine, answer.image_version, deadline)):
                raise still_pending(answer)


@plain_arguments(InvalidRequest, besides=["get_objects"])
class ReadAccelerator(AcceleratorBase, Closing):
    """Lookups and reads for threads.

    Threads: any number should share one accelerator, and so its caches. Close it, or use it as a context manager.
    """

    def _end_block(self, _: BaseException | None) -> None:
        self.close()

    def close(self) -> None:
        """Stop loading; blocks until the running requests have ended. Calls that need further requests raise Closed."""
        self._close_engine()

    def wait_idle(self) -> None:
        """Wait until the requests that earlier calls began have ended.

        A lookup does not wait for requests whose results it does not need: the results are added to the caches later.
        Programs that count requests call this before they read their counts.
        """
        self._engine.executor.wait_idle()

    def refresh(self) -> bool:
        """Ask the image source for a newer image now, and install it; may block for one refresh.

        Lookups start this in the background, at most once in `Settings.refresh_seconds`. Call it if a lookup must see
        everything that was committed before. A source that follows by listings does not use them here.

        Returns:
            Whether there was a newer image.

        Raises:
            ImageTooOld: there is no newer image, and the current one may not be used any more.
        """
        images = self._engine.images
        return images.came(self._engine.alone(images.ask_refresh)) is not None

    def follow(self) -> bool:
        """Ask the image source for a newer image, as after a short answer, and install it; may block for one query.

        The source is not asked within `Settings.refresh_seconds` of the last query.

        Returns:
            Whether there was a newer image.

        Raises:
            AccelError: as `refresh`.
        """
        return self._engine.images.follow()

    def warm(self, nodes: Iterable[int] | None = None) -> WarmReport:
        """Load the hints of these nodes before the first lookup: roots of index snapshots, and filter packs.

        The filters of all objects of a node cost a few requests, and 12 KB for each object of 9,000 streams; afterwards
        lookups open almost no object of the node that lacks the stream. Errors of hints and of the store are not
        raised: the report contains them.

        Args:
            nodes: ids of nodes; all nodes of the image by default.
        """
        return self._engine.warm(nodes)

    def get_objects(
        self,
        stream_id: int,
        start: int,
        end: int = OPEN_END,
        limit: int = 4,
        *,
        deadline_seconds: TimeLimit = None,
        max_fill_rounds: int | None = None,
    ) -> Answer:
        """The objects that hold offsets [start, end) of a stream, in order and without a gap.

        Args:
            stream_id: the stream.
            start: the first requested offset; the first object may begin before it.
            end: one past the last requested offset; -1 for as far as there is data.
            limit: the maximum number of objects; 4 by default, as in the production system.
            deadline_seconds: after this time the objects found so far are returned, as a partial answer; 0 for what
                memory proves, None for no limit.
            max_fill_rounds: the maximum number of rounds of loading after the first object is found.

        Raises:
            InvalidRequest: trimmed start, negative limit, number of rounds or deadline, end before start, or an
                argument that is not a whole number.
            UnknownStream: the image does not have the stream; retryable unless that image is the newest.
            ObjectLost: an object that the newest image lists does not exist.
            InconsistentAnswer: the metadata is wrong.
            StoreError, CorruptObject: an object that the answer depends on could not be read.
            ImageTooOld: the source has no image that may be used.

        Complexity: known objects cost no request and O(limit log entries); see docs/operations/benchmarks.md for
        others.
        """
        request = Request(stream_id, start, end, limit, max_fill_rounds)
        # A warm lookup takes some microseconds: most have plain arguments, and are not converted one by one.
        if (
            deadline_seconds is not None
            or max_fill_rounds is not None
            or not type(stream_id) is type(start) is type(end) is type(limit) is int
            or not 0 <= stream_id | start | limit <= INT64_MAX
            or not OPEN_END <= end <= INT64_MAX
        ):
            request, deadline_seconds = plain_request(request), plain_deadline(deadline_seconds)
        engine = self._engine
        begun = engine.alone(self._begin, engine, request)
        if isinstance(begun, Answer):
            return begun
        return self._run(self._look_up(request, deadline_seconds, begun=begun))

    def get_objects_many(
        self, requests: Iterable[Request], *, deadline_seconds: TimeLimit = None
    ) -> list[Answer | AccelError]:
        """As `get_objects`, for many requests, whose loads share rounds: each object is opened once for all of them.

        Returns:
            For each request, in order, its answer or its error: a failed request does not fail the others.

        Raises:
            InvalidRequest: more than 10,000 requests, or a negative deadline.
        """
        asked = checked_requests(requests)
        return self._engine.alone(self._get_many, asked, deadline_seconds)

    def _get_many(self, asked: list[Request], deadline_seconds: float | None) -> list[Answer | AccelError]:
        outcomes, rest = self._begin_many(asked)
        if rest:
            together = SideBySide(self._engine.system.timer)
            for number, begun in rest.items():
                together.start(number, self._look_up(asked[number], deadline_seconds, begun=begun))
            together.finish()
            outcomes |= together.outcomes
        return [outcomes[number] for number in range(len(asked))]

    def explain(
        self,
        stream_id: int,
        start: int,
        end: int = OPEN_END,
        limit: int = 4,
        *,
        deadline_seconds: TimeLimit = None,
        max_fill_rounds: int | None = None,
    ) -> Explanation:
        """Make the same lookup and return its trace: objects considered, skipped and opened, and the cost.

        A failed lookup has a trace, too: the explanation contains the error, which is not raised.

        Raises:
            InvalidRequest: as `get_objects`; unknown stream.
        """
        request = Request(stream_id, start, end, limit, max_fill_rounds)
        return self._run(self._explain(request, deadline_seconds))

    def fetch(
        self, stream_id: int, start: int, end: int = OPEN_END, limit: int = 4, *, timeout_seconds: float
    ) -> Answer:
        """As `get_objects`, waiting for newer images while there is a hole before the limit and the end.

        With an open end it never waits: the answer contains the existing objects, and may be empty.

        Args:
            timeout_seconds: the total time to wait for newer images; a running lookup is finished.

        Raises:
            StillPending: the newest image still has a hole when the time is over.
            OffsetBeyondEnd: the start is after the end of the stream, by the newest image; at once.
            AccelError: as `get_objects`; InvalidRequest also for a negative time.
        """
        return self._run(self._fetch(Request(stream_id, start, end, limit), timeout_seconds))

    def read(
        self,
        stream_id: int,
        start: int,
        end: int = OPEN_END,
        *,
        max_bytes: int = BYTES_MAX,
        ranges: Ranges | None = None,
        ahead_bytes: int = 0,
    ) -> Reading:
        """The record batches of offsets [start, end), in order, fetched on demand.

        Args:
            stream_id: the stream.
            start: the first requested offset.
            end: one past the last requested offset; -1 for as far as there is data.
            max_bytes: of payload.
            ranges: supplies the bytes of blocks, as `loaders.shared_loads.SharedChunks` does; None = the store.
            ahead_bytes: approximate payload after ``max_bytes`` that a later read will need: it is announced to
                ``ranges``, which decides how much of it is fetched in advance. Nothing waits for it.

        Batches are whole: the first may begin before ``start``, the last may end after ``end``. The read stops after
        the batch that brings the payload to ``max_bytes``, at the end, or at a hole; `Reading.ending` is the reason. If
        ``end`` equals ``start``, no batch is returned and no object opened.

        Raises:
            AccelError: as `get_objects`, while iterating; a failed read raises the same error again.
        """
        return Reading(self._engine, stream_id, start, end, max_bytes, ranges, ahead_bytes=ahead_bytes)

    def _run(self, script: Script[T]) -> T:
        alone = self._engine.alone
        try:
            waiting = alone(script.send, None)
            while True:
                waiting = alone(script.send, _is_any_done(waiting))
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            script.close()  # an interrupted call ends here, not when its traceback is freed


class Reading(ReadingBase, Iterator[RecordBatch], Closing):
    """Record batches as they are read; may be used as a context manager, which closes it. One thread at a time."""

    def _end_block(self, _: BaseException | None) -> None:
        self.close()

    def __next__(self) -> RecordBatch:
        if not self._has_more():
            raise StopIteration
        return self._take()

    def columns(self) -> Iterator[BatchColumns]:
        """The rest of the read, many batches at a time, as columns over the fetched bytes.

        Nothing is copied, and batches are not single objects: for callers that decode many batches at once.

        Raises:
            As iterating.
        """
        while self._has_more():
            yield self._take_columns()

    def _has_more(self) -> bool:
        while (waiting := self._engine.alone(self._advance)) is not None:
            self._came(_is_any_done(waiting))
        return bool(self._columns)


def _is_any_done(waiting: Wait) -> bool:
    return bool(wait(waiting.futures, waiting.timeout_seconds, FIRST_COMPLETED).done)
