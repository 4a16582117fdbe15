"""Which image an accelerator serves from, and how it comes by newer ones: beside lookups, not within them.

A lookup takes the image at hand. If that is due to be asked for again, the lookup starts the question and goes on; what
comes of it is for later ones. Only two kinds of lookups wait, no longer than their deadline: one whose image may not be
served from any more, and one whose answer came out short. A fetch that waits for data waits for a newer image.

    | question                  | asked when                                   | waited for                          |
    |---------------------------|----------------------------------------------|-------------------------------------|
    | the newest image          | the image at hand is due, or said to change  | where nothing at hand may be served |
    | an image newer than this  | an answer is short, an object or a stream is | by that lookup                      |
    |                           | not there                                    |                                     |
    | the next image            | a fetch waits                                | by that fetch                       |

Of the first two kinds one question is under way at a time, and one of the third; who asks meanwhile shares it. Each
runs in a daemon thread that `Components.start` provides when it is first needed: at most two work for an accelerator,
and a third one while a task refreshes. They do not keep the process alive, and closing waits for none of them: who
waits for a question then gets `Closed`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future, InvalidStateError
from contextlib import suppress
from threading import Lock

from accel.errors import CatalogWentBack, Closed, ImageRefused, ImageTooOld
from accel.image import ImageVersion, MetadataImage, is_newer
from accel.image_source import (
    IDLE_AFTER_SECONDS,
    ConfirmingSource,
    DatedSource,
    ImageSource,
    MemoryUse,
    NotifiedSource,
    PollingSource,
    SizedSource,
)
from accel.lookup.stats import Counters, LookupStats, ReportLimit
from accel.lookup.steps import RefreshFailed
from accel.settings import Settings
from accel.system import Components

logger = logging.getLogger(__name__)

WAIT_SECONDS_MAX = 5.0
"""One question for the next image waits no longer; so a thread that nobody needs any more soon ends."""

Asked = Future[MetadataImage | RefreshFailed | None]
"""A question under way: the image; None = there is no newer one; or why that is not known."""

Question = Callable[[], MetadataImage | RefreshFailed | None]


class ImageFollower:
    """The image that is installed, and the questions for newer ones.

    Args:
        source: where images come from.
        settings: how often a short answer may ask.
        system: clock, and what starts threads.
        counters: of the accelerator.
        on_installed: is told of the image before and the one that is installed now; beside lookups, too.
        executor: tells it where the image at hand is installed by a lookup.

    Threads: any. No lock is held over a question.

    Attributes:
        is_failing: whether the last question failed.
    """

    def __init__(
        self,
        source: ImageSource,
        settings: Settings,
        system: Components,
        counters: Counters[LookupStats],
        on_installed: Callable[[MetadataImage, MetadataImage], object],
        executor: Executor,
    ) -> None:
        self._source = source
        self._polling = source if isinstance(source, PollingSource) else None
        self._settings = settings
        self._system = system
        self._counters = counters
        self._on_installed = on_installed
        self._executor = executor
        self._answered_seconds = system.timer()
        self._image = source.current()
        self._installed_seconds = system.timer()
        self._asked_seconds: float | None = None
        self._reports = ReportLimit(system.timer)
        self.is_failing = False
        self._may_join = False
        self._is_closed = False
        self._lock = Lock()
        self._newest = _Lane(system.start, "accel-image")
        self._next = _Lane(system.start, "accel-next-image")
        self._sure = _Lane(system.start, "accel-refresh")

    @property
    def image(self) -> MetadataImage:
        """The image that is installed; whether it may be served from is not asked."""
        return self._image

    def memory(self) -> MemoryUse:
        """What the source keeps beside its images, and may keep."""
        return self._source.memory() if isinstance(self._source, SizedSource) else MemoryUse(0, 0)

    def at_hand(self) -> MetadataImage | None:
        """The newest image that may be served from; None where none may be, until `ask` has brought one.

        Does not block. Where the image is due to be asked for again, that is started.

        Raises:
            ImageTooOld, CatalogWentBack: a source that does not poll has none.
        """
        polling = self._polling
        if polling is None:
            offered = self._answer(self._source.current)
            return self._installed(offered) if isinstance(offered, MetadataImage) else self._image
        if polling.is_due():
            self.ask()
        at_hand = polling.at_hand()
        return None if at_hand is None else self._installed(at_hand)

    def current(self) -> MetadataImage:
        """As `at_hand`; where there is none, this blocks until the source has answered.

        Raises:
            ImageTooOld, CatalogWentBack: nothing may be served, and the source has nothing younger.
        """
        image = self.at_hand()
        if image is None:
            image = self.came(self.ask()) or self.came(self.ask())
        if image is None:
            raise self.too_late()
        return image

    def came(self, asked: Asked) -> MetadataImage | None:
        """What `ask` has brought, once it is done; None if it failed. Raises as `current`."""
        newest = asked.result()
        return newest if isinstance(newest, MetadataImage) else None

    def ask(self) -> Asked:
        """Ask the source for the newest image, beside the caller. Does not block."""
        if not self._newest.is_asking:
            self._asked_seconds, self._may_join = self._system.timer(), True
        return self._newest.ask(lambda: self._answer(self._source.current, is_installed=True))

    def ask_newer(self, version: ImageVersion) -> Asked:
        """Ask the source for an image newer than this version, beside the caller. Does not block.

        What comes of it may be of a question that was under way: `newer` tells what it means for a version.
        """
        self._counters.add(refreshes=1)
        self._asked_seconds, self._may_join = self._system.timer(), False
        return self._newest.ask(lambda: self._answer(lambda: self._source.wait_newer(version, 0), is_installed=True))

    def ask_next(self, version: ImageVersion, timeout_seconds: float) -> Asked:
        """Wait beside the caller until the source has an image newer than this version, for a few seconds at most."""
        seconds = min(timeout_seconds, WAIT_SECONDS_MAX)
        return self._next.ask(lambda: self._wait_next(version, seconds))

    @property
    def is_next_asked(self) -> bool:
        """Whether `ask_next` would share a question that is under way."""
        return self._next.is_asking

    def newer(self, asked: Asked, version: ImageVersion) -> MetadataImage | RefreshFailed | None:
        """What a question that is done says of a version: a newer image, None, or that nobody knows.

        Raises:
            ImageTooOld, CatalogWentBack: nothing may be served from any more.
        """
        came = asked.result()
        if is_newer(self._image.version, version):
            return self._image
        return came if isinstance(came, RefreshFailed) else None

    def refresh(self) -> bool:
        """Ask now, whatever is under way, and wait for what is surely the newest image; whether there was a newer one.

        Raises:
            ImageTooOld, CatalogWentBack: nothing may be served, and there is nothing younger.
        """
        version = self.current().version
        self._counters.add(refreshes=1)
        self._asked_seconds = self._system.timer()
        source = self._source
        question = source.confirm if isinstance(source, ConfirmingSource) else lambda: source.wait_newer(version, 0)
        came = self._answer(question, is_installed=True)
        return isinstance(came, MetadataImage) and is_newer(came.version, version)

    def ask_refresh(self) -> Asked:
        """`refresh` beside the caller: the image if there was a newer one, else None. Does not block.

        One that is under way is shared: it may have begun before what the caller wants to see was committed.
        """
        return self._sure.ask(lambda: self._image if self.refresh() else None)

    def follow(self) -> bool:
        """Ask for a newer image unless somebody has just asked, and wait for that; whether there was one.

        Raises:
            As `refresh`.
        """
        version = self.current().version
        return self.may_ask() and isinstance(self.newer(self.ask_newer(version), version), MetadataImage)

    def changed(self) -> None:
        """Somebody says that there is a newer image: ask for it, beside the caller. Does not block."""
        if isinstance(self._source, NotifiedSource):
            self._source.image_changed()
        if self._polling is None:
            self.ask_newer(self._image.version)
        elif self._polling.is_due():
            self.ask()

    def may_ask(self) -> bool:
        """Whether a short answer may ask for a newer image now, or somebody has just asked.

        Of those who find that the image at hand is being asked for, the first one waits for that. The others do not:
        the source may hang. While somebody waits for the next image, a source that polls is asked as often as this
        would allow.
        """
        if self._polling is not None and self._next.is_asking:
            return False
        last = self._asked_seconds
        if last is None or (self._may_join and self._newest.is_asking):
            return True
        now, settings = self._system.timer(), self._settings
        is_idle = now - self._installed_seconds >= IDLE_AFTER_SECONDS
        return now - last >= (settings.idle_refresh_seconds if is_idle else settings.refresh_seconds)

    def install(self, image: MetadataImage) -> bool:
        """Make this the image if it is newer; says whether it is.

        Raises:
            ImageRefused: an image of another namespace, whose ids name other objects; or of another kind of version.
        """
        before = self._replace(image)
        if before is not None:
            self._on_installed(before, image)
        return before is not None

    def installed_seconds_ago(self) -> float:
        """Seconds since the image was installed."""
        return self._system.timer() - self._installed_seconds

    def age_seconds(self) -> float:
        """How long ago the image at hand was known to be the newest."""
        source = self._source
        return (
            source.age_seconds() if isinstance(source, DatedSource) else self._system.timer() - self._answered_seconds
        )

    def too_late(self) -> ImageTooOld:
        """The error of a lookup that has nothing to serve from, and no time left to wait for it."""
        return ImageTooOld(
            f"expected an image that may be served from, found version {self._image.version}, known to be the newest "
            f"{self.age_seconds():.1f} s ago; the source did not give a younger one within the deadline"
        )

    def close(self) -> None:
        """Ask no more; who waits for a question gets `Closed`. What is under way ends by itself."""
        self._is_closed = True
        for lane in (self._newest, self._next, self._sure):
            lane.close()

    def _installed(self, offered: MetadataImage) -> MetadataImage:
        if offered is not self._image and (before := self._replace(offered)) is not None:
            self._executor.submit(self._on_installed, before, offered)
        return self._image

    def _replace(self, image: MetadataImage) -> MetadataImage | None:
        """Make this the image if it is newer; gives the one before, None if nothing changed."""
        namespace = self._image.namespace
        if image.namespace != namespace:
            raise ImageRefused(f"expected an image of namespace {namespace!r}, found {image.namespace!r}")
        with self._lock:
            before = self._image
            if not is_newer(image.version, before.version):
                return None
            self._image = image
            self._installed_seconds = self._system.timer()
            return before

    def _wait_next(self, version: ImageVersion, seconds: float) -> MetadataImage | RefreshFailed | None:
        came = self._answer(lambda: self._source.wait_newer(version, seconds), is_installed=True)
        if isinstance(came, RefreshFailed):
            self._system.sleep(min(seconds, self._settings.refresh_seconds))  # who waits asks again
        return came

    def _answer(
        self, question: Callable[[], MetadataImage | None], *, is_installed: bool = False
    ) -> MetadataImage | RefreshFailed | None:
        """Ask the source; one that fails does not fail lookups while the image at hand can still answer them.

        Raises:
            ImageTooOld: the source says that it cannot any more.
            CatalogWentBack: it says that the image at hand is of a past that is no longer true.
        """
        started_seconds = self._system.timer()
        try:
            image = question()
            if is_installed and image is not None:
                self.install(image)
        except (ImageTooOld, CatalogWentBack):
            self.is_failing = True
            self._counters.add(source_failures=1)
            raise
        except Exception as error:
            self.is_failing = True
            self._counters.add(source_failures=1)
            # What is under way when all is closed ends with an error, which nobody needs to know.
            if not self._is_closed and (times := self._reports.times()) is not None:
                text = "the image source failed (%d times since that was said last); image version %s stays"
                logger.warning(text, times, self._image.version, exc_info=True)
            return RefreshFailed(self.age_seconds(), f"{type(error).__name__}: {error}")
        self._answered_seconds = started_seconds
        self.is_failing = False
        return image


class _Lane:
    """One question at a time, in a thread of its own; all who want it meanwhile wait for the same one. Threads: any."""

    def __init__(self, start: Callable[[Callable[[], object], str], object], name: str) -> None:
        self._start = start
        self._name = name
        self._lock = Lock()
        self._asked: Asked | None = None
        self._is_closed = False

    @property
    def is_asking(self) -> bool:
        """Whether a question is under way."""
        return self._asked is not None and not self._asked.done()

    def ask(self, question: Question) -> Asked:
        """The question that is under way, or else this one, started."""
        with self._lock:
            if self._asked is not None and not self._asked.done():
                return self._asked
            self._asked = asked = Asked()
            if self._is_closed:
                asked.set_exception(_closed())
                return asked
        try:
            self._start(lambda: _settle(asked, question), self._name)
        except RuntimeError as error:  # no thread could be started
            _fail(asked, error)
        return asked

    def close(self) -> None:
        """Take no more questions."""
        with self._lock:
            self._is_closed = True
            asked = self._asked
        if asked is not None:
            _fail(asked, _closed())


def _settle(asked: Asked, question: Question) -> None:
    try:
        came = question()
    except BaseException as error:  # noqa: BLE001 - goes to the waiting callers
        _fail(asked, error)
    else:
        with suppress(InvalidStateError):  # closed meanwhile
            asked.set_result(came)


def _fail(asked: Asked, error: BaseException) -> None:
    with suppress(InvalidStateError):
        asked.set_exception(error)


def _closed() -> Closed:
    return Closed("expected an accelerator that is open, found it closed")
