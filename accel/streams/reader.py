"""Reads a stream from cut to cut, its segments merged in the order of time: for threads.

    with StreamReader(stream, source) as reader:
        for event in reader:
            ...
            reader.position()       # StreamReader(stream, source, from_cut=...) goes on here

Segments are filled ahead by a few threads; the one that iterates merges what they bring. `reader_core` decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from queue import Empty
from types import TracebackType
from typing import Self

from accel.history.rules.ids import IdMap
from accel.streams.events import Event, EventBatch
from accel.streams.reader_base import CutReader, ReaderBase


class ThreadReader(ReaderBase, Iterator[Event]):
    """A reader that blocks while it waits. Threads: one at a time."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Read no more; requests under way are not waited for."""
        self._close()

    def __next__(self) -> Event:
        self._check()
        while (event := self._next_event()) is None:
            batch = self.next_batch()
            if batch is None:
                raise StopIteration
            self._open_batch(batch)
        return event

    def next_batch(self, timeout_seconds: float | None = None) -> EventBatch | None:
        """The events that were appended together next; None at the end, or when the time is over.

        They count as given. Of a batch whose first events were given one by one, these are the others.

        Args:
            timeout_seconds: how long to wait at most; None = as long as it takes.
        """
        deadline = None if timeout_seconds is None else self._system.timer() + timeout_seconds
        self._lifetime.check_process()
        self._attend()
        self._check()
        rest = self._rest()
        while rest is None and not self.is_finished:
            self._check()
            self._hand_on()
            self._attend()
            rest = self._take()
            if rest is not None or self.is_finished:
                break
            left = None if deadline is None else max(0.0, deadline - self._system.timer())
            waits = [each for each in (self._wait_seconds(), left) if each is not None]
            if not self._wait(min(waits) if waits else None) and left == 0:
                break
        return rest

    def _attend(self) -> None:
        """What is to be done before anything is given."""

    def _wait(self, seconds: float | None) -> bool:
        try:
            answered = self._answers.get(timeout=seconds)
        except Empty:
            return False
        if answered is not None:
            self._answer(*answered)
        return True


class StreamReader(ThreadReader, CutReader):
    """Events of a stream; see `CutReader` for the arguments. Threads: one at a time.

    An error leaves it as it was: asked for the next event again, it tries again, and gives no event twice.

    Raises:
        PositionTruncated (while iterating): the stream begins behind the position; `skip_to_head` goes on.
        ReaderStalled (while iterating): what must be there could not be found for `stall_seconds`.
        AccelError (while iterating): something could not be read.
    """

    def skip_to_head(self) -> IdMap:
        """Go on at the stream's head wherever that lies behind the position; gives the new position."""
        return self._skip_to_head()
