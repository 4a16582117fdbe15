"""The proxy through which a process asks its store: requests are lost, come late, or are sent twice.

`accel.testing.FaultStore` loses requests and replies and answers with errors. This module adds three faults. A write
comes late: its caller gets a time-out, and the store receives the request seconds later. A write is sent twice, as
proxies do: the caller has the answer of the first, and the store receives the second one later. A request is slow.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from random import Random
from threading import Lock, Semaphore, Thread
from typing import TypeVar

from accel.testing import Fault, FaultStore
from loaders.errors import StoreError
from loaders.store import ObjectStore
from loaders.store.decorated import WRITES, DecoratedStore, StoreCall
from loaders.store.error_table import store_error_of

Answer = TypeVar("Answer")

FAULTS = {
    Fault.LOST_REPLY: 0.02,
    Fault.TIMEOUT: 0.01,
    Fault.RESET: 0.005,
    Fault.SLOW_DOWN: 0.01,
    Fault.SHORT_BODY: 0.005,
    Fault.CONFLICT: 0.005,
    Fault.PRECONDITION: 0.005,
}
LATE, TWICE, SLOW = 0.02, 0.02, 0.02
LATE_SECONDS_MAX = 2.0
SLOW_SECONDS_MAX = 0.5
LATE_REQUESTS_MAX = 16
"""On their way at one time; beyond that all are in time."""

_INJECTED = re.compile(r"injected fault (\w+)")


class LateStore(DecoratedStore):
    """See the module. Threads: any. Each fault is noted by its name."""

    def __init__(
        self, store: ObjectStore, random: Random, sleep: Callable[[float], object], note: Callable[[str], object]
    ) -> None:
        super().__init__(FaultStore(store, rng=Random(random.random()), probabilities=FAULTS))
        self._random, self._sleep, self._note = random, sleep, note
        self._lock = Lock()
        self._free = Semaphore(LATE_REQUESTS_MAX)
        self._threads: list[Thread] = []

    def wait(self) -> None:
        """Until all late requests have come."""
        with self._lock:
            threads, self._threads = self._threads, []
        for thread in threads:
            thread.join()

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        with self._lock:
            point, delay_seconds = self._random.random(), self._random.random()
        if point < SLOW:
            self._note("requests that were slow")
            self._sleep(delay_seconds * SLOW_SECONDS_MAX)
        elif point < SLOW + LATE and call.operation in WRITES and self._free.acquire(blocking=False):
            self._note("requests that came late")
            self._send_later(delay_seconds, send)
            cause = TimeoutError("the request is on its way")
            raise store_error_of(call.operation, call.key, cause) from cause
        elif point < SLOW + LATE + TWICE and call.operation in WRITES and self._free.acquire(blocking=False):
            self._note("requests that were sent twice")
            try:
                return self._sent(send)
            finally:
                self._send_later(delay_seconds, send)
        return self._sent(send)

    def _sent(self, send: Callable[[], Answer]) -> Answer:
        try:
            return send()
        except StoreError as error:
            if injected := _INJECTED.search(str(error)):
                self._note(f"requests that failed: {injected[1].lower().replace('_', ' ')}")
            raise

    def _send_later(self, delay_seconds: float, send: Callable[[], object]) -> None:
        def work() -> None:
            try:
                self._sleep(delay_seconds * LATE_SECONDS_MAX)
                with suppress(StoreError):
                    send()
            finally:
                self._free.release()

        thread = Thread(target=work, daemon=True)
        with self._lock:
            self._threads = [each for each in self._threads if each.is_alive()] + [thread]
            thread.start()
