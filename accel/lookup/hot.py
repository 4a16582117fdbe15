"""The streams and nodes with most lookups, GETs and bytes over the last 10 minutes, in bounded memory.

    report = accelerator.hot()
    report.streams.gets          # ((420000, 1200), (7, 31), ...): the stream, and at least how many GETs

The time is cut into slots of 30 seconds, of which the last 20 count. Each slot has one summary for each ranking: the
frequent-items summary of Misra and Gries, with weights. It keeps at most `KEPT_MAX` keys exactly; when there are twice
as many, the smallest are dropped, and the count of the largest dropped one is taken from all others. So a reported
count is never too high, and too low by less than 1/`KEPT_MAX` of what the slot counted in all: a stream with half a per
cent of all lookups is always in the report.

A lookup that memory answers takes some microseconds, so only the first `EXACT` lookups of a slot are counted one by
one; of later ones about one in 32 is counted, with that weight. GETs are all counted, as each takes milliseconds.

The reports are for people, and for routes that they ask. Ids are no labels of metrics: they have no bound.

Source: Misra and Gries, "Finding repeated elements" (1982); Agarwal et al., "Mergeable summaries" (2012). A library
(datasketches) would be a compiled dependency for these lines.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from threading import Lock
from typing import Any, Final

from accel.lookup.answer import Answer

SLOTS: Final = 20
SLOT_SECONDS: Final = 30.0
WINDOW_SECONDS: Final = SLOTS * SLOT_SECONDS

KEPT_MAX: Final = 256
"""Keys of a summary after it was reduced; it has less than twice as many."""

TOP: Final = 20
"""Keys of a ranking in a report."""

EXACT: Final = 64
"""Lookups of a slot that are counted one by one."""

STEPS: Final = (29, 31, 37)
"""Of later lookups, the last one of so many is counted, in turn: callers often alternate between streams."""

Ranking = tuple[tuple[int, int], ...]
"""(id, count) pairs, the highest count first."""


@dataclass(frozen=True, slots=True)
class Hot:
    """At most 20 streams, or nodes, in each ranking.

    Args:
        lookups: by lookups; of nodes, by those whose first object the node lists.
        gets: by GETs that lookups and reads sent for them.
        bytes: by the bytes of these GETs.
    """

    lookups: Ranking = ()
    gets: Ranking = ()
    bytes: Ranking = ()


@dataclass(frozen=True, slots=True)
class HotReport:
    """The hot streams and nodes.

    Args:
        seconds: the time that the report covers; at most 600.
        totals: all lookups, GETs and bytes in that time.
        streams, nodes: the rankings.
    """

    seconds: float
    totals: dict[str, int]
    streams: Hot
    nodes: Hot

    def share(self, kind: str) -> float:
        """The share of all lookups that the first stream ("streams") or node ("nodes") has; 0 if there is none."""
        ranking: Hot = getattr(self, kind)
        return ranking.lookups[0][1] / self.totals["lookups"] if ranking.lookups else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data: each ranking as a list of ids and counts."""
        told = asdict(self)
        for what in WHAT:
            for kind, ranking in told[what].items():
                told[what][kind] = [{"id": each, "count": count} for each, count in ranking]
        return told


WHAT: Final = ("streams", "nodes")
_KINDS: Final = ("lookups", "gets", "bytes")


@dataclass(slots=True)
class _Slot:
    """The counts of one slot: (streams or nodes, kind) -> summary."""

    began_seconds: float
    counts: defaultdict[tuple[str, str], Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    totals: Counter[str] = field(default_factory=Counter)

    def add(self, kind: str, stream_id: int, node_id: int | None, number: int) -> None:
        self.totals[kind] += number
        _add(self.counts["streams", kind], stream_id, number)
        if node_id is not None:
            _add(self.counts["nodes", kind], node_id, number)


def _add(counts: Counter[int], key: int, number: int) -> None:
    counts[key] += number
    if len(counts) >= 2 * KEPT_MAX:
        ranked = counts.most_common(KEPT_MAX + 1)
        least = ranked.pop()[1]
        counts.clear()
        counts.update({each: count - least for each, count in ranked if count > least})


class HotStreams:
    """Counts lookups and requests by stream and node. Threads: any; no lock is taken for most lookups.

    Args:
        timer: seconds from any start.

    Memory: below 4 MB, whatever is counted; 100 KB for a few hundred streams.

    Attributes:
        left: the lookups until `count` is due; who finishes a lookup takes one off. (Threads may take the same one.)
    """

    __slots__ = ("_lock", "_slots", "_step", "_timer", "_turns", "left")

    def __init__(self, timer: Callable[[], float]) -> None:
        self._timer = timer
        self._lock = Lock()
        self._slots: deque[_Slot] = deque([_Slot(timer())], SLOTS)
        self._step = self.left = 1
        self._turns = 0

    def count(self, answer: Answer) -> None:
        """Count a finished lookup, with those since the last one that was counted."""
        with self._lock:
            weight, slot = self._step, self._slot()
            self._turns += 1
            self._step = self.left = 1 if self._turns < EXACT else STEPS[self._turns % len(STEPS)]
            node_id = answer.objects[0].node_id if answer.objects else None
            slot.add("lookups", answer.request.stream_id, node_id, weight)

    def count_all(self, answers: Iterable[Answer]) -> None:
        """Count the finished lookups of one call."""
        for answer in answers:
            self.left -= 1
            if self.left < 1:
                self.count(answer)

    def spend(self, stream_id: int, node_id: int | None, gets: int, size_bytes: int) -> None:
        """Count requests for a stream, to objects of this node; None for objects of the stream alone."""
        if not (gets or size_bytes):
            return
        with self._lock:
            slot = self._slot()
            slot.add("gets", stream_id, node_id, gets)
            slot.add("bytes", stream_id, node_id, size_bytes)

    def report(self) -> HotReport:
        """The report of the last 10 minutes. O(keys of all summaries)."""
        with self._lock:
            now_seconds = self._timer()
            self._slot()
            slots = [slot for slot in self._slots if slot.began_seconds > now_seconds - WINDOW_SECONDS]
            ranked = {what: Hot(*(_ranking(slots, what, kind) for kind in _KINDS)) for what in WHAT}
            totals = {kind: sum(slot.totals[kind] for slot in slots) for kind in _KINDS}
        return HotReport(now_seconds - slots[0].began_seconds, totals, **ranked)

    def _slot(self) -> _Slot:
        """The slot of now. The lock is held."""
        now_seconds = self._timer()
        if now_seconds - self._slots[-1].began_seconds >= SLOT_SECONDS:
            self._slots.append(_Slot(now_seconds))
            self._turns = 0
        return self._slots[-1]


def _ranking(slots: list[_Slot], what: str, kind: str) -> Ranking:
    summed: Counter[int] = Counter()
    for slot in slots:
        summed.update(slot.counts[what, kind])
    return tuple(summed.most_common(TOP))
