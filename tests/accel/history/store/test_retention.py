"""Truncation, recorded cuts, sizes, and the pieces that a history is cut into."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from accel.errors import InvalidArgument, NotInHistory
from accel.history.rules.configuration import HistoryLayout, ShardBy
from accel.history.rules.values import NOTHING
from accel.history.store import HistorySettings, StreamStore
from tests.accel.history.store.bench import NAME, START_MS, Bench, cut, ids
from tests.conformance.history_world import SCOPE, STREAM

HALVES = [(0.0, 0.5), (0.5, 1.0)]


# Truncation and retention


def test_the_head_is_where_the_stream_was_truncated(bench: Bench) -> None:
    """Pitfall A18: where the stream begins was told with offsets of 0 in spite of a truncation (pravega issue 2644)."""
    bench.scale_once()
    bench.append_all(2)
    stream = bench.stream()
    stream.truncate(cut(s1_0=4, s2_1=2))
    assert stream.head() == stream.segments_at(START_MS) == cut(s1_0=4, s2_1=2)
    record = stream.truncation()
    assert (record.deleted_count, record.size_till, record.updating) == (1, 7 + 4 + 2, False)
    assert [part.ids.tolist() for part in stream.cuts.deleted()] == [ids("0@0")]
    assert bench.host.ids(NAME) == ids("1@0", "2@1")
    with pytest.raises(InvalidArgument):
        stream.truncate(cut(s0_0=5, s1_0=5))


def test_a_shard_that_was_never_written_reads_as_empty(bench: Bench) -> None:
    """Pitfall A2: a shard of sizes that nobody had written yet was an error in truncation (pravega issue 3058)."""
    cuts = bench.stream().workflows.cuts
    assert cuts.shard(17) == NOTHING
    assert cuts.size_between({}, cut(s0_0=3, s1_0=4)) == 7


# Settings


def test_a_stream_keeps_the_pieces_that_it_was_created_with(bench: Bench) -> None:
    bench.settings = HistorySettings()
    for _ in range(5):
        bench.scale_once()
    assert [each.epoch for each in bench.stream().epochs.between(0, 5)] == list(range(6))
    assert [len(each) for each in bench.stream().workflows.epochs.chunks(-1, 5)] == [2, 2, 2]


def test_sizes_lie_in_shards_by_number_if_the_settings_say_so() -> None:
    bench = Bench(HistorySettings(layout=HistoryLayout(shard_size=2, shard_by=ShardBy.NUMBER)))
    bench.create()
    bench.append_all(5)
    bench.transaction("first", size=1)
    bench.scale_once()
    bench.stream().commit(bench.tick())
    stream = bench.stream()
    assert dict(stream.workflows.cuts.shard(0)) == dict(zip(ids("0@0", "1@0", "0@2", "1@2"), [5, 5, 1, 1], strict=True))
    assert dict(stream.workflows.cuts.shard(1)) == {ids("2@1")[0]: 0}
    assert stream.cuts.size_between({}, cut(s1_3=0, s2_3=0)) == 12


def test_with_an_executor_the_answers_are_the_same(bench: Bench) -> None:
    for _ in range(40):
        bench.scale_once()
    with ThreadPoolExecutor(4) as executor:
        stores = StreamStore.open(bench.store, system=bench.components(), host=bench.host, executor=executor)
        stream = stores.stream(SCOPE, STREAM)
        assert list(stream.epochs.between(0, 40)) == list(bench.stream().epochs.between(0, 40))
        assert stream.cuts.size_between({}, {}) == bench.stream().cuts.size_between({}, {})
        with pytest.raises(NotInHistory):
            list(stream.epochs.between(0, 50))
        stream.scale(stream.active_segments().ids.tolist(), HALVES, bench.tick())
    assert bench.stream().current_epoch().epoch == 41


# Layout and settings


@pytest.mark.parametrize("sizes", [(0, 1), (1, 0), (1, 2_000_000)])
def test_pieces_are_neither_empty_nor_huge(sizes: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="expected"):
        HistoryLayout(*sizes)
    with pytest.raises(ValueError, match="expected"):
        HistorySettings(ids_block=0)
