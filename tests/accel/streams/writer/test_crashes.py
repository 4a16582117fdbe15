"""A process may die before any of its writes: a new session finds everything that was durable, once, and goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from itertools import chain
from typing import NamedTuple, TypeVar
from uuid import UUID

from accel.history.rules.transactions import TransactionStatus
from accel.streams.writer import StreamWriter
from loaders.store import MemoryStore, ObjectStore
from loaders.store.decorated import WRITES, DecoratedStore, StoreCall
from tests.accel.streams.writer.world import Process, World, created, ids_of
from tests.examples import examples

Answer = TypeVar("Answer")


class Story:
    """What one process does, and how far it came."""

    def __init__(self) -> None:
        self.flushed: list[bytes] = []
        self.written: list[bytes] = []
        self.transactions: dict[UUID, list[bytes]] = {}
        self.committed: list[UUID] = []
        self.aborted: list[UUID] = []

    def tell(self, process: Process) -> None:
        """Write, commit, abort, scale, commit what was begun before, write again."""
        with process.writer() as writer:
            older = self._begun(writer.begin_transaction(), "older")
            for number, payload in enumerate(self.transactions[older]):
                writer.write(payload, b"key-%d" % number, transaction=older)
            self._write(writer, "first")
            writer.flush()
            self.flushed = list(self.written)
            self._commit(writer, "committed")
            gone = self._begun(writer.begin_transaction(), "gone")
            writer.write_many([(each, each) for each in self.transactions[gone]], transaction=gone)
            writer.abort_transaction(gone)
            self.aborted.append(gone)
            process.stream().scale(ids_of("0@0"), [(0.0, 0.25), (0.25, 0.5)])
            self._write(writer, "second")
            writer.flush()
            self.flushed = list(self.written)
            writer.commit_transaction(older)
            self.committed.append(older)
            self._write(writer, "third")
        self.flushed = list(self.written)
        process.host.close()

    def _begun(self, transaction: UUID, word: str) -> UUID:
        self.transactions[transaction] = [b"%s-%d" % (word.encode(), number) for number in range(5)]
        return transaction

    def _commit(self, writer: StreamWriter, word: str) -> None:
        transaction = self._begun(writer.begin_transaction(), word)
        writer.write_many([(each, each) for each in self.transactions[transaction]], transaction=transaction)
        writer.commit_transaction(transaction)
        self.committed.append(transaction)

    def _write(self, writer: StreamWriter, word: str) -> None:
        for number in range(6):
            payload = b"%s-%d" % (word.encode(), number)
            writer.write(payload, b"key-%d" % (number % 3))
            self.written.append(payload)


def check(world: World, story: Story) -> None:
    """A new session recovers the stream and writes on; then everything is there as often as it should be."""
    with world.process() as process:
        stream = process.stream()
        stream.recover()
        stream.commit()
        statuses = {each: stream.transactions.status(each) for each in story.transactions}
        with process.writer() as writer:
            writer.write(b"after", b"key-0")
        process.host.close()
    batches = chain.from_iterable(world.check_times().values())
    counts = Counter(event.payload for batch in batches for event in batch)
    assert counts[b"after"] == 1
    assert [each for each in story.flushed if counts[each] != 1] == []
    assert [each for each in story.written if counts[each] > 1] == []
    for transaction, payloads in story.transactions.items():
        wanted = int(statuses[transaction] is TransactionStatus.COMMITTED)
        assert [counts[each] for each in payloads] == [wanted] * len(payloads), statuses[transaction]
    assert {statuses[each] for each in story.committed} <= {TransactionStatus.COMMITTED}
    assert {statuses[each] for each in story.aborted} <= {TransactionStatus.ABORTED}


class Moment(NamedTuple):
    """What there is when a process dies before a write.

    Args:
        store: a copy of the bucket.
        story: how far the process came.
        seconds: what the clock says.
    """

    store: MemoryStore
    story: Story
    seconds: float


class Recorder(DecoratedStore):
    """Takes down all moments before a write: what a process leaves that dies there, which asks for nothing any more."""

    def __init__(self, world: World, story: Story) -> None:
        super().__init__(world.store)
        self.world, self.story = world, story
        self.moments: list[Moment] = []

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        if call.operation in WRITES:
            self.moments.append(Moment(copy_of(self.world.store), deepcopy(self.story), self.world.seconds))
        return send()


def copy_of(store: ObjectStore) -> MemoryStore:
    assert isinstance(store, MemoryStore)
    copied = MemoryStore(clock=store._clock)
    copied._objects, copied._keys = dict(store._objects), list(store._keys)
    return copied


def test_nothing_is_lost_and_nothing_comes_twice_wherever_a_process_dies() -> None:
    world, story = created(), Story()
    recorder = Recorder(world, story)
    with world.process(recorder) as process:
        story.tell(process)
    check(world, story)
    assert world.transaction_keys() == []
    assert len(recorder.moments) > 50
    step = 5 if examples(100) <= 100 else 1
    for number, moment in list(enumerate(recorder.moments))[::step]:
        world.store, world.seconds = moment.store, moment.seconds
        try:
            check(world, moment.story)
        except AssertionError as error:
            raise AssertionError(f"crash before write {number}") from error
