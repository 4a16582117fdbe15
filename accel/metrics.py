"""Metrics of one process for Prometheus: the `stats()` of an accelerator, and of its store and caches.

    from prometheus_client import REGISTRY, start_http_server
    from accel.metrics import AccelCollector

    store = CountingStore(open_store("s3://bucket/prefix"), SYSTEM.timer)     # counts requests, and times them
    accelerator = ReadAccelerator(catalog.images(), store)
    REGISTRY.register(AccelCollector(accelerator, store))
    start_http_server(9464)

Nothing is counted twice: a scrape reads existing counters, so that it costs lookups nothing. Counters end in their unit
and `_total`; labels have a limited set of values (endings, reasons, names of caches, operations, outcomes), never an
id, a key or a name that a user chose. docs/operations/operations.md lists them, with alerts.

The extra `metrics` installs prometheus-client. Nothing is counted a second time, since a lookup
that memory answers takes as long as four counters of a metrics library.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Protocol

from accel.catalog.job_runs import JobStats
from accel.errors import MissingExtra
from accel.lookup.stats import AcceleratorStats, HintKnown
from loaders.counting import CacheStats, HistogramStats
from loaders.store import CountingStore, StoreCounts

try:
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        Metric,
    )
    from prometheus_client.registry import Collector
except ImportError as error:
    raise MissingExtra("metrics need prometheus-client: pip install 'accel-streams[metrics]'") from error


class Accelerator(Protocol):
    """The part of an accelerator that metrics need; both kinds have it."""

    def stats(self) -> AcceleratorStats:
        """All its counters."""
        ...


class AutoScaling(Protocol):
    """The work of one process for scaling policies: `accel.streams.shared.auto_scale.AutoScaleStats`."""

    @property
    def looks(self) -> int: ...  # noqa: D102 - as there
    @property
    def scales(self) -> int: ...  # noqa: D102 - as there
    @property
    def splits(self) -> int: ...  # noqa: D102 - as there
    @property
    def merges(self) -> int: ...  # noqa: D102 - as there
    @property
    def waits(self) -> int: ...  # noqa: D102 - as there
    @property
    def refusals(self) -> int: ...  # noqa: D102 - as there
    @property
    def failures(self) -> int: ...  # noqa: D102 - as there
    @property
    def last_scale_ms(self) -> int | None: ...  # noqa: D102 - as there


class GroupReading(Protocol):
    """The work of one process's readers of groups: `accel.streams.group_readers.GroupReaderStats`."""

    @property
    def readers(self) -> int: ...  # noqa: D102 - as there
    @property
    def replacing(self) -> int: ...  # noqa: D102 - as there
    @property
    def replaced(self) -> int: ...  # noqa: D102 - as there
    @property
    def lag_seconds(self) -> float | None: ...  # noqa: D102 - as there


HINT_TROUBLES: Final = ("missing", "corrupt", "foreign", "mixed", "stale", "unreachable")
HINT_KINDS: Final = ("snapshot", "pack")


class AccelCollector(Collector):
    """Passes existing counters to Prometheus. Threads: any; a scrape holds no lock longer than `stats()` does.

    Args:
        accelerator: the source of metrics of lookups, caches, hints and images; None = none.
        store: the store that all requests pass through; with a timer, metrics include latency. None = none.
        caches: returns further caches by their name, as `Connection.cache_stats` does; None = none.
        scaling: returns the work for scaling policies, as `Connection.scaling_stats` does, or None while no segments
            are held; None = no such metrics.
        clock: returns how far the host's clock is ahead of the store's, as `Connection.clock_skew_seconds` does; None =
            no such metric.
        groups: returns the work of readers of groups, as `Connection.group_stats` does; None = no such metrics.
        jobs: returns the runs of jobs, or None while they are not known; None = no such metrics.

    Complexity: of a scrape O(caches + operations x outcomes + objects of nodes with hints).
    """

    def __init__(
        self,
        accelerator: Accelerator | None = None,
        store: CountingStore | None = None,
        caches: Callable[[], Mapping[str, CacheStats]] | None = None,
        scaling: Callable[[], AutoScaling | None] | None = None,
        clock: Callable[[], float] | None = None,
        groups: Callable[[], GroupReading] | None = None,
        *,
        jobs: Callable[[], JobStats | None] | None = None,
    ) -> None:
        self._accelerator = accelerator
        self._store = store
        self._caches = caches
        self._scaling = scaling
        self._clock = clock
        self._groups = groups
        self._jobs = jobs

    def describe(self) -> Iterable[Metric]:
        """One name, without a query: a registry refuses a second collector, whose families it would report twice."""
        return (Metric("accel", "Further accelerators are in `NamedCollectors`.", "unknown"),)

    def collect(self) -> Iterator[Metric]:
        """All families, each read at one moment."""
        caches = {} if self._caches is None else dict(self._caches())
        if self._accelerator is not None:
            stats = self._accelerator.stats()
            caches |= stats.caches
            yield from _lookups(stats)
            yield from _loads(stats)
            yield from _hints(stats)
            yield from _images(stats)
        yield from _cache_families(caches)
        if self._store is not None:
            yield from _requests(self._store)
        scaled = None if self._scaling is None else self._scaling()
        if scaled is not None:
            yield from _scales(scaled)
        if self._clock is not None:
            text = "How far this host's clock is ahead of the store's; below 0 = behind; 0 = within a second."
            yield _gauge("accel_clock_skew_seconds", text, self._clock())
        if self._groups is not None:
            yield from _groups(self._groups())
        jobs = None if self._jobs is None else self._jobs()
        if jobs is not None:
            yield from _job_families(jobs)


class NamedCollectors(Collector):
    """The accelerators or connections of one process, each with the label `accelerator`. Threads: any.

    Args:
        collectors: by the value of the label.
    """

    def __init__(self, collectors: Mapping[str, AccelCollector]) -> None:
        self._collectors = dict(collectors)

    def describe(self) -> Iterable[Metric]:
        """As `AccelCollector.describe`."""
        return (Metric("accel", "All accelerators of a process are in one collector.", "unknown"),)

    def collect(self) -> Iterable[Metric]:
        """Each family once, with the series of all collectors."""
        merged: dict[str, Metric] = {}
        for name, collector in self._collectors.items():
            for family in collector.collect():
                samples = [each._replace(labels={"accelerator": name} | each.labels) for each in family.samples]
                if (kept := merged.setdefault(family.name, family)) is family:
                    kept.samples = []
                kept.samples += samples
        return merged.values()


def _lookups(stats: AcceleratorStats) -> Iterator[Metric]:
    lookups = stats.lookups
    endings = {
        "limit": lookups.limits,
        "end": lookups.ends,
        "hole": lookups.holes,
        "partial": lookups.partial,
        "refused": lookups.refused,
        "failed": lookups.failed,
    }
    yield _counters("accel_lookups", "Lookups by how they ended.", "ending", endings)
    if stats.slow_lookups:
        text = "Lookups that took the sidecar's --slow-log or longer, by reason; GET /v1/slow has the last ones."
        yield _counters("accel_slow_lookups", text, "reason", stats.slow_lookups)
    text = "Share of the lookups of 10 minutes that the first {} of GET /v1/hot has."
    for what, share in stats.hot_shares.items():
        yield _gauge(f"accel_hot_{what[:-1]}_lookups_ratio", text.format(what[:-1]), share)
    yield _counter("accel_lookups_warm", "Lookups answered from memory: no object was opened.", lookups.warm)
    yield _histogram("accel_lookup_rounds", "Rounds of loading of each lookup.", lookups.rounds_each)
    yield _histogram("accel_lookup_opened_objects", "Objects that each lookup opened.", lookups.opened_each)
    skipped = {
        "index": lookups.skipped_by_index,
        "filter": lookups.skipped_by_filter,
        "bounds": lookups.skipped_by_bounds,
    }
    text = "Listed objects that lookups did not open, by reason."
    yield _counters("accel_lookup_skipped_objects", text, "by", skipped)
    text = "Objects of the lists that loading lookups visited."
    yield _counter("accel_lookup_listed_objects", text, lookups.objects_listed)
    text = "Objects opened because their filter did not exclude the stream."
    yield _counter("accel_filter_passed_objects", text, lookups.filters_passed)
    text = "Of these, objects that lacked the stream: false positives."
    yield _counter("accel_filter_false_positive_objects", text, lookups.filters_wrong)


def _loads(stats: AcceleratorStats) -> Iterator[Metric]:
    loader, hedging = stats.loader, stats.hedging
    outcomes = {"opened": loader.opened, "failed": loader.failed, "joined": loader.joined, "cached": loader.cached}
    yield _counters("accel_loads", "Requests for object indexes, by outcome.", "outcome", outcomes)
    yield _histogram("accel_load_duration_seconds", "Time that opening an object took.", loader.open_seconds)
    yield _counter("accel_load_bytes", "Bytes of object indexes that were read.", loader.bytes_read)
    yield _counter("accel_load_second_requests", "Openings that needed a second request.", loader.second_requests)
    yield _counter("accel_hedged_requests", "Reads that were sent a second time.", hedging.hedged)
    yield _counter("accel_hedged_won_requests", "Of these, the second answer was first.", hedging.won)
    yield _gauge("accel_hedged_abandoned_requests", "Slower requests that are still under way.", hedging.abandoned)


def _hints(stats: AcceleratorStats) -> Iterator[Metric]:
    hints = stats.hints
    yield _counter("accel_hint_requests", "Requests for roots, entries and packs.", hints.requests)
    yield _counter("accel_hint_bytes", "Bytes of these.", hints.bytes_read)
    troubles = {name: int(getattr(hints, name)) for name in HINT_TROUBLES}
    yield _counters("accel_hint_problems", "Hints that could not be used, by reason.", "reason", troubles)
    text = "Age of the oldest hint in use; absent if none is."
    yield GaugeMetricFamily("accel_hint_age_seconds", text, value=hints.oldest_seconds)
    used = Counter(hint.kind for hint in stats.node_hints if hint.state is HintKnown.USED)
    text = "Nodes whose hint is in use; 0 = lookups use none."
    yield _gauges("accel_hint_nodes", text, "kind", {kind: used[kind] for kind in HINT_KINDS})
    covered = dict.fromkeys(HINT_KINDS, 0)
    listed = dict.fromkeys(HINT_KINDS, 0)
    for hint in stats.node_hints:
        covered[hint.kind] += hint.covered
        listed[hint.kind] += hint.listed
    yield _gauges("accel_hint_covered_objects", "Listed objects that hints cover.", "kind", covered)
    text = "Objects of the lists whose hints were used."
    yield _gauges("accel_hint_listed_objects", text, "kind", listed)


def _images(stats: AcceleratorStats) -> Iterator[Metric]:
    lookups = stats.lookups
    yield _gauge("accel_image_age_seconds", "Since the image was installed.", stats.image_age_seconds)
    text = "Since the image was last known to be the newest."
    yield _gauge("accel_image_unconfirmed_seconds", text, stats.image_unconfirmed_seconds)
    text = "1 if the last request to the source of images failed."
    yield _gauge("accel_image_source_failing", text, int(stats.is_source_failing))
    yield _counter("accel_image_refreshes", "Newer images requested by lookups.", lookups.refreshes)
    text = "Failed requests to the source of images."
    yield _counter("accel_image_refresh_failures", text, lookups.source_failures)
    yield _gauge("accel_memory_bytes", "Memory of all caches.", stats.memory_bytes)
    yield _gauge("accel_memory_max_bytes", "The sum of their bounds.", stats.memory_bytes_max)


def _cache_families(caches: Mapping[str, CacheStats]) -> Iterator[Metric]:
    def of(read: Callable[[CacheStats], float]) -> dict[str, float]:
        return {name: read(cache) for name, cache in caches.items()}

    yield _gauges("accel_cache_entries", "Entries in a cache.", "cache", of(lambda cache: cache.entries))
    yield _gauges("accel_cache_bytes", "What they take.", "cache", of(lambda cache: cache.size_bytes))
    yield _gauges("accel_cache_max_bytes", "Their bound.", "cache", of(lambda cache: cache.size_bytes_max))
    yield _counters("accel_cache_hits", "Reads that a cache answered.", "cache", of(lambda cache: cache.hits))
    yield _counters("accel_cache_misses", "Reads that it did not answer.", "cache", of(lambda cache: cache.misses))
    text = "Entries removed because the cache was full."
    yield _counters("accel_cache_evicted_entries", text, "cache", of(lambda cache: cache.evicted))
    yield _counters("accel_cache_evicted_bytes", "What these took.", "cache", of(lambda cache: cache.evicted_bytes))


def _requests(store: CountingStore) -> Iterator[Metric]:
    snapshot = store.snapshot()
    counts = snapshot.by_operation
    sent = {name: count.sent_bytes for name, count in counts.items()}
    received = {name: count.received_bytes for name, count in counts.items()}
    yield _counters("accel_store_sent_bytes", "Bytes of bodies sent to the store.", "operation", sent)
    yield _counters("accel_store_received_bytes", "Bytes of bodies received from the store.", "operation", received)
    text = "Requests that the client sent again within a request."
    repeated = {name: count.repeated for name, count in counts.items()}
    yield _counters("accel_store_repeated_requests", text, "operation", repeated)
    text = "Time from the first answer to the last one of requests that were sent again."
    lost = {name: count.lost_seconds for name, count in counts.items()}
    yield _counters("accel_store_repeated_seconds", text, "operation", lost)
    text = "Answers by which the store asked for fewer requests (503 SlowDown, 429)."
    throttled = {name: count.throttled for name, count in counts.items()}
    yield _counters("accel_store_throttled_answers", text, "operation", throttled)
    yield from _causes(snapshot)
    text = "1 if the store was unavailable at the last request that ended, or did not accept the credentials."
    yield _gauge("accel_store_failing", text, int(store.is_failing))
    text = "Time since the start of the oldest request under way; 0 if there is none."
    yield _gauge("accel_store_oldest_request_seconds", text, store.oldest_request_seconds())
    labels = ("operation", "outcome")
    requests = CounterMetricFamily("accel_store_requests", "Requests to the store.", labels=labels)
    seconds = HistogramMetricFamily("accel_store_request_duration_seconds", "Duration of requests.", labels=labels)
    for kind, histogram in store.request_seconds().items():
        requests.add_metric(kind, histogram.values)
        seconds.add_metric(kind, _buckets(histogram), histogram.total)
    yield requests
    yield seconds


def _causes(counts: StoreCounts) -> Iterator[Metric]:
    text = "Requests to the store by what they were for, with repetitions."
    requests = CounterMetricFamily("accel_cause_requests", text, labels=("cause", "operation"))
    for kind, count in counts.counts.items():
        requests.add_metric(kind, count.requests + count.repeated)
    yield requests
    moved = {cause: count.sent_bytes + count.received_bytes for cause, count in counts.by_cause.items()}
    yield _counters("accel_cause_bytes", "Bytes of bodies sent and received, by what they were for.", "cause", moved)


def _scales(stats: AutoScaling) -> Iterator[Metric]:
    yield _counter("accel_auto_scale_looks", "Checks of a stream for its policy.", stats.looks)
    outcomes = {"scaled": stats.scales, "waited": stats.waits, "refused": stats.refusals, "failed": stats.failures}
    text = "Scales by policies, and failed checks, by outcome."
    yield _counters("accel_auto_scale_outcomes", text, "outcome", outcomes)
    text = "Segments that were split, and pairs that were merged."
    yield _counters("accel_auto_scaled_segments", text, "kind", {"split": stats.splits, "merge": stats.merges})
    text = "When the last of these scales was carried out, since 1970; 0 if none was."
    yield _gauge("accel_auto_scale_last_timestamp_seconds", text, (stats.last_scale_ms or 0) / 1000)


def _groups(stats: GroupReading) -> Iterator[Metric]:
    yield _gauge("accel_group_readers", "Readers that reported to their groups within their leases.", stats.readers)
    text = "Readers that joined in place of another one of their name, and readers in whose place another one joined."
    replacements = {"replacing": stats.replacing, "replaced": stats.replaced}
    yield _counters("accel_group_reader_replacements", text, "role", replacements)
    if stats.lag_seconds is not None:
        text = "The largest lag that they reported; absent if none reported within its lease."
        yield _gauge("accel_group_reader_lag_seconds", text, stats.lag_seconds)


def _job_families(jobs: JobStats) -> Iterator[Metric]:
    """A job without any success, and objects without an image, have no sample: 0 would say that all is well."""
    if jobs.success_age_seconds:
        text = "Since a job last did all its work; absent if it never did."
        yield _gauges("accel_job_success_age_seconds", text, "kind", jobs.success_age_seconds)
    if jobs.waiting_objects is not None:
        text = "Objects of nodes beyond the number above which compaction reduces a node."
        yield _gauge("accel_compaction_waiting_objects", text, jobs.waiting_objects)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _counters(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(name, text, labels=(label,))
    for key, value in values.items():
        family.add_metric((key,), value)
    return family


def _gauges(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=(label,))
    for key, value in values.items():
        family.add_metric((key,), value)
    return family


def _histogram(name: str, text: str, histogram: HistogramStats) -> Metric:
    return HistogramMetricFamily(name, text, buckets=_buckets(histogram), sum_value=histogram.total)


def _buckets(histogram: HistogramStats) -> list[tuple[str, float]]:
    return [("+Inf" if bound == float("inf") else str(bound), count) for bound, count in histogram.cumulated()]
