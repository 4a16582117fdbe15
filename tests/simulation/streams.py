"""Processes that own segments of one stream, send each other's events to their owners, and readers of it.

Three nodes write, scale, truncate and commit transactions; they take segments over from owners that are dead, or that
they believe to be; requests between them are lost, late, or answered to nobody. Each has threads beside its callers,
all in simulated time. Readers read the whole stream, from its head or from where somebody stood; members of a group
share it.

The oracle knows which events were acknowledged. Each life of a process writes events of its own word, and so does each
transaction, so an order is known for each word and key.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from accel import ReadAccelerator, Settings, StreamReader
from accel.errors import (
    AccelError,
    CommitRefused,
    ForwardInDoubt,
    IllegalState,
    InvalidArgument,
    NotInHistory,
    OperationNotAllowed,
    OwnerUnreachable,
    PositionTruncated,
    ReaderReplaced,
    ReaderStalled,
    ScaleConflict,
    ScalePrecondition,
    SegmentsElsewhere,
    StreamsReleased,
    TransactionDamaged,
    WriterStalled,
)
from accel.history.rules.configuration import StreamConfiguration
from accel.history.rules.states import StreamState
from accel.history.rules.values import Cut
from accel.history.store import Stream, StreamStore
from accel.streams.acknowledgements import WriteFuture
from accel.streams.group_readers import GroupReader
from accel.streams.groups import ReaderGroup
from accel.streams.segment_source import ObjectSegmentSource, cut_at
from accel.streams.settings import SegmentsSettings
from accel.streams.shared.forwarding import ForwardingClient
from accel.streams.writer import StreamWriter
from loaders.errors import DataConflict, StoreError, TableError
from tests.accel.streams.writer.network import QUICK, SECRET, SMALL, Network, Peer
from tests.accel.streams.writer.world import HISTORY, MOVES, NAME, Process, node_of
from tests.simulation.people import CUTS
from tests.simulation.scheduler import Violation
from tests.simulation.transaction_rot import check_given_up, put_back
from tests.simulation.world import START_SECONDS, Actor

if TYPE_CHECKING:
    from accel.system import Components
    from tests.simulation.world import Machine, World

OWNERS = (7, 8, 9)
KEYS = 5
GROUP = "team"
MEMBER_LEASE_SECONDS = 15.0
TWINS = 0.5
READ = Settings(parallel_loads=1, hedge_percent=0)
LOST = 0.03
IN_VAIN_MAX = 3
SPLITS_MAX = 4
COMMITS_MAX = 5
WRITES_WHILE_COMMITTING = 0.5
READS_BY_TIME = 0.4
NOT_DONE = (
    SegmentsElsewhere,
    OperationNotAllowed,
    OwnerUnreachable,
    ForwardInDoubt,
    CommitRefused,
    IllegalState,
    ScaleConflict,
    ScalePrecondition,
    InvalidArgument,
    NotInHistory,
    TransactionDamaged,
    WriterStalled,
)
"""What a process may be told that shares a stream with others; it goes on."""


class Said(NamedTuple):
    """An event, as its payload says."""

    word: str
    key: int
    number: int

    @property
    def payload(self) -> bytes:
        """Its bytes."""
        return f"{self.word}/{self.key}/{self.number}".encode()

    @classmethod
    def of(cls, payload: bytes) -> Said:
        """What bytes say."""
        word, key, number = payload.decode().split("/")
        return cls(word, int(key), int(number))


class Position(NamedTuple):
    """A cut, and what a reader was given before it."""

    cut: Cut
    before: frozenset[Said]


@dataclass
class View:
    """The world as the doubles of the writers' tests see it: one process, its clock and its store."""

    system: Components
    store: Any
    settings: SegmentsSettings
    moves: tuple[int, int] | None = None

    def start(self, store: Any = None, settings: SegmentsSettings | None = None, node_id: int = 0) -> Process:
        """See `tests.accel.streams.writer.world.World.start`."""
        return Process(self, store or self.store, settings or self.settings, node_id, self.moves)  # type: ignore[arg-type]


def threaded(machine: Machine) -> Components:
    """What a process is given that has threads beside its callers."""
    scheduler, process = machine.scheduler, machine.process
    process.has_threads = True
    return replace(
        machine.system,
        wait=lambda event, seconds: event.wait(seconds),
        start=lambda work, name: scheduler.spawn(f"{machine.name} {name}", lambda: _beside(machine, work), process),
    )


def _beside(machine: Machine, work: Callable[[], object]) -> None:
    """What a thread beside the callers does; what it raises is its own affair, as outside of a simulation."""
    try:
        work()
    except AccelError:
        machine.count("threads that failed")


class SimulatedNetwork(Network):
    """Hands requests to services of other processes, which answer in their own time, or do not."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self._processes: dict[str, Any] = {}

    def join(self, machine: Machine, address: str) -> None:
        """The process that runs on a machine now answers at an address."""
        self._processes[address] = machine.process

    def sender(self, machine: Machine) -> Callable[..., tuple[int, bytes]]:
        """`send`, of a machine's process."""

        def send(url: str, body: bytes, headers: dict[str, str], timeout_seconds: float) -> tuple[int, bytes]:
            return self._sent(machine, url, body, headers, timeout_seconds)

        return send

    def _sent(
        self, machine: Machine, url: str, body: bytes, headers: dict[str, str], timeout_seconds: float
    ) -> tuple[int, bytes]:
        scheduler, lost = self._world.scheduler, LOST if self._world.plan.faults else 0.0
        machine.store.wait_for_other("send")
        process = next((each for address, each in self._processes.items() if url.startswith(address)), None)
        if process is None or process.is_dead:
            raise ConnectionRefusedError(url)
        if machine.random.random() < lost:
            raise TimeoutError(url)
        caller, answers, waits = scheduler.current, list[Any](), [True]

        def serve() -> None:
            try:
                answers.append(Network.send(self, url, body, headers, timeout_seconds))
            except AccelError as error:
                answers.append((500, str(error).encode()))
            except Exception as error:  # noqa: BLE001 - goes to the one who asked
                answers.append(error)
            if waits and caller is not None:
                scheduler.wake(caller)

        scheduler.spawn(f"serve {url}", serve, process)
        scheduler.block(min(timeout_seconds, 20.0))
        waits.clear()
        if not answers or machine.random.random() < lost:
            raise TimeoutError(url)
        if isinstance(answers[0], Exception):
            raise answers[0]
        return answers[0]  # type: ignore[no-any-return]


class SimulatedPeer(Peer):
    """A process that owns segments, whose requests go over the network of the world."""

    def __init__(self, machine: Machine, view: View, node_id: int, network: SimulatedNetwork) -> None:
        self._send = network.sender(machine)
        super().__init__(view, node_id, network)  # type: ignore[arg-type]
        network.join(machine, f"http://node-{node_id}")

    def client(self) -> ForwardingClient:
        """Asks all owners."""
        addresses = [f"http://node-{node_id}" for node_id in OWNERS]
        return ForwardingClient(addresses, SECRET, settings=SMALL, send=self._send)

    def stream(self) -> Stream:
        return self.shared(self.client())[0]

    def writer(self) -> StreamWriter:
        return StreamWriter(*self.shared(self.client()), settings=QUICK)


@dataclass(eq=False)
class Life:
    """One life of a process: what it wrote, with its futures, its open transaction, and one whose commit failed."""

    peer: SimulatedPeer
    word: str
    writer: StreamWriter
    numbers: Iterator[int] = field(default_factory=count)
    under_way: list[tuple[Said, WriteFuture]] = field(default_factory=list)
    transaction: UUID | None = None
    transaction_word: str = ""
    ending: tuple[UUID, str] | None = None
    failures: int = 0


class SharedStream:
    """A stream of a world that several nodes write, and what is known of it.

    Args:
        world: with the bucket.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.network = SimulatedNetwork(world)
        self.words = count()
        self.durable: set[Said] = set()
        self.written: set[Said] = set()
        self.truncated: set[Said] = set()
        self.transactions: dict[str, list[Said]] = {}
        self.places: dict[Said, tuple[int, int]] = {}
        self.words_of: dict[UUID, str] = {}
        self.damaged: dict[UUID, tuple[str, bytes]] = {}
        self.given_up: set[str] = set()
        self.positions: list[Position] = []
        self.given: dict[Said, str] = {}
        self.may_come_again: set[Said] = set()
        self.heard_seconds: dict[str, float] = {}
        self.twins: set[str | None] = set()
        view = View(replace(world.system, sleep=lambda _: None), world.memory, SegmentsSettings())
        process = view.start(node_id=OWNERS[0])
        process.streams.create_scope(NAME[0])
        wanted = StreamConfiguration(min_segments=1)
        process.streams.create_stream(*NAME, wanted, int(START_SECONDS * 1000), segments=3)
        process.die()

    def view(self, machine: Machine) -> View:
        """What a process of a machine is given."""
        small = SegmentsSettings(linger_seconds=0.5, uploads_at_once=2)
        return View(threaded(machine), machine.store, small, MOVES)

    def check_found(self, found: list[Said], durable: set[Said], before: frozenset[Said] = frozenset()) -> None:
        """What a reader was given has all that was durable when it began, once, in order."""
        if twice := {each for each in found if found.count(each) > 1} if len(set(found)) < len(found) else set():
            raise Violation(f"events were read twice: {sorted(twice)[:5]}")
        kept = {each for each in durable if each.word not in self.given_up}
        if lost := kept - self.truncated - before - set(found):
            raise Violation(f"{len(lost)} acknowledged events were not read: {sorted(lost)[:5]}")
        if invented := set(found) - self.written:
            raise Violation(f"events were read that nobody wrote: {sorted(invented)[:5]}")
        last: defaultdict[tuple[str, int], int] = defaultdict(lambda: -1)
        for said in found:
            if said.number <= last[said.word, said.key]:
                raise Violation(f"{said} was read after number {last[said.word, said.key]} of its key")
            last[said.word, said.key] = said.number
        self.world.count("events compared", len(found))

    def give(self, member: str, said: Said) -> None:
        """A member of the group was given an event."""
        before = self.given.get(said)
        is_of_twins = not self.twins.isdisjoint({before, member})  # one may have taken over from the other one
        if before is not None and not is_of_twins and said not in self.may_come_again and not self._is_silent(before):
            raise Violation(f"{said} was given to {before}, and then to {member}")
        if said not in self.written:
            raise Violation(f"{said} was given to {member}, and nobody wrote it")
        self.given[said] = member
        self.world.count("events given to a group")

    def _is_silent(self, member: str) -> bool:
        """Whether a member has not left, and its last call ended longer ago than its lease: others have what it had."""
        return self.world.scheduler.seconds - self.heard_seconds.get(member, math.inf) > MEMBER_LEASE_SECONDS


class OwnerActor(Actor):
    """A node: process after process, each of which owns segments, writes, and does what else it likes."""

    def __init__(self, machine: Machine, node_id: int) -> None:
        super().__init__(machine)
        self.node_id = node_id
        often = [self.write] * 5 + [self.flush, self.take_over, *[self.write_to_transaction, self.commit] * 2]
        self.acts: list[Callable[[Life], None]] = [
            *often * 2,
            self.split,
            self.merge,
            self.truncate,
            self.cut,
            self.scale_elsewhere,
        ]

    def live(self) -> None:
        """A process."""
        machine = self.machine
        peer = SimulatedPeer(machine, self.shared.view(machine), self.node_id, self.shared.network)
        peer.registration.keep_alive()
        life = Life(peer, f"w{next(self.shared.words)}", peer.writer())
        try:
            for _ in range(machine.random.randrange(5, 30)):
                act = machine.random.choice(self.acts)
                try:
                    act(life)
                except NOT_DONE as error:
                    machine.count(f"{act.__name__}: {type(error).__name__}")
                except (StoreError, TableError) as error:
                    machine.count(f"{act.__name__}: {type(error).__name__}")
                finally:
                    self.note(life)
                machine.scheduler.sleep(machine.random.uniform(0, 3))
            with suppress(*NOT_DONE, StoreError, TableError):
                self.flush(life)
            self.note(life)
        finally:
            peer.registration.stop()
            machine.process.is_dead = True  # the end of a process ends its threads
            machine.scheduler.end_tasks_of(machine.process)

    def note(self, life: Life) -> None:
        """What is known to be durable by now."""
        for said, future in life.under_way:
            if future.done() and future.exception() is None:
                self.shared.durable.add(said)
        life.under_way = [each for each in life.under_way if not each[1].done()]

    def write(self, life: Life) -> None:
        """Some events of this life."""
        for _ in range(self.machine.random.randint(1, 12)):
            number = next(life.numbers)
            said = Said(life.word, number % KEYS, number)
            self.shared.written.add(said)
            life.under_way.append((said, life.writer.write(said.payload, f"key-{said.key}")))
        self.machine.count("writes")

    def flush(self, life: Life) -> None:
        """Wait until they are durable."""
        life.writer.flush()
        self.machine.count("flushes")

    def write_to_transaction(self, life: Life) -> None:
        """Some events of its open transaction, or of a new one."""
        if life.transaction is None:
            life.transaction, life.transaction_word = life.writer.begin_transaction(), f"t{next(self.shared.words)}"
            self.shared.words_of[life.transaction] = life.transaction_word
        events = self.shared.transactions.setdefault(life.transaction_word, [])
        for _ in range(self.machine.random.randint(1, 8)):
            said = Said(life.transaction_word, len(events) % KEYS, len(events))
            life.writer.write(said.payload, f"key-{said.key}", transaction=life.transaction)
            events.append(said)

    def commit(self, life: Life) -> None:
        """Its open transaction, or the one whose commit failed; a thread of the process goes on writing to it."""
        if life.ending is None and life.transaction is not None:
            life.ending, life.failures = (life.transaction, life.transaction_word), 0
            life.transaction = None
        if life.ending is None:
            return
        transaction, word = life.ending
        self.shared.written |= set(self.shared.transactions[word])
        if self.machine.random.random() < WRITES_WHILE_COMMITTING:
            self._write_meanwhile(life, transaction, word)
        try:
            life.writer.commit_transaction(transaction)
        except DataConflict as error:
            life.failures += 1
            if life.failures > COMMITS_MAX:
                raise Violation(f"expected that a repeated commit ends, found again: {error}") from error
            raise
        except (IllegalState, InvalidArgument, NotInHistory):
            life.ending = None  # it was aborted
            raise
        life.ending = None
        self.shared.durable |= set(self.shared.transactions[word])
        self.machine.count("transactions of events")

    def _write_meanwhile(self, life: Life, transaction: UUID, word: str) -> None:
        """Write to a transaction that is being committed: refused, or all of it is in the stream."""
        machine, events = self.machine, self.shared.transactions[word]

        def write() -> None:
            for _ in range(machine.random.randint(1, 6)):
                machine.scheduler.sleep(machine.random.uniform(0, 0.5))
                said = Said(word, len(events) % KEYS, len(events))
                self.shared.written.add(said)
                try:
                    future = life.writer.write(said.payload, f"key-{said.key}", transaction=transaction)
                except AccelError:
                    machine.count("late writes to a transaction that were refused")
                    return
                events.append(said)
                life.under_way.append((said, future))

        machine.scheduler.spawn(f"{machine.name} late writer", write, machine.process)

    def split(self, life: Life) -> None:
        """A segment."""
        stream = life.peer.stream()
        active = stream.active_segments().ids.tolist()
        if len(active) < 6:
            stream.split(self.machine.random.choice(active))
            self.machine.count("splits beside writers")

    def merge(self, life: Life) -> None:
        """Two segments."""
        stream = life.peer.stream()
        active = sorted(stream.active_segments(), key=lambda each: each.key_start)
        at = self.machine.random.randrange(len(active))
        if at:
            stream.merge(active[at - 1].id, active[at].id)
            self.machine.count("merges beside writers")

    def scale_elsewhere(self, life: Life) -> None:
        """End what others have begun."""
        self.machine.count("workflows ended", len(life.peer.stream().recover()))

    def truncate(self, life: Life) -> None:
        """To where a reader stood."""
        if self.shared.positions:
            chosen = self.machine.random.choice(self.shared.positions[-8:])
            self.shared.truncated |= chosen.before  # it may happen from here on, whatever is told
            life.peer.stream().truncate(chosen.cut)
            self.machine.count("truncations beside readers")

    def cut(self, life: Life) -> None:
        """As a person does, who may have mistyped it."""
        machine = self.machine
        machine.random.choice(CUTS)(self.shared, life.peer.stream(), machine.random, machine.count)

    def take_over(self, life: Life) -> None:
        """From an owner that lives, or died, by one that takes it for dead."""
        host = life.peer.process.host
        others = {each: node_of(host, NAME, each) for each in life.peer.stream().active_segments().ids.tolist()}
        theirs = {each: node_id for each, node_id in others.items() if node_id not in (None, host.node_id)}
        if theirs:
            segment_id = self.machine.random.choice(list(theirs))
            host.take_over(NAME, {segment_id: theirs[segment_id] or 0})
            self.machine.count("segments taken over")


class EventReader(Actor):
    """Reads the whole stream, or from a position on; and leaves positions."""

    def live(self) -> None:
        """A process: some readers, one after the other."""
        for _ in range(self.machine.random.randrange(1, 4)):
            self.machine.scheduler.sleep(self.machine.random.uniform(0, 30))
            chosen = self.machine.random.choice([None, *self.shared.positions[-4:]])
            with suppress(PositionTruncated, InvalidArgument, ReaderStalled):  # it was too slow, or others too quick
                if self.machine.random.random() < READS_BY_TIME:
                    self.read_from_a_time()
                else:
                    self.read(chosen)

    def read(self, position: Position | None) -> None:
        """Read to the end, and compare."""
        durable = set(self.shared.durable)
        before = frozenset[Said]() if position is None else position.before
        found: list[Said] = []
        stop = self.machine.random.randrange(0, 60)
        with reading(self.machine, None if position is None else position.cut) as reader:
            if position is None:  # what was truncated by now does not come
                before = frozenset(self.shared.truncated)
            while (event := reader.next_event()) is not None:
                found.append(Said.of(event.payload))
                self.shared.places[found[-1]] = event.segment_id, event.offset
                if len(found) == stop and position is None and self.machine.random.random() < 0.5:
                    known = frozenset({*found, *self.shared.truncated})
                    self.shared.positions.append(Position(dict(reader.position()), known))
        self.shared.check_found(found, durable, before)
        self.machine.count("streams read")

    def read_from_a_time(self) -> None:
        """Read all that arrived at some time or later; compare with a read of everything before."""
        with reading(self.machine) as reader:
            values = {Said.of(event.payload): event.value for event in reader}
        if not values:
            return
        with reading_parts(self.machine) as (stream, source, system):
            epochs = [each.creation_time_ms for each in stream.epochs.between(0, stream.current_epoch().epoch)]
            chosen = self.machine.random.choice([list(values.values()), epochs])
            time_ms = self.machine.random.choice(chosen) + self.machine.random.randint(-2000, 2000)
            cut = cut_at(stream, source, time_ms)
            with StreamReader(stream, source, from_cut=cut, system=system) as reader:
                found = {Said.of(event.payload) for event in reader}
        expected = {said for said, value in values.items() if value >= time_ms}
        if skipped := expected - found - self.shared.truncated:
            raise Violation(
                f"{len(skipped)} events of {time_ms} or later were skipped: {sorted(skipped)[:5]}, by {cut}"
            )
        self.machine.count("reads from a time on")
        self.machine.count("events compared", len(found))


@dataclass(eq=False)
class Member(Actor):
    """A reader of a group: it joins, is given events, leaves, or dies."""

    lives: Iterator[int] = field(default_factory=count)

    def live(self) -> None:
        """A process: one member, which may have the name of another one that is there, or was."""
        machine, life = self.machine, f"{self.machine.name}-{next(self.lives)}"
        name, mine = life, set[Said]()
        if machine.random.random() < TWINS:
            name = "twin"
            self.shared.twins.add(life)
            machine.count("members with the name of others")
        try:
            with reading_parts(machine) as (stream, source, system):
                group = ReaderGroup.open(stream, GROUP)
                with GroupReader(
                    stream,
                    source,
                    group,
                    name,
                    rebalance_seconds=2.0,
                    lease_seconds=MEMBER_LEASE_SECONDS,
                    system=system,
                ) as reader:
                    for _ in range(machine.random.randrange(5, 60)):
                        mine |= self._given(reader, life)
                        machine.scheduler.sleep(machine.random.uniform(0, 2))
                    reader.commit()
                    mine.clear()
                    self.shared.heard_seconds.pop(life, None)
        except ReaderReplaced:
            if name == life:
                raise
            machine.count("members that were replaced by one of their name")
        except IllegalState:
            self._check_that_it_was_silent()
        finally:
            self.shared.may_come_again |= mine

    def _check_that_it_was_silent(self) -> None:
        """A member that was held up for longer than its lease is no longer in the group; its next life joins again."""
        if not (self.machine.world.plan.pauses or self.machine.world.plan.faults):
            raise Violation(f"{self.machine.name} was removed from its group, and nothing held it up")
        self.machine.count("members that were silent for longer than their lease")

    def _given(self, reader: GroupReader, life: str) -> set[Said]:
        try:
            event = reader.next_event(timeout_seconds=3.0)
        except PositionTruncated:
            reader.skip_to_head()
            self.machine.count("members that skipped to the head")
            return set()
        finally:
            self.shared.heard_seconds[life] = self.machine.scheduler.seconds
        if event is None:
            return set()
        said = Said.of(event.payload)
        self.shared.give(life, said)
        return {said}


@contextmanager
def reading_parts(
    machine: Machine, name: tuple[str, str] = NAME
) -> Iterator[tuple[Stream, ObjectSegmentSource, Components]]:
    """What readers of a machine's process read with."""
    system, store = threaded(machine), machine.store
    catalog = machine.open(system)
    with ReadAccelerator(catalog.images(), store, settings=READ, system=system) as accelerator:
        stream = StreamStore.open(store, system=system, settings=HISTORY).stream(*name)
        yield stream, ObjectSegmentSource(stream, accelerator, store, system=system), system


@contextmanager
def reading(machine: Machine, from_cut: Cut | None = None, name: tuple[str, str] = NAME) -> Iterator[StreamReader]:
    """A reader of the whole stream, as a process has it that begins now."""
    with (
        reading_parts(machine, name) as (stream, source, system),
        StreamReader(stream, source, from_cut=from_cut, system=system) as reader,
    ):
        yield reader


def _read_rest_of_group(machine: Machine) -> None:
    """Whoever was in the group is dead: one member is given all that is left."""
    shared: SharedStream = machine.world.shared
    with reading_parts(machine) as (stream, source, system):
        group = ReaderGroup.open(stream, GROUP)
        with GroupReader(stream, source, group, "last", rebalance_seconds=2.0, system=system) as reader:
            in_vain = 0
            while in_vain < IN_VAIN_MAX:
                try:
                    event = reader.next_event(timeout_seconds=15.0)
                except PositionTruncated:
                    reader.skip_to_head()
                    continue
                in_vain = in_vain + 1 if event is None else 0
                if event is not None:
                    shared.give("last", Said.of(event.payload))
    kept = {each for each in shared.durable if each.word not in shared.given_up}
    if lost := kept - shared.truncated - set(shared.given):
        raise Violation(f"{len(lost)} acknowledged events were not given to the group: {sorted(lost)[:5]}")


def _split_at_the_end(peers: Sequence[SimulatedPeer], stream: Stream) -> None:
    """The stream takes a scale. What was read before may have taken longer than a lease: owners renew theirs first.

    A split that takes longer than a lease, too, loses segments to another owner on its way (`StreamsReleased`), and
    `recover` completes it.
    """
    epoch = stream.current_epoch().epoch
    for _ in range(SPLITS_MAX):
        for peer in peers:
            peer.registration.renew()
            with suppress(*NOT_DONE):
                peer.stream().recover()
        if stream.current_epoch().epoch == epoch:
            with suppress(StreamsReleased, SegmentsElsewhere):
                stream.split(stream.active_segments().ids.tolist()[0])
    if stream.current_epoch().epoch != epoch + 1:
        raise Violation(f"expected that a scale is taken, found epoch {stream.current_epoch().epoch}")


def settle_stream(machine: Machine) -> None:
    """All owners are there, and nothing is lost on the way: workflows come to their ends, and all is found."""
    shared: SharedStream = machine.world.shared
    machine.begin()
    machine.scheduler.sleep(60.0)  # leases of owners that died are over
    for transaction in list(shared.damaged):
        put_back(shared, machine.memory, transaction)
    peers = [SimulatedPeer(machine, shared.view(machine), each, shared.network) for each in OWNERS]
    for _ in range(4):
        for peer in peers:
            peer.registration.renew()
            with suppress(*NOT_DONE):
                peer.stream().recover()
    stream = peers[0].stream()
    if stream.state() is not StreamState.ACTIVE:
        raise Violation(f"expected a stream that is active, found {stream.state()}")
    with reading(machine) as reader:
        everything = [Said.of(event.payload) for event in reader]
    shared.check_found(everything, shared.durable)
    for events in shared.transactions.values():
        if not (set(events) <= set(everything) | shared.truncated or set(events).isdisjoint(everything)):
            raise Violation(f"of a transaction only {set(events) & set(everything)} was read")
    check_given_up(shared, stream, set(everything))
    for position in shared.positions[-3:]:
        with suppress(PositionTruncated, InvalidArgument), reading(machine, position.cut) as reader:
            found = [Said.of(event.payload) for event in reader]
            shared.check_found(found, shared.durable, position.before)
    _read_rest_of_group(machine)
    _split_at_the_end(peers, stream)
    stream.recover()  # a request that could still take the stream is spent once another workflow has run
    if any(not each.has_ended for each in stream.requests()):
        raise Violation(f"expected no request that goes on for ever, found {stream.requests()}")
    machine.count("streams that took a scale at the end")
