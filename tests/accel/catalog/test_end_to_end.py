"""The catalog from end to end, on every store: brokers write, readers look up, others compact, verify, undo, collect.

Objects are written with the project's own writer and read back record by record. What a lookup has to find is known
from a plain walk: every live object is opened, and all that holds the stream is put in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

import pytest

from accel import ReadAccelerator
from accel.catalog import NodeWriter, ObjectCatalog
from accel.catalog.collect import collect, plan_collection
from accel.catalog.parts import existing_format
from accel.catalog.records import refs_of
from accel.catalog.verify import verify
from accel.errors import AccessDenied
from accel.image import StreamObject
from accel.system import SYSTEM
from accel.testing import ClockStore
from loaders.object_ref import ObjectRef
from loaders.object_writer import ObjectWriter
from loaders.store import CountingStore, MemoryStore
from tests.builders import batches
from tests.loaders.tables.worlds import ReadOnly
from tests.servers.stores import ON_S3, store_on_s3
from tests.simulation.actors import coalesced
from tests.simulation.world import Span, spans_of
from tests.world import FORMAT, LAYOUT, World, held, list_of_node

OWNED = {4: (1, 2, 3), 5: (11, 12)}
"""Which streams each node has."""

STREAMS = tuple(stream_id for owned in OWNED.values() for stream_id in owned)
ROUNDS = 10
POLL_SECONDS = 2.0
"""Longer than images go without being asked for."""

COMPACTED = 6
"""Objects of one compaction; among them two that leave out the stream that has an object of its own by then."""

Writers = dict[int, NodeWriter]


@pytest.fixture(params=["memory", *ON_S3])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A bucket of each kind with an empty catalog, whose clock starts now. How to say If-Match is left to the probe."""
    if request.param == "memory":
        yield in_the_present(World(MemoryStore(clock=SYSTEM.clock)))
        return
    with store_on_s3(request, request.param, knows_quotes=False) as store:
        yield in_the_present(World(store))


@pytest.fixture
def catalog(world: World) -> Iterator[ObjectCatalog]:
    """The catalog, opened."""
    with world.open() as opened:
        yield opened


@pytest.fixture
def accelerator(world: World, catalog: ObjectCatalog) -> Iterator[ReadAccelerator]:
    """Lookups over images that follow the catalog."""
    with ReadAccelerator(catalog.images(), world.store, system=world.system) as opened:
        yield opened


@pytest.fixture
def writers(world: World, catalog: ObjectCatalog) -> Writers:
    """A session for each node, after twenty uploads."""
    sessions = {node_id: catalog.open_node(node_id) for node_id in OWNED}
    for node_id, session in sessions.items():
        session.open_streams(OWNED[node_id])
    for number in range(ROUNDS):
        for session in sessions.values():
            upload(world, session, number)
    return sessions


def in_the_present(world: World) -> World:
    """The same world, whose clock agrees with that of its server; both move when the test says so."""
    world.clock.seconds = SYSTEM.clock()
    world.store = CountingStore(ClockStore(world.memory, world.clock))
    return world


def write(world: World, object_id: int, spans: list[Span]) -> ObjectWriter:
    """Write an object of new records: one batch a stream, which says what it is."""
    layout = replace(LAYOUT, catalog_id=existing_format(world.memory).catalog_id)
    with ObjectWriter(world.store, layout, object_id, nonce=world.system.nonce) as written:
        for stream_id, start, end in sorted(spans):
            written.write(stream_id, batches(stream_id, start, end))
    return written


def upload(world: World, session: NodeWriter, number: int) -> None:
    """What a broker does again and again; every fifth time one stream gets an object of its own."""
    ends = {stream_id: end for stream_id in STREAMS if (end := session.end(stream_id)) is not None}
    spans = [(each, end, end + 3 + (each + number) % 5) for each, end in ends.items() if (each + number) % 7]
    own = spans.pop(0) if number % 5 == 3 and len(spans) > 1 else None
    ids = session.prepare(1 + (own is not None))
    written = write(world, ids[0], spans)
    stream_objects = {} if own is None else {own[0]: StreamObject(write(world, ids[1], [own]).ref, own[1], own[2])}
    session.commit_upload(written.ref, written.ranges, stream_objects=stream_objects)


def compact(world: World, catalog: ObjectCatalog, node_id: int, count: int) -> tuple[ObjectRef, ...]:
    """Merge a node's first objects into one, and into objects of one stream where that has a hole; gives the sources.

    Raises:
        CommitRefused: a source has gone meanwhile.
    """
    sources = refs_of(list_of_node(catalog, node_id).live[:count])
    runs = coalesced([spans_of(each.ranges) for each in catalog.parts.open_all(node_id, sources)])
    merged = [run[0] for run in runs.values() if len(run) == 1]
    own = [span for run in runs.values() if len(run) > 1 for span in run]
    ids = catalog.prepare(node_id, 1 + len(own))
    objects = [
        (span[0], StreamObject(write(world, object_id, [span]).ref, span[1], span[2]))
        for object_id, span in zip(ids[1:], own, strict=True)
    ]
    added = write(world, ids[0], merged).ref
    for _ in range(2):  # the second time nothing is left to do
        catalog.commit_compaction(node_id, sources, added, objects)
    return sources


def assert_lookups_find_what_a_walk_finds(world: World, catalog: ObjectCatalog, accelerator: ReadAccelerator) -> None:
    """From the beginning, the middle and the end of each stream on; and each offset is found once."""
    world.clock.seconds += POLL_SECONDS
    for stream_id, stream in catalog.refresh().streams.items():
        live = [each for each in held(catalog, stream_id) if each[2] > stream.start_offset]
        assert all(before[2] == after[1] for before, after in pairwise(live)), live
        assert live[0][1] <= stream.start_offset
        for at in {stream.start_offset, (stream.start_offset + live[-1][2]) // 2, live[-1][2] - 1}:
            answer = accelerator.get_objects(stream_id, at, limit=len(live) + 1)
            found = [(each.ref.object_id, each.start, each.end) for each in answer.objects]
            assert found == [each for each in live if each[2] > at]
            assert answer.resume_offset == live[-1][2]


def assert_clean(catalog: ObjectCatalog) -> None:
    """Verification finds nothing wrong."""
    found = verify(catalog)
    assert (found.outcome, found.problems, found.unchecked) == ("clean", [], [])


def live_ids(catalog: ObjectCatalog) -> set[int]:
    """Ids of the objects that the newest image has."""
    image = catalog.refresh()
    of_streams = {each.ref.object_id for stream in image.streams.values() for each in stream.stream_objects}
    return of_streams | {ref.object_id for node in image.nodes.values() for ref in node.refs}


def test_what_brokers_committed_is_found_and_read(
    world: World, catalog: ObjectCatalog, accelerator: ReadAccelerator, writers: Writers
) -> None:
    assert sum(len(node.refs) for node in catalog.refresh().nodes.values()) == 2 * ROUNDS
    assert_lookups_find_what_a_walk_finds(world, catalog, accelerator)
    for session in writers.values():
        for stream_id in OWNED[session.node_id]:
            at = 0
            for batch in accelerator.read(stream_id, 0, session.end(stream_id) or 0):
                assert (batch.base_offset, batch.stream_id) == (at, stream_id)
                at += batch.count
                assert bytes(batch.payload) == b"%d:%d-%d" % (stream_id, batch.base_offset, at)
            assert at == session.end(stream_id)
    assert_clean(catalog)


def ends_of(catalog: ObjectCatalog) -> dict[int, int]:
    """Where each stream ends, by a walk."""
    return {stream_id: held(catalog, stream_id)[-1][2] for stream_id in STREAMS}


@pytest.mark.usefixtures("writers")
def test_a_compaction_changes_no_answer_and_its_sources_are_collected_in_time(
    world: World, catalog: ObjectCatalog, accelerator: ReadAccelerator
) -> None:
    assert_lookups_find_what_a_walk_finds(world, catalog, accelerator)
    ends, objects = ends_of(catalog), live_ids(catalog)
    with world.open() as elsewhere:
        sources = {ref.object_id for node_id in OWNED for ref in compact(world, elsewhere, node_id, COMPACTED)}
    assert_lookups_find_what_a_walk_finds(world, catalog, accelerator)
    live, lying = live_ids(catalog), world.object_ids()
    assert (ends_of(catalog), objects - live) == (ends, sources)
    assert any(stream.stream_objects for stream in catalog.refresh().streams.values())
    world.wait(FORMAT.retired_seconds - POLL_SECONDS - 1)
    assert plan_collection(catalog).objects == ()
    world.wait(2)
    plan = plan_collection(catalog)
    assert world.object_ids() == lying, "a plan changes nothing"
    report = collect(catalog, plan)
    assert {each.object_id for each in report.deleted} == sources
    assert {each.reason for each in report.deleted} == {"retired"}
    assert world.object_ids() == lying - sources == live
    assert collect(catalog, plan_collection(catalog)).deleted == ()
    assert_lookups_find_what_a_walk_finds(world, catalog, accelerator)
    assert_clean(catalog)


@pytest.mark.usefixtures("writers")
def test_who_may_only_read_can_read(world: World) -> None:
    store = ReadOnly(world.memory)
    with world.open(store) as reader, ReadAccelerator(reader.images(), store, system=world.system) as lookups:
        assert_lookups_find_what_a_walk_finds(world, reader, lookups)
        assert_clean(reader)
        with pytest.raises(AccessDenied):
            reader.open_node(4)


def test_many_writers_at_once_list_every_offset_once(world: World) -> None:
    nodes = (4, 5, 6, 7)
    system = replace(SYSTEM, clock=world.clock)  # who loses a race has to wait before the next one

    def broker(node_id: int) -> int:
        with ObjectCatalog.open(world.store, settings=world.settings, system=system) as mine:
            session = mine.open_node(node_id)
            session.open_streams([node_id, 10 * node_id])
            for _ in range(ROUNDS):
                ends = [(each, session.end(each) or 0) for each in (node_id, 10 * node_id)]
                written = write(world, session.prepare()[0], [(each, end, end + 4) for each, end in ends])
                session.commit_upload(written.ref, written.ranges)
            session.close()
            return session.end(node_id) or 0

    def compactor(mine: ObjectCatalog) -> int:
        lists = [len(node.refs) for node in mine.refresh().nodes.values()]
        chosen = [node_id for node_id, count in zip(mine.image().nodes, lists, strict=True) if count > 1]
        for node_id in chosen:
            compact(world, mine, node_id, 3)
        return len(chosen)

    with (
        ObjectCatalog.open(world.store, settings=world.settings, system=system) as catalog,
        ThreadPoolExecutor(len(nodes)) as threads,
    ):
        brokers = [threads.submit(broker, node_id) for node_id in nodes]
        compactions = 0
        while not all(each.done() for each in brokers):
            compactions += compactor(catalog)
        assert [each.result() for each in brokers] == [4 * ROUNDS] * len(nodes)
        assert compactions + compactor(catalog) >= len(nodes)
        for stream_id in catalog.refresh().streams:
            walked = held(catalog, stream_id)
            assert (walked[0][1], walked[-1][2]) == (0, 4 * ROUNDS)
            assert all(before[2] == after[1] for before, after in pairwise(walked)), walked
        assert_clean(catalog)
