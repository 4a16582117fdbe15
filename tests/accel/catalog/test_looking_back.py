"""A gateway that drops conditions of writes: what is acknowledged is kept, or its writer says what was lost."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from contextlib import suppress

import pytest

from accel.catalog import NodeWriter, ObjectCatalog
from accel.catalog.collect import collect, plan_collection
from accel.catalog.session import LOOK_SECONDS
from accel.errors import CatalogDamaged, CatalogWentBack, CommitsLost
from loaders.errors import RequestRefused
from loaders.layout import CONDITIONS_KEY
from loaders.store import ALWAYS, Body, Condition, CountingStore, CreateOnly, IfMatch, ObjectStore
from loaders.store.decorated import DecoratedStore
from tests.builders import batches
from tests.world import World

LIST_KEY = "accel/tables/node-lists/0000000004"
COUNTER_KEY = "accel/tables/counters/object-ids"
STREAM = 1001


class Gateway(DecoratedStore):
    """A gateway between one process and the store, which drops conditions of some kinds, with some probability."""

    def __init__(self, store: ObjectStore, *dropped: type[Condition], chance: float = 1.0, seed: int = 0) -> None:
        super().__init__(store)
        self.dropped = dropped
        self.chance, self._random = chance, random.Random(seed)
        self.before: dict[str, Callable[[], object]] = {}

    def put(self, key: str, body: Body, *, condition: Condition = ALWAYS, mark: str | None = None) -> str:
        self.before.pop(key, lambda: None)()
        drops = isinstance(condition, self.dropped) and self._random.random() < self.chance
        return super().put(key, body, condition=ALWAYS if drops else condition, mark=mark)


class Processes:
    """A writer of node 4, and another process that changes its list, each behind a gateway that is honest at first."""

    def __init__(self) -> None:
        self.world = World()
        self.counting = CountingStore(self.world.memory)
        self.own_gateway = Gateway(self.counting)
        self.catalog = self.world.open(self.own_gateway)
        self.writer = self.catalog.open_node(4)
        self.writer.open_streams([STREAM])
        self.gateway = Gateway(self.world.memory)
        self.other = self.world.open(self.gateway)
        self.kept = [upload(self.writer), upload(self.writer)]
        self.other.prepare(4, 1)
        self.kept.append(upload(self.writer))

    def lose(self, uploads: int = 1) -> list[int]:
        """Let the other process replace the list after this number of uploads; returns their objects."""
        lost: list[int] = []
        self.gateway.dropped = (IfMatch,)
        self.gateway.before[LIST_KEY] = lambda: lost.extend(upload(self.writer) for _ in range(uploads))
        self.other.prepare(4, 1)
        return lost


def upload(writer: NodeWriter, stream_id: int = STREAM) -> int:
    """Upload ten records; returns the object's id."""
    end = writer.end(stream_id)
    assert end is not None
    return writer.upload({stream_id: batches(stream_id, end, end + 10)}).object_id


def listed(catalog: ObjectCatalog, node_id: int = 4) -> set[int]:
    """The objects in a node's list, live or retired."""
    seen = catalog.parts.keys.node_list(node_id).read()
    assert seen is not None
    node_list = seen.value
    return {*node_list.live["object_id"].tolist(), *node_list.retired["object_id"].tolist()}


@pytest.fixture
def processes() -> Processes:
    return Processes()


@pytest.mark.parametrize("dropped", [(CreateOnly, IfMatch), (IfMatch,), (CreateOnly,)])
def test_nothing_is_acknowledged_through_a_gateway_that_drops_conditions(dropped: tuple[type[Condition], ...]) -> None:
    world = World()
    for node_id in (1, 2):
        gateway = Gateway(world.memory, *dropped)
        with world.open(gateway) as catalog, pytest.raises(RequestRefused, match="ignores If-"):
            catalog.open_node(node_id)
    assert list(world.memory.list("accel/tables/node-lists/0")) == []
    assert [info.key for info in world.memory.list("accel/probe/")] == [CONDITIONS_KEY]


def test_a_session_that_lost_commits_names_them_at_its_end_and_stops(processes: Processes) -> None:
    lost = processes.lose(2)
    assert not listed(processes.other) & set(lost)
    for call in (processes.writer.close, lambda: upload(processes.writer), processes.writer.checkpoint):
        with pytest.raises(CommitsLost) as caught:
            call()
        assert caught.value.object_ids == tuple(lost)
    assert set(processes.kept) == listed(processes.other)


def test_a_session_looks_every_ten_seconds_of_commits_and_writes_nothing_after_a_loss(processes: Processes) -> None:
    lost = processes.lose()
    before = processes.world.memory.get(LIST_KEY).body
    processes.world.clock.seconds += LOOK_SECONDS
    with pytest.raises(CommitsLost, match=f"not listed: 1 .{lost[0]}."):
        upload(processes.writer)
    assert processes.world.memory.get(LIST_KEY).body == before


def test_a_loss_shows_after_more_versions_than_a_list_has_ancestors(processes: Processes) -> None:
    lost = processes.lose()
    for _ in range(12):
        processes.other.prepare(4, 1)
    with pytest.raises(CommitsLost) as caught:
        processes.writer.close()
    assert caught.value.object_ids == tuple(lost)


def test_a_later_session_whose_list_was_replaced_by_an_earlier_one_says_so(processes: Processes) -> None:
    """Fencing rests on conditions, too: the earlier session does not find out that it is fenced."""
    earlier = processes.other.open_node(4)
    earlier.open_streams([STREAM])
    later = processes.writer = processes.catalog.open_node(4)
    later.open_streams([STREAM])
    upload(later)
    processes.gateway.dropped = (IfMatch,)
    upload(earlier)
    with pytest.raises(CommitsLost):
        later.close()


def test_a_list_that_went_back_names_the_commits_too(processes: Processes) -> None:
    before = processes.world.memory.get(LIST_KEY).body
    lost = upload(processes.writer)
    processes.world.memory.put(LIST_KEY, before)
    with pytest.raises(CommitsLost) as caught:
        upload(processes.writer)
    assert caught.value.object_ids == (lost,)


def test_a_list_that_is_gone_names_all_commits(processes: Processes) -> None:
    processes.world.memory.delete(LIST_KEY)
    with pytest.raises(CommitsLost, match="found nothing") as caught:
        processes.writer.close()
    assert caught.value.object_ids == tuple(processes.kept)


def test_looking_costs_a_request_without_a_body_every_ten_seconds_and_none_beside_a_follower() -> None:
    processes = Processes()
    upload(processes.writer)

    def requests() -> dict[str, int]:
        before = processes.counting.snapshot()
        upload(processes.writer)
        made = processes.counting.snapshot() - before
        return {name: each.requests for name, each in made.by_operation.items()}

    assert requests() == {"put": 2}
    processes.world.clock.seconds += LOOK_SECONDS
    assert requests() == {"put": 2, "get_if_changed": 1}
    assert requests() == {"put": 2}
    for _ in range(5):
        processes.world.clock.seconds += LOOK_SECONDS / 2
        processes.catalog.follow()
        assert requests() == {"put": 2}


def test_a_follower_of_the_process_tells_its_session_at_once(processes: Processes) -> None:
    processes.catalog.follow()
    lost = processes.lose()
    processes.catalog.refresh_state()
    with pytest.raises(CommitsLost) as caught:
        upload(processes.writer)
    assert caught.value.object_ids == tuple(lost)


def test_a_follower_that_is_behind_is_no_loss(processes: Processes) -> None:
    for _ in range(12):
        processes.own_gateway.before[LIST_KEY] = processes.catalog.refresh_state
        upload(processes.writer)
    processes.writer.close()


def test_objects_that_a_collector_may_have_deleted_are_not_looked_for() -> None:
    world = World()
    with world.session(STREAM) as (catalog, writer):
        object_ids = [upload(writer) for _ in range(2)]
        catalog.trim({STREAM: 20})
        catalog.commit_compaction(4, catalog.refresh().node(4).refs, None)
        world.clock.seconds += 2 * catalog.format.retired_seconds
        collect(catalog, plan_collection(catalog))
        assert not listed(catalog) & set(object_ids)


def test_a_counter_that_two_processes_have_raised_at_once_ends_the_one_that_was_replaced() -> None:
    world = World()
    first, second = Gateway(world.memory), Gateway(world.memory)
    writers = []
    for node_id, gateway in ((1, first), (2, second)):
        writer = world.open(gateway).open_node(node_id)
        writer.open_streams([node_id])
        upload(writer, node_id)
        writers.append(writer)
    taken: list[int] = []
    first.dropped = (IfMatch, CreateOnly)
    first.before[COUNTER_KEY] = lambda: taken.extend(writers[1].prepare(100))
    assert set(writers[0].prepare(100)) & set(taken)
    with pytest.raises(CatalogDamaged, match="ids may have been given out twice"):
        writers[1].prepare(100)
    writers[0].prepare(100)


@pytest.mark.parametrize("seed", range(24))
def test_behind_one_of_several_gateways_no_acknowledged_commit_is_lost_in_silence(seed: int) -> None:
    """After the start, some requests go through a gateway that drops conditions: the probe has seen nothing."""
    processes, rng = Processes(), random.Random(seed)
    writer, world = processes.writer, processes.world
    acknowledged, loss = set(processes.kept), None
    for gateway in (processes.gateway, processes.own_gateway):
        gateway.dropped, gateway.chance = (CreateOnly, IfMatch), 0.5

    def write() -> None:
        nonlocal loss
        try:
            acknowledged.add(upload(writer))
        except CommitsLost as error:
            loss = error

    turns = rng.randrange(1, 20)
    for turn in range(turns):
        if rng.random() < 0.2 or turn == turns - 1:
            processes.gateway.before[LIST_KEY] = write
            with suppress(CatalogWentBack):  # the other process has found out
                processes.other.prepare(4, 1)
        else:
            write()
        world.clock.seconds += rng.choice((0, 1, LOOK_SECONDS))
    try:
        writer.close()
    except CommitsLost as error:
        loss = error
    lost = acknowledged - listed(processes.other)
    assert lost <= (set() if loss is None else set(loss.object_ids))


def test_the_error_can_be_sent_to_another_process() -> None:
    error = CommitsLost("table 'a', key 'b'", (7, b"\1" * 16), (7, b"\2" * 16), (5, 6))
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert (str(copy), copy.object_ids, copy.retryable) == (str(error), (5, 6), False)
