"""Images on an event loop: whoever has to be asked for one is asked in a thread, on behalf of all tasks.

Two threads suffice for any number of tasks: one asks for the newest image where the one at hand is due (`current`), the
other one waits until there is a newer one (`newer`). Tasks wait for what these bring; the loop itself never does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from accel.image import MetadataImage
from accel.lookup.deadline import Deadline
from accel.lookup.engine import Engine
from accel.version import ImageVersion, is_newer
from loaders.lifetime import Threads

WAIT_SECONDS_MAX = 1.0
"""One question to the source waits no longer; so a thread that nobody needs any more soon ends."""

T = TypeVar("T")


class AsyncImages:
    """Lets tasks have images without blocking the loop, and wait for them without holding a thread each.

    Args:
        engine: has the source of images; both are called in threads of this object's own.

    Threads: one event loop.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._current: _Flight[MetadataImage] = _Flight("accel-image")
        self._newer: _Flight[MetadataImage | None] = _Flight("accel-newer-image")

    async def current(self) -> MetadataImage:
        """The newest image at hand, installed; only where the source has to ask for it, this waits for that.

        Raises:
            ImageTooOld: nothing may be served from it, and there is no younger one.
        """
        image = self._engine.image_at_hand()
        if image is not None:
            return image
        asked = self._current.under_way() or self._current.start(self._engine.image)
        await asyncio.wait({asked})
        return asked.result()

    async def newer(self, version: ImageVersion, deadline: Deadline) -> MetadataImage | None:
        """An image newer than this version, or None when the time is over; asks once, however short the time.

        Raises:
            What the source raises.
        """
        while True:
            image = self._engine.image_at_hand()
            if image is not None and is_newer(image.version, version):
                return image
            left_seconds = deadline.left_seconds() or 0.0
            shared = self._newer.under_way()
            asked = shared or self._newer.start(partial(self._wait_newer, version, min(left_seconds, WAIT_SECONDS_MAX)))
            done, _ = await asyncio.wait({asked}, timeout=left_seconds if shared else None)
            newer = asked.result() if done else None
            if newer is not None and is_newer(newer.version, version):
                return newer
            if not deadline.left_seconds():
                return None

    def close(self) -> None:
        """Stop asking; a question that is under way ends by itself."""
        self._current.close()
        self._newer.close()

    def _wait_newer(self, version: ImageVersion, timeout_seconds: float) -> MetadataImage | None:
        return self._engine.source.wait_newer(version, timeout_seconds)


class _Flight(Generic[T]):
    """One call at a time, in a thread of its own; all who want it meanwhile wait for the same one."""

    def __init__(self, name: str) -> None:
        self._thread = Threads(1, name)
        self._asked: asyncio.Future[T] | None = None

    def under_way(self) -> asyncio.Future[T] | None:
        """The call that was started and has not ended."""
        return None if self._asked is None or self._asked.done() else self._asked

    def start(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Start a call; nobody who stops waiting for it stops it."""
        self._asked = asyncio.get_running_loop().run_in_executor(self._thread, call)
        self._asked.add_done_callback(_look_at)
        return self._asked

    def close(self) -> None:
        """Take no more calls."""
        self._thread.shutdown(wait=False)


def _look_at(asked: asyncio.Future[T]) -> None:
    # Whoever still waits raises the error; asyncio would warn of one that nobody looked at.
    if not asked.cancelled():
        asked.exception()
