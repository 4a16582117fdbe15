"""Waiting for a newer image on an event loop: one thread waits, for however many fetches."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from accel.deadline import Deadline
from accel.image import MetadataImage
from accel.image_source import ImageSource
from accel.version import ImageVersion, is_newer

WAIT_SECONDS_MAX = 1.0
"""One question to the source waits no longer; so a thread that nobody needs any more soon ends."""


class NewerImages:
    """Lets tasks wait for images without holding a thread each.

    Args:
        source: where images come from; its `wait_newer` blocks, in a thread of this object's own.

    Threads: one event loop.
    """

    def __init__(self, source: ImageSource) -> None:
        self._source = source
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="accel-image")
        self._asked: asyncio.Future[MetadataImage | None] | None = None

    async def wait(self, version: ImageVersion, deadline: Deadline) -> MetadataImage | None:
        """An image newer than this version, or None when the time is over; asks once, however short the time.

        Raises:
            What the source raises.
        """
        while True:
            current = self._source.current()
            if is_newer(current.version, version):
                return current
            left_seconds = deadline.left_seconds() or 0.0
            if self._asked is None or self._asked.done():
                self._asked = self._ask(version, min(left_seconds, WAIT_SECONDS_MAX))
                timeout = None
            else:
                timeout = left_seconds
            asked = self._asked
            done, _ = await asyncio.wait({asked}, timeout=timeout)
            newer = asked.result() if done else None
            if newer is not None and is_newer(newer.version, version):
                return newer
            if not deadline.left_seconds():
                return None

    def close(self) -> None:
        """Stop asking; a question that is under way ends by itself."""
        self._executor.shutdown(wait=False)

    def _ask(self, version: ImageVersion, timeout_seconds: float) -> asyncio.Future[MetadataImage | None]:
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._executor, self._source.wait_newer, version, timeout_seconds)
