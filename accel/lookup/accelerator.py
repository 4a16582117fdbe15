"""The accelerator for threads, and what it shares with the one for asyncio: the calls, each as a script.

    accelerator = ReadAccelerator(StaticImages(image), store)
    answer = accelerator.get_objects(stream_id=420000, start=1000, end=1600, limit=4)
    for batch in accelerator.read(stream_id=420000, start=1000, end=1600):
        ...

`scripts.py` has what is done about each step of a lookup or a read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from accel.errors import AccelError, Closed, InvalidRequest, LookupTimedOut, UnknownStream
from accel.image import OPEN_END, ImageVersion, MetadataImage, ObjectRef
from accel.image_source import ImageSource
from accel.lookup.answer import Answer, Request, check_seconds
from accel.lookup.engine import Engine
from accel.lookup.following import Asked
from accel.lookup.lookup import Asking
from accel.lookup.places import BytePlace, places_of
from accel.lookup.reading import BYTES_MAX, Ranges
from accel.lookup.scripts import (
    ANSWER_SECONDS,
    Deadline,
    Fetcher,
    ReadingBase,
    Script,
    SideBySide,
    Wait,
    Waiting,
    checked_requests,
    current_image,
    refuse_unknown,
    still_pending,
    wait_newer,
)
from accel.lookup.stats import AcceleratorStats, count_answers
from accel.lookup.warming import WarmReport
from accel.settings import Settings
from accel.system import SYSTEM, Components
from loaders.format import BatchColumns, RecordBatch
from loaders.lifetime import PerProcess
from loaders.store import ObjectStore
from range_index import ObjectRanges, RangesGiven

if TYPE_CHECKING:
    from accel.lookup.explain import Explanation, Trace
    from accel.lookup.slow_lookups import SlowLookup
    from accel.lookup.stream_map import StreamMap


T = TypeVar("T")

Outcomes = dict[int, Answer | AccelError]
"""By the number of a request in a call of many."""


class AcceleratorBase:
    """Common to both accelerators.

    A process that is forked may go on with the accelerator of its parent: it begins with empty caches and threads of
    its own. To a process that is spawned send the store instead; an accelerator cannot be pickled. Once it is closed,
    calls raise Closed, but for `stats` and `image_age_seconds`; so does one that is under way and has more to load.

    Args:
        source: where images come from.
        store: where the objects lie; `open_store` gives one for a URL.
        settings: bounds and choices.
        system: clock, sleep and chance; the real ones by default.
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
        """That of this process; Closed if the accelerator is."""
        if self._is_closed:
            raise Closed("expected an accelerator that is open, found it closed")
        return self._engines()

    def _close_engine(self) -> None:
        """Blocks until what is under way in this process has ended."""
        self._is_closed = True
        if (engine := self._engines.here()) is not None:
            engine.close()

    def object_committed(self, node_id: int, ref: ObjectRef, ranges: RangesGiven) -> None:
        """Tell of an object that this process wrote itself, so that nobody here needs to open it.

        Args:
            node_id: the node that it was committed for.
            ref: the object.
            ranges: what it holds: {stream id: (start, end)}, (stream id, start, end) rows, or `ObjectRanges`; each
                range without a hole inside.

        Raises:
            ValueError: ranges that repeat a stream or are inverted.
        """
        self._engine.commit(node_id, ref, ObjectRanges.of(ranges))

    def replace_image(self, image: MetadataImage) -> bool:
        """Install an image if it is newer than the present one, and drop what it no longer lists.

        Returns:
            Whether it was installed. An older or equal one changes nothing: there is no way back.

        Raises:
            ImageRefused: an image of another namespace, or of another kind of version.
        """
        return self._engine.images.install(image)

    def image_changed(self) -> None:
        """Somebody says that there is a newer image: the source of images is asked for it, beside the caller.

        For callers with a channel that reports commits: lookups know of one sooner than by asking every so
        often. It does not block, and may be called as often as changes are heard of, from any thread. The source needs
        a method `image_changed` (`PolledImages` and the catalog's images have one), or is just asked.
        """
        self._engine.images.changed()

    def next_image(self, version: ImageVersion, timeout_seconds: float) -> Asked:
        """Wait beside the caller for an image newer than this version; does not block.

        For followers: the source is asked as often as it is for a fetch that waits, and at once when it is told
        of a change (`image_changed`). All who wait share one question.

        Args:
            version: of the image that is known.
            timeout_seconds: how long to wait; at most 5 seconds.

        Returns:
            A future: the image; None = there was none in time; `RefreshFailed` = nobody knows. It raises as `refresh`.
        """
        return self._engine.images.ask_next(version, timeout_seconds)

    @property
    def image_age_seconds(self) -> float:
        """How long ago the image at hand was known to be the newest."""
        return self._engines().images.age_seconds()

    @property
    def image_version(self) -> ImageVersion:
        """The version of the image that a lookup would begin with now.

        Raises:
            ImageTooOld: there is none that may be served from.
        """
        return self._engine.images.current().version

    def version_at_hand(self) -> ImageVersion | None:
        """The version of the image at hand; None where none may be served from. Does not block.

        Where the image is due to be asked for again, that is started, as by a lookup.

        Raises:
            ImageTooOld, CatalogWentBack: a source that does not poll has none that may be served from.
        """
        image = self._engine.images.at_hand()
        return None if image is None else image.version

    @property
    def is_source_failing(self) -> bool:
        """Whether the last question to the source of images failed."""
        return self._engines().images.is_failing

    def stream_map(self, stream_id: int, offset: int | None = None) -> StreamMap:
        """What memory knows of a stream's objects, by the image that is installed. Loads nothing.

        Args:
            stream_id: the stream.
            offset: of a list with more than 20,000 objects, the map has those around this offset; None = the last ones.

        Raises:
            UnknownStream: that image does not have the stream.

        Complexity: O(objects of the nodes that own it).
        """
        from accel.lookup.stream_map import map_stream  # noqa: PLC0415 - only people ask for maps

        engine = self._engine
        return map_stream(engine.images.image, engine.index_cache, stream_id, offset)

    def object_key(self, object_id: int) -> str:
        """Where an object lies in the store."""
        return self._engine.layout.object_key(object_id)

    def places(self, answer: Answer, *, max_bytes: int = BYTES_MAX) -> list[BytePlace]:
        """At which bytes of its objects an answer's offsets lie, for who fetches them himself; blocks.

        One request for each object whose block index is not in memory, side by side.

        Args:
            answer: of a lookup of this accelerator.
            max_bytes: of payload; the block that reaches it is the last one.

        Raises:
            StoreError, CorruptObject: an object could not be opened.
        """
        engine = self._engine
        return places_of(engine.loader, answer, max_bytes, engine.settings.read_ahead_size_bytes)

    def add_hints(self, node_id: int, stream_id: int, entries: Iterable[tuple[int, int, int]]) -> None:
        """Tell of (start, end, object id) entries of a stream, each true of the object that it names.

        An entry of an object that an image does not list is passed over by its lookups.
        """
        rows = list(entries)
        starts, ends, object_ids = ([row[column] for row in rows] for column in range(3))
        self._engine.index_cache.add_entries(node_id, stream_id, starts, ends, object_ids)

    def stats(self) -> AcceleratorStats:
        """Counts, and memory against its bounds. Complexity: O(1) but for sums over caches."""
        return self._engines().stats()

    def slow_lookups(self) -> tuple[SlowLookup, ...]:
        """The last lookups that took `Settings.slow_lookup_seconds` or longer, the latest one last; () without it.

        Those of `get_objects`, `explain`, `fetch` and `read`, with failed ones, and ones that their callers gave up. A
        read makes several, one after the other; the time that it rests between two batches is not theirs.
        """
        slow = self._engines().slow_lookups
        return () if slow is None else slow.recent()

    def _begin(self, request: Request) -> Answer | Asking[Answer] | None:
        """The answer, if memory proves all of it; else the steps that are left; None if there is no image at hand."""
        engine = self._engine
        try:
            image = engine.images.at_hand()
            begun = None if image is None else engine.begin_lookup(request, image)
        except AccelError:
            engine.counters.add(failed=1)
            raise
        return engine.finished(begun) if isinstance(begun, Answer) else begun

    def _begin_many(self, requests: Iterable[Request]) -> tuple[Outcomes, dict[int, Asking[Answer] | None]]:
        """By number, what memory and one image say of each request, and what `_look_up` is to do of the others."""
        engine = self._engine
        outcomes: Outcomes = {}
        rest: dict[int, Asking[Answer] | None] = {}
        answers: list[Answer] = []
        try:
            image = engine.images.at_hand()
        except AccelError:
            image = None  # each lookup tells for itself
        for number, request in enumerate(requests):
            try:
                begun = None if image is None else engine.begin_lookup(request, image)
            except AccelError as error:
                engine.counters.add(failed=1)
                outcomes[number] = error
                continue
            if isinstance(begun, Answer):
                outcomes[number] = begun
                answers.append(begun)
            else:
                rest[number] = begun
        count_answers(engine.counters, answers)
        return outcomes, rest

    def _look_up(
        self,
        request: Request,
        deadline_seconds: float | None,
        trace: Trace | None = None,
        *,
        begun: Asking[Answer] | None = None,
        images: Deadline | None = None,
    ) -> Script[Answer]:
        slow = self._engine.slow_lookups
        if slow is None:
            return (yield from self._search(request, deadline_seconds, trace, begun=begun, images=images))
        trace = slow.new_trace() if trace is None else trace  # which `begun` did not have: it begins again
        outcome: Answer | AccelError | None = None
        timer = self._engine.system.timer
        started = timer()
        try:
            answer = outcome = yield from self._search(request, deadline_seconds, trace, images=images)
        except AccelError as error:
            outcome = error
            raise
        except GeneratorExit:
            outcome = LookupTimedOut("the caller gave the lookup up")
            raise
        finally:
            if outcome is not None:
                slow.note(request, outcome, trace, timer() - started)
        return answer

    def _search(
        self,
        request: Request,
        deadline_seconds: float | None,
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
                image = yield from current_image(engine, images)
                answer = engine.begin_lookup(request, image, trace)
                if isinstance(answer, Answer):
                    return engine.finished(answer)
                begun = answer
            return engine.finished((yield from Fetcher(engine, deadline, trace, images).run(begun)))
        except AccelError:
            engine.counters.add(failed=1)
            raise

    def _explain(self, request: Request, deadline_seconds: float | None) -> Script[Explanation]:
        from accel.lookup.explain import Explanation, Trace  # noqa: PLC0415 - few explain, all look up

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
        from accel.lookup.stream_map import EXPLAINED_MAX, map_stream  # noqa: PLC0415 - few explain, all look up

        engine, stream_id = self._engine, request.stream_id
        try:
            return map_stream(
                engine.images.image, engine.index_cache, stream_id, request.start, objects_max=EXPLAINED_MAX
            )
        except UnknownStream:  # a newer image came, and does not have it
            return None

    def _fetch(self, request: Request, timeout_seconds: float) -> Script[Answer]:
        engine = self._engine
        deadline = Deadline(engine.system.timer, timeout_seconds, ANSWER_SECONDS)
        while True:
            try:
                answer = yield from self._look_up(request, None, images=deadline)
            except UnknownStream as error:
                yield from refuse_unknown(engine, error, deadline)
                continue
            if answer.satisfies_fetch:
                return answer
            if not (yield from wait_newer(engine, answer.image_version, deadline)):
                raise still_pending(answer)


class ReadAccelerator(AcceleratorBase):
    """Lookups and reads for threads.

    Threads: any number may share one accelerator; that is the point of it. Close it, or use it as a context manager.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop loading; blocks until the requests that are under way have ended. Calls that need more raise Closed."""
        self._close_engine()

    def wait_idle(self) -> None:
        """Wait until the requests that earlier calls began have ended.

        A lookup does not wait for requests that it can do without: their results come into memory later. Programs that
        count requests call this before they look at their counts.
        """
        self._engine.executor.wait_idle()

    def refresh(self) -> bool:
        """Ask the source of images for a newer one now, and install it; may block for one refresh.

        Lookups have it done beside them, but not more often than `Settings.refresh_seconds`: this is for who must know
        of all that was committed before. Where a source follows by listings, it is asked without them.

        Returns:
            Whether there was a newer one.

        Raises:
            ImageTooOld: there is none, and the one at hand may not be served from any more.
        """
        return self._engine.images.refresh()

    def follow(self) -> bool:
        """Ask the source of images for a newer one, as a short answer does, and install it; may block for one question.

        Nothing is asked within `Settings.refresh_seconds` (or `idle_refresh_seconds`) of the last question.

        Returns:
            Whether there was a newer one.

        Raises:
            AccelError: as `refresh`.
        """
        return self._engine.images.follow()

    def warm(self, nodes: Iterable[int] | None = None) -> WarmReport:
        """Load what hints there are for these nodes before serving: roots of snapshots, and filter packs.

        Filters of all objects of a node cost a handful of requests and 12 KB an object of 9,000 streams; from then on
        no lookup opens an object of it that lacks the stream. Nothing that is wrong with hints, or with the store, is
        raised: it stands in the report.

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
        deadline_seconds: float | None = None,
        max_fill_rounds: int | None = None,
    ) -> Answer:
        """Which objects hold offsets [start, end) of a stream, in order and without a gap.

        Args:
            stream_id: the stream.
            start: the first offset wanted; the first object may begin before it.
            end: one past the last offset wanted; -1 for as far as there is data.
            limit: the maximum number of objects; 4 by default, as the production system asks.
            deadline_seconds: give what is found by then, marked partial; 0 for what memory proves, None to wait as
                long as it takes.
            max_fill_rounds: the maximum number of rounds of loading after the first object is found.

        Raises:
            InvalidRequest: trimmed start, negative limit, number of rounds or deadline, end before start, or what is no
                whole number.
            UnknownStream: the image does not have it; retryable unless that is the newest one.
            ObjectLost: an object that the newest image lists does not exist.
            InconsistentAnswer: the metadata is wrong.
            StoreError, CorruptObject: an object that the answer depends on could not be read.
            ImageTooOld: the source has no image that may be served from.

        Complexity: known objects cost no request and O(limit log entries); docs/operations/benchmarks.md
        has the rest.
        """
        check_seconds("deadline_seconds", deadline_seconds)
        request = Request(stream_id, start, end, limit, max_fill_rounds)
        begun = self._begin(request)
        if isinstance(begun, Answer):
            return begun
        return self._run(self._look_up(request, deadline_seconds, begun=begun))

    def get_objects_many(
        self, requests: Iterable[Request], *, deadline_seconds: float | None = None
    ) -> list[Answer | AccelError]:
        """As `get_objects`, of many requests, whose loads share rounds: each object is opened once, for all of them.

        Returns:
            For each request, in order, its answer, or the error that it failed with: one never fails the others.

        Raises:
            InvalidRequest: more than 10,000 requests, or a negative deadline.
        """
        check_seconds("deadline_seconds", deadline_seconds)
        asked = checked_requests(requests)
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
        deadline_seconds: float | None = None,
        max_fill_rounds: int | None = None,
    ) -> Explanation:
        """The same lookup, really made, with its trace: what was considered, skipped, opened, and what it cost.

        A lookup that fails has a trace, too: the error stands in the explanation
        instead of being raised.

        Raises:
            InvalidRequest: as `get_objects`; unknown stream.
        """
        check_seconds("deadline_seconds", deadline_seconds)
        request = Request(stream_id, start, end, limit, max_fill_rounds)
        return self._run(self._explain(request, deadline_seconds))

    def fetch(
        self, stream_id: int, start: int, end: int = OPEN_END, limit: int = 4, *, timeout_seconds: float
    ) -> Answer:
        """As `get_objects`, waiting for newer images while there is a hole before the limit and the end.

        With an open end it never waits: what there is is the answer, even if it is nothing.

        Args:
            timeout_seconds: how long to wait for newer images in all; a lookup that is under way is finished.

        Raises:
            StillPending: the newest image still has a hole when the time is over.
            AccelError: as `get_objects` besides; InvalidRequest for a negative time.
        """
        check_seconds("timeout_seconds", timeout_seconds)
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
        """The record batches of offsets [start, end), in order, fetched as they are asked for.

        Args:
            stream_id: the stream.
            start: the first offset wanted.
            end: one past the last; -1 for as far as there is data.
            max_bytes: of payload.
            ranges: where the bytes of blocks come from, as `loaders.shared_loads.SharedChunks`; None = the store.
            ahead_bytes: payload behind ``max_bytes`` that a later read is to want, about: it is announced to
                ``ranges``, which decides how much of it is fetched meanwhile. Nothing waits for it.

        Batches are whole: the first may begin before ``start``, the last may end after ``end``. The read stops after
        the batch that brings the payload to ``max_bytes``, at the end, or at a hole; `Reading.ending` says which. Where
        ``end`` is ``start`` there is nothing to read: no batch is given, and nothing opened.

        Raises:
            AccelError: as `get_objects`, while iterating; and again whenever a read that failed is asked for more.
        """
        return Reading(self._engine, stream_id, start, end, max_bytes, ranges, ahead_bytes=ahead_bytes)

    def _run(self, script: Script[T]) -> T:
        try:
            waiting = next(script)
            while True:
                try:
                    sent = _wait_for(waiting)
                except Exception as error:  # noqa: BLE001 - whatever it is, the script decides about it
                    waiting = script.throw(error)
                else:
                    waiting = script.send(sent)
        except StopIteration as stop:
            result: T = stop.value
            return result


class Reading(ReadingBase, Iterator[RecordBatch]):
    """Record batches as they are read; may be used as a context manager, which closes it. One thread at a time."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __next__(self) -> RecordBatch:
        if not self._has_more():
            raise StopIteration
        return self._take()

    def columns(self) -> Iterator[BatchColumns]:
        """What is left of the read, many batches at a time, as columns over the bytes that were fetched.

        Nothing is copied, and no batch is an object: for who decodes all of them at once.

        Raises:
            As iterating.
        """
        while self._has_more():
            yield self._take_columns()

    def _has_more(self) -> bool:
        while (waiting := self._advance()) is not None:
            try:
                self._came(_wait_for(waiting))
            except Exception as error:  # noqa: BLE001 - likewise
                self._failed(error)
        return bool(self._columns)


def _wait_for(waiting: Waiting) -> object:
    if isinstance(waiting, Wait):
        return bool(wait(waiting.futures, waiting.timeout_seconds, FIRST_COMPLETED).done)
    return waiting.function()
