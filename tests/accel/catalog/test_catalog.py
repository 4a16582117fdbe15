"""The catalog as a whole: made once, read cheaply, compacted without losing or inventing anything."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
import pytest

from accel import ReadAccelerator
from accel.catalog import NodeWriter, ObjectCatalog, parts
from accel.catalog.keys import NODE_LIST_HISTORY, NODE_LISTS
from accel.errors import AccessDenied, CatalogDamaged, CatalogMissing, CommitRefused, ImageTooOld, InvalidArgument
from accel.image import StreamObject
from accel.testing import Fault, FaultStore
from loaders.layout import FORMAT_KEY, ObjectLayout
from loaders.object_ref import ObjectRef
from loaders.store import ALWAYS, Body, Condition, CountingStore, MemoryStore, PrefixedStore
from loaders.store.decorated import DecoratedStore, StoreCall
from loaders.tables import FORMAT_FORM, FormatRecord
from loaders.tables.conditional_write import Stored, decode_stored, encode_stored
from loaders.tables.format_record import FORMAT_PLACE
from tests.loaders.tables.worlds import ReadOnly
from tests.world import FORMAT, LAYOUT, Watched, World, held

Answer = TypeVar("Answer")
Spans = dict[int, list[tuple[int, int]]]


def test_a_catalog_is_made_once_and_again_with_the_same_choices(world: World) -> None:
    with world.open() as catalog:
        catalog.open_node(4).open_streams([1])
        ObjectCatalog.init(world.store, FORMAT, system=world.system)
        assert 1 in catalog.refresh().streams
        other = msgspec.structs.replace(FORMAT, retention_seconds=7200.0)
        with pytest.raises(CommitRefused, match="retention_seconds"):
            ObjectCatalog.init(world.store, other, system=world.system)


def test_a_catalog_may_be_made_by_its_name_alone_and_a_wrong_call_says_what_was_expected() -> None:
    store = MemoryStore()
    ObjectCatalog.init(store, namespace="shop")
    ObjectCatalog.init(store, FormatRecord(namespace="shop"))  # the same choices
    with ObjectCatalog.open(store) as catalog:
        assert catalog.format.namespace == "shop"
    make: Any = ObjectCatalog.init
    with pytest.raises(InvalidArgument, match="expected FormatRecord as wanted, found 'shop'"):
        make(store, "shop")
    for wrong in ({}, {"wanted": FORMAT, "namespace": "shop"}):
        with pytest.raises(TypeError, match=r"expected a FormatRecord, or namespace= and a name, found "):
            make(store, **wrong)


def test_a_place_without_a_catalog_is_named() -> None:
    with pytest.raises(CatalogMissing, match=FORMAT_KEY):
        ObjectCatalog.open(MemoryStore())


def test_two_catalogs_in_one_bucket_do_not_meet() -> None:
    memory = MemoryStore()
    worlds = [World(PrefixedStore(memory, prefix)) for prefix in ("a", "b")]
    with worlds[0].open() as first, worlds[1].open() as second:
        first.open_node(4).open_streams([1])
        second.open_node(5).open_streams([2])
        assert [set(each.refresh().nodes) for each in (first, second)] == [{4}, {5}]


def test_a_reader_needs_no_right_to_write(world: World) -> None:
    with world.session(1) as (catalog, writer):
        world.upload(writer, {1: (0, 5)})
    store = ReadOnly(world.memory)
    with world.open(store) as catalog, ReadAccelerator(catalog.images(), store) as accelerator:
        assert accelerator.get_objects(1, 0, 5).resume_offset == 5


def test_each_catalog_has_an_id_of_its_own_whatever_its_caller_gave() -> None:
    found, record = [""], FORMAT
    for _ in range(3):
        store = MemoryStore()
        ObjectCatalog.init(store, record)
        with ObjectCatalog.open(store) as catalog:
            record = catalog.format
            assert catalog.parts.layout.catalog_id == record.catalog_id
            found.append(record.catalog_id)
    assert len(set(found)) == 4


def test_objects_in_the_namespace_of_a_new_catalog_are_told() -> None:
    store = MemoryStore()
    for object_id in range(50):
        store.put(LAYOUT.object_key(object_id), b"theirs")
        store.put(ObjectLayout(namespace="another").object_key(object_id), b"of another namespace")
    [note] = ObjectCatalog.init(store, FORMAT)
    assert "found 50 of 300 bytes in the store" in note
    assert ObjectCatalog.init(store, FORMAT) == (), "it is not new any more"
    assert ObjectCatalog.init(MemoryStore(), FORMAT) == ()


@pytest.mark.parametrize("is_among_them", [False, True])
def test_of_a_large_store_the_beginning_is_looked_at_and_the_rest_is_told(
    is_among_them: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "PAGES_LOOKED_AT_MAX", 2)
    store = CountingStore(MemoryStore())
    for number in range(2100):
        store.put(f"1/{number}", b"")
    store.put(LAYOUT.object_key(0 if is_among_them else 15), b"theirs")
    store.reset()
    [note] = ObjectCatalog.init(store, FORMAT)
    assert "among the first 2000 keys; the others were not looked at" in note
    assert note.startswith("expected no objects" if is_among_them else "no objects in namespace")
    assert store.snapshot().of("list").requests <= 2 + 4


class _Unmarked(DecoratedStore):
    """A store that loses the metadata of objects."""

    def put(self, key: str, body: Body, *, condition: Condition = ALWAYS, mark: str | None = None) -> str:  # noqa: ARG002 - that is the fault
        return super().put(key, body, condition=condition)


def test_a_store_that_cannot_be_listed_or_loses_marks_is_told_by_init() -> None:
    def refuse(call: StoreCall) -> None:
        if call.operation == "list" and not call.key:
            raise AccessDenied("list", call.key, "not permitted")

    [note] = ObjectCatalog.init(Watched(MemoryStore(), refuse), FORMAT)
    assert "could not be listed" in note
    store = MemoryStore()
    [note] = ObjectCatalog.init(_Unmarked(store), FORMAT)
    assert "does not keep the metadata" in note
    assert [info.key for info in store.list("accel/probe/")] == ["accel/probe/conditions"]


def test_a_lost_format_record_comes_back_with_the_same_catalog_id(world: World) -> None:
    with world.open() as catalog:
        before = catalog.format.catalog_id
        catalog.open_node(4).open_streams([1])
    world.memory.delete(FORMAT_KEY)
    ObjectCatalog.init(world.store, FORMAT, system=world.system)
    with world.open() as catalog:
        assert catalog.format.catalog_id == before


@pytest.mark.parametrize("first_write", ["open_node", "prepare"])
def test_a_catalog_of_an_older_release_gets_its_id_before_the_first_object_is_written(first_write: str) -> None:
    world = World()
    with world.open() as catalog:
        catalog.open_node(4).open_streams([1])
    stored = decode_stored(world.memory.get(FORMAT_KEY).body, FORMAT_PLACE, etag="", where=FORMAT_KEY)
    older = FORMAT_FORM.encode(
        msgspec.structs.replace(FORMAT_FORM.decode(stored.value or b"", FORMAT_KEY), catalog_id="")
    )
    world.memory.put(FORMAT_KEY, encode_stored(Stored(older, stored.version), FORMAT_PLACE))
    with world.open() as reader, world.open() as catalog:
        assert catalog.parts.layout.catalog_id == ""
        catalog.open_node(4) if first_write == "open_node" else catalog.prepare(4, 1)
        catalog_id = catalog.parts.layout.catalog_id
        assert len(catalog_id) == 32
        assert reader.parts.layout.catalog_id == "", "a reader writes nothing"
    with world.open() as another:
        assert another.format.catalog_id == catalog_id


def test_a_refresh_with_nothing_new_transfers_no_body(world: World) -> None:
    with world.open() as catalog:
        for node_id in (4, 5, 6):
            catalog.open_node(node_id).open_streams([node_id])
        before = catalog.refresh()
        world.store.reset()
        assert catalog.refresh() is before
        counted = world.store.snapshot().total
        assert (counted.requests, counted.received_bytes) == (1 + 3 + FORMAT.stream_buckets, 0)


def test_only_what_changed_is_read_and_built_again(world: World) -> None:
    with world.open() as catalog:
        writers = {node_id: catalog.open_node(node_id) for node_id in (4, 5)}
        for node_id, writer in writers.items():
            writer.open_streams([node_id])
            world.upload(writer, {node_id: (0, 1)})
        before = catalog.refresh()
        world.upload(writers[5], {5: (1, 2)})
        after = catalog.refresh()
        assert after.nodes[4] is before.nodes[4]
        assert {node_id: len(change.added) for node_id, change in before.changes(after).items()} == {5: 1}


def test_lists_are_read_before_streams(world: World) -> None:
    asked: list[str] = []
    with world.open() as catalog:
        catalog.open_node(4)
    with world.open(Watched(world.memory, lambda call: asked.append(call.key))) as catalog:
        catalog.refresh()
        asked.clear()
        catalog.refresh()
    tables = [key.split("/")[2] for key in asked]
    assert max(at for at, table in enumerate(tables) if table == NODE_LISTS) < tables.index("stream-buckets")


def test_an_image_older_than_the_catalog_allows_is_not_served(world: World) -> None:
    faulty = FaultStore(world.memory)
    with world.session(1) as (catalog, writer):
        world.upload(writer, {1: (0, 5)})
    with world.open(faulty) as catalog, ReadAccelerator(catalog.images(), faulty, system=world.system) as accelerator:
        assert accelerator.get_objects(1, 0, 5).resume_offset == 5
        faulty.schedule(*[Fault.SLOW_DOWN] * 100)
        world.clock.seconds += FORMAT.max_image_age_seconds - 1
        assert accelerator.get_objects(1, 0, 5).resume_offset == 5
        world.clock.seconds += 2
        with pytest.raises(ImageTooOld):
            accelerator.get_objects(1, 0, 5)
        faulty.clear()
        world.clock.seconds += 1
        assert accelerator.get_objects(1, 0, 5).resume_offset == 5


def _five(world: World, catalog: ObjectCatalog) -> tuple[NodeWriter, list[ObjectRef]]:
    """Node 4 with five objects of streams 1 and 2, ten offsets each."""
    writer = catalog.open_node(4)
    writer.open_streams([1, 2])
    spans = [(10 * number, 10 * number + 10) for number in range(5)]
    return writer, [world.upload(writer, {1: span, 2: span}) for span in spans]


def _merge(world: World, catalog: ObjectCatalog, streams: Spans) -> ObjectRef:
    [object_id] = catalog.prepare(4, 1)
    ref, _ = world.put(object_id, [(stream_id, *span) for stream_id in sorted(streams) for span in streams[stream_id]])
    return ref


def test_a_compaction_whose_streams_lost_their_bucket_is_refused(world: World) -> None:
    with world.open() as catalog:
        _, refs = _five(world, catalog)
        merged = _merge(world, catalog, {1: [(10, 40)], 2: [(10, 40)]})
        for info in list(world.store.list("accel/tables/stream-buckets/")):
            if not info.key.endswith("!table"):
                world.store.delete(info.key)
        with pytest.raises(CatalogDamaged, match=r"expected stream shard \d+, found none: it was deleted"):
            catalog.commit_compaction(4, refs[1:4], merged)


def test_a_compaction_takes_the_place_of_its_sources(world: World) -> None:
    with world.open() as catalog:
        writer, refs = _five(world, catalog)
        merged = _merge(world, catalog, {1: [(10, 40)], 2: [(10, 40)]})
        catalog.commit_compaction(4, refs[1:4], merged)
        catalog.commit_compaction(4, refs[1:4], merged)
        expected = [(refs[0].object_id, 0, 10), (merged.object_id, 10, 40), (refs[4].object_id, 40, 50)]
        assert held(catalog, 1) == held(catalog, 2) == expected
        world.upload(writer, {1: (50, 51)})
        retired = catalog.refresh_state().lists[4].value.retired
        assert retired["object_id"].tolist() == [ref.object_id for ref in refs[1:4]]


def test_an_accelerator_follows_a_compaction(world: World) -> None:
    with world.open() as catalog:
        _, refs = _five(world, catalog)
        with ReadAccelerator(catalog.images(), world.store, system=world.system) as accelerator:
            assert len(accelerator.get_objects(1, 5, 45, limit=9).objects) == 5
            merged = _merge(world, catalog, {1: [(10, 40)], 2: [(10, 40)]})
            catalog.commit_compaction(4, refs[1:4], merged)
            for ref in refs[1:4]:
                world.store.delete(LAYOUT.object_key(ref.object_id))
            world.clock.seconds += 2
            found = accelerator.get_objects(1, 5, 45, limit=9)
            assert [each.ref.object_id for each in found.objects] == [
                refs[0].object_id,
                merged.object_id,
                refs[4].object_id,
            ]


@pytest.mark.parametrize(
    "streams",
    [
        {1: [(10, 40)]},
        {1: [(10, 40)], 2: [(10, 39)]},
        {1: [(10, 41)], 2: [(10, 40)]},
        {1: [(10, 40)], 2: [(10, 40)], 3: [(0, 1)]},
    ],
)
def test_an_output_that_does_not_hold_what_its_sources_hold_is_refused(
    streams: dict[int, list[tuple[int, int]]],
) -> None:
    world = World()
    with world.open() as catalog:
        _, refs = _five(world, catalog)
        merged = _merge(world, catalog, streams)
        before = catalog.refresh()
        with pytest.raises(CommitRefused, match="exactly what the sources hold"):
            catalog.commit_compaction(4, refs[1:4], merged)
        assert catalog.refresh() is before


def test_trimmed_offsets_may_be_left_out_of_an_output(world: World) -> None:
    with world.open() as catalog:
        _, refs = _five(world, catalog)
        catalog.trim({1: 25, 2: 50})
        catalog.commit_compaction(4, refs[1:4], _merge(world, catalog, {1: [(25, 40)]}))
        assert [tuple(span) for _, *span in held(catalog, 1)] == [(0, 10), (25, 40), (40, 50)]


def test_runs_of_a_stream_may_go_to_objects_of_their_own(world: World) -> None:
    with world.open() as catalog:
        _, refs = _five(world, catalog)
        merged = _merge(world, catalog, {2: [(10, 40)]})
        ids = catalog.prepare(4, 2)
        own = [
            (1, world.put_stream_object(object_id, 1, *span))
            for object_id, span in zip(ids, [(10, 30), (30, 40)], strict=True)
        ]
        catalog.commit_compaction(4, refs[1:4], merged, own)
        expected = [(refs[0].object_id, 0, 10), (ids[0], 10, 30), (ids[1], 30, 40), (refs[4].object_id, 40, 50)]
        assert held(catalog, 1) == expected
        assert len(catalog.refresh_state().lists[4].value.stream_objects) == 0


def test_a_merged_stream_object_must_hold_just_what_the_others_hold(world: World) -> None:
    with world.open() as catalog:
        _, refs = _five(world, catalog)
        [object_id] = catalog.prepare(4, 1)
        own = (1, world.put_stream_object(object_id, 1, 10, 20))
        catalog.commit_compaction(4, refs[1:2], _merge(world, catalog, {2: [(10, 20)]}), [own])
        with pytest.raises(CommitRefused):
            catalog.register_stream_object(1, StreamObject(ObjectRef(999, 50, 36), 10, 21), [object_id])


def test_a_group_whose_source_is_gone_is_given_up(world: World) -> None:
    with world.open() as catalog:
        _, refs = _five(world, catalog)
        late = _merge(world, catalog, {1: [(10, 40)], 2: [(10, 40)]})
        catalog.commit_compaction(4, refs[:2], _merge(world, catalog, {1: [(0, 20)], 2: [(0, 20)]}))
        with pytest.raises(CommitRefused, match="gone"):
            catalog.commit_compaction(4, refs[1:4], late)
        catalog.discard(4, [late.object_id])
        keys = [each.key for each in world.store.list(LAYOUT.object_key(late.object_id))]
        assert keys == []
        with pytest.raises(CommitRefused, match="prepared"):
            catalog.commit_compaction(4, refs[2:4], late)


def test_uploads_go_on_while_a_compaction_is_committed(world: World) -> None:
    with world.open() as catalog:
        writer, refs = _five(world, catalog)
        merged = _merge(world, catalog, {1: [(10, 40)], 2: [(10, 40)]})

        def upload(call: StoreCall) -> None:
            end = writer.end(1)
            if call.conditional and "node-lists/" in call.key and end is not None and end < 53:
                world.upload(writer, {1: (end, end + 1)})

        with world.open(Watched(world.memory, upload)) as other:
            other.commit_compaction(4, refs[1:4], merged)
        assert [tuple(span) for _, *span in held(catalog, 1)] == [
            (0, 10), (10, 40), (40, 50), (50, 51), (51, 52), (52, 53),
        ]  # fmt: skip


def test_the_last_few_versions_of_a_list_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accel.catalog.compact.LIST_VERSIONS_KEPT", 3)
    world = World()
    with world.open() as catalog:
        _, refs = _five(world, catalog)
        for number, ref in enumerate(refs):
            span = (10 * number, 10 * number + 10)
            catalog.commit_compaction(4, [ref], _merge(world, catalog, {1: [span], 2: [span]}))
        table = catalog.parts.keys.tables.table(NODE_LIST_HISTORY)
        assert len(list(table.keys())) == 3


def test_the_end_of_a_stream_is_found_without_its_writer(world: World) -> None:
    with world.open() as catalog:
        writer, _ = _five(world, catalog)
        assert catalog.stream_end(1) == 50
        writer.close_streams([1])
        assert catalog.stream_end(1) == 50
        with pytest.raises(CommitRefused, match="a stream of this catalog"):
            catalog.stream_end(77)


def test_a_merged_stream_object_whose_promise_ran_out_is_refused(world: World) -> None:
    with world.open() as catalog:
        _, refs = _five(world, catalog)
        ids = catalog.prepare(4, 2)
        own = [
            (1, world.put_stream_object(object_id, 1, *span))
            for object_id, span in zip(ids, [(10, 20), (20, 30)], strict=True)
        ]
        catalog.commit_compaction(4, refs[1:3], _merge(world, catalog, {2: [(10, 30)]}), own)
        [whole] = catalog.prepare(4, 1)
        merged = world.put_stream_object(whole, 1, 10, 30)
        catalog.discard(4, [whole])
        with pytest.raises(CommitRefused):
            catalog.register_stream_object(1, merged, ids)
        assert [object_id for object_id, *_ in held(catalog, 1)][1:3] == ids
