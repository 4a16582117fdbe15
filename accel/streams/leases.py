"""Leases of open transactions, renewed by the host of the writers that work on them.

    a transaction begins    its writer is registered here
    while it is open        after each third of its lease the lease is extended, at most to the transaction's longest
                            life: by a thread of the host, whether the writer writes or not
    it ends                 or its writer is gone: no more renewals, so that others end it when the lease is over

Without background threads (a system without `wait`) the calls of writers renew what is due. A writer's own looks for
requests, in which expired transactions are ended, renew first, in any case: time may have passed in one step.

Source: docs/explanation/history.md, "A commit".
"""

from __future__ import annotations

import logging
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from threading import Event, RLock
from typing import Final
from uuid import UUID
from weakref import ref

from accel.errors import AccelError, Closed, IllegalState, NotInHistory
from accel.history.rules.transactions import TransactionStatus
from accel.history.store import Stream
from accel.system import Components
from loaders.lifetime import Lifetime
from loaders.threads import map_bounded

logger = logging.getLogger(__name__)

MILLISECONDS: Final = 1000

RENEWALS_A_LEASE: Final = 3
"""How often a lease is renewed before it would expire."""

RENEWALS_AT_ONCE: Final = 8
"""The most leases that are renewed side by side, where the catalog sends so many requests in parallel. One after the
other, a thousand leases of a minute would expire on a store that takes 30 ms for a request."""

PAUSE_SECONDS_MAX: Final = 10.0
"""The longest pause of the thread, so that it notices shorter leases that begin meanwhile."""


@dataclass(slots=True)
class _Held:
    """An open transaction, and its writer. Threads: under the lock of `TransactionLeases`."""

    stream: Stream
    holder: ref[object]
    lease_ms: int
    renewed_ms: int

    def is_due(self, now_ms: int) -> bool:
        """Whether a third of the lease has passed; also if the clock was set back."""
        return not 0 <= now_ms - self.renewed_ms < self.lease_ms / RENEWALS_A_LEASE


class TransactionLeases:
    """Renews the leases of the open transactions of a host's writers. Threads: any; no lock is held over a request.

    It belongs to the process that opened the host: elsewhere calls raise WrongProcess, and `stop` does nothing.

    Args:
        lifetime: of the host; the thread ends with it.
        system: clock and threads; without a `wait` there is no thread.
        executor: sends requests of several renewals in parallel; of the owner, who closes it.
    """

    def __init__(self, lifetime: Lifetime, system: Components, executor: Executor) -> None:
        self._executor = executor
        self._lifetime = lifetime
        self._system = system
        self._lock = RLock()  # guards the attributes below; a call may be interrupted by another one of its thread
        self._held: dict[UUID, _Held] = {}
        self._is_running = False
        self._woken = Event()
        self._is_stopped = False

    def hold(self, stream: Stream, transaction: UUID, lease_ms: int, holder: object) -> None:
        """Renew the lease of a transaction that was just begun, until `release`, or until its writer is gone.

        Args:
            stream: its stream.
            transaction: its id.
            lease_ms: the length of its lease.
            holder: its writer, which is not kept alive by this.
        """
        self._lifetime.check_process()
        held = _Held(stream, ref(holder), lease_ms, self._now_ms())
        try:
            with self._lock:
                self._held[transaction] = held
                begins = self._system.wait is not None and not self._is_running and not self._is_stopped
                self._is_running |= begins
            self._woken.set()
            if begins:
                self._system.start(self._run, "accel-leases")
        except BaseException:
            self._is_running = False  # perhaps no thread was started: the next call starts one
            raise

    def release(self, transaction: UUID) -> None:
        """Do not renew a transaction any more: it has ended."""
        self._lifetime.check_process()
        self._is_released(transaction)

    def remind(self, transaction: UUID) -> None:
        """Let the lease of a transaction that is being written to be renewed soon, if it is due. Usually no request.

        Without background threads it is renewed here: 2 requests.
        """
        self._lifetime.check_process()
        with self._lock:
            held = self._held.get(transaction)
        if held is None or not held.is_due(self._now_ms()):
            return
        if self._system.wait is None:
            self.renew_due()
        else:
            self._woken.set()

    def drive(self) -> None:
        """Without background threads, renew what is due, in this thread; else nothing."""
        if self._system.wait is None:
            self.renew_due()

    def renew_due(self) -> None:
        """Renew all leases that are due, and wait for it; errors are logged. 2 requests for each, 8 at once.

        Raises:
            WrongProcess: another process opened the host.
        """
        self._lifetime.check_process()
        now_ms = self._now_ms()
        with self._lock:
            self._forget_gone()
            due = {transaction: held for transaction, held in self._held.items() if held.is_due(now_ms)}
            for held in due.values():
                held.renewed_ms = now_ms  # so that no other thread renews it, too; after an error, in the next third

        def renew(transaction: UUID) -> None:
            self._renew(transaction, due[transaction].stream)

        if len(due) > 1:
            with suppress(Closed):  # the catalog is being closed: the host was closed before
                map_bounded(self._executor, renew, due, RENEWALS_AT_ONCE)
        else:
            for transaction in due:
                renew(transaction)

    def stop(self) -> None:
        """Renew nothing any more, and end the thread. No request. Does nothing in another process."""
        if not self._lifetime.is_here:  # it may have inherited the lock while another thread held it
            return
        with self._lock:
            self._is_stopped = True
            self._held.clear()
        self._woken.set()

    def _renew(self, transaction: UUID, stream: Stream) -> None:
        try:
            renewed = stream.transactions.renew(transaction)
        except (IllegalState, NotInHistory) as error:
            if self._is_released(transaction):  # else its writer has ended it meanwhile
                logger.warning("%s: transaction %s was ended by another process: %s", stream.name, transaction, error)
        except AccelError:
            logger.warning("%s: the lease of transaction %s is not renewed", stream.name, transaction, exc_info=True)
        else:
            if (
                renewed.lease_expiry_ms >= renewed.max_execution_expiry_ms
                or renewed.status is not TransactionStatus.OPEN
            ):
                self.release(transaction)

    def _is_released(self, transaction: UUID) -> bool:
        """Release a transaction; return whether it was held."""
        with self._lock:
            return self._held.pop(transaction, None) is not None

    def _run(self) -> None:
        while (pause_seconds := self._pause_seconds()) is not None and self._system.wait is not None:
            self._woken.clear()
            self._system.wait(self._woken, pause_seconds)
            if not self._lifetime.is_closed:
                self.renew_due()

    def _pause_seconds(self) -> float | None:
        """The time until a lease may be due; None, which ends the thread, if there is none."""
        with self._lock:
            self._forget_gone()
            leases_ms = [held.lease_ms for held in self._held.values()]
            if leases_ms and not self._is_stopped and not self._lifetime.is_closed:
                return min(PAUSE_SECONDS_MAX, min(leases_ms) / MILLISECONDS / RENEWALS_A_LEASE)
            self._is_running = False
            return None

    def _forget_gone(self) -> None:
        self._held = {each: held for each, held in self._held.items() if held.holder() is not None}

    def _now_ms(self) -> int:
        return int(self._system.clock() * MILLISECONDS)
