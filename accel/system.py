"""The real clock, the real sleep and real randomness: the one place that touches them.

Everything else is given its time and its chance from outside, so that a whole cluster can be simulated and replayed
from a seed. A program that wants the real thing takes `SYSTEM`.
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
"""Does some work beside the caller."""


@dataclass(frozen=True, slots=True)
class Components:
    """What the outer world supplies.

    Args:
        timer: seconds from any start, never falling.
        sleep: waits for a number of seconds.
        jitter: a number in [0, 1), each time another.
        clock: seconds since 1970, for what is compared between machines; it may be set back, so nothing is timed by it.
        nonce: 16 bytes that nobody ever had before.
        process_id: of the process that asks; what belongs to one process refuses others by it.
        wait: waits until an event is set, or for a number of seconds; None where nothing can end a `sleep`.
        start: does some work beside the caller, in a thread of this name that does not keep the process alive.
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
    timer=time.monotonic,  # noqa: TID251 - this is where the real clock comes in
    sleep=time.sleep,  # noqa: TID251 - likewise
    jitter=random.SystemRandom().random,
    clock=time.time,  # noqa: TID251 - likewise
    nonce=partial(secrets.token_bytes, NONCE_SIZE_BYTES),
    wait=Event.wait,
)
