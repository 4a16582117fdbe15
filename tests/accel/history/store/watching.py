"""Stores around a store, and hosts around a host, that let somebody else act, or look, while requests go by."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from accel.testing import Crash, CrashStore
from loaders.store.decorated import WRITES, DecoratedStore, StoreCall
from tests.world import Interrupted

if TYPE_CHECKING:
    from collections.abc import Callable

    from loaders.store import ObjectStore

Answer = TypeVar("Answer")


def interrupted(store: ObjectStore, before_call: int | None, act: Callable[[], object]) -> Interrupted:
    """Lets somebody else act before one of its requests; `fitting` counts them."""
    return Interrupted(store, act, -1 if before_call is None else before_call, fits=lambda _: True)


def overtaken(store: ObjectStore, before_call: int, act: Callable[[], object], dies_after: int) -> ObjectStore:
    """Somebody else acts before one of the requests; the process dies so many writes later."""
    inner = CrashStore(store, None)

    def other() -> None:
        act()
        inner._crash_before_write = inner.writes + dies_after  # from now on

    return interrupted(inner, before_call, other)


class Stumbling(DecoratedStore):
    """Raises `Crash` in place of one write, and goes on as if nothing had happened: the process lives."""

    def __init__(self, store: ObjectStore, instead_of_write: int) -> None:
        super().__init__(store)
        self._writes_left = instead_of_write

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        if call.operation in WRITES:
            self._writes_left -= 1
            if self._writes_left == -1:
                raise Crash(f"{call.operation} {call.key!r}: interrupted")
        return send()


class SlowReply(DecoratedStore):
    """Lets somebody else act once, between an answer to a read and its arrival."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self._reads_left: int | None = None
        self._act: Callable[[], object] = lambda: None

    def arm(self, reads: int, act: Callable[[], object]) -> None:
        """Let somebody act after so many reads from now on."""
        self._reads_left, self._act = reads, act

    def has_acted(self) -> bool:
        """Whether there were as many reads."""
        return self._reads_left is None

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        found = send()
        if self._reads_left is None or call.operation in WRITES:
            return found
        self._reads_left -= 1
        if self._reads_left < 0:
            self._reads_left = None
            self._act()
        return found


class WatchedHost:
    """Lets somebody act in the place of each order to a host: with its name, and a function that gives the order."""

    def __init__(self, host: object, around: Callable[[str, Callable[[], object]], object]) -> None:
        self._host, self._around = host, around

    def __getattr__(self, name: str) -> object:
        order = getattr(self._host, name)
        return lambda *args, **named: self._around(name, lambda: order(*args, **named))
