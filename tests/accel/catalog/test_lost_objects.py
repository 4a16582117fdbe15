"""An object that is lost for good leaves its list: by trimming, or because a person gives it up."""

from __future__ import annotations

from random import Random

import pytest

from accel.catalog import ObjectCatalog
from accel.catalog.collect import collect, plan_collection
from accel.catalog.problems import Problem
from accel.catalog.verify import Verdict, verify
from accel.errors import MaintenanceRefused, OffsetsGivenUp
from accel.hint_building import HintChoice, build_hints, plan_hints
from accel.lookup.answer import Ending
from accel.repair.lost_objects import GivenUp, LostRange, give_up
from accel.testing import Crash, CrashStore, Fault, FaultStore
from tests.accel.compaction.world import ONE_AT_A_TIME, Cluster
from tests.accel.lookup.cluster import accelerator
from tests.examples import examples
from tests.world import DAY_SECONDS, LAYOUT, World

NODE, OTHER = 4, 7
UPLOADS = 10


class Bench:
    """A node with ten uploads of streams 1 and 2, of which one object is lost."""

    def __init__(self, lost: int, *, is_checkpointed: bool = True) -> None:
        self.world = World(settings=ONE_AT_A_TIME)
        self.cluster = Cluster(self.world)
        self.cluster.uploads(UPLOADS, NODE, {1: 1, 2: 2})
        if is_checkpointed:
            self.cluster.writers.pop(NODE).close()
        self.victim = self.cluster.live_ids(NODE)[lost]
        self.lose(self.victim)

    @property
    def catalog(self) -> ObjectCatalog:
        return self.cluster.catalog

    def lose(self, object_id: int) -> None:
        self.world.memory.delete(LAYOUT.object_key(object_id))

    def hints_are_partial(self) -> bool:
        return build_hints(self.catalog, plan_hints(self.catalog, HintChoice())).is_partial

    def collect(self) -> None:
        self.world.wait(5 * DAY_SECONDS)
        collect(self.catalog, plan_collection(self.catalog))

    def problems(self) -> list[Problem]:
        return verify(self.catalog).damage


@pytest.mark.parametrize("lost", [0, 4, UPLOADS - 1])
def test_an_object_that_is_gone_leaves_the_list_once_its_streams_are_trimmed_beyond_it(lost: int) -> None:
    bench = Bench(lost)
    assert [bench.hints_are_partial(), bench.hints_are_partial()] == [True, False]
    bench.cluster.trim(1, lost + 1)
    bench.collect()
    assert bench.victim in bench.cluster.live_ids(NODE), "stream 2 has data there"
    bench.cluster.trim(2, 2 * (lost + 1))
    bench.collect()
    assert bench.victim not in bench.cluster.live_ids(NODE)
    assert (bench.problems(), bench.hints_are_partial()) == ([], False)
    bench.cluster.check()


def test_of_neighbours_that_are_lost_each_leaves_the_list_once_both_are_dead() -> None:
    bench = Bench(4)
    beside = bench.cluster.live_ids(NODE)[5]
    bench.lose(beside)
    bench.hints_are_partial()
    bench.cluster.trim(1, 5)
    bench.cluster.trim(2, 10)
    bench.collect()
    assert {bench.victim, beside} <= set(bench.cluster.live_ids(NODE)), "nobody knows where one ends"
    bench.cluster.trim(1, 6)
    bench.cluster.trim(2, 12)
    bench.collect()
    assert not {bench.victim, beside} & set(bench.cluster.live_ids(NODE))


@pytest.mark.parametrize("seed", range(5 * examples(8, few=1)))
def test_no_lost_object_with_data_that_is_kept_leaves_the_list(seed: int) -> None:
    rng = Random(seed)
    cluster = Cluster(World(settings=ONE_AT_A_TIME))
    world = cluster.world
    held: dict[int, dict[int, int]] = {}
    for _ in range(30):
        node = rng.choice([NODE, OTHER])
        lengths = {stream: rng.randint(1, 3) for stream in range(1, 6) if rng.random() < 0.4}
        if not lengths:
            continue
        ref = cluster.upload(node, lengths)
        held[ref.object_id] = {stream: cluster.writer(node).end(stream) or 0 for stream in lengths}
    ends = {stream: sum(each == stream for each, _ in cluster.written) for stream in range(1, 6)}
    starts = {stream: rng.choice([0, end // 2, end]) for stream, end in ends.items() if stream in cluster.owners}
    for stream, start in starts.items():
        cluster.trim(stream, start)
    for writer in cluster.writers.values():
        writer.close()
    lost = rng.sample(sorted(held), 6)
    for object_id in lost:
        world.memory.delete(LAYOUT.object_key(object_id))
    build_hints(cluster.catalog, plan_hints(cluster.catalog, HintChoice()))
    collect(cluster.catalog, plan_collection(cluster.catalog))
    live = {object_id for node in cluster.writers for object_id in cluster.live_ids(node)}
    for object_id, theirs in held.items():
        is_kept = any(end > starts[stream] for stream, end in theirs.items())
        assert object_id in live or not is_kept


def test_giving_up_says_what_is_lost_and_then_readers_get_an_error_that_names_the_hole() -> None:
    bench = Bench(4)
    [told] = give_up(bench.catalog, [bench.victim], apply=False)
    assert told.lost == (LostRange(1, 4, 5), LostRange(2, 8, 10))
    assert (told.is_exact, "KeyMissing" in told.reason) == (False, True)
    assert bench.victim in bench.cluster.live_ids(NODE)
    assert give_up(bench.catalog, [bench.victim], apply=True) == (told,)
    assert bench.victim not in bench.cluster.live_ids(NODE)
    with accelerator(bench.world.store, bench.catalog.refresh()) as reader:
        assert reader.get_objects(1, 0, 10, 10).ending is Ending.HOLE
        with pytest.raises(OffsetsGivenUp) as refused:
            reader.get_objects(1, 4, 10)
        assert (refused.value.stream_id, refused.value.offset, refused.value.end) == (1, 4, 5)
        assert [batch.base_offset for batch in reader.read(1, 5, 10)] == [5, 6, 7, 8, 9]
        found: list[int] = []
        with pytest.raises(OffsetsGivenUp):
            found.extend(batch.base_offset for batch in reader.read(1, 2, 10))
        assert found == [2, 3], "what is there before the hole is returned first"
    assert verify(bench.catalog).outcome is Verdict.CLEAN
    bench.cluster.trim(1, 5)
    given_up = [seen.value.given_up for seen in bench.catalog.refresh_state().shards]
    assert [row["stream_id"] for rows in given_up for row in rows] == [2]


def test_the_last_object_of_a_list_is_given_up_up_to_the_ends_in_the_checkpoint() -> None:
    bench = Bench(UPLOADS - 1)
    [told] = give_up(bench.catalog, [bench.victim], apply=True)
    assert told.lost == (LostRange(1, 9, 10), LostRange(2, 18, 20))
    assert verify(bench.catalog).outcome is Verdict.CLEAN
    writer = bench.catalog.open_node(NODE)
    writer.open_streams([1, 2])
    assert (writer.end(1), writer.end(2)) == (10, 20)


def test_an_end_that_nobody_knows_is_told_and_the_node_can_be_opened_again() -> None:
    bench = Bench(UPLOADS - 1, is_checkpointed=False)
    [told] = give_up(bench.catalog, [bench.victim], apply=True)
    assert told.lost == (LostRange(1, 9, -1), LostRange(2, 18, -1))
    writer = bench.catalog.open_node(NODE)
    writer.open_streams([1, 2])
    assert (writer.end(1), writer.end(2)) == (9, 18)


def test_only_what_cannot_be_read_is_given_up() -> None:
    bench = Bench(4)
    sound = bench.cluster.live_ids(NODE)[0]
    with pytest.raises(MaintenanceRefused, match="found that it can"):
        give_up(bench.catalog, [bench.victim, sound], apply=True)
    with pytest.raises(MaintenanceRefused, match="found it in none"):
        give_up(bench.catalog, [10_000], apply=True)
    faults = FaultStore(bench.world.store, operations={"get_range"})
    with bench.world.open(faults) as catalog:
        faults.schedule(Fault.TIMEOUT)
        with pytest.raises(MaintenanceRefused, match="lost for good"):
            give_up(catalog, [bench.victim], apply=True)
    assert bench.victim in bench.cluster.live_ids(NODE)


def test_giving_up_that_was_cut_off_anywhere_is_repeated() -> None:
    bench = Bench(4)
    done: list[tuple[GivenUp, ...]] = []
    for failing in range(12):
        try:
            catalog = bench.world.open(CrashStore(bench.world.store, failing))
            done.append(give_up(catalog, [bench.victim], apply=True))
        except MaintenanceRefused:  # it was done by the attempt before
            break
        except Crash:
            continue
    assert bench.victim not in bench.cluster.live_ids(NODE)
    assert verify(bench.catalog).outcome is Verdict.CLEAN
