"""Attempts at a group: any number of them, at once or one after another, dying anywhere, and one commit in the end."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.catalog.verify import verify
from accel.compaction import GroupItem, GroupResult, Status, TimeSlot, compact, running, work_on
from accel.compaction.attempts import SLOT_SECONDS
from accel.testing import Crash, Fault, FaultStore
from loaders.store import CountingStore, ObjectStore
from loaders.store.decorated import DecoratedStore, StoreCall
from tests.accel.compaction.world import ONE_AT_A_TIME, Cluster, all_of_it
from tests.examples import examples, swept
from tests.world import Answer, Interrupted, World, each_crash, is_write

NODE, OTHER = 4, 7
SETTINGS = all_of_it(max_sources_per_group=3, split_size_bytes=400)
DONE = {Status.COMMITTED, Status.DONE_ELSEWHERE}


class Groups(Cluster):
    """A node with two groups, one of which has a stream that is split off."""

    def __init__(self) -> None:
        super().__init__(World(settings=ONE_AT_A_TIME))
        for number in range(6):
            self.upload(NODE, {1: 1, 2: 4} | ({3: 1} if number < 3 else {}))
        self.trim(1, 2)
        self.groups = self.plan(SETTINGS).groups
        assert {group.stream_objects for group in self.groups} == {1}
        counts = [group.set_objects + group.stream_objects for group in self.groups]
        ids = iter(self.catalog.prepare(NODE, sum(counts)))
        self.items = [
            GroupItem(group, tuple(next(ids) for _ in range(size)), TimeSlot(number, 2))
            for number, (group, size) in enumerate(zip(self.groups, counts, strict=True))
        ]

    def attempt(self, number: int = 0, item: int = 0, store: ObjectStore | None = None) -> GroupResult:
        """One attempt, in a process of its own."""
        with self.world.open(store) as catalog:
            sent: GroupItem = pickle.loads(pickle.dumps(self.items[item]))  # noqa: S301 - made in the line itself
            return work_on(catalog, sent, SETTINGS, attempt=number)

    def settle(self) -> None:
        """Nothing is lost, doubled or left behind."""
        super().settle()
        with self.world.open() as catalog:
            assert not verify(catalog).problems


def test_an_attempt_that_is_given_ids_and_a_slot_writes_the_list_once_in_its_slot() -> None:
    groups, times = Groups(), []
    world = groups.world
    world.clock.seconds += SLOT_SECONDS * 0.7
    key = groups.catalog.parts.keys.node_list(NODE).where
    store = CountingStore(groups.store)
    watched = Interrupted(store, lambda: times.append(world.clock.seconds), 3)
    for number, item in enumerate(groups.items):
        result = groups.attempt(item=number, store=watched if number else None)
        assert (result.status, set(result.added_ids)) == (Status.COMMITTED, set(item.ids)), key
    assert [int(seconds / SLOT_SECONDS) % 2 for seconds in times] == [1]
    groups.settle()


@given(
    slots=st.integers(1, 240), number=st.integers(0, 239), other=st.integers(0, 239), now=st.floats(0, 2e9, width=32)
)
def test_slots_do_not_overlap_and_a_wait_is_at_most_one_round(slots: int, number: int, other: int, now: float) -> None:
    number, other = number % slots, other % slots
    wait = TimeSlot(number, slots).wait_seconds(now)
    assert 0 <= wait <= slots * SLOT_SECONDS
    begins = now + wait
    if number != other:
        apart = TimeSlot(other, slots).wait_seconds(begins + SLOT_SECONDS / 2)
        assert apart >= 0
        assert int(begins / SLOT_SECONDS + 0.01) % slots == number


# Two attempts


def other_attempt(groups: Groups) -> None:
    groups.attempt(1)


def copy_with_the_same_ids(groups: Groups) -> None:
    groups.attempt(0)


def other_group(groups: Groups) -> None:
    groups.attempt(0, item=1)


def upload(groups: Groups) -> None:
    groups.upload(NODE, {1: 1, 5: 1}, own={2: 2})


def late_collection(groups: Groups) -> None:
    groups.collect_later()


def requests_of_an_attempt() -> int:
    """How many requests an undisturbed attempt sends."""
    groups = Groups()
    store = CountingStore(groups.store)
    groups.attempt(store=store)
    return store.snapshot().total.requests


ACTS: tuple[Callable[[Groups], None], ...] = (
    other_attempt,
    copy_with_the_same_ids,
    other_group,
    upload,
    late_collection,
)


@pytest.mark.parametrize("act", ACTS)
def test_whatever_comes_between_two_requests_of_an_attempt_the_group_is_done_once(
    act: Callable[[Groups], None],
) -> None:
    found: Counter[Status] = Counter()
    for number in swept(range(-1, requests_of_an_attempt())):
        groups = Groups()
        store = Interrupted(groups.store, lambda it=groups: act(it), number, fits=lambda _: True)  # type: ignore[misc]  # bound now
        result = groups.attempt(store=store)
        found[result.status] += 1
        if result.is_failure:
            assert result.is_retryable
            assert groups.attempt(1).status in DONE
        groups.settle()
    assert found[Status.COMMITTED]
    assert set(found) <= {Status.FAILED, *DONE}
    assert bool(found[Status.DONE_ELSEWHERE]) == (act in (other_attempt, copy_with_the_same_ids))
    assert found[Status.FAILED] == 0 or act in (late_collection, copy_with_the_same_ids)


class _Meddled(DecoratedStore):
    """Lets others act, die and act in between before any request."""

    def __init__(self, groups: Groups, rng: Random, depth: int) -> None:
        super().__init__(groups.store)
        self._groups, self._rng, self._depth = groups, rng, depth
        self._is_dead = False

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        if self._is_dead:
            raise Crash("the process is dead")
        if self._depth and self._rng.random() < 0.15:
            meddle(self._groups, self._rng, self._depth - 1)
        answer = send()
        self._is_dead = is_write(call) and self._rng.random() < 0.05
        if self._is_dead:
            raise Crash("the process died after a write")
        return answer


def meddle(groups: Groups, rng: Random, depth: int) -> None:
    """An attempt at any of the groups, in which others may meddle, or something else."""
    kind = rng.random()
    if kind < 0.2:
        upload(groups)
    elif kind < 0.3:
        late_collection(groups)
    else:
        with suppress(Crash):
            groups.attempt(rng.randrange(3), rng.randrange(2), _Meddled(groups, rng, depth))


@pytest.mark.parametrize("seed", range(examples(50)))
def test_interleaved_attempts_that_die_anywhere_do_each_group_once(seed: int) -> None:
    groups, rng = Groups(), Random(seed)
    for _ in range(4):
        meddle(groups, rng, 3)
        groups.check()
    for item in range(2):
        assert groups.attempt(7, item).status in {*DONE, Status.LOST}  # lost: done, and collected since
    groups.settle()
    assert len(groups.live_ids(NODE)) - 2 == len(groups.written.keys() & {(5, at) for at in range(100)})


def test_the_next_attempt_finishes_what_one_that_died_before_any_write_began() -> None:
    found: list[Status] = []
    for groups, has_died in each_crash(Groups, lambda it, store: it.attempt(store=store), writes_min=4):
        groups.check()
        found.append(groups.attempt(1).status)
        groups.check()
        groups.attempt(0, item=1)
        groups.settle()
        assert has_died or found[-1] is Status.DONE_ELSEWHERE
    assert set(found) == DONE


@pytest.mark.parametrize("number", range(8))
def test_a_lost_reply_is_no_failure(number: int) -> None:
    groups = Groups()
    faults = FaultStore(groups.store, operations={"put"})
    faults.schedule(*[None] * number, Fault.LOST_REPLY)
    with groups.world.open(faults) as catalog:
        results = [work_on(catalog, item, SETTINGS) for item in groups.items]
    assert faults.injected[Fault.LOST_REPLY] == 1
    assert {result.status for result in results} == {Status.COMMITTED}
    groups.settle()


def test_ids_of_long_ago_are_not_used_and_expire() -> None:
    groups = Groups()
    groups.world.wait(groups.catalog.format.prepared_seconds / 2 + 60)
    result = groups.attempt()
    assert result.status is Status.COMMITTED
    assert not set(result.added_ids) & set(groups.items[0].ids)
    groups.settle()


# The driver


def runs(end: Callable[[GroupItem, int], GroupResult | None], rounds: list[int]) -> running.RunItems:
    """An engine; `end` does an item, and returns what it reports."""

    def run(items: Sequence[GroupItem]) -> Iterator[GroupResult]:
        rounds.append(len(items))
        for number, item in enumerate(items):
            result = end(item, number)
            if result is not None:
                yield result

    return run


def test_a_group_without_a_result_is_looked_up_in_the_list_and_the_others_get_a_second_round() -> None:
    groups, rounds = Groups(), list[int]()

    def end(item: GroupItem, number: int) -> GroupResult | None:
        if len(rounds) == 1 and number == 1:
            return GroupResult(item.group, Status.UNKNOWN, "Spark gave up: its worker was killed")
        result = work_on(groups.catalog, item, SETTINGS)
        return None if len(rounds) == 1 else result  # committed, and killed before it could say so

    plan = groups.plan(SETTINGS)
    report = compact(groups.catalog, plan, run=runs(end, rounds), at_once=2)
    assert rounds == [2, 1]
    assert sorted(each.status for each in report.groups) == [Status.COMMITTED, Status.DONE_ELSEWHERE]
    assert (report.is_partial, report.failed_groups, report.failed_tasks) == (False, 0, 1)
    groups.settle()


def test_groups_that_no_attempt_did_are_named_with_the_reason_and_the_run_is_partial() -> None:
    groups, rounds = Groups(), list[int]()
    run = runs(lambda item, _: GroupResult(item.group, Status.UNKNOWN, "Spark gave up"), rounds)
    report = compact(groups.catalog, groups.plan(SETTINGS), run=run, at_once=2)
    assert rounds == [2, 2]
    assert [(each.status, each.reason) for each in report.groups] == [(Status.FAILED, "Spark gave up")] * 2
    assert (report.is_partial, report.failed_groups) == (True, 2)
    groups.settle()


def test_if_the_lists_cannot_be_read_then_groups_without_a_result_have_failed() -> None:
    groups = Groups()
    faults = FaultStore(groups.store)

    def run(_: Sequence[GroupItem]) -> Iterator[GroupResult]:
        faults.schedule(*[Fault.TIMEOUT] * 10_000)
        return iter(())

    with groups.world.open(faults) as catalog:
        report = compact(catalog, groups.plan(SETTINGS), run=run)
    assert {each.status for each in report.groups} == {Status.FAILED}
    assert "could not be read" in report.groups[0].reason


def test_ids_of_first_attempts_are_prepared_by_one_write_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Groups()
    groups.attempt()  # its group is done
    free = len(groups.node_list(NODE).prepared)
    given: list[tuple[int, ...]] = []
    rounds: list[int] = []

    def end(item: GroupItem, _: int) -> GroupResult:
        given.append(item.ids)
        return work_on(groups.catalog, item, SETTINGS)

    groups.uploads(6, NODE, {1: 1, 2: 4})
    plan = groups.plan(SETTINGS)
    monkeypatch.setattr(running, "IDS_AHEAD_MAX", free + 2)
    report = compact(groups.catalog, plan, run=runs(end, rounds), at_once=2)
    assert not report.is_partial
    assert sum(map(len, given)) in (1, 2)
    assert () in given
    groups.settle()


def test_slots_are_as_many_as_groups_of_one_list_that_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    for node_id, uploads in ((NODE, 12), (OTHER, 4)):
        cluster.uploads(uploads, node_id, {node_id: 1})
    items: list[GroupItem] = []

    def run(some: Sequence[GroupItem]) -> Iterator[GroupResult]:
        items.extend(some)
        return (work_on(cluster.catalog, item, SETTINGS) for item in some)

    settings = all_of_it(max_sources_per_group=2, target_object_size_bytes=600)
    plan = cluster.plan(settings)
    compact(cluster.catalog, plan, run=run, at_once=3)
    for first in range(len(items) - 2):
        together = [(item.group.node_id, item.slot) for item in items[first : first + 3]]
        assert len(set(together)) == 3
    assert {item.slot.slots for item in items if item.slot is not None} <= {1, 2, 3}
    monkeypatch.undo()
    assert len(items) == len(plan.groups) > 5
    cluster.check()
