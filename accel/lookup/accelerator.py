"""The accelerator for threads, and all that it shares with the one for asyncio.

    accelerator = ReadAccelerator(StaticImages(image), store)
    answer = accelerator.get_objects(stream_id=420000, start=1000, end=1600, limit=4)
    for batch in accelerator.read(stream_id=420000, start=1000, end=1600):
        ...

What to open and what the answer is, is decided by the steps of `search.py` and `reading.py`. What is done about a step
is the same for both accelerators, too, and stands in generators here. These yield only what has to be waited for:

    | please                                            | answered with              |
    |---------------------------------------------------|----------------------------|
    | `Wait`: for loads and questions under way         | whether any is done        |
    | `Call`: a function that may block                 | what it returns            |

An error of what was waited for is raised at that place in the generator. So each accelerator is a thin driver that
waits in its own way.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from accel.errors import AccelError, Closed, InvalidRequest, LookupTimedOut, StillPending, UnknownStream
from accel.image import OPEN_END, ImageVersion, MetadataImage, ObjectRef, is_newer
from accel.image_source import ImageSource
from accel.lookup.answer import Answer, Ending, Request
from accel.lookup.engine import Engine, RoundCost, UnderWay
from accel.lookup.lookup import Asking, unconfirmed
from accel.lookup.many import SideBySide, checked_requests
from accel.lookup.reading import BYTES_MAX, Batches, Ranges, ReadEnd, ReadSteps
from accel.lookup.stats import AcceleratorStats
from accel.lookup.steps import (
    AwaitAny,
    AwaitMore,
    Begin,
    Begun,
    Came,
    CurrentImage,
    LookupStep,
    NeedImage,
    OpenObject,
    OpenObjects,
    ReadSent,
    RefreshFailed,
    Sent,
    Step,
)
from accel.lookup.waiting import Deadline, Script, Wait, Waiting
from accel.lookup.warming import WarmReport
from accel.settings import Settings
from accel.system import SYSTEM, Components
from loaders.format import RecordBatch
from loaders.lifetime import PerProcess, unpickled
from loaders.parallel import Arrivals
from loaders.store import ObjectStore
from range_index import ObjectRanges, RangesGiven

if TYPE_CHECKING:
    from accel.lookup.explain import Explanation, Trace
    from accel.lookup.slow_lookups import SlowLookup


T = TypeVar("T")


ANSWER_SECONDS = 1.0
"""A fetch asks the source of images at least once; so long it may take to answer, however short the fetch's time."""


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

        For whoever has a channel on which commits are heard of: so lookups know of one sooner than by asking every so
        often. It does not block, and may be called as often as changes are heard of, from any thread. The source needs
        a method `image_changed` (`PolledImages` and the catalog's images have one), or is just asked.
        """
        self._engine.images.changed()

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
            As `refresh`.
        """
        return self._engine.images.follow()

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

        Those of `get_objects`, `explain` and `fetch`, with failed ones, and ones that their callers gave up.
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
                image = yield from _current_image(engine, images)
                answer = engine.begin_lookup(request, image, trace)
                if isinstance(answer, Answer):
                    return engine.finished(answer)
                begun = answer
            return engine.finished((yield from _Fetcher(engine, deadline, trace, images).run(begun)))
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
        hints = engine.hint_states(trace.node_ids)
        return Explanation(request, outcome, trace, timer() - started, engine.policy_name, hints)

    def _fetch(self, request: Request, timeout_seconds: float) -> Script[Answer]:
        engine = self._engine
        deadline = Deadline(engine.system.timer, timeout_seconds, ANSWER_SECONDS)
        while True:
            try:
                answer = yield from self._look_up(request, None, images=deadline)
            except UnknownStream as error:
                yield from _refuse_unknown(engine, error, deadline)
                continue
            if answer.satisfies_fetch:
                return answer
            if not (yield from _wait_newer(engine, answer.image_version, deadline)):
                raise _still_pending(answer)


class ReadingBase:
    """Common to reads of both accelerators: the batches at hand, what has to be waited for, and how it ended.

    `next_offset` is where a later read goes on after the batches given so far; `ending` says, once iteration is over,
    whether the end, the byte budget (LIMIT) or a hole ended it.

    A read that failed stays failed: asked again, it raises the same error, so that nobody takes it for one that has
    ended; a new read from `next_offset` goes on. One that was interrupted while it waited, as by cancelling its task,
    loses nothing and may be asked again.
    """

    __reduce__ = unpickled("a read")

    def __init__(self, engine: Engine, steps: ReadSteps, start: int, ranges: Ranges | None) -> None:
        self._engine = engine
        self._script = _read(engine, steps, ranges)
        self._resume: Callable[[], Waiting | Batches] = partial(next, self._script)
        self._waiting: Waiting | None = None
        self._ready: list[RecordBatch] = []
        self._error: BaseException | None = None
        self.next_offset = start
        self.ending: Ending | None = None

    def close(self) -> None:
        """Give up what is read ahead: what has not begun never does. Does not block. Asked again, it raises Closed.

        Nothing happens to a read that has ended or failed. One that is let go of without this is closed as well.
        """
        if self.ending is None and self._error is None:
            self._error = Closed("expected a read that is open, found it closed")
            self._ready, self._waiting = [], None
        self._script.close()

    def _take(self) -> RecordBatch:
        batch = self._ready.pop()
        self.next_offset = max(self.next_offset, batch.end_offset)
        return batch

    def _advance(self) -> Waiting | None:
        """What has to be waited for before there are more batches; None if there are some, or the read is over.

        Raises:
            What the read failed with; WrongProcess if another process began it; Closed if the accelerator is.
        """
        self._engine.lifetime.check()
        if self._error is not None:
            raise self._error.with_traceback(None)
        while self._waiting is None and not self._ready and self.ending is None:
            self._go_on()
        return self._waiting

    def _go_on(self) -> None:
        try:
            step = self._resume()
        except StopIteration as stop:
            end: ReadEnd = stop.value
            self.ending, self.next_offset = end.ending, end.next_offset
            return
        except BaseException as error:
            self._error = error
            raise
        if isinstance(step, Batches):
            self._ready, self._resume = step.batches[::-1], partial(next, self._script)
        else:
            self._waiting = step

    def _came(self, answer: object) -> None:
        """This came of what was waited for."""
        self._waiting, self._resume = None, partial(self._script.send, answer)

    def _failed(self, error: Exception) -> None:
        """What was waited for failed."""
        self._waiting, self._resume = None, partial(self._script.throw, error)


class _ReadFetcher:
    """Does what the steps of one read ask for. One thread at a time.

    Args:
        engine: does the loading.
        ranges: where the bytes of blocks come from; None = the store.
    """

    def __init__(self, engine: Engine, ranges: Ranges | None) -> None:
        self._engine = engine
        self._ranges = ranges
        self._lookups = _Fetcher(engine, Deadline(engine.system.timer, None), None)
        self._looking: OpenObjects | None = None
        self._begun: dict[int, Future[Any]] = {}
        self._arrivals: Arrivals[int] = Arrivals()

    def answer(self, step: Step) -> Script[ReadSent]:
        """What came of a step."""
        if isinstance(step, CurrentImage):
            return (yield from _current_image(self._engine, Deadline(self._engine.system.timer, None)))
        if isinstance(step, Begin):
            return self._begin(step)
        if isinstance(step, AwaitAny):
            return (yield from self._await(step))
        return (yield from self._lookups.answer(step))

    def leave(self) -> None:
        """Give up what was begun and does not run yet. Does not wait for what runs."""
        for begun in self._begun.values():
            begun.cancel()
        self._begun.clear()

    def _begin(self, step: Begin) -> Begun | None:
        begun = self._engine.begin(step.step, self._ranges)
        if begun.done() and isinstance(step.step, OpenObject):
            return _outcome(begun)
        self._begun[step.ticket] = begun
        self._arrivals.expect(step.ticket, begun)
        return None

    def _await(self, step: AwaitAny) -> Script[Came]:
        if step.lookup is not None and step.lookup is not self._looking:
            self._lookups.begin(step.lookup)
            self._looking = step.lookup
        slow_seconds = None if step.lookup is None else self._engine.settings.max_wait_load_seconds
        while True:
            begun = {ticket: _outcome(self._begun.pop(ticket)) for ticket in self._arrivals.take()}
            found = None if step.lookup is None else self._lookups.under_way.take()
            if begun or found is not None:
                return Came(begun, found)
            signals = [self._arrivals.signal()]
            if step.lookup is not None:
                signals.append(self._lookups.under_way.signal())
            if not (yield Wait(signals, slow_seconds)) and self._lookups.under_way.is_overdue():
                return Came({}, {})


def _outcome(begun: Future[Any]) -> Begun:
    try:
        outcome: Begun = begun.result()
    except AccelError as error:
        return error
    return outcome


def _read(engine: Engine, steps: ReadSteps, ranges: Ranges | None) -> Generator[Waiting | Batches, Any, ReadEnd]:
    sent: ReadSent = None
    fetcher = _ReadFetcher(engine, ranges)
    try:
        while True:
            step = steps.send(sent)
            sent = (yield step) if isinstance(step, Batches) else (yield from fetcher.answer(step))
    except StopIteration as stop:
        end: ReadEnd = stop.value
        return end
    finally:
        fetcher.leave()


class _Fetcher:
    """Does what the steps of one lookup ask for. One thread at a time.

    The loads cannot be cancelled: one who is cancelled, out of time or content with less only stops waiting for them.
    """

    def __init__(self, engine: Engine, deadline: Deadline, trace: Trace | None, images: Deadline | None = None) -> None:
        self._engine = engine
        self._deadline = deadline
        self._images = images or deadline
        self._trace = trace
        self.under_way = UnderWay(engine)
        self._has_asked = False
        self._told_seconds = 0.0

    def run(self, steps: Asking[T]) -> Script[T]:
        """Do all steps; gives what they come to."""
        sent: Sent = None
        while True:
            try:
                step = steps.send(sent)
            except StopIteration as stop:
                result: T = stop.value
                return result
            sent = yield from self.answer(step)

    def answer(self, step: LookupStep) -> Script[Sent]:
        """What came of a step; None if the time is over and nothing has come."""
        if isinstance(step, NeedImage):
            self.under_way = UnderWay(self._engine)  # the search begins again
            return (yield from _ask_newer(self._engine, step.version, self._images))
        if self._has_asked and not isinstance(step, AwaitMore) and self._deadline.left_seconds() == 0:
            return None
        self.begin(step)
        while (came := self.under_way.take()) is None:
            left_seconds = self._deadline.left_seconds()
            slow_seconds = self._engine.settings.max_wait_load_seconds
            is_last = left_seconds is not None and left_seconds <= slow_seconds
            timeout_seconds = left_seconds if is_last else slow_seconds
            if (yield Wait((self.under_way.signal(),), timeout_seconds)):
                continue
            if is_last:
                came = self.under_way.take()
                break
            if self.under_way.is_overdue():
                came = {}
                break
        self._measure()
        return came

    def begin(self, step: OpenObjects) -> None:
        """Start what a step asks for."""
        self._has_asked = True
        if self._trace is not None:
            self._told_seconds = self._engine.system.timer()
        self.under_way.ask(step)

    def _measure(self) -> None:
        cost, self.under_way.cost = self.under_way.cost, RoundCost()
        if self._trace is not None:
            hint = (cost.hint_requests, cost.hint_bytes)
            seconds = self._engine.system.timer() - self._told_seconds
            self._trace.record_cost(cost.requests, cost.bytes_read, seconds, hint=hint)


def _current_image(engine: Engine, deadline: Deadline) -> Script[MetadataImage]:
    """The newest image at hand; where none may be served from, the one that the source is asked for.

    Raises:
        ImageTooOld: it has none that may be served from, or did not say so within the deadline.
    """
    images = engine.images
    for _ in range(2):  # a question that began before may have failed when there was still an image to serve from
        image = images.at_hand()
        if image is not None:
            return image
        asked = images.ask()
        if not (yield Wait([asked], deadline.answer_seconds())):
            break
        image = images.came(asked)
        if image is not None:
            return image
    raise images.too_late()


def _ask_newer(
    engine: Engine, version: ImageVersion, deadline: Deadline
) -> Script[MetadataImage | RefreshFailed | None]:
    """An image newer than this version; None if there is none, `RefreshFailed` if nobody knows, or not in time."""
    asked = engine.images.ask_newer(version)
    if not (yield Wait([asked], deadline.answer_seconds())):
        return RefreshFailed(engine.images.age_seconds(), "the source of images did not answer within the deadline")
    return engine.images.newer(asked, version)


def _wait_newer(engine: Engine, version: ImageVersion, deadline: Deadline) -> Script[bool]:
    """Wait until there is an image newer than this version; whether there is before the time is over.

    The source is asked at least once, however short the time; who shares the question of another waits for no more
    than that time.
    """
    images = engine.images
    while True:
        left_seconds = deadline.left_seconds() or 0.0
        extra_seconds = 0.0 if images.is_next_asked else ANSWER_SECONDS
        asked = images.ask_next(version, left_seconds)
        is_done = yield Wait([asked], left_seconds + extra_seconds)
        if is_newer(images.image.version, version):
            return True
        if is_done:
            images.came(asked)
        if not deadline.left_seconds():
            return False


def _refuse_unknown(engine: Engine, error: UnknownStream, deadline: Deadline) -> Script[None]:
    """What a fetch does about a stream that an image does not have: it asks whether there is a newer one that has it.

    Raises:
        UnknownStream: the newest image does not have it either, or could not be had.
    """
    if not error.retryable:
        raise error
    image = yield from _current_image(engine, deadline)
    if error.stream_id in image.streams:
        return  # somebody else has just asked
    newer = yield from _ask_newer(engine, image.version, deadline)
    if isinstance(newer, RefreshFailed):
        raise unconfirmed(error, f"a newer one could not be had: {newer.reason}") from error
    if error.stream_id not in (newer or image).streams:
        raise UnknownStream(error.stream_id, str((newer or image).version)) from error


def _still_pending(answer: Answer) -> StillPending:
    """The error of a fetch that waited long enough for a newer image."""
    request = answer.request
    return StillPending(
        f"stream {request.stream_id}: expected offsets [{request.start}, {request.end}) in image version "
        f"{answer.image_version}, found none from {answer.resume_offset} on"
    )


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
            limit: at most so many objects; 4 by default, as the production system asks.
            deadline_seconds: give what is found by then, marked partial; None to wait as long as it takes.
            max_fill_rounds: once the first object is found, at most so many rounds of loading for the others.

        Raises:
            InvalidRequest: trimmed start, negative limit, end before start.
            UnknownStream: the image does not have it; retryable unless that is the newest one.
            ObjectLost: an object that the newest image lists does not exist.
            InconsistentAnswer: the metadata is wrong.
            StoreError, CorruptObject: an object that the answer depends on could not be read.
            ImageTooOld: the source has no image that may be served from.

        Complexity: known objects cost no request and O(limit log entries); docs/how-it-works.md has the rest.
        """
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
            InvalidRequest: more than 10,000 requests.
        """
        asked = checked_requests(requests)
        together = SideBySide(self._engine.system.timer)
        for number, request in enumerate(asked):
            together.start(number, self._look_up(request, deadline_seconds))
        together.finish()
        return [together.outcomes[number] for number in range(len(asked))]

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
            InvalidRequest: unknown stream, trimmed start, negative limit, end before start.
        """
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
            As `get_objects` besides.
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
    ) -> Reading:
        """The record batches of offsets [start, end), in order, fetched as they are asked for.

        Args:
            stream_id: the stream.
            start: the first offset wanted.
            end: one past the last; -1 for as far as there is data.
            max_bytes: of payload.
            ranges: where the bytes of blocks come from, as `loaders.shared_loads.SharedChunks`; None = the store.

        Batches are whole: the first may begin before ``start``, the last may end after ``end``. The read stops after
        the batch that brings the payload to ``max_bytes``, at the end, or at a hole; `Reading.ending` says which.

        Raises:
            As `get_objects`, while iterating; and again whenever a read that failed is asked for more.
        """
        engine = self._engine
        return Reading(engine, engine.start_read(stream_id, start, end, max_bytes), start, ranges)

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
        while (waiting := self._advance()) is not None:
            try:
                self._came(_wait_for(waiting))
            except Exception as error:  # noqa: BLE001 - likewise
                self._failed(error)
        if self._ready:
            return self._take()
        raise StopIteration


def _wait_for(waiting: Waiting) -> object:
    if isinstance(waiting, Wait):
        return bool(wait(waiting.futures, waiting.timeout_seconds, FIRST_COMPLETED).done)
    return waiting.function()
