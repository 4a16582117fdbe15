"""Scaling a stream, in steps that can each be repeated, by the same process or another one.

    submit                 store the transition                                              a few reads, 1 write
    1 state SCALING        no other workflow runs meanwhile
    2 start                is it still wanted?
    3 create segments      the host's; each is bound to a stream of the object layer
    4 create_new_epoch     records of the new epoch
    5 seal                 the host's old segments; it tells their sizes
    6 old_segments_sealed  sizes, markers, the current epoch
    7 complete             the transition is empty
    8 state ACTIVE

`run` does all of it. Whoever finds the state SCALING and an empty transition finds a process that died between 7 and 8.

Calls of one scale that seals s segments and creates c: at most 28 + 2 s + c, and 2 for each shard of sizes; besides 2
for each block of ids, 1 where a part of the index of times becomes full, and 2 for each of its parts where a leaf does.

Source: PDP-32; which checks come in which order: `accel.history.scaling`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from accel.errors import ScalePrecondition
from accel.history.epochs import delta_of
from accel.history.ids import number_of
from accel.history.records import NO_TRANSITION, EpochRecord, EpochTransition
from accel.history.room import needs_look, refuse_crowded
from accel.history.scaling import (
    ScaleRequest,
    ScaleVerdict,
    is_outdated,
    refuse_conflict,
    refuse_dropped,
    scaled_epoch,
    started,
    submitted,
)
from accel.history.segments import KeyRanges
from accel.history.states import StreamState
from accel.history.store.cell import Seen
from accel.history.store.epoch_reading import EpochReading
from accel.history.store.epoch_writing import EpochWriting
from accel.history.store.parts import StreamParts


class ScaleWorkflow:
    """Scales one stream. Threads: any.

    Args:
        parts: of the stream.
        epochs: reads its epochs.
        writing: writes them.
    """

    def __init__(self, parts: StreamParts, epochs: EpochReading, writing: EpochWriting) -> None:
        self._parts = parts
        self._cells = parts.cells
        self._epochs = epochs
        self._writing = writing

    def stored(self) -> Seen[EpochTransition]:
        """The transition that is under way, or the empty one, and its version. 1 call."""
        return self._cells.transition().get()

    def submit(self, request: ScaleRequest, seen: Seen[EpochTransition] | None = None) -> Seen[EpochTransition]:
        """Ask for a scale; the same request twice gives the same transition. 5 calls, 1 more for a very large one.

        Args:
            request: what is asked for.
            seen: a transition that the caller saw: the request is refused if another one stands there by now.

        Raises:
            DataConflict: another version of the transition stands there.
            What `accel.history.scaling.submitted` raises.
        """
        cell = self._cells.transition()
        state = self._parts.state().value
        seen = seen or cell.get()
        current = self._epochs.current()
        least = self._cells.configuration().get().value.configuration.min_segments
        try:
            transition = submitted(request, state, seen.value, current, least)
        except ScalePrecondition:
            if is_outdated(request, current):
                cell.write(NO_TRANSITION, seen)  # others with the same old picture fail on its version
            raise
        if transition != seen.value:
            self._refuse_crowded(request, transition.new_epoch)
        return seen if transition == seen.value else cell.write(transition, seen)

    def start(self, seen: Seen[EpochTransition], *, is_manual: bool = True) -> Seen[EpochTransition]:
        """Step 2. What is returned, and not what was given, is to be carried out.

        Args:
            seen: the transition.
            is_manual: whether a person asked for it, who gets it even if duplicates replaced the segments since.

        Raises:
            IllegalState: the stream has moved on; transition and state are reset.
        """
        verdict, transition = started(seen.value, self._epochs.current(), self._epochs.epoch, is_manual=is_manual)
        if verdict is ScaleVerdict.MIGRATED:
            return self._cells.transition().write(transition, seen)
        if verdict is ScaleVerdict.DROPPED:
            self._end(seen.value)
        refuse_dropped(verdict, seen.value)
        return seen

    def create_segments(self, transition: EpochTransition) -> None:
        """Step 3; nothing if the epoch is current already."""
        current = self._epochs.current()
        if current.epoch < transition.new_epoch:
            self._writing.create_segments(scaled_epoch(transition, current))

    def create_new_epoch(self, transition: EpochTransition) -> None:
        """Step 4; nothing if the epoch is current already."""
        current = self._epochs.current()
        if current.epoch < transition.new_epoch:
            record = self._writing.write(scaled_epoch(transition, current), current)
            self._writing.seal_epochs(record, current)

    def seal(self, transition: EpochTransition) -> Mapping[int, int]:
        """Step 5: gives the sizes of the sealed segments."""
        return self._parts.host.seal(self._parts.name, transition.segments_to_seal.ids)

    def old_segments_sealed(self, transition: EpochTransition, sizes: Mapping[int, int]) -> None:
        """Step 6.

        Args:
            transition: what is carried out.
            sizes: of the sealed segments, by id; those that are missing count 0.
        """
        ids = transition.segments_to_seal.ids
        self._writing.remove_markers(ids)
        self._writing.write_sizes({each: sizes.get(each, 0) for each in ids.tolist()})
        self._writing.advance(self._epochs.epoch(transition.new_epoch))

    def complete(self, transition: EpochTransition) -> None:
        """Step 7; nothing if another transition is stored by now."""
        self._cells.transition().change(lambda now: NO_TRANSITION if now == transition else None)

    def reset(self) -> None:
        """Drop whatever transition is stored."""
        self._cells.transition().change(lambda now: None if now is not None and now.is_empty else NO_TRANSITION)

    def run(self, request: ScaleRequest, *, is_manual: bool = True) -> EpochRecord:
        """All of it. To be repeated as it is after a crash.

        Args:
            request: what is asked for.
            is_manual: as in `start`.

        Returns:
            The current epoch afterwards.

        Raises:
            OperationNotAllowed: another workflow has the stream.
            What `submit` and `start` raise.
        """
        state = self._parts.state()
        seen = self.stored()
        if seen.value.is_empty and state.value is StreamState.SCALING:
            # A process died before its last write. If it had this very request, there is nothing more to do.
            is_done = self._has_led_here(request, is_manual=is_manual)
            self._parts.back_to_active(state, StreamState.SCALING)
            if is_done:
                return self._epochs.current()
        if seen.value.is_empty or not is_manual:
            seen = self.submit(request)
        else:
            refuse_conflict(request, seen.value, by_number=True)
        return self.carry_out(seen, is_manual=is_manual)

    def carry_out(self, seen: Seen[EpochTransition], *, is_manual: bool = True) -> EpochRecord:
        """Steps 1 to 8 of a transition that is stored; gives the current epoch afterwards. Raises as `run`."""
        self._parts.set_state(StreamState.SCALING)
        transition = self.start(seen, is_manual=is_manual).value
        self.create_segments(transition)
        self.create_new_epoch(transition)
        self.old_segments_sealed(transition, self.seal(transition))
        self._end(transition)
        self._writing.merge_times()
        return self._epochs.current()

    def _refuse_crowded(self, request: ScaleRequest, epoch: int) -> None:
        size = self._parts.layout.chunk_size
        if needs_look(request, size):
            seen = self._cells.chunk(epoch // size, size).read()
            refuse_crowded(request, epoch, None if seen is None else seen.value, size)

    def _end(self, transition: EpochTransition) -> None:
        state = self._parts.state()
        self.complete(transition)
        self._parts.back_to_active(state, StreamState.SCALING)

    def _has_led_here(self, request: ScaleRequest, *, is_manual: bool) -> bool:
        current = self._epochs.current()
        if current.is_duplicate or not current.epoch:
            return False
        delta = delta_of(current, self._epochs.epoch(current.epoch - 1))
        ids, asked = delta.sealed.ids.tolist(), list(request.seal)
        if is_manual:
            ids, asked = [number_of(each) for each in ids], [number_of(each) for each in asked]
        return sorted(ids) == sorted(asked) and sorted(delta.created.ranges) == sorted(request.new_ranges)


def scale_request(seal: Sequence[int], new_ranges: Sequence[tuple[float, float]], time_ms: int) -> ScaleRequest:
    """A request from plain numbers."""
    return ScaleRequest(tuple(seal), KeyRanges.of(new_ranges), time_ms)
