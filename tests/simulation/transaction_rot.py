"""Storage that loses or damages the events of a transaction, and an operator who puts them back or gives them up.

As `accel txn abort --give-up` does, the operator gives up only a transaction whose commit is decided and whose events
cannot be read. Then none of its events is read, and the stream goes on with everything else. A merge that had read the
events before they were damaged is the exception: the transaction is then committed, with all of them.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING
from uuid import UUID

from accel.errors import IllegalState, NotInHistory
from accel.history.rules.transactions import TransactionStatus
from accel.history.store import Stream, StreamStore
from accel.streams.uploads import TransactionName, TransactionObjects, refuse_readable
from loaders.backoff import Backoff
from loaders.errors import StoreError, TableError
from loaders.layout import MERGING_PREFIX, TRANSACTIONS_PREFIX
from loaders.store import MemoryStore
from tests.accel.streams.writer.world import HISTORY, NAME
from tests.simulation.scheduler import Violation
from tests.simulation.world import Actor

if TYPE_CHECKING:
    from accel.system import Components
    from tests.simulation.streams import Said, SharedStream

PAUSE_SECONDS_MAX = 30.0
LOOKS, LOOK_SECONDS = 40, 0.5
DAMAGED_SECONDS_MAX = 20.0
PUTS_BACK = 0.4


class TransactionRot(Actor):
    """Damages the data of one transaction after the other, and is the operator, too."""

    def live(self) -> None:
        """A process: some damage."""
        machine = self.machine
        for _ in range(machine.random.randrange(1, 8)):
            machine.scheduler.sleep(machine.random.uniform(0, PAUSE_SECONDS_MAX))
            for _ in range(LOOKS):  # data of a transaction is there for seconds only
                if damage_one(self.shared, machine.memory, machine.random):
                    machine.count("transactions whose events were damaged")
                    break
                machine.scheduler.sleep(LOOK_SECONDS)
            machine.scheduler.sleep(machine.random.uniform(0, DAMAGED_SECONDS_MAX))
            stream = StreamStore.open(machine.store, system=machine.system, settings=HISTORY).stream(*NAME)
            with suppress(StoreError, TableError):
                self._mend(stream)

    def _mend(self, stream: Stream) -> None:
        for transaction in list(self.shared.damaged):
            if self.machine.random.random() < PUTS_BACK:
                put_back(self.shared, self.machine.memory, transaction)
            elif give_up(self.shared, stream, self.machine.store, transaction, self.machine.system):
                self.machine.count("transactions given up")


def damage_one(shared: SharedStream, memory: MemoryStore, random: Random) -> bool:
    """Damage or delete the data of a transaction of the shared stream; returns whether there was one."""
    found = [info.key for info in memory.list(TRANSACTIONS_PREFIX) if not info.key.startswith(MERGING_PREFIX)]
    named = {UUID(key.rpartition("/")[2]): key for key in found}
    sound = [each for each in shared.words_of if each in named and each not in shared.damaged]
    if not sound:
        return False
    transaction = random.choice(sound)
    key = named[transaction]
    right = bytes(memory.get(key).body)
    shared.damaged[transaction] = key, right
    if random.random() < 0.5:
        memory.delete(key)
    else:
        body = bytearray(right)
        body[random.randrange(len(body))] ^= 1 << random.randrange(8)
        memory.put(key, bytes(body))
    return True


def put_back(shared: SharedStream, memory: MemoryStore, transaction: UUID) -> None:
    """Put back what was damaged, from a copy, also if a merge has deleted it meanwhile."""
    key, right = shared.damaged.pop(transaction)
    memory.put(key, right)


def give_up(shared: SharedStream, stream: Stream, store: object, transaction: UUID, system: Components) -> bool:
    """Give a transaction up, if it can be; returns whether it was."""
    objects = TransactionObjects(store, Backoff(system.sleep, system.jitter))  # type: ignore[arg-type]
    record = stream.transactions.read(transaction)
    if record is None or record.is_merged:  # it ended before, with its events, or without them
        shared.damaged.pop(transaction, None)
        return False
    if record.status is not TransactionStatus.COMMITTING:
        return False
    try:
        refuse_readable(objects, TransactionName(stream.unique_id, transaction), record.contents)
        shared.given_up.add(shared.words_of[transaction])  # it may happen from here on, whatever is answered
        stream.transactions.give_up(transaction)
    except (IllegalState, NotInHistory):
        shared.given_up.discard(shared.words_of[transaction])
        return False
    shared.damaged.pop(transaction, None)
    return True


def check_given_up(shared: SharedStream, stream: Stream, found: set[Said]) -> None:
    """Transactions that were given up are aborted without events in the stream, or committed with all of them."""
    for transaction, word in shared.words_of.items():
        if word not in shared.given_up:
            continue
        status, events = stream.transactions.status(transaction), set(shared.transactions[word])
        if status is not TransactionStatus.COMMITTED and events & found:
            raise Violation(f"transaction {transaction} was given up, is {status}, and its events were read")
        if status is TransactionStatus.COMMITTED and (lost := events - found - shared.truncated):
            raise Violation(f"transaction {transaction} is committed without {sorted(lost)[:5]}")
