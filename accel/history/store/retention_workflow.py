"""Retention: recorded cuts of a stream, truncation at a recorded cut, and runs over many streams.

A run records a cut at the stream's end, finds the recorded cut that the limits allow, and truncates the stream there.
The cuts before that cut are stale, and are purged afterwards:

    purge       the records of the first stale cuts are erased, and then the set is written without them
    with an executor        in slices, each submitted when the previous slice is done; the run does not wait
    without an executor     at the end of the run

A run does not fail if its purge fails: a later run, or `purge`, purges the rest. A stale cut changes no answer, as the
stream begins after it already. If a purge was interrupted, the set may contain a cut whose record is erased. Such a cut
counts as a cut before all remaining data of the stream.

In a run over many streams (`stream_store.retain`) an error in one stream does not stop the run; `Retained` is the
outcome of each.

Source: PDP-32; the rule that chooses the cut: `accel.history.rules.retention`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from accel.errors import InvalidArgument, NotInHistory, OperationNotAllowed, Sought
from accel.history.rules.configuration import RetentionPolicy
from accel.history.rules.cuts import PlacedCut, is_equal_or_after
from accel.history.rules.retention import (
    RetentionEntry,
    RetentionSet,
    StreamCutRecord,
    entries_up_to,
    find_by_size,
    find_by_time,
    place_truncation,
    reference_before,
    truncation_point,
    with_entry,
    without_ahead,
    without_up_to,
)
from accel.history.rules.states import StreamState
from accel.history.rules.values import IdMap, checked_integer, checked_numbers, checked_time
from accel.history.store import keys
from accel.history.store.cut_reading import CutReading, as_cut
from accel.history.store.epoch_store import EpochReading
from accel.history.store.parts import StreamParts
from accel.history.store.workflows import TruncationWorkflow
from loaders.errors import DataNotFound


class Retained(Enum):
    """The outcome of a run for a stream.

    | outcome    | the stream                                                                                |
    |------------|-------------------------------------------------------------------------------------------|
    | truncated  | begins at a recorded cut now                                                              |
    | recorded   | has a new recorded cut; there was nothing to truncate                                     |
    | unchanged  | has a cut that was recorded at this time or later; there was nothing to truncate          |
    | no clock   | is unchanged: the store did not report its time, and the process's clock may be wrong     |
    | no policy  | has no retention policy; nothing was recorded or truncated                                |
    | sealed     | is sealed or being sealed; nothing was recorded or truncated                              |
    | unfinished | is half created, or was deleted meanwhile                                                 |
    | busy       | was taken by other workflows in all attempts; the next run tries again                    |
    | failed     | is unchanged or partly changed; the error has the cause, and the next run continues       |
    """

    TRUNCATED = "truncated"
    RECORDED = "recorded"
    UNCHANGED = "unchanged"
    NO_CLOCK = "no clock"
    NO_POLICY = "no policy"
    SEALED = "sealed"
    UNFINISHED = "unfinished"
    BUSY = "busy"
    FAILED = "failed"


logger = logging.getLogger(__name__)

PURGED_AT_ONCE_MAX: Final = 10_000
"""Maximum number of stale cuts that one run purges; a cut each half hour makes 17,520 a year."""

SLICE_CUTS: Final = 100
"""Stale cuts in a slice of a purge on the executor: to close the executor waits for at most one slice."""

_LEFT_ALONE: Final[Mapping[StreamState, Retained]] = {
    StreamState.UNKNOWN: Retained.UNFINISHED,
    StreamState.CREATING: Retained.UNFINISHED,
    StreamState.SEALING: Retained.SEALED,
    StreamState.SEALED: Retained.SEALED,
}


Each: TypeAlias = Callable[[Callable[[int], object], Iterable[int]], object]
"""Calls a function for each of several times."""


@dataclass(frozen=True, slots=True, eq=False)
class RetentionWorkflow:
    """Recorded cuts of one stream. Threads: any.

    Args:
        parts: the parts of the stream.
        epochs: reads its epochs.
        cuts: finds cuts.
        truncations: truncates the stream.
    """

    _parts: StreamParts
    _epochs: EpochReading
    _cuts: CutReading
    _truncations: TruncationWorkflow

    def read(self) -> RetentionSet:
        """The times of recorded cuts, and the size before each cut. 1 call."""
        return self._parts.keys.retention().get().value

    def cut(self, recording_time_ms: int) -> StreamCutRecord:
        """A recorded cut. 1 call.

        Raises:
            NotInHistory: no cut was recorded at this time.
        """
        recording_time_ms = checked_time("the time of a recorded cut", recording_time_ms)
        versioned = self._parts.keys.cut(recording_time_ms).read()
        if versioned is None:
            raise NotInHistory(f"expected a cut recorded at {recording_time_ms}, found none", Sought.CUT)
        return versioned.value

    def last_cuts(self, limit: int) -> tuple[list[StreamCutRecord], bool]:
        """The last recorded cuts, the newest last, and whether there are older cuts. 1 call, and 1 for each cut.

        Args:
            limit: the maximum number of cuts, at least 1; cuts that are purged meanwhile are left out.
        """
        known = self.read()
        times_ms = known.times_ms[-checked_integer("the limit of cuts", limit, 1) :].tolist()
        found = self._parts.each(lambda time_ms: self._parts.keys.cut(time_ms).read(), times_ms)
        return [each.value for each in found if each is not None], len(known) > len(times_ms)

    def add(self, recording_time_ms: int, size: int, cut: Mapping[int, int]) -> RetentionSet:
        """Record a cut, unless a cut was recorded at that time or later. 3 calls.

        Cuts that are recorded more than 5 minutes from now, by a process with a wrong clock, are removed, with a
        warning: they would prevent all further records until then.

        Args:
            recording_time_ms: milliseconds since 1970.
            size: size of the stream before the cut, in the stream's offset unit.
            cut: offsets by segment id.

        Returns:
            The recorded cuts. If none was recorded at this time, a later one was.

        Raises:
            InvalidArgument: numbers out of bounds, or a time of more than 5 minutes from now.
        """
        recording_time_ms = self._parts.store.time_ms("the time of a recorded cut", recording_time_ms)
        size = checked_integer("the size before a cut", size, 0)
        record = (
            self._parts.keys.cut(recording_time_ms)
            .create_if_absent(StreamCutRecord(recording_time_ms, size, as_cut(cut)))
            .value
        )
        latest_ms = self._parts.store.latest_ms()
        ahead: list[int] = []

        def rule(now: RetentionSet | None) -> RetentionSet | None:
            known, removed_ms = without_ahead(now or RetentionSet(), latest_ms)
            ahead[:] = removed_ms.tolist()
            return with_entry(known, record.entry) or (known if ahead else None)

        now = self._parts.keys.retention().change(rule).value
        if ahead:
            logger.warning(
                "%s: removed %d recorded cuts of times after now, from %s on: a process's clock was wrong",
                self._parts.stream,
                len(ahead),
                ahead[0],
            )
            self._parts.each(lambda time_ms: self._parts.keys.cut(time_ms).erase(), ahead)
        self._erase_unlisted([recording_time_ms], now)
        return now

    def find_by_time(self, time_ms: int) -> RetentionEntry | None:
        """The last cut that was recorded at or before a time. 1 call."""
        return find_by_time(self.read(), time_ms)

    def find_by_size(self, size: int) -> RetentionEntry | None:
        """The cut with the greatest size before it that is at most `size`. 1 call."""
        return find_by_size(self.read(), size)

    def reference_before(self, cut: Mapping[int, int]) -> RetentionEntry | None:
        """The last recorded cut that a valid cut is equal to or after. O(log n) recorded cuts are read."""
        return self._reference_before(self._cuts.place_valid(cut))

    # Deleting

    def delete_up_to(self, recording_time_ms: int) -> None:
        """Delete the cuts that were recorded at or before a time. 2 calls, 1 a cut."""
        self._delete(checked_integer("the time of a recorded cut", recording_time_ms), None, self._parts.each)

    def purge(self, limit: int = PURGED_AT_ONCE_MAX) -> int:
        """Delete stale cuts that no run has purged: all before the last recorded cut at or before the head.

        If that cut's record is erased, a run died while it purged: then the cut is deleted from the set, too. May run
        at any time, beside runs and other purges. Calls: O(log n) to find the cuts, 2, and 1 a cut.

        Args:
            limit: the maximum number of cuts.

        Returns:
            The number of deleted cuts.

        Raises:
            DataNotFound: there is no such stream.
            StoreError, DataConflict: repeat the same call.
        """
        limit = checked_integer("a limit", limit, 1)
        begins = place_truncation(self._epochs.truncation())
        kept, is_erased = (None, False) if begins is None else self._last_before(begins)
        if kept is None:
            return 0
        return self._delete(kept.recording_time_ms - (not is_erased), limit, self._parts.each)

    def erase_unlisted(self) -> int:
        """Erase records of cuts that are not in the set because a run died before it wrote the set; return the number.

        A cut is added to the set only after all cuts in it. So if a later cut is in the set, a record that is not in
        the set is unused, now and later; and so is one of a time after now. Calls: 1 for 1,000 recorded cuts, 1, and 1
        for each that is erased.
        """
        prefix = keys.cut_key(0).removesuffix("0")
        times = [int(key.removeprefix(prefix)) for key in self._parts.keys.metadata.keys(prefix)]
        return self._erase_unlisted(times, self.read()) if times else 0

    def _erase_unlisted(self, times_ms: list[int], now: RetentionSet) -> int:
        """Erase records of cuts that are not in a set, which was read after the records existed."""
        known = set(now.times_ms.tolist())
        last_ms, latest_ms = max(known, default=-1), self._parts.store.latest_ms()
        gone = [each for each in times_ms if each not in known and (each < last_ms or each > latest_ms)]
        self._parts.each(lambda time_ms: self._parts.keys.cut(time_ms).erase(), gone)
        return len(gone)

    # A run

    def run(self, now_ms: int | None = None, read_by_all: Mapping[int, int] | None = None) -> RetentionEntry | None:
        """Record a cut at the stream's end, truncate the stream by its policy, and purge the cuts before that.

        Calls: O(epochs since the last recorded cut / 1,000) chunks and shards, and those of a truncation.

        Args:
            now_ms: milliseconds since 1970; None = now.
            read_by_all: the cut up to which all readers have read, if the run is to wait for readers.

        Returns:
            The recorded cut to which the stream was truncated; None if it was not truncated. A stream that is sealed or
            being sealed is unchanged.

        Raises:
            OperationNotAllowed: another workflow has the stream.
            HostMissing: the stream has a policy, and this process does not know the ends of its segments; nothing was
                changed.
            InvalidArgument: no reader can be at `read_by_all`; or the stream's end is before the last recorded cut: the
                host reports wrong sizes.
            PositionBeyondEnd: `read_by_all` is after the end of a segment.
        """
        return self.retain(now_ms, read_by_all)[1]

    def retain(
        self, now_ms: int | None = None, read_by_all: Mapping[int, int] | None = None
    ) -> tuple[Retained, RetentionEntry | None]:
        """Do the same as `run`; also return the outcome if the stream was not truncated."""
        if now_ms is not None:
            now_ms = checked_time("the time of a run", now_ms)
        if read_by_all is not None:
            read_by_all = self._reached(read_by_all)
        state = self._parts.state()
        policy = self._policy(state, now_ms)
        if isinstance(policy, Retained):
            return policy, None
        is_truncated = False
        begins: RetentionEntry | None = None
        if state is StreamState.TRUNCATING:
            is_truncated = self._truncations.finish_running()  # the last run may have died during its truncation
        tail, size = self._tail()
        # The time is read after the tail: all data before a cut is then at least as old as the cut's time.
        time_ms = self._parts.store.now_ms() if now_ms is None else now_ms
        known = self.add(time_ms, size, tail)
        read = None if read_by_all is None else self.reference_before(read_by_all)
        point = truncation_point(known, policy, time_ms, size, read, has_readers=read_by_all is not None)
        if point is not None and self._truncate(point):
            is_truncated, begins = True, point
        elif is_truncated:
            begins = self.reference_before(self._epochs.truncation().cut)
        if point is not None and len(entries_up_to(known, point.recording_time_ms - 1)):
            self._purge_afterwards(point.recording_time_ms - 1)
        return (Retained.TRUNCATED, begins) if is_truncated else (_kept(known, time_ms), None)

    def plan(
        self, now_ms: int | None = None, read_by_all: Mapping[int, int] | None = None
    ) -> tuple[Retained, RetentionEntry | None]:
        """The result that `retain` would return now; nothing is written. Calls: the same number of reads.

        Raises:
            InvalidArgument: as `run`.
        """
        if now_ms is not None:
            now_ms = checked_time("the time of a run", now_ms)
        if read_by_all is not None:
            read_by_all = self._reached(read_by_all)
        policy = self._policy(self._parts.state(), now_ms)
        if isinstance(policy, Retained):
            return policy, None
        tail, size = self._tail()
        time_ms = self._parts.store.now_ms() if now_ms is None else now_ms
        recorded, _ = without_ahead(self.read(), self._parts.store.latest_ms())
        known = with_entry(recorded, RetentionEntry(time_ms, size)) or recorded
        read = None if read_by_all is None else self.reference_before(read_by_all)
        point = truncation_point(known, policy, time_ms, size, read, has_readers=read_by_all is not None)
        if point is None:
            return _kept(known, time_ms), None
        here = self._place_of(point)
        if here is None and point.recording_time_ms == time_ms:
            here = self._cuts.place(tail)  # the cut that `retain` would record
        begins = place_truncation(self._epochs.truncation())
        return (Retained.TRUNCATED, point) if _is_behind(here, begins) else (_kept(known, time_ms), None)

    def _reached(self, read_by_all: Mapping[int, int]) -> IdMap:
        """A cut that readers can have reached; refused before anything is written."""
        cut = self._cuts.place_valid(read_by_all).cut
        self._cuts.refuse_beyond(cut)
        return cut

    def _policy(self, state: StreamState, now_ms: int | None) -> RetentionPolicy | Retained:
        """The stream's policy, or the outcome if there is nothing to do.

        Raises:
            HostMissing: the stream has a policy, and this process does not know the ends of segments.
            InvalidArgument: a time of a run that is more than 5 minutes from now.
        """
        if state in _LEFT_ALONE:
            return _LEFT_ALONE[state]
        policy = self._parts.keys.configuration().get().value.configuration.retention
        if policy is None:
            return Retained.NO_POLICY
        self._parts.require_host("run retention")
        if not self._parts.store.is_clock_confirmed():
            logger.warning("%s: no retention, as the store does not report its time", self._parts.stream)
            return Retained.NO_CLOCK
        self._parts.store.time_ms("the time of a run", now_ms)
        return policy

    def _tail(self) -> tuple[IdMap, int]:
        """A cut at the stream's end, and the size before it."""
        # The last recorded cut is read first: a cut that another run records meanwhile would be after these tails.
        last = self._last()
        active = self._epochs.active_segments()
        reported = self._parts.host.tails(self._parts.name, active.ids)
        tails = checked_numbers("tails from the host", reported, 0)
        cut = IdMap.of({segment_id: tails.get(segment_id, 0) for segment_id in active.ids.tolist()})
        if last is None:
            return cut, self._cuts.size_till(cut)
        return cut, self._cuts.size_till(cut, last.cut, last.recorded_size)

    def _last(self) -> StreamCutRecord | None:
        """The last recorded cut; None if no cut or no record exists: sizes then count from the beginning."""
        for _ in range(2):  # another run may have recorded a later cut, and purged this cut
            recorded = self.read()
            if not len(recorded):
                return None
            versioned = self._parts.keys.cut(recorded[-1].recording_time_ms).read()
            if versioned is not None:
                return versioned.value
        return None

    def _truncate(self, point: RetentionEntry) -> bool:
        here = self._place_of(point)
        versioned = self._epochs.truncation()
        before = place_truncation(versioned)
        if here is None or not _is_behind(here, before):
            return False
        try:
            self._truncations.run(here.cut)
        except InvalidArgument as error:
            now = self._epochs.truncation()
            if now.cut == versioned.cut and now.updating == versioned.updating:
                raise
            raise OperationNotAllowed(f"expected no other truncation, found a truncation to {now.cut}") from error
        return True

    def _reference_before(self, here: PlacedCut) -> RetentionEntry | None:
        found, is_erased = self._last_before(here)
        return None if is_erased else found

    def _last_before(self, here: PlacedCut) -> tuple[RetentionEntry | None, bool]:
        """The last recorded cut that a cut is equal to or after, and whether its record is erased."""
        gone: set[int] = set()

        def is_before(entry: RetentionEntry) -> bool:
            there = self._place_of(entry)
            if there is None:
                gone.add(entry.recording_time_ms)
            return there is None or is_equal_or_after(here, there)

        found = reference_before(self.read(), is_before)
        return found, found is not None and found.recording_time_ms in gone

    def _place_of(self, entry: RetentionEntry) -> PlacedCut | None:
        """A recorded cut with its segments; None if its record is gone."""
        versioned = self._parts.keys.cut(entry.recording_time_ms).read()
        return None if versioned is None else self._cuts.place(versioned.value.cut)

    # Purging

    def _purge_afterwards(self, time_ms: int) -> None:
        if self._parts.store.executor is None:
            self._purge_quietly(time_ms, PURGED_AT_ONCE_MAX, self._parts.each)
        else:
            self._hand_over(time_ms, PURGED_AT_ONCE_MAX)

    def _hand_over(self, time_ms: int, left: int) -> None:
        executor = self._parts.store.executor
        try:
            if executor is not None and left > 0:
                executor.submit(self._purge_slice, time_ms, left)
        except RuntimeError:  # the executor was shut down
            logger.info("%s: the next run of retention purges the remaining stale cuts", self._parts.stream)

    def _purge_slice(self, time_ms: int, left: int) -> None:
        # One after the other: a task on an executor must not wait for other tasks on the same executor.
        if self._purge_quietly(time_ms, min(left, SLICE_CUTS), _one_by_one) == SLICE_CUTS:
            self._hand_over(time_ms, left - SLICE_CUTS)

    def _purge_quietly(self, time_ms: int, limit: int, item: Each) -> int:
        try:
            return self._delete(time_ms, limit, item)
        except DataNotFound:
            return 0  # the stream was deleted meanwhile, and its cuts with it
        except Exception:
            # The stream is truncated, also if the store fails now. Remaining stale cuts are harmless.
            logger.warning("%s: truncated, but stale cuts could not be purged", self._parts.stream, exc_info=True)
            return 0

    def _delete(self, time_ms: int, limit: int | None, item: Each) -> int:
        """Delete the first cuts that were recorded at or before a time; return their number."""
        versioned = self._parts.keys.retention().get()
        gone = entries_up_to(versioned.value, time_ms).times_ms[:limit].tolist()
        if not gone:
            return 0
        item(lambda time_ms: self._parts.keys.cut(time_ms).erase(), gone)

        def shorter(now: RetentionSet | None) -> RetentionSet | None:
            return None if now is None else without_up_to(now, gone[-1])

        self._parts.keys.retention().change(shorter, seen=versioned)
        return len(gone)


def _kept(known: RetentionSet, time_ms: int) -> Retained:
    """The outcome of a run that truncates nothing: whether it recorded a cut at its time."""
    last = find_by_time(known, time_ms)
    return Retained.UNCHANGED if last is None or last.recording_time_ms != time_ms else Retained.RECORDED


def _is_behind(here: PlacedCut | None, begins: PlacedCut | None) -> bool:
    """Whether a cut is after the stream's head; False if the cut's record is erased: then it was before the head."""
    if here is None or begins is None:
        return here is not None
    return begins.cut != here.cut and is_equal_or_after(here, begins)


def _one_by_one(act: Callable[[int], object], items: Iterable[int]) -> None:
    for item in items:
        act(item)
