"""After deletions, late writes and crashes recovery leaves nothing, and takes nothing from others."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar
from uuid import UUID

import numpy as np
import pytest

from accel.errors import AccelError
from accel.history.store import StreamStore, transaction_store
from accel.history.store.leftovers import Leftovers
from accel.streams.rules.transaction_data import TransactionEvents
from accel.streams.uploads import TransactionName
from accel.testing import Crash, CrashStore
from loaders.layout import TABLE_MARKER, TIMES_PREFIX, transaction_key
from loaders.store import ObjectStore
from loaders.store.decorated import WRITES, DecoratedStore, StoreCall
from loaders.tables.conditional_write import TOMBSTONE_SIZE_BYTES
from tests.accel.history.store.bench import Bench
from tests.accel.streams.writer.world import NAME, Process, World, created, ids_of
from tests.conformance.history_world import SCOPE, STREAM
from tests.examples import examples

Answer = TypeVar("Answer")
EVENTS = TransactionEvents(np.array([0.5]), [b"late"])


def unneeded(store: ObjectStore, unique_id: UUID) -> list[str]:
    """Keys that name a stream, and data of transactions."""
    found = (info for info in store.list("") if info.size_bytes != TOMBSTONE_SIZE_BYTES)
    return [info.key for info in found if str(unique_id) in info.key or "accel/transactions/" in info.key]


def test_data_of_an_ended_transaction_is_deleted_and_that_of_others_stays(world: World, process: Process) -> None:
    stream = process.stream()
    opened, decided, ended, dropped = (stream.transactions.begin() for _ in range(4))
    for each in (opened, decided, ended, dropped):
        process.host.keep_transaction(TransactionName(stream.unique_id, each), EVENTS)
    stream.transactions.seal(decided, commit=True)
    body = world.store.get(transaction_key(stream.unique_id, ended)).body
    for each in (ended, dropped):
        stream.transactions.abort(each)
        world.store.put(transaction_key(stream.unique_id, each), body)  # late
    asking = StreamStore.open(world.store, system=world.system)
    assert asking.recover().is_whole
    expected = sorted(transaction_key(stream.unique_id, each) for each in (opened, decided))
    assert world.transaction_keys() == expected


@pytest.mark.parametrize("act", ["create", "delete"])
def test_a_deletion_is_finished_by_another_process_wherever_the_first_one_died(act: str) -> None:
    """The other one did not know the segments, and asked for them in a stream that was half created or deleted."""
    for number in range(60):
        world = World()
        if act == "create":
            with world.process() as process:
                process.streams.create_scope(NAME[0])
        else:
            world.create()
        crashing = CrashStore(world.store, None)
        with world.process(crashing) as process:
            if act == "delete":
                process.host.append(NAME, 0, [b"event"])
                process.stream().seal()
            crashing._crash_before_write = crashing.writes + number
            try:
                process.streams.create_stream(*NAME) if act == "create" else process.streams.delete_stream(*NAME)
                died = False
            except Crash:
                died = True
        with world.process() as process:
            if not died and act == "create":
                return
            process.streams.delete_stream(*NAME)
            assert list(process.streams.streams(NAME[0])) == [], number
        if not died:
            return
    pytest.fail("expected fewer writes")


def lose(store: ObjectStore, part: str) -> None:
    [key] = [info.key for info in store.list("accel/tables/") if part in info.key]
    store.delete(key)


@pytest.mark.parametrize(
    "part",
    [
        f"transactionsInEpoch-0%2E%23%2E{{}}/{TABLE_MARKER}",
        f"streamsInScope%2E%23%2E{{scope}}/{TABLE_MARKER}",
        "/listed%2Forders%2F{}",
    ],
)
def test_what_is_missing_by_damage_is_not_taken_for_an_end(world: World, process: Process, part: str) -> None:
    stream = process.stream()
    transaction = stream.transactions.begin()
    process.host.keep_transaction(TransactionName(stream.unique_id, transaction), EVENTS)
    stream.transactions.seal(transaction, commit=True)
    before = world.transaction_keys()
    scope = process.streams._names._scope(NAME[0]).unique_id
    lose(world.store, part.format(stream.unique_id, scope=scope))
    with suppress(AccelError):
        StreamStore.open(world.store, system=world.system).recover()
    assert world.transaction_keys() == before


# Time indexes


def time_keys(world: World) -> dict[str, bytes]:
    """All that lies beside the segments' data."""
    return {info.key: world.store.get(info.key).body for info in world.store.list(TIMES_PREFIX)}


def write_some(world: World, process: Process) -> None:
    """Each active segment gets so many events, one by one, that parts of its time index are moved."""
    for segment in process.stream().active_segments():
        for number in range(12):
            world.seconds += 1
            process.host.append(NAME, segment.id, [b"%d" % number])
            process.host.flush()


def test_what_comes_late_to_the_time_index_of_a_deleted_segment_is_deleted_and_that_of_others_stays(
    world: World, process: Process
) -> None:
    stream = process.stream()
    write_some(world, process)
    stream.scale(ids_of("0@0"), [(0.0, 0.5)])
    write_some(world, process)
    before = time_keys(world)
    stream.truncate(dict.fromkeys(stream.active_segments().ids.tolist(), 1))
    after = time_keys(world)
    gone = before.keys() - after.keys()
    assert len(gone) > 1
    for key in gone:
        world.store.put(key, before[key])  # late
    assert StreamStore.open(world.store, system=world.system).recover().is_whole
    assert time_keys(world) == after
    process.streams.create_stream(NAME[0], "other")
    stream.seal()
    process.streams.delete_stream(*NAME)
    assert time_keys(world) == {}
    world.store.put(min(gone), before[min(gone)])
    world.store.put(f"{TIMES_PREFIX}7/x", b"not ours")
    assert process.streams.recover().is_whole
    assert time_keys(world) == {f"{TIMES_PREFIX}7/x": b"not ours"}


def test_segments_of_a_truncation_under_way_keep_their_time_indexes_until_it_deletes_them(
    world: World, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hands their writers' numbers on first."""

    def dies(*_: object) -> None:
        raise Crash

    stream = process.stream()
    write_some(world, process)
    stream.scale(ids_of("0@0"), [(0.0, 0.5)])
    before = time_keys(world)
    monkeypatch.setattr(process.host, "delete", dies)
    with pytest.raises(Crash):
        stream.truncate(dict.fromkeys(stream.active_segments().ids.tolist(), 0))
    assert stream.truncation().updating
    assert StreamStore.open(world.store, system=world.system).recover().failed.keys() == {"/".join(NAME)}
    assert time_keys(world) == before


@pytest.mark.parametrize("part", ["segmentStream-1", "/listed%2Forders%2F{}"])
def test_while_a_stream_is_damaged_no_time_index_is_deleted(world: World, process: Process, part: str) -> None:
    stream = process.stream()
    write_some(world, process)
    before = time_keys(world)
    lose(world.store, part.format(stream.unique_id))
    with suppress(AccelError):
        Leftovers(process.streams._parts).delete_times(StreamStore.open(world.store, system=world.system).stream)
    assert time_keys(world) == before


def test_a_key_that_comes_into_a_dropped_table_is_deleted(bench_store: Bench) -> None:
    bench = bench_store
    first = bench.transaction("first", commit=None)
    stream = bench.stream()
    unique_id = stream.unique_id
    key = stream.parts.keys.transaction(0, first)
    record = stream.workflows.transactions.read(first)
    assert record is not None
    path = next(info.key for info in bench.store.list("accel/tables/") if str(first) in info.key)
    body = bench.store.get(path).body
    stream.seal()
    bench.streams().delete_stream(SCOPE, STREAM)
    assert key.table_name
    bench.store.put(path, body)  # late
    assert len(unneeded(bench.store, unique_id)) == 1
    assert bench.streams().recover().is_whole
    assert unneeded(bench.store, unique_id) == []


def test_an_end_that_comes_into_a_dropped_batch_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_store, "COMPLETED_BATCH_MS", 1000)
    bench = Bench()
    bench.create()
    bench.transaction("first")
    bench.stream().commit()
    [info] = [info for info in bench.store.list("accel/tables/_system") if "Batch-" in info.key and "scope" in info.key]
    body = bench.store.get(info.key).body
    for number in range(3):
        bench.tick(1000)
        bench.transaction(f"next {number}")
        bench.stream().commit()
    keys = bench.live_keys()
    bench.store.put(info.key, body)  # late
    assert bench.streams().recover().is_whole
    assert bench.live_keys() == keys


@pytest.fixture
def bench_store() -> Bench:
    made = Bench()
    made.create()
    return made


class Late(DecoratedStore):
    """Delays some writes until the end, and dies before one of them, from a seed.

    A delayed write raises as if its reply had been lost, so the process gives up or does it again.
    """

    def __init__(self, store: ObjectStore, chance: random.Random) -> None:
        super().__init__(store)
        self._chance = chance
        self.late: list[Callable[[], object]] = []
        self.is_dead = False

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        if self.is_dead:
            raise Crash(call.key)
        drawn = self._chance.random()
        if call.operation in WRITES and drawn < 0.02:
            self.is_dead = True
            if drawn < 0.01:
                self.late.append(send)
            raise Crash(call.key)
        return send()


def test_after_deletions_late_writes_and_crashes_no_key_is_left() -> None:
    """Processes create, write, commit, abort and delete streams of a name; each may die, its last write may be late."""
    for seed in range(examples(40)):
        chance = random.Random(seed)
        world = created()
        late: list[Callable[[], object]] = []
        for _ in range(chance.randrange(1, 4)):
            faulty = Late(world.store, chance)
            with suppress(Crash, AccelError), world.process(faulty) as process:
                live(process.streams, chance)
            late += faulty.late
        with world.process() as process:
            process.streams.recover()
            with suppress(AccelError):
                process.stream().seal()
            process.streams.delete_stream(*NAME)
            chance.shuffle(late)
            for write in late:
                with suppress(AccelError):
                    write()
            assert process.streams.recover().is_whole, seed
        with world.process() as process:  # settles the merges of the dead sessions
            assert process.streams.recover().is_whole, seed
        left = [
            info.key
            for info in world.store.list("accel/")
            if info.size_bytes != TOMBSTONE_SIZE_BYTES
            and any(part in info.key for part in ("%2E%23%2E", "accel/transactions/", TIMES_PREFIX))
            and "streamsInScope" not in info.key
        ]
        assert left == [], seed


def live(streams: StreamStore, chance: random.Random) -> None:
    """What a process does with a stream until it dies."""
    for _ in range(4):
        stream = streams.create_stream(*NAME)
        host = stream.parts.host
        for _ in range(chance.randrange(3)):
            transaction = stream.transactions.begin()
            contents = host.keep_transaction(TransactionName(stream.unique_id, transaction), EVENTS)  # type: ignore[attr-defined]
            if chance.random() < 0.7:
                stream.transactions.seal(transaction, commit=True, contents=contents)
                stream.commit()
            else:
                stream.transactions.abort(transaction)
        if chance.random() < 0.5:
            stream.split(stream.active_segments()[0].id)
        if chance.random() < 0.5:
            stream.seal()
            streams.delete_stream(*NAME)
