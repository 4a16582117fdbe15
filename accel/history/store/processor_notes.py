"""Notes that processors store with a stream: cold markers of its segments, and the processor that waits for the stream.

A cold marker contains the time until which a segment has so little load that it may be merged with its neighbours.
Markers belong to active segments, and are removed by the scale, rolling commit or sealing that seals the segment. A
marker that is written at the same moment would remain, so its writer checks afterwards whether the segment was sealed,
and removes the marker again.

A processor that waits for a stream to be free of other workflows stores its name, so that other processors let it go
first; no other processor removes the name.

Source: PDP-35.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from accel.errors import IllegalState
from accel.history.rules.states import StreamState
from accel.history.rules.values import checked_id, checked_text, checked_time, segment_text
from accel.history.store.parts import StreamParts
from loaders.errors import DataConflict


@dataclass(frozen=True, slots=True, eq=False)
class ProcessorNotes:
    """Cold markers of one stream, and its waiting processor. Threads: any.

    Args:
        parts: the parts of the stream.
    """

    _parts: StreamParts

    def cold_until(self, segment_id: int) -> int | None:
        """The time until which a segment is cold, milliseconds since 1970; None = it has no marker. 1 call."""
        versioned = self._parts.keys.marker(checked_id(segment_id)).read()
        return None if versioned is None else versioned.value

    def mark_cold(self, segment_id: int, until_ms: int) -> None:
        """Mark an active segment, or change the time of its marker. 5 calls.

        Raises:
            InvalidArgument: not a segment id, or not a time.
            IllegalState: the segment is not active; it has no marker.
        """
        until_ms, segment_id = checked_time("the end of a cold marker", until_ms), checked_id(segment_id)
        if self._parts.keys.current_epoch().get().value.find(segment_id) is None:
            raise IllegalState(f"expected an active segment, found {segment_text(segment_id)}")
        self._parts.keys.marker(segment_id).change(lambda now: None if now == until_ms else until_ms)
        if self._is_sealed(segment_id):
            self._parts.keys.marker(segment_id).erase()
            raise IllegalState(
                f"expected an active segment, found {segment_text(segment_id)}, which was sealed just now"
            )

    def remove_cold(self, segment_id: int) -> None:
        """Remove the marker of a segment. 1 call, 2 if there is one."""
        self._parts.keys.marker(checked_id(segment_id)).delete()

    def awaited_by(self) -> str | None:
        """The processor that waits for the stream; other processors let it go first. 1 call."""
        versioned = self._parts.keys.waiting_processor().read()
        return None if versioned is None else versioned.value

    def await_turn(self, processor: str) -> bool:
        """Store that a processor waits for the stream; False if another one waits already. 2 calls, 3 then.

        Raises:
            InvalidArgument: not a name, or a name of more than 1,000 characters.
        """
        checked_text("a processor's name", processor)
        self._parts.state()  # raises if the stream is deleted: a name stored after that would remain for ever
        return self._parts.keys.waiting_processor().create_if_absent(processor).value == processor

    def end_turn(self, processor: str) -> bool:
        """Stop waiting; False if another processor waits, which is unchanged. 1 call, 2 if this processor waited."""
        checked_text("a processor's name", processor)
        key = self._parts.keys.waiting_processor()
        versioned = key.read()
        if versioned is None:
            return True
        if versioned.value != processor:
            return False
        with suppress(DataConflict):  # another processor waits by now
            key.delete(versioned)
        return True

    def _is_sealed(self, segment_id: int) -> bool:
        # The sealing epoch and the state are written before the marker of a sealed segment is removed.
        if self._parts.keys.sealed_epoch(segment_id).read() is not None:
            return True
        return self._parts.state() in (StreamState.SEALING, StreamState.SEALED)
