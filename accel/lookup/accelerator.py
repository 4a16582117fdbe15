"""The accelerator for threads: finds the objects of a read, and reads them.

    accelerator = ReadAccelerator(StaticImages(image), store)
    answer = accelerator.get_objects(stream_id=420000, start=1000, end=1600, limit=4)
    for batch in accelerator.read(stream_id=420000, start=1000, end=1600):
        ...

It is a thin driver: what to open and what the answer is, is decided by the steps of `lookup.py` and `reading.py`; here
they are only waited for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import wait
from types import TracebackType
from typing import Self

from accel.errors import AccelError, InvalidRequest, UnknownStream
from accel.image import OPEN_END
from accel.lookup.answer import Answer, Request
from accel.lookup.base import AcceleratorBase, ReadingBase, refuse_unknown, still_pending
from accel.lookup.deadline import Deadline
from accel.lookup.engine import Engine
from accel.lookup.explain import Explanation
from accel.lookup.reading import BYTES_MAX, CurrentImage, FetchSpan, OpenObject, Ranges, ReadSent, Step
from accel.lookup.story import Story
from accel.lookup.wanted import Wanted
from accel.lookup.warming import WarmReport
from accel.lookup.whole_lookup import NeedImage, Sent
from loaders.format import RecordBatch


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
        return self._look_up(Request(stream_id, start, end, limit, max_fill_rounds), deadline_seconds)

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
        """The same lookup, really made, with its story: what was considered, skipped, opened, and what it cost.

        A lookup that fails has a story, too, which is then all the more wanted: the error stands in the explanation
        instead of being raised.

        Raises:
            InvalidRequest: unknown stream, trimmed start, negative limit, end before start.
        """
        request = Request(stream_id, start, end, limit, max_fill_rounds)
        story = Story()
        engine = self._engine
        timer = engine.system.timer
        started = timer()
        outcome: Answer | AccelError
        try:
            outcome = self._look_up(request, deadline_seconds, story)
        except InvalidRequest:
            raise
        except AccelError as error:
            outcome = error
        return Explanation(request, outcome, story, timer() - started, engine.policy_name)

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
        waiting = Deadline(self._engine.system.timer, timeout_seconds)
        while True:
            try:
                answer = self.get_objects(stream_id, start, end, limit)
            except UnknownStream as error:
                refuse_unknown(self._engine, error)
                continue
            if answer.satisfies_fetch:
                return answer
            newer = self._engine.source.wait_newer(answer.image_version, waiting.left_seconds() or 0.0)
            if newer is None:
                raise still_pending(answer)
            self._engine.replace_image(newer)

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
        return Reading(self._engine, stream_id, start, end, max_bytes, ranges)

    def _look_up(self, request: Request, deadline_seconds: float | None, story: Story | None = None) -> Answer:
        engine = self._engine
        deadline = Deadline(engine.system.timer, deadline_seconds)
        sent: Sent = None
        try:
            steps = engine.start_lookup(request, engine.image(), story)
            while True:
                step = steps.send(sent)
                sent = _answer_step(engine, step, deadline, story)
        except StopIteration as stop:
            answer: Answer = stop.value
            return engine.finished(answer)
        except AccelError:
            engine.counters.failed()
            raise


class Reading(ReadingBase, Iterator[RecordBatch]):
    """Record batches as they are read. One thread at a time."""

    def __next__(self) -> RecordBatch:
        while (step := self._wanted()) is not None:
            try:
                self._answer(_answer_read_step(self._engine, step, self._ranges))
            except Exception as error:
                self._error = error
                raise
        if self._ready:
            return self._take()
        raise StopIteration


def _answer_step(engine: Engine, step: Wanted | NeedImage, deadline: Deadline, story: Story | None) -> Sent:
    """Do what a step of a lookup asks, waiting for it; None if the time is over."""
    if isinstance(step, NeedImage):
        return engine.newer_image(step.version)
    started = engine.system.timer()
    pending = engine.open(step)
    if wait(pending.futures(), deadline.left_seconds()).not_done:
        return None
    if story is not None:
        story.measured(*pending.cost(), engine.system.timer() - started, hint=pending.hint_cost())
    return pending.replies()


def _answer_read_step(engine: Engine, step: Step, ranges: Ranges | None) -> ReadSent:
    if isinstance(step, CurrentImage):
        return engine.image()
    try:
        if isinstance(step, OpenObject):
            return engine.open_one(step).result()
        if isinstance(step, FetchSpan):
            return engine.fetch(step, ranges)
    except AccelError as error:
        return error
    return _answer_step(engine, step, Deadline(engine.system.timer, None), None)
