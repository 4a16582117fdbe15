"""Scales streams as their policies require; the processes that write the streams do this.

A connection gives its host of segments an `AutoScaler`. It counts the appends to the open segments, and requests the
scales that the policies require (`scaling_rates`):

    every tick       totals are read from memory: a sample of each segment of a stream that has a policy
    every look       1 GET   the stream's configuration: a changed policy is followed from here on, and after the first
                             look and for a raised minimum of segments, `Stream.carry_out_requests` splits some
      hot or cold    1 GET   the current epoch; no more requests if a stream of the minimum number of segments is cold
      a scale        1 GET   the state: a stream with a workflow under way is not scaled
                             `Stream.scale`, as a scale by load

The scale is the same workflow as `Stream.split` and `Stream.merge`: its request is durable before anything changes, any
process can continue it, and two owners that request the same scale carry out one. A scale by load is dropped if a
commit of transactions has replaced the segments meanwhile.

**Neighbours of two owners.** Each owner knows the load of its own segments only. So it merges neighbours that are both
open here; neighbours of two owners stay two segments.

Source: Pravega's auto-scaling; docs/decisions/0015-owners-and-scaling.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Event, RLock, get_ident
from typing import Final
from weakref import ref

from accel.errors import (
    AccelError,
    Closed,
    CommitRefused,
    CommitsLost,
    IllegalState,
    NamespaceShared,
    NotInHistory,
    OperationNotAllowed,
    ScaleConflict,
    ScalePrecondition,
    SegmentsElsewhere,
    SessionFenced,
    WrongProcess,
)
from accel.history.rules.configuration import ScalingKind, StreamConfiguration
from accel.history.rules.epochs import EpochRecord
from accel.history.rules.states import StreamState
from accel.history.store import Stream
from accel.history.store.segment_host import StreamName
from accel.streams.open_segments import OpenSegment
from accel.streams.segments_host import ObjectSegments
from accel.streams.shared.scaling_rates import (
    SegmentLoad,
    SegmentRates,
    WantedScale,
    is_ahead,
    load_of,
    target_of,
    wanted_scale,
)

MILLISECONDS: Final = 1000

TICK_SECONDS: Final = 10.0
"""The interval at which appends are counted. No request."""

LOOK_SECONDS: Final = 60.0
"""The interval at which the configuration of a stream is read; also the pause of a stream after a failure."""

LOOKS_MAX: Final = 16
"""How many streams are checked in one tick."""

ERROR_SIZE_MAX: Final = 1000
"""Limit of characters of a stored error."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AutoScaleStats:
    """What one host has done for scaling policies since it was opened.

    Args:
        looks: the number of checks of streams.
        scales: the number of scales that were carried out, also by another owner that requested the same scale.
        splits: the number of segments that these scales split.
        merges: the number of pairs of segments that they merged.
        waits: how often another workflow had the stream, or another owner had to do its part first.
        refusals: how often a scale was refused because the stream had changed.
        failures: the number of checks that ended with an error; the stream is checked again after a pause.
        last_scale_ms: the time of the last scale, milliseconds since 1970.
        last_error: the last error; empty = none.
    """

    looks: int = 0
    scales: int = 0
    splits: int = 0
    merges: int = 0
    waits: int = 0
    refusals: int = 0
    failures: int = 0
    last_scale_ms: int | None = None
    last_error: str = ""


@dataclass(slots=True, eq=False)
class _Followed:
    """A stream with segments that are open here. Threads: the thread that takes a step.

    Args:
        next_look_seconds: the time of its next check, by the timer.
        stream: the stream, opened with this host.
        configuration: the configuration as last read.
        rates: the rates of its segments here.
        asked: a scale that waits for other owners.
        waited: how often in a row the requested scale had to wait for other owners.
        epoch: the current epoch, and when it was seen first, by the timer.
    """

    next_look_seconds: float
    stream: Stream | None = None
    configuration: StreamConfiguration | None = None
    rates: dict[OpenSegment, SegmentRates] = field(default_factory=dict)
    asked: WantedScale | None = None
    waited: int = 0
    epoch: tuple[int, float] = (-1, 0.0)

    def time_of(self, current: EpochRecord, now_ms: int, timer_seconds: float) -> int:
        """Return now; for an epoch with a time of a wrong clock, that time and how long the epoch has been seen."""
        if self.epoch[0] != current.epoch:
            self.epoch = current.epoch, timer_seconds
        if not is_ahead(current.creation_time_ms, now_ms):
            return now_ms
        return current.creation_time_ms + int((timer_seconds - self.epoch[1]) * MILLISECONDS)


class AutoScaler:
    """Scales streams whose segments a host has open, as their policies require.

    Threads: any; one step runs at a time, without holding a lock. The scaler belongs to the process that opened the
    host: elsewhere a step raises WrongProcess. If the system has a `wait`, a thread that keeps neither the process nor
    the host alive takes a step every tick, until `stop`. In simulated time the caller takes the steps.

    Args:
        host: has the segments, and carries scales out; `ObjectSegments.scale_by` begins the steps, and ends them.
        is_on: whether it follows the policies; if not, it does nothing.
    """

    def __init__(self, host: ObjectSegments, *, is_on: bool = True) -> None:
        self._is_on = is_on
        self._host = host
        self._lifetime, self._system = host.lifetime, host.system
        self._followed: dict[StreamName, _Followed] = {}
        self._stopped, self._idle = Event(), Event()
        self._idle.set()
        self._lock = RLock()  # guards the attributes below; never held over a request
        self._stepper: int | None = None
        self._stats = AutoScaleStats()

    def __repr__(self) -> str:
        return f"AutoScaler(node {self._host.node_id}, {self.stats()})"

    def stats(self) -> AutoScaleStats:
        """Return what it has done so far."""
        with self._lock:
            return self._stats

    def begin(self) -> None:
        """Start a thread that takes a step every tick; does nothing if the system has no `wait`."""
        wait = self._system.wait
        if self._is_on and wait is not None:
            work = partial(_step_again, ref(self), self._stopped, partial(wait, self._stopped, TICK_SECONDS))
            self._system.start(work, f"accel-scale-{self._host.node_id}")

    def stop(self) -> None:
        """Take no more steps; a step under way handles no more streams. Does nothing in another process."""
        if self._lifetime.is_here:
            self._stopped.set()

    def wait_idle(self) -> None:
        """Wait for the end of the step under way; does nothing within the step or in another process."""
        if self._lifetime.is_here and self._stepper != get_ident():
            self._idle.wait()

    def step(self) -> None:
        """Count appends, and check the streams that are due. Does nothing if stopped, or while another step runs.

        Errors of a stream are logged and counted, and the stream is checked again later.

        Raises:
            WrongProcess, Closed: the host belongs to another process, or was closed.
        """
        self._lifetime.check()
        if not self._is_on or self._stopped.is_set():
            return
        with self._lock:
            if self._stepper is not None:
                return
            self._stepper = get_ident()
            self._idle.clear()
        try:
            self._tick(self._system.timer())
        finally:
            with self._lock:
                self._stepper = None
                self._idle.set()

    # Parts of a step

    def _tick(self, now: float) -> None:
        streams: dict[StreamName, list[OpenSegment]] = {}
        for segment in self._host.listed():
            if not segment.is_sealed:
                streams.setdefault(segment.name, []).append(segment)
        for name in streams:
            self._followed.setdefault(name, _Followed(now + LOOK_SECONDS))
        for name, followed in list(self._followed.items()):
            # Keep a stream without segments until its next look: after a scale, new segments open at the first write.
            if name not in streams and followed.asked is None and followed.next_look_seconds <= now:
                del self._followed[name]
            self._sample(followed, streams.get(name, ()), now)
        due = [name for name, each in self._followed.items() if each.next_look_seconds <= now]
        due.sort(key=lambda name: self._followed[name].next_look_seconds)
        due = due[:LOOKS_MAX]
        for name in due:
            self._try(name, partial(self._look, name, self._followed[name], streams.get(name, ())))

    def _sample(self, followed: _Followed, segments: Sequence[OpenSegment], now: float) -> None:
        configuration = followed.configuration
        if configuration is None or not target_of(configuration):
            return
        is_bytes = configuration.scaling.kind is ScalingKind.BYTES
        rates = {}
        for segment in segments:
            total = segment.appended_bytes if is_bytes else segment.appended_events
            known = followed.rates.get(segment)
            rates[segment] = SegmentRates.begin(now, total) if known is None else known.after(now, total)
        followed.rates = rates

    def _try(self, name: StreamName, act: Callable[[], object]) -> None:
        if self._stopped.is_set():
            return
        try:
            act()
        except (Closed, WrongProcess):
            raise
        except AccelError as error:
            self._count(failures=1)
            with self._lock:
                self._stats = replace(self._stats, last_error=f"{'/'.join(name)}: {error}"[:ERROR_SIZE_MAX])
            if isinstance(error, SessionFenced | CommitsLost | NamespaceShared):
                self.stop()
            if isinstance(error, NotInHistory):  # another stream may have the name by now
                self._followed[name] = _Followed(self._system.timer() + LOOK_SECONDS)
            logger.warning("%s: not scaled for now: %s", "/".join(name), error)

    def _look(self, name: StreamName, followed: _Followed, segments: Sequence[OpenSegment]) -> None:
        followed.next_look_seconds = self._system.timer() + LOOK_SECONDS
        self._count(looks=1)
        if followed.stream is None:
            followed.stream = self._host.stream(name)
        stream, before = followed.stream, followed.configuration
        configuration = followed.configuration = stream.configuration()
        if configuration.min_segments > (1 if before is None else before.min_segments):
            stream.carry_out_requests()
        if before is not None and before.scaling.kind is not configuration.scaling.kind:
            followed.rates.clear()  # their unit differs
        target = target_of(configuration)
        rates = followed.rates if target else {}
        own = {each.segment_id: load_of(rates[each], target) if each in rates else SegmentLoad() for each in segments}
        if followed.asked is not None:
            self._scale(name, followed, stream, followed.asked)
        elif any(load != SegmentLoad() for load in own.values()):
            self._decide(name, followed, stream, configuration, own)

    def _decide(
        self,
        name: StreamName,
        followed: _Followed,
        stream: Stream,
        configuration: StreamConfiguration,
        own: dict[int, SegmentLoad],
    ) -> None:
        current = stream.current_epoch()
        now_ms = followed.time_of(current, self._now_ms(), self._system.timer())
        scale = wanted_scale(current, own, configuration, now_ms)
        if scale is None:
            return
        if stream.state() is not StreamState.ACTIVE:
            self._count(waits=1)
            stream.carry_out_requests()  # the process that began the workflow may be dead
            return
        self._scale(name, followed, stream, scale)

    def _scale(self, name: StreamName, followed: _Followed, stream: Stream, scale: WantedScale) -> None:
        followed.asked = None
        try:
            record = stream.scale(scale.seal, list(scale.new_ranges), is_manual=False)
        except SegmentsElsewhere:  # taken over meanwhile: it continues when other owners have done their parts
            followed.asked, waited = scale, followed.waited
            pause = min(TICK_SECONDS * 2 ** min(waited, 10), LOOK_SECONDS)
            followed.next_look_seconds, followed.waited = self._system.timer() + pause, waited + 1
            self._count(waits=1)
        except (OperationNotAllowed, ScaleConflict):
            self._count(waits=1)
        except (ScalePrecondition, IllegalState) as error:
            logger.info("%s: a scale by load was refused: %s", "/".join(name), error)
            self._count(refusals=1)
        else:
            followed.waited = 0
            self._count(scales=1, splits=scale.splits, merges=scale.merges)
            with self._lock:
                self._stats = replace(self._stats, last_scale_ms=self._now_ms())
            logger.info("%s: %d segments split, %d pairs merged", "/".join(name), scale.splits, scale.merges)
            self._open_merged(name, scale, record)

    def _open_merged(self, name: StreamName, scale: WantedScale, record: EpochRecord) -> None:
        """Open merged segments, even if no process writes to them, so that their loads are measured."""
        merged = set(scale.merged)
        ids = [each.id for each in record.segments if (each.key_start, each.key_end) in merged]
        if ids:
            with suppress(CommitRefused):  # another node has some of them open already
                self._host.open_segments(name, ids)

    def _count(self, **added: int) -> None:
        with self._lock:
            self._stats = replace(
                self._stats, **{name: getattr(self._stats, name) + more for name, more in added.items()}
            )

    def _now_ms(self) -> int:
        return int(self._system.clock() * MILLISECONDS)


def _step_again(scaler: Callable[[], AutoScaler | None], stopped: Event, wait: Callable[[], object]) -> None:
    """Take a step every tick, as long as the host exists. Between steps this thread has no reference to the host."""
    while not stopped.is_set():
        wait()
        if stopped.is_set() or not _has_stepped(scaler()):
            return


def _has_stepped(scaler: AutoScaler | None) -> bool:
    if scaler is None:
        return False
    try:
        scaler.step()
    except (Closed, WrongProcess):
        return False
    return True
