"""Notes that processors leave with a stream: which segments are cold, and who waits for the stream.

A cold mark says until when a segment has so little load that it may be merged with its neighbours. Marks belong to
active segments, and go when their segment is sealed: by the scale, the rolling commit or the sealing that does so. Who
marks a segment at that very moment would come too late, so they look afterwards whether it was sealed, and take their
mark away again.

Who waits for a stream to be free of other workflows leaves a name, so that others let them go first; nobody else takes
it away.

Source: PDP-35.
"""

from __future__ import annotations

from contextlib import suppress

from accel.errors import IllegalState
from accel.history.rules.checks import checked_id, checked_text, checked_time
from accel.history.rules.ids import segment_text
from accel.history.rules.states import StreamState
from accel.history.store.parts import StreamParts
from loaders.errors import DataConflict


class Marks:
    """Marks of one stream. Threads: any.

    Args:
        parts: of the stream.
    """

    def __init__(self, parts: StreamParts) -> None:
        self._parts = parts
        self._cells = parts.cells

    def cold_until(self, segment_id: int) -> int | None:
        """Until when a segment is cold, milliseconds since 1970; None = nobody marked it. 1 call."""
        seen = self._cells.marker(checked_id(segment_id)).read()
        return None if seen is None else seen.value

    def mark_cold(self, segment_id: int, until_ms: int) -> None:
        """Mark an active segment, or give its mark another time. 5 calls.

        Raises:
            InvalidArgument: no segment id, or no time.
            IllegalState: the segment is not active; no mark stays.
        """
        until_ms, segment_id = checked_time("the end of a mark", until_ms), checked_id(segment_id)
        if self._cells.current_epoch().get().value.find(segment_id) is None:
            raise IllegalState(f"expected an active segment, found {segment_text(segment_id)}")
        self._cells.marker(segment_id).change(lambda now: None if now == until_ms else until_ms)
        if self._is_sealed(segment_id):
            self._cells.marker(segment_id).erase()
            raise IllegalState(
                f"expected an active segment, found {segment_text(segment_id)}, which was sealed just now"
            )

    def remove_cold(self, segment_id: int) -> None:
        """A segment is not cold any more. 1 call, 2 if it was."""
        self._cells.marker(checked_id(segment_id)).delete()

    def waiting(self) -> str | None:
        """Who waits for the stream. 1 call."""
        seen = self._cells.waiting_processor().read()
        return None if seen is None else seen.value

    def wait(self, processor: str) -> str:
        """Wait for the stream, unless somebody does; gives who waits. 1 call, 2 if somebody does.

        Raises:
            InvalidArgument: no name, or one of more than 1,000 characters.
        """
        checked_text("a processor's name", processor)
        return self._cells.waiting_processor().create(processor).value

    def stop_waiting(self, processor: str) -> bool:
        """Do not wait any longer; False if somebody else waits, who goes on waiting. 1 call, 2 if it was this one."""
        cell = self._cells.waiting_processor()
        seen = cell.read()
        if seen is None:
            return True
        if seen.value != processor:
            return False
        with suppress(DataConflict):  # it was this one's, and is another's by now
            cell.delete(seen)
        return True

    def _is_sealed(self, segment_id: int) -> bool:
        # Both are written before whoever seals a segment removes its mark.
        if self._cells.sealed_epoch(segment_id).read() is not None:
            return True
        return self._parts.state() in (StreamState.SEALING, StreamState.SEALED)
