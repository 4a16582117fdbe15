"""Traces of slow lookups, recorded while they ran: `explain` afterwards would repeat them with other caches.

    accelerator = ReadAccelerator(source, store, settings=Settings(slow_lookup_seconds=0.5))
    ...
    for each in accelerator.slow_lookups():
        print(each.text())

With the setting, each lookup that memory cannot answer records its trace, and discards it if the lookup was fast. A
lookup that memory answers makes no requests, so it is not traced. The log reports slow lookups, once a minute at most,
with their number. The reason of a slow lookup is the first row that applies:

    | reason    | the lookup                                                                               |
    |-----------|------------------------------------------------------------------------------------------|
    | `image`   | waited half of its time or more for a metadata image                                     |
    | `store`   | one of its requests to the store took half of its time or more                           |
    | `joined`  | began no request: it waited for those of other lookups                                   |
    | `threads` | its requests together took less than half of its time: they waited for threads, or a CPU |
    | `evicted` | opened objects, half of them or more again: memory had held them before                  |
    | `cold`    | opened objects for the first time, in many rounds or requests                            |
"""

from __future__ import annotations

import logging
import textwrap
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from threading import Lock
from typing import Any, Final

from accel.errors import AccelError, LookupTimedOut
from accel.lookup.answer import Answer, Request
from accel.lookup.explain import LABEL_WIDTH, WIDTH, Explanation, Trace
from accel.lookup.stats import ReportLimit
from accel.units import count_text, moment_text, time_text

SLOW_LOOKUPS_MAX = 32
"""The number of kept lookups; the oldest are dropped."""

logger = logging.getLogger(__name__)


REASONS: Final = ("image", "store", "joined", "threads", "evicted", "cold")
"""Reasons of slow lookups, as in the table above."""


@dataclass(frozen=True, slots=True)
class Waits:
    """What a slow lookup waited for, when it ended.

    Args:
        image_seconds: for a metadata image.
        store_seconds: the durations of its requests to the store together; several may run at one time.
        longest_seconds: of one of these requests, also of one that was still under way.
        hedged: the number of requests that were sent a second time.
        joined: the number of objects that another lookup was opening.
        opened_again: the number of opened objects that memory had held before.
    """

    image_seconds: float
    store_seconds: float
    longest_seconds: float
    hedged: int
    joined: int
    opened_again: int


@dataclass(frozen=True, slots=True)
class SlowLookup:
    """A slow lookup.

    Args:
        ended_ms: the time of its end, in milliseconds since 1970.
        explanation: its events, and the duration of each round.
        waits: what it waited for.
    """

    ended_ms: int
    explanation: Explanation
    waits: Waits

    @property
    def reason(self) -> str:
        """Why it was slow: one of `REASONS`."""
        waits, half = self.waits, self.explanation.seconds / 2
        if waits.image_seconds >= half:
            return "image"
        if waits.longest_seconds >= half:
            return "store"
        if not self.explanation.requests:
            return "joined" if waits.joined else "threads"
        if waits.store_seconds < half:
            return "threads"
        opened = sum(len(each.opened) for each in self.explanation.trace.rounds)
        return "evicted" if 0 < opened <= 2 * waits.opened_again else "cold"

    def text(self) -> str:
        """The explanation as lines for a terminal, with the time, and what it waited for below its cost."""
        waits, requests = self.waits, count_text(self.explanation.requests, "request")
        parts = [
            f"{time_text(waits.image_seconds)} for an image",
            f"{time_text(waits.store_seconds)} for {requests} together, {time_text(waits.longest_seconds)} for one",
            f"{waits.hedged} sent twice, {waits.joined} joined",
            f"{count_text(waits.opened_again, 'object')} opened again",
        ]
        lines = self.explanation.text().splitlines()
        below = next(at for at, line in enumerate(lines) if line.startswith("cost ")) + 1
        lines[below:below] = textwrap.wrap(f"waited   {'; '.join(parts)}", WIDTH, subsequent_indent=" " * LABEL_WIDTH)
        return "\n".join([f"ended at {moment_text(self.ended_ms)}, slow by: {self.reason}", *lines])

    def summary(self) -> dict[str, Any]:
        """What it was and waited for as plain data, with its lines, which `accel explain --from` shows."""
        told = self.explanation.to_dict()
        cost = {**told["cost"], **asdict(self.waits)}
        kept = {name: told[name] for name in ("request", "error")}
        lines = self.text().splitlines()
        return {"ended_ms": self.ended_ms, "reason": self.reason, **kept, "cost": cost, "lines": lines}

    def to_dict(self) -> dict[str, Any]:
        """The same with all events."""
        return {**self.explanation.to_dict(), **self.summary()}


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
        self._timer = timer
        self._clock = clock
        self._lock = Lock()
        self._counts = dict.fromkeys(REASONS, 0)
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
        waits = Waits(trace.image_seconds, *trace.times.until(self._timer()), trace.joined, trace.again)
        slow = SlowLookup(int(self._clock() * 1000), told, waits)
        with self._lock:
            self._kept.append(slow)
            self._counts[slow.reason] += 1
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

    def counts(self) -> dict[str, int]:
        """The number of slow lookups since the start, by reason."""
        with self._lock:
            return dict(self._counts)


class ReadWatch:
    """Records the lookups of one read, one after the other: the trace of each, and how long the read waited for it.

    Args:
        slow: keeps the slow ones.

    Threads: one at a time.
    """

    def __init__(self, slow: SlowLookups) -> None:
        self._slow = slow
        self._request: Request | None = None
        self._seconds = self._image_seconds = 0.0
        self.trace = Trace()

    def waited_for_image(self, seconds: float) -> None:
        """Record how long the read waited for the image of the lookup that it begins next."""
        self._image_seconds += seconds

    def begin(self, request: Request) -> Trace:
        """Begin to record a lookup; a previous one that has not ended was abandoned."""
        self.leave("the read began the lookup again with the newest image")
        self._request, self._seconds, self.trace = request, self._image_seconds, self._slow.new_trace()
        self.trace.image_seconds, self._image_seconds = self._image_seconds, 0.0
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
