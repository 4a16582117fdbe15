"""Lookups that took long, as they were: `explain` afterwards tells of now, this tells of then.

    accelerator = ReadAccelerator(source, store, settings=Settings(slow_lookup_seconds=0.5))
    ...
    for each in accelerator.slow_lookups():
        print(each.text())

With the setting each lookup that memory cannot answer takes down its trace, and throws it away if it was fast. One that
memory answers asks for nothing, so it is never slow, and pays nothing. The log tells of slow lookups, once a minute at
most, with how many there were.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any

from accel.errors import AccelError, LookupTimedOut
from accel.lookup.answer import Answer, Request
from accel.lookup.explain import Explanation, Trace
from accel.lookup.stats import ReportLimit
from accel.units import count_text, moment_text, time_text

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SlowLookup:
    """A lookup that took long.

    Args:
        ended_ms: when it ended, in milliseconds since 1970.
        explanation: what it did, and how long each round took.
    """

    ended_ms: int
    explanation: Explanation

    def text(self) -> str:
        """The explanation as lines for a terminal, and when it was."""
        return f"ended at {moment_text(self.ended_ms)}\n{self.explanation.text()}"

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data, and its lines, such that `accel explain --from` shows what was saved."""
        return {"ended_ms": self.ended_ms, **self.explanation.to_dict(), "lines": self.text().splitlines()}


class SlowLookups:
    """The last lookups that took long. Threads: any; no lock is held while it logs.

    Args:
        seconds: what took at least so long is slow.
        kept_max: the number that is kept; the oldest go.
        policy: that lookups are made with.
        timer: seconds from any start.
        clock: seconds since 1970.
    """

    def __init__(
        self, seconds: float, kept_max: int, policy: str, timer: Callable[[], float], clock: Callable[[], float]
    ) -> None:
        self._seconds = seconds
        self._policy = policy
        self._clock = clock
        self._lock = Lock()
        self._kept: deque[SlowLookup] = deque(maxlen=kept_max)
        self._reports = ReportLimit(timer)

    def new_trace(self) -> Trace:
        """What a lookup is to take down from its beginning."""
        return Trace()

    def note(self, request: Request, outcome: Answer | AccelError, trace: Trace, seconds: float) -> None:
        """A lookup ended that was traced; it is kept if it was slow. O(1)."""
        if seconds < self._seconds:
            return
        told = Explanation(request, outcome, trace, seconds, self._policy)
        with self._lock:
            self._kept.append(SlowLookup(int(self._clock() * 1000), told))
        if (times := self._reports.times()) is not None:
            logger.warning(
                "a lookup of stream %d from %d on took %s: %s, %s (%s slow since that was said last); "
                "slow_lookups() has its trace",
                request.stream_id,
                request.start,
                time_text(seconds),
                count_text(trace.round_count, "round"),
                count_text(told.requests, "request"),
                times,
            )

    def watch(self) -> ReadWatch:
        """What a read is to tell of its lookups."""
        return ReadWatch(self)

    def recent(self) -> tuple[SlowLookup, ...]:
        """What is kept, the latest one last."""
        with self._lock:
            return tuple(self._kept)


class ReadWatch:
    """The lookups of one read, one after the other: what each did, and how long the read waited for it.

    Args:
        slow: keeps those that took long.

    Threads: one at a time.
    """

    def __init__(self, slow: SlowLookups) -> None:
        self._slow = slow
        self._request: Request | None = None
        self._seconds = 0.0
        self.trace = Trace()

    def begin(self, request: Request) -> Trace:
        """A lookup begins; one that is not over yet was left."""
        self.leave("the read began it again with the newest image")
        self._request, self._seconds, self.trace = request, 0.0, self._slow.new_trace()
        return self.trace

    def waited(self, seconds: float) -> None:
        """The read waited so long for it."""
        self._seconds += seconds

    def end(self, outcome: Answer | AccelError) -> None:
        """It is over; nothing if there is none."""
        if self._request is not None:
            self._slow.note(self._request, outcome, self.trace, self._seconds)
            self._request = None

    def leave(self, reason: str = "the read gave the lookup up") -> None:
        """The read goes on without its answer, or is over."""
        self.end(LookupTimedOut(reason))
