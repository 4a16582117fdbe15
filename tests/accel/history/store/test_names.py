"""Names of scopes and streams: deletion is decided on one key and finished by anybody, and orphans nothing."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from itertools import count, product
from typing import TypeVar
from uuid import UUID
from zlib import crc32

import pytest

from accel.errors import AccelError, IllegalState, NotInHistory, Sought, StreamDeleted
from accel.history.rules.configuration import RetentionKind, RetentionPolicy, StreamConfiguration
from accel.history.rules.states import StreamState
from accel.history.store import Stream
from accel.testing import Crash, CrashStore
from loaders.store import ObjectStore
from tests.accel.history.store.bench import NAME, START_MS, Bench, cut, ids
from tests.accel.history.store.watching import interrupted, overtaken
from tests.accel.history.store.workflows import WORKS, Act, create, delete, delete_scope, prepared, scope
from tests.conformance.history_world import SCOPE, STREAM
from tests.conformance.steps import set_state
from tests.examples import is_whole, places

Answer = TypeVar("Answer")


def tables_of(bench: Bench) -> list[str]:
    return [each for each in bench.streams()._parts.tables.table_names() if not each.startswith("_system")]


def check_nothing_is_left(bench: Bench) -> None:
    assert list(bench.streams().streams(SCOPE)) == []
    assert [each for each in tables_of(bench) if each.startswith(f"{SCOPE}/{STREAM}/")] == []
    assert bench.host.ids(NAME) == []


# Deletion


def test_a_deletion_that_died_is_finished_by_recovery() -> None:
    for number, bench in WORKS["delete"].crashed():
        found = bench.streams().recover()
        assert found.is_whole
        if number == 0:
            assert bench.stream().state() is StreamState.SEALED
            continue
        check_nothing_is_left(bench)
        with pytest.raises(NotInHistory):
            bench.stream()
        assert bench.streams().recover().done == {}


def test_a_deletion_that_died_is_finished_by_a_creation_that_goes_on_with_the_numbers() -> None:
    for number, bench in WORKS["delete"].crashed():
        created = bench.streams().create_stream(SCOPE, STREAM)
        if number == 0:
            assert created.state() is StreamState.SEALED
            continue
        assert created.state() is StreamState.ACTIVE
        assert created.active_segments().ids.tolist() == bench.host.ids(NAME) == ids("3@0")


def test_a_stream_that_is_being_deleted_is_not_opened() -> None:
    for number, bench in WORKS["delete"].crashed():
        if number > 0:
            with suppress(NotInHistory), pytest.raises(StreamDeleted):
                bench.stream()


def test_a_creation_that_died_is_finished_by_recovery_as_it_was_wanted() -> None:
    for number, bench in WORKS["create"].crashed():
        assert bench.streams().recover().is_whole
        if number > 1:  # it was listed
            stream = bench.stream()
            assert (stream.state(), stream.creation_time_ms()) == (StreamState.ACTIVE, bench.now_ms)
            assert (stream.configuration().min_segments, len(stream.active_segments())) == (2, 2)


def test_of_several_creations_the_first_decides_on_everything() -> None:
    """A creation that died is gone on with by one that wants something else."""
    for number, bench in WORKS["create"].crashed():
        other = StreamConfiguration(min_segments=5)
        if number:
            with pytest.raises(IllegalState, match="min_segments"):
                bench.streams().create_stream(SCOPE, STREAM, other, START_MS + 7, segments=6)
        stream = bench.streams().create_stream(SCOPE, STREAM, None if number else other, START_MS + 7, segments=6)
        assert stream.is_new is (number == 0)
        found = len(stream.active_segments()), stream.configuration().min_segments, stream.creation_time_ms()
        assert found == ((6, 5, START_MS + 7) if number == 0 else (2, 2, bench.now_ms))
        assert bench.host.ids(NAME) == stream.active_segments().ids.tolist()


def test_a_sealed_stream_is_what_a_creation_over_it_returns() -> None:
    bench = Bench()
    made = bench.create()
    made.seal()
    again = bench.streams().create_stream(SCOPE, STREAM, made.configuration())
    assert (again.unique_id, again.state()) == (made.unique_id, StreamState.SEALED)


# Two at once: each interleaving of one whole act before a call of the other, and mixed requests


@dataclass(frozen=True)
class Two:
    """Two who act at once."""

    prepare: Callable[[Bench], object]
    one: Act
    other: Act


def emptied(bench: Bench) -> None:
    """A scope whose stream was deleted."""
    bench.create().seal()
    bench.streams().delete_stream(SCOPE, STREAM)


def sealed(bench: Bench) -> None:
    bench.create().seal()


def create_other(bench: Bench, store: ObjectStore, _: int) -> object:
    return bench.streams(store).create_stream(SCOPE, STREAM, StreamConfiguration(min_segments=3))


def remake_scope(bench: Bench, store: ObjectStore, _: int) -> None:
    streams = bench.streams(store)
    with suppress(IllegalState):
        streams.delete_scope(SCOPE)
    streams.create_scope(SCOPE)


def recover(bench: Bench, store: ObjectStore, _: int) -> object:
    return bench.streams(store).recover()


PAIRS = {
    "create, delete scope": Two(scope, create, delete_scope),
    "delete scope, create": Two(scope, delete_scope, create),
    "create again, delete scope": Two(emptied, create, delete_scope),
    "delete scope, create again": Two(emptied, delete_scope, create),
    "create, delete and make scope": Two(scope, create, remake_scope),
    "delete and make scope, create": Two(emptied, remake_scope, create),
    "delete scope twice": Two(emptied, delete_scope, delete_scope),
    "create, create other": Two(scope, create, create_other),
    "create, delete": Two(scope, create, delete),
    "delete, create": Two(sealed, delete, create),
    "delete twice": Two(sealed, delete, delete),
    "delete, recover": Two(sealed, delete, recover),
    "create, recover": Two(scope, create, recover),
    "delete scope, recover": Two(emptied, delete_scope, recover),
}


def tell(told: list[Stream], act: Act, bench: Bench, store: ObjectStore) -> None:
    """Act, and keep the stream that was returned."""
    with suppress(AccelError):
        found = act(bench, store, bench.now_ms)
        if isinstance(found, Stream):
            told.append(found)


def check_sound(bench: Bench, told: list[Stream], *, may_be_deleted: bool) -> None:
    """Whoever was told of a stream has it, nothing is orphaned, and everything can go on."""
    for each in told:
        if not may_be_deleted:
            assert bench.stream().unique_id == each.unique_id
            assert bench.stream().state() is StreamState.ACTIVE
    assert bench.streams().recover().is_whole
    scopes = list(bench.streams().scopes())
    if SCOPE not in scopes:
        assert not tables_of(bench)
        bench.streams().create_scope(SCOPE)
    names = list(bench.streams().streams(SCOPE))
    if names:
        stream = bench.stream()
        assert all(str(stream.unique_id) in each for each in tables_of(bench) if each.startswith(f"{SCOPE}/{STREAM}/"))
        if stream.state() is StreamState.ACTIVE:
            assert bench.host.ids(NAME) == stream.active_segments().ids.tolist()
            assert len(stream.active_segments()) == stream.configuration().min_segments
            stream.seal()
        bench.streams().delete_stream(SCOPE, STREAM)
    check_nothing_is_left(bench)
    bench.streams().delete_scope(SCOPE)
    assert list(bench.streams().scopes()) == []
    assert not tables_of(bench)


@pytest.mark.parametrize("name", PAIRS)
def test_two_at_once_orphan_nothing_wherever_one_comes_between_calls_of_the_other(name: str) -> None:
    """Before each call, or every other one (see `places`)."""
    pair = PAIRS[name]
    for number in count() if is_whole() else count(crc32(name.encode()) % 2, 2):
        bench, told = prepared(pair.prepare), list[Stream]()
        other = interrupted(bench.store, number, lambda: tell(told, pair.other, bench, bench.store))  # noqa: B023 - at once
        tell(told, pair.one, bench, other)
        check_sound(bench, told, may_be_deleted="delete" in name and "scope" not in name)
        if other.fitting <= number:
            return


@pytest.mark.parametrize("name", PAIRS)
def test_two_at_once_orphan_nothing_when_one_dies_after_the_other_came_between(name: str) -> None:
    pair = PAIRS[name]
    ends = list(product(range(0, 24, 3), (0, 2)))
    for place in places(len(ends), crc32(name.encode()), every=3):
        number, dies_after = ends[place]
        bench, told = prepared(pair.prepare), list[Stream]()
        other = partial(tell, told, pair.other, bench, bench.store)
        with suppress(Crash):
            tell(told, pair.one, bench, overtaken(bench.store, number, other, dies_after))
        check_sound(bench, told, may_be_deleted="delete" in name and "scope" not in name)


def test_nothing_of_a_name_stays_in_a_listing() -> None:
    """Entries are asked for one by one; a listing has no tombstones, however many names came and went."""
    bench = Bench()
    streams = bench.streams()
    for number in range(20):
        streams.create_scope(f"scope-{number}")
        streams.create_stream(f"scope-{number}", STREAM).seal()
        streams.delete_stream(f"scope-{number}", STREAM)
        streams.delete_scope(f"scope-{number}")
    listed = [each for each in bench.store.list("") if "/listed%2F" in each.key]
    assert listed == []
    assert list(streams.scopes()) == []


# Handles of what was deleted

GONE: dict[str, Callable[[Stream], object]] = {
    "state": lambda stream: stream.state(),
    "configuration": lambda stream: stream.configuration(),
    "segment_stream": lambda stream: stream.segment_stream(ids("2@1")[0]),
    "current_epoch": lambda stream: stream.current_epoch(),
    "active_segments": lambda stream: stream.active_segments(),
    "epoch": lambda stream: stream.epochs.epoch(1),
    "epochs": lambda stream: list(stream.epochs.between(0, 1)),
    "successors": lambda stream: stream.epochs.successors(ids("0@0")[0]),
    "epoch_at": lambda stream: stream.epochs.epoch_at(START_MS),
    "segments_at": lambda stream: stream.segments_at(START_MS),
    "head": lambda stream: stream.head(),
    "truncation": lambda stream: stream.truncation(),
    "sealed_size": lambda stream: stream.cuts.sealed_size(ids("0@0")[0]),
    "deleted_segments": lambda stream: list(stream.cuts.deleted()),
    "segments_being_deleted": lambda stream: list(stream.cuts.being_deleted()),
    "scales": lambda stream: list(stream.epochs.scales(0, START_MS)),
    "recorded_cuts": lambda stream: stream.retention.read(),
    "recorded_cut": lambda stream: stream.retention.cut(START_MS),
    "size_between": lambda stream: stream.cuts.size_between({}, {}),
    "segments_between": lambda stream: stream.cuts.segments_between({}, {}),
    "configure": lambda stream: stream.configure(StreamConfiguration()),
    "scale": lambda stream: stream.scale(ids("1@0"), [(0.5, 1.0)]),
    "request_scale": lambda stream: stream.request_scale(ids("1@0"), [(0.5, 1.0)]),
    "scale_status": lambda stream: stream.scale_status(UUID(int=5)),
    "carry_out_request": lambda stream: stream.carry_out_request(UUID(int=5)),
    "requests": lambda stream: stream.requests(),
    "truncate": lambda stream: stream.truncate(cut(s0_0=0, s1_0=0)),
    "run_retention": lambda stream: stream.retention.run(),
    "purge_cuts": lambda stream: stream.retention.purge(),
    "begin_transaction": lambda stream: stream.transactions.begin(),
    "transactions": lambda stream: list(stream.transactions.each_active()),
    "commit": lambda stream: stream.commit(),
    "abort_transactions": lambda stream: stream.transactions.abort_expired(),
    "seal": lambda stream: stream.seal(),
    "recover": lambda stream: stream.recover(),
}


@cache
def outlived(*, is_warm: bool, is_created_again: bool) -> tuple[Bench, UUID, dict[str, Stream]]:
    """A bench whose stream was deleted, an id of a transaction of it, and a handle of it for each question."""
    bench = Bench()
    stream = bench.create()
    transaction = stream.transactions.begin()
    handles = {name: bench.streams().stream(SCOPE, STREAM) for name in GONE}
    for handle in handles.values() if is_warm else ():
        handle.epochs.epoch(0)
        handle.epochs.epoch_at(START_MS)
        handle.workflows.cuts.shard(0)  # it knows that the table is there
        list(handle.transactions.each_active())
    bench.scale_once()
    stream.seal()
    bench.streams().delete_stream(SCOPE, STREAM)
    if is_created_again:
        bench.streams().create_stream(SCOPE, STREAM, StreamConfiguration(min_segments=2), bench.now_ms)
    return bench, transaction, handles


@pytest.mark.parametrize("is_created_again", [False, True])
@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.parametrize("name", GONE)
def test_a_handle_of_a_deleted_stream_says_so_and_touches_nothing(
    name: str, *, is_warm: bool, is_created_again: bool
) -> None:
    bench, transaction, handles = outlived(is_warm=is_warm, is_created_again=is_created_again)
    handle = handles[name]
    before = {info.key: info.etag for info in bench.store.list("")}
    segments = bench.host.ids(NAME)
    asks: list[Callable[[Stream], object]] = [GONE[name], lambda stream: stream.transactions.status(transaction)]
    asks += [lambda stream: stream.transactions.seal(transaction, commit=False)]
    asks += [lambda stream: stream.transactions.abort(transaction)]
    asks += [lambda stream: stream.transactions.ping(transaction, 5)]
    for ask in asks:
        with pytest.raises(StreamDeleted, match=str(handle.unique_id)):
            ask(handle)
    assert {info.key: info.etag for info in bench.store.list("")} == before
    assert bench.host.ids(NAME) == segments


def test_what_never_changes_is_answered_from_memory_of_a_deleted_stream_too() -> None:
    bench = Bench()
    handle = bench.create()
    known = handle.epochs.epoch(0)
    handle.seal()
    bench.streams().delete_stream(SCOPE, STREAM)
    assert handle.epochs.epoch(0) == known
    assert handle.epochs.segment(ids("0@0")[0]) == known.segments[0]
    with pytest.raises(StreamDeleted):
        handle.epochs.epoch(1)


def test_that_a_stream_was_deleted_can_be_sent_to_another_process() -> None:
    error = StreamDeleted("shop/orders", "12")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - made here
    assert (str(again), again.sought, again.advice, again.stream) == (
        str(error),
        Sought.STREAM,
        error.advice,
        "shop/orders",
    )


# Recovery of many


def test_a_broken_stream_does_not_hold_up_the_recovery_of_others() -> None:
    bench = Bench()
    bench.create()
    for name in ("a-broken", "z-unfinished"):
        bench.streams().create_stream(SCOPE, name, time_ms=START_MS)
    set_state(bench.streams().stream(SCOPE, "z-unfinished"), StreamState.SEALING)
    [key] = [each.key for each in bench.store.list("") if "a-broken" in each.key and each.key.endswith("/state")]
    bench.store.put(key, b"nonsense")
    found = bench.streams().recover()
    assert found.done == {f"{SCOPE}/z-unfinished": ["seal"]}
    assert list(found.failed) == [f"{SCOPE}/a-broken"]
    assert found.failed[f"{SCOPE}/a-broken"].startswith("CorruptObject: ")
    assert not found.is_whole
    assert bench.streams().stream(SCOPE, "z-unfinished").state() is StreamState.SEALED


def test_a_recorded_cut_that_never_entered_the_set_is_erased_once_a_later_one_did() -> None:
    bench = Bench()
    stream = bench.create()
    stream.configure(StreamConfiguration(retention=RetentionPolicy(RetentionKind.TIME, 0)))
    stream.retention.run(START_MS + 10)
    with pytest.raises(Crash):
        bench.stream(around=CrashStore(bench.store, 1)).retention.run(START_MS + 20)
    assert bench.streams().recover().done == {}  # whoever recorded it may be about to enter it
    assert stream.retention.cut(START_MS + 20).recorded_size == 0
    stream.retention.run(START_MS + 30)
    assert bench.streams().recover().done == {f"{SCOPE}/{STREAM}": ["erase cuts"]}
    records = [each.key for each in bench.store.list("") if "/retentionCuts-" in each.key]
    assert [each.rpartition("-")[2] for each in records] == [str(START_MS + 30)]


def test_a_cut_that_comes_too_late_leaves_no_record() -> None:
    bench = Bench()
    stream = bench.create()
    stream.configure(StreamConfiguration(retention=RetentionPolicy(RetentionKind.TIME, 10**6)))
    stream.retention.run(START_MS + 20)
    stream.retention.run(START_MS + 10)
    assert stream.retention.read().times_ms.tolist() == [START_MS + 20]
    with pytest.raises(NotInHistory):
        bench.stream().retention.cut(START_MS + 10)
