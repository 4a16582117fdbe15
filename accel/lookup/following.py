"""The installed image of an accelerator, and the queries for newer images, which run in the background of lookups.

A lookup uses the current image. If the next query for an image is due, the lookup starts the query and continues; later
lookups use its result. Only two kinds of lookups wait, no longer than their deadline: a lookup whose image may not be
used any more, and a lookup with a short answer. A fetch that waits for data waits for a newer image.

    | query                     | made when                                    | waited for by                       |
    |---------------------------|----------------------------------------------|-------------------------------------|
    | the newest image          | it is due, or a change was reported          | lookups, if no image may be used    |
    | an image newer than this  | an answer is short, an object or a stream is | that lookup                         |
    |                           | missing                                      |                                     |
    | the next image            | a fetch waits                                | that fetch                          |

At most one query of the first two kinds runs at a time, and one of the third; callers that need a running query share
it. Each query runs in a daemon thread, which `Components.start` provides on first use: at most two per accelerator, and
a third one while a task refreshes. The threads do not keep the process alive, and `close` does not wait for them:
callers that wait for a query then get `Closed`.
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
from accel.lookup.search_requests import RefreshFailed
from accel.lookup.stats import Counters, LookupStats, ReportLimit
from accel.settings import IDLE_POLL_SECONDS, Settings
from accel.system import Components
from loaders.threads import settle

logger = logging.getLogger(__name__)

WAIT_SECONDS_MAX = 5.0
"""The maximum duration of one query for the next image; so a thread that is not needed any more soon ends."""

Asked = Future[MetadataImage | RefreshFailed | None]
"""A running query: the image; None = there is no newer one; or why that is not known."""

Question = Callable[[], MetadataImage | RefreshFailed | None]


class ImageFollower:
    """The installed image, and the queries for newer ones.

    Args:
        source: returns metadata images.
        settings: limit how often a short answer may query the source.
        system: clock, and the function that starts threads.
        counters: of the accelerator.
        on_installed: called with the previous and the newly installed image; may run concurrently with lookups.
        executor: calls `on_installed` if a lookup installs the image.

    Threads: any. No lock is held during a query.

    Attributes:
        is_failing: whether the last query failed.
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
        self._newest = _SharedQuery(system.start, "accel-image")
        self._next = _SharedQuery(system.start, "accel-next-image")
        self._sure = _SharedQuery(system.start, "accel-refresh")

    @property
    def image(self) -> MetadataImage:
        """The installed image, even if it may not be used any more."""
        return self._image

    def memory(self) -> MemoryUse:
        """The memory that the source uses besides its images, and its limit."""
        return self._source.memory() if isinstance(self._source, SizedSource) else MemoryUse(0, 0)

    def cached(self) -> MetadataImage | None:
        """The newest available image that may be used; None if there is none, until `ask` has returned one.

        Does not block. If the next query is due, it is started.

        Raises:
            ImageTooOld, CatalogWentBack: a source that does not poll has no such image.
        """
        polling = self._polling
        if polling is None:
            offered = self._answer(self._source.current)
            return self._installed(offered) if isinstance(offered, MetadataImage) else self._image
        if polling.is_due():
            self.ask()
        cached = polling.cached()
        return None if cached is None else self._installed(cached)

    def current(self) -> MetadataImage:
        """As `cached`; if there is none, this blocks until the source has answered.

        Raises:
            ImageTooOld, CatalogWentBack: no image may be used, and the source has no younger one.
        """
        image = self.cached()
        if image is None:
            image = self.came(self.ask()) or self.came(self.ask())
        if image is None:
            raise self.too_late()
        return image

    def came(self, asked: Asked) -> MetadataImage | None:
        """The image that `ask` has returned, once it is done; None if the query failed. Raises as `current`."""
        newest = asked.result()
        return newest if isinstance(newest, MetadataImage) else None

    def ask(self) -> Asked:
        """Ask the source for the newest image, in the background. Does not block."""
        if not self._newest.is_asking:
            self._asked_seconds, self._may_join = self._system.timer(), True
        return self._newest.ask(lambda: self._answer(self._source.current, is_installed=True))

    def ask_newer(self, version: ImageVersion) -> Asked:
        """Ask the source for an image newer than this version, in the background. Does not block.

        The result may be of a query that was already running: `newer` interprets it for a version.
        """
        self._counters.add(refreshes=1)
        self._asked_seconds, self._may_join = self._system.timer(), False
        return self._newest.ask(lambda: self._answer(lambda: self._source.wait_newer(version, 0), is_installed=True))

    def ask_next(self, version: ImageVersion, timeout_seconds: float) -> Asked:
        """Wait in the background until the source has an image newer than this version, for at most 5 seconds."""
        seconds = min(timeout_seconds, WAIT_SECONDS_MAX)
        return self._next.ask(lambda: self._wait_next(version, seconds))

    @property
    def is_next_asked(self) -> bool:
        """Whether `ask_next` would share a running query."""
        return self._next.is_asking

    def newer(self, asked: Asked, version: ImageVersion) -> MetadataImage | RefreshFailed | None:
        """The result of a finished query for a version: a newer image, None, or `RefreshFailed` if this is not known.

        Raises:
            ImageTooOld, CatalogWentBack: no image may be used any more.
        """
        came = asked.result()
        if is_newer(self._image.version, version):
            return self._image
        return came if isinstance(came, RefreshFailed) else None

    def refresh(self) -> bool:
        """Make a new query despite running ones, wait for the newest image, and return whether there was a newer one.

        The query runs in the background, so that an interrupt of this call is none of the source.

        Raises:
            ImageTooOld, CatalogWentBack: no image may be used, and there is no younger one.
        """
        return self.came(self.ask_refresh()) is not None

    def _refresh(self) -> MetadataImage | None:
        version = self.current().version
        self._counters.add(refreshes=1)
        self._asked_seconds = self._system.timer()
        source = self._source
        question = source.confirm if isinstance(source, ConfirmingSource) else lambda: source.wait_newer(version, 0)
        came = self._answer(question, is_installed=True)
        return self._image if isinstance(came, MetadataImage) and is_newer(came.version, version) else None

    def ask_refresh(self) -> Asked:
        """Begin a `refresh` in the background: the image if there was a newer one, else None. Does not block.

        A refresh that is running may have begun before the commits that the caller needs: callers share the next one.
        """
        return self._sure.ask_after(self._refresh)

    def follow(self) -> bool:
        """Ask for a newer image unless a query was just made, wait for it, and return whether there was one.

        Raises:
            As `refresh`.
        """
        version = self.current().version
        return self.may_ask(version) and isinstance(self.newer(self.ask_newer(version), version), MetadataImage)

    def changed(self) -> None:
        """Handle the report that there is a newer image: ask for it in the background. Does not block."""
        if isinstance(self._source, NotifiedSource):
            self._source.image_changed()
        if self._polling is None:
            self.ask_newer(self._image.version)
        elif self._polling.is_due():
            self.ask()

    def may_ask(self, version: ImageVersion) -> bool:
        """Whether a short answer from an image of this version may ask for a newer one now; not if one was just asked.

        If a newer image is installed, it may: a query that began before the lookup, or with it, has just ended.
        If a query for the newest image is running, the first caller waits for it. Other callers do not: the source may
        hang. While a caller waits for the next image, a source that polls is asked as often as this limit allows.
        """
        if is_newer(self._image.version, version):
            return True
        if self._polling is not None and self._next.is_asking:
            return False
        last = self._asked_seconds
        if last is None or (self._may_join and self._newest.is_asking):
            return True
        now, least_seconds = self._system.timer(), self._settings.refresh_seconds
        if now - self._installed_seconds >= IDLE_AFTER_SECONDS:
            least_seconds = max(least_seconds, IDLE_POLL_SECONDS)
        return now - last >= least_seconds

    def install(self, image: MetadataImage) -> bool:
        """Install this image if it is newer; returns whether it is.

        Raises:
            ImageRefused: an image of another namespace, whose ids are of other objects; or of another kind of version.
        """
        before = self._replace(image)
        if before is not None:
            self._on_installed(before, image)
        return before is not None

    def installed_seconds_ago(self) -> float:
        """Seconds since the image was installed."""
        return self._system.timer() - self._installed_seconds

    def age_seconds(self) -> float:
        """Seconds since the current image was known to be the newest."""
        source = self._source
        return (
            source.age_seconds() if isinstance(source, DatedSource) else self._system.timer() - self._answered_seconds
        )

    def too_late(self) -> ImageTooOld:
        """The error of a lookup that has no image it may use, and no time left to wait for one."""
        return ImageTooOld(
            f"expected an image that may be used, found version {self._image.version}, known to be the newest "
            f"{self.age_seconds():.1f} s ago; the source did not return a younger one within the deadline"
        )

    def close(self) -> None:
        """Stop querying; callers that wait for a query get `Closed`. Running queries end by themselves."""
        self._is_closed = True
        for query in (self._newest, self._next, self._sure):
            query.close()

    def _installed(self, offered: MetadataImage) -> MetadataImage:
        if offered is not self._image and (before := self._replace(offered)) is not None:
            self._executor.submit(self._on_installed, before, offered)
        return self._image

    def _replace(self, image: MetadataImage) -> MetadataImage | None:
        """Install this image if it is newer; returns the previous one, None if nothing changed."""
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
            self._system.sleep(min(seconds, self._settings.refresh_seconds))  # the waiting caller asks again
        return came

    def _answer(
        self, question: Callable[[], MetadataImage | None], *, is_installed: bool = False
    ) -> MetadataImage | RefreshFailed | None:
        """Query the source; a failure does not fail lookups while the current image may be used.

        Raises:
            ImageTooOld: the source reports that the current image may not be used any more.
            CatalogWentBack: the source reports that the catalog is older than the current image.
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
        except BaseException as error:  # a user's source may raise anything, in a thread of ours
            self.is_failing = True
            self._counters.add(source_failures=1)
            # A query that runs during `close` ends with an error, which is not logged.
            if not self._is_closed and (times := self._reports.times()) is not None:
                text = "the image source failed (%d times since the last report); image version %s stays in use"
                logger.warning(text, times, self._image.version, exc_info=True)
            return RefreshFailed(self.age_seconds(), f"{type(error).__name__}: {error}")
        self._answered_seconds = started_seconds
        self.is_failing = False
        return image


class _SharedQuery:
    """Runs one query at a time, in its own thread; all callers during a query share it. Threads: any."""

    def __init__(self, start: Callable[[Callable[[], object], str], object], name: str) -> None:
        self._start = start
        self._name = name
        self._lock = Lock()
        self._asked: Asked | None = None
        self._after: tuple[Asked, Question] | None = None
        self._is_closed = False

    @property
    def is_asking(self) -> bool:
        """Whether a query is running."""
        return self._asked is not None and not self._asked.done()

    def ask(self, question: Question) -> Asked:
        """The running query; if there is none, start this one."""
        asked = Asked()
        try:
            with self._lock:
                if self._asked is not None and not self._asked.done():
                    return self._asked
                self._asked = asked
                if self._is_closed:
                    asked.set_exception(_closed())
                    return asked
            self._start(lambda: self._answer(asked, question), self._name)
        except RuntimeError as error:  # no thread could be started
            self._fail(error)
        except BaseException:  # interrupted; others may share it
            if self._asked is asked:
                self._start(lambda: self._answer(asked, question), self._name)
            raise
        return asked

    def ask_after(self, question: Question) -> Asked:
        """A query that begins after this call: now, or once the running one has ended. Callers until then share it."""
        with self._lock:
            if self._after is None and self.is_asking:
                self._after = Asked(), question
            if self._after is not None:
                return self._after[0]
        return self.ask(question)

    def close(self) -> None:
        """Refuse further queries, and fail the running one."""
        self._is_closed = True
        self._fail(_closed())

    def _answer(self, asked: Asked, question: Question) -> None:
        after: tuple[Asked, Question] | None = (asked, question)
        while after is not None:
            settle(*after)
            with self._lock:
                after, self._after = self._after, None
                if after is not None:
                    self._asked = after[0]

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            asked = [self._asked, *([] if self._after is None else [self._after[0]])]
            self._after = None
        for each in asked:
            if each is not None:
                with suppress(InvalidStateError):  # it has just ended
                    each.set_exception(error)


def _closed() -> Closed:
    return Closed("expected an accelerator that is open, found it closed")
