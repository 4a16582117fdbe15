"""Processes that share a stream, with leases, pauses and deaths: what was acknowledged is there once, and in order.

Three processes own segments of one stream and send each other's events to their owners, while they scale and truncate
it, commit transactions, take segments over from dead owners and from living ones, pause beyond their leases, and die;
requests between them, and replies, are lost. The model knows which events were acknowledged. A reader finds each of
those once and those of a key in their order, from the head and from every position that was taken on the way; of a
transaction it finds all events or none. In the end no workflow is left.

Each life of a process writes events of its own words, and so does each transaction, so an order is known for each.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count, islice
from random import Random
from typing import NamedTuple
from uuid import UUID

import pytest

from accel import ReadAccelerator, StreamReader
from accel.errors import (
    CommitRefused,
    ForwardInDoubt,
    IllegalState,
    InvalidArgument,
    OperationNotAllowed,
    OwnerUnreachable,
    PositionTruncated,
    ScaleConflict,
    ScalePrecondition,
    SegmentsElsewhere,
)
from accel.history.rules.states import StreamState
from accel.history.rules.values import Cut
from accel.history.store import Stream
from accel.streams.acknowledgements import WriteFuture
from accel.streams.owners import ForwardingClient
from accel.streams.segment_source import ObjectSegmentSource
from accel.streams.writer import StreamWriter
from tests.accel.streams.writer.test_forwarding import Network, Peer
from tests.accel.streams.writer.world import NAME, NO_REPEATS, World
from tests.examples import examples

NODES = (4, 5, 6)
KEYS = 5
LEASE_SECONDS = 15
STEPS = 80
TURNS = 4
"""So often each process looks for what it has to do, until all is done."""
ACTS = {"write", "flush_one", "write_to_transaction", "commit", "split", "merge", "read_on", "truncate", "take_over"}
OWNERS_ARE_AWAY = (SegmentsElsewhere, OperationNotAllowed, OwnerUnreachable, ForwardInDoubt, CommitRefused)


class Said(NamedTuple):
    """An event, as its payload says."""

    word: str
    key: int
    number: int


@dataclass
class Life:
    """One life of a process: what it wrote, with the futures of it, and its open transaction."""

    peer: Peer
    word: str
    writer: StreamWriter
    numbers: Iterator[int] = field(default_factory=count)
    under_way: list[tuple[Said, WriteFuture]] = field(default_factory=list)
    transaction: UUID | None = None
    transaction_word: str = ""


class Position(NamedTuple):
    """A cut, and what a reader was given before it."""

    cut: Cut
    before: frozenset[Said]


class ThreeProcesses(Network):
    """The network of all that there are."""

    def client(self, *addresses: str) -> ForwardingClient:
        return super().client(*(addresses or [f"http://node-{node_id}" for node_id in NODES]))


class Owners:
    """A stream, its processes, and what must be found in it."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.world, self.network = World(), ThreeProcesses()
        self.lives: dict[int, Life] = {}
        self.words = count()
        self.durable: set[Said] = set()
        self.written: set[Said] = set()
        self.truncated: set[Said] = set()
        self.transactions: dict[str, list[Said]] = {}
        self.positions: list[Position] = []
        self.world.create(segments=self.chance.randint(1, 4))
        for node_id in NODES:
            self.start(node_id)

    def live(self, steps: int, counts: Counter[str]) -> None:
        """Take so many steps; counts are of those that did what they are about."""
        often = [self.write] * 5 + [self.flush_one, self.write_to_transaction, self.take_over, self.time_passes]
        seldom = [self.commit, self.split, self.merge, self.read_on, self.truncate, self.die, self.have_network]
        for _ in range(steps):
            if len(self.lives) < len(NODES) and self.chance.random() < 0.3:
                self.start(next(each for each in NODES if each not in self.lives))
            act = self.chance.choice([*often * 2, *seldom])
            if act(self.chance.choice(list(self.lives.values()))):
                counts[act.__name__] += 1

    def start(self, node_id: int) -> None:
        peer = Peer(self.world, node_id, self.network)
        self.lives[node_id] = Life(peer, f"w{next(self.words)}", peer.writer())

    # Writing; each act says whether it came about

    def write(self, life: Life) -> bool:
        for _ in range(self.chance.randint(1, 12)):
            number = next(life.numbers)
            said = Said(life.word, number % KEYS, number)
            self.written.add(said)
            with suppress(*OWNERS_ARE_AWAY):  # then it was not taken
                life.under_way.append((said, life.writer.write(payload(said), f"key-{said.key}")))
        return self.flush_one(life) if self.chance.random() < 0.5 else True

    def flush_one(self, life: Life) -> bool:
        with suppress(*OWNERS_ARE_AWAY):
            life.writer.flush()
        self.note(life)
        return not life.under_way

    def note(self, life: Life) -> None:
        """What is known to be durable by now."""
        for said, future in life.under_way:
            if future.done() and future.exception() is None:
                self.durable.add(said)
        life.under_way = [each for each in life.under_way if not each[1].done()]

    def write_to_transaction(self, life: Life) -> bool:
        if life.transaction is None:
            life.transaction, life.transaction_word = life.writer.begin_transaction(), f"t{next(self.words)}"
        events = self.transactions.setdefault(life.transaction_word, [])
        for _ in range(self.chance.randint(1, 8)):
            said = Said(life.transaction_word, len(events) % KEYS, len(events))
            events.append(said)
            life.writer.write(payload(said), f"key-{said.key}", transaction=life.transaction)
        return True

    def commit(self, life: Life) -> bool:
        if life.transaction is None:
            return False
        transaction, events = life.transaction, self.transactions[life.transaction_word]
        life.transaction = None
        self.written |= set(events)
        try:
            life.writer.commit_transaction(transaction)
        except (*OWNERS_ARE_AWAY, IllegalState):
            return False
        finally:
            self.note(life)
        self.durable |= set(events)
        return True

    # Workflows

    def split(self, life: Life) -> bool:
        active = life.peer.stream().active_segments().ids.tolist()
        return len(active) < 6 and self.scale(life, lambda stream: stream.split(self.chance.choice(active)))

    def merge(self, life: Life) -> bool:
        active = sorted(life.peer.stream().active_segments(), key=lambda each: each.key_start)
        at = self.chance.randrange(len(active))
        return at > 0 and self.scale(life, lambda stream: stream.merge(active[at - 1].id, active[at].id))

    def scale(self, life: Life, act: Callable[[Stream], object]) -> bool:
        try:
            act(life.peer.stream())
        except (*OWNERS_ARE_AWAY, ScalePrecondition, ScaleConflict):
            return False
        finally:
            self.note(life)
        return True

    def read_on(self, life: Life) -> bool:
        """A position that a reader came to."""
        with reading(life.peer) as reader:
            given = islice(reader, self.chance.randint(0, 60))
            before = {said_in(event.payload) for event in given}
            self.positions.append(Position(reader.position(), frozenset(before | self.truncated)))
        return True

    def truncate(self, life: Life) -> bool:
        if not self.positions:
            return False
        chosen = self.chance.choice(self.positions)
        stream = life.peer.stream()
        with suppress(*OWNERS_ARE_AWAY, InvalidArgument):
            stream.truncate(chosen.cut)
        if stream.truncation().cut == chosen.cut:
            self.truncated |= chosen.before
            return True
        return False

    # Owners

    def take_over(self, life: Life) -> bool:
        """From an owner that lives, or died, by one that takes it for dead."""
        host = life.peer.process.host
        active = life.peer.stream().active_segments().ids.tolist()
        others = {each: host.node_of(NAME, each) for each in active}
        theirs = {each: node_id for each, node_id in others.items() if node_id not in (None, host.node_id)}
        if not theirs:
            return False
        segment_id = self.chance.choice(list(theirs))
        with suppress(CommitRefused):
            host.take_over(NAME, {segment_id: theirs[segment_id] or 0})
        return True

    def time_passes(self, _: Life) -> bool:
        """Those that are not awake are paused, perhaps for longer than their leases."""
        self.world.seconds += self.chance.choice([1, LEASE_SECONDS + 1])
        for life in self.lives.values():
            if self.chance.random() < 0.7:
                life.peer.registration.renew()
        return True

    def die(self, life: Life) -> bool:
        if len(self.lives) == 1:
            return False
        self.lives.pop(life.peer.process.host.node_id).peer.die()
        return True

    def have_network(self, _: Life) -> bool:
        lost = self.chance.choice([0.0, 0.0, 0.3])

        def trouble(_: str) -> None:
            if self.chance.random() < lost:
                raise TimeoutError

        self.network.before = self.network.after = trouble
        return True

    # What must be found

    def check_found(self, found: list[Said], before: frozenset[Said] = frozenset()) -> None:
        assert len(found) == len(set(found)), "twice"
        behind = self.truncated | before
        assert self.durable - behind - set(found) == set(), "lost"
        assert set(found) - self.written == set(), "never written"
        last: defaultdict[tuple[str, int], int] = defaultdict(lambda: -1)
        for said in found:
            assert said.number > last[said.word, said.key], "out of order"
            last[said.word, said.key] = said.number

    def end(self) -> None:
        """All owners are there, and nothing is lost on the way: so workflows come to their ends."""
        self.network.before = self.network.after = lambda _: None
        self.world.seconds += LEASE_SECONDS + 1
        for node_id in NODES:
            if node_id not in self.lives:
                self.start(node_id)
            self.lives[node_id].peer.registration.renew()
        streams = [life.peer.stream() for life in self.lives.values()]
        for _ in range(TURNS):
            for life, stream in zip(self.lives.values(), streams, strict=True):
                with suppress(*OWNERS_ARE_AWAY):
                    stream.recover()
                self.flush_one(life)
        assert [life.under_way for life in self.lives.values()] == [[]] * len(NODES)
        assert streams[0].state() is StreamState.ACTIVE
        assert not any(not each.has_ended for each in streams[0].requests())
        self.check_positions()
        for life in self.lives.values():
            life.peer.die()

    def check_positions(self) -> None:
        peer = self.lives[NODES[0]].peer
        with reading(peer) as reader:
            everything = [said_in(event.payload) for event in reader]
        self.check_found(everything)
        for events in self.transactions.values():
            assert set(events) <= set(everything) | self.truncated or set(events).isdisjoint(everything)
        for position in self.positions:
            with suppress(PositionTruncated, InvalidArgument), reading(peer, position.cut) as reader:
                found = [said_in(event.payload) for event in reader]
                self.check_found(found, position.before)
                assert set(found) == set(everything) - position.before


def payload(said: Said) -> bytes:
    return f"{said.word}/{said.key}/{said.number}".encode()


def said_in(text: bytes) -> Said:
    word, key, number = text.decode().split("/")
    return Said(word, int(key), int(number))


@contextmanager
def reading(peer: Peer, from_cut: Cut | None = None) -> Iterator[StreamReader]:
    """A reader of the whole stream, as a process has it that begins now."""
    catalog, system = peer.process.catalog, peer.world.system
    with ReadAccelerator(catalog.images(), peer.world.store, settings=NO_REPEATS, system=system) as accelerator:
        stream = peer.process.stream()
        source = ObjectSegmentSource(stream, accelerator, peer.world.store, system=system)
        with StreamReader(stream, source, from_cut=from_cut, system=system) as reader:
            yield reader


@pytest.fixture(scope="module")
def counts() -> Iterator[Counter[str]]:
    """What the runs of this module were about, all together."""
    total: Counter[str] = Counter()
    yield total
    assert not total or {each for each, number in total.items() if number} >= ACTS


@pytest.mark.parametrize("seed", range(examples(12)))
def test_whatever_becomes_of_owners_what_was_acknowledged_is_found_once_and_in_order(
    seed: int, counts: Counter[str]
) -> None:
    owners = Owners(seed)
    owners.live(STEPS, counts)
    owners.end()
