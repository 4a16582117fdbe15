"""Where images come from.

A reader needs two things of the owner of the metadata: the newest image that it knows, and a way to wait for one that
is newer. `ImageSource` is just that; a broker with its own metadata implements it in a few lines. Three are at hand:
images that are pushed in, a JSON file that is read again when it changes, and any callable. The last is also the way of
the object catalog (`ObjectCatalog.images`), where the metadata lies in the bucket. `read_image` reads one image from a
file, a URL, or a source that a package offers by name: what commands take as `--image`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Condition, Event
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable
from urllib.parse import urlsplit

from accel.errors import CatalogWentBack, ImageRefused, ImageTooOld
from accel.image import ImageVersion, MetadataImage, is_newer
from accel.settings import POLL_SECONDS
from loaders.errors import StoreUnavailable, redacted
from loaders.lifetime import PerProcess, ProcessLock
from loaders.settings import check_number

if TYPE_CHECKING:
    from loaders.store import S3Settings

IMAGE_FILE_SIZE_BYTES_MAX = 1 << 30

IDLE_AFTER_SECONDS = 10.0
"""A source is idle when its image has not changed for so long."""

CHANGED_PAUSE_SECONDS = 0.1
"""However often a source is told that its image changed, so long it waits from one question to the next."""


class ConfirmedImage(NamedTuple):
    """An image, and when it was known to be the newest: seconds of the source's timer."""

    image: MetadataImage
    confirmed_seconds: float


class ImageSource(Protocol):
    """Gives metadata images. Any thread may call it.

    Both methods may raise: then lookups go on with the image at hand. Only `ImageTooOld` reaches the caller of a
    lookup: a source that knows how long objects outlive their place in an image says by it that nothing may be served
    from what is at hand.
    """

    def current(self) -> MetadataImage:
        """The newest image that is at hand; must not block on I/O for long, it is asked before each lookup.

        A source that asks somebody here now and then should be a `PollingSource`, so that event loops need not wait.
        """
        ...

    def wait_newer(self, version: ImageVersion, timeout_seconds: float) -> MetadataImage | None:
        """An image newer than ``version``, as `is_newer` compares, or None when there is none within the time.

        With a time of 0 it asks the truth once and does not wait: a lookup that came out short does so before it
        believes that there is no more.
        """
        ...


@runtime_checkable
class PollingSource(ImageSource, Protocol):
    """A source whose `current` asks somebody now and then: lookups have it ask beside them, and go on meanwhile."""

    def at_hand(self) -> MetadataImage | None:
        """The newest image that may be served from, without asking anybody; None where none may be. Never blocks."""
        ...

    def is_due(self) -> bool:
        """Whether `current` would ask somebody now. Never blocks."""
        ...


@runtime_checkable
class NotifiedSource(ImageSource, Protocol):
    """A source that can be told that there is a newer image, by a program with a channel on which that is said."""

    def image_changed(self) -> None:
        """The image at hand may not be the newest any more: ask soon. Never blocks; any thread may call it."""
        ...


@runtime_checkable
class DatedSource(ImageSource, Protocol):
    """A source that can tell how old its image may be; `stats()` shows it."""

    def age_seconds(self) -> float:
        """Seconds since the image at hand was known to be the newest."""
        ...


@runtime_checkable
class ConfirmingSource(ImageSource, Protocol):
    """A source that mostly asks in a cheaper way, which may show what was true a while ago; and surely when told so."""

    def confirm(self) -> MetadataImage:
        """The image that is the newest now; may block for one question. Raises as `wait_newer`."""
        ...


class MemoryUse(NamedTuple):
    """Bytes that something takes now, and may take."""

    nbytes: int
    nbytes_max: int


@runtime_checkable
class SizedSource(ImageSource, Protocol):
    """A source that keeps something beside its images, which `stats().memory_bytes` of an accelerator counts."""

    def memory(self) -> MemoryUse:
        """What it takes, and may take. Never blocks; any thread may call it."""
        ...


class StaticImages:
    """One image, unless another one is pushed: for tests, tools, and metadata that is held elsewhere.

    Threads: any. A process that is forked goes on from the image of its parent, and has to be pushed its own.
    """

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._changed = PerProcess("a source of images", Condition)

    def current(self) -> MetadataImage:
        """The image that was pushed last."""
        return self._image

    def push(self, image: MetadataImage) -> bool:
        """Make this the current image, unless it is not newer; says whether it is now."""
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


class PolledImages:
    """Images from a callable that gives the newest one, asked every so often.

    Args:
        fetch: gives the newest image; an older one than before is ignored. One that cannot vouch that its image is the
            newest now says since when that is so: `ConfirmedImage`.
        timer: seconds, from any start.
        sleep: waits for a number of seconds.
        poll_seconds: `current` asks again when its image was asked for this long ago; waiting asks as often. 1 by
            default.
        max_age_seconds: no image is given that was last known to be the newest longer ago than this; above
            `poll_seconds`. None, the default, for a source whose objects are never deleted, or not soon.
        idle_poll_seconds: in place of `poll_seconds` when the image has not changed for 10 seconds; at least that, and
            at most half of `max_age_seconds`. None, the default: as often as ever.
        confirm: gives the image that is surely the newest, for `confirm`; None, the default: `fetch` does.
        wait: waits until an event is set, or for a number of seconds; so `image_changed` wakes who waits for a newer
            image. None, the default: `sleep`, which nothing wakes.

    An image is known to be the newest at the moment when a `fetch` that gives it, or one of the same version, starts.
    While `fetch` fails, the image at hand is given on (and `fetch` tried again, every `poll_seconds` at most), until
    it is too old; then every call raises `ImageTooOld`, until `fetch` answers again.

    Threads: any. ``current`` asks in one thread at a time; the others take what is at hand, and wait for that thread
    only if it is too old. Who waits for a newer image asks besides. A process that is
    forked goes on from the image of its parent, and asks for itself.
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
        """Seconds since the image at hand was known to be the newest."""
        return self._timer() - self._confirmed_seconds

    def memory(self) -> MemoryUse:
        """What is kept beside the images, and may be."""
        return self._memory()

    def at_hand(self) -> MetadataImage | None:
        """The image that was fetched last; None if nothing may be served from it. Never blocks."""
        return None if self._went_back is not None or self._is_too_old() else self._image

    def is_due(self) -> bool:
        """Whether `current` would ask now: `poll_seconds` after the last time, or at once after `image_changed`."""
        return self._due_in_seconds() <= 0

    def image_changed(self) -> None:
        """There is a newer image: it is due now, and who waits for one is woken. Never blocks.

        It may be called as often as changes are heard of: from one question to the next there is a tenth of a second.
        """
        self._is_told = True
        self._told().set()

    def current(self) -> MetadataImage:
        """The newest image, asked for at most `poll_seconds` ago.

        Raises:
            ImageTooOld: the image at hand is older than `max_age_seconds`, and asking did not give a younger one.
            CatalogWentBack: `fetch` raised it when it was asked last: what the image at hand says may not be true any
                more, so nothing is served from it until `fetch` answers again.
            AccelError: what `fetch` raises, while the image at hand is younger than that.
        """
        too_old = self._is_too_old()
        if (too_old or self.is_due()) and self._asking.acquire(blocking=too_old):
            try:
                if self.is_due():  # else another thread has just asked: what came of it stands already
                    self._refresh()
            finally:
                self._asking.release()
        return self._young_enough()

    def wait_newer(self, version: ImageVersion, timeout_seconds: float) -> MetadataImage | None:
        """Ask whenever it is due, and at least once: when the time is over; with a time of 0 at once.

        Raises:
            AccelError: as `current`.
        """
        if timeout_seconds <= 0:
            image = self._refresh()
            return image if is_newer(image.version, version) else None
        left_seconds, has_asked = timeout_seconds, False
        while not is_newer(self._image.version, version) or self.at_hand() is None:
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
        """The image that is the newest now, asked for at once and not by way of listings.

        Raises:
            AccelError: as `current`.
        """
        return self._refresh(self._confirm)

    def _pause(self, seconds: float) -> float:
        """Wait, unless somebody says that the image changed; gives the seconds that it took."""
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
            self._failure = f"; asking for a younger one failed with {type(error).__name__}: {error}"
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
            # An older image, which an earlier question may still bring, says nothing about the one at hand.
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


class JsonFile:
    """Reads an image from a JSON file, and again when the file changed; to be given to `PolledImages`.

    The form is that of `MetadataImage.from_dict`, with ``namespace`` and ``version`` at the top. A program that
    changes the file raises the version, and replaces the file as a whole (write a new one, then rename it).

    Threads: any.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = ProcessLock()
        self._seen: tuple[int, int, int] | None = None
        self._image: MetadataImage | None = None

    def __call__(self) -> MetadataImage:
        """The image that stands in the file now.

        Raises:
            ImageRefused: not JSON, too large, or not an image.
            OSError: the file cannot be read.
        """
        with self._lock:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            if self._image is None or stamp != self._seen:
                self._image = load_image_file(self._path)
                self._seen = stamp
            return self._image


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
"""Entry points of this group are sources that a name stands for: called with a text, each gives an `ImageSource`."""

HTTP_TIMEOUT_SECONDS = 30.0

_SOURCE_NAME = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9_.-]*)(?::(?P<argument>.*))?", re.DOTALL)


def read_image(place: str, settings: S3Settings | None = None) -> MetadataImage:
    """The image at a place that somebody names: what `--image` takes.

        | place                        | the image                                                              |
        |------------------------------|------------------------------------------------------------------------|
        | `http://...`, `https://...`  | JSON, by one GET of at most 30 seconds without an answer               |
        | `s3://bucket/path/to/it`     | JSON, an object of any store that has a URL (`loaders.store`)          |
        | `path/to/it`                 | JSON, a file; it comes before a source of this name                    |
        | `file:///path/to/it`         | likewise: the file itself, no object of a store in a folder            |
        | `name` or `name:text`        | what the source gives that a package offers by this name in the group  |
        |                              | `accel.image_sources`; it is called with the text, or with none        |

    Args:
        place: see above.
        settings: how to reach S3.

    Raises:
        ImageRefused: not JSON, more than 1 GiB, or not an image.
        StoreError: it cannot be read now, or there is none.
        OSError: a file cannot be read.
        ValueError: not a URL of a store; no such file, and no such source.
    """
    scheme, is_url, _ = place.partition("://")
    if is_url and scheme.lower() in {"http", "https"}:
        return _image_of(_fetched(place), redacted(place))
    if is_url and scheme.lower() == "file":
        from loaders.store.open import path_of  # noqa: PLC0415 - it loads stores, which few images come from

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


def fetched(
    url: str, *, size_bytes_max: int, timeout_seconds: float, headers: Mapping[str, str] | None = None
) -> bytes:
    """The body of one GET. A redirect is followed by http and https alone, and only if no header is sent with it.

    Args:
        url: http or https.
        size_bytes_max: one byte more is read at most, by which the caller sees that there is more.
        timeout_seconds: the longest silence.
        headers: for this server and no other.

    Raises:
        OSError: no answer, one that is no HTTP, or a status of 400 or above (`urllib.error.HTTPError`).
    """
    import http.client  # noqa: PLC0415 - few images come this way, and it loads half of the standard library
    import urllib.request  # noqa: PLC0415 - likewise

    class Redirects(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *args: Any) -> urllib.request.Request | None:
            to = str(args[-1])
            if headers or urlsplit(to).scheme.lower() not in {"http", "https"}:
                raise OSError(f"expected an answer, found a redirect to {redacted(to)[:200]!r}")
            return super().redirect_request(*args)

    try:
        request = urllib.request.Request(url, headers=dict(headers or {}))  # noqa: S310 - http or https, as the caller says
        with urllib.request.build_opener(Redirects).open(request, timeout=timeout_seconds) as reply:
            data: bytes = reply.read(size_bytes_max + 1)
    except http.client.HTTPException as error:
        raise OSError(f"expected an answer of HTTP, found {type(error).__name__}: {str(error)[:200]!r}") from error
    return data


def _stored(url: str, settings: S3Settings | None) -> bytes:
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
