"""Finishing workflows that other processes began and did not end, or requested.

`Recovering` is for workflows of processes that died:

    | there is                                       | then                                                          |
    |------------------------------------------------|---------------------------------------------------------------|
    | state CREATING                                 | the creation is finished                                      |
    | a state with a workflow's id                   | the workflow's request is read, and carried out               |
    | state SEALING                                  | the stream is sealed                                          |
    | a request that waits, and a host               | it is carried out                                             |
    | a request that can have no effect any more     | it is erased                                                  |

All plans are in the tables: no process needs the memory of another one. Recovery may run at any time, beside working
processes, since every step of every workflow may be done twice, and late. Without a host it reads, and raises
HostMissing if a workflow must be carried out.

`Requested` is for the process that holds a stream's segments; the process looks for requests from time to time:

    | there is                                    | then                                                              |
    |---------------------------------------------|-------------------------------------------------------------------|
    | a request that waits                        | it is claimed, and carried out                                    |
    | a workflow that has the stream              | carried out, if the previous look found it, too: the process that |
    |                                             | began it died, or waits for a node that has segments open         |
    | a stream that is being sealed               | sealed, under the same condition                                  |
    | transactions to commit                      | committed                                                         |
    | expired transactions                        | aborted, once a minute: their writers are dead (`ExpirySweep`)    |
    | fewer segments than the configured minimum  | the widest are split, in an active stream                         |

Every workflow but sealing has a request, so one listing of requests finds all workflows. Ended requests are listed as
long as they are kept, and read once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import Final
from uuid import UUID

from accel.errors import IllegalState, NotInHistory, OperationNotAllowed, ScaleConflict, ScalePrecondition, Sought
from accel.history.rules.requests import REQUESTS_KEPT_MAX, RequestStatus, ScalePlan, WorkflowRequest
from accel.history.rules.states import StreamState
from accel.history.store.cut_reading import CutReading
from accel.history.store.epoch_store import EpochReading, EpochWriting
from accel.history.store.lifecycle import Creating, StreamEnding, Updating
from accel.history.store.parts import StreamParts
from accel.history.store.retention_workflow import RetentionWorkflow
from accel.history.store.transaction_store import ExpirySweep, TransactionStore
from accel.history.store.workflows import CommitWorkflow, Ownership, ScaleWorkflow, TruncationWorkflow
from loaders.errors import DataConflict


@dataclass(frozen=True, slots=True, eq=False)
class Workflows:
    """Queries and workflows of one stream. Threads: any."""

    ownership: Ownership
    epochs: EpochReading
    cuts: CutReading
    writing: EpochWriting
    creating: Creating
    updating: Updating
    scales: ScaleWorkflow
    transactions: TransactionStore
    commits: CommitWorkflow
    truncations: TruncationWorkflow
    retention: RetentionWorkflow
    ending: StreamEnding

    @classmethod
    def of(cls, parts: StreamParts) -> Workflows:
        """The queries and workflows of a stream."""
        ownership = Ownership(parts)
        epochs, writing = EpochReading(parts), EpochWriting(parts)
        cuts = CutReading(parts, epochs)
        transactions = TransactionStore(parts, epochs)
        commits = CommitWorkflow(parts, epochs, writing, transactions, ownership)
        truncations = TruncationWorkflow(parts, cuts, ownership)
        return cls(
            ownership=ownership,
            epochs=epochs,
            cuts=cuts,
            writing=writing,
            creating=Creating(parts, writing),
            updating=Updating(parts, ownership),
            scales=ScaleWorkflow(parts, epochs, writing, ownership),
            transactions=transactions,
            commits=commits,
            truncations=truncations,
            retention=RetentionWorkflow(parts, epochs, cuts, truncations),
            ending=StreamEnding(parts, epochs, cuts, writing, transactions, commits),
        )


ROUNDS_MAX: Final = 100
"""Maximum number of workflows that one call finishes while other processes begin new ones."""

NAMES: Final = {
    StreamState.SCALING: "scale",
    StreamState.TRUNCATING: "truncate",
    StreamState.COMMITTING_TXN: "commit",
    StreamState.UPDATING: "update",
    StreamState.SEALING: "seal",
}

ERROR_SIZE_MAX: Final = 2_000
"""Maximum number of characters of an error that are kept."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """Finished workflows and errors of a recovery. Threads: one, until it is returned.

    Attributes:
        done: names of finished workflows, by scope and name of the stream, or by scope.
        failed: errors of streams and scopes that could not be recovered, likewise.
    """

    done: dict[str, list[str]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether there were no errors."""
        return not self.failed

    @contextmanager
    def collected(self, what: str) -> Iterator[None]:
        """Record an error instead of raising it; a scope that was deleted meanwhile is no error.

        Args:
            what: the key in `failed`: scope and name of a stream, a scope, or a name of other work.
        """
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a host may raise anything, and other streams are unaffected
            if isinstance(error, NotInHistory) and error.sought is Sought.SCOPE:
                return
            self.failed[what] = f"{type(error).__name__}: {error}"[:ERROR_SIZE_MAX]


class Recovering:
    """Finishes workflows of one stream. Threads: any.

    Args:
        parts: the parts of the stream.
        workflows: its workflows.
    """

    def __init__(self, parts: StreamParts, workflows: Workflows) -> None:
        self._parts = parts
        self._keys = parts.keys
        self._workflows = workflows
        self.requested = Requested(parts, workflows, self.carry_out)

    def run(self) -> list[str]:
        """Finish unfinished workflows; return their names. 5 calls if there are none.

        Raises:
            OperationNotAllowed: other processes begin one workflow after the other.
            HostMissing: a workflow must be carried out, and there is no host.
        """
        versioned = self._keys.state().read()
        if versioned is None or versioned.value.state is StreamState.CREATING:
            self._workflows.creating.finish(self._parts.first_number())
            return ["create"]
        done = self._finish_owner()
        done += self._carry_out_requests()
        self._workflows.writing.show(self._workflows.epochs.current())
        self._workflows.writing.merge_times()
        self._workflows.writing.erase_merged()
        return done

    # The workflow that has the stream

    def _finish_owner(self) -> list[str]:
        done: list[str] = []
        for _ in range(ROUNDS_MAX):
            versioned = self._parts.status()
            if versioned.value.state is StreamState.SEALING:
                self._workflows.ending.seal()
                return [*done, "seal"]
            if versioned.value.workflow_id is None:
                return done
            running = self._workflows.ownership.running(versioned)
            if running is not None:
                done.append(self.carry_out(running))
            elif self._parts.status() == versioned:
                raise IllegalState(
                    f"expected the request of workflow {versioned.value.workflow_id}, "
                    f"which has {self._parts.stream}, found none: another program deleted it; "
                    "see docs/operations/repair.md, 'A record of a stream'"
                )
        raise OperationNotAllowed("expected workflows of other processes to end, found new ones: try again")

    def carry_out(self, request: WorkflowRequest) -> str:
        """Carry out a workflow that has the stream; return its name, and whether it was given up."""
        if request.workflow is not StreamState.UPDATING:
            self._parts.require_host(NAMES[request.workflow])
        act: dict[StreamState, Callable[[WorkflowRequest], object]] = {
            StreamState.SCALING: self._workflows.scales.carry_out,
            StreamState.TRUNCATING: self._workflows.truncations.finish,
            StreamState.COMMITTING_TXN: self._workflows.commits.carry_out,
            StreamState.UPDATING: self._workflows.updating.carry_out,
        }
        is_given_up = act[request.workflow](request) is False
        return f"{NAMES[request.workflow]}, given up" if is_given_up else NAMES[request.workflow]

    # Requests

    def _carry_out_requests(self) -> list[str]:
        """Carry out waiting requests, if there is a host; erase requests without effect, and the oldest ended ones."""
        ended: list[tuple[int, UUID]] = []
        done: list[str] = []
        for workflow_id in self._keys.request_ids():
            request = self._workflows.ownership.read(workflow_id)
            if request is None or self._workflows.ownership.erase_spent(workflow_id):
                continue
            if request.has_ended:
                ended.append((_asked_ms(request), workflow_id))
            elif request.is_kept and self._parts.has_host:
                done += self.requested.carried_out(workflow_id)
        for _, workflow_id in sorted(ended)[:-REQUESTS_KEPT_MAX]:
            # A request that is DONE may still have the stream: its last step may be missing.
            if self._parts.status().value.workflow_id != workflow_id:
                self._keys.request(workflow_id).erase()
        return done


def _asked_ms(request: WorkflowRequest) -> int:
    return request.plan.transition.time_ms if isinstance(request.plan, ScalePlan) else 0


COMMITS_MAX = 100
"""Maximum number of commits in one run; the settings limit the transactions of each."""


class Requested:
    """Finds and carries out the requests of one stream. Threads: any.

    Args:
        parts: the parts of the stream, with a host.
        workflows: its workflows.
        carry_out: carries out a workflow that has the stream, and returns its name.
    """

    def __init__(self, parts: StreamParts, workflows: Workflows, carry_out: Callable[[WorkflowRequest], str]) -> None:
        self._parts = parts
        self._workflows = workflows
        self._carry_out = carry_out
        self._lock = Lock()
        self._ended: set[UUID] = set()
        self._under_way: set[UUID] = set()
        self._was_sealing = False
        self._expiry = ExpirySweep(parts, workflows.transactions)

    def run(self) -> list[str]:
        """Look for work once, and carry it out; return the names of the workflows.

        Calls: 4 if there is no work: a listing of requests, the commit order, the state, the configuration. 1 more if
        the minimum of segments is above 1, and for each request that no earlier look found ended; once a minute those
        of `ExpirySweep`.

        Raises:
            HostMissing: there is no host.
            AccelError: as the workflows, except OperationNotAllowed: the next look tries again.
        """
        self._parts.require_host("carry out requests")
        listed = self._parts.keys.request_ids()
        with self._lock:
            known, ended = self._under_way, self._ended & set(listed)
        done: list[str] = []
        under_way: set[UUID] = set()
        for workflow_id in listed:
            request = None if workflow_id in ended else self._workflows.ownership.read(workflow_id)
            if request is None:
                continue
            if request.has_ended:
                ended.add(workflow_id)
            elif request.status is RequestStatus.WAITING:
                done += self.carried_out(workflow_id)
            elif workflow_id in known:
                done += self._helped(request)
            else:
                under_way.add(workflow_id)
                continue
            if not request.has_ended:
                under_way.add(workflow_id)  # it may have ended by now: the next look finds that
        with self._lock:
            self._ended, self._under_way = ended, under_way
        done += self._sealed() + self._committed() + self._split()
        self._expiry.run()
        return done

    def carried_out(self, workflow_id: UUID) -> list[str]:
        """Carry out a waiting request; if another workflow has the stream, the next look tries again."""
        with suppress(OperationNotAllowed, NotInHistory):
            if self._workflows.scales.carry_out_request(workflow_id).status is RequestStatus.DONE:
                return ["scale"]
        return []

    def _committed(self) -> list[str]:
        """Commit the transactions that await it. 1 call if there are none."""
        done: list[str] = []
        with suppress(OperationNotAllowed, DataConflict):
            while len(done) < COMMITS_MAX and self._workflows.transactions.order.read().positions:
                if self._workflows.commits.run().is_empty:
                    break
                done.append("commit")
        return done[:1]

    def _split(self) -> list[str]:
        """Split segments until the stream has its minimum."""
        was_changed = (OperationNotAllowed, IllegalState, ScalePrecondition, ScaleConflict, DataConflict)
        with suppress(*was_changed):  # another workflow was first, or another node has to do its part
            return ["scale"] if self._workflows.scales.reach_minimum() else []
        return []

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
