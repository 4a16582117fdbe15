"""Notes that processors leave with a stream: which segments are cold, and who waits for the stream.

Cold marks belong to active segments, and go when their segment is sealed. Who waits for a stream to be free of other
workflows leaves a name, so that others let them go first.

Source: PDP-35.
"""

from __future__ import annotations

from contextlib import suppress

from accel.history.store.parts import StreamParts
from loaders.errors import DataConflict


class Marks:
    """Marks of one stream. Threads: any.

    Args:
        parts: of the stream.
    """

    def __init__(self, parts: StreamParts) -> None:
        self._cells = parts.cells

    def cold_since(self, segment_id: int) -> int | None:
        """The time that was marked for a segment, milliseconds since 1970; None = it is not cold. 1 call."""
        seen = self._cells.marker(segment_id).read()
        return None if seen is None else seen.value

    def mark_cold(self, segment_id: int, time_ms: int) -> None:
        """Mark a segment, or give its mark another time. 2 calls."""
        self._cells.marker(segment_id).change(lambda now: None if now == time_ms else time_ms)

    def remove_cold(self, segment_id: int) -> None:
        """A segment is not cold any more. 1 call, 2 if it was."""
        self._cells.marker(segment_id).delete()

    def waiting(self) -> str | None:
        """Who waits for the stream. 1 call."""
        seen = self._cells.waiting_processor().read()
        return None if seen is None else seen.value

    def wait(self, processor: str) -> str:
        """Wait for the stream, unless somebody does; gives who waits. 1 call, 2 if somebody does."""
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
