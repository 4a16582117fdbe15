"""Nothing is deleted or overwritten that is not proven to be this catalog's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from random import Random
from threading import Barrier, Lock
from typing import TypeVar

import pytest

from accel.catalog import CatalogSettings, ObjectCatalog
from accel.catalog.collect import Reason, collect, delete_stray, find_stray, foresee, plan_collection
from accel.catalog.proof import Standing, prove, prove_all
from accel.catalog.records import NodeList
from accel.errors import AccessDenied, MaintenanceRefused
from accel.repair.objects import PutBackOutcome, put_back
from accel.system import StopRequested
from loaders.errors import KeyMissing
from loaders.layout import Mark, ObjectLayout
from loaders.object_index import OpenedObject
from loaders.object_ref import ObjectRef
from loaders.store import MemoryStore, ObjectStore
from loaders.store.decorated import DecoratedStore, StoreCall
from tests.accel.catalog.test_collecting import AgingWorld
from tests.builders import write_set_object
from tests.world import DAY_SECONDS, LAYOUT, World, held

Answer = TypeVar("Answer")

THEIRS = ObjectLayout(namespace=LAYOUT.namespace, catalog_id="f" * 32)
"""Another catalog with the same namespace."""


class Shared(AgingWorld):
    """A bucket whose namespace another system uses, too: its objects have ids that this catalog allocates."""

    def __init__(self) -> None:
        super().__init__()
        self.foreign: dict[int, bytes] = {}

    def put_foreign(self, object_id: int, *, has_mark: bool = False) -> None:
        body = write_set_object([(9, object_id % 9, object_id % 9 + 1)])  # of the size of an upload of one record
        mark = THEIRS.mark(object_id, self.system.nonce) if has_mark else None
        self.memory.put(LAYOUT.object_key(object_id), body, mark=mark)
        self.foreign[object_id] = body

    def foreign_left(self) -> dict[int, bytes]:
        found = {}
        for object_id in self.foreign:
            with suppress(KeyMissing):
                found[object_id] = bytes(self.memory.get(LAYOUT.object_key(object_id)).body)
        return found


class Watched(DecoratedStore):
    """Counts requests, and denies reads of some keys."""

    def __init__(self, store: ObjectStore, denied: str = "") -> None:
        super().__init__(store)
        self.requests: Counter[tuple[str, str]] = Counter()
        self.denied = denied
        self._lock = Lock()

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        with self._lock:
            self.requests[call.operation, call.key] += 1
        if call.key == self.denied and call.operation.startswith("get"):
            raise AccessDenied(call.operation, call.key, "403")
        return send()


@pytest.fixture
def world() -> AgingWorld:
    return AgingWorld()


@pytest.mark.parametrize("has_mark", [False, True])
def test_objects_of_another_system_with_ids_of_this_catalog_are_never_deleted(has_mark: bool) -> None:
    world = Shared()
    with world.open() as catalog:
        for object_id in [*catalog.prepare(4, 2, deadline_seconds=100), *catalog.parts.ids.take(20)]:
            world.put_foreign(object_id, has_mark=has_mark)
    for _ in range(3):
        world.wait(4 * DAY_SECONDS)
        with world.open() as catalog:
            plan = plan_collection(catalog)
            assert not world.foreign.keys() & {each.object_id for each in foresee(catalog, plan).deleted}
            report = collect(catalog, plan)
        assert {each.object_id for each, _ in report.unproven} == set(world.foreign)
        assert all("expected a mark of this catalog" in found for _, found in report.unproven)
        assert world.foreign_left() == world.foreign


def imported_world() -> tuple[Shared, list[ObjectRef]]:
    """Two uploads without marks, merged into another object that has one; the rows of the first have checksums."""
    world = Shared()
    with world.session(5, node_id=7) as (catalog, writer):
        refs = []
        for at in range(2):
            [object_id] = writer.prepare()
            ref, ranges = world.put(object_id, [(5, at, at + 1)], is_marked=False)
            writer.commit_upload(ref, ranges)
            refs.append(ref)
        known = [replace(ref, tail_checksum=opened.ref.tail_checksum) for ref, opened in _opened(catalog, refs)]
        [object_id] = catalog.prepare(7, 1)
        target, _ = world.put(object_id, [(5, 0, 1), (5, 1, 2)])
        catalog.commit_compaction(7, known, target)
    world.wait(DAY_SECONDS / 2)
    return world, refs


def _opened(catalog: ObjectCatalog, refs: list[ObjectRef]) -> list[tuple[ObjectRef, OpenedObject]]:
    return list(zip(refs, catalog.parts.open_all(7, refs), strict=True))


def test_a_compaction_fills_in_the_checksums_of_its_sources_and_they_prove_objects_without_marks() -> None:
    world, refs = imported_world()
    with world.open() as catalog:
        rows = catalog.refresh_state().node_lists()[7].retired
        assert (rows["tail_checksum"] >= 0).all()
        report = collect(catalog, plan_collection(catalog))
    assert {ref.object_id for ref in refs} <= {each.object_id for each in report.deleted}
    assert not report.unproven


def test_a_retired_row_does_not_prove_an_object_with_other_bytes_of_the_same_size() -> None:
    world, refs = imported_world()
    replaced = refs[0].object_id
    world.put_foreign(replaced)
    assert len(world.foreign[replaced]) == refs[0].size_bytes
    for _ in range(2):
        with world.open() as catalog:
            report = collect(catalog, plan_collection(catalog))
            pending = catalog.refresh_state().node_lists()[7].retired
        [(stays, found)] = report.unproven
        assert (stays.object_id, stays.reason, pending["object_id"].tolist()) == (replaced, Reason.RETIRED, [replaced])
        assert "found no mark" in found
        assert world.foreign_left() == world.foreign


def test_a_size_that_differs_from_the_row_proves_nothing_even_with_a_mark(world: AgingWorld) -> None:
    source = world.sources[0].object_id
    world.memory.put(LAYOUT.object_key(source), b"cut off", mark=world.mark(source))
    world.wait(DAY_SECONDS / 2)
    with world.open() as catalog:
        report = collect(catalog, plan_collection(catalog))
    assert [each.object_id for each, _ in report.unproven] == [source]


def test_a_row_without_a_checksum_proves_no_object_without_a_mark(world: AgingWorld) -> None:
    source = world.sources[0].object_id
    world.memory.put(LAYOUT.object_key(source), world.memory.get(LAYOUT.object_key(source)).body)
    world.wait(DAY_SECONDS / 2)
    with world.open() as catalog:
        catalog.parts.keys.node_list(4).change(
            lambda now: None if now is None or (now.retired["tail_checksum"] < 0).all() else _without_checksums(now)
        )
        report = collect(catalog, plan_collection(catalog))
    assert [each.object_id for each, _ in report.unproven] == [source]


def _without_checksums(now: NodeList) -> NodeList:
    rows = now.retired.copy()
    rows["tail_checksum"] = -1
    return replace(now, retired=rows)


def test_a_mark_at_the_key_of_another_object_proves_nothing() -> None:
    store, layout = MemoryStore(), ObjectLayout(namespace="n", catalog_id="a" * 32)
    for object_id, mark in {1: layout.mark(1, lambda: bytes(16)), 2: layout.mark(1, lambda: bytes(16))}.items():
        store.put(layout.object_key(object_id), b"x", mark=mark)
    store.put(layout.object_key(3), b"x", mark=str(Mark("b" * 32, 3, "0" * 32)))
    store.put(layout.object_key(4), b"", mark=layout.mark(4, lambda: bytes(16)))
    store.put(layout.object_key(5), b"x", mark="another-form")
    found = [prove(store, layout, ObjectRef(object_id)).standing for object_id in range(1, 7)]
    unproven = Standing.UNPROVEN
    assert found == [Standing.OURS, unproven, unproven, Standing.OURS, unproven, Standing.MISSING]


def test_an_object_that_is_gone_costs_its_row_and_no_delete(world: AgingWorld) -> None:
    gone = world.sources[0].object_id
    world.memory.delete(LAYOUT.object_key(gone))
    world.wait(DAY_SECONDS / 2)
    store = Watched(world.memory)
    with world.open(store) as catalog:
        report = collect(catalog, plan_collection(catalog))
        assert [each.object_id for each in report.left_alone] == [gone]
        assert not len(catalog.refresh_state().node_lists()[4].retired)
    assert gone not in {line["object_id"] for line in world.journal()}
    assert store.requests["get_range", LAYOUT.object_key(gone)] == 0


def test_an_object_that_cannot_be_read_is_not_deleted_and_tried_again(world: AgingWorld) -> None:
    denied = world.sources[0].object_id
    world.wait(DAY_SECONDS / 2)
    with world.open(Watched(world.memory, LAYOUT.object_key(denied))) as catalog:
        report = collect(catalog, plan_collection(catalog))
        assert [each.object_id for each, _ in report.failed] == [denied]
    with world.open() as catalog:
        assert [each.object_id for each in collect(catalog, plan_collection(catalog)).deleted] == [denied]


def test_a_dry_run_says_what_a_collection_then_does_and_writes_nothing() -> None:
    world, refs = imported_world()
    world.put_foreign(refs[0].object_id)
    before = {info.key: info.etag for info in world.memory.list("")}
    with world.open() as catalog:
        plan = plan_collection(catalog)
        seen = foresee(catalog, plan)
        assert {info.key: info.etag for info in world.memory.list("")} == before
        report = collect(catalog, plan)
    assert (seen.deleted, seen.unproven, seen.left_alone) == (report.deleted, report.unproven, report.left_alone)
    assert seen.deleted
    assert seen.unproven


def test_a_dry_run_that_is_told_to_stop_shows_what_it_has_looked_at(world: AgingWorld) -> None:
    with world.open() as catalog:
        for object_id in catalog.parts.ids.take(1100):
            world.memory.put(LAYOUT.object_key(object_id), b"orphan", mark=world.mark(object_id))
        world.wait(4 * DAY_SECONDS)
        plan = plan_collection(catalog)

        def stop(done: int) -> None:
            raise StopRequested(done)

        report = foresee(catalog, plan, progress=stop)
    assert report.not_reached == plan.objects[1000:] != ()
    assert len(report.deleted) + len(report.left_alone) == 1000


def test_a_proof_is_one_request_for_an_object_with_a_mark(world: AgingWorld) -> None:
    world.wait(DAY_SECONDS / 2)
    store = Watched(world.memory)
    with world.open(store) as catalog:
        plan = plan_collection(catalog)
        store.requests.clear()
        collect(catalog, plan)
    keys = [LAYOUT.object_key(ref.object_id) for ref in world.sources[:3]]
    assert [store.requests["get_range", key] for key in keys] == [1, 1, 1]
    assert sum(count for (operation, key), count in store.requests.items() if key in keys) == 4  # one deletion of all


def test_proofs_are_made_twice_as_many_at_once_as_other_requests() -> None:
    at_once = 8
    world = World(settings=CatalogSettings(parallel_requests=at_once // 2, ids_block=64))
    refs = [world.put(object_id, [(1, 0, 1)])[0] for object_id in range(4 * at_once)]
    together = Barrier(at_once)

    class Waiting(DecoratedStore):
        def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
            if call.operation == "get_range":
                together.wait(timeout=30)
            return send()

    with world.open(Waiting(world.memory)) as catalog:
        assert {each.standing for each in prove_all(catalog.parts, refs)} == {Standing.OURS}


def test_an_unproven_object_is_shown_and_deleted_by_its_id_alone() -> None:
    world, refs = imported_world()
    replaced = refs[0].object_id
    world.put_foreign(replaced)
    with world.open() as catalog:
        collect(catalog, plan_collection(catalog))
        stray = find_stray(catalog, replaced)
        assert (stray.found.size_bytes, stray.mark, stray.found.reason) == (refs[0].size_bytes, None, Reason.RETIRED)
        assert stray.row is not None
        assert "1 streams" in stray.tail
        assert world.foreign_left() == world.foreign
        key = delete_stray(catalog, stray)
        assert world.foreign_left() == {}
        assert not len(catalog.refresh_state().node_lists()[7].retired)
        assert str(replaced) in world.memory.get(key).body.decode()
        with pytest.raises(MaintenanceRefused, match="found none"):
            find_stray(catalog, replaced)


def test_no_object_that_the_catalog_needs_is_deleted_by_its_id(world: AgingWorld) -> None:
    with world.open() as catalog:
        [prepared] = catalog.prepare(4, 1)
        world.put(prepared, [(1, 0, 1)])
        for object_id in (world.target.object_id, world.sources[0].object_id, prepared):
            with pytest.raises(MaintenanceRefused, match="the catalog does not need"):
                find_stray(catalog, object_id)


def test_an_object_that_was_replaced_since_it_was_looked_at_is_not_deleted() -> None:
    world = Shared()
    with world.open() as catalog:
        [object_id] = catalog.parts.ids.take(1)
        world.memory.put(LAYOUT.object_key(object_id), b"first")
        stray = find_stray(catalog, object_id)
        world.put_foreign(object_id)
        with pytest.raises(MaintenanceRefused, match="look again"):
            delete_stray(catalog, stray)
    assert world.foreign_left() == world.foreign


def test_discarding_leaves_the_object_of_another_system_at_the_key_of_an_output() -> None:
    world = Shared()
    with world.open() as catalog:
        foreign, own = catalog.prepare(4, 2)
        world.put_foreign(foreign)
        world.put(own, [(1, 0, 1)])
        catalog.discard(4, [foreign, own])
    assert world.foreign_left() == world.foreign
    assert own not in world.object_ids()


def test_putting_back_replaces_damaged_objects_of_ours_and_no_others() -> None:
    world, copy = Shared(), MemoryStore()
    with world.open() as catalog:
        live = [ref for node in catalog.image().nodes.values() for ref in node.refs]
        assert len(live) == 2
        known = {}
        for ref in live:
            key = LAYOUT.object_key(ref.object_id)
            copy.put(key, world.memory.get(key).body)
            known[ref.object_id] = next(iter(catalog.parts.open_all(4, [ref]))).ref.tail_checksum
        catalog.parts.keys.node_list(4).change(lambda now: None if now is None else _with_checksums(now, known))
        ours, foreign = (ref.object_id for ref in live)
        damaged = bytearray(copy.get(LAYOUT.object_key(ours)).body)
        damaged[-1] ^= 1
        world.memory.put(LAYOUT.object_key(ours), bytes(damaged), mark=world.mark(ours))
        world.put_foreign(foreign)
        for is_dry_run in (True, False):
            report = put_back(catalog, copy, is_dry_run=is_dry_run)
            outcomes = {each.object_id: each.outcome for each in report.found}
            assert outcomes == {ours: PutBackOutcome.PUT_BACK, foreign: PutBackOutcome.REFUSED}
        assert world.foreign_left() == world.foreign
        assert world.memory.get(LAYOUT.object_key(ours)).body == copy.get(LAYOUT.object_key(ours)).body
        assert prove(world.memory, catalog.parts.layout, ObjectRef(ours)).standing is Standing.OURS


def _with_checksums(now: NodeList, known: dict[int, int]) -> NodeList | None:
    rows = now.live.copy()
    rows["tail_checksum"] = [known[each] for each in rows["object_id"].tolist()]
    return None if (rows == now.live).all() else replace(now, live=rows)


def test_of_two_systems_in_one_namespace_only_ours_shrinks() -> None:
    random, world = Random(5), Shared()
    with world.open() as catalog:
        ids = catalog.parts.ids.take(30)
        own = [object_id for object_id in ids if random.random() < 0.5]
        for object_id in ids:
            if object_id in own:
                world.put(object_id, [(1, 0, 1)])
            else:
                world.put_foreign(object_id, has_mark=random.random() < 0.5)
    world.wait(4 * DAY_SECONDS)
    with world.open() as catalog:
        report = collect(catalog, plan_collection(catalog))
        assert {each.object_id for each in report.deleted} >= set(own)
        assert held(catalog, 1) == [(world.target.object_id, 0, 3), (world.sources[3].object_id, 3, 4)]
    assert world.foreign_left() == world.foreign
