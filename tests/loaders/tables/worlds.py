"""What tests of tables work with: clients of one store, some of them with bad luck."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from accel.system import SYSTEM
from accel.testing import Fault, FaultStore
from loaders.backoff import ATTEMPTS, SETTLE_ATTEMPTS
from loaders.errors import AccessDenied, StoreError
from loaders.store import ObjectStore
from loaders.store.decorated import WRITES, DecoratedStore, StoreCall
from loaders.tables import BYTES, Entry, RecordCache, Table, Tables, TypedKey, Version, Versioned
from loaders.tables.conditional_write import VALUE_SIZE_BYTES_MAX
from loaders.tables.typed_key import Inspected, always, never

Answer = TypeVar("Answer")

_count = itertools.count(1)


def new_nonce() -> bytes:
    """16 bytes that no other write of this process has."""
    return next(_count).to_bytes(16, "big")


def no_sleep(_: float) -> None:
    """Time does not matter here."""


class Values(Table):
    """A table of bytes: the verbs of its keys, each with the key as its first argument.

    Args:
        table: the table.
        records: the cache of its client; None = it has none.
    """

    def __init__(self, table: Table, records: RecordCache | None = None) -> None:
        super().__init__(table.name, table.prefix, table.store, table.writer, table.state)
        self._records = records

    def key(self, key: str, *, final: bool = False) -> TypedKey[bytes]:
        return TypedKey(self, key, BYTES, is_final=always if final else never, cache=self._records)

    def get(self, key: str) -> Entry:
        return self.key(key).get()

    def find(self, key: str) -> Entry | None:
        return self.key(key).read()

    def get_if_newer(self, key: str, version: Version) -> Entry | None:
        """The value; None if it still has this version."""
        seen = Versioned(b"", version)
        now = self.key(key).read_newer(seen)
        return None if now is seen else now

    def create(self, key: str, value: bytes, *, final: bool = False) -> Version:
        return self.key(key, final=final).create(value).version

    def create_if_absent(self, key: str, value: bytes) -> Entry:
        return self.key(key).create_if_absent(value)

    def update(self, key: str, value: bytes, version: Version, *, final: bool = False) -> Version:
        return self.key(key, final=final).write(value, Versioned(b"", version)).version

    def change(self, key: str, change: Callable[[bytes | None], bytes | None]) -> Entry:
        return self.key(key).change(change)

    def delete(self, key: str, version: Version | None = None) -> None:
        self.key(key).delete(None if version is None else Versioned(b"", version))

    def erase(self, key: str) -> None:
        self.key(key).erase()

    def inspect(self, key: str) -> Inspected[bytes]:
        return self.key(key).inspect()


class ByteTables(Tables):
    """A client whose tables hold bytes; its keys share its cache of records, if it has one."""

    records: RecordCache | None = None

    def table(self, name: str, *, value_size_bytes_max: int = VALUE_SIZE_BYTES_MAX) -> Values:
        return Values(super().table(name, value_size_bytes_max=value_size_bytes_max), self.records)


def items_of(table: Values, prefix: str = "", after: str = "") -> Iterator[tuple[str, Entry]]:
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
        is_cached: whether each client has a cache of records.
    """

    store: ObjectStore
    quotes: bool | None = None
    is_cached: bool = False

    def tables(
        self,
        around: ObjectStore | None = None,
        *,
        attempts: int = ATTEMPTS,
        settle_attempts: int = SETTLE_ATTEMPTS,
        waits: bool = False,
    ) -> ByteTables:
        """A new client.

        Args:
            around: what it uses in place of the store itself: something around it.
            attempts, settle_attempts: as for `Tables`.
            waits: whether it really pauses, as it must where threads compete for one key on a server.
        """
        tables = ByteTables(
            around or self.store,
            nonce=new_nonce,
            sleep=SYSTEM.sleep if waits else no_sleep,
            jitter=SYSTEM.jitter,
            if_match_quotes=self.quotes,
            attempts=attempts,
            settle_attempts=settle_attempts,
        )
        tables.records = RecordCache(1 << 20, lambda value: len(str(value))) if self.is_cached else None
        return tables

    def table(self, name: str = "t") -> Values:
        """A table that exists, as a new client sees it."""
        tables = self.tables()
        tables.create_table(name)
        return tables.table(name)

    def unlucky(self, *faults: Fault | None, third: Callable[[], object] | None = None) -> ByteTables:
        """A new client whose next writes go wrong as scheduled; `third` acts right after the first that fails."""
        faulty = FaultStore(self.store, operations=WRITES)
        faulty.schedule(*faults)
        around: ObjectStore = faulty if third is None else Between(faulty, third)
        return self.tables(around)


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
