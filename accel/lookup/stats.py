"""The statistics of an accelerator, returned by `stats()`: lookups, hints, and memory with its limits.

All numbers are since the start unless described otherwise. Names end in their unit; they contain no ids, so that an
export has few series.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar

from accel.errors import AccelError, InvalidRequest, OffsetsGivenUp, UnknownStream
from accel.image import ImageVersion, version_number
from accel.lookup.answer import Answer, Ending
from loaders.counting import COUNT_BOUNDS, CacheStats, Histogram, HistogramStats
from loaders.hints import HintProblem
from loaders.object_index import LoaderStats
from loaders.store.bill import Bill
from loaders.store.hedged import HedgeStats

NO_COUNTS: Final = Histogram(COUNT_BOUNDS).stats()

S = TypeVar("S", bound="LookupStats | HintStats")


@dataclass(frozen=True, slots=True)
class LookupStats:
    """Counts of lookups.

    Args:
        lookups: finished lookups.
        limits: the number of these that reached the requested number of objects.
        warm: lookups answered without opening an object.
        partial: lookups ended early by the caller's limit of rounds or time.
        holes: lookups that ended at a hole.
        refused: lookups that raised an error about the request: an unknown stream, offsets that are gone, or no sense.
        failed: lookups that raised another error.
        rounds: rounds of loading.
        objects_opened: requested object indexes.
        objects_listed: objects in the lists that lookups with rounds visited: opening everything would open these.
        skipped_by_index: listed objects not opened as their ranges were known, from the index or a snapshot.
        skipped_by_filter: listed objects not opened as a filter, or the list's sketch, excluded them.
        skipped_by_bounds: unknown listed objects not opened as the answer did not depend on them.
        filters_passed: opened objects that their filter had not excluded.
        filters_wrong: the number of these that lacked the stream: false positives.
        refreshes: requests for a newer image, because an object was missing or an answer was short.
        source_failures: errors of the image source; lookups continued with the current image.
        rounds_each: rounds of each lookup.
        opened_each: opened objects of each lookup.
    """

    lookups: int = 0
    limits: int = 0
    warm: int = 0
    partial: int = 0
    holes: int = 0
    refused: int = 0
    failed: int = 0
    rounds: int = 0
    objects_opened: int = 0
    objects_listed: int = 0
    skipped_by_index: int = 0
    skipped_by_filter: int = 0
    skipped_by_bounds: int = 0
    filters_passed: int = 0
    filters_wrong: int = 0
    refreshes: int = 0
    source_failures: int = 0
    rounds_each: HistogramStats = NO_COUNTS
    opened_each: HistogramStats = NO_COUNTS

    @property
    def ends(self) -> int:
        """Lookups that reached the requested end."""
        return self.lookups - self.limits - self.holes - self.partial


@dataclass(frozen=True, slots=True)
class IndexCacheStats:
    """Counts and sizes of the index and the filters, besides those of their caches.

    Args:
        unordered_views: the number of times that a stream's ranges were found out of order in its node's list.
        log_bytes: memory of the nodes and their logs of changes.
        hashed_ids_bytes: memory of the cache of hashes.
    """

    unordered_views: int
    log_bytes: int
    hashed_ids_bytes: int


@dataclass(frozen=True, slots=True)
class HintStats:
    """Counts of hints since the start.

    Args:
        requests: requests for roots, entries and packs.
        bytes_read: bytes of these requests.
        roots_asked: reads of a root.
        entries_asked: reads of a stream's entries.
        entries: entries read.
        spans_read: reads of an object's blocks at the place in a snapshot, without opening the object's index.
        spans_wrong: the number of these whose bytes did not match the snapshot; the object's index was opened then.
        packs: filter packs loaded.
        filters: filters loaded from packs.
        filters_bad: damaged filters of packs, which were ignored.
        missing, corrupt, foreign, mixed, stale: hints that could not be used, by the kind of problem; see
            docs/reference/hints.md.
        unreachable: reads of a hint that failed with an error of the store.
        oldest_seconds: age of the oldest hint in use, now, by the clock; None if there is none.
    """

    requests: int = 0
    bytes_read: int = 0
    roots_asked: int = 0
    entries_asked: int = 0
    entries: int = 0
    spans_read: int = 0
    spans_wrong: int = 0
    packs: int = 0
    filters: int = 0
    filters_bad: int = 0
    missing: int = 0
    corrupt: int = 0
    foreign: int = 0
    mixed: int = 0
    stale: int = 0
    unreachable: int = 0
    oldest_seconds: int | None = None


class HintKnown(StrEnum):
    """The state of a hint of a node; reports contain the text."""

    USED = "used"
    ABSENT = "absent"
    TOO_OLD = "too old"
    UNUSABLE = "unusable"
    NOT_READ = "not read"


@dataclass(frozen=True, slots=True)
class NodeHint:
    """The current state of one hint of a node.

    Args:
        node_id: the node.
        kind: "snapshot" or "pack".
        state: used: lookups use its contents; absent: no hint was built; too old: it covers almost none of the objects
            that are listed now; unusable; not read: no lookup has needed it, or `warm` has not been called.
        covered: the number of listed objects that it covers.
        listed: the number of objects in the node's list.
        reason: why it is not used; empty if it is used.
    """

    node_id: int
    kind: str
    state: HintKnown
    covered: int
    listed: int
    reason: str = ""

    def __str__(self) -> str:
        told = f"{self.kind} {self.state}"
        if self.state is HintKnown.USED:
            return f"{told}, covers {self.covered} of {self.listed} listed"
        return f"{told}: {self.reason}" if self.reason else told


@dataclass(frozen=True, slots=True)
class AcceleratorStats:
    """All counts of an accelerator, and its memory with its limits.

    Args:
        image_version: of the image installed now.
        image_age_seconds: since it was installed.
        image_unconfirmed_seconds: since the image was last known to be the newest: since the start of that query to
            the source, or of the last successful query for a source that does not report this.
        is_source_failing: whether the last query to the image source failed.
        lookups, knowledge, loader, hints, hedging: the statistics of the parts.
        memory_bytes: of all caches, and of the image source besides its images.
        memory_bytes_max: the sum of their limits.
        node_hints: the hints of each node that are used, and why others are not; of nodes with a hint that was read.
        bill: what the requests to the store cost, by cause: those of all users of its `CountingStore`, or if it is
            none, those of the accelerator alone.
        caches: sizes, hits and evictions, by the name of the cache.
        slow_lookups: slow lookups by reason (`accel.lookup.slow_lookups`); {} if they are not recorded.
        hot_shares: the shares of the lookups of the last 10 minutes that the stream ("streams") and the node ("nodes")
            with most lookups have; `hot()` names them.
    """

    image_version: ImageVersion
    image_age_seconds: float
    image_unconfirmed_seconds: float
    lookups: LookupStats
    knowledge: IndexCacheStats
    loader: LoaderStats
    hints: HintStats
    hedging: HedgeStats
    bill: Bill
    memory_bytes: int
    memory_bytes_max: int
    node_hints: tuple[NodeHint, ...] = ()
    caches: Mapping[str, CacheStats] = field(default_factory=dict)
    is_source_failing: bool = False
    slow_lookups: Mapping[str, int] = field(default_factory=dict)
    hot_shares: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The statistics as plain data, for JSON; the version as one number."""
        return asdict(self) | {"image_version": version_number(self.image_version)}


class Counters(Generic[S]):
    """Adds up one kind of stats. Threads: any."""

    def __init__(self, kind: type[S]) -> None:
        self._kind = kind
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(kind.__dataclass_fields__, 0)

    def add(self, **counts: int) -> None:
        """Add to the counts of these names."""
        with self._lock:
            for name, count in counts.items():
                self._counts[name] += count

    def add_each(self, first: str, second: str) -> None:
        """Add one to each of two counts."""
        with self._lock:
            self._counts[first] += 1
            self._counts[second] += 1

    def stats(self, **now: int | None) -> S:
        """The counts, and the given current values."""
        with self._lock:
            counts: dict[str, Any] = self._counts | now
            return self._kind(**counts)


class LookupCounters(Counters[LookupStats]):
    """Counts lookups by their results. Threads: any.

    A lookup that ends at the limit or the end is counted by its ending alone; `stats` adds up the endings to the number
    of lookups, so that a lookup answered by memory costs two additions.
    """

    def __init__(self) -> None:
        super().__init__(LookupStats)
        self._counts = {name: 0 for name in self._counts if not name.endswith("_each")} | {"ends": 0}
        self._rounds, self._opened = Histogram(COUNT_BOUNDS), Histogram(COUNT_BOUNDS)

    def add_loading(self, answer: Answer) -> None:
        """Count a finished lookup that opened objects."""
        unopened = answer.unopened
        self.add(
            objects_listed=answer.objects_listed,
            skipped_by_index=unopened.by_index,
            skipped_by_filter=unopened.by_filter,
            skipped_by_bounds=unopened.by_bounds,
            filters_passed=unopened.filters_passed,
            filters_wrong=unopened.filters_wrong,
            rounds=answer.rounds,
            objects_opened=answer.objects_opened,
        )
        with self._lock:
            self._rounds.add(answer.rounds)
            self._opened.add(answer.objects_opened)

    def stats(self, **now: int | None) -> LookupStats:
        """The counts until now."""
        with self._lock:
            counts: dict[str, Any] = self._counts | now
            rounds, opened = self._rounds.stats(), self._opened.stats()
        ends = counts.pop("ends")
        lookups = counts["lookups"] = ends + counts["limits"] + counts["holes"] + counts["partial"]
        without = max(0, lookups - rounds.values)
        return LookupStats(**counts, rounds_each=rounds.with_zeros(without), opened_each=opened.with_zeros(without))


REPORT_SECONDS = 60.0
"""Minimum time between two log messages about an event that may occur at every lookup."""


class ReportLimit:
    """Limits log messages about an event that may occur at every lookup: at once, then once a minute.

    Args:
        timer: seconds from any start.

    Threads: any.
    """

    def __init__(self, timer: Callable[[], float]) -> None:
        self._timer = timer
        self._lock = threading.Lock()
        self._told_seconds: float | None = None
        self._untold = 0

    def times(self) -> int | None:
        """Count an event; returns the number since the last message, or None if that was less than a minute ago."""
        now = self._timer()
        with self._lock:
            self._untold += 1
            if self._told_seconds is not None and now - self._told_seconds < REPORT_SECONDS:
                return None
            times, self._untold, self._told_seconds = self._untold, 0, now
            return times


_LIMIT: Final = Ending.LIMIT
_USUAL_ENDINGS: Final = (Ending.LIMIT, Ending.END)
_NAMES: Final = {Ending.LIMIT: "limits", Ending.END: "ends", Ending.HOLE: "holes", Ending.PARTIAL: "partial"}


def count_answers(counters: LookupCounters, answers: Sequence[Answer]) -> None:
    """Count the finished lookups of one call."""
    others = [answer for answer in answers if answer.rounds or answer.ending not in _USUAL_ENDINGS]
    limits = sum(answer.ending is _LIMIT for answer in answers if not answer.rounds)
    warm = len(answers) - len(others)
    counters.add(limits=limits, ends=warm - limits, warm=warm)
    for answer in others:
        count_answer(counters, answer)


def count_answer(counters: LookupCounters, answer: Answer) -> None:
    """Count a finished lookup."""
    ending = answer.ending
    if not answer.rounds and ending in _USUAL_ENDINGS:
        counters.add_each("limits" if ending is _LIMIT else "ends", "warm")
        return
    if answer.rounds:
        counters.add(**{_NAMES[ending]: 1})
        counters.add_loading(answer)
    else:
        counters.add_each(_NAMES[ending], "warm")


def count_error(counters: LookupCounters, error: AccelError) -> None:
    """Count a lookup that ended with this error."""
    is_refusal = isinstance(error, InvalidRequest | UnknownStream | OffsetsGivenUp)
    counters.add(**{"refused" if is_refusal else "failed": 1})


def count_problem(counters: Counters[HintStats], problem: HintProblem | AccelError) -> None:
    """Count a hint that could not be used."""
    counters.add(**{trouble_of(problem): 1})


def trouble_of(problem: HintProblem | AccelError) -> str:
    """The name of a problem's counter."""
    return str(problem.kind) if isinstance(problem, HintProblem) else "unreachable"
