"""Whatever happens to a group, an acknowledged event is read at least once, and by a reader that owns its segment."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from threading import Event as Signal
from typing import Any

import pytest

from accel import GroupReader
from accel.errors import IllegalState, NotInHistory, PositionTruncated, ReaderReplaced, StreamDeleted
from accel.history.rules.segments import SegmentRecord
from accel.history.store import StreamStore
from accel.streams.rules.events import EventBatch
from accel.streams.rules.reader_core import AskEnd, Fill, SegmentEnd, SegmentEvents
from accel.streams.rules.shares import Assignment
from accel.streams.segment_source import SegmentSource
from loaders.errors import StoreUnavailable, TableMissing
from loaders.store import MemoryStore
from tests.accel.streams.groups.team import OFTEN_SECONDS, Team, scale, team, written
from tests.accel.streams.groups.test_group_reader_failures import WORKS, Shaky
from tests.accel.streams.groups.test_leases import LEASE_SECONDS, Hands
from tests.accel.streams.reader.streams import NAME, SCOPE, Shop, shop
from tests.examples import examples

ACTS = 40
SETTLES_MAX = 2_000
NAMES = "abc"


class Watched(Shaky):
    """A group that remembers which segments it assigned to each session, as the session was told."""

    assigned: dict[int, set[int]]

    def rebalance(self, reader: str, positions: Mapping[int, int], lag: int | None, **more: Any) -> Assignment:
        session = more["lease"].session
        self.assigned.pop(session, None)  # until it knows more it returns nothing
        told = super().rebalance(reader, positions, lag, **more)
        starts = {start.segment.id for start in told.start}
        self.assigned[session] = (positions.keys() - set(told.stop)) | starts
        return told

    def finish(
        self, reader: str, segment_id: int, successors: Iterable[SegmentRecord], *, offset: int, session: int = 0
    ) -> None:
        self.assigned.pop(session, None)
        super().finish(reader, segment_id, successors, offset=offset, session=session)

    def leave(self, reader: str, positions: Mapping[int, int] | None = None, *, session: int = 0) -> None:
        self.assigned.pop(session, None)
        super().leave(reader, positions, session=session)


@dataclass
class Slow:
    """A source of which some answers come only when they are let go, as of a store that is slow or cut off."""

    source: SegmentSource
    random: Random
    may_answer: Signal = field(default_factory=Signal)

    def fill(self, fill: Fill) -> SegmentEvents:
        if self.random.random() < 0.2:
            self.may_answer.wait(0.05)
        return self.source.fill(fill)

    def ask_end(self, step: AskEnd) -> SegmentEnd:
        if self.random.random() < 0.2:
            self.may_answer.wait(0.05)
        return self.source.ask_end(step)


@dataclass
class Reading:
    """One reader object, whose name others may have, too."""

    member: GroupReader
    hands: Hands
    auto_commit: bool
    is_replaced: bool = False
    in_work: list[bytes] = field(default_factory=list)


@dataclass
class World:
    """A stream, a group and its readers, all of which anything may happen to."""

    readers: Team
    group: Watched
    random: Random
    alive: list[Reading] = field(default_factory=list)
    asleep: list[Reading] = field(default_factory=list)
    processed: set[bytes] = field(default_factory=set)

    @property
    def orders(self) -> Shop:
        return self.readers.shop

    # What happens

    def join(self) -> None:
        """A new process under a name that may be in use."""
        if len(self.alive) >= 5:
            return
        hands, auto_commit = Hands(), self.random.random() < 0.4
        source = Slow(self.orders.source(), Random(self.random.random()))
        member = self.readers.join(
            self.random.choice(NAMES),
            every_seconds=self.random.choice([OFTEN_SECONDS, 2.0]),
            system=hands.components(),
            source=source,
            auto_commit=auto_commit,
            lease_seconds=LEASE_SECONDS,
        )
        self.readers.gone.append(member)
        self.alive.append(Reading(member, hands, auto_commit))

    def fall_asleep(self) -> None:
        """A process is paused, or dies: nobody knows. Often it is one that has work."""
        if self.alive:
            self.random.shuffle(self.alive)
            self.alive.sort(key=lambda one: bool(one.in_work) and self.random.random() < 0.7)
            self.asleep.append(self.alive.pop())

    def wake(self) -> None:
        if self.asleep:
            self.alive.append(self.asleep.pop(self.random.randrange(len(self.asleep))))

    def leave(self) -> None:
        if self.alive:
            one = self.random.choice(self.alive)
            with suppress(StoreUnavailable, IllegalState, ReaderReplaced):
                one.member.leave()

    def close(self) -> None:
        if self.alive:
            one = self.alive.pop(self.random.randrange(len(self.alive)))
            with suppress(StoreUnavailable):
                one.member.close()

    def time_passes(self) -> None:
        seconds = self.random.choice([1.0, 4.0, LEASE_SECONDS + 1])
        for one in (*self.alive, *self.asleep):
            one.hands.seconds += seconds

    def truncate(self) -> None:
        """Delete what the group has read, by its own word."""
        self.orders.stream.truncate(self.group.position())

    def reset(self) -> None:
        """Read all again that exists."""
        self.group.reset(evict=True)

    def bury(self) -> None:
        if self.alive:
            self.group.reader_offline(self.random.choice(NAMES))

    def act(self) -> None:
        """One thing happens, and then some readers are asked."""
        acts: dict[Callable[[], object], int] = {
            lambda: written(self.orders, self.random.randint(1, 20)): 6,
            lambda: scale(self.orders, self.random): 3,
            self.join: 5,
            self.fall_asleep: 2,
            self.wake: 2,
            self.leave: 1,
            self.close: 1,
            self.time_passes: 4,
            self.truncate: 1,
            self.reset: 1 if self.random.random() < 0.2 else 0,
            self.bury: 1,
        }
        self.random.choices(list(acts), weights=list(acts.values()))[0]()
        for one in self.random.choices(self.alive, k=12 if self.alive else 0):
            self.ask(one)

    def ask(self, one: Reading) -> int:
        """Ask for events, which only the owner of their segment may return."""
        member = one.member
        try:
            kind = self.random.random()
            does_commit = kind < 0.1 or (not one.auto_commit and kind < 0.3)
            if does_commit or one.auto_commit:
                self.process(one)
            if does_commit:
                member.commit()
            batch: EventBatch | None = member.next_batch(0.002)
        except ReaderReplaced:
            one.is_replaced = True
            return 0
        except PositionTruncated:
            with suppress(StoreUnavailable, IllegalState, ReaderReplaced):
                member.skip_to_head()
            return 0
        except (StoreUnavailable, IllegalState):
            return 0
        if batch is None:
            return 0
        assert not one.is_replaced, "who was replaced returns nothing"
        session = member._member.lease.session
        assert batch.segment_id in self.group.assigned.get(session, set()), "of a segment that it owns"
        one.in_work += [event.payload for event in batch]
        return len(one.in_work)

    def process(self, one: Reading) -> None:
        """The caller has processed what it was given, and says so with its next call."""
        self.processed.update(one.in_work)
        one.in_work.clear()

    def missing(self) -> set[bytes]:
        """Acknowledged events that nobody has processed: who was given them may have died."""
        stored = {payload for payloads in self.orders.written.values() for payload in payloads}
        return stored - self.processed


def play(seed: int, acts: int) -> None:
    """A world of this seed; at its end one reader is left, and reads what nobody was given."""
    random = Random(seed)
    with shop(MemoryStore(), segments=random.randint(1, 6)) as orders:
        group = Watched.open(orders.stream, "team")
        assert isinstance(group, Watched)
        group.assigned, group.odds = {}, iter(random.random, None)
        with team(orders, group) as readers:
            world = World(readers, group, random)
            for _ in range(acts):
                with suppress(StoreUnavailable):
                    world.act()
            group.odds = itertools.repeat(WORKS)
            world.alive.clear()
            world.join()
            [last] = world.alive
            for number in range(SETTLES_MAX):
                last.hands.seconds += 1.0 if number % 10 == 0 else 0.0
                world.ask(last)
                world.process(last)
                last.member.commit()
                if not world.missing():
                    return
            raise AssertionError(f"{world.missing()} were processed by nobody\n{readers.describe()}")


@pytest.mark.parametrize("seed", range(examples(20)))
def test_an_acknowledged_event_is_read_at_least_once_and_by_the_owner_of_its_segment(seed: int) -> None:
    play(seed, ACTS)


def test_a_stream_that_is_deleted_while_its_group_is_rebalanced_ends_its_readers() -> None:
    random = Random(7)
    with shop(MemoryStore(), segments=4) as orders:
        group = Watched.open(orders.stream, "team")
        assert isinstance(group, Watched)
        group.assigned = {}
        with team(orders, group) as readers:
            world = World(readers, group, random)
            written(orders, 60)
            for _ in range(3):
                world.join()
            for _ in range(20):
                world.ask(random.choice(world.alive))
            orders.stream.seal()
            StreamStore.open(orders.store, host=orders.host).delete_stream(SCOPE, NAME)
            for one in world.alive:
                for again in (one.member.rebalance, one.member.commit, one.member.next_batch):
                    with pytest.raises((TableMissing, StreamDeleted, NotInHistory, ReaderReplaced)):
                        again()
                one.member.close()
