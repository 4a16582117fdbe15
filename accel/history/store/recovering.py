"""Finishing what a process left behind that died in the middle of a workflow.

    | found                                          | done                                                          |
    |------------------------------------------------|---------------------------------------------------------------|
    | state CREATING                                 | the creation is finished                                      |
    | a state that names a workflow                  | its request is read, and carried out                          |
    | a state of a workflow without a name           | ACTIVE again, after what was stored step by step is carried   |
    |                                                | out: a transition, a commit or a truncation                   |
    | such a record, and state ACTIVE                | likewise                                                      |
    | state SEALING                                  | the stream is sealed                                          |
    | a request that waits, and a host               | it is carried out                                             |
    | a request that can have no effect any more     | erased                                                        |

Everything that is found is in the tables: no process has to remember what another one did. Recovery may run at any
time, beside processes that work, since every step of every workflow may be done twice, and late. Without a host it
reads, and raises HostMissing where something is to be carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from accel.errors import IllegalState, NotInHistory, OperationNotAllowed, Sought
from accel.history.rules.requests import REQUESTS_KEPT_MAX, ScalePlan, WorkflowRequest
from accel.history.rules.states import StreamState, StreamStatus
from accel.history.store.parts import StreamParts
from accel.history.store.requested import Requested
from accel.history.store.workflows import Workflows

ROUNDS_MAX: Final = 100
"""Workflows that are finished one after the other, while others begin new ones."""

NAMES: Final = {
    StreamState.SCALING: "scale",
    StreamState.TRUNCATING: "truncate",
    StreamState.COMMITTING_TXN: "commit",
    StreamState.UPDATING: "update",
    StreamState.SEALING: "seal",
}

ERROR_SIZE_MAX: Final = 2_000
"""Characters of an error that are kept."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What was finished, and what could not be. Threads: one, until it is returned.

    Attributes:
        done: what was finished, by scope and name of the stream, or by scope.
        failed: the error of each one that could not be recovered, likewise.
    """

    done: dict[str, list[str]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether nothing failed."""
        return not self.failed

    @contextmanager
    def collected(self, what: str) -> Iterator[None]:
        """Note an error and go on; a scope that was deleted meanwhile is none.

        Args:
            what: scope and name of a stream, a scope, or what else was under way.
        """
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a host may raise anything, and the others have nothing to do with it
            if isinstance(error, NotInHistory) and error.sought is Sought.SCOPE:
                return
            self.failed[what] = f"{type(error).__name__}: {error}"[:ERROR_SIZE_MAX]


class Recovering:
    """Finishes workflows of one stream. Threads: any.

    Args:
        parts: of the stream.
        workflows: what it may stand in the middle of.
    """

    def __init__(self, parts: StreamParts, workflows: Workflows) -> None:
        self._parts = parts
        self._cells = parts.cells
        self._workflows = workflows
        self._requested = Requested(parts, workflows, self.carry_out)

    def run(self) -> list[str]:
        """Finish what is unfinished; gives what that was. 12 calls if nothing is.

        Raises:
            OperationNotAllowed: others begin one workflow after the other.
            HostMissing: something is to be carried out, and there is no host.
        """
        seen = self._cells.state().read()
        if seen is None or seen.value.state is StreamState.CREATING:
            self._workflows.creating.finish(self._parts.first_number())
            return ["create"]
        done = self._finish_owner()
        done += [name for name, finish in self._by_hand() if finish()]
        done += self._carry_out_requests()
        self._workflows.writing.show(self._workflows.epochs.current())
        self._workflows.writing.merge_times()
        self._workflows.writing.erase_merged()
        return done

    # The workflow that has the stream

    def _finish_owner(self) -> list[str]:
        done: list[str] = []
        for _ in range(ROUNDS_MAX):
            seen = self._parts.status()
            if seen.value.state is StreamState.SEALING:
                self._workflows.ending.seal()
                return [*done, "seal"]
            if seen.value.workflow_id is None:
                return done
            running = self._workflows.ownership.running(seen)
            if running is not None:
                done.append(self.carry_out(running))
            elif self._parts.status() == seen:
                raise IllegalState(
                    f"expected the request of workflow {seen.value.workflow_id}, which has {self._parts.stream}, found"
                    " none: it was deleted from outside; docs/history.md, 'Repair', says what can be done"
                )
        raise OperationNotAllowed("expected workflows of others to end, found one after the other: try again")

    def carry_out(self, request: WorkflowRequest) -> str:
        """Carry out a workflow that has the stream; gives its name."""
        if request.workflow is not StreamState.UPDATING:
            self._parts.require_host(NAMES[request.workflow])
        act: dict[StreamState, Callable[[WorkflowRequest], object]] = {
            StreamState.SCALING: self._workflows.scales.carry_out,
            StreamState.TRUNCATING: self._workflows.truncations.carry_out,
            StreamState.COMMITTING_TXN: self._workflows.commits.carry_out,
            StreamState.UPDATING: self._workflows.updating.carry_out,
        }
        act[request.workflow](request)
        return NAMES[request.workflow]

    # What was stored step by step

    def _by_hand(self) -> list[tuple[str, Callable[[], bool]]]:
        return [
            ("scale", self._scale),
            ("truncate", self._truncate),
            ("commit", self._commit),
            ("update", self._update),
        ]

    def _scale(self) -> bool:
        if self._workflows.scales.stored().value.is_empty or self._is_sealed():
            return self._left(StreamState.SCALING)
        self._parts.require_host("scale")
        with suppress(IllegalState):  # dropped: the stream has moved on
            self._workflows.scales.finish_submitted()
        self._parts.leave_by_hand(StreamState.SCALING)
        return True

    def _truncate(self) -> bool:
        if not self._workflows.epochs.truncation().updating:
            return self._left(StreamState.TRUNCATING)
        if self._is_sealed():
            self._workflows.truncations.complete()
            return True
        self._parts.require_host("truncate")
        return self._workflows.truncations.finish_begun()

    def _commit(self) -> bool:
        if self._workflows.commits.stored().value.is_empty:
            return self._left(StreamState.COMMITTING_TXN)
        self._workflows.commits.run()
        return True

    def _update(self) -> bool:
        return self._left(StreamState.UPDATING)

    def _is_sealed(self) -> bool:
        return self._parts.state() is StreamState.SEALED

    def _left(self, workflow: StreamState) -> bool:
        """End a workflow without a name that has nothing left to do but that."""
        if self._parts.status().value != StreamStatus(workflow):
            return False
        self._parts.leave_by_hand(workflow)
        return True

    # Requests

    def _carry_out_requests(self) -> list[str]:
        """Carry out requests that wait, if there is a host; erase those of no effect, and the oldest that ended."""
        ended: list[tuple[int, UUID]] = []
        done: list[str] = []
        for each in self._cells.request_ids():
            request = self._workflows.ownership.read(each)
            if request is None or self._workflows.ownership.erase_spent(each):
                continue
            if request.has_ended:
                ended.append((_asked_ms(request), each))
            elif request.is_kept and self._parts.has_host:
                done += self._requested.carried_out(each)
        for _, each in sorted(ended)[:-REQUESTS_KEPT_MAX]:
            # Its last step may be missing: it is done, and still has the stream.
            if self._parts.status().value.workflow_id != each:
                self._cells.request(each).erase()
        return done


def _asked_ms(request: WorkflowRequest) -> int:
    return request.plan.transition.time_ms if isinstance(request.plan, ScalePlan) else 0
