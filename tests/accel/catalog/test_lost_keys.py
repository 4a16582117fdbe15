"""A key that was deleted, or put back from yesterday: nobody goes on as if nothing had been there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest

from accel.adoption.importing import ImportChoice, bucket_objects, commit_import, plan_import
from accel.catalog import CatalogSettings, ObjectCatalog
from accel.catalog.collect import plan_collection
from accel.catalog.keys import list_version_key, node_key, shard_key
from accel.errors import CatalogDamaged, CatalogMissing, CommitRefused
from accel.history.rules.configuration import StreamConfiguration
from accel.history.store import StreamStore
from loaders.store import MemoryStore, ObjectStore
from loaders.tables import FormatRecord, read_format
from tests.accel.history.store.watching import interrupted
from tests.world import FORMAT, World, each_crash, held

NODE, OTHER, STREAM = 4, 6, 1
TABLES = "accel/tables/"
COUNTER = f"{TABLES}counters/object-ids"
DIRECTORY = f"{TABLES}nodes/directory"
SETTINGS = CatalogSettings(parallel_requests=1, ids_block=8)
WRITES_MAX = 60


def list_of(node_id: int) -> str:
    return f"{TABLES}node-lists/{node_key(node_id)}"


def busy(world: World | None = None) -> World:
    """Two nodes that have written."""
    world = world or World(settings=SETTINGS)
    with world.open() as catalog:
        for node_id, stream_id in ((NODE, STREAM), (OTHER, 2)):
            with catalog.open_node(node_id) as writer:
                writer.open_streams([stream_id])
                for start in range(0, 30, 10):
                    world.upload(writer, {stream_id: (start, start + 10)})
    return world


def keys(world: World) -> dict[str, bytes]:
    return {info.key: world.store.get(info.key).body for info in world.store.list("")}


def refused(world: World, match: str, act: Callable[[ObjectCatalog], object]) -> None:
    """Something raises `CatalogDamaged`, and writes nothing."""
    before = keys(world)
    with world.open() as catalog, pytest.raises(CatalogDamaged, match=match):
        act(catalog)
    assert keys(world) == before


# The counter of ids


@pytest.fixture
def world() -> World:
    return World(settings=SETTINGS)


def test_ids_are_not_given_out_anew_after_the_counter_was_deleted() -> None:
    world = busy()
    world.store.delete(COUNTER)
    refused(world, "object-ids.*found none", lambda catalog: catalog.open_node(NODE))
    refused(world, "object-ids.*found none", lambda catalog: catalog.open_node(9))
    refused(world, "object-ids.*found none", lambda catalog: catalog.prepare(NODE, 1))


def test_a_session_that_is_open_gives_no_ids_of_a_counter_that_was_deleted(world: World) -> None:
    with world.session(STREAM) as (_, writer):
        taken = writer.prepare(3)
        world.store.delete(COUNTER)
        taken += writer.prepare(5)  # the rest of a block that is its own
        assert len(set(taken)) == 8
        with pytest.raises(CatalogDamaged, match="found none"):
            writer.prepare(1)


def test_a_counter_that_was_put_back_gives_nothing(world: World) -> None:
    older = world.store.get(COUNTER).body
    busy(world)
    world.store.put(COUNTER, older)
    expected = "a number above [0-9]+, the highest id in use, found 0: it went back"
    refused(world, expected, lambda catalog: catalog.open_node(NODE))
    refused(world, expected, lambda catalog: catalog.prepare(OTHER, 1))


def test_a_session_that_is_open_gives_no_ids_of_a_counter_that_was_put_back(world: World) -> None:
    older = world.store.get(COUNTER).body
    with world.open() as catalog, catalog.open_node(NODE) as writer:
        taken = writer.prepare(8)
        world.store.put(COUNTER, older)
        with pytest.raises(CatalogDamaged, match=f"above {max(taken)}"):
            writer.prepare(1)


def test_an_import_does_not_begin_a_lost_counter_anew(world: World) -> None:
    world.put(7, [(STREAM, 0, 10)])
    with world.open() as catalog:
        plan = plan_import(catalog, bucket_objects(catalog), ImportChoice(nodes=NODE))
        world.store.delete(COUNTER)
        with pytest.raises(CatalogDamaged, match="object-ids"):
            commit_import(catalog, plan)


# Lists, directory, buckets


def test_a_list_that_was_deleted_is_not_made_anew() -> None:
    world = busy()
    world.store.delete(list_of(NODE))
    traces = "the directory names the node and it has a checkpoint and it has 1 ranges of streams"
    refused(world, f"the list of node 4 .*found none, but {traces}", lambda catalog: catalog.open_node(NODE))
    refused(world, "0000000004.*found none", lambda catalog: catalog.close_streams([STREAM]))
    with world.open() as catalog:
        assert catalog.open_node(OTHER).end(2) == 30  # the other node goes on
        world.clock.seconds += 10 * 86400
        plan = plan_collection(catalog)
        assert list(plan.doubts) == [NODE]
        assert "0000000004" in plan.doubts[NODE]
        assert not any(each.is_listed for each in plan.objects)


@pytest.mark.parametrize("trace", ["directory", "checkpoint", "ranges"])
def test_one_trace_of_a_node_is_enough(world: World, trace: str) -> None:
    empty_directory = world.store.get(DIRECTORY).body
    with world.session() as (_, writer):
        if trace == "ranges":
            writer.open_streams([STREAM])
        if trace == "checkpoint":
            writer.checkpoint()
    if trace != "directory":
        world.store.put(DIRECTORY, empty_directory)
    world.store.delete(list_of(NODE))
    refused(world, "list of node 4", lambda catalog: catalog.open_node(NODE))


def test_two_first_sessions_at_once_are_no_damage() -> None:
    for before_call in range(WRITES_MAX):
        world = World(settings=SETTINGS)

        def other(world: World = world) -> None:
            with world.session(STREAM, node_id=9) as (_, writer):
                world.upload(writer, {STREAM: (0, 10)})

        store = interrupted(world.store, before_call, other)
        with world.open(store) as catalog:
            catalog.open_node(9)
        with world.open() as catalog:
            assert catalog.open_node(9).end(STREAM) == (10 if before_call < store.fitting else None)
        if before_call >= store.fitting:
            assert store.fitting > 10
            return
    pytest.fail(f"expected fewer than {WRITES_MAX} calls")


def test_two_first_scopes_at_once_are_no_damage() -> None:
    for before_call in range(WRITES_MAX):
        world = World(settings=SETTINGS)  # for its clock and nonces
        bucket = MemoryStore()

        def other(world: World = world, bucket: MemoryStore = bucket) -> None:
            streams = StreamStore.open(bucket, system=world.system)
            streams.create_scope("theirs")
            streams.create_stream("theirs", "orders", StreamConfiguration(min_segments=1))

        store = interrupted(bucket, before_call, other)
        StreamStore.open(store, system=world.system).create_scope("mine")
        streams = StreamStore.open(bucket, system=world.system)
        assert list(streams.scopes()) == (["mine", "theirs"] if before_call < store.fitting else ["mine"])
        if before_call >= store.fitting:
            assert store.fitting > 10
            return
    pytest.fail(f"expected fewer than {WRITES_MAX} calls")


def test_the_tables_of_all_streams_are_not_made_anew_beside_a_scope() -> None:
    bucket, world = MemoryStore(), World(settings=SETTINGS)
    StreamStore.open(bucket, system=world.system).create_scope("shop")
    for info in list(bucket.list(f"{TABLES}_system%2F")):
        bucket.delete(info.key)
    before = [info.key for info in bucket.list("")]
    with pytest.raises(CatalogDamaged, match=r"_system/scopes.*streamsInScope"):
        StreamStore.open(bucket, system=world.system).create_scope("other")
    assert [info.key for info in bucket.list("")] == before


@pytest.mark.parametrize("lost", ["segmentStreams", "transactionIds", ""])
def test_ids_of_histories_are_not_given_out_anew(world: World, lost: str) -> None:
    streams = StreamStore.open(world.store, system=world.system)
    streams.create_scope("shop")
    stream = streams.create_stream("shop", "orders", StreamConfiguration(min_segments=1))
    for info in list(world.store.list(f"{TABLES}_system%2Fcounters/{lost}")):
        world.store.delete(info.key)
    again = StreamStore.open(world.store, system=world.system)
    for is_lost, act in (
        (lost != "transactionIds", lambda: again.create_stream("shop", "other", StreamConfiguration(min_segments=1))),
        (lost != "segmentStreams", again.stream("shop", "orders").transactions.begin),
    ):
        with pytest.raises(CatalogDamaged, match="_system/counters") if is_lost else nullcontext():
            act()
    assert stream.segment_stream(0) == 0


def test_a_counter_of_segments_below_a_binding_that_was_read_is_refused(world: World) -> None:
    key = f"{TABLES}_system%2Fcounters/segmentStreams"
    older = world.store.get(key).body
    streams = StreamStore.open(world.store, system=world.system)
    streams.create_scope("shop")
    streams.create_stream("shop", "orders", StreamConfiguration(min_segments=3))
    world.store.put(key, older)
    again = StreamStore.open(world.store, system=world.system)
    assert again.stream("shop", "orders").segment_stream(2) == 2
    with pytest.raises(CatalogDamaged, match="a number above 2, the highest id in use, found 0"):
        again.create_stream("shop", "other", StreamConfiguration(min_segments=1))


def test_a_transaction_is_not_begun_under_the_id_of_another(world: World) -> None:
    key = f"{TABLES}_system%2Fcounters/transactionIds"
    older = world.store.get(key).body
    streams = StreamStore.open(world.store, system=world.system)
    streams.create_scope("shop")
    first = streams.create_stream("shop", "orders", StreamConfiguration(min_segments=1)).transactions.begin()
    world.store.put(key, older)
    world.clock.seconds += 1
    again = StreamStore.open(world.store, system=world.system).stream("shop", "orders")
    with pytest.raises(CatalogDamaged, match=f"{first}: expected an id that no transaction has"):
        again.transactions.begin()


def test_a_list_that_is_put_back_is_the_way_back() -> None:
    world = busy()
    kept = world.store.get(list_of(NODE)).body
    world.store.delete(list_of(NODE))
    refused(world, "list of node 4", lambda catalog: catalog.open_node(NODE))
    world.store.put(list_of(NODE), kept)
    with world.open() as catalog, catalog.open_node(NODE) as writer:
        assert writer.end(STREAM) == 30
        world.upload(writer, {STREAM: (30, 40)})
        assert [span[1:] for span in held(catalog, STREAM)] == [(0, 10), (10, 20), (20, 30), (30, 40)]


def test_a_directory_that_was_deleted_is_not_made_anew() -> None:
    world = busy()
    world.store.delete(DIRECTORY)
    refused(world, "key 'directory'", lambda catalog: catalog.open_node(NODE))
    refused(world, "key 'directory'", lambda catalog: catalog.open_node(9))


def test_a_bucket_that_was_deleted_is_not_made_anew() -> None:
    world = busy()
    with world.session() as (catalog, writer):
        for number in range(FORMAT.stream_buckets):
            world.store.delete(f"{TABLES}stream-buckets/{shard_key(number)}")
        before = keys(world)
        with pytest.raises(CatalogDamaged, match="stream-buckets"):
            writer.open_streams([77])
        with pytest.raises(CatalogDamaged, match="stream-buckets"):
            writer.trim({STREAM: 5})
        with pytest.raises(CatalogDamaged, match="stream-buckets"):
            catalog.open_node(9)
        assert keys(world) == before


# The format record, and init


def initialised(world: World, wanted: FormatRecord = FORMAT, store: ObjectStore | None = None) -> None:
    ObjectCatalog.init(store or world.store, wanted, settings=SETTINGS, system=world.system)


def test_a_format_record_that_was_deleted_is_written_again_with_the_same_choices() -> None:
    world = busy()
    before = keys(world)
    world.store.delete("accel/format")
    with pytest.raises(CatalogMissing):
        world.open()
    initialised(world)
    after = keys(world)
    assert {**after, "accel/format": b""} == {**before, "accel/format": b""}
    with world.open() as catalog, catalog.open_node(NODE) as writer:
        assert writer.end(STREAM) == 30


@pytest.mark.parametrize(
    "other", [FormatRecord(namespace="other", stream_buckets=4), FormatRecord(namespace="test", stream_buckets=8)]
)
@pytest.mark.parametrize("is_busy", [False, True])
def test_other_choices_are_refused_when_the_format_record_was_deleted(other: FormatRecord, is_busy: bool) -> None:
    world = busy() if is_busy else World(settings=SETTINGS)
    world.store.delete("accel/format")
    with pytest.raises(CommitRefused, match="expected no catalog"):
        initialised(world, other)
    assert read_format(world.store) is None


LOST_WITH_THE_FORMAT = [
    COUNTER,
    DIRECTORY,
    list_of(NODE),
    f"{TABLES}nodes/format",
    f"{TABLES}nodes/!table",
    f"{TABLES}node-lists/!table",
    f"{TABLES}stream-buckets/{shard_key(2)}",
    f"{TABLES}_system%2Fcounters/segmentStreams",
    f"{TABLES}_system%2Fcounters/transactionIds",
    f"{TABLES}_system%2Fscopes/!table",
]


@pytest.mark.parametrize("key", LOST_WITH_THE_FORMAT)
def test_a_catalog_in_use_that_lost_more_than_its_format_record_is_not_made_anew(key: str) -> None:
    world = busy()
    world.store.get(key)
    world.store.delete("accel/format")
    world.store.delete(key)
    before = keys(world)
    with pytest.raises(CatalogDamaged):
        initialised(world)
    assert keys(world) == before


def test_a_counter_that_went_back_is_found_when_the_format_record_is_written_again(world: World) -> None:
    older = world.store.get(COUNTER).body
    busy(world)
    world.store.put(COUNTER, older)
    world.store.delete("accel/format")
    with pytest.raises(CatalogDamaged, match="went back"):
        initialised(world)


def test_init_that_died_before_any_of_its_writes_is_repeated() -> None:
    whole = set(keys(World(settings=SETTINGS)))

    def emptied() -> World:
        world = World(settings=SETTINGS)  # for its clock and nonces
        for info in list(world.memory.list("")):
            world.memory.delete(info.key)
        return world

    def act(world: World, store: ObjectStore) -> None:
        initialised(world, store=store)

    for world, has_died in each_crash(emptied, act, writes_min=21, every=4):
        if has_died:
            initialised(world)
        assert {key for key in keys(world) if "/probe/" not in key} == whole
        busy(world)
        streams = StreamStore.open(world.store, system=world.system)
        streams.create_scope("shop")
        assert streams.create_stream("shop", "orders", StreamConfiguration(min_segments=1)).segment_stream(0) == 0


def test_two_that_initialise_at_once_make_one_catalog() -> None:
    world = World(MemoryStore(), settings=SETTINGS)
    initialised(world)
    initialised(world)
    assert list_version_key(NODE, 1) not in "".join(keys(world))
    assert len([key for key in keys(world) if key.endswith("object-ids")]) == 1
