"""What a scrape tells: the numbers of `stats()`, what was unopened, false positives of filters, time of requests."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

import accel
from accel import MetadataImage, StaticImages
from accel.catalog.job_runs import JobStats
from accel.errors import InvalidRequest, KeyMissing, StoreThrottled, UnknownStream
from accel.image import ImageVersion
from accel.lookup.answer import Request
from accel.metrics import AccelCollector, NamedCollectors
from accel.streams.group_readers import GroupReaderStats
from accel.streams.shared.auto_scale import AutoScaleStats
from accel.system import SYSTEM
from accel.testing import ClockStore, Fault, FaultStore
from bloom import StreamFilter
from loaders.counting import Histogram
from loaders.store import CountingStore, Fetched, MemoryStore
from tests.accel.lookup.cluster import NODE, STARTED_SECONDS, STREAM, image_of, line_image, line_store, put, settled
from tests.accel.lookup.driving import Clock
from tests.accel.lookup.hinting import put_real_hints
from tests.docs.pages import page_named
from tests.examples import examples


def scraped(collector: AccelCollector | NamedCollectors) -> dict[str, float]:
    """The samples of a scrape, each by its name and labels."""
    registry = CollectorRegistry()
    registry.register(collector)
    lines = [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_lookups_are_told_by_ending_and_add_up() -> None:
    store = line_store(20)
    with settled(store, line_image(list(range(20)), end=250)) as one:
        one.get_objects(STREAM, 5, limit=2)
        one.get_objects(STREAM, 5, 12)
        one.get_objects(STREAM, 195, 240)
        one.get_objects(STREAM, 5, limit=2)
        with pytest.raises(InvalidRequest):
            one.get_objects(STREAM, 9, 3)
        told, stats = scraped(AccelCollector(one, store)), one.stats().lookups
    by_ending = {name: told[f'accel_lookups_total{{ending="{name}"}}'] for name in ("limit", "end", "hole", "refused")}
    assert by_ending == {"limit": 2, "end": 1, "hole": 1, "refused": 1}
    assert (stats.lookups, told["accel_lookups_warm_total"]) == (4, stats.warm)
    assert told["accel_lookup_rounds_count"] == told["accel_lookup_opened_objects_count"] == stats.lookups
    assert told["accel_lookup_rounds_sum"] == stats.rounds
    assert told["accel_lookup_opened_objects_sum"] == stats.objects_opened
    assert told['accel_lookup_rounds_bucket{le="0.0"}'] == stats.warm


@settings(max_examples=examples(30))
@given(st.lists(st.integers(0, 390), min_size=1, max_size=6), st.sampled_from(["spread", "window", "load-all"]))
def test_opened_and_skipped_objects_are_those_that_the_lists_have(starts: list[int], policy: str) -> None:
    with settled(line_store(40), line_image(list(range(40)), end=400), policy=policy) as one:
        for start in starts:
            answer = one.get_objects(STREAM, start)
            unopened = answer.unopened
            skipped = unopened.by_index + unopened.by_filter + unopened.by_bounds
            assert min(unopened.by_index, unopened.by_filter, unopened.by_bounds) >= 0
            assert skipped == (answer.objects_listed - answer.objects_opened if answer.rounds else 0)
        stats = one.stats().lookups
        told = scraped(AccelCollector(one))
    by = {name: told[f'accel_lookup_skipped_objects_total{{by="{name}"}}'] for name in ("index", "filter", "bounds")}
    assert sum(by.values()) + stats.objects_opened == stats.objects_listed == told["accel_lookup_listed_objects_total"]


def test_a_filter_that_says_maybe_of_an_object_without_the_stream_is_a_false_positive() -> None:
    store = MemoryStore()
    for each in range(4):  # the stream is in the last one alone; the filters of 1 and 2 say that it may be there
        put(store, each, [(1, each, each + 1), *([(STREAM, 0, 10)] if each == 3 else [])])
    with settled(CountingStore(store), line_image([0, 1, 2, 3]), parallel_loads=1) as one:  # they come in order
        told = {0: [1], 1: [1, STREAM], 2: [1, STREAM], 3: [1, STREAM]}
        one._engine.index_cache.add_filters(NODE, ((each, filter_of(ids)) for each, ids in told.items()))
        answer = one.get_objects(STREAM, 0)
        scrape = scraped(AccelCollector(one))
    assert [each.object_id for each in answer.objects] == [3]
    assert scrape["accel_filter_passed_objects_total"] == 3
    assert scrape["accel_filter_false_positive_objects_total"] == 2
    assert scrape['accel_lookup_skipped_objects_total{by="filter"}'] == 1


def filter_of(stream_ids: list[int]) -> StreamFilter:
    return StreamFilter.build(np.asarray(stream_ids, dtype=np.int64))


class SlowStore(MemoryStore):
    """Each ranged read takes 30 ms of a clock that only moves so."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def get_range(self, key: str, start: int, end: int) -> Fetched:
        self.clock.seconds += 0.03
        return super().get_range(key, start, end)


def test_requests_are_told_by_operation_and_outcome_with_their_time() -> None:
    clock = Clock()
    faults = FaultStore(SlowStore(clock))
    faults.put("a", b"12345")
    store = CountingStore(faults, clock)
    store.get_range("a", 0, 4)
    with pytest.raises(KeyMissing):
        store.get_range("b", 0, 4)
    faults.schedule(Fault.SLOW_DOWN)
    with pytest.raises(StoreThrottled):
        store.get_range("a", 0, 4)
    told = scraped(AccelCollector(store=store))
    requests = {outcome: of_requests(told, outcome) for outcome in ("ok", "KeyMissing", "StoreThrottled")}
    assert requests == {"ok": (1, 0.03), "KeyMissing": (1, 0.03), "StoreThrottled": (1, 0)}
    assert told['accel_store_throttled_answers_total{operation="get_range"}'] == 1
    assert told['accel_store_received_bytes_total{operation="get_range"}'] == 4
    assert told["accel_store_failing"] == 1
    assert told["accel_store_oldest_request_seconds"] == 0
    store.get_range("a", 0, 4)
    assert scraped(AccelCollector(store=store))["accel_store_failing"] == 0


def test_scales_by_policies_are_told_where_segments_are_held() -> None:
    held: list[AutoScaleStats] = []
    collector = AccelCollector(scaling=lambda: held[-1] if held else None)
    assert scraped(collector) == {}
    held.append(AutoScaleStats(9, scales=3, splits=2, merges=1, waits=4, refusals=5, failures=6, last_scale_ms=1500))
    assert scraped(collector) == {
        "accel_auto_scale_looks_total": 9,
        'accel_auto_scale_outcomes_total{outcome="scaled"}': 3,
        'accel_auto_scale_outcomes_total{outcome="waited"}': 4,
        'accel_auto_scale_outcomes_total{outcome="refused"}': 5,
        'accel_auto_scale_outcomes_total{outcome="failed"}': 6,
        'accel_auto_scaled_segments_total{kind="split"}': 2,
        'accel_auto_scaled_segments_total{kind="merge"}': 1,
        "accel_auto_scale_last_timestamp_seconds": 1.5,
    }
    held.append(AutoScaleStats())
    assert scraped(collector)["accel_auto_scale_last_timestamp_seconds"] == 0


def test_the_lag_of_readers_of_groups_is_told_once_they_report_and_never_as_0_instead() -> None:
    with accel.connect(MemoryStore(), create=True) as streams:
        collector = AccelCollector(groups=streams.group_stats)
        none = {
            "accel_group_readers": 0,
            'accel_group_reader_replacements_total{role="replacing"}': 0,
            'accel_group_reader_replacements_total{role="replaced"}': 0,
        }
        assert scraped(collector) == none
        streams.create_scope("shop")
        streams.create_stream("shop", "orders")
        readers = [streams.group_reader("shop", "orders", "billing", "one") for _ in range(2)]
        for each in readers:
            each.rebalance()
        told = scraped(collector)
        assert told['accel_group_reader_replacements_total{role="replacing"}'] == 1
        assert "accel_group_reader_lag_seconds" not in told, "nobody has looked yet"
        assert told["accel_group_readers"] == 2, "the first one does not know of the second one"
        with streams.writer("shop", "orders") as writer:
            writer.write(b"one", "key")
        assert next(readers[1]).payload == b"one"
        readers[1].rebalance()
        assert scraped(collector)["accel_group_reader_lag_seconds"] >= 0


def test_a_connection_tells_of_scales_once_it_holds_segments() -> None:
    with accel.connect(MemoryStore(), create=True) as streams:
        collector = AccelCollector(caches=streams.cache_stats, scaling=streams.scaling_stats)
        assert "accel_auto_scale_looks_total" not in scraped(collector)
        streams.create_scope("shop")
        streams.create_stream("shop", "orders")
        with streams.writer("shop", "orders") as writer:
            writer.write(b"one", "key")
        assert scraped(collector)["accel_auto_scale_looks_total"] == 0
        assert streams.scaling_stats() == AutoScaleStats()


@pytest.mark.parametrize(("ahead", "skew"), [(0, 0), (3600, 3599), (-3600, -3600)])
def test_a_clock_that_is_off_shows(ahead: float, skew: float) -> None:
    system = replace(SYSTEM, clock=lambda: 5000.0 + ahead)
    with accel.connect(ClockStore(MemoryStore(), lambda: 5000.0), create=True, system=system) as streams:
        told = scraped(AccelCollector(clock=streams.clock_skew_seconds))
    assert told == {"accel_clock_skew_seconds": skew}


def of_requests(told: dict[str, float], outcome: str) -> tuple[float, float]:
    labels = f'{{operation="get_range",outcome="{outcome}"}}'
    seconds = told[f"accel_store_request_duration_seconds_sum{labels}"]
    return told[f"accel_store_requests_total{labels}"], round(seconds, 6)


def test_loads_are_timed_and_caches_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accel.lookup.engine.BLOCK_INDEXES_SIZE_BYTES_MAX", 600)
    store = line_store(20)
    with settled(store, line_image(list(range(20)))) as one:
        one.get_objects(STREAM, 5, 150, limit=20)
        stats = one.stats()
        told = scraped(AccelCollector(one))
    assert told["accel_load_duration_seconds_count"] == stats.loader.opened > 4
    evicted = stats.caches["block_indexes"]
    assert told['accel_cache_evicted_entries_total{cache="block_indexes"}'] == evicted.evicted > 0
    assert told['accel_cache_evicted_bytes_total{cache="block_indexes"}'] == evicted.evicted_bytes > 0
    assert told['accel_cache_bytes{cache="block_indexes"}'] <= told['accel_cache_max_bytes{cache="block_indexes"}']
    assert told['accel_cache_entries{cache="object_indexes"}'] == stats.caches["object_indexes"].entries


def test_a_connection_tells_of_tables_and_time_parts() -> None:
    with accel.connect("memory://metrics", create=True) as connection:
        connection.create_scope("shop")
        connection.create_stream("shop", "orders")
        stream = connection.stream_store.stream("shop", "orders")
        for _ in range(2):
            stream.current_epoch()
        told = scraped(AccelCollector(caches=connection.cache_stats))
    assert told['accel_cache_entries{cache="tables"}'] > 0
    assert told['accel_cache_misses_total{cache="tables"}'] > 0
    assert told['accel_cache_max_bytes{cache="time_parts"}'] > 0


class FailingImages(StaticImages):
    """Cannot be asked for newer images."""

    def wait_newer(self, version: ImageVersion, timeout_seconds: float) -> MetadataImage | None:
        raise OSError(f"nobody knows of images after {version} within {timeout_seconds} s")


def test_a_source_that_fails_shows_until_it_answers_again() -> None:
    source = FailingImages(line_image([0, 1]))
    with settled(line_store(2), source) as one:
        collector = AccelCollector(one)
        one.follow()
        assert scraped(collector)["accel_image_source_failing"] == 1
        assert scraped(collector)["accel_image_refresh_failures_total"] == 1
        one.get_objects(STREAM, 5)
        assert scraped(collector)["accel_image_source_failing"] == 0


def test_hints_are_as_old_as_their_build() -> None:
    store = MemoryStore()
    sizes = {each: put(store, each, [(STREAM, each, each + 1)]) for each in (0, 1)}
    image = image_of({STREAM: (NODE, 2)}, {NODE: sizes}, sizes=sizes)
    put_real_hints(store, image, generation=(STARTED_SECONDS - 120) * 1000)
    with settled(CountingStore(store), image) as one:
        none = scraped(AccelCollector(one))
        assert "accel_hint_age_seconds" not in none
        assert none['accel_hint_nodes{kind="pack"}'] == none['accel_hint_nodes{kind="snapshot"}'] == 0
        one.warm()
        told = scraped(AccelCollector(one))
    assert told["accel_hint_age_seconds"] == 120
    assert told['accel_hint_nodes{kind="pack"}'] == 1
    assert told['accel_hint_covered_objects{kind="pack"}'] == told['accel_hint_listed_objects{kind="pack"}'] == 2


def test_every_metric_that_is_deployed_or_documented_exists() -> None:
    with settled(line_store(2), line_image([0, 1]), slow_lookup_seconds=0.5) as one:
        store = CountingStore(MemoryStore(), Clock())
        collector = AccelCollector(
            one,
            store,
            scaling=AutoScaleStats,
            groups=GroupReaderStats,
            clock=lambda: 0.0,
            jobs=lambda: JobStats({"gc": 1.0}, 0),
        )
        collected = list(collector.collect())
    names = {family.name + "_total" * (family.type == "counter") for family in collected}
    assert all(len(family.documentation.split()) >= 2 for family in collected)
    told = set(re.findall(r"`(accel_[a-z_]+)`", page_named("operations").read_text()))
    assert told
    assert told <= names


def test_no_label_is_an_id_or_a_key() -> None:
    store = line_store(8)
    with settled(store, line_image(list(range(8)))) as one:
        one.get_objects(STREAM, 5)
        names = scraped(AccelCollector(one, store))
    labels = {label.partition("=")[0] for name in names if "{" in name for label in name.split("{")[1].split(",")}
    assert labels <= {"ending", "by", "outcome", "reason", "kind", "cache", "cause", "operation", "le"}


@given(st.lists(st.floats(0, 100), max_size=40))
def test_a_histogram_counts_each_value_in_the_bucket_that_it_fits(values: list[float]) -> None:
    histogram = Histogram((0.5, 1.0, 50.0))
    for value in values:
        histogram.add(value)
    told = dict(histogram.stats().cumulated())
    assert told == {bound: sum(value <= bound for value in values) for bound in (0.5, 1.0, 50.0, float("inf"))}
    assert histogram.stats().total == pytest.approx(sum(values))


def test_a_request_for_what_does_not_exist_is_refused_and_no_failure() -> None:
    with settled(line_store(2), line_image([0, 1])) as one:
        with pytest.raises(UnknownStream):
            one.get_objects(99, 0)
        with pytest.raises(InvalidRequest):
            one.get_objects(STREAM, 5, 2)
        assert isinstance(one.get_objects_many([Request(99, 0)])[0], UnknownStream)
        told = scraped(AccelCollector(one))
    assert told['accel_lookups_total{ending="refused"}'] == 3
    assert told['accel_lookups_total{ending="failed"}'] == 0


def test_a_registry_takes_one_collector_and_that_one_all_accelerators() -> None:
    registry = CollectorRegistry()
    with settled(line_store(2), line_image([0, 1])) as first, settled(line_store(2), line_image([0, 1])) as second:
        registry.register(AccelCollector(first))
        with pytest.raises(ValueError, match="Duplicated"):
            registry.register(AccelCollector(second))
        second.get_objects(STREAM, 0, 5)
        both = NamedCollectors({"a": AccelCollector(first), "b": AccelCollector(second)})
        told = scraped(both)
        families = [family.name for family in both.collect()]
    assert len(families) == len(set(families))
    assert told['accel_lookups_total{accelerator="a",ending="end"}'] == 0
    assert told['accel_lookups_total{accelerator="b",ending="end"}'] == 1
