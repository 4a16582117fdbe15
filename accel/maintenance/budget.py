"""The store of maintenance: requests wait for their budget, and for the requests of others in the same process.

    wait     until earlier requests have used up their time: each takes 1 / requests a second, and its bytes / bytes a
             second, so that both rates hold and no burst is sent
    yield    while requests of others are under way, in short steps, at most `YIELD_SECONDS_MAX`
    send
    slow     after an answer that the store is busy or away, at half the rate; each success adds a little

After `hurry` nothing waits any more: the work ends at its next step.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeVar

from accel.maintenance.settings import YIELD_SECONDS_MAX, MaintenanceSettings
from accel.system import Components
from loaders.errors import StoreUnavailable
from loaders.store.decorated import CountingStore, DecoratedStore, StoreCall, received_bytes

if TYPE_CHECKING:
    from loaders.store import ObjectStore

Answer = TypeVar("Answer")

YIELD_STEP_SECONDS: Final = 0.005
SHARE_MIN: Final = 1 / 64
"""The smallest share of the rate, however busy the store is."""

SHARE_GROWS_BY: Final = 1.02
"""With each request that succeeds, the share grows by this factor: in 35 requests to twice as much."""


class BudgetedStore(DecoratedStore):
    """Sends requests within a budget. Threads: any; no lock is held over a request or a wait.

    Args:
        store: the inner store. If it is a `CountingStore` with a timer that other users share, their requests are
            yielded to.
        settings: the budget.
        system: timer and sleep.

    Attributes:
        requests: that were sent so far.
    """

    def __init__(self, store: ObjectStore, settings: MaintenanceSettings, system: Components) -> None:
        super().__init__(store)
        self._settings, self._system = settings, system
        self._lock = Lock()  # guards the attributes below
        self._free_at_seconds = system.timer()
        self._share = 1.0
        self._under_way = 0
        self._is_hurried = False
        self.requests = 0

    @property
    def share(self) -> float:
        """The share of the budget that is used now: 1, less after the store was busy."""
        return self._share

    def hurry(self) -> None:
        """Let no further request wait."""
        self._is_hurried = True

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        if not self._is_hurried:
            self._wait(call.sent_bytes)
            self._yield()
        with self._lock:
            self._under_way += 1
            self.requests += 1
        try:
            answer = send()
        except StoreUnavailable:
            self._share = max(SHARE_MIN, self._share / 2)
            raise
        finally:
            with self._lock:
                self._under_way -= 1
        self._share = min(1.0, self._share * SHARE_GROWS_BY)
        self._spend(received_bytes(answer) / self._settings.bytes_per_second)
        return answer

    def _wait(self, sent_bytes: int) -> None:
        seconds = 1 / self._settings.requests_per_second + sent_bytes / self._settings.bytes_per_second
        if (left_seconds := self._spend(seconds)) > 0:
            self._system.sleep(left_seconds)

    def _spend(self, seconds: float) -> float:
        """Use up time of the budget; returns how long it was used up before."""
        now = self._system.timer()
        with self._lock:
            begins = max(now, self._free_at_seconds)
            self._free_at_seconds = begins + seconds / self._share
        return begins - now

    def _yield(self) -> None:
        if not isinstance(self._store, CountingStore):
            return
        ends = self._system.timer() + YIELD_SECONDS_MAX
        while self._store.requests_under_way() > self._under_way and self._system.timer() < ends:
            self._system.sleep(YIELD_STEP_SECONDS)
