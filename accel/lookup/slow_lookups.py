"""Traces of slow lookups, recorded while they ran: `explain` afterwards would repeat them with other caches.

    accelerator = ReadAccelerator(source, store, settings=Settings(slow_lookup_seconds=0.5))
    ...
    for each in accelerator.slow_lookups():
        print(each.text())

With the setting, each lookup that memory cannot answer records its trace, and discards it if the lookup was fast. A
lookup that memory answers makes no requests, so it is not traced. The log reports slow lookups, once a minute at most,
with their number.
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

SLOW_LOOKUPS_MAX = 32
"""The number of kept lookups; the oldest are dropped."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SlowLookup:
    """A slow lookup.

    Args:
        ended_ms: the time of its end, in milliseconds since 1970.
        explanation: its events, and the duration of each round.
    """

    ended_ms: int
    explanation: Explanation

    def text(self) -> str:
        """The explanation as lines for a terminal, with the time."""
        return f"ended at {moment_text(self.ended_ms)}\n{self.explanation.text()}"

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data, with its lines, which `accel explain --from` shows."""
        return {"ended_ms": self.ended_ms, **self.explanation.to_dict(), "lines": self.text().splitlines()}


class SlowLookups:
    """The last slow lookups. Threads: any; no lock is held while it logs.

    Args:
        seconds: the minimum duration of a slow lookup.
        policy: the policy of the lookups.
        timer: seconds from any start.
        clock: seconds since 1970.
    """

    def __init__(self, seconds: float, policy: str, timer: Callable[[], float], clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._policy = policy
        self._clock = clock
        self._lock = Lock()
        self._kept: deque[SlowLookup] = deque(maxlen=SLOW_LOOKUPS_MAX)
        self._reports = ReportLimit(timer)

    def new_trace(self) -> Trace:
        """The trace for a lookup that begins."""
        return Trace()

    def note(self, request: Request, outcome: Answer | AccelError, trace: Trace, seconds: float) -> None:
        """Handle the end of a traced lookup, which is kept if it was slow. O(1)."""
        if seconds < self._seconds:
            return
        told = Explanation(request, outcome, trace, seconds, self._policy)
        with self._lock:
            self._kept.append(SlowLookup(int(self._clock() * 1000), told))
        if (times := self._reports.times()) is not None:
            logger.warning(
                "a lookup of stream %d from %d on took %s: %s, %s (%s slow since the last report); "
                "slow_lookups() has its trace",
                request.stream_id,
                request.start,
                time_text(seconds),
                count_text(trace.round_count, "round"),
                count_text(told.requests, "request"),
                times,
            )

    def watch(self) -> ReadWatch:
        """The watch for the lookups of a read."""
        return ReadWatch(self)

    def recent(self) -> tuple[SlowLookup, ...]:
        """The kept lookups, the latest one last."""
        with self._lock:
            return tuple(self._kept)


class ReadWatch:
    """Records the lookups of one read, one after the other: the trace of each, and how long the read waited for it.

    Args:
        slow: keeps the slow ones.

    Threads: one at a time.
    """

    def __init__(self, slow: SlowLookups) -> None:
        self._slow = slow
        self._request: Request | None = None
        self._seconds = 0.0
        self.trace = Trace()

    def begin(self, request: Request) -> Trace:
        """Begin to record a lookup; a previous one that has not ended was abandoned."""
        self.leave("the read began the lookup again with the newest image")
        self._request, self._seconds, self.trace = request, 0.0, self._slow.new_trace()
        return self.trace

    def waited(self, seconds: float) -> None:
        """Add the time that the read waited for the lookup."""
        self._seconds += seconds

    def end(self, outcome: Answer | AccelError) -> None:
        """Record the end of the lookup; nothing if there is none."""
        if self._request is not None:
            self._slow.note(self._request, outcome, self.trace, self._seconds)
            self._request = None

    def leave(self, reason: str = "the read abandoned the lookup") -> None:
        """Record that the read abandoned the lookup, or ended."""
        self.end(LookupTimedOut(reason))
