"""A store that tells of each request as it comes back, for `--verbose`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from accel.units import size_text, time_text
from loaders.errors import StoreError
from loaders.store import ObjectStore
from loaders.store.decorated import Call, DecoratedStore, received_bytes

Answer = TypeVar("Answer")


class TracingStore(DecoratedStore):
    """Tells of each request: operation, key, bytes, time. As safe for threads as ``tell`` is.

    Args:
        store: the store that does the work.
        timer: seconds from any start.
        tell: is given one line a request.
    """

    def __init__(self, store: ObjectStore, timer: Callable[[], float], tell: Callable[[str], object]) -> None:
        super().__init__(store)
        self._timer = timer
        self._tell = tell

    def _around(self, call: Call, send: Callable[[], Answer]) -> Answer:
        started = self._timer()
        try:
            answer = send()
        except StoreError as error:
            self._tell(f"{call.operation} {call.key}: {type(error).__name__} after {self._since(started)}")
            raise
        size = size_text(call.sent_bytes or received_bytes(answer))
        self._tell(f"{call.operation} {call.key}: {size} in {self._since(started)}")
        return answer

    def _since(self, started: float) -> str:
        return time_text(self._timer() - started)
