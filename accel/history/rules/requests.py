"""The request of a workflow: the plan of the workflow, written before the workflow takes the stream.

A request is a separate key. It holds the whole plan of the workflow, computed and validated before the stream changes,
and it does not change once the workflow has the stream. So all processes that find the workflow in the stream's status
carry out the same plan, whichever process drew it up.

    | status  | meaning                                                                    | follows         |
    |---------|----------------------------------------------------------------------------|-----------------|
    | WAITING | written by a process without a host; not planned yet                       | CLAIMED         |
    | CLAIMED | planned on one version of the stream's status, `base`                      | DONE, or itself |
    | DONE    | carried out                                                                |                 |
    | REFUSED | not carried out, and never will be; the stream was not changed             |                 |

A claimed request has the stream, or can take it, only while the status contains its id or still has version `base`;
once the status has changed, the request has no effect. Requests of processes with a host are erased at their end.
Requests of processes without a host (`is_kept`) keep their last status, so that the caller can read it.

Threads: all values are immutable.

Source: docs/explanation/history.md, "Workflow ownership".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, unique
from typing import Final, TypeAlias, TypeVar
from uuid import UUID

from accel.history.rules.configuration import StreamConfiguration
from accel.history.rules.epochs import EpochTransition
from accel.history.rules.retention import TruncationRecord
from accel.history.rules.states import StreamState
from accel.history.rules.transactions import CommittingTransactions

REQUESTS_KEPT_MAX: Final = 100
"""Number of ended requests of one stream that are kept; `recover` erases the oldest beyond that."""

REASON_SIZE_MAX: Final = 1_000
"""Maximum number of characters of the reason of a refusal."""


@dataclass(frozen=True, slots=True)
class ScalePlan:
    """A scale.

    Args:
        transition: the epoch, the segments to seal, and the new key ranges.
        is_manual: whether a person requested it; it then continues with duplicates that replaced its segments.

    Raises:
        ValueError: the empty transition.
    """

    transition: EpochTransition
    is_manual: bool = True

    def __post_init__(self) -> None:
        if self.transition.is_empty:
            raise ValueError("expected a transition to carry out, found the empty transition")


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """A commit.

    Args:
        committing: the transactions; with the active epoch if the commit rolls from it.
        into_epoch: the epoch whose segments take the data, unless the commit rolls.
        time_ms: start of the first duplicate epoch of a rolling commit, milliseconds since 1970.

    Raises:
        ValueError: no transactions, or a number below 0.
    """

    committing: CommittingTransactions
    into_epoch: int
    time_ms: int

    def __post_init__(self) -> None:
        if self.committing.is_empty or self.into_epoch < 0 or self.time_ms < 0:
            raise ValueError(f"expected transactions to commit into an epoch at a time, found {self}")


@dataclass(frozen=True, slots=True)
class TruncationPlan:
    """A truncation.

    Args:
        record: the truncation record to write; it contains this workflow's id.
        base_id: the workflow id in the record that it replaces.

    Raises:
        ValueError: a record without a truncation under way, without a workflow's id, or with the id `base_id`.
    """

    record: TruncationRecord
    base_id: UUID | None

    def __post_init__(self) -> None:
        if not self.record.updating or self.record.workflow_id in (None, self.base_id):
            raise ValueError(f"expected a truncation that begins, found {self}")


@dataclass(frozen=True, slots=True)
class UpdatePlan:
    """Another configuration.

    Args:
        configuration: the new configuration.
        base_id: the change that wrote the replaced configuration.
    """

    configuration: StreamConfiguration
    base_id: UUID | None


Plan: TypeAlias = ScalePlan | CommitPlan | TruncationPlan | UpdatePlan

P = TypeVar("P", ScalePlan, CommitPlan, TruncationPlan, UpdatePlan)

WORKFLOWS: Final[dict[type[Plan], StreamState]] = {
    ScalePlan: StreamState.SCALING,
    CommitPlan: StreamState.COMMITTING_TXN,
    TruncationPlan: StreamState.TRUNCATING,
    UpdatePlan: StreamState.UPDATING,
}
"""The state of the stream during a workflow; during a commit, a stream that is being sealed stays SEALING."""


@unique
class RequestStatus(Enum):
    """The status of a request; see the docstring of this module."""

    WAITING = "waiting"
    CLAIMED = "claimed"
    DONE = "done"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class WorkflowRequest:
    """The request of one workflow.

    Args:
        workflow_id: a unique random id, part of its key.
        plan: the plan.
        status: the status of the request.
        base: the nonce of the version of the stream's status that the plan was drawn up on; empty while it waits.
        is_kept: whether the request is kept after its end.
        reason: the reason of its refusal.

    Raises:
        ValueError: a claim without a base, or a reason without a refusal.
    """

    workflow_id: UUID
    plan: Plan
    status: RequestStatus = RequestStatus.CLAIMED
    base: bytes = b""
    is_kept: bool = False
    reason: str = ""

    def __post_init__(self) -> None:
        if self.status is RequestStatus.CLAIMED and not self.base:
            raise ValueError(f"expected a claim on a version of the status, found none: {self.workflow_id}")
        if self.reason and self.status is not RequestStatus.REFUSED:
            raise ValueError(f"expected no reason for a request that is {self.status.value}, found {self.reason!r}")

    @property
    def workflow(self) -> StreamState:
        """The state of the stream during its workflow."""
        return WORKFLOWS[type(self.plan)]

    def plan_of(self, kind: type[P]) -> P:
        """The plan, if it is of the kind that the caller carries out.

        Raises:
            TypeError: the plan is of another kind.
        """
        if not isinstance(self.plan, kind):
            raise TypeError(f"expected a {kind.__name__}, found {self.plan}")
        return self.plan

    @property
    def has_ended(self) -> bool:
        """Whether its status is final."""
        return self.status in (RequestStatus.DONE, RequestStatus.REFUSED)


def is_spent(request: WorkflowRequest, status_nonce: bytes, workflow_id: UUID | None) -> bool:
    """Whether a claimed request can have no effect any more, and is not being carried out.

    Args:
        request: the request, read **before** the status.
        status_nonce: the nonce of the version of the stream's status.
        workflow_id: the workflow that has the stream.
    """
    is_claimed = request.status is RequestStatus.CLAIMED
    return is_claimed and request.base != status_nonce and request.workflow_id != workflow_id
