"""A store in which things go wrong, on demand and repeatably.

Two ways to ask for faults, which may be combined: `schedule` lines up what happens to the next requests one by one
(None lets one pass), and `probabilities` draws for each further request from an injected `random.Random`. Each fault
is what a client of S3 would see once its retries are used up, through the same table of errors:

    | fault        | hits               | done? | raises                                                       |
    |--------------|--------------------|-------|--------------------------------------------------------------|
    | SLOW_DOWN    | everything         | no    | StoreUnavailable: 503                                        |
    | SERVER_ERROR | everything         | no    | StoreUnavailable: 500; WriteConflict for a conditional write |
    | TIMEOUT      | everything         | no    | StoreUnavailable from TimeoutError                           |
    | RESET        | everything         | no    | StoreUnavailable from ConnectionResetError                   |
    | SHORT_BODY   | gets               | yes   | StoreUnavailable: fewer bytes than promised                  |
    | LOST_REPLY   | writes             | yes   | StoreUnavailable from TimeoutError                           |
    | CONFLICT     | conditional writes | no    | WriteConflict: 409                                           |
    | PRECONDITION | conditional writes | no    | PreconditionFailed: 412, whether the condition holds or not  |

"Done" says whether the store inside did what was asked. A caller cannot tell TIMEOUT and RESET from LOST_REPLY: that
is the point of having them.
"""

from __future__ import annotations

from collections import Counter, deque
from contextlib import suppress
from enum import Enum, auto
from typing import TYPE_CHECKING, TypeVar

from loaders.errors import StoreError, StoreUnavailable
from loaders.lifetime import ProcessLock
from loaders.store.decorated import GETS, OPERATIONS, WRITES, Call, DecoratedStore
from loaders.store.error_table import store_error, store_error_of

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection, Mapping

    from loaders.store.base import ObjectStore

Answer = TypeVar("Answer")


class Fault(Enum):
    """What can go wrong with one request; the table is at the top of the module."""

    SLOW_DOWN = auto()
    SERVER_ERROR = auto()
    TIMEOUT = auto()
    RESET = auto()
    SHORT_BODY = auto()
    LOST_REPLY = auto()
    CONFLICT = auto()
    PRECONDITION = auto()

    def hits(self, call: Call) -> bool:
        """Whether this can happen to such a request."""
        if self is Fault.SHORT_BODY:
            return call.operation in GETS
        if self is Fault.LOST_REPLY:
            return call.operation in WRITES
        return call.conditional or self not in {Fault.CONFLICT, Fault.PRECONDITION}

    @property
    def is_after(self) -> bool:
        """Whether the store inside does what was asked before things go wrong."""
        return self in {Fault.SHORT_BODY, Fault.LOST_REPLY}


_ANSWERS = {
    Fault.SLOW_DOWN: ("SlowDown", 503),
    Fault.SERVER_ERROR: ("InternalError", 500),
    Fault.CONFLICT: ("ConditionalRequestConflict", 409),
    Fault.PRECONDITION: ("PreconditionFailed", 412),
}
_CAUSES = {Fault.TIMEOUT: TimeoutError, Fault.LOST_REPLY: TimeoutError, Fault.RESET: ConnectionResetError}


class FaultStore(DecoratedStore):
    """Lets requests to the store inside go wrong. Safe for many threads; repeatable if one thread asks.

    Args:
        store: the store that does the work.
        rng: decides by `probabilities`; one draw for each request that any of them can hit.
        probabilities: how likely each fault is for a request that it can hit; together at most 1.
        operations: the operations that faults may hit; all others pass and use up nothing of the schedule.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        rng: random.Random | None = None,
        probabilities: Mapping[Fault, float] | None = None,
        operations: Collection[str] = OPERATIONS,
    ) -> None:
        super().__init__(store)
        self._rng = rng
        self._probabilities = dict(probabilities or {})
        self._operations = frozenset(operations)
        self._lock = ProcessLock()
        self._schedule: deque[Fault | None] = deque()
        self._injected: Counter[Fault] = Counter()
        self._check_arguments()

    def schedule(self, *faults: Fault | None) -> None:
        """Line up what happens to the next requests; None lets one pass. Comes before any probability."""
        with self._lock:
            self._schedule.extend(faults)

    def clear(self) -> None:
        """Forget what is left of the schedule: from here on all goes well, but for the probabilities."""
        with self._lock:
            self._schedule.clear()

    @property
    def injected(self) -> Counter[Fault]:
        """How often each fault struck."""
        with self._lock:
            return Counter(self._injected)

    def _check_arguments(self) -> None:
        total = sum(self._probabilities.values())
        if min(self._probabilities.values(), default=0) < 0 or total > 1:
            raise ValueError(f"probabilities are 0 or more and at most 1 together: {self._probabilities}")
        if self._probabilities and self._rng is None:
            raise ValueError("probabilities need a random.Random to decide by")
        if unknown := self._operations - OPERATIONS:
            raise ValueError(f"no such operations: {sorted(unknown)}; there are {sorted(OPERATIONS)}")

    def _around(self, call: Call, send: Callable[[], Answer]) -> Answer:
        fault = self._next_fault(call)
        if fault is None:
            return send()
        if fault.is_after:
            with suppress(StoreError):  # a refusal gets lost on the way like any other answer
                send()
        raise _error(fault, call)

    def _next_fault(self, call: Call) -> Fault | None:
        if call.operation not in self._operations:
            return None
        with self._lock:
            fault = self._scheduled(call) if self._schedule else self._drawn(call)
            if fault is not None:
                self._injected[fault] += 1
        return fault

    def _scheduled(self, call: Call) -> Fault | None:
        fault = self._schedule.popleft()
        if fault is not None and not fault.hits(call):
            raise ValueError(f"{fault.name} is scheduled for {call}, which it cannot hit")
        return fault

    def _drawn(self, call: Call) -> Fault | None:
        possible = {fault: chance for fault, chance in self._probabilities.items() if fault.hits(call)}
        if not possible or self._rng is None:
            return None
        point = self._rng.random()
        for fault, chance in possible.items():
            if point < chance:
                return fault
            point -= chance
        return None


def _error(fault: Fault, call: Call) -> StoreError:
    detail = f"injected fault {fault.name}"
    if fault in _ANSWERS:
        code, status = _ANSWERS[fault]
        return store_error(call.operation, call.key, detail, code=code, status=status, conditional=call.conditional)
    if fault in _CAUSES:
        cause = _CAUSES[fault](detail)
        error = store_error_of(call.operation, call.key, cause)
        error.__cause__ = cause
        return error
    return StoreUnavailable(call.operation, call.key, f"{detail}: fewer bytes than promised")
