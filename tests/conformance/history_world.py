"""The stream that a history case works with, and a way to open it with nothing known."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from accel.history.rules.configuration import HistoryLayout
from accel.history.rules.epochs import EpochTransition
from accel.history.rules.values import make_transaction_id
from accel.history.store import GivenSizes, HistorySettings, Stream, StreamStore
from accel.system import Components
from loaders.layout import TABLE_MARKER
from loaders.store import MemoryStore
from loaders.store.decorated import DecoratedStore, StoreCall
from loaders.tables import Versioned

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from loaders.store import ObjectStore

Answer = TypeVar("Answer")

SCOPE, STREAM = "scope", "stream"
CLOCK_SECONDS = 1_000.0

_nonces = itertools.count(1)


class CallCounter(DecoratedStore):
    """Counts table operations: requests for keys and listings, not for the markers that say that tables exist."""

    calls = 0

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        self.calls += not call.key.endswith(f"/{TABLE_MARKER}")
        return send()


def components() -> Components:
    """A clock that stands still, and nonces that nobody had before."""
    return Components(
        timer=lambda: CLOCK_SECONDS,
        sleep=lambda _: None,
        jitter=lambda: 0.0,
        clock=lambda: CLOCK_SECONDS,
        nonce=lambda: next(_nonces).to_bytes(16, "big"),
    )


@dataclass
class World:
    """A bucket with one stream.

    Attributes:
        settings: how its history is kept.
        store: the bucket.
        transactions: their ids, by the names that the case gives them.
        transition: what the last step of a scale left to go on with.
        remembered: transitions that the case gave a name.
    """

    settings: HistorySettings
    store: ObjectStore = field(default_factory=MemoryStore)
    transactions: dict[str, UUID] = field(default_factory=dict)
    transition: Versioned[EpochTransition] | None = None
    remembered: dict[str, Versioned[EpochTransition]] = field(default_factory=dict)

    @classmethod
    def of(cls, config: Mapping[str, int], store: ObjectStore | None = None) -> World:
        """A new bucket for a case; the index of times is cut into small pieces wherever chunks are."""
        size, shard_size = config.get("chunk_size"), config.get("shard_size", 1000)
        settings = HistorySettings(layout=HistoryLayout(shard_size=shard_size))
        if size is not None:
            settings = HistorySettings(layout=HistoryLayout(size, shard_size), part_epochs=size, leaf_parts=2)
        return cls(settings, MemoryStore() if store is None else store)

    def streams(self, around: ObjectStore | None = None) -> StreamStore:
        """A new client, with nothing cached."""
        store = self.store if around is None else around
        return StreamStore.open(store, system=components(), settings=self.settings)

    def stream(self, sizes: Mapping[int, int] | None = None, around: ObjectStore | None = None) -> Stream:
        """The stream, opened by a new client.

        Args:
            sizes: of the segments that are sealed.
            around: what the client uses in place of the store itself.
        """
        return self.streams(around).stream(SCOPE, STREAM, host=GivenSizes(sizes))

    def copy(self) -> World:
        """The same in a bucket of its own."""
        other = MemoryStore()
        for info in self.store.list(""):
            other.put(info.key, self.store.get(info.key).body)
        return World(self.settings, other, self.transactions, self.transition, self.remembered)

    def transaction(self, name: str) -> UUID:
        """The id of a transaction; of one that the case never began, an id that nobody has."""
        unknown = make_transaction_id(0, 2**95 + sum(name.encode()))
        return self.transactions.get(name, unknown)

    def name_of(self, transaction_id: UUID) -> str:
        """What the case calls a transaction."""
        return next(name for name, each in self.transactions.items() if each == transaction_id)
