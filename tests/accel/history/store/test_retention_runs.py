"""Retention of a whole scope: what became of each stream is told, and none holds up the others."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from itertools import count

import pytest

from accel.history.rules.configuration import RetentionKind, RetentionPolicy, StreamConfiguration
from accel.history.rules.retention import RetentionEntry
from accel.history.rules.states import StreamState
from accel.history.rules.values import Integers
from accel.history.store import Retained, StreamRetention
from accel.history.store.stream_store import ATTEMPTS_MAX, retain, totals
from accel.testing import Crash, CrashStore, MemorySegments
from loaders.store.decorated import StoreCall
from tests.accel.history.store.bench import START_MS, Bench
from tests.accel.history.store.watching import interrupted
from tests.conformance.history_world import SCOPE
from tests.conformance.steps import set_state
from tests.world import Watched

KEPT = StreamConfiguration(retention=RetentionPolicy(RetentionKind.TIME, 10))
FREE = StreamConfiguration()


class Forgetful(MemorySegments):
    """Nobody can say how far the segments of one stream reach; those of another begin again."""

    def tails(self, stream: tuple[str, str], ids: Integers) -> Mapping[int, int]:
        if stream[1] == "lost":
            raise LookupError("nobody knows these segments")
        return dict.fromkeys(ids.tolist(), 0) if stream[1] == "shrunk" else super().tails(stream, ids)


@pytest.fixture
def shop() -> Bench:
    """A scope without streams."""
    bench = Bench()
    bench.streams().create_scope(SCOPE)
    return bench


def add(bench: Bench, name: str, wanted: StreamConfiguration = KEPT) -> None:
    """A stream with a cut that was recorded when there was data."""
    stream = bench.streams().create_stream(SCOPE, name, wanted, START_MS)
    write(bench, name, 5)
    stream.retention.run(START_MS)


def write(bench: Bench, name: str, size: int) -> None:
    for each in bench.streams().stream(SCOPE, name).active_segments().ids.tolist():
        bench.host.append((SCOPE, name), each, size)


def half_created(bench: Bench, name: str) -> None:
    with pytest.raises(Crash):
        bench.streams(CrashStore(bench.store, 4)).create_stream(SCOPE, name)


def outcomes(bench: Bench, time_ms: int | None = None) -> dict[str, Retained]:
    found = bench.streams().run_retention(SCOPE, time_ms)
    return {each.stream.removeprefix(f"{SCOPE}/"): each.outcome for each in found}


def test_what_became_of_each_stream_is_told(shop: Bench) -> None:
    for name in ("alone", "busy", "damaged", "quiet", "sealed"):
        add(shop, name)
    add(shop, "whole", FREE)
    set_state(shop.streams().stream(SCOPE, "busy"), StreamState.SCALING)
    shop.streams().stream(SCOPE, "sealed").seal()
    half_created(shop, "half")
    shop.streams().stream(SCOPE, "quiet").configure(
        StreamConfiguration(retention=RetentionPolicy(RetentionKind.TIME, 99))
    )
    [damaged] = [each.key for each in shop.store.list("") if "damaged" in each.key and each.key.endswith("/retention")]
    shop.store.put(damaged, b"nonsense")
    assert outcomes(shop, START_MS + 10) == {
        "alone": Retained.TRUNCATED,
        "busy": Retained.BUSY,
        "damaged": Retained.FAILED,
        "half": Retained.UNFINISHED,
        "quiet": Retained.RECORDED,
        "sealed": Retained.SEALED,
        "whole": Retained.NO_POLICY,
    }


def test_a_truncation_is_told_with_its_cut_and_a_failure_with_its_error(shop: Bench) -> None:
    shop.host = Forgetful()
    for name in ("lost", "shrunk", "well"):
        shop.streams().create_stream(SCOPE, name, KEPT, START_MS)
    write(shop, "well", 5)
    shop.streams().stream(SCOPE, "shrunk").workflows.retention.add(START_MS, 5, {0: 5})
    shop.streams().stream(SCOPE, "well").retention.run(START_MS)
    lost, shrunk, well = shop.streams().run_retention(SCOPE, START_MS + 10)
    assert lost == StreamRetention(f"{SCOPE}/lost", Retained.FAILED, error="LookupError: nobody knows these segments")
    assert (shrunk.outcome, shrunk.error.partition(":")[0]) == (Retained.FAILED, "InvalidArgument")
    assert well == StreamRetention(f"{SCOPE}/well", Retained.TRUNCATED, RetentionEntry(START_MS, 5))
    for each in (lost, shrunk, well):
        assert pickle.loads(pickle.dumps(each)) == each  # noqa: S301 - made here


def test_totals_count_every_outcome(shop: Bench) -> None:
    for name in ("one", "two"):
        add(shop, name)
    assert totals(shop.streams().run_retention(SCOPE, START_MS + 10)) == {
        **dict.fromkeys((each.value for each in Retained), 0), "truncated": 2,
    }  # fmt: skip


@pytest.mark.parametrize(("attempts", "outcome"), [(1, Retained.TRUNCATED), (99, Retained.BUSY)])
def test_a_busy_stream_is_tried_a_few_times(shop: Bench, attempts: int, outcome: Retained) -> None:
    add(shop, "one")
    write(shop, "one", 1)
    set_state(shop.streams().stream(SCOPE, "one"), StreamState.COMMITTING_TXN)
    states = count(1)

    def end_other(call: StoreCall) -> None:
        """Another workflow has the stream, until it was asked for its state so often."""
        if call.operation == "get" and call.key.endswith("/retention") and next(states) == attempts:
            set_state(shop.streams().stream(SCOPE, "one"), StreamState.ACTIVE)

    found = shop.streams(Watched(shop.store, end_other)).retain(SCOPE, "one", START_MS + 10)
    assert found.outcome is outcome
    assert bool(found.error) is (outcome is Retained.BUSY)
    set_state(shop.streams().stream(SCOPE, "one"), StreamState.ACTIVE)
    assert outcomes(shop, START_MS + 10)["one"] in (Retained.TRUNCATED, Retained.RECORDED)
    assert dict(shop.streams().stream(SCOPE, "one").head()) == {0: 5}
    assert shop.streams().stream(SCOPE, "one").retention.read().times_ms.tolist() == [START_MS, START_MS + 10]


def test_a_stream_is_not_tried_without_end(shop: Bench) -> None:
    add(shop, "one")
    set_state(shop.streams().stream(SCOPE, "one"), StreamState.UPDATING)
    pauses: list[int] = []
    found = retain(lambda: shop.streams().stream(SCOPE, "one"), "one", START_MS + 10, pauses.append)
    assert found.outcome is Retained.BUSY
    assert pauses == list(range(1, ATTEMPTS_MAX))


def test_a_stream_that_is_deleted_meanwhile_is_no_failure(shop: Bench) -> None:
    number, calls, seen = 0, 1, set()
    while number < calls:
        bench = shop.clone()
        add(bench, "one")

        def delete(bench: Bench = bench) -> None:
            stream = bench.streams().stream(SCOPE, "one")
            stream.workflows.ending.seal(START_MS)
            bench.streams().delete_stream(SCOPE, "one")

        store = interrupted(bench.store, number, delete)
        seen.add(bench.streams(store).retain(SCOPE, "one", START_MS + 10).outcome)
        number, calls = number + 1, store.fitting
    assert seen <= {Retained.UNFINISHED, Retained.SEALED, Retained.TRUNCATED}, seen
    assert Retained.UNFINISHED in seen
