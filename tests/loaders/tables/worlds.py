"""What tests of tables work with: clients of one store, some of them with bad luck."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from accel.system import SYSTEM
from accel.testing import Fault, FaultStore
from loaders.errors import AccessDenied, StoreError
from loaders.store.decorated import WRITES, DecoratedStore, StoreCall
from loaders.tables import RetrySettings, Tables

if TYPE_CHECKING:
    from loaders.store import ObjectStore
    from loaders.tables import Entry, Table

Answer = TypeVar("Answer")

_count = itertools.count(1)


def new_nonce() -> bytes:
    """16 bytes that no other write of this process has."""
    return next(_count).to_bytes(16, "big")


def no_sleep(_: float) -> None:
    """Time does not matter here."""


def items_of(table: Table, prefix: str = "", after: str = "") -> Iterator[tuple[str, Entry]]:
    """The live keys with their values; what is deleted since it was listed is left out."""
    for key in table.keys(prefix, after):
        if (entry := table.find(key)) is not None:
            yield key, entry


@dataclass
class World:
    """A store that tables lie in.

    Attributes:
        store: the store.
        quotes: how its endpoint wants If-Match; None = not asked.
    """

    store: ObjectStore
    quotes: bool | None = None

    def tables(
        self,
        around: ObjectStore | None = None,
        *,
        retry: RetrySettings = RetrySettings(),  # noqa: B008 - immutable
        waits: bool = False,
    ) -> Tables:
        """A new client.

        Args:
            around: what it uses in place of the store itself: something around it.
            retry: its backoff.
            waits: whether it really pauses, as it must where threads compete for one key on a server.
        """
        return Tables(
            around or self.store,
            nonce=new_nonce,
            sleep=SYSTEM.sleep if waits else no_sleep,
            jitter=SYSTEM.jitter,
            if_match_quotes=self.quotes,
            retry=retry,
        )

    def table(self, name: str = "t") -> Table:
        """A table that exists, as a new client sees it."""
        tables = self.tables()
        tables.create_table(name)
        return tables.table(name)

    def unlucky(
        self, *faults: Fault | None, third: Callable[[], object] | None = None, retry: RetrySettings | None = None
    ) -> Tables:
        """A new client whose next writes go wrong as scheduled; `third` acts right after the first that fails."""
        faulty = FaultStore(self.store, operations=WRITES)
        faulty.schedule(*faults)
        around: ObjectStore = faulty if third is None else Between(faulty, third)
        return self.tables(around, retry=retry or RetrySettings())


class Between(DecoratedStore):
    """Lets a third writer act between a write that fails and whatever its writer does next. Once."""

    def __init__(self, store: ObjectStore, act: Callable[[], object]) -> None:
        super().__init__(store)
        self._act: Callable[[], object] | None = act

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        try:
            return send()
        except StoreError:
            act, is_write = self._act, call.operation in WRITES
            if act is not None and is_write:
                self._act = None
                act()
            raise


class ReadOnly(DecoratedStore):
    """What a store is to somebody who may only read."""

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        if call.operation in WRITES:
            raise AccessDenied(call.operation, call.key, "403 AccessDenied")
        return send()


@dataclass
class Recorder:
    """Remembers the requests that pass through its store."""

    calls: list[StoreCall] = field(default_factory=list)

    def around(self, store: ObjectStore) -> ObjectStore:
        """The store, watched."""
        calls = self.calls

        class Recording(DecoratedStore):
            def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
                calls.append(call)
                return send()

        return Recording(store)

    @property
    def writes(self) -> list[StoreCall]:
        """Those that change the store."""
        return [call for call in self.calls if call.operation in WRITES]
