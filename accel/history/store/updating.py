"""Changing what the owner of a stream wants.

start       the new configuration is stored, marked as under way
state       UPDATING
complete    the mark is taken away; state ACTIVE
"""

from __future__ import annotations

from dataclasses import replace

from accel.errors import InvalidArgument
from accel.history.configuration import ConfigurationRecord, StreamConfiguration
from accel.history.states import StreamState, next_state
from accel.history.store.parts import StreamParts


class Updating:
    """Changes the configuration of one stream. Threads: any.

    Args:
        parts: of the stream.
    """

    def __init__(self, parts: StreamParts) -> None:
        self._parts = parts
        self._cell = parts.cells.configuration()

    def read(self) -> ConfigurationRecord:
        """What the owner wants, and whether a change of it is under way. 1 call."""
        return self._cell.get().value

    def run(self, wanted: StreamConfiguration) -> None:
        """Change the configuration. 8 calls. To be repeated as it is after a crash.

        Raises:
            InvalidArgument: another offset unit, which never changes.
            OperationNotAllowed: another workflow has the stream.
        """

        def updated(now: ConfigurationRecord | None) -> ConfigurationRecord | None:
            if now is None or now == ConfigurationRecord(wanted, updating=True):
                return None
            if now.configuration.offset_unit is not wanted.offset_unit:
                unit = now.configuration.offset_unit.value
                raise InvalidArgument(f"expected the offset unit {unit}, found {wanted.offset_unit.value}")
            return ConfigurationRecord(wanted, updating=True)

        next_state(self._parts.state().value, StreamState.UPDATING)  # refused before anything is written
        self._cell.change(updated)
        self._parts.set_state(StreamState.UPDATING)
        self.finish()

    def finish(self) -> None:
        """End a change that is under way."""
        state = self._parts.state()
        self._cell.change(lambda now: replace(now, updating=False) if now is not None and now.updating else None)
        self._parts.back_to_active(state, StreamState.UPDATING)
