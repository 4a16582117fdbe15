"""Sources of images.

A reader needs two things from the owner of the metadata: its newest image, and a way to wait for a newer one. These are
the methods of `ImageSource`; a broker with its own metadata implements them in a few lines. This module has three
sources: images that are pushed in, a JSON file that is reloaded when it changes, and any callable. The object catalog
(`ObjectCatalog.images`), whose metadata is in the bucket, uses the last one. `read_image` reads one image from a file,
a URL, or a source that a package provides by name: the values of the option `--image`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from threading import Condition, Event
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable
from urllib.parse import urlsplit

from accel.errors import CatalogWentBack, ImageRefused, ImageTooOld
from accel.image import ImageVersion, MetadataImage, is_newer
from accel.settings import POLL_SECONDS
from loaders.errors import StoreUnavailable, redacted
from loaders.lifetime import PerProcess, ProcessLock
from loaders.settings import CONVERSIONS, check_number, plain_arguments

if TYPE_CHECKING:
    from loaders.store import StoreSettings

IMAGE_FILE_SIZE_BYTES_MAX = 1 << 30

IDLE_AFTER_SECONDS = 10.0
"""A source is idle when its image has not changed for this long."""

CHANGED_PAUSE_SECONDS = 0.1
"""Minimum time from one fetch to the next, however often `image_changed` is called."""


class ConfirmedImage(NamedTuple):
    """An image, and when it was known to be the newest, in seconds of the source's timer."""

    image: MetadataImage
    confirmed_seconds: float


class ImageSource(Protocol):
    """Returns metadata images. Any thread may call it.

    Both methods may raise: then lookups continue with the current image. Only `ImageTooOld` reaches the caller of a
    lookup: a source raises it if objects of its current image may be deleted by now, so that no answer may be given.
    """

    def current(self) -> MetadataImage:
        """The newest known image; must not block on I/O for long, as each lookup calls it.

        A source that fetches images here should be a `PollingSource`, so that event loops need not wait.
        """
        ...

    def wait_newer(self, version: ImageVersion, timeout_seconds: float) -> MetadataImage | None:
        """An image newer than ``version``, as `is_newer` compares, or None when there is none within the time.

        With a time of 0 it fetches once and does not wait: a lookup does so before it returns an answer that is shorter
        than requested.
        """
        ...


@runtime_checkable
class PollingSource(ImageSource, Protocol):
    """A source whose `current` sometimes fetches: lookups call it in another thread, and continue meanwhile."""

    def cached(self) -> MetadataImage | None:
        """The newest image that may be used for answers, without fetching; None if there is none. Never blocks."""
        ...

    def is_due(self) -> bool:
        """Whether `current` would fetch now. Never blocks."""
        ...


@runtime_checkable
class NotifiedSource(ImageSource, Protocol):
    """A source that a program can notify of a newer image, if the program has a channel for such messages."""

    def image_changed(self) -> None:
        """Report that the current image may not be the newest any more: fetch soon. Never blocks; threads: any."""
        ...


@runtime_checkable
class DatedSource(ImageSource, Protocol):
    """A source that reports the possible age of its image; `stats()` shows it."""

    def age_seconds(self) -> float:
        """Seconds since the current image was known to be the newest."""
        ...


@runtime_checkable
class ConfirmingSource(ImageSource, Protocol):
    """A source that usually fetches in a cheaper way, which may return a slightly old image; `confirm` does not."""

    def confirm(self) -> MetadataImage:
        """The image that is the newest now; may block for one fetch. Raises as `wait_newer`."""
        ...


class MemoryUse(NamedTuple):
    """Bytes in use now, and their limit."""

    nbytes: int
    nbytes_max: int


@runtime_checkable
class SizedSource(ImageSource, Protocol):
    """A source with memory beside its images, which `stats().memory_bytes` of an accelerator includes."""

    def memory(self) -> MemoryUse:
        """The memory in use, and its limit. Never blocks; any thread may call it."""
        ...


@plain_arguments(ValueError)
class StaticImages:
    """One image, until another one is pushed: for tests, tools, and metadata that is held elsewhere.

    Threads: any. A forked process continues with the image of its parent, and must be pushed its own images.
    """

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._changed = PerProcess("a source of images", Condition)

    def current(self) -> MetadataImage:
        """The image that was pushed last."""
        return self._image

    def push(self, image: MetadataImage) -> bool:
        """Make this the current image, unless it is not newer; returns whether it was."""
        with (changed := self._changed()):
            if not is_newer(image.version, self._image.version):
                return False
            self._image = image
            changed.notify_all()
            return True

    def wait_newer(self, version: ImageVersion, timeout_seconds: float) -> MetadataImage | None:
        """Wait until a newer image is pushed."""
        with (changed := self._changed()):
            came = changed.wait_for(lambda: is_newer(self._image.version, version), timeout_seconds)
            return self._image if came else None


CONVERSIONS["ImageSource"] = lambda value: StaticImages(value) if isinstance(value, MetadataImage) else None


@plain_arguments(ValueError)
class PolledImages:
    """Images from a callable that returns the newest one, called at intervals.

    Args:
        fetch: returns the newest image; an image older than the current one is ignored. If `fetch` cannot guarantee
            that the image is the newest now, it also returns when the image was the newest: `ConfirmedImage`.
        timer: seconds, from any start.
        sleep: waits for a number of seconds.
        poll_seconds: `current` fetches again when the last fetch was this long ago; waiting uses the same interval. By
            default 1.
        max_age_seconds: an image that was last known to be the newest longer ago than this is not returned; above
            `poll_seconds`. None, the default, for a source whose objects are never deleted, or not soon.
        idle_poll_seconds: replaces `poll_seconds` when the image has not changed for 10 seconds; at least
            `poll_seconds`, and at most half of `max_age_seconds`. None, the default: the interval does not change.
        confirm: returns the image that is surely the newest, for `confirm`; None, the default: `fetch` does.
        wait: waits until an event is set, or for a number of seconds; so `image_changed` wakes threads that wait for a
            newer image. None, the default: `sleep`, which cannot be interrupted.

    An image is known to be the newest at the start of a `fetch` that returns it, or one of the same version. While
    `fetch` fails, the current image is returned (and `fetch` retried, every `poll_seconds` at most), until it is too
    old; then every call raises `ImageTooOld`, until `fetch` succeeds again.

    Threads: any. ``current`` fetches in one thread at a time; other threads use the current image, and wait for the
    fetch only if the image is too old. Threads that wait for a newer image fetch themselves. A forked process continues
    with the image of its parent, and fetches for itself.
    """

    def __init__(  # noqa: PLR0913 - choices by name, each with a default
        self,
        fetch: Callable[[], MetadataImage | ConfirmedImage],
        *,
        timer: Callable[[], float],
        sleep: Callable[[float], object],
        poll_seconds: float = POLL_SECONDS,
        max_age_seconds: float | None = None,
        idle_poll_seconds: float | None = None,
        confirm: Callable[[], MetadataImage] | None = None,
        wait: Callable[[Event, float], object] | None = None,
        memory: Callable[[], MemoryUse] = lambda: MemoryUse(0, 0),
    ) -> None:
        check_number("poll_seconds", poll_seconds)
        if max_age_seconds is not None and max_age_seconds <= poll_seconds:
            raise ValueError(f"expected max_age_seconds above poll_seconds, {poll_seconds}, found {max_age_seconds}")
        if max_age_seconds is not None:
            check_number("max_age_seconds", max_age_seconds)
        if idle_poll_seconds is not None:
            check_number("idle_poll_seconds", idle_poll_seconds, poll_seconds)
        self._fetch = fetch
        self._memory = memory
        self._confirm = confirm or fetch
        self._wait = wait or (lambda _, seconds: sleep(seconds))
        self._max_age_seconds = math.inf if max_age_seconds is None else max_age_seconds
        self._poll_seconds = self._pace_seconds = poll_seconds
        idle_seconds = poll_seconds if idle_poll_seconds is None else idle_poll_seconds
        self._idle_poll_seconds = max(poll_seconds, min(idle_seconds, self._max_age_seconds / 2))
        self._timer = timer
        self._confirmed_seconds = timer()
        self._image, self._confirmed_seconds = _confirmed(fetch(), self._confirmed_seconds)
        self._asked_seconds = self._changed_seconds = timer()
        self._is_told = False
        self._told = PerProcess("a source of images", Event)
        self._failure = ""
        self._went_back: CatalogWentBack | None = None
        self._lock = ProcessLock()
        self._asking = ProcessLock()

    def age_seconds(self) -> float:
        """Seconds since the current image was known to be the newest."""
        return self._timer() - self._confirmed_seconds

    def memory(self) -> MemoryUse:
        """Memory beside the images, and its limit."""
        return self._memory()

    def cached(self) -> MetadataImage | None:
        """The image that was fetched last; None if it may not be used for answers. Never blocks."""
        return None if self._went_back is not None or self._is_too_old() else self._image

    def is_due(self) -> bool:
        """Whether `current` would fetch now: `poll_seconds` after the last time, or at once after `image_changed`."""
        return self._due_in_seconds() <= 0

    def image_changed(self) -> None:
        """Report that there is a newer image: a fetch is due now, and threads that wait for it wake. Never blocks.

        It may be called for each message about a change: there is at least a tenth of a second between two fetches.
        """
        self._is_told = True
        self._told().set()

    def current(self) -> MetadataImage:
        """The newest image, fetched at most `poll_seconds` ago.

        Raises:
            ImageTooOld: the current image is older than `max_age_seconds`, and fetching did not return a younger one.
            CatalogWentBack: the last `fetch` raised it: the current image may not be true any more, so it is not used
                until `fetch` succeeds again.
            AccelError: an error of `fetch`, while the current image is younger than `max_age_seconds`.
        """
        too_old = self._is_too_old()
        if (too_old or self.is_due()) and self._asking.acquire(blocking=too_old):
            try:
                if self.is_due():  # else another thread has just fetched, and its result is stored
                    self._refresh()
            finally:
                self._asking.release()
        return self._young_enough()

    def wait_newer(self, version: ImageVersion, timeout_seconds: float) -> MetadataImage | None:
        """Fetch whenever a fetch is due, and at least once: at the end of the time, or at once with a time of 0.

        Raises:
            AccelError: as `current`.
        """
        if timeout_seconds <= 0:
            image = self._refresh()
            return image if is_newer(image.version, version) else None
        left_seconds, has_asked = timeout_seconds, False
        while not is_newer(self._image.version, version) or self.cached() is None:
            left_seconds -= self._pause(min(left_seconds, self._due_in_seconds()))
            if left_seconds <= 0 and has_asked and not self.is_due():
                return None
            has_asked = True
            if is_newer(self._refresh().version, version):
                break
            if left_seconds <= 0:
                return None
        return self._young_enough()

    def confirm(self) -> MetadataImage:
        """The image that is the newest now, fetched at once and without listings.

        Raises:
            AccelError: as `current`.
        """
        return self._refresh(self._confirm)

    def _pause(self, seconds: float) -> float:
        """Wait, unless the image is reported to have changed; returns the seconds that it took."""
        if seconds <= 0:
            return 0.0
        started_seconds = self._timer()
        self._wait(self._told(), seconds)
        if not self._is_told:
            return seconds
        if (rest_seconds := self._due_in_seconds()) > 0:
            self._wait(Event(), rest_seconds)
        return min(seconds, self._timer() - started_seconds)

    def _refresh(self, fetch: Callable[[], MetadataImage | ConfirmedImage] | None = None) -> MetadataImage:
        self._is_told = False
        self._told().clear()
        self._asked_seconds = started_seconds = self._timer()
        try:
            fetched, confirmed_seconds = _confirmed((fetch or self._fetch)(), started_seconds)
        except Exception as error:
            self._went_back = error if isinstance(error, CatalogWentBack) else self._went_back
            self._failure = f"; fetching a younger image failed with {type(error).__name__}: {error}"
            if self._is_too_old() and not isinstance(error, CatalogWentBack):
                raise self._refusal() from error
            raise
        self._failure, self._went_back = "", None
        self._take(fetched, confirmed_seconds)
        return self._young_enough()

    def _take(self, fetched: MetadataImage, confirmed_seconds: float) -> None:
        now_seconds = self._timer()
        with self._lock:
            if is_newer(fetched.version, self._image.version):
                self._image, self._changed_seconds = fetched, now_seconds
            # An older image, which an earlier fetch may still return, does not confirm the current one.
            if fetched.version == self._image.version:
                self._confirmed_seconds = max(self._confirmed_seconds, confirmed_seconds)
            is_idle = now_seconds - self._changed_seconds >= IDLE_AFTER_SECONDS
            self._pace_seconds = self._idle_poll_seconds if is_idle else self._poll_seconds

    def _young_enough(self) -> MetadataImage:
        if (went_back := self._went_back) is not None:
            raise CatalogWentBack(went_back.where, went_back.seen, went_back.found)
        if self._is_too_old():
            raise self._refusal()
        return self._image

    def _due_in_seconds(self) -> float:
        pause_seconds = CHANGED_PAUSE_SECONDS if self._is_told else self._pace_seconds
        return min(pause_seconds, self._pace_seconds) - (self._timer() - self._asked_seconds)

    def _is_too_old(self) -> bool:
        return self.age_seconds() > self._max_age_seconds

    def _refusal(self) -> ImageTooOld:
        return ImageTooOld(
            f"expected an image that was the newest at most {self._max_age_seconds:g} s ago, found version "
            f"{self._image.version}, of {self.age_seconds():.1f} s ago{self._failure}"
        )


def _confirmed(fetched: MetadataImage | ConfirmedImage, started_seconds: float) -> ConfirmedImage:
    return fetched if isinstance(fetched, ConfirmedImage) else ConfirmedImage(fetched, started_seconds)


@plain_arguments(ValueError)
def load_image_file(path: Path) -> MetadataImage:
    """The image in a JSON file of at most 1 GiB.

    Raises:
        ImageRefused: not JSON, too large, or not an image.
        OSError: the file cannot be read.
    """
    size_bytes = path.stat().st_size
    if size_bytes > IMAGE_FILE_SIZE_BYTES_MAX:
        raise ImageRefused(f"{path}: expected at most {IMAGE_FILE_SIZE_BYTES_MAX} bytes, found {size_bytes}")
    return _image_of(path.read_bytes(), str(path))


def _image_of(data: bytes, where: str) -> MetadataImage:
    try:
        return MetadataImage.from_json(data)
    except ImageRefused as error:
        raise ImageRefused(f"{where}: {error}") from error
    except RecursionError as error:
        raise ImageRefused(f"{where}: expected an image as JSON, found lists or objects nested too deeply") from error
    except ValueError as error:
        raise ImageRefused(f"{where}: expected an image as JSON, found something else: {error}") from error


SOURCES_GROUP = "accel.image_sources"
"""The group of entry points of named sources: each is called with a text, and returns an `ImageSource`."""

HTTP_TIMEOUT_SECONDS = 30.0

_SOURCE_NAME = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9_.-]*)(?::(?P<argument>.*))?", re.DOTALL)


def read_image(place: str, settings: StoreSettings | None = None) -> MetadataImage:
    """The image at a place that the user names: the value of `--image`.

        | place                        | the image                                                              |
        |------------------------------|------------------------------------------------------------------------|
        | `http://...`, `https://...`  | JSON, by one GET of at most 30 seconds without an answer               |
        | `s3://bucket/path/to/it`     | JSON, an object of any store that has a URL (`loaders.store`)          |
        | `path/to/it`                 | JSON, a file; it has priority over a source of this name               |
        | `file:///path/to/it`         | likewise: the file itself, not an object of a store in a folder        |
        | `name` or `name:text`        | the image of the source that a package provides by this name in the    |
        |                              | group `accel.image_sources`; called with the text, or without          |

    Args:
        place: see above.
        settings: how to reach S3.

    Raises:
        ImageRefused: not JSON, more than 1 GiB, or not an image.
        StoreError: the image cannot be read now, or does not exist.
        OSError: a file cannot be read.
        ValueError: not a URL of a store; no such file, and no such source.
    """
    scheme, is_url, _ = place.partition("://")
    if is_url and scheme.lower() in {"http", "https"}:
        return _image_of(_fetched(place), redacted(place))
    if is_url and scheme.lower() == "file":
        from loaders.store.open import path_of  # noqa: PLC0415 - it loads stores, and few images come from one

        return load_image_file(path_of(place))
    if is_url:
        return _image_of(_stored(place, settings), redacted(place))
    if Path(place).exists() and not Path(place).is_dir():
        return load_image_file(Path(place))
    return _source(place).current()


def _fetched(url: str) -> bytes:
    try:
        data = fetched(url, size_bytes_max=IMAGE_FILE_SIZE_BYTES_MAX, timeout_seconds=HTTP_TIMEOUT_SECONDS)
    except OSError as error:
        raise StoreUnavailable("get", redacted(url), str(error)) from error
    if len(data) > IMAGE_FILE_SIZE_BYTES_MAX:
        raise ImageRefused(f"{redacted(url)}: expected at most {IMAGE_FILE_SIZE_BYTES_MAX} bytes, found more")
    return data


def fetched(url: str, *, size_bytes_max: int, timeout_seconds: float) -> bytes:
    """The body of one GET. A redirect is followed only to http and https; loopback is reached without a proxy.

    Args:
        url: http or https.
        size_bytes_max: at most one byte more is read, which shows the caller that there is more.
        timeout_seconds: the longest time without an answer.

    Raises:
        OSError: no answer, one that is not HTTP, a status of 400 or above (`urllib.error.HTTPError`), or a URL with a
            signature that a proxy would read.
    """
    import http.client  # noqa: PLC0415 - few images come this way, and it loads half of the standard library
    import urllib.request  # noqa: PLC0415 - likewise

    from loaders.store.names import asked_host, check_name  # noqa: PLC0415 - likewise
    from loaders.store.settings import is_loopback  # noqa: PLC0415 - likewise

    class Redirects(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *args: Any) -> urllib.request.Request | None:
            to = str(args[-1])
            if urlsplit(to).scheme.lower() not in {"http", "https"}:
                args[1].close()  # the reply, which the error would keep open
                raise OSError(f"expected an answer, found a redirect to {redacted(to)[:200]!r}")
            return super().redirect_request(*args)

    check_name(url)
    is_local, asked = is_loopback(url), asked_host(url)
    if url.lower().startswith("http:") and asked != urlsplit(url).hostname and redacted(url) != url:
        raise OSError(f"expected https:// for a URL with a signature, found the proxy {asked}, which would read it")
    try:
        handlers = (Redirects, urllib.request.ProxyHandler({})) if is_local else (Redirects,)
        request = urllib.request.Request(url)  # noqa: S310 - the caller checks the scheme
        with urllib.request.build_opener(*handlers).open(request, timeout=timeout_seconds) as reply:
            data: bytes = reply.read(size_bytes_max + 1)
    except http.client.HTTPException as error:
        raise OSError(f"expected an HTTP answer, found {type(error).__name__}: {str(error)[:200]!r}") from error
    return data


def _stored(url: str, settings: StoreSettings | None) -> bytes:
    from loaders.store import open_store  # noqa: PLC0415 - likewise

    folder, _, name = url.rpartition("/")
    if not name or folder.endswith("/"):
        raise ValueError(f"expected a URL of an image, as s3://bucket/image.json, found {redacted(url)!r}")
    return bytes(open_store(folder, settings).get(name, size_bytes_max=IMAGE_FILE_SIZE_BYTES_MAX).body)


def _source(place: str) -> ImageSource:
    from importlib import metadata  # noqa: PLC0415 - likewise

    offered = {entry_point.name: entry_point for entry_point in metadata.entry_points(group=SOURCES_GROUP)}
    match = _SOURCE_NAME.fullmatch(place)
    if match is None or match["name"] not in offered:
        names = ", ".join(sorted(offered)) or "none is installed"
        raise ValueError(f"{place!r} does not exist: expected a file, a URL, or the name of a source ({names})")
    source: ImageSource = offered[match["name"]].load()(match["argument"] or "")
    return source
