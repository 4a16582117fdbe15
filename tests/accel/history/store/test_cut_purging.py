"""Stale cuts are purged behind a run of retention; whatever becomes of the purge, no answer depends on it."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from accel.errors import AccelError
from accel.history.rules.configuration import RetentionKind, RetentionPolicy, StreamConfiguration
from accel.history.store import Retained, StreamStore, retention_workflow
from accel.history.store.retention_workflow import RetentionWorkflow
from accel.testing import Crash, CrashStore
from loaders.errors import StoreUnavailable
from loaders.store.decorated import StoreCall
from tests.accel.history.store.bench import Bench
from tests.accel.history.store.test_races import Schedule
from tests.accel.history.store.watching import interrupted
from tests.conformance.history_world import SCOPE, STREAM
from tests.examples import examples, places
from tests.world import Watched

if TYPE_CHECKING:
    from accel.history.store import Stream
    from loaders.store import ObjectStore

Answer = TypeVar("Answer")

CUTS = 7
STALE = 4
STEP_MS = 10
POLICIES = [
    RetentionPolicy(kind, least, None if more is None else least + more)
    for kind in RetentionKind
    for least, more in ((0, None), (15, 0), (45, 20), (1_000, 0))
]


@pytest.fixture
def stale() -> Bench:
    """Seven cuts were recorded, between scales; the stream begins at the fifth, and none was deleted yet."""
    return truncated().clone()


@pytest.fixture
def due(stale: Bench) -> Bench:
    """The same; the next run records a cut, and truncates to it: all others are stale then."""
    keep(stale, RetentionPolicy(RetentionKind.TIME, 0))
    stale.append_all(1)
    return stale


@cache
def truncated() -> Bench:
    bench = recorded().clone()
    stream = bench.stream()
    stream.truncate(stream.retention.cut(times(bench)[STALE]).cut)
    return bench


@cache
def recorded() -> Bench:
    """Seven cuts, 10 ms apart, and more than 10 between each two."""
    bench = Bench()
    bench.create()
    for _ in range(CUTS):
        bench.append_all(5)
        stream = bench.stream()
        stream.configure(StreamConfiguration(retention=RetentionPolicy(RetentionKind.TIME, 10_000)))
        assert stream.retention.run(bench.tick(STEP_MS)) is None
        bench.scale_once()
    return bench


def keep(bench: Bench, policy: RetentionPolicy) -> None:
    bench.stream().configure(StreamConfiguration(retention=policy))


def times(bench: Bench) -> list[int]:
    """When the cuts of the set were recorded."""
    found: list[int] = bench.stream().retention.read().times_ms.tolist()
    return found


def records(bench: Bench) -> list[int]:
    """When those were recorded whose records are there."""
    return sorted(int(each.rpartition("-")[2]) for each in bench.live_keys() if "retentionCuts-" in each)


def erase(bench: Bench, recording_time_ms: Iterable[int]) -> None:
    """What a purge does that dies before it writes the set."""
    for each in recording_time_ms:
        bench.stream().parts.keys.cut(each).erase()


def refuse_deletions(call: StoreCall) -> None:
    if call.operation.startswith("delete"):
        raise StoreUnavailable(call.operation, call.key, "out of order")


class Later(Executor):
    """Purges when it is told to; all else that it is given it does at once."""

    def __init__(self) -> None:
        self.waiting: deque[Callable[[], object]] = deque()
        self.is_shut_down = False

    def submit(self, fn: Callable[..., Answer], /, *args: Any, **kwargs: Any) -> Future[Answer]:
        future: Future[Answer] = Future()
        work = fn.args[0] if isinstance(fn, partial) else fn  # work comes with its context around it
        if not isinstance(getattr(work, "__self__", None), RetentionWorkflow):
            future.set_result(fn(*args, **kwargs))
        elif self.is_shut_down:
            raise RuntimeError("cannot schedule new futures after shutdown")
        else:
            self.waiting.append(lambda: fn(*args, **kwargs))
        return future

    def step(self) -> None:
        self.waiting.popleft()()


def stream_on(bench: Bench, executor: Executor, store: ObjectStore | None = None) -> Stream:
    """The stream for somebody who has an executor."""
    opened = StreamStore.open(store or bench.store, system=bench.components(), host=bench.host, executor=executor)
    return opened.stream(SCOPE, STREAM)


def run_before(bench: Bench, store: ObjectStore | None = None) -> Later:
    """A run of retention, and what it leaves to its executor."""
    later = Later()
    assert stream_on(bench, later, store).retention.run(bench.tick()) is not None
    return later


# Purging by itself


def test_a_purge_deletes_the_cuts_before_the_one_that_the_stream_begins_at(stale: Bench) -> None:
    kept = times(stale)[STALE:]
    assert stale.stream().retention.purge() == STALE
    assert times(stale) == records(stale) == kept
    assert stale.stream().retention.purge() == 0


def test_nothing_is_stale_where_nothing_was_truncated() -> None:
    bench = recorded().clone()
    assert bench.stream().retention.purge() == 0
    assert len(times(bench)) == len(records(bench)) == CUTS


def test_cuts_whose_purge_was_cut_off_are_purged_though_none_of_them_is_before_the_head() -> None:
    bench = recorded().clone()
    stream = bench.stream()
    first = stream.epochs.epoch(0).segments.ids.tolist()
    assert len(first) > 1
    stream.truncate({segment_id: int(segment_id == first[0]) for segment_id in first})  # before all recorded cuts
    erased = times(bench)[0]
    with pytest.raises(Crash):
        bench.stream(around=CrashStore(bench.store, 1)).retention.delete_up_to(times(bench)[1])
    assert erased in times(bench)
    assert erased not in records(bench)
    assert bench.stream().retention.purge() == 1
    assert times(bench) == records(bench)


def test_the_last_cut_stays_even_if_the_stream_begins_behind_it(stale: Bench) -> None:
    stream = stale.stream()
    stream.truncate(stale.host.tails((SCOPE, STREAM), stream.active_segments().ids))
    assert stream.retention.purge() == CUTS - 1
    assert len(times(stale)) == 1


# What is left changes nothing


def answers(bench: Bench, policy: RetentionPolicy, read: dict[int, int] | None) -> object:
    """What two runs of retention make of the stream, the second of which finds what the first one left."""
    keep(bench, policy)
    found = []
    for _ in range(2):
        bench.append_all(6)
        outcome, point = bench.stream().workflows.retention.retain(bench.tick(STEP_MS), read)
        found.append((outcome, point, dict(bench.stream().head()), bench.stream().truncation().size_till))
    return found


def read_from(bench: Bench, recording_time_ms: int | None) -> dict[int, int] | None:
    """The cut at which readers are; None = there are no readers."""
    return None if recording_time_ms is None else dict(bench.stream().retention.cut(recording_time_ms).cut)


@cache
def answers_when_purged(policy: RetentionPolicy, recording_time_ms: int | None) -> object:
    """The answers with no stale cut left."""
    purged = truncated().clone()
    purged.stream().retention.purge()
    return answers(purged, policy, read_from(purged, recording_time_ms))


@pytest.mark.parametrize("has_readers", [False, True])
@pytest.mark.parametrize("gone", [[], [3], [1, 2], [0, 1, 2, 3]])
def test_a_stale_cut_changes_no_answer_whether_its_record_is_there_or_not(
    stale: Bench, gone: list[int], *, has_readers: bool
) -> None:
    known = times(stale)
    erase(stale, [known[each] for each in gone])
    read_till = known[STALE:] if has_readers else [None]
    for policy in POLICIES:
        for each in read_till:
            expected = answers_when_purged(policy, each)
            assert answers(stale.clone(), policy, read_from(stale, each)) == expected, f"{policy}, {each}"


def test_the_cut_before_a_reader_is_found_although_stale_records_are_gone(stale: Bench) -> None:
    known = times(stale)
    cuts = {each: dict(stale.stream().retention.cut(each).cut) for each in known}
    erase(stale, known[:STALE])
    workflow = stale.stream().workflows.retention
    for each in known[STALE:]:
        found = workflow.reference_before(cuts[each])
        assert found is not None
        assert found.recording_time_ms == each
    assert workflow.reference_before(cuts[known[1]]) is None


def test_where_the_last_record_is_gone_sizes_count_from_the_beginning(stale: Bench) -> None:
    known = times(stale)
    whole, broken = stale.clone(), stale.clone()
    erase(broken, known[-1:])
    for bench in (whole, broken):
        bench.append_all(3)
        assert bench.stream().retention.run(bench.tick()) is None
    assert broken.stream().retention.read() == whole.stream().retention.read()


# A run, and what goes wrong behind it


def test_a_crash_in_the_middle_of_a_purge_leaves_nothing_that_matters(stale: Bench) -> None:
    whole = stale.clone()
    counted = CrashStore(whole.store, None)
    whole.stream(around=counted).retention.purge()
    assert counted.writes == STALE + 1
    for number in range(counted.writes):
        bench = stale.clone()
        with pytest.raises(Crash):
            bench.stream(around=CrashStore(bench.store, number)).retention.purge()
        assert answers(bench.clone(), POLICIES[0], None) == answers(whole.clone(), POLICIES[0], None)
        bench.stream().retention.purge()
        assert bench.live_keys() == whole.live_keys()
        assert times(bench) == times(whole)


def test_a_run_does_not_fail_for_its_purge(due: Bench, caplog: pytest.LogCaptureFixture) -> None:
    outcome, point = due.stream(around=Watched(due.store, refuse_deletions)).workflows.retention.retain(due.tick())
    assert outcome is Retained.TRUNCATED
    assert point is not None
    assert [each.levelno for each in caplog.records] == [logging.WARNING]
    assert f"{SCOPE}/{STREAM}" in caplog.text
    assert "out of order" in caplog.text
    assert len(times(due)) == CUTS + 1, "nothing was purged"
    due.append_all(1)
    due.stream().retention.run(due.tick())
    assert len(times(due)) == len(records(due)) == 1


def test_a_run_purges_so_many_and_the_next_one_the_rest(due: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention_workflow, "PURGED_AT_ONCE_MAX", 5)
    left = []
    for _ in range(3):
        due.append_all(1)
        due.stream().retention.run(due.tick())
        left.append(len(times(due)))
        assert len(records(due)) == left[-1]
    assert left == [3, 1, 1]


# Beside the run


def test_with_an_executor_a_run_does_not_wait_for_the_purge(due: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention_workflow, "SLICE_CUTS", 3)
    later = run_before(due)
    assert len(times(due)) == len(records(due)) == CUTS + 1
    left = []
    while later.waiting:
        later.step()
        assert times(due) == records(due), "a slice is whole"
        left.append(len(times(due)))
    assert left == [5, 2, 1]


def test_a_purge_beside_the_run_is_bounded(due: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention_workflow, "SLICE_CUTS", 2)
    monkeypatch.setattr(retention_workflow, "PURGED_AT_ONCE_MAX", 5)
    later = run_before(due)
    while later.waiting:
        later.step()
    assert len(times(due)) == CUTS + 1 - 5


def test_a_purge_that_fails_beside_the_run_is_told_and_not_taken_up(
    due: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    later = run_before(due, Watched(due.store, refuse_deletions))
    later.step()
    assert "could not be purged" in caplog.text
    assert not later.waiting


def test_the_cuts_of_a_stream_that_is_deleted_meanwhile_need_no_purge(
    due: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    later = run_before(due)
    due.stream().seal()
    due.streams().delete_stream(SCOPE, STREAM)
    later.step()
    assert (caplog.text, len(later.waiting)) == ("", 0)


def test_whoever_closes_the_executor_waits_for_one_slice_at_most(
    due: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, retention_workflow.logger.name)
    monkeypatch.setattr(retention_workflow, "SLICE_CUTS", 3)
    later = Later()
    stream = stream_on(due, later)
    stream.retention.run(due.tick())
    later.is_shut_down = True
    later.step()
    assert not later.waiting
    assert len(times(due)) == len(records(due)) == CUTS + 1 - 3
    due.append_all(1)
    assert stream.retention.run(due.tick()) is not None, "nor does a run fail for it"
    assert caplog.text.count("the next run of retention purges the remaining") == 2


def test_a_purge_on_an_executor_of_one_thread_does_not_wait_for_itself(due: Bench) -> None:
    with ThreadPoolExecutor(1) as executor:
        assert stream_on(due, executor).retention.run(due.tick()) is not None
    assert len(times(due)) == len(records(due)) == 1


# Several at once


def sound(bench: Bench) -> None:
    """Every cut that may still be truncated to has its record, and the next run goes on from there."""
    assert times(bench)[-1] in records(bench)
    bench.append_all(2)
    bench.stream().retention.run(bench.tick(STEP_MS))
    bench.append_all(2)
    point = bench.stream().retention.run(bench.tick(STEP_MS))
    assert point is not None
    assert dict(bench.stream().head()) == dict(bench.stream().retention.cut(point.recording_time_ms).cut)
    bench.stream().retention.purge()
    assert times(bench) == [each for each in records(bench) if each >= times(bench)[0]]


ENDED = {Retained.TRUNCATED, Retained.RECORDED, Retained.UNCHANGED}


@pytest.mark.parametrize("is_purge", [True, False])
def test_a_purge_between_any_two_calls_of_a_run_does_not_disturb_it(stale: Bench, *, is_purge: bool) -> None:
    keep(stale, RetentionPolicy(RetentionKind.TIME, STEP_MS))
    stale.append_all(2)
    stale.tick()

    def run_around(number: int | None) -> int:
        bench = stale.clone()
        later_ms = bench.now_ms + STEP_MS

        def other() -> object:
            if is_purge:
                return bench.stream().retention.purge()
            bench.append_all(1)
            return bench.stream().retention.run(later_ms)

        store = interrupted(bench.store, number, other)
        found = bench.streams(store).retain(SCOPE, STREAM, bench.now_ms)
        assert found.outcome in ({Retained.TRUNCATED} if is_purge else ENDED), found
        bench.tick(2 * STEP_MS)
        sound(bench)
        return store.fitting

    calls = run_around(None)
    assert calls > 20
    for number in places(calls, int(is_purge)):  # between two calls comes one of both
        run_around(number)


def test_a_run_between_any_two_calls_of_a_purge_does_not_disturb_it(stale: Bench) -> None:
    keep(stale, RetentionPolicy(RetentionKind.TIME, STEP_MS))
    stale.append_all(2)
    stale.tick()
    number, calls = 0, 1
    while number < calls:
        bench = stale.clone()
        store = interrupted(bench.store, number, lambda: bench.stream().retention.run(bench.now_ms))  # noqa: B023 - at once
        bench.stream(around=store).retention.purge()
        bench.tick(STEP_MS)
        sound(bench)
        number, calls = number + 1, store.fitting


def test_runs_and_purges_whose_requests_mix_leave_a_sound_stream(stale: Bench) -> None:
    keep(stale, RetentionPolicy(RetentionKind.TIME, STEP_MS))
    stale.append_all(2)
    for seed in range(examples(8)):
        bench = stale.clone()
        first_ms, second_ms = bench.now_ms + 1, bench.now_ms + STEP_MS

        def run(at_ms: int, bench: Bench = bench) -> Callable[[ObjectStore], object]:
            return lambda store: bench.streams(store).retain(SCOPE, STREAM, at_ms)

        def purge(store: ObjectStore, bench: Bench = bench) -> object:
            return bench.stream(around=store).retention.purge()

        Schedule(seed).run(bench.store, [run(first_ms), run(second_ms), purge])
        assert second_ms in times(bench), "both record, unless the later one was there first"
        assert set(times(bench)) <= set(records(bench)), "and what came too late left no record behind"
        assert set(records(bench)) <= set(times(bench))
        bench.now_ms = second_ms
        with suppress(AccelError):
            bench.streams().recover()
        bench.tick(STEP_MS)
        sound(bench)
