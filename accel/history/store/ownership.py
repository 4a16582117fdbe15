"""Ownership of a stream by a workflow: a workflow takes the stream, and releases it at its end.

S3 makes a write conditional on the version of its own key, not of other keys. So the key of the stream's state decides
which workflow has the stream: it holds the state and the workflow's id.

    plan    read the state (ACTIVE, version v), then the records that the plan depends on; refuse an invalid plan
    ask     write the request, a key named by a new id: the whole plan, and v                            create
    take    state := (SCALING, id)                                                        compare-and-set on v
    steps   the steps of the plan; any process that finds the id in the state carries out the same plan
    end     state := ACTIVE                                    compare-and-set on a version that holds the id
    erase   the request

Consequences:

- The plan is valid when it is carried out. Every workflow changes the state's version; if version v is still current
  when the stream is taken, no workflow has run since the plan was drawn up.
- A refused workflow has changed nothing. Until the state is taken, only the request is written, which has no effect.
- A process that finds the stream taken helps, or leaves it. `recover` reads the id, reads the request, and carries the
  plan out, perhaps beside the process that began the workflow.
- A process that is an hour late can end only its own workflow: the state then holds another id, or none. Its steps have
  no effect, since each is one of these (tests/accel/history/store/writes.md):
  created if absent, with content that follows from the plan and from records that never change;
  monotonic (the current epoch, the chunk of history, the index of times);
  a compare-and-set on a record that names its last workflow (truncation, configuration);
  or a call that the host accepts twice.
- The request is read **before** the state when it is to be erased as spent, and **after** it when it is to be carried
  out. If the state names a workflow without a request, the workflow has ended meanwhile: the state is read again.

A request without a state, or a state without a request, never outlives `recover` (`Recovering`).

Source: docs/explanation/history.md, "Workflow ownership". tests/accel/history/store/test_interleavings.py checks the
argument.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias
from uuid import UUID

from accel.errors import IllegalState, NotInHistory, OperationNotAllowed, Sought
from accel.history.rules.requests import Plan, RequestStatus, WorkflowRequest, is_spent
from accel.history.rules.states import StreamState, StreamStatus, with_workflow, without_workflow
from accel.history.store.parts import StreamParts
from loaders.errors import DataConflict, StoreError
from loaders.tables import Versioned

PlanMaker: TypeAlias = Callable[[UUID], Plan | None]
"""Draws up the plan of a workflow with this id; None if there is nothing to do. Raises if the workflow is refused."""

Adopt: TypeAlias = Callable[[WorkflowRequest], object]
"""Checks a workflow of the same kind that has the stream; raises unless the caller may carry it out instead."""


@dataclass(frozen=True, slots=True, eq=False)
class Ownership:
    """Takes one stream for workflows, and releases it. Threads and processes: any.

    Args:
        parts: the parts of the stream.
    """

    _parts: StreamParts

    def take(self, workflow: StreamState, plan: PlanMaker, adopt: Adopt) -> WorkflowRequest | None:
        """Take the stream for a workflow, or return one of its kind that is under way, to be carried out instead.

        Calls: 3, and those of the plan; 3 more for each workflow that ran meanwhile.

        Args:
            workflow: the state of the stream during the workflow.
            plan: draws up the plan of the workflow.
            adopt: decides about a workflow of this kind that is under way.

        Returns:
            The request to carry out and to `end`; None if there is nothing to do.

        Raises:
            OperationNotAllowed: another workflow has the stream, or other workflows took it first in all attempts. The
                stream was not changed.
            AmbiguousWrite: the reply was lost, and later writes hide which workflow had the stream.
            AccelError: as `plan` and `adopt`; the stream was not changed.
        """
        for _ in self._parts.store.backoff.attempts():
            versioned = self._parts.status()
            running = self.running(versioned)
            if running is not None and running.workflow is workflow:
                adopt(running)
                return running
            if versioned.value.workflow_id is None or running is not None:
                workflow_id = self._parts.store.drawn_id()
                status = with_workflow(versioned.value, workflow, workflow_id)
                planned = plan(workflow_id)
                if planned is None:
                    return None
                request = WorkflowRequest(workflow_id, planned, base=versioned.version.nonce)
                if self._is_taken(request, status, versioned):
                    return request
        raise self._others_first()

    def running(self, versioned: Versioned[StreamStatus]) -> WorkflowRequest | None:
        """The workflow in a status; None if it has none, or one that has ended since. 1 call if it has one."""
        workflow_id = versioned.value.workflow_id
        return None if workflow_id is None else self.read(workflow_id)

    def read(self, workflow_id: UUID) -> WorkflowRequest | None:
        """A request; None if there is none, or if it has ended and is not kept. 1 call."""
        stored = self._parts.keys.request(workflow_id).read()
        return None if stored is None else stored.value

    def end(self, request: WorkflowRequest) -> None:
        """Release the stream, if this workflow still has it. 3 calls; 2 more for a request that is kept."""
        key = self._parts.keys.request(request.workflow_id)
        if request.is_kept:
            key.change(lambda now: None if now is None or now.has_ended else replace(now, status=RequestStatus.DONE))
        self._parts.keys.state().change(lambda now: None if now is None else without_workflow(now, request.workflow_id))
        if not request.is_kept:
            with suppress(StoreError):  # the stream is released; `recover` erases a remaining request
                key.erase()

    # Requests that are carried out by another process

    def ask(self, plan: Plan) -> WorkflowRequest:
        """Store a request for a process with a host. 1 call."""
        request = WorkflowRequest(self._parts.store.drawn_id(), plan, RequestStatus.WAITING, is_kept=True)
        return self._parts.keys.request(request.workflow_id).create_if_absent(request).value

    def claim(self, workflow_id: UUID, plan: Callable[[WorkflowRequest], Plan | str]) -> tuple[WorkflowRequest, bool]:
        """Take the stream for a stored request, unless the request has ended. 4 calls, and those of the plan.

        Two processes may claim a request at once. Both draw up the same plan if they read the same version of the
        status; otherwise the process that read the older version cannot take the stream any more.

        Args:
            workflow_id: the id of the request.
            plan: draws up its plan from the present state of the stream; a text refuses the request for good.

        Returns:
            The request, and whether it has the stream and is to be carried out.

        Raises:
            NotInHistory: there is no such request.
            OperationNotAllowed: another workflow has the stream.
        """
        key = self._parts.keys.request(workflow_id)
        for _ in self._parts.store.backoff.attempts():
            stored = key.read()
            if stored is None:
                found = f"none with id {workflow_id}"
                raise NotInHistory(f"expected a request of this stream, found {found}", Sought.REQUEST)
            if stored.value.has_ended:
                return stored.value, False
            versioned = self._parts.status()
            if versioned.value.workflow_id == workflow_id:
                # Read again: the request was claimed between both reads, perhaps with another plan.
                claimed = self.read(workflow_id)
                return (stored.value, False) if claimed is None else (claimed, not claimed.has_ended)
            wanted = self._claimed(versioned.value, stored.value)
            if isinstance(wanted, str):
                stored = self._planned(stored, wanted, versioned.version.nonce)
            elif stored.value.base != versioned.version.nonce:
                stored = self._planned(stored, plan(stored.value), versioned.version.nonce)
            if stored is not None and stored.value.has_ended:
                return stored.value, False
            if stored is not None and not isinstance(wanted, str) and self._is_written(wanted, versioned):
                return stored.value, True
        raise self._others_first()

    def erase_spent(self, workflow_id: UUID) -> bool:
        """Erase a request that can have no effect any more; return whether it was erased. 3 calls at most."""
        stored = self.read(workflow_id)
        if stored is None:
            return False
        now = self._parts.status()  # read after the request: see `is_spent`
        if stored.is_kept or not is_spent(stored, now.version.nonce, now.value.workflow_id):
            return False
        self._parts.keys.request(workflow_id).erase()
        return True

    # Inside

    def _others_first(self) -> OperationNotAllowed:
        attempts = self._parts.store.backoff.settings.attempts
        return OperationNotAllowed(f"expected to take the stream, found other workflows first in {attempts} attempts")

    def _claimed(self, now: StreamStatus, request: WorkflowRequest) -> StreamStatus | str:
        """The status to write for a stored request; a text, the reason of its refusal, if the stream is sealed."""
        try:
            return with_workflow(now, request.workflow, request.workflow_id)
        except IllegalState as error:
            return str(error)

    def _planned(
        self, stored: Versioned[WorkflowRequest], plan: Plan | str, base: bytes
    ) -> Versioned[WorkflowRequest] | None:
        """Write the plan or the refusal into a request; return None if another process wrote the request first."""
        if isinstance(plan, str):
            wanted = replace(stored.value, status=RequestStatus.REFUSED, reason=plan)
        else:
            wanted = replace(stored.value, plan=plan, status=RequestStatus.CLAIMED, base=base)
        try:
            return self._parts.keys.request(stored.value.workflow_id).write(wanted, stored)
        except DataConflict:
            return None

    def _is_taken(self, request: WorkflowRequest, status: StreamStatus, versioned: Versioned[StreamStatus]) -> bool:
        key = self._parts.keys.request(request.workflow_id)
        key.create_if_absent(request)
        if self._is_written(status, versioned):
            return True
        # Only after a certain loss: a write with an unknown result may still take the stream for this request.
        with suppress(StoreError):  # `recover` erases it
            key.erase()
        return False

    def _is_written(self, status: StreamStatus, versioned: Versioned[StreamStatus]) -> bool:
        try:
            self._parts.keys.state().write(status, versioned)
        except DataConflict:
            return False
        return True
