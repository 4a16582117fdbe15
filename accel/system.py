"""The real clock, sleep and random source, in one module; and the clock of a store, which its users share.

All other code is passed its time and randomness as arguments, so that a whole cluster can be simulated and replayed
from a seed. A program that needs the real ones uses `SYSTEM`. What opens a store passes `of_store(store, system)` on,
so that all times that are stored, compared or checked are those of the store.
"""

from __future__ import annotations

import logging
import math
import os
import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from threading import Event, Lock
from typing import Final

from loaders.errors import StoreError
from loaders.settings import CLOCK_SKEW_SECONDS_MAX
from loaders.store.base import DatedStore
from loaders.threads import start_thread

logger = logging.getLogger(__name__)

NONCE_SIZE_BYTES = 16

CLOCK_INTERVAL_SECONDS: Final = 600.0
"""The store is asked for its time when it is first needed, and again after this time."""

CLOCK_RETRY_SECONDS: Final = 10.0
"""The pause after a request for the time that failed."""

_STAMP_SECONDS = 1.0  # dates of answers are whole seconds


@dataclass(frozen=True, slots=True)
class Components:
    """Clock, sleep, randomness and process of the outer world.

    Args:
        timer: seconds from any start, never falling.
        sleep: waits for a number of seconds.
        jitter: a random number in [0, 1).
        clock: seconds since 1970, for values that machines compare; it may be set back, so no duration is measured by
        it.
        nonce: 16 bytes that were never returned before.
        process_id: of the calling process; objects that belong to one process check it to refuse others.
        wait: waits until an event is set, or for a number of seconds; None if `sleep` cannot be interrupted.
        start: runs a function in a thread of this name that does not keep the process alive.
    """

    timer: Callable[[], float]
    sleep: Callable[[float], object]
    jitter: Callable[[], float]
    clock: Callable[[], float]
    nonce: Callable[[], bytes]
    process_id: Callable[[], int] = os.getpid
    wait: Callable[[Event, float], object] | None = None
    start: Callable[[Callable[[], object], str], object] = start_thread


SYSTEM = Components(
    timer=time.monotonic,  # noqa: TID251 - the only use of the real clock
    sleep=time.sleep,  # noqa: TID251 - likewise
    jitter=random.SystemRandom().random,
    clock=time.time,  # noqa: TID251 - likewise
    nonce=partial(secrets.token_bytes, NONCE_SIZE_BYTES),
    wait=Event.wait,
)


class StopRequested(BaseException):
    """Raised by a progress callback: the work is to end there, and to return what it has done so far.

    Not an `Exception`: a failure of one part of the work is caught where the others go on, and this is none.
    """


def clock_skew_seconds(stamp: float, before: float, after: float) -> float:
    """How far a clock is ahead of a store's; below 0 = behind; 0 if both may be the same.

    Args:
        stamp: a time that the store reported, in whole seconds since 1970.
        before: the clock's time before the store was asked, seconds since 1970.
        after: its time after the answer.
    """
    return max(0.0, before - _STAMP_SECONDS - stamp) or min(0.0, after - stamp)


@dataclass(frozen=True, slots=True)
class _Measured:
    """The result of one request for the time: times by the timer, by the host's clock, and by the store's."""

    timer: float
    host: float
    seconds: float
    skew_seconds: float
    seconds_min: float


class StoreClock:
    """Now, by the clock of a store. Called, it returns seconds since 1970, without a request. Threads: any.

    A process whose clock is wrong is the one that asks for the time. So leases, expiry, retention, the times that are
    stored, and checks of times all use this clock:

    | the store                                    | now                                                               |
    |----------------------------------------------|-------------------------------------------------------------------|
    | reports no time: memory, a folder            | the host's clock: the machine is the store                        |
    | has answered                                 | the host's time at the answer, corrected, and the timer since     |
    | has not answered yet                         | the host's clock, not confirmed                                   |
    | answered before, and not the last time       | as after the answer before, not confirmed                         |

    The correction is the least that agrees with the answer, which has whole seconds. So the clock of a host that is
    right is used with its milliseconds, and another one is corrected to within a second and the time of a request.
    `measure` asks for the time every 10 minutes, and when the host's clock was set meanwhile or the machine slept.

    The values never fall, except if an answer shows that they were more than 5 minutes ahead.

    Args:
        store: the store; it is asked if it is a `DatedStore`.
        clock: the host's clock, seconds since 1970.
        timer: seconds from any start, never falling.
    """

    def __init__(self, store: object, clock: Callable[[], float], timer: Callable[[], float]) -> None:
        self._store = store if isinstance(store, DatedStore) else None
        self._host, self._timer = clock, timer
        self._lock = Lock()  # never held over a request
        self._measured: _Measured | None = None
        self._is_confirmed = self._store is None
        self._asked_at: float | None = None

    def __call__(self) -> float:
        """Seconds since 1970. No request."""
        measured = self._measured
        return self._host() if measured is None else self._since(measured)

    @property
    def is_confirmed(self) -> bool:
        """Whether the store answered the last time that it was asked, or reports no time at all."""
        return self._is_confirmed

    @property
    def skew_seconds(self) -> float:
        """How far the host's clock was ahead when the store was last asked; below 0 = behind; 0 if it agreed."""
        return 0.0 if self._measured is None else self._measured.skew_seconds

    def measure(self, *, must_confirm: bool = False) -> bool:
        """Ask the store for its time if that is due; at most one request. Returns whether the time is confirmed.

        Args:
            must_confirm: ask again at once after a request that failed.
        """
        if self._store is not None and self._take_turn(must_confirm=must_confirm):
            before = self._host()
            try:
                stamp = self._store.date_seconds()
            except StoreError as error:
                logger.info("the store was asked for its time: %s", error)
                self._is_confirmed = False
            else:
                self._note(stamp, before, self._host(), self._timer())
        return self._is_confirmed

    def _take_turn(self, *, must_confirm: bool) -> bool:
        """Whether this caller is to ask now: one at a time, except for the first time, which all need."""
        now = self._timer()
        with self._lock:
            if self._asked_at is not None and not self._is_due(now, must_confirm=must_confirm):
                return False
            if self._measured is not None or self._is_confirmed:
                self._asked_at = now
            return True

    def _is_due(self, now: float, *, must_confirm: bool) -> bool:
        passed = now - (self._asked_at or 0.0)
        if not self._is_confirmed:
            return must_confirm or passed >= CLOCK_RETRY_SECONDS
        if passed >= CLOCK_INTERVAL_SECONDS:
            return True
        measured = self._measured
        if measured is None:
            return False
        return abs((self._host() - measured.host) - (now - measured.timer)) > CLOCK_SKEW_SECONDS_MAX

    def _note(self, stamp: float | None, before: float, after: float, at: float) -> None:
        with self._lock:
            self._asked_at = at
            if stamp is None:
                self._is_confirmed = self._measured is None  # a store that never reported a time
                return
            skew = clock_skew_seconds(stamp, before, after)
            is_time = math.isfinite(skew)
            seconds = after - skew if is_time else stamp
            last = -math.inf if self._measured is None else self._since(self._measured)
            least = last if last - seconds <= CLOCK_SKEW_SECONDS_MAX else -math.inf
            was = 0.0 if self._measured is None else self._measured.skew_seconds
            self._measured = _Measured(at, after, seconds, skew if is_time else 0.0, least)
            self._is_confirmed = True
        if abs(skew) > CLOCK_SKEW_SECONDS_MAX and abs(skew - was) > CLOCK_SKEW_SECONDS_MAX:
            logger.warning(
                "this host's clock is %.0f s %s the store's: the store's time is used; set the host's clock (NTP)",
                abs(skew),
                "ahead of" if skew > 0 else "behind",
            )

    def _since(self, measured: _Measured) -> float:
        return max(measured.seconds_min, measured.seconds + (self._timer() - measured.timer))


def of_store(store: object, system: Components) -> Components:
    """The same components with the clock of a store; unchanged if they have one already. No request."""
    if isinstance(system.clock, StoreClock):
        return system
    return replace(system, clock=StoreClock(store, system.clock, system.timer))


def measured(system: Components, *, must_confirm: bool = False) -> bool:
    """Ask the store for its time if that is due (`StoreClock.measure`). Returns whether the clock can be relied on."""
    clock = system.clock
    return not isinstance(clock, StoreClock) or clock.measure(must_confirm=must_confirm)


def skew_seconds(system: Components) -> float:
    """How far the host's clock is ahead of the store's (`StoreClock.skew_seconds`); 0 without a clock of a store."""
    return system.clock.skew_seconds if isinstance(system.clock, StoreClock) else 0.0


def release_version() -> str:
    """The version of the installed package; "0" if Accel runs from a directory."""
    from importlib import metadata  # noqa: PLC0415 - it takes as long to load as all of a lookup

    try:
        return metadata.version("accel-streams")
    except metadata.PackageNotFoundError:
        return "0"
