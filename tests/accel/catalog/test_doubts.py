"""A node whose list is in doubt: its objects stay, and so do those that no key names; those of others are deleted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from accel.catalog.collect import Reason, collect, plan_collection
from accel.catalog.keys import NODE_LISTS, node_key
from accel.catalog.records import NodeList
from accel.errors import MaintenanceRefused
from loaders.layout import TABLES_PREFIX, encode_name
from loaders.object_ref import ObjectRef
from tests.accel.catalog.test_collecting import AgingWorld
from tests.world import DAY_SECONDS

DOUBTED, SOUND = 4, 6


class TwoNodes(AgingWorld):
    """Nodes 4 and 6, both with sources of a compaction, and an object that no key names."""

    def __init__(self) -> None:
        super().__init__()
        self.old = self.list_bytes()
        with self.session(11, node_id=SOUND) as (catalog, writer):
            self.replaced = [self.upload(writer, {11: (at, at + 1)}) for at in range(2)]
            self.merge(catalog, self.replaced, [(11, 0, 1), (11, 1, 2)], SOUND)
            key = catalog.parts.keys.object_ids()
            self.orphan = key.get().value
            key.change(lambda now: None if now is None else now + 1)
            self.put(self.orphan, [(11, 2, 3)])
        with self.open() as catalog, catalog.open_node(DOUBTED) as writer:
            self.live = [self.upload(writer, {1: (at, at + 1)}) for at in range(4, 70)]
        self.wait(10 * DAY_SECONDS)

    @property
    def list_key(self) -> str:
        return f"{TABLES_PREFIX}{encode_name(NODE_LISTS)}/{node_key(DOUBTED)}"

    def list_bytes(self) -> bytes:
        return bytes(self.memory.get(self.list_key).body)


def emptied(world: TwoNodes) -> None:
    with world.open() as catalog:
        key = catalog.parts.keys.node_list(DOUBTED)
        key.change(lambda now: None if now is None else replace(now, live=now.live[:0], sketches=now.sketches[:0]))


def put_back(world: TwoNodes) -> None:
    world.memory.put(world.list_key, world.old)


def deleted(world: TwoNodes) -> None:
    world.memory.delete(world.list_key)


def damaged(world: TwoNodes) -> None:
    body = bytearray(world.list_bytes())
    body[len(body) // 2] ^= 1
    world.memory.put(world.list_key, bytes(body))


def made_again(world: TwoNodes) -> None:
    deleted(world)
    with world.open() as catalog:
        catalog.parts.keys.node_list(DOUBTED).create_if_absent(NodeList(DOUBTED))


DOUBTS = [emptied, put_back, deleted, damaged, made_again]


def ids(refs: list[ObjectRef]) -> set[int]:
    return {ref.object_id for ref in refs}


@pytest.fixture
def world() -> TwoNodes:
    return TwoNodes()


@pytest.mark.parametrize("doubt", DOUBTS, ids=lambda doubt: doubt.__name__)
def test_a_node_in_doubt_is_left_alone_and_the_others_are_collected(doubt: Callable[[TwoNodes], None]) -> None:
    world = TwoNodes()
    doubt(world)
    before = world.object_ids()
    with world.open() as catalog:
        plan = plan_collection(catalog)
        assert list(plan.doubts) == [DOUBTED]
        assert plan.held_back.objects >= 1
        report = collect(catalog, plan)
        assert world.object_ids() == before - ids(world.replaced)
        assert {each.reason for each in report.deleted} == {Reason.RETIRED}
        assert plan_collection(catalog).objects == ()


@pytest.mark.parametrize("doubt", [each for each in DOUBTS if each is not emptied], ids=lambda doubt: doubt.__name__)
def test_an_override_excuses_nothing_but_an_empty_list(world: TwoNodes, doubt: Callable[[TwoNodes], None]) -> None:
    doubt(world)
    before = world.object_ids()
    with world.open() as catalog:
        plan = plan_collection(catalog, allow_empty_nodes=frozenset({DOUBTED}))
        assert list(plan.doubts) == [DOUBTED]
        collect(catalog, plan)
    assert world.object_ids() == before - ids(world.replaced)


def test_an_override_is_valid_only_while_nothing_else_is_in_doubt(world: TwoNodes) -> None:
    emptied(world)
    with world.open() as catalog:
        allowed = plan_collection(catalog, allow_empty_nodes=frozenset({DOUBTED}))
        assert not allowed.doubts
        assert world.orphan in {each.object_id for each in allowed.objects}
        with catalog.open_node(8) as writer:
            writer.open_streams([21])
            world.upload(writer, {21: (0, 1)})
        catalog.parts.keys.node_list(8).change(lambda now: now and replace(now, live=now.live[:0]))
        plan = plan_collection(catalog, allow_empty_nodes=frozenset({DOUBTED}))
        assert list(plan.doubts) == [DOUBTED, 8]
        assert not plan_collection(catalog, allow_empty_nodes=frozenset({DOUBTED, 8})).doubts


def test_a_doubt_that_comes_between_plan_and_collection_spares_what_it_may_concern(world: TwoNodes) -> None:
    with world.open() as catalog:
        plan = plan_collection(catalog)
        assert world.orphan in {each.object_id for each in plan.objects}
        before = world.object_ids()
        put_back(world)
        report = collect(catalog, plan)
        assert world.object_ids() == before - ids(world.replaced)
        assert world.orphan in {each.object_id for each in report.left_alone}


def test_if_all_lists_are_in_doubt_nothing_is_collected(world: TwoNodes) -> None:
    put_back(world)
    with world.open() as catalog:
        catalog.parts.keys.node_list(SOUND).change(lambda now: now and replace(now, live=now.live[:0]))
        with pytest.raises(MaintenanceRefused, match="list of node"):
            plan_collection(catalog)


def test_what_no_one_node_explains_stops_everything(world: TwoNodes) -> None:
    put_back(world)
    with world.open() as catalog:
        catalog.parts.keys.object_ids().change(lambda _: 1)
    with world.open() as catalog, pytest.raises(MaintenanceRefused, match="keys agree"):
        plan_collection(catalog)
