"""Changing what the owner of a stream wants.

take        the plan is the new configuration; state UPDATING         see `ownership`
write       it replaces the configuration that was there when the plan was drawn up
end         state ACTIVE
"""

from __future__ import annotations

from uuid import UUID

from accel.errors import InvalidArgument, OperationNotAllowed
from accel.history.rules.configuration import ConfigurationRecord, StreamConfiguration
from accel.history.rules.requests import UpdatePlan, WorkflowRequest
from accel.history.rules.states import StreamState
from accel.history.store.ownership import Ownership
from accel.history.store.parts import StreamParts


class Updating:
    """Changes the configuration of one stream. Threads: any.

    Args:
        parts: of the stream.
        ownership: takes the stream.
    """

    def __init__(self, parts: StreamParts, ownership: Ownership) -> None:
        self._ownership = ownership
        self._cell = parts.cells.configuration()

    def read(self) -> ConfigurationRecord:
        """What the owner wants, and which change wrote it. 1 call."""
        return self._cell.get().value

    def run(self, wanted: StreamConfiguration) -> None:
        """Change the configuration. 10 calls. To be repeated as it is after a crash.

        Raises:
            InvalidArgument: another offset unit, which never changes; nothing was changed.
            OperationNotAllowed: another workflow has the stream; likewise.
        """

        def plan(_: UUID) -> UpdatePlan:
            now = self.read()
            if now.configuration.offset_unit is not wanted.offset_unit:
                unit = now.configuration.offset_unit.value
                raise InvalidArgument(f"expected the offset unit {unit}, found {wanted.offset_unit.value}")
            return UpdatePlan(wanted, now.workflow_id)

        def adopt(running: WorkflowRequest) -> None:
            if running.plan_of(UpdatePlan).configuration != wanted:
                raise OperationNotAllowed("expected to change the configuration alone, found another change under way")

        taken = self._ownership.take(StreamState.UPDATING, plan, adopt)
        if taken is not None:
            self.carry_out(taken)

    def carry_out(self, request: WorkflowRequest) -> None:
        """Write the configuration of a change that has the stream. May be repeated at any time. 5 calls."""
        plan = request.plan_of(UpdatePlan)
        wanted = ConfigurationRecord(plan.configuration, request.workflow_id)
        self._cell.change(lambda now: wanted if now is not None and now.workflow_id == plan.base_id else None)
        self._ownership.end(request)
