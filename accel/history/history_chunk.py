"""The series of changes of a stream, in chunks: what each epoch sealed and created.

    HistoryDelta     what changed from one epoch to the next
    HistoryChunk     the same of up to 1,000 epochs in a row, as columns

Questions about stream cuts walk through the epochs between two cuts. Reading each epoch's record would be a read an
epoch, and all segments an epoch; a chunk is one read, and holds only what changed.

Threads: both are immutable, any thread may read them.

Source: PDP-32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accel.history.checks import check_epoch, check_least, integers
from accel.history.id_columns import Integers, check_ascending
from accel.history.segments import Segments


@dataclass(frozen=True, slots=True)
class HistoryDelta:
    """What changed from one epoch to the next.

    Args:
        epoch: the later one.
        reference_epoch: itself, or for a duplicate the epoch that it repeats.
        sealed: segments of the epoch before that are not in this one, ascending by id; none of a duplicate.
        created: those that are new, ascending by id; none of a duplicate: its segments are those of its reference.
        time_ms: when it began, milliseconds since 1970.

    Raises:
        ValueError: a duplicate that says more, another epoch that created or (unless it is the first) sealed nothing,
            or segments of other epochs.
    """

    epoch: int
    reference_epoch: int
    sealed: Segments
    created: Segments
    time_ms: int

    def __post_init__(self) -> None:
        where = f"history of epoch {self.epoch}"
        check_epoch(where, self.epoch, self.reference_epoch)
        check_least(where, 0, time_ms=self.time_ms)
        check_ascending(self.sealed.ids)
        check_ascending(self.created.ids)
        sealed, created = len(self.sealed), len(self.created)
        if (sealed or created) if self.is_duplicate else (not created or bool(sealed) != bool(self.epoch)):
            kind = " of a duplicate" if self.is_duplicate else ""
            raise ValueError(f"{where}{kind}: expected segments sealed and created, found {sealed} and {created}")
        if (self.created.epochs != self.epoch).any() or (self.sealed.epochs >= self.epoch).any():
            raise ValueError(f"{where}: expected its own segments created and earlier ones sealed, found {self}")

    @property
    def is_duplicate(self) -> bool:
        """Whether the epoch repeats an older one."""
        return self.epoch != self.reference_epoch


class HistoryChunk:
    """What changed in each of several epochs in a row, as columns.

    Each epoch has as many rows in `sealed` and `created` as segments were sealed and created by it; `stops` tell where
    they end:

        epoch              4              5 (a duplicate)   6
        created            7@4, 8@4                         9@6
        created_stops      2              2                 3

    Args:
        first_epoch: the first of them.
        reference_epochs: of each epoch.
        times_ms: when each began, strictly ascending.
        sealed: segments that were sealed by the epochs, one epoch after the other, each ascending by id.
        sealed_stops: one past the last row of each epoch.
        created: likewise those that were created.
        created_stops: likewise.

    Raises:
        ValueError: no epoch, columns of different lengths, or an entry that is none (see `HistoryDelta`).
    """

    __slots__ = ("created", "created_stops", "first_epoch", "reference_epochs", "sealed", "sealed_stops", "times_ms")

    def __init__(
        self,
        first_epoch: int,
        reference_epochs: ArrayLike,
        times_ms: ArrayLike,
        *,
        sealed: Segments,
        sealed_stops: ArrayLike,
        created: Segments,
        created_stops: ArrayLike,
    ) -> None:
        self.first_epoch = first_epoch
        self.reference_epochs = integers(reference_epochs)
        self.times_ms = integers(times_ms)
        self.sealed = sealed
        self.sealed_stops = integers(sealed_stops)
        self.created = created
        self.created_stops = integers(created_stops)
        self._check()

    @classmethod
    def of(cls, deltas: Sequence[HistoryDelta]) -> HistoryChunk:
        """From single entries, of epochs in a row.

        Raises:
            ValueError: none, or epochs that do not follow each other.
        """
        epochs = [each.epoch for each in deltas]
        if not epochs or epochs != list(range(epochs[0], epochs[0] + len(epochs))):
            raise ValueError(f"expected epochs in a row, found {epochs[:5]}")
        return cls(
            epochs[0],
            [each.reference_epoch for each in deltas],
            [each.time_ms for each in deltas],
            sealed=Segments.joined(each.sealed for each in deltas),
            sealed_stops=np.cumsum([len(each.sealed) for each in deltas]),
            created=Segments.joined(each.created for each in deltas),
            created_stops=np.cumsum([len(each.created) for each in deltas]),
        )

    @property
    def last_epoch(self) -> int:
        """The last of its epochs."""
        return self.first_epoch + len(self) - 1

    @property
    def epochs(self) -> Integers:
        """Its epochs, ascending."""
        return np.arange(self.first_epoch, self.first_epoch + len(self), dtype=np.int64)

    @property
    def duplicates(self) -> Integers:
        """Those that repeat an older one, ascending."""
        found: Integers = self.epochs[self.reference_epochs != self.epochs]
        return found

    @property
    def sealing_epochs(self) -> Integers:
        """For each row of `sealed`: the epoch that sealed it."""
        return np.repeat(self.epochs, np.diff(self.sealed_stops, prepend=0))

    def delta(self, epoch: int) -> HistoryDelta | None:
        """The entry of one epoch, if it is in here."""
        at = epoch - self.first_epoch
        if not 0 <= at < len(self):
            return None
        return HistoryDelta(
            epoch,
            int(self.reference_epochs[at]),
            self.sealed[_start(self.sealed_stops, at) : int(self.sealed_stops[at])],
            self.created[_start(self.created_stops, at) : int(self.created_stops[at])],
            int(self.times_ms[at]),
        )

    def with_delta(self, delta: HistoryDelta) -> HistoryChunk | None:
        """The chunk with one more entry; None if it stands there already.

        Raises:
            ValueError: it is not the next one, or another one stands in its place.
        """
        known = self.delta(delta.epoch)
        if known is not None and known == delta:
            return None
        if delta.epoch != self.last_epoch + 1:
            raise ValueError(f"expected epoch {self.last_epoch + 1}, or {delta.epoch} as it is recorded; found {delta}")
        added = HistoryChunk.of([delta])
        return HistoryChunk(
            self.first_epoch,
            np.append(self.reference_epochs, added.reference_epochs),
            np.append(self.times_ms, added.times_ms),
            sealed=Segments.joined((self.sealed, added.sealed)),
            sealed_stops=np.append(self.sealed_stops, len(self.sealed) + added.sealed_stops),
            created=Segments.joined((self.created, added.created)),
            created_stops=np.append(self.created_stops, len(self.created) + added.created_stops),
        )

    def __len__(self) -> int:
        return len(self.times_ms)

    def __iter__(self) -> Iterator[HistoryDelta]:
        return (each for epoch in self.epochs.tolist() if (each := self.delta(epoch)) is not None)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HistoryChunk):
            return NotImplemented
        columns = ("reference_epochs", "times_ms", "sealed_stops", "created_stops")
        return (
            self.first_epoch == other.first_epoch
            and all(np.array_equal(getattr(self, name), getattr(other, name)) for name in columns)
            and self.sealed == other.sealed
            and self.created == other.created
        )

    def __hash__(self) -> int:
        return hash((self.first_epoch, self.times_ms.tobytes(), self.created))

    def __repr__(self) -> str:
        return f"<history of epochs {self.first_epoch} to {self.last_epoch}>"

    def _check(self) -> None:
        where = f"history from epoch {self.first_epoch} on"
        count = len(self)
        lengths = {len(self.reference_epochs), len(self.sealed_stops), len(self.created_stops)}
        if not count or lengths != {count}:
            raise ValueError(f"{where}: expected columns of one length, found {count} and {sorted(lengths)}")
        check_epoch(where, self.first_epoch + count - 1, 0)
        check_least(where, 0, first_epoch=self.first_epoch, time=int(self.times_ms[0]))
        if (self.times_ms[1:] <= self.times_ms[:-1]).any():
            raise ValueError(f"{where}: expected ascending times")
        if ((self.reference_epochs < 0) | (self.reference_epochs > self.epochs)).any():
            raise ValueError(f"{where}: expected references to the epoch itself or an earlier one")
        sealed = self._counts(where, self.sealed, self.sealed_stops)
        created = self._counts(where, self.created, self.created_stops)
        self._check_counts(where, sealed, created)
        if (self.created.epochs != np.repeat(self.epochs, created)).any():
            raise ValueError(f"{where}: expected each epoch to create segments of its own")
        if (self.sealed.epochs >= np.repeat(self.epochs, sealed)).any():
            raise ValueError(f"{where}: expected each epoch to seal segments of earlier ones")
        _check_rows_ascend(where, self.created, self.created_stops)
        _check_rows_ascend(where, self.sealed, self.sealed_stops)

    def _check_counts(self, where: str, sealed: Integers, created: Integers) -> None:
        is_duplicate = self.reference_epochs != self.epochs
        original = (created > 0) & ((sealed > 0) == (self.epochs > 0))
        wrong = ~np.where(is_duplicate, (sealed == 0) & (created == 0), original)
        if wrong.any():
            at = int(wrong.argmax())
            kind = " of a duplicate" if is_duplicate[at] else ""
            found = f"{sealed[at]} and {created[at]} in epoch {self.first_epoch + at}{kind}"
            raise ValueError(f"{where}: expected segments sealed and created, found {found}")

    @staticmethod
    def _counts(where: str, rows: Segments, stops: Integers) -> Integers:
        counts: Integers = np.diff(stops, prepend=0)
        if (counts < 0).any() or stops[-1] != len(rows):
            raise ValueError(f"{where}: expected rows that end at {len(rows)}, found ends up to {stops[-1]}")
        return counts


def _check_rows_ascend(where: str, rows: Segments, stops: Integers) -> None:
    falls: NDArray[np.bool_] = rows.ids[1:] <= rows.ids[:-1]
    falls[stops[(stops > 0) & (stops < len(rows))] - 1] = False  # there another epoch begins
    if falls.any():
        at = int(falls.argmax())
        raise ValueError(f"{where}: expected ascending ids within an epoch, found {rows.where(slice(at, at + 2))}")


def _start(stops: Integers, at: int) -> int:
    return int(stops[at - 1]) if at else 0
