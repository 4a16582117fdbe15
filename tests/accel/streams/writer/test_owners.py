"""Owners register, renew, expire and are replaced; a process without a node id gets one that nobody alive has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.catalog import ObjectCatalog
from accel.errors import CatalogWentBack, InvalidArgument, OwnerReplaced
from accel.streams.settings import ForwardingSettings
from accel.streams.shared.owners import OWNER, Owner, OwnersTable
from accel.testing import Crash, CrashStore, Fault, FaultStore
from loaders.errors import CorruptObject, StoreError, TableError
from loaders.store import ObjectStore
from loaders.store.decorated import WRITES
from tests.accel.streams.writer.world import CATALOG, World
from tests.examples import examples

LEASE = ForwardingSettings(lease_seconds=15.0)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def owners(world: World) -> Iterator[OwnersTable]:
    with catalog_of(world) as catalog:
        yield OwnersTable(catalog, settings=LEASE)


def catalog_of(world: World, store: ObjectStore | None = None) -> ObjectCatalog:
    return ObjectCatalog.open(store or world.store, settings=CATALOG, system=world.system)


def test_an_owner_is_found_with_its_address_until_its_lease_is_over(world: World, owners: OwnersTable) -> None:
    assert owners.find(7) is None
    assert owners.owners() == ()
    registration = owners.register(7, address="http://a:1")
    [found] = owners.owners()
    assert found == owners.find(7) == registration.owner
    assert (found.address, found.is_expired(owners.now_ms())) == ("http://a:1", False)
    world.seconds += 15
    assert found.is_expired(owners.now_ms())


def test_a_lease_is_due_after_a_third_and_renewed_by_one_request(world: World, owners: OwnersTable) -> None:
    registration = owners.register(7)
    assert not registration.is_due()
    world.seconds += 5
    assert registration.is_due()
    assert registration.renew().expires_ms == owners.now_ms() + 15_000
    assert owners.find(7) == registration.owner


@pytest.mark.parametrize("ahead", [86_400.0, 365 * 86_400.0])
def test_a_lease_of_a_wrong_clock_is_no_lease_and_its_process_puts_it_right(
    ahead: float, world: World, owners: OwnersTable
) -> None:
    world.seconds += ahead
    dead, alive = owners.register(7), owners.register(8)
    world.seconds -= ahead
    assert [each.is_expired(owners.now_ms()) for each in owners.owners()] == [True, True]
    assert alive.is_due()
    assert alive.renew().expires_ms == owners.now_ms() + 15_000
    assert [each.is_expired(owners.now_ms()) for each in owners.owners()] == [True, False]
    assert dead.owner == owners.find(7)


def test_a_renewal_that_is_under_way_when_an_owner_ends_does_not_begin_its_lease_again(owners: OwnersTable) -> None:
    with owners.register(7) as registration:
        pass
    assert registration.owner.expires_ms == 0
    assert registration.renew().expires_ms == 0
    assert [each.is_expired(owners.now_ms()) for each in owners.owners()] == [True]


def test_a_process_that_is_started_again_takes_its_node_over_and_the_older_one_is_told(owners: OwnersTable) -> None:
    before = owners.register(7, address="http://a:1")
    after = owners.register(7, address="http://b:1")
    with pytest.raises(OwnerReplaced, match="node 7"):
        before.renew()
    before.end()  # tells nothing
    assert owners.find(7) == after.owner == after.renew()


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_registration_that_went_back_is_not_renewed_and_ends_the_sessions_of_its_process(
    world: World, is_deleted: bool
) -> None:
    with catalog_of(world) as catalog:
        registration, session = OwnersTable(catalog, settings=LEASE).register(7), catalog.open_node(7)
        key = next(info.key for info in world.store.list("accel/tables/owners/") if info.key.endswith("7"))
        before = world.store.get(key).body
        world.seconds += 5
        registration.renew()
        if is_deleted:
            world.store.delete(key)
        else:
            world.store.put(key, before)
        with pytest.raises(CatalogWentBack, match="owners"):
            registration.renew()
        with pytest.raises(CatalogWentBack, match="owners"):
            session.prepare()


def test_ids_that_are_drawn_lie_above_all_that_are_known(world: World, owners: OwnersTable) -> None:
    with catalog_of(world) as catalog:
        catalog.open_node(40)
    owners.register(12)
    assert [owners.register().node_id for _ in range(3)] == [41, 42, 43]


def test_a_drawn_id_of_a_dead_owner_is_taken_over_first_the_one_that_died_first(
    world: World, owners: OwnersTable
) -> None:
    first = owners.register()
    named = owners.register(9)
    world.seconds += 10
    second = owners.register()
    third = owners.register()
    third.renew()
    world.seconds += 15
    third.renew()
    again = [owners.register().node_id for _ in range(3)]
    assert again[:2] == [first.node_id, second.node_id]
    assert again[2] not in (first.node_id, second.node_id, third.node_id, named.node_id)
    with pytest.raises(OwnerReplaced):
        first.renew()
    assert named.renew().node_id == 9  # nobody takes over an id that was given


@pytest.mark.parametrize("number", range(3))
def test_a_process_that_dies_while_it_registers_leaves_nothing_behind(world: World, number: int) -> None:
    with suppress(Crash), catalog_of(world, CrashStore(world.store, number)) as catalog:
        OwnersTable(catalog).register()
    with catalog_of(world) as catalog:
        registration = OwnersTable(catalog).register()
        assert registration.renew() == OwnersTable(catalog).find(registration.node_id)


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.CONFLICT, Fault.PRECONDITION, Fault.TIMEOUT])
def test_a_registration_whose_reply_was_lost_is_found_or_made_again(world: World, fault: Fault) -> None:
    with catalog_of(world) as catalog:
        OwnersTable(catalog).register(3)
    faults = FaultStore(world.store, operations=WRITES)
    with catalog_of(world, faults) as catalog:
        owners = OwnersTable(catalog)
        faults.schedule(None, fault)
        try:
            registration = owners.register(7)
        except (StoreError, TableError):
            registration = owners.register(7)
        faults.schedule(fault)
        with suppress(StoreError, TableError):
            registration.renew()
        assert registration.renew() == owners.find(7)


def test_addresses_and_ids_are_bounded(owners: OwnersTable) -> None:
    for node_id, address in ((-1, ""), (10**10, ""), (None, "h" * 2001)):
        with pytest.raises(InvalidArgument):
            owners.register(node_id, address=address)


def test_damaged_owners_are_refused() -> None:
    whole = OWNER.encode(Owner(7, bytes(16), "http://a", 5, is_drawn=True))
    for cut in range(len(whole)):
        with pytest.raises(CorruptObject):
            OWNER.decode(whole[:cut], "here")
    assert OWNER.decode(whole, "here") == Owner(7, bytes(16), "http://a", 5, is_drawn=True)


@given(
    st.lists(st.tuples(st.sampled_from(["register", "named", "renew", "end", "wait"]), st.integers(0, 4)), max_size=25)
)
@settings(max_examples=examples(40), deadline=None)
def test_of_all_that_believe_to_live_no_two_have_one_node(acts: list[tuple[str, int]]) -> None:
    world = World()
    with catalog_of(world) as catalog:
        owners = OwnersTable(catalog, settings=LEASE)
        made = [owners.register()]
        for act, number in acts:
            chosen = made[number % len(made)]
            if act == "wait":
                world.seconds += 4 * number
            elif act in ("register", "named"):
                made.append(owners.register(None if act == "register" else 1 + number))
            else:
                with suppress(OwnerReplaced):
                    chosen.renew() if act == "renew" else chosen.end()
        alive = []
        for each in made:
            with suppress(OwnerReplaced):
                alive.append(each.renew().node_id)
        assert len(set(alive)) == len(alive)
        assert set(alive) == {each.node_id for each in owners.owners()}
