"""The events of a decided transaction are in the stream, or it is said that they are not: never neither."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.errors import AccelError, IllegalState, NotInHistory, TransactionDamaged
from accel.history.rules.states import StreamState
from accel.history.rules.transactions import NO_CONTENTS, TransactionContents, TransactionStatus
from accel.history.store import Stream
from accel.streams.rules.routing import key_position
from accel.streams.rules.transaction_data import TransactionEvents, decode_transaction
from accel.streams.uploads import TransactionName, TransactionObjects, contents_of, refuse_readable
from accel.testing import Crash, CrashStore
from loaders.layout import MERGING_PREFIX, transaction_key
from loaders.store import ObjectStore
from loaders.store.decorated import DecoratedStore, StoreCall
from tests.accel.streams.writer.world import NAME, NODE, Process, Watched, World, created, ids_of
from tests.examples import examples, places

Answer = TypeVar("Answer")
OTHER = NODE + 3
EVENTS = [(b"%d" % number, b"key-%d" % number) for number in range(9)]


def decided(process: Process, events: list[tuple[bytes, bytes]] = EVENTS, *, says_contents: bool = True) -> UUID:
    """A transaction whose process dies between the decision and the merge."""
    stream = process.stream()
    transaction = stream.transactions.begin()
    positions = np.array([key_position(key) for _, key in events])
    held = TransactionEvents(positions, [payload for payload, _ in events])
    kept = process.host.keep_transaction(TransactionName(stream.unique_id, transaction), held)
    stream.transactions.seal(transaction, commit=True, contents=kept if says_contents else None)
    return transaction


def key_of(stream: Stream, transaction: UUID) -> str:
    return transaction_key(stream.unique_id, transaction)


def damage_of(raised: pytest.ExceptionInfo[TransactionDamaged]) -> tuple[UUID, str, str, str]:
    error = raised.value
    return error.transaction, error.key, error.expected, error.found


Damage = Callable[[ObjectStore, str], object]
DAMAGES: dict[str, tuple[Damage, str]] = {
    "deleted": (lambda store, key: store.delete(key), "no object"),
    "changed": (lambda store, key: store.put(key, store.get(key).body[:-3] + b"xyz"), "another one"),
    "cut": (lambda store, key: store.put(key, store.get(key).body[:-3]), "another one"),
    "empty": (lambda store, key: store.put(key, b""), "0 bytes"),
}


@pytest.mark.parametrize("says_contents", [True, False])
@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_transaction_is_not_committed_and_named(
    world: World, name: str, process: Process, *, says_contents: bool
) -> None:
    damage, found = DAMAGES[name]
    stream = process.stream()
    transaction = decided(process, says_contents=says_contents)
    key = key_of(stream, transaction)
    damage(world.store, key)
    if name == "deleted" and not says_contents:  # nothing says that there ever was an event
        stream.commit()
        assert stream.transactions.status(transaction) is TransactionStatus.COMMITTED
        return
    for act in (stream.commit, stream.recover, stream.commit):
        with pytest.raises(TransactionDamaged) as raised:
            act()
        at, where, expected, seen = damage_of(raised)
        assert (at, where) == (transaction, key)
        assert found in seen
        assert not says_contents or "9 events in " in expected
        for part in (str(transaction), key, expected, seen):
            assert part in str(raised.value)
    assert stream.transactions.status(transaction) is TransactionStatus.COMMITTING
    assert stream.state() is StreamState.COMMITTING_TXN
    assert world.payloads() == []


def test_a_sound_object_with_other_events_is_damage(world: World, process: Process) -> None:
    stream = process.stream()
    transaction, other = decided(process), decided(process, EVENTS[:5])
    world.store.put(key_of(stream, transaction), world.store.get(key_of(stream, other)).body)
    with pytest.raises(TransactionDamaged, match=r"expected 9 events in .*, found 5 events in"):
        stream.commit()
    assert world.payloads() == []


def test_a_restored_object_lets_the_commit_go_on(world: World, process: Process) -> None:
    stream = process.stream()
    transaction = decided(process)
    key = key_of(stream, transaction)
    body = world.store.get(key).body
    world.store.delete(key)
    with pytest.raises(TransactionDamaged):
        stream.commit()
    world.store.put(key, body)
    assert stream.recover() == ["commit"]
    assert stream.transactions.status(transaction) is TransactionStatus.COMMITTED
    assert sorted(world.payloads()) == [payload for payload, _ in EVENTS]
    assert world.transaction_keys() == []


@pytest.mark.parametrize("rolls", [False, True])
def test_a_transaction_that_is_given_up_is_aborted_and_all_else_goes_on(
    world: World, process: Process, *, rolls: bool
) -> None:
    stream = process.stream()
    lost, sound = decided(process), decided(process, [(b"sound", b"key")])
    if rolls:
        stream.scale(ids_of("0@0"), [(0.0, 0.5)])
    world.store.delete(key_of(stream, lost))
    with pytest.raises(TransactionDamaged):
        stream.commit()
    with pytest.raises(IllegalState, match="COMMITTING"):
        stream.transactions.abort(lost)
    for _ in range(2):
        assert stream.transactions.give_up(lost) is TransactionStatus.ABORTED
    assert stream.recover() == ["commit"]
    statuses = [stream.transactions.status(each) for each in (lost, sound)]
    assert statuses == [TransactionStatus.ABORTED, TransactionStatus.COMMITTED]
    with pytest.raises(IllegalState, match=r"9 events in .* bytes were given up by hand"):
        stream.transactions.seal(lost, commit=True)
    assert stream.state() is StreamState.ACTIVE
    stream.split(stream.active_segments()[0].id)
    with process.writer() as writer:
        following = writer.begin_transaction()
        writer.write(b"next", b"key", transaction=following)
        writer.commit_transaction(following)
    assert sorted(world.payloads()) == [b"next", b"sound"]
    assert world.transaction_keys() == []


def test_without_a_host_a_given_up_transaction_is_ended_by_the_process_that_commits(
    world: World, process: Process
) -> None:
    stream = process.stream()
    lost = decided(process)
    world.store.put(key_of(stream, lost), b"not a transaction")
    with pytest.raises(TransactionDamaged):
        stream.commit()
    asking = world.asking()
    assert asking.transactions.give_up(lost) is TransactionStatus.ABORTING
    assert asking.state() is StreamState.COMMITTING_TXN
    assert stream.recover() == ["commit"]
    assert asking.transactions.status(lost) is TransactionStatus.ABORTED
    assert asking.state() is StreamState.ACTIVE
    assert world.transaction_keys() == []


def test_only_a_transaction_that_is_to_be_committed_and_is_not_merged_is_given_up(
    world: World, process: Process
) -> None:
    stream = process.stream()
    opened, committed = stream.transactions.begin(), decided(process)
    with pytest.raises(IllegalState, match="found it open"):
        stream.transactions.give_up(opened)
    contents = contents_of(decode_transaction(world.store.get(key_of(stream, committed)).body, ""))
    stream.workflows.transactions.record_merged({committed: contents})
    with pytest.raises(IllegalState, match="in the segments"):
        stream.transactions.give_up(committed)
    stream.commit()
    with pytest.raises(IllegalState, match="COMMITTED"):
        stream.transactions.give_up(committed)


def test_an_empty_transaction_needs_no_object_and_its_record_says_so(world: World, process: Process) -> None:
    with process.writer() as writer:
        transaction = writer.begin_transaction()
        assert writer._transactions.keep(transaction) == NO_CONTENTS
        assert world.transaction_keys() == []
        writer.commit_transaction(transaction)
        ended = process.stream().workflows.transactions._completed(transaction)
        assert ended is not None
        assert ended.contents == NO_CONTENTS


def test_whoever_decides_a_commit_its_writer_has_said_what_it_has_stored(world: World, process: Process) -> None:
    stream, writer = process.stream(), process.writer()
    transaction = writer.begin_transaction()
    writer.write_many(EVENTS, transaction=transaction)
    writer._transactions.keep(transaction)
    world.asking().transactions.seal(transaction, commit=True)
    world.store.delete(key_of(stream, transaction))
    with pytest.raises(TransactionDamaged, match=r"expected 9 events in .*, found no object"):
        stream.commit()


def test_a_writer_that_stores_its_events_after_another_process_committed_without_them_is_told(
    world: World, process: Process
) -> None:
    """The decision and the whole commit come between the writer's look at the status and its object."""
    with process.writer() as writer:
        transaction = writer.begin_transaction()
        future = writer.write(b"late", b"key", transaction=transaction)
        keep = process.host.keep_transaction

        def others_first(name: TransactionName, events: TransactionEvents) -> TransactionContents:
            process.stream().transactions.seal(transaction, commit=True)
            process.stream().commit()
            return keep(name, events)

        process.host.keep_transaction = others_first  # type: ignore[method-assign]
        with pytest.raises(IllegalState, match=r"1 events in .*write its events again"):
            writer.commit_transaction(transaction)
        assert isinstance(future.exception(0), IllegalState)
    assert world.payloads() == []
    assert world.transaction_keys() == []


# Giving up beside a merge


class Operator:
    """A person who gives a transaction up beside the process that merges it, step by step."""

    def __init__(self, world: World, transaction: UUID, key: str) -> None:
        self.world, self.transaction, self.key = world, transaction, key
        self.process = world.start(node_id=OTHER)
        self.stream = self.process.stream()
        self.may = False

    def lose(self) -> None:
        """The events are lost."""
        if list(self.world.store.list(self.key)):
            self.world.store.delete(self.key)

    def look(self) -> None:
        """See whether the events can be read, or a merge has begun."""
        record = self.stream.transactions.read(self.transaction)
        if record is None or record.is_merged:
            return
        objects = TransactionObjects(self.world.store, self.stream.parts.store.backoff)
        with suppress(IllegalState):
            refuse_readable(objects, TransactionName(self.stream.unique_id, self.transaction), record.contents)
            self.may = True

    def decide(self) -> None:
        """Decide, as a command does."""
        if self.may:
            with suppress(IllegalState, NotInHistory):
                self.world.asking().transactions.give_up(self.transaction)

    def end(self) -> None:
        """End what is to be aborted, as any process that holds segments."""
        self.stream.transactions.end_aborting()


class Merged(NamedTuple):
    """What became of a transaction; requests of the merge, and which of them wrote the intent."""

    status: TransactionStatus
    requests: int
    intended: int


def merge_beside(world: World, when: Sequence[int], *, dies_before: int | None = None) -> Merged:
    """A merge; before these of its requests the events are lost, and an operator looks, decides, and ends."""
    requests, intended = 0, -1
    acts: dict[int, list[Callable[[], object]]] = {}

    def meddle(call: StoreCall) -> None:
        nonlocal requests, intended
        if intended < 0 and call.operation == "put" and call.key.startswith(MERGING_PREFIX):
            intended = requests
        requests += 1
        for act in acts.pop(requests - 1, []):
            act()

    def die() -> None:
        raise Crash

    store = Watched(world.store)
    with world.process(store) as process:
        transaction = decided(process)
        stream = process.stream()
        operator = Operator(world, transaction, key_of(stream, transaction))
        for at, act in zip(when, (operator.lose, operator.look, operator.decide, operator.end), strict=True):
            acts.setdefault(at, []).append(act)
        if dies_before is not None:
            acts.setdefault(dies_before, []).append(die)
        store.before = meddle
        with suppress(AccelError, Crash):
            stream.commit()
        store.before = lambda _: None
    try:
        with world.process() as process:
            stream = process.stream()
            for _ in range(2):
                with suppress(TransactionDamaged):
                    stream.recover()
            operator.look()
            operator.decide()
            operator.end()
            stream.recover()
            stream.commit()
            assert stream.state() is StreamState.ACTIVE
            return Merged(stream.transactions.status(transaction), requests, intended)
    finally:
        operator.process.die()


def check_end(world: World, status: TransactionStatus) -> None:
    """A transaction is aborted, or its events can be read; never both."""
    expected = {TransactionStatus.ABORTED: [], TransactionStatus.COMMITTED: [payload for payload, _ in EVENTS]}[status]
    assert sorted(world.payloads()) == expected
    assert world.transaction_keys() == []
    assert not list(world.store.list(MERGING_PREFIX))


def test_a_transaction_that_is_given_up_beside_its_merge_is_aborted_or_readable() -> None:
    """The events are lost after they were read, and all of the giving up comes between two requests of the merge.

    Or the operator looks just before the intent is written, and decides later; another process ends what is decided.
    """
    whole = merge_beside(created(), [1000] * 4)
    at_once = [[number] * 4 for number in range(whole.requests + 1)]
    later = [
        [whole.intended, whole.intended, number, number + pause]
        for number in range(whole.intended, whole.requests + 1)
        for pause in (0, 3)
    ]
    ends = set()
    tried = [*at_once, *later]
    for when in (tried[place] for place in places(len(tried), 0, every=5)):
        world = created()
        done = merge_beside(world, when)
        check_end(world, done.status)
        ends.add(done.status)
    assert ends == {TransactionStatus.ABORTED, TransactionStatus.COMMITTED}


@settings(max_examples=examples(200, few=15), deadline=None)
@given(st.lists(st.integers(0, 60), min_size=4, max_size=4).map(sorted), st.none() | st.integers(0, 60))
def test_at_whichever_requests_of_a_merge_an_operator_acts_and_it_dies_the_end_is_true(
    when: list[int], dies_before: int | None
) -> None:
    world = created()
    check_end(world, merge_beside(world, when, dies_before=dies_before).status)


# Interrupted merges


def merge_with_crashes(world: World, number: int, *, loses_object: bool) -> bool:
    """A commit that dies before one of its writes; whether it did. Then the object is lost, if it is not there."""
    with world.process() as process:
        key = key_of(process.stream(), decided(process))
    crashing = CrashStore(world.store, None)
    died = False
    with world.process(crashing) as process:
        stream = process.stream()
        crashing._crash_before_write = crashing.writes + number
        try:
            stream.commit()
        except (Crash, AccelError):
            died = True
    if loses_object and any(info.key == key for info in world.store.list(key)):
        world.store.delete(key)
    return died


def is_given_up(stream: Stream) -> bool:
    """Finish a commit; a transaction whose events are lost is given up, and it is said that there was one."""
    try:
        stream.recover()
        stream.commit()
    except TransactionDamaged as error:
        lost = error.transaction
    else:
        return False
    assert stream.transactions.give_up(lost) is TransactionStatus.ABORTED
    assert stream.recover() == ["commit"]
    return True


@pytest.mark.parametrize("loses_object", [False, True])
def test_a_commit_that_dies_before_any_of_its_writes_is_finished_and_merges_once_or_says_what_is_missing(
    *, loses_object: bool
) -> None:
    """An object that is lost after the merge is no damage, and before it no commit."""
    outcomes = set()
    for number in places(100, 0):
        world = created()
        died = merge_with_crashes(world, number, loses_object=loses_object)
        with world.process() as process:
            is_damaged = is_given_up(process.stream())
            assert process.stream().state() is StreamState.ACTIVE, number
        assert sorted(world.payloads()) == ([] if is_damaged else [payload for payload, _ in EVENTS]), number
        assert world.transaction_keys() == [], number
        outcomes.add(is_damaged)
        if not died:
            assert outcomes == {loses_object, False}
            return
    pytest.fail("expected fewer writes")


class DiesBehind(DecoratedStore):
    """A process that dies behind some write, once this is asked for.

    Attributes:
        fatal: a part of the keys of writes; None = it lives.
        left: the number of such writes that it makes.
    """

    fatal: str | None = None
    left = 1
    is_dead = False

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        if self.is_dead:
            raise Crash(call.key)
        answer = send()
        self.left -= self.fatal is not None and call.operation == "put" and self.fatal in call.key
        self.is_dead = not self.left
        return answer


def dies_in_merge(world: World, events: list[tuple[bytes, bytes]], fatal: str, writes: int = 1) -> tuple[UUID, int]:
    """A transaction whose commit dies behind a write, and the number of the session."""
    store = DiesBehind(world.store)
    with world.process(store) as owner:
        transaction = decided(owner, events)
        store.fatal, store.left = fatal, writes
        with pytest.raises(Crash):
            owner.stream().commit()
        return transaction, owner.host._node.session_number


@pytest.mark.parametrize("segments", [1])
def test_a_batch_of_another_node_at_the_same_place_is_no_proof_of_a_merge(world: World) -> None:
    """Sessions of two nodes have the same number: the other node's event was taken for the transaction."""
    with world.process(node_id=OTHER):
        pass  # a session that the other node had before: so the next ones of both have the same number
    events = [(b"transaction", b"key")]
    transaction, session_number = dies_in_merge(world, events, "transactions/node-")
    with world.process(node_id=OTHER) as other:
        assert other.host._node.session_number == session_number
        other.host.take_over(NAME, {0: NODE})
        other.host.append(NAME, 0, [b"other"])
        other.host.flush()
    with world.process() as again:
        assert world.transaction_keys() == [key_of(again.stream(), transaction)]
    with world.process(node_id=OTHER) as other:
        assert other.stream().recover() == ["commit"]
    assert sorted(world.payloads()) == [b"other", b"transaction"]


@pytest.mark.parametrize("ends", [False, True])
def test_a_merge_that_another_node_settles_while_the_taker_has_the_events_is_not_repeated(
    world: World, *, ends: bool
) -> None:
    """The node that died comes back, and deletes events and intent: the taker had read them, and found no intent."""
    transaction, _ = dies_in_merge(world, EVENTS, "node-lists", 2)  # the first one prepares an id
    store, settled = Watched(world.store), list[UUID]()

    def settle() -> None:
        settled.append(transaction)
        with world.process() as again:
            assert world.transaction_keys() == []
            if ends:
                again.stream().transactions.end(transaction)

    with world.process(store, node_id=OTHER) as other:
        other.host.take_over(NAME, {0: NODE, 1: NODE})
        store.once_after("get", key_of(other.stream(), transaction), settle)
        assert other.stream().recover() == ["commit"]
        assert other.stream().transactions.status(transaction) is TransactionStatus.COMMITTED
    assert settled
    assert sorted(world.payloads()) == [payload for payload, _ in EVENTS]
    assert world.transaction_keys() == []


class LateRequests(DecoratedStore):
    """The first request about an intent was sent twice, as after a timeout, and arrives again behind the next intent.

    Attributes:
        operation: of the request; the next intent is written first.
    """

    operation = "put"

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self._late: list[Callable[[], object]] = []
        self._intents = 0

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        answer = send()
        if MERGING_PREFIX in call.key:
            self._intents += call.operation == "put"
            if self._intents == 1 and call.operation == self.operation:
                self._late.append(send)
            elif self._intents == 2:
                while self._late:
                    self._late.pop()()
        return answer


@pytest.mark.parametrize("operation", ["put", "delete_many"])
def test_a_late_request_about_an_earlier_merge_does_not_hide_the_merge_of_a_dead_node(
    world: World, operation: str
) -> None:
    late = LateRequests(world.store)
    late.operation = operation
    store = DiesBehind(late)
    with world.process(store) as owner:
        decided(owner, [(b"first", b"key-1")])
        owner.stream().commit()
        transaction = decided(owner)
        store.fatal, store.left = "node-lists", 1
        with pytest.raises(Crash):
            owner.stream().commit()
    expected = sorted([b"first", *(payload for payload, _ in EVENTS)])
    assert sorted(world.payloads()) == expected
    with world.process(node_id=OTHER) as other:
        other.host.take_over(NAME, {0: NODE, 1: NODE})
        assert other.stream().recover() == ["commit"]
        assert other.stream().transactions.status(transaction) is TransactionStatus.COMMITTED
    assert sorted(world.payloads()) == expected
    with world.process():
        assert world.transaction_keys() == []
