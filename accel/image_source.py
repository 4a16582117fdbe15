"""Where images come from.

A reader needs two things of whoever owns the metadata: the newest image that it knows, and a way to wait for one that
is newer. `ImageSource` is just that; a broker with its own metadata implements it in a few lines. Three are at hand:
one image for ever, a JSON file that is read again when it changes, and any callable.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from accel.errors import ImageRefused
from accel.image import MetadataImage

IMAGE_FILE_SIZE_BYTES_MAX = 1 << 30


class ImageSource(Protocol):
    """Gives metadata images. Any thread may call it."""

    def current(self) -> MetadataImage:
        """The newest image that is at hand; must not block on I/O for long, it is asked before each lookup."""
        ...

    def wait_newer(self, version: int, timeout_seconds: float) -> MetadataImage | None:
        """An image with a version above ``version``, or None when there is none within the time.

        With a time of 0 it asks the truth once and does not wait: a lookup that came out short does so before it
        believes that there is no more.
        """
        ...


class StaticImages:
    """One image, unless another one is pushed: for tests, tools, and metadata that is held elsewhere.

    Threads: any.
    """

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._changed = threading.Condition()

    def current(self) -> MetadataImage:
        """The image that was pushed last."""
        return self._image

    def push(self, image: MetadataImage) -> bool:
        """Make this the current image, unless it is not newer; says whether it is now."""
        with self._changed:
            if image.version <= self._image.version:
                return False
            self._image = image
            self._changed.notify_all()
            return True

    def wait_newer(self, version: int, timeout_seconds: float) -> MetadataImage | None:
        """Wait until a newer image is pushed."""
        with self._changed:
            self._changed.wait_for(lambda: self._image.version > version, timeout_seconds)
            return self._image if self._image.version > version else None


class PolledImages:
    """Images from a callable that gives the newest one, asked every so often.

    Args:
        fetch: gives the newest image; an older one than before is ignored.
        timer: seconds, from any start.
        sleep: waits for so many seconds.
        poll_seconds: `current` asks again when its image was asked for this long ago; waiting asks as often. 1 by
            default.

    Threads: any. ``current`` asks in one thread at a time, the others take what is at hand; who waits asks besides.
    """

    def __init__(
        self,
        fetch: Callable[[], MetadataImage],
        *,
        timer: Callable[[], float],
        sleep: Callable[[float], object],
        poll_seconds: float = 1.0,
    ) -> None:
        if poll_seconds <= 0:
            raise ValueError(f"expected poll_seconds above 0, found {poll_seconds}")
        self._fetch = fetch
        self._sleep = sleep
        self._poll_seconds = poll_seconds
        self._timer = timer
        self._image = fetch()
        self._asked_seconds = timer()
        self._lock = threading.Lock()
        self._asking = threading.Lock()

    def current(self) -> MetadataImage:
        """The newest image, asked for at most `poll_seconds` ago."""
        due = self._timer() - self._asked_seconds >= self._poll_seconds
        if due and self._asking.acquire(blocking=False):
            try:
                self._refresh()
            finally:
                self._asking.release()
        return self._image

    def wait_newer(self, version: int, timeout_seconds: float) -> MetadataImage | None:
        """Ask now, and then every ``poll_seconds`` until the time is over."""
        left_seconds = timeout_seconds
        while True:
            image = self._refresh()
            if image.version > version:
                return image
            if left_seconds <= 0:
                return None
            pause_seconds = min(self._poll_seconds, left_seconds)
            self._sleep(pause_seconds)
            left_seconds -= pause_seconds

    def _refresh(self) -> MetadataImage:
        self._asked_seconds = self._timer()
        fetched = self._fetch()
        with self._lock:
            if fetched.version > self._image.version:
                self._image = fetched
            return self._image


class JsonFile:
    """Reads an image from a JSON file, and again when the file changed; to be given to `PolledImages`.

    The form is that of `MetadataImage.from_dict`, with ``namespace`` and ``version`` at the top. Whoever changes the
    file raises the version, and replaces the file as a whole (write a new one, then rename it).

    Threads: any.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
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
    try:
        data: Any = json.loads(path.read_bytes())
    except ValueError as error:
        raise ImageRefused(f"{path}: expected an image as JSON, found something else: {error}") from error
    if not isinstance(data, Mapping):
        raise ImageRefused(f"{path}: expected an image as a JSON object, found {type(data).__name__}")
    try:
        return MetadataImage.from_dict(data)
    except ImageRefused as error:
        raise ImageRefused(f"{path}: {error}") from error
