"""An upload in one call: durable and listed once, where readers look for it, whatever fails on the way."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.catalog import CatalogSettings, NodeWriter, ObjectCatalog
from accel.catalog.collect import collect, plan_collection
from accel.catalog.verify import verify
from accel.errors import AmbiguousWrite, CatalogDamaged, CommitRefused, DataConflict, NamespaceShared, SessionFenced
from accel.image import StreamObject
from accel.testing import Fault, FaultStore
from loaders.errors import FormatError, StoreError, StoreUnavailable
from loaders.format import RecordBatch
from loaders.layout import ObjectLayout
from loaders.object_ref import ObjectRef
from loaders.object_writer import ObjectWriter
from loaders.store import ObjectStore, PrefixedStore
from tests.world import DAY_SECONDS, LAYOUT, NODE, World, each_crash, held, spans_held

STREAM = 1
SETTINGS = CatalogSettings(parallel_requests=1, ids_block=8)
COUNTER = "accel/tables/counters/object-ids"
T = TypeVar("T")
UNKNOWN_OUTCOMES = (StoreError, AmbiguousWrite, DataConflict)


def batch(stream_id: int, start: int, end: int, payload: bytes = b"records") -> RecordBatch:
    return RecordBatch(stream_id, 1, start, end - start, payload)


def opened(catalog: ObjectCatalog, *streams: int) -> NodeWriter:
    writer = catalog.open_node(NODE)
    writer.open_streams(streams or (STREAM,))
    return writer


def spans(world: World) -> list[tuple[int, int]]:
    with world.open() as catalog:
        return spans_held(catalog, STREAM)


@pytest.fixture
def world() -> World:
    return World(settings=SETTINGS)


def test_one_call_writes_and_commits(world: World) -> None:
    with world.open() as catalog, opened(catalog, 1, 2) as writer:
        writer.upload({2: [batch(2, 0, 5)], 1: [batch(1, 0, 3), batch(1, 3, 4)]})
        world.store.reset()
        done = writer.upload([(1, iter([batch(1, 4, 9, b"later")])), (2, [])])
        counts = {name: each.requests for name, each in world.store.snapshot().by_operation.items()}
        assert counts == {"put": 2}
        assert done.ranges.stream_ids.tolist() == [1]
        assert (writer.end(1), writer.end(2)) == (9, 5)
        assert held(catalog, 1)[-1] == (done.object_id, 4, 9)
        assert world.store.get(LAYOUT.object_key(done.object_id)).object_size_bytes == done.ref.size_bytes
    assert world.payloads(STREAM) == [b"records", b"records", b"later"]


@pytest.mark.parametrize(
    ("streams", "expected"),
    [
        ({}, "batches to upload, found none"),
        ({1: []}, "batches to upload, found none"),
        ([(1, [batch(1, 0, 1)]), (1, [batch(1, 1, 2)])], "each stream once, found stream 1 twice"),
        ({1: [batch(1, 0, 1), batch(1, 2, 3)]}, r"batches without holes, found \[0, 1\) and then 2"),
        ({1: [batch(1, 5, 6)]}, "a start where the stream ended"),
        ({7: [batch(7, 0, 1)]}, "a stream that is open on this node"),
        ({each: [batch(each, 0, 1)] for each in range(20_001)}, "at most 20000 streams"),
    ],
)
def test_what_cannot_be_committed_is_refused_before_anything_is_written(
    streams: dict[int, Iterable[RecordBatch]], expected: str
) -> None:
    world = World(settings=SETTINGS)
    with world.open() as catalog, opened(catalog) as writer:
        world.store.reset()
        with pytest.raises(CommitRefused, match=expected):
            writer.upload(streams)
        assert world.store.snapshot().total.requests == 0
        assert writer.upload({1: [batch(1, 0, 1)]}).ref.size_bytes


def test_batches_of_another_stream_are_refused_and_nothing_is_left(world: World) -> None:
    with world.open() as catalog, opened(catalog) as writer:
        before = [info.key for info in world.store.list("") if "accel/" not in info.key]
        with pytest.raises(FormatError):
            writer.upload({1: [batch(2, 0, 1)]})
        assert [info.key for info in world.store.list("") if "accel/" not in info.key] == before == []


def test_a_fenced_session_commits_nothing(world: World) -> None:
    with world.open() as catalog, opened(catalog) as writer:
        writer.upload({1: [batch(1, 0, 1)]})
        catalog.open_node(NODE)
        with pytest.raises(SessionFenced):
            writer.upload({1: [batch(1, 1, 2)]})
    assert spans(world) == [(0, 1)]


def put_ours(world: World, catalog: ObjectCatalog, object_id: int, body: bytes) -> None:
    """Another object of the same catalog, as after a counter that went back."""
    mark = catalog.parts.layout.mark(object_id, catalog.parts.system.nonce)
    world.store.put(LAYOUT.object_key(object_id), body, mark=mark)


@pytest.mark.parametrize("is_of_a_catalog", [False, True])
def test_an_object_of_another_system_ends_the_session_before_it_commits(world: World, is_of_a_catalog: bool) -> None:
    with world.open() as catalog, opened(catalog) as writer:
        other = replace(LAYOUT, catalog_id="0b" * 16)
        mark = other.mark(0, catalog.parts.system.nonce) if is_of_a_catalog else None
        world.store.put(LAYOUT.object_key(0), b"theirs", mark=mark)
        calls: list[Callable[[], object]] = [
            lambda: writer.upload({1: [batch(1, 0, 1)]}),
            writer.prepare,
            writer.take_prepared,
            lambda: writer.commit_upload(ObjectRef(1, 10, 10), {1: (0, 1)}),
            lambda: writer.open_streams([2]),
        ]
        for call in calls:
            with pytest.raises(NamespaceShared, match=LAYOUT.object_key(0)):
                call()
        writer.close()
        assert spans(world) == []
        assert world.store.get(LAYOUT.object_key(0)).body == b"theirs"

        with catalog.open_node(NODE) as next_session:  # the advice was followed: another namespace, or theirs is gone
            assert next_session.upload({1: [batch(1, 0, 1)]}).object_id > 0


def test_another_object_under_the_id_is_left_alone_and_the_next_id_taken(world: World) -> None:
    with world.open() as catalog, opened(catalog) as writer:
        put_ours(world, catalog, 0, b"of somebody else")
        assert writer.upload({1: [batch(1, 0, 1)]}).object_id == 1
    assert world.store.get(LAYOUT.object_key(0)).body == b"of somebody else"
    assert world.payloads(STREAM) == [b"records"]


def test_objects_under_all_ids_are_an_error_and_stay(world: World) -> None:
    with world.open() as catalog, opened(catalog) as writer:
        for object_id in range(8):
            put_ours(world, catalog, object_id, b"%d" % object_id)
        with pytest.raises(CommitRefused, match="found objects under all of"):
            writer.upload({1: [batch(1, 0, 1)]})
        writer.upload({1: [batch(1, 0, 1)]})
    assert [world.store.get(LAYOUT.object_key(each)).body for each in range(8)] == [b"%d" % each for each in range(8)]


def test_a_counter_that_was_put_back_overwrites_nothing_and_is_named(world: World) -> None:
    older = world.store.get(COUNTER).body
    with world.open() as catalog, opened(catalog) as writer:
        catalog.open_node(5)
        for start in range(3):
            writer.upload({1: [batch(1, start, start + 1, b"acknowledged")]})
    world.store.put(COUNTER, older)
    with world.open() as catalog:
        with world.open() as other, pytest.raises(CatalogDamaged, match="went back"):
            other.open_node(6)
        writer = catalog.open_node(5)  # its own list shows no ids
        writer.open_streams([2])
        with pytest.raises(
            CatalogDamaged, match="allocated to node 5 alone, found that node 4 has it, too: the counter went back"
        ):
            writer.upload({2: [batch(2, 0, 1)]})
        assert ("counter", "0 in the lists of more than one") in [
            (each.kind.value, each.found) for each in verify(catalog).problems
        ]
    assert world.payloads(STREAM) == [b"acknowledged"] * 3


@pytest.mark.parametrize("mode", ["deleted", "older"])
def test_verify_compares_the_counter_with_the_ids_in_use(world: World, mode: str) -> None:
    older = world.store.get(COUNTER).body
    with world.open() as catalog, opened(catalog) as writer:
        writer.upload({1: [batch(1, 0, 1)]})
        assert verify(catalog).problems == []
        if mode == "deleted":
            world.store.delete(COUNTER)
        else:
            world.store.put(COUNTER, older)
        [problem] = verify(catalog).problems
        highest = int(writer.node_list.prepared["object_id"].max())
    expected = "a counter" if mode == "deleted" else f"a number above {highest}, the highest id in use"
    found = "none: deleted?" if mode == "deleted" else "0: deleted, or put back?"
    assert (problem.kind.value, problem.expected, problem.found) == ("counter", expected, found)


@pytest.mark.parametrize("what", ["transactionIds", "segmentStreams"])
def test_verify_tells_of_counters_of_histories_that_are_gone(world: World, what: str) -> None:
    world.store.delete(f"accel/tables/_system%2Fcounters/{what}")
    with world.open() as catalog:
        [problem] = verify(catalog).problems
    assert (problem.kind.value, problem.found) == ("counter", "none: deleted?")
    assert what in problem.where


# Lost replies and crashes


@pytest.mark.parametrize(
    "fault", [Fault.LOST_REPLY, Fault.TIMEOUT, Fault.SLOW_DOWN, Fault.CONFLICT, Fault.SERVER_ERROR]
)
@pytest.mark.parametrize("at", [0, 1, 2])
def test_one_failed_write_is_settled_within_the_call(world: World, fault: Fault, at: int) -> None:
    faulty = FaultStore(world.memory, operations={"put"})
    with world.open(faulty) as catalog, opened(catalog) as writer:
        writer.upload({1: [batch(1, 0, 1)]})
        faulty.schedule(*[None] * at, fault)
        writer.upload({1: [batch(1, 1, 2)]})
        writer.upload({1: [batch(1, 2, 3)]})
        faulty.clear()
    assert spans(world) == [(0, 1), (1, 2), (2, 3)]


def test_the_same_batches_uploaded_again_are_committed_once(world: World) -> None:
    faulty = FaultStore(world.memory, operations={"put", "get", "get_if_changed"})
    with world.open(faulty) as catalog, opened(catalog) as writer:
        writer.upload({1: [batch(1, 0, 1)]})
        for number, fault in enumerate((Fault.LOST_REPLY, Fault.TIMEOUT), start=1):
            faulty.schedule(None, fault, *[Fault.TIMEOUT] * 400)
            with pytest.raises(UNKNOWN_OUTCOMES) as caught:
                writer.upload({1: [batch(1, number, number + 1)]})
            assert "upload the same batches again" in caught.value.__notes__[0]
            faulty.clear()
            done = writer.upload({1: [batch(1, number, number + 1)]})
            assert f"object {done.object_id} is written" in caught.value.__notes__[0]
    assert spans(world) == [(0, 1), (1, 2), (2, 3)]


def test_other_batches_do_not_take_the_place_of_those_in_doubt(world: World) -> None:
    faulty = FaultStore(world.memory, operations={"put", "get", "get_if_changed"})
    with world.open(faulty) as catalog, opened(catalog) as writer:
        writer.upload({1: [batch(1, 0, 1)]})
        faulty.schedule(None, Fault.LOST_REPLY, *[Fault.TIMEOUT] * 400)
        with pytest.raises(UNKNOWN_OUTCOMES):
            writer.upload({1: [batch(1, 1, 2, b"first")]})
        faulty.clear()
        with pytest.raises(CommitRefused, match="a start where the stream ended"):
            writer.upload({1: [batch(1, 1, 2, b"other")]})
    assert world.payloads(STREAM) == [b"records", b"first"]


@given(st.integers(0, 2**32))
def test_uploads_are_durable_once_whatever_fails(seed: int) -> None:
    rng = random.Random(seed)
    chances = {Fault.LOST_REPLY: 0.15, Fault.TIMEOUT: 0.15, Fault.CONFLICT: 0.05, Fault.SERVER_ERROR: 0.05}
    world = World(settings=SETTINGS)
    with world.open() as catalog:
        opened(catalog)
    faulty = FaultStore(world.memory, rng=rng, probabilities=chances)
    with until_it_works(lambda: world.open(faulty)) as catalog:
        writer = until_it_works(lambda: catalog.open_node(NODE))
        for number in range(8):
            until_it_works(partial(writer.upload, {1: [batch(1, number, number + 1, b"%d" % number)]}))
    assert world.payloads(STREAM) == [b"%d" % number for number in range(8)]


def until_it_works(act: Callable[[], T]) -> T:
    for _ in range(200):
        with suppress(*UNKNOWN_OUTCOMES):
            return act()
    raise AssertionError("it never worked")


def test_a_crash_at_any_write_leaves_the_upload_whole_or_not_there() -> None:
    def begun() -> World:
        world = World(settings=SETTINGS)
        with world.session(STREAM) as (_, writer):
            writer.upload({1: [batch(1, 0, 1, b"before")]})
        return world

    def uploaded(world: World, store: ObjectStore) -> None:
        with world.open(store) as catalog:
            catalog.open_node(NODE).upload({1: [batch(1, 1, 2, b"during")]})

    for world, _ in each_crash(begun, uploaded, writes_min=3):
        with world.session() as (catalog, writer):
            if writer.end(1) == 1:
                writer.upload({1: [batch(1, 1, 2, b"during")]})
            world.wait(30 * DAY_SECONDS)
            collect(catalog, plan_collection(catalog))
            assert verify(catalog).problems == []
        assert len(world.object_ids()) == 2
        assert world.payloads(STREAM) == [b"before", b"during"]


def test_a_promise_that_ran_out_is_told(world: World) -> None:
    faulty = FaultStore(world.memory, operations={"put"})
    with world.open(faulty) as catalog, opened(catalog) as writer:
        faulty.schedule(None, None, None, *[Fault.TIMEOUT] * 1000)  # counter, promise and object are written
        with pytest.raises(UNKNOWN_OUTCOMES):
            writer.upload({1: [batch(1, 0, 1)]}, deadline_seconds=60)
        faulty.clear()
        world.clock.seconds += 30 * DAY_SECONDS
        with world.open() as other:
            plan = plan_collection(other)
            collect(other, plan)
        with pytest.raises(CommitRefused, match="prepared"):
            writer.upload({1: [batch(1, 0, 1)]})
        writer.upload({1: [batch(1, 0, 1)]})
    assert world.payloads(STREAM) == [b"records"]


# Where an object lies


def written(store: ObjectStore, layout: ObjectLayout, object_id: int) -> ObjectWriter:
    with ObjectWriter(store, layout, object_id) as writer:
        writer.write(STREAM, [batch(STREAM, 0, 10)])
    return writer


@pytest.mark.parametrize("has_proof", [True, False])
def test_an_object_in_another_namespace_is_not_committed(world: World, has_proof: bool) -> None:
    with world.open() as catalog, opened(catalog) as writer:
        [object_id] = writer.prepare()
        done = written(world.memory, ObjectLayout(), object_id)
        ref = done.ref if has_proof else replace(done.ref, proof=None)
        with pytest.raises(CommitRefused, match=f"{LAYOUT.object_key(object_id)!r}, where readers"):
            writer.commit_upload(ref, done.ranges)
        assert writer.end(STREAM) == 0


@pytest.mark.parametrize("other", ["missing", "longer", "another store"])
def test_an_object_that_readers_would_not_find_is_not_committed(world: World, other: str) -> None:
    with world.open() as catalog, opened(catalog) as writer:
        [object_id] = writer.prepare()
        where = PrefixedStore(world.memory, "elsewhere/") if other == "another store" else world.memory
        done = written(where, LAYOUT, object_id)
        key = LAYOUT.object_key(object_id)
        if other == "missing":
            world.memory.delete(key)
        elif other == "longer":
            world.memory.put(key, world.memory.get(key).body + b"!")
        found = f"one of {done.ref.size_bytes + 1}" if other == "longer" else "none"
        with pytest.raises(CommitRefused, match=f"found {found}"):
            writer.commit_upload(done.ref, done.ranges)
        with pytest.raises(CommitRefused, match=f"found {found}"):
            writer.register_stream_object(STREAM, StreamObject(done.ref, 0, 10))
        assert writer.end(STREAM) == 0


def test_an_object_that_this_process_wrote_there_is_not_looked_at(world: World) -> None:
    with world.open() as catalog, opened(catalog) as writer:
        [object_id] = writer.prepare()
        with ObjectWriter(world.store, LAYOUT, object_id) as done:
            done.write(STREAM, [batch(STREAM, 0, 10)])
        world.store.reset()
        writer.commit_upload(done.ref, done.ranges)
        assert {name: each.requests for name, each in world.store.snapshot().by_operation.items()} == {"put": 1}


def test_an_object_of_another_process_is_looked_at_once(world: World) -> None:
    with world.open() as catalog, opened(catalog) as writer:
        [object_id] = writer.prepare()
        done = written(world.memory, LAYOUT, object_id)
        world.store.reset()
        writer.commit_upload(ObjectRef(object_id, done.ref.size_bytes, done.ref.index_size_bytes), done.ranges)
        writer.commit_upload(done.ref, done.ranges)  # listed already
        counts = {name: each.requests for name, each in world.store.snapshot().by_operation.items()}
        assert counts == {"get_range": 1, "put": 1}


def test_an_object_that_cannot_be_looked_at_is_not_committed(world: World) -> None:
    faulty = FaultStore(world.memory, operations={"get_range"})
    with world.open(faulty) as catalog, opened(catalog) as writer:
        [object_id] = writer.prepare()
        done = written(world.memory, LAYOUT, object_id)
        faulty.schedule(Fault.TIMEOUT)
        with pytest.raises(StoreUnavailable):
            writer.commit_upload(done.ref, done.ranges)
        writer.commit_upload(done.ref, done.ranges)
    assert world.payloads(STREAM) == [b"records"]
