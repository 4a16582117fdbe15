"""What other processes have asked of the process that holds a stream's segments: found by looking, and carried out.

    | found                                       | done                                                              |
    |---------------------------------------------|-------------------------------------------------------------------|
    | a request that waits                        | it is claimed, and carried out                                    |
    | a workflow that has the stream              | carried out, if it was there the last time, too: the process that |
    |                                             | began it died, or waits for a node that has segments open         |
    | a stream that is being sealed               | likewise                                                          |
    | transactions that shall be committed        | committed                                                         |

Every workflow but sealing has a request, so one listing of requests tells of all of them. Those that ended are listed
as long as they are kept, and read once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from uuid import UUID

from accel.errors import NotInHistory, OperationNotAllowed
from accel.history.rules.requests import RequestStatus, WorkflowRequest
from accel.history.rules.states import StreamState
from accel.history.store.parts import StreamParts
from accel.history.store.workflows import Workflows
from loaders.errors import DataConflict

COMMITS_MAX = 100
"""Commits that one look makes; each takes as many transactions as the settings say."""


class Requested:
    """Finds and carries out what was asked of one stream. Threads: any.

    Args:
        parts: of the stream, with a host.
        workflows: its workflows.
        carry_out: carries out a workflow that has the stream, and gives its name.
    """

    def __init__(self, parts: StreamParts, workflows: Workflows, carry_out: Callable[[WorkflowRequest], str]) -> None:
        self._parts = parts
        self._workflows = workflows
        self._carry_out = carry_out
        self._lock = Lock()
        self._ended: set[UUID] = set()
        self._under_way: set[UUID] = set()
        self._was_sealing = False

    def run(self) -> list[str]:
        """Look once, and carry out what is found; gives what that was.

        Calls: 3 if there is nothing: a listing of requests, the commit order, the state. 1 more for each request that
        was not seen ended before.

        Raises:
            HostMissing: there is no host.
            What the workflows raise, but that others have the stream, or its segments: that is left to the next look.
        """
        self._parts.require_host("carry out requests")
        listed = self._parts.cells.request_ids()
        with self._lock:
            known, ended = self._under_way, self._ended & set(listed)
        done: list[str] = []
        under_way: set[UUID] = set()
        for each in listed:
            request = None if each in ended else self._workflows.ownership.read(each)
            if request is None:
                continue
            if request.has_ended:
                ended.add(each)
            elif request.status is RequestStatus.WAITING:
                done += self.carried_out(each)
            elif each in known:
                done += self._helped(request)
            else:
                under_way.add(each)
                continue
            if not request.has_ended:
                under_way.add(each)  # unless it has ended by now: the next look finds that
        with self._lock:
            self._ended, self._under_way = ended, under_way
        return done + self._sealed() + self._committed()

    def carried_out(self, workflow_id: UUID) -> list[str]:
        """Carry out a request that was left; what stands in its way leaves it to the next time."""
        with suppress(OperationNotAllowed, NotInHistory):
            if self._workflows.scales.carry_out_request(workflow_id).status is RequestStatus.DONE:
                return ["scale"]
        return []

    def _committed(self) -> list[str]:
        """Commit the transactions that shall be committed. 1 call if there are none."""
        done: list[str] = []
        with suppress(OperationNotAllowed, DataConflict):
            while len(done) < COMMITS_MAX and self._workflows.transactions.order.read().positions:
                if self._workflows.commits.run().is_empty:
                    break
                done.append("commit")
        return done[:1]

    def _helped(self, request: WorkflowRequest) -> list[str]:
        if request.is_kept:
            return self.carried_out(request.workflow_id)
        running = self._workflows.ownership.running(self._parts.status())
        with suppress(OperationNotAllowed):
            if running is not None and running.workflow_id == request.workflow_id:
                return [self._carry_out(running)]
        return []

    def _sealed(self) -> list[str]:
        is_sealing = self._parts.state() is StreamState.SEALING
        with self._lock:
            is_due, self._was_sealing = is_sealing and self._was_sealing, is_sealing
        with suppress(OperationNotAllowed):
            if is_due:
                self._workflows.ending.seal()
                return ["seal"]
        return []
