"""A bucket that was put back from a copy: what lived through it says so, and `restored` lets all go on from there."""

from __future__ import annotations

import pickle
from dataclasses import replace

import msgspec
import pytest

from accel import ReadAccelerator
from accel.adoption.importing import ImportChoice, bucket_objects, commit_import, plan_import
from accel.catalog import NodeWriter, ObjectCatalog
from accel.catalog.collect import collect, plan_collection
from accel.catalog.records import NodeDirectory
from accel.catalog.undo import IDS_PASSED_OVER, RestoreReport, plan_restored, restored
from accel.catalog.verify import Verdict, verify
from accel.catalog.writer import IDS_AHEAD
from accel.errors import CatalogDamaged, CatalogWentBack, CommitRefused, SessionFenced
from loaders.hints import write_pack
from loaders.layout import HintKind, hint_root_key
from loaders.object_ref import ObjectRef
from loaders.store.decorated import StoreCall
from loaders.tables import read_format, renew_format
from tests.accel.catalog.test_damage import Bodies, Busy
from tests.loaders.hints.builders import filter_of
from tests.world import FORMAT, LAYOUT, NAMESPACE, Watched, World

STREAM = 1001
LIST_KEY = "accel/tables/node-lists/0000000004"


class Restorable(Busy):
    """One node that writes one stream, a copy of it all, and more uploads after that."""

    def __init__(self, later: int = 5) -> None:
        super().__init__()
        self.catalog = self.open()
        self.writer = self.catalog.open_node(4)
        self.writer.open_streams([STREAM])
        for _ in range(3):
            self.write(self.writer, STREAM)
        self.reader = ReadAccelerator(self.catalog.images(), self.store, system=self.system)
        self.copy = self.bodies()
        self.later = [self.write(self.writer, STREAM) for _ in range(later)]
        self.clock.seconds += 10

    def put_back(self, bodies: Bodies | None = None) -> None:
        """The whole bucket as it was, in place."""
        for info in list(self.memory.list("")):
            self.memory.delete(info.key)
        for key, body in (bodies or self.copy).items():
            self.memory.put(key, body)

    def read_on(self) -> list[bytes]:
        """What the reader gets that was there all along."""
        self.clock.seconds += 10
        return [batch.payload for batch in self.reader.read(STREAM, 0)]

    def restored(self) -> RestoreReport:
        with self.open() as catalog:
            return restored(catalog, plan_restored(catalog))


@pytest.fixture
def world() -> Restorable:
    return Restorable()


def test_a_reader_that_lived_through_it_says_so_and_serves_nothing_from_the_old_image(world: Restorable) -> None:
    assert len(world.read_on()) == 8
    world.put_back()
    for seconds in (0, 0.5, 0.5, 30, 2000):
        world.clock.seconds += seconds
        with pytest.raises(CatalogWentBack, match=r"expected version .* which was read before"):
            list(world.reader.read(STREAM, 0))
        with pytest.raises(CatalogWentBack):
            world.catalog.refresh()


def test_a_key_that_went_back_ends_the_sessions_of_its_process_for_good(world: Restorable) -> None:
    """Any key, seen by anyone: a list that is whole proves nothing once a shard was put back."""
    world.writer.open_streams([1002, 1003, 1004, 1005])
    newest = world.bodies()
    world.catalog.refresh()
    shards = [key for key in newest if "stream-buckets/0" in key and newest[key] != world.copy[key]]
    world.put_back({**newest, shards[0]: world.copy[shards[0]]})
    with pytest.raises(CatalogWentBack, match="stream-buckets"):
        world.catalog.refresh()
    world.put_back(newest)
    world.catalog.refresh()
    for call in (lambda: world.write(world.writer, STREAM), world.writer.checkpoint, world.writer.prepare):
        with pytest.raises(CatalogWentBack, match="stream-buckets"):
            call()
    assert world.bodies() == newest
    with world.catalog.open_node(4) as writer:
        world.write(writer, STREAM)


def test_closing_a_session_whose_checkpoint_went_back_says_so(world: Restorable) -> None:
    key = "accel/tables/node-checkpoints/0000000004"
    world.writer.checkpoint()
    before = world.bodies()
    world.write(world.writer, STREAM)
    world.writer.checkpoint()
    world.write(world.writer, STREAM)
    world.put_back({**world.bodies(), key: before[key]})
    with pytest.raises(CatalogWentBack, match="node-checkpoints"):
        world.writer.close()


def test_after_restored_a_reader_goes_on_with_what_is_there(world: Restorable) -> None:
    before = world.read_on()
    world.put_back()
    with pytest.raises(CatalogWentBack):
        world.read_on()
    report = world.restored()
    assert world.read_on() == before[:3]
    assert world.catalog.refresh().version.generation == report.generation  # type: ignore[union-attr]  # a vector
    with world.open() as catalog, catalog.open_node(4) as writer:
        world.write(writer, STREAM)
        assert world.read_on() == [*before[:3], b"1001:30-40"]
        assert verify(catalog).outcome is Verdict.CLEAN


def test_a_reader_that_was_told_of_a_restore_it_did_not_see_drops_its_image_too() -> None:
    """Nothing had been read of the lost time: no sequence falls, and the new generation alone says so."""
    world = Restorable(later=0)
    assert len(world.read_on()) == 3
    before = world.reader.stats().image_version
    world.restored()
    assert len(world.read_on()) == 3
    after = world.reader.stats().image_version
    assert after.generation > before.generation  # type: ignore[union-attr]  # vectors


def test_another_history_of_the_same_length_is_seen() -> None:
    """The sequence did not fall: the nonce of the same version, or of an ancestor, is another one."""
    world = Restorable(later=1)
    assert len(world.read_on()) == 4
    world.put_back()
    with world.session() as (_, writer):
        for _ in range(4):
            world.write(writer, STREAM)
    with pytest.raises(CatalogWentBack):
        world.read_on()


def test_a_list_that_is_gone_is_seen_by_who_has_read_it(world: Restorable) -> None:
    assert len(world.read_on()) == 8
    world.memory.delete(LIST_KEY)
    with pytest.raises(CatalogWentBack, match="found nothing"):
        world.read_on()
    world.memory.put(LIST_KEY, world.copy[LIST_KEY])
    with pytest.raises(CatalogWentBack, match="found version"):
        world.read_on()


def test_a_key_that_is_right_again_ends_it(world: Restorable) -> None:
    right = world.memory.get(LIST_KEY).body
    assert len(world.read_on()) == 8
    world.memory.put(LIST_KEY, world.copy[LIST_KEY])
    with pytest.raises(CatalogWentBack):
        world.read_on()
    world.memory.put(LIST_KEY, right)
    assert len(world.read_on()) == 8


def test_a_writer_that_lived_through_it_commits_nothing(world: Restorable) -> None:
    world.put_back()
    before = world.bodies()
    with pytest.raises(CatalogWentBack):
        world.write(world.writer, STREAM)
    after = world.bodies()
    assert {key: body for key, body in after.items() if key.startswith("accel/")} == {
        key: body for key, body in before.items() if key.startswith("accel/")
    }


@pytest.mark.parametrize("more", [0, 20])
def test_after_restored_a_writer_that_lived_through_it_is_fenced(more: int) -> None:
    """Whether its list can still be compared with what it has read, or so many wrote meanwhile that it cannot."""
    world = Restorable(later=1)
    world.put_back()
    world.restored()
    with world.session() as (catalog, other):
        for _ in range(more):
            world.write(other, STREAM)
        count = len(catalog.refresh().node(4))
        with pytest.raises((SessionFenced, CatalogWentBack, CommitRefused)):
            world.write(world.writer, STREAM)
        assert len(catalog.refresh().node(4)) == count


def test_no_id_of_the_lost_time_is_given_out_again(world: Restorable) -> None:
    taken = set(world.later) | set(world.catalog.prepare(4, 3))
    kept = {LAYOUT.object_key(each): world.memory.get(LAYOUT.object_key(each)).body for each in world.later}
    world.put_back({**world.copy, **kept})
    report = world.restored()
    assert report.plan.highest_object_id >= max(world.later)
    with world.open() as catalog, catalog.open_node(4) as writer:
        new = writer.prepare(50)
        assert min(new) > max(taken) + IDS_PASSED_OVER // 2
        assert not set(new) & taken


def test_a_counter_that_is_gone_is_made_above_all_ids(world: Restorable) -> None:
    world.memory.delete("accel/tables/counters/object-ids")
    report = world.restored()
    assert report.plan.next_object_id is None
    with world.open() as catalog:
        counter = catalog.parts.keys.object_ids().read()
        assert counter is not None
        assert counter.value == max(world.later) + 1 + IDS_AHEAD + IDS_PASSED_OVER
        assert verify(catalog).outcome is Verdict.CLEAN


def test_nodes_that_come_later_leave_the_generation(world: Restorable) -> None:
    generation = world.restored().generation
    with world.session(2001, node_id=6) as (catalog, writer):
        world.write(writer, 2001)
        assert generation_of(catalog) == generation


def test_an_import_leaves_the_generation() -> None:
    world = World()
    world.put(7, [(STREAM, 0, 10)])
    with world.open() as catalog:
        generation = restored(catalog, plan_restored(catalog)).generation
        assert generation > ""
    with world.open() as catalog:
        commit_import(catalog, plan_import(catalog, bucket_objects(catalog), ImportChoice(nodes=4), begin=True))
        assert sorted(catalog.refresh().nodes) == [4]
        assert generation_of(catalog) == generation


def test_a_format_record_that_was_deleted_comes_back_in_its_generation(world: Restorable) -> None:
    generation = world.restored().generation
    world.memory.delete("accel/format")
    with pytest.raises(CommitRefused, match="in use"):
        ObjectCatalog.init(world.store, msgspec.structs.replace(FORMAT, stream_buckets=8), system=world.system)
    ObjectCatalog.init(world.store, FORMAT, system=world.system)
    ObjectCatalog.init(world.store, FORMAT, system=world.system)  # may be repeated
    with world.open() as catalog:
        assert (catalog.format.generation, generation_of(catalog)) == (generation, generation)


def test_a_directory_or_list_that_is_gone_is_put_back_first() -> None:
    for key in ("accel/tables/nodes/directory", LIST_KEY):
        world = Restorable()
        world.memory.delete(key)
        before = world.bodies()
        with pytest.raises(CatalogDamaged, match="found none: it was deleted"):
            world.restored()
        assert world.bodies() == before


def generation_of(catalog: ObjectCatalog) -> str:
    directory = catalog.parts.keys.directory().read()
    assert directory is not None
    return directory.value.generation


def test_ids_that_hints_name_are_passed_over(world: Restorable) -> None:
    world.memory.put(hint_root_key(HintKind.SNAPSHOTS, 4), b"no root")  # what cannot be read names none
    assert world.restored().plan.highest_object_id < 9_000
    added = [(ObjectRef(9_000, 100), filter_of(STREAM))]
    write_pack(world.store, namespace=NAMESPACE, node_id=7, generation=1, added=added)
    assert world.restored().plan.highest_object_id == 9_000


def test_a_directory_that_went_back_names_all_nodes_again(world: Restorable) -> None:
    with world.session(2001, node_id=6) as (catalog, writer):
        world.write(writer, 2001)
    directory = "accel/tables/nodes/directory"
    world.memory.put(directory, world.copy[directory])
    with world.open() as catalog, pytest.raises(CatalogDamaged, match="found none in the directory: put back"):
        catalog.refresh()
    assert world.restored().plan.unnamed_nodes == (6,)
    with world.open() as catalog:
        assert sorted(catalog.refresh().nodes) == [4, 6]


def test_a_dry_run_writes_nothing_and_a_repetition_is_safe(world: Restorable) -> None:
    before = world.bodies()
    with world.open() as catalog:
        plan_restored(catalog)
    assert world.bodies() == before
    generations = [world.restored().generation for _ in range(3)]
    assert generations == sorted(set(generations))
    found = read_format(world.store)
    assert found is not None
    assert found.generation == generations[-1]
    assert len(world.read_on()) == 8


def test_a_clock_that_is_behind_makes_a_later_generation_all_the_same(world: Restorable) -> None:
    first = world.restored().generation
    world.clock.seconds -= 10_000
    assert world.restored().generation > first


def test_what_was_put_back_is_collected_as_orphans_only_after_their_time(world: Restorable) -> None:
    kept = {LAYOUT.object_key(each): world.memory.get(LAYOUT.object_key(each)).body for each in world.later}
    world.put_back({**world.copy, **kept})
    world.restored()
    with world.open() as catalog:
        plan = plan_collection(catalog)
        assert not {each.object_id for each in plan.objects} & set(world.later)
        assert collect(catalog, plan).failed == ()


def test_renewing_the_format_refuses_an_earlier_generation(world: Restorable) -> None:
    world.restored()
    for generation in ("x", "1" * 47, "01760000000000-" + "g" * 32):
        with pytest.raises(ValueError, match="expected a generation of 14 digits"):
            NodeDirectory(generation=generation)
    with pytest.raises(ValueError, match="expected a generation above"):
        renew_format(world.store, "0", world.system.nonce)


def test_sessions_and_imports_keep_the_generation(world: Restorable) -> None:
    generation = world.restored().generation
    with world.open() as catalog, catalog.open_node(9):
        directory = catalog.parts.keys.directory().read()
        assert directory is not None
        assert directory.value.generation == generation
        assert directory.value.node_ids.tolist() == [4, 9]
    assert NodeDirectory().generation == ""


def test_the_error_can_be_sent_to_another_process() -> None:
    error = CatalogWentBack("table 'a', key 'b'", (7, b"\1" * 16), None)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert (str(again), again.seen, again.found) == (str(error), error.seen, None)


def test_a_session_refuses_a_list_that_its_checkpoint_is_ahead_of(world: Restorable) -> None:
    world.writer.close()
    world.memory.put(LIST_KEY, world.copy[LIST_KEY])
    with (
        world.open() as catalog,
        pytest.raises(CatalogDamaged, match="expected the 8 commits that its checkpoint contains"),
    ):
        catalog.open_node(4)


def test_an_object_that_is_listed_already_must_be_the_same_one(world: Restorable) -> None:
    ref = world.catalog.refresh().node(4).refs[-1]
    opened = next(iter(world.catalog.parts.open_all(4, [ref])))
    world.writer.commit_upload(ref, opened.ranges)  # repeated: nothing changes
    with pytest.raises(CommitRefused, match=r"with a tail of checksum 7, found it listed with .* bytes and"):
        world.writer.commit_upload(replace(ref, tail_checksum=7), opened.ranges)
    world.writer.commit_upload(replace(ref, tail_checksum=-1), opened.ranges)  # nobody knows: nothing contradicts


def test_sessions_that_begin_while_an_image_is_read_are_no_damage() -> None:
    world = World()
    world.upload(opened_with(world, [1]), {1: (0, 10)})

    def begin(call: StoreCall) -> None:
        if call.key.startswith("accel/tables/stream-buckets/"):
            world.open().open_node(4)

    with world.open(Watched(world.memory, begin)) as reader:
        for _ in range(3):
            image = reader.refresh()
            assert [ref.object_id for ref in image.nodes[4].refs] == [0]


def opened_with(world: World, stream_ids: list[int]) -> NodeWriter:
    writer = world.open().open_node(4)
    writer.open_streams(stream_ids)
    return writer
