"""Clocks of processes move by a day or a year, at random: nothing acknowledged is lost, nothing stays stuck.

One world from one seed: processes of two nodes, one after the other, write, scale, commit, retain and read as a group.
At any time the process may get another clock, or die and be followed by another one. The clock of the store is right.
In the end the clock is right, and everything works.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Final

import pytest

import accel
from accel.errors import AccelError, ImageTooOld, PositionTruncated
from accel.history.rules.configuration import RetentionKind, RetentionPolicy, StreamConfiguration
from accel.history.rules.states import StreamState
from accel.history.store.retention_workflow import Retained
from accel.streams.connection import Connection
from accel.streams.group_readers import GroupReader
from accel.streams.rules.settings import ReaderSettings
from accel.streams.segment_source import cut_at
from accel.streams.settings import ConnectionSettings
from accel.system import SYSTEM
from accel.testing import ClockStore
from tests.accel.streams.writer.world import CATALOG, HISTORY, NO_REPEATS, SMALL, World
from tests.examples import examples

if TYPE_CHECKING:
    from uuid import UUID

    from accel.streams.writer import StreamWriter
    from loaders.store import ObjectStore

DAY: Final = 86_400.0
YEAR: Final = 365 * DAY
MOVES: Final = (DAY, -DAY, YEAR, -YEAR)
KEEP_SECONDS: Final = 3600.0
KEYS: Final = 5
ACTS: Final = 60
START_SECONDS: Final = 1_800_000_000.0
SETTINGS: Final = ConnectionSettings(catalog=CATALOG, history=HISTORY, segments=SMALL, lookups=NO_REPEATS)
QUICK: Final = ReaderSettings(idle_seconds=0.01)


@dataclass
class Process:
    """A process on a machine with its own clock.

    Attributes:
        ahead_seconds: how far that clock is ahead.
    """

    lives: Lives
    node_id: int
    ahead_seconds: float = 0.0
    transactions: dict[UUID, list[tuple[int, bytes]]] = field(default_factory=dict)

    def start(self) -> None:
        """Begin, and finish what dead processes left behind."""
        world = self.lives.world
        system = replace(world.system, clock=lambda: world.seconds + self.ahead_seconds)
        self.connection: Connection = accel.connect(
            self.lives.store, node_id=self.node_id, settings=SETTINGS, system=system
        )
        self.connection.stream_store.recover()
        self.writer: StreamWriter = self.connection.writer("shop", "orders")
        self.transactions = {}

    def die(self) -> None:
        """Stop without flushing."""
        self.connection.stop()

    def refresh(self) -> None:
        """Let readers see what was written; a request of a thread that began long ago may be answered first."""
        with suppress(ImageTooOld):
            self.connection.accelerator.refresh()
        self.connection.accelerator.refresh()

    def read(self) -> None:
        """Read all that there is as a member of the group, and leave."""
        self.refresh()
        stream = self.connection.stream("shop", "orders")
        source = self.connection.source(stream)
        reader = GroupReader(
            stream,
            source,
            self.connection.group("shop", "orders", "all"),
            f"reader-{self.node_id}",
            system=replace(SYSTEM, clock=self.connection._system.clock),  # threads wait by a timer that goes by itself
            settings=QUICK,
            rebalance_seconds=0.05,
        )
        end = cut_at(stream, source, None)
        while dict(reader.position()) != end:
            try:
                batch = reader.next_batch(timeout_seconds=0.02)
            except PositionTruncated:  # retention was here before the group
                reader.skip_to_head()
                continue
            self.lives.delivered += [] if batch is None else [event.payload for event in batch]
        reader.commit()
        reader.close()


class Lives:
    """The world, and what must be found in it."""

    def __init__(self, seed: int, *, has_date: bool) -> None:
        self.chance = Random(seed)
        self.world = World()
        self.world.seconds = START_SECONDS
        self.has_date = has_date
        self.store: ObjectStore = (
            ClockStore(self.world.store, lambda: self.world.seconds) if has_date else self.world.store
        )
        policy = RetentionPolicy(RetentionKind.TIME, int(KEEP_SECONDS * 1000)) if has_date else None
        self.number = 0
        self.acknowledged: dict[bytes, float] = {}
        self.by_key: dict[int, list[bytes]] = defaultdict(list)
        self.delivered: list[bytes] = []
        self.process = Process(self, 4)
        with accel.connect(self.store, settings=SETTINGS, system=self.world.system) as connection:
            connection.create_scope("shop")
            wanted = StreamConfiguration(min_segments=1, retention=policy)
            connection.create_stream("shop", "orders", wanted, segments=2)
        self.process.start()

    def event(self) -> tuple[int, bytes]:
        """A key and a payload that was never written before."""
        self.number += 1
        return self.chance.randrange(KEYS), b"%d" % self.number

    def note(self, events: list[tuple[int, bytes]]) -> None:
        """These events were acknowledged."""
        for key, payload in events:
            self.acknowledged[payload] = self.world.seconds
            self.by_key[key].append(payload)

    # What may happen

    def write(self) -> None:
        events = [self.event() for _ in range(self.chance.randint(1, 8))]
        for key, payload in events:
            self.process.writer.write(payload, key=b"%d" % key)
        self.process.writer.flush()
        self.note(events)

    def wait(self) -> None:
        self.world.seconds += self.chance.choice([0.5, 20.0, 900.0, 5000.0])

    def move_clock(self) -> None:
        self.process.ahead_seconds = self.chance.choice([*MOVES, 0.0])

    def restart(self) -> None:
        """Another process continues, perhaps of another node, which has to wait for the end of a lease."""
        self.process.die()
        self.process.node_id = self.chance.choice([4, 5])
        self.world.seconds += 60
        self.process.start()

    def scale(self) -> None:
        stream = self.process.connection.stream("shop", "orders")
        active = sorted(stream.active_segments(), key=lambda each: each.key_start)
        at = self.chance.randrange(len(active))
        if len(active) > 3 and at:
            stream.merge(active[at - 1].id, active[at].id)
        else:
            stream.split(active[at].id)

    def begin(self) -> None:
        if len(self.process.transactions) < 3:
            self.process.transactions[self.process.writer.begin_transaction()] = []

    def write_apart(self) -> None:
        for transaction, events in self.process.transactions.items():
            key, payload = self.event()
            self.process.writer.write(payload, key=b"%d" % key, transaction=transaction)
            events.append((key, payload))

    def commit(self) -> None:
        while self.process.transactions:
            transaction, events = self.process.transactions.popitem()
            try:
                self.process.writer.commit_transaction(transaction)
            except AccelError:  # it may have expired, or the clock says so: then none of it is in the stream
                continue
            self.note(events)

    def retain(self) -> None:
        found = self.process.connection.stream_store.retain("shop", "orders")
        assert found.outcome is not Retained.FAILED, found

    def read(self) -> None:
        self.process.read()

    def run(self) -> None:
        """Let all of this happen, as the seed says."""
        acts = [
            *[self.write] * 4, *[self.wait] * 2, *[self.move_clock] * 2, self.restart, self.scale, self.begin,
            *[self.write_apart] * 2, self.commit, *[self.retain] * 2, *[self.read] * 2,
        ]  # fmt: skip
        for _ in range(ACTS):
            self.chance.choice(acts)()

    # What must be true in the end

    def lost(self, found: list[bytes]) -> set[bytes]:
        """Acknowledged events that are not there, although retention had to keep them."""
        kept = {
            payload
            for payload, seconds in self.acknowledged.items()
            if not self.has_date or seconds > self.world.seconds - KEEP_SECONDS
        }
        return kept - set(found)

    def check_events(self) -> None:
        connection = self.process.connection
        self.process.refresh()
        by_key: dict[int, list[bytes]] = defaultdict(list)
        keys = {payload: key for key, payloads in self.by_key.items() for payload in payloads}
        with connection.reader("shop", "orders") as reader:
            for event in reader:
                by_key[keys[event.payload]].append(event.payload)
        for key, payloads in by_key.items():
            written = self.by_key[key]
            assert payloads == written[len(written) - len(payloads) :], "each once and in order, but for a beginning"
        assert self.lost([each for payloads in by_key.values() for each in payloads]) == set()

    def check_works(self) -> None:
        """With a right clock everything goes on, at once."""
        self.process.ahead_seconds = 0.0
        self.restart()
        self.write()
        self.scale()
        self.begin()
        self.write_apart()
        (transaction, events) = self.process.transactions.popitem()
        self.process.writer.commit_transaction(transaction)
        self.note(events)
        self.write()
        stream = self.process.connection.stream("shop", "orders")
        assert stream.state() is StreamState.ACTIVE
        if self.has_date:
            self.world.seconds += KEEP_SECONDS + 60
            assert stream.workflows.retention.retain()[0] in (Retained.RECORDED, Retained.TRUNCATED)
            self.world.seconds += KEEP_SECONDS + 60
            self.write()
            assert stream.workflows.retention.retain()[0] is Retained.TRUNCATED
        self.world.seconds += 60
        self.read()


@pytest.mark.parametrize("has_date", [True, False])
@pytest.mark.parametrize("seed", range(examples(15)))
def test_with_clocks_that_move_nothing_is_lost_and_nothing_stays_stuck(seed: int, *, has_date: bool) -> None:
    lives = Lives(seed, has_date=has_date)
    lives.run()
    lives.check_events()
    lives.check_works()
    lives.check_events()
    assert len(lives.delivered) == len(set(lives.delivered))
    assert lives.lost(lives.delivered) == set()
    lives.process.connection.close()
