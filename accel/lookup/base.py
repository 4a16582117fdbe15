"""What the accelerators for threads and for asyncio have in common: all that needs no waiting."""

from __future__ import annotations

from collections.abc import Iterable

from accel.errors import Closed, StillPending, UnknownStream
from accel.image import MetadataImage, ObjectRef
from accel.image_source import ImageSource
from accel.lookup.answer import Answer, Ending
from accel.lookup.engine import Engine
from accel.lookup.metrics import AcceleratorStats
from accel.lookup.ranges_given import RangesGiven, ranges_of
from accel.lookup.reading import Batches, Ranges, ReadEnd, ReadSent, Step
from accel.lookup.whole_lookup import RefreshFailed, unconfirmed
from accel.settings import Settings
from accel.system import SYSTEM, Components
from accel.version import ImageVersion
from loaders.format import RecordBatch
from loaders.lifetime import PerProcess
from loaders.store import ObjectStore


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
        self._engine.commit(node_id, ref, ranges_of(ranges))

    def replace_image(self, image: MetadataImage) -> bool:
        """Install an image if it is newer than the present one, and drop what it no longer lists.

        Returns:
            Whether it was installed. An older or equal one changes nothing: there is no way back.

        Raises:
            ImageRefused: an image of another namespace, or of another kind of version.
        """
        return self._engine.replace_image(image)

    def refresh(self) -> bool:
        """Ask the source of images for a newer one now, and install it; may block for one refresh.

        Lookups do this by themselves, but not more often than `Settings.refresh_seconds`: this is for who must know
        of all that was committed before.

        Returns:
            Whether there was a newer one.

        Raises:
            ImageTooOld: there is none, and the one at hand may not be served from any more.
        """
        return isinstance(self._engine.newer_image(self._engine.image().version), MetadataImage)

    @property
    def image_age_seconds(self) -> float:
        """How long ago the image at hand was known to be the newest."""
        return self._engines().image_age_seconds()

    @property
    def image_version(self) -> ImageVersion:
        """The version of the image that a lookup would begin with now.

        Raises:
            ImageTooOld: there is none that may be served from.
        """
        return self._engine.image().version

    def add_hints(self, node_id: int, stream_id: int, entries: Iterable[tuple[int, int, int]]) -> None:
        """Tell of (start, end, object id) entries of a stream, each true of the object that it names.

        An entry of an object that an image does not list is passed over by its lookups.
        """
        rows = list(entries)
        starts, ends, object_ids = ([row[column] for row in rows] for column in range(3))
        self._engine.knowledge.add_entries(node_id, stream_id, starts, ends, object_ids)

    def stats(self) -> AcceleratorStats:
        """Counts, and memory against its bounds. Complexity: O(1) but for sums over caches."""
        return self._engines().stats()


class ReadingBase:
    """Common to reads of both accelerators: the batches at hand, the step that is wanted, and how it ended.

    `next_offset` is where a later read goes on after the batches given so far; `ending` says, once iteration is over,
    whether the end, the byte budget (LIMIT) or a hole ended it.

    A read that failed stays failed: asked again, it raises the same error, so that nobody takes it for one that has
    ended; a new read from `next_offset` goes on. One that was interrupted while it waited, as by cancelling its task,
    loses nothing and may be asked again.
    """

    def __init__(
        self, engine: Engine, stream_id: int, start: int, end: int, max_bytes: int, ranges: Ranges | None = None
    ) -> None:
        self._engine = engine
        self._ranges = ranges
        self._steps = engine.start_read(stream_id, start, end, max_bytes)
        self._step: Step | None = None
        self._sent: ReadSent = None
        self._ready: list[RecordBatch] = []
        self._error: BaseException | None = None
        self.next_offset = start
        self.ending: Ending | None = None

    def _take(self) -> RecordBatch:
        batch = self._ready.pop()
        self.next_offset = max(self.next_offset, batch.end_offset)
        return batch

    def _wanted(self) -> Step | None:
        """What has to be done before there are more batches; None if there are some, or the read is over.

        Raises:
            What the read failed with; WrongProcess if another process began it; Closed if the accelerator is.
        """
        self._engine.lifetime.check()
        if self._error is not None:
            raise self._error.with_traceback(None)
        while self._step is None and not self._ready and self.ending is None:
            self._go_on()
        return self._step

    def _go_on(self) -> None:
        try:
            step = self._steps.send(self._sent)
        except StopIteration as stop:
            end: ReadEnd = stop.value
            self.ending, self.next_offset = end.ending, end.next_offset
            return
        except BaseException as error:
            self._error = error
            raise
        if isinstance(step, Batches):
            self._ready, self._sent = step.batches[::-1], None
        else:
            self._step = step

    def _answer(self, sent: ReadSent) -> None:
        self._step, self._sent = None, sent


def refuse_unknown(engine: Engine, error: UnknownStream) -> None:
    """What a fetch does about a stream that an image does not have: it asks whether there is a newer one that has it.

    Raises:
        UnknownStream: the newest image does not have it either, or could not be had.
    """
    if not error.retryable:
        raise error
    image = engine.image()
    if error.stream_id in image.streams:
        return  # somebody else has just asked
    newer = engine.newer_image(image.version)
    if isinstance(newer, RefreshFailed):
        raise unconfirmed(error, f"a newer one could not be had: {newer.reason}") from error
    if error.stream_id not in (newer or image).streams:
        raise UnknownStream(error.stream_id, str((newer or image).version)) from error


def still_pending(answer: Answer) -> StillPending:
    """The error of a fetch that waited long enough for a newer image."""
    request = answer.request
    return StillPending(
        f"stream {request.stream_id}: expected offsets [{request.start}, {request.end}) in image version "
        f"{answer.image_version}, found none from {answer.resume_offset} on"
    )
