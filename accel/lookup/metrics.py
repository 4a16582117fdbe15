"""Counters of an accelerator, and the snapshot that `stats()` gives.

All numbers are since the start unless their name says otherwise. Names end in their unit; there are no ids in them, so
that whoever exports them has few series.
"""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass
from typing import Any

from accel.lookup.answer import Answer
from accel.lookup.hint_stats import HintStats
from accel.lookup.knowledge import KnowledgeStats
from accel.version import ImageVersion, version_number
from loaders.object_index import LoaderStats


@dataclass(frozen=True, slots=True)
class LookupStats:
    """How lookups went.

    Args:
        lookups: finished ones.
        warm: of these, answered without opening anything.
        partial: cut short by the caller's bound.
        holes: ended at a hole.
        failed: raised an error.
        rounds: rounds of loading.
        objects_opened: object indexes asked for.
        objects_listed: objects listed by the nodes that such lookups visited: what opening everything would open.
        refreshes: newer images asked for, because an object was gone or an answer came out short.
        source_failures: times that the image source raised an error; the image at hand went on serving.
    """

    lookups: int = 0
    warm: int = 0
    partial: int = 0
    holes: int = 0
    failed: int = 0
    rounds: int = 0
    objects_opened: int = 0
    objects_listed: int = 0
    refreshes: int = 0
    source_failures: int = 0


@dataclass(frozen=True, slots=True)
class AcceleratorStats:
    """Everything an accelerator counts, and what it holds in memory against its bounds.

    Args:
        image_version: of the image installed now.
        image_age_seconds: since it was installed.
        image_unconfirmed_seconds: since it was last known to be the newest: since that question to the source began,
            for a source that cannot tell since the last one that it answered at all.
        lookups, knowledge, loader, hints: the parts.
        memory_bytes: of all caches.
        memory_bytes_max: the sum of their bounds.
    """

    image_version: ImageVersion
    image_age_seconds: float
    image_unconfirmed_seconds: float
    lookups: LookupStats
    knowledge: KnowledgeStats
    loader: LoaderStats
    hints: HintStats
    memory_bytes: int
    memory_bytes_max: int

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data, for JSON; the version as one number."""
        return asdict(self) | {"image_version": version_number(self.image_version)}


class Counters:
    """Adds up how lookups went. Threads: any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(LookupStats.__dataclass_fields__, 0)

    def answered(self, answer: Answer) -> None:
        """A lookup finished."""
        ending = answer.ending.value
        with self._lock:
            counts = self._counts
            counts["lookups"] += 1
            counts["warm"] += not answer.rounds
            counts["partial"] += ending == "partial"
            counts["holes"] += ending == "hole"
            counts["rounds"] += answer.rounds
            counts["objects_opened"] += answer.objects_opened
            counts["objects_listed"] += answer.objects_listed if answer.rounds else 0

    def failed(self) -> None:
        """A lookup raised an error."""
        with self._lock:
            self._counts["failed"] += 1

    def refreshed(self) -> None:
        """A newer image was asked for."""
        with self._lock:
            self._counts["refreshes"] += 1

    def source_failed(self) -> None:
        """The image source raised an error."""
        with self._lock:
            self._counts["source_failures"] += 1

    def snapshot(self) -> LookupStats:
        """The counts now."""
        with self._lock:
            return LookupStats(**self._counts)
