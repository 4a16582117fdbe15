"""The real clock, sleep and random source, in one module.

All other code is passed its time and randomness as arguments, so that a whole cluster can be simulated and replayed
from a seed. A program that needs the real ones uses `SYSTEM`.
"""

from __future__ import annotations

import os
import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from threading import Event

from loaders.lifetime import DaemonThreads

NONCE_SIZE_BYTES = 16


start_thread = DaemonThreads()
"""Runs a function in another thread."""


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
