"""A store whose user dies before a chosen write: what is left behind must be good enough to go on from.

A test that wants to know about every place in a workflow where the process may end runs the workflow once to count the
writes, then once more for each of them:

    whole = CrashStore(MemoryStore(), None)
    workflow(whole)
    for number in range(whole.writes):
        inner = MemoryStore()
        with pytest.raises(Crash):
            workflow(CrashStore(inner, number))
        workflow(inner)  # repeated by somebody else: must end as if nothing had happened
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from loaders.lifetime import ProcessLock
from loaders.store.decorated import WRITES, Call, DecoratedStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from loaders.store.base import ObjectStore

Answer = TypeVar("Answer")


class Crash(BaseException):
    """The end of the process. No Exception, so that nothing that handles errors survives it."""


class CrashStore(DecoratedStore):
    """Raises `Crash` in place of one write, and in place of every request after that: the dead ask for nothing.

    Safe for many threads; of several that write at once, which one crashes is a matter of chance.

    Args:
        store: the store that does the work.
        crash_before_write: number of the write that is not done, from 0 on; None = all are done. Each request that
            changes the store is a write: puts, deletes (a batch is one), and all steps of a multipart upload.
    """

    def __init__(self, store: ObjectStore, crash_before_write: int | None) -> None:
        if crash_before_write is not None and crash_before_write < 0:
            raise ValueError(f"crash_before_write is 0 or more, or None: {crash_before_write}")
        super().__init__(store)
        self._crash_before_write = crash_before_write
        self._lock = ProcessLock()
        self._writes = 0
        self._has_crashed = False

    @property
    def writes(self) -> int:
        """How many writes were seen; the one that was not done counts as well."""
        with self._lock:
            return self._writes

    @property
    def has_crashed(self) -> bool:
        """Whether the end has come."""
        with self._lock:
            return self._has_crashed

    def _around(self, call: Call, send: Callable[[], Answer]) -> Answer:
        with self._lock:
            if not self._has_crashed and call.operation in WRITES:
                self._has_crashed = self._writes == self._crash_before_write
                self._writes += 1
            if self._has_crashed:
                raise Crash(f"{call.operation} {call.key!r}: the process ended before write {self._crash_before_write}")
        return send()
