"""What an accelerator counts: lookups, hints, and memory against its bounds, as `stats()` gives them.

All numbers are since the start unless their text says otherwise. Names end in their unit; there are no ids in them, so
that an export has few series.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar

from accel.errors import AccelError
from accel.image import ImageVersion, version_number
from accel.lookup.answer import Answer, Ending
from bloom import StoreStats
from loaders.counting import COUNT_BOUNDS, CacheStats, Histogram, HistogramStats
from loaders.hints import HintProblem
from loaders.object_index import LoaderStats
from loaders.store.hedged import HedgeStats
from range_index import IndexStatistics

NO_COUNTS: Final = Histogram(COUNT_BOUNDS).stats()

S = TypeVar("S", bound="LookupStats | HintStats")


@dataclass(frozen=True, slots=True)
class LookupStats:
    """How lookups went.

    Args:
        lookups: finished ones.
        limits: of these, ended as they had as many objects as were asked for.
        warm: answered without opening anything.
        partial: cut short by the caller's bound.
        holes: ended at a hole.
        failed: raised an error.
        rounds: rounds of loading.
        objects_opened: object indexes asked for.
        objects_listed: objects listed by the nodes that such lookups visited: what opening everything would open.
        skipped_by_index: of these, what they hold was known, from the index or a snapshot.
        skipped_by_filter: excluded by a filter, or by the list's sketch.
        skipped_by_bounds: nothing was known of them, and the answer did not depend on it.
        filters_passed: opened objects whose filter had said that they may hold the stream.
        filters_wrong: of these, those that lacked it: false positives as they happened.
        refreshes: newer images asked for, because an object was gone or an answer came out short.
        source_failures: times that the image source raised an error; the image at hand went on serving.
        rounds_each: rounds of each lookup.
        opened_each: objects that each lookup opened.
    """

    lookups: int = 0
    limits: int = 0
    warm: int = 0
    partial: int = 0
    holes: int = 0
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
        """Lookups that reached the end that was asked for."""
        return self.lookups - self.limits - self.holes - self.partial


@dataclass(frozen=True, slots=True)
class IndexCacheStats:
    """Sizes and counts of the index and the filters.

    Args:
        range_index: of the index.
        filters: of the filters.
        unordered_views: times that a stream was found to break the order of its node's list.
        hashed_ids_bytes: memory of the table of remembered hashes.
    """

    range_index: IndexStatistics
    filters: StoreStats
    unordered_views: int
    hashed_ids_bytes: int

    @property
    def nbytes(self) -> int:
        """Memory of all of it."""
        return self.range_index.nbytes + self.filters.nbytes + self.hashed_ids_bytes


@dataclass(frozen=True, slots=True)
class HintStats:
    """How hints fared since the start, and what of them is in memory now.

    Args:
        roots: roots of snapshots in memory, now.
        root_bytes: their memory, now.
        entry_bytes: memory of snapshot entries, now.
        requests: requests for roots, entries and packs.
        bytes_read: bytes of these.
        roots_asked: times that a root was asked for.
        entries_asked: times that a stream's entries were asked for.
        entries: entries that came of it.
        spans_read: reads of data that went straight to an object's blocks, as a snapshot said where.
        spans_wrong: of these, the bytes were not what the snapshot said; the object's index was opened instead.
        packs: filter packs loaded.
        filters: filters that came of it.
        filters_bad: filters of packs that were left out, as they were damaged.
        missing, corrupt, foreign, unreadable, mixed, stale: what was wrong with hints that could not be used; see
            docs/reference/hints.md.
        unreachable: the store failed when it was asked for a hint.
        oldest_seconds: age of the oldest hint that is used, now, by the clock; 0 if none is.
    """

    roots: int = 0
    root_bytes: int = 0
    entry_bytes: int = 0
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
    unreadable: int = 0
    mixed: int = 0
    stale: int = 0
    unreachable: int = 0
    oldest_seconds: int = 0

    @property
    def nbytes(self) -> int:
        """Memory of what is kept."""
        return self.root_bytes + self.entry_bytes


class HintKnown(StrEnum):
    """What is known of a hint of a node; the text stands in reports."""

    USED = "used"
    ABSENT = "absent"
    TOO_OLD = "too old"
    UNUSABLE = "unusable"
    NOT_READ = "not read"


@dataclass(frozen=True, slots=True)
class NodeHint:
    """What is known of one hint of a node now.

    Args:
        node_id: whose.
        kind: "snapshot" or "pack".
        state: used: lookups take what it says; absent: nobody has built one; too old: it speaks of next to none of the
            objects that are listed now; unusable; not read: no lookup has needed it, or `warm` has not been called.
        covered: listed objects that it speaks of.
        listed: objects of the node's list.
        reason: why it is not used; empty if it is.
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
    """Everything an accelerator counts, and what it holds in memory against its bounds.

    Args:
        image_version: of the image installed now.
        image_age_seconds: since it was installed.
        image_unconfirmed_seconds: since it was last known to be the newest: since that question to the source began,
            for a source that cannot tell since the last one that it answered at all.
        is_source_failing: whether the last question to the source of images failed.
        lookups, knowledge, loader, hints, hedging: the parts.
        memory_bytes: of all caches, and of what the source of images keeps beside its images.
        memory_bytes_max: the sum of their bounds.
        node_hints: which hints of which nodes are used, and why others are not; of nodes that were asked for any.
        caches: sizes, hits and what left for want of room, by the name of the cache.
    """

    image_version: ImageVersion
    image_age_seconds: float
    image_unconfirmed_seconds: float
    lookups: LookupStats
    knowledge: IndexCacheStats
    loader: LoaderStats
    hints: HintStats
    hedging: HedgeStats
    memory_bytes: int
    memory_bytes_max: int
    node_hints: tuple[NodeHint, ...] = ()
    caches: Mapping[str, CacheStats] = field(default_factory=dict)
    is_source_failing: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data, for JSON; the version as one number."""
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

    def stats(self, **now: int) -> S:
        """The counts, and what is given as it is now."""
        with self._lock:
            counts: dict[str, Any] = self._counts | now
            return self._kind(**counts)


class LookupCounters(Counters[LookupStats]):
    """Adds up how lookups went. Threads: any.

    What ends at the limit or the end is counted by its ending alone; all lookups are the sum of the endings, taken
    when somebody looks, so that a lookup which memory answers costs two additions.
    """

    def __init__(self) -> None:
        super().__init__(LookupStats)
        self._counts = {name: 0 for name in self._counts if not name.endswith("_each")} | {"ends": 0}
        self._rounds, self._opened = Histogram(COUNT_BOUNDS), Histogram(COUNT_BOUNDS)

    def add_loading(self, answer: Answer) -> None:
        """A lookup finished that opened something."""
        spared = answer.spared
        self.add(
            objects_listed=answer.objects_listed,
            skipped_by_index=spared.by_index,
            skipped_by_filter=spared.by_filter,
            skipped_by_bounds=spared.by_bounds,
            filters_passed=spared.filters_passed,
            filters_wrong=spared.filters_wrong,
            rounds=answer.rounds,
            objects_opened=answer.objects_opened,
        )
        with self._lock:
            self._rounds.add(answer.rounds)
            self._opened.add(answer.objects_opened)

    def stats(self, **now: int) -> LookupStats:
        """The counts until now."""
        with self._lock:
            counts: dict[str, Any] = self._counts | now
            rounds, opened = self._rounds.stats(), self._opened.stats()
        ends = counts.pop("ends")
        lookups = counts["lookups"] = ends + counts["limits"] + counts["holes"] + counts["partial"]
        without = max(0, lookups - rounds.values)
        return LookupStats(**counts, rounds_each=rounds.with_zeros(without), opened_each=opened.with_zeros(without))


REPORT_SECONDS = 60.0
"""So often at most the log tells of what may happen at every lookup."""


class ReportLimit:
    """Says when the log is to tell of something that may happen at every lookup: at once, then once a minute.

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
        """It happened: how often since the log said so last; None if it said so less than a minute ago."""
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
    """Lookups of one call finished."""
    others = [answer for answer in answers if answer.rounds or answer.ending not in _USUAL_ENDINGS]
    limits = sum(answer.ending is _LIMIT for answer in answers if not answer.rounds)
    warm = len(answers) - len(others)
    counters.add(limits=limits, ends=warm - limits, warm=warm)
    for answer in others:
        count_answer(counters, answer)


def count_answer(counters: LookupCounters, answer: Answer) -> None:
    """A lookup finished."""
    ending = answer.ending
    if not answer.rounds and ending in _USUAL_ENDINGS:
        counters.add_each("limits" if ending is _LIMIT else "ends", "warm")
        return
    if answer.rounds:
        counters.add(**{_NAMES[ending]: 1})
        counters.add_loading(answer)
    else:
        counters.add_each(_NAMES[ending], "warm")


def count_problem(counters: Counters[HintStats], problem: HintProblem | AccelError) -> None:
    """A hint could not be used."""
    counters.add(**{trouble_of(problem): 1})


def trouble_of(problem: HintProblem | AccelError) -> str:
    """What counters call a problem."""
    return str(problem.kind) if isinstance(problem, HintProblem) else "unreachable"
