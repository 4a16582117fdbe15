"""Counts what a store is asked: requests and bytes, by operation.

Requests are what S3 bills, so most claims of this project are claims about these numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, TypeVar

from loaders.errors import StoreError
from loaders.lifetime import ProcessLock
from loaders.store.decorated import GETS, Call, DecoratedStore, received_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from loaders.store.base import ObjectStore

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class OperationCount:
    """What one operation cost.

    Attributes:
        requests: how often it was asked for; failures included.
        failures: how often it ended with an error of the store (a missing key and a lost condition are such).
        sent_bytes: bodies that went to the store.
        received_bytes: bodies that came from it.
    """

    requests: int = 0
    failures: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0

    def __add__(self, other: OperationCount) -> OperationCount:
        return OperationCount(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    def __sub__(self, other: OperationCount) -> OperationCount:
        return OperationCount(*(getattr(self, each.name) - getattr(other, each.name) for each in fields(self)))


@dataclass(frozen=True)
class StoreCounts:
    """What a store was asked up to some moment; two of them subtract.

    Attributes:
        by_operation: the operations that were asked for at all, by name; see `decorated.OPERATIONS`.
    """

    by_operation: Mapping[str, OperationCount] = field(default_factory=dict)

    def of(self, *operations: str) -> OperationCount:
        """The sum of these operations."""
        return sum((self.by_operation.get(name, OperationCount()) for name in operations), OperationCount())

    @property
    def total(self) -> OperationCount:
        """The sum of all operations."""
        return self.of(*self.by_operation)

    @property
    def gets(self) -> int:
        """Requests that read objects: whole, range, tail, and if changed."""
        return self.of(*GETS).requests

    def __sub__(self, earlier: StoreCounts) -> StoreCounts:
        changed = {name: self.of(name) - earlier.of(name) for name in self.by_operation}
        return StoreCounts({name: count for name, count in changed.items() if count != OperationCount()})


class CountingStore(DecoratedStore):
    """Counts requests to the store inside. Safe for many threads."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self._lock = ProcessLock()
        self._counts: dict[str, OperationCount] = {}

    def snapshot(self) -> StoreCounts:
        """The counts until now, all of one moment."""
        with self._lock:
            return StoreCounts(dict(self._counts))

    def reset(self) -> StoreCounts:
        """Begin again at zero, and return the counts until now."""
        with self._lock:
            counts, self._counts = self._counts, {}
        return StoreCounts(counts)

    def _around(self, call: Call, send: Callable[[], Answer]) -> Answer:
        try:
            answer = send()
        except StoreError:
            self._add(call.operation, OperationCount(1, 1, call.sent_bytes))
            raise
        self._add(call.operation, OperationCount(1, 0, call.sent_bytes, received_bytes(answer)))
        return answer

    def _add(self, operation: str, count: OperationCount) -> None:
        with self._lock:
            self._counts[operation] = self._counts.get(operation, OperationCount()) + count
