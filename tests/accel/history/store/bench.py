"""A bucket with one stream, small pieces everywhere, and segments that know their sizes."""

from __future__ import annotations

import itertools
import re
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self
from uuid import UUID

from accel.history.rules.configuration import HistoryLayout, RetentionKind, RetentionPolicy, StreamConfiguration
from accel.history.rules.values import parse_segment
from accel.history.store import HistorySettings, Stream, StreamStore
from accel.system import Components
from accel.testing import MemorySegments
from loaders.tables.conditional_write import TOMBSTONE_SIZE_BYTES
from tests.conformance.history_world import SCOPE, STREAM, World

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loaders.store import ObjectStore

START_MS = 1_000_000
NAME = SCOPE, STREAM
SETTINGS = HistorySettings(layout=HistoryLayout(2, 2), part_epochs=2, leaf_parts=2, ids_block=4)

_UNIQUE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def cut(**offsets: int) -> dict[int, int]:
    """A cut from names such as s3_1 for 3@1."""
    return {parse_segment(name.removeprefix("s").replace("_", "@")): offset for name, offset in offsets.items()}


def ids(*names: str) -> list[int]:
    """Segment ids from text."""
    return [parse_segment(each) for each in names]


@dataclass
class Bench(World):
    """A world whose host keeps sizes, and whose clock is set by hand.

    Attributes:
        host: holds the segments; it does not die with those who use it.
        now_ms: what the clock says.
        client: takes all work from now on, with what it has cached; None = each time a new one, with nothing.
    """

    settings: HistorySettings = SETTINGS
    host: MemorySegments = field(default_factory=MemorySegments)
    now_ms: int = START_MS
    client: StreamStore | None = None
    _nonces: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def components(self) -> Components:
        """Its clock, and nonces that nobody had before."""
        return Components(
            timer=lambda: self.now_ms / 1000,
            sleep=lambda _: None,
            jitter=lambda: 0.0,
            clock=lambda: self.now_ms / 1000,
            nonce=lambda: next(self._nonces).to_bytes(16, "big"),
        )

    def streams(self, around: ObjectStore | None = None) -> StreamStore:
        """A new client, with nothing cached, or the one that takes all work."""
        return self.client if self.client is not None else self.opened(self.host, around)

    def opened(self, host: object, around: ObjectStore | None = None) -> StreamStore:
        """A client with another host, or none."""
        store = self.store if around is None else around
        return StreamStore.open(store, system=self.components(), settings=self.settings, host=host)  # type: ignore[arg-type]

    def stream(self, sizes: Mapping[int, int] | None = None, around: ObjectStore | None = None) -> Stream:
        """The stream, opened by a new client."""
        del sizes
        return self.streams(around).stream(SCOPE, STREAM)

    def clone(self) -> Self:
        """The same in a bucket of its own, with a host of its own."""
        return replace(
            self,
            store=self.copy().store,
            transactions=dict(self.transactions),
            host=self.host.copy(),
            client=None,
            _nonces=copy(self._nonces),
        )

    def tick(self, by_ms: int = 10) -> int:
        """Let time go by; gives what the clock says then."""
        self.now_ms += by_ms
        return self.now_ms

    def create(self, segments: int = 2, least: int = 1) -> Stream:
        """Make scope and stream."""
        self.streams().create_scope(SCOPE)
        retention = RetentionPolicy(RetentionKind.SIZE, 5)
        wanted = StreamConfiguration(min_segments=least, retention=retention)
        return self.streams().create_stream(SCOPE, STREAM, wanted, self.now_ms, segments=segments)

    def append_all(self, size: int) -> None:
        """Append to all segments that take writes."""
        for each in self.stream().active_segments().ids.tolist():
            self.host.append(NAME, each, size)

    def scale_once(self, by: Stream | None = None) -> None:
        """Replace the oldest active segment by another one with its keys; a new client does that, or a given one."""
        stream = self.stream() if by is None else by
        oldest = stream.active_segments()[0]
        stream.scale([oldest.id], [(oldest.key_start, oldest.key_end)], self.tick())

    def transaction(self, name: str, size: int = 3, *, commit: bool | None = True) -> UUID:
        """Begin a transaction, write to it, and say what shall become of it; None = it stays open."""
        stream = self.stream()
        self.transactions[name] = transaction_id = stream.transactions.begin()
        self.host.write(NAME, transaction_id, size)
        if commit is not None:
            stream.transactions.seal(transaction_id, commit=commit)
        return transaction_id

    def live_keys(self) -> list[str]:
        """All live keys, with a letter in place of each unique id."""
        found = (info.key for info in self.store.list("") if info.size_bytes != TOMBSTONE_SIZE_BYTES)
        return sorted(_UNIQUE.sub("U", each) for each in found)
