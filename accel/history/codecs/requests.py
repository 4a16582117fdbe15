"""The bytes of the request of a workflow.

| field       | meaning                                                                                        |
|-------------|------------------------------------------------------------------------------------------------|
| workflow_id | 16 bytes                                                                                       |
| status      | name of a `RequestStatus`                                                                      |
| base        | nonce of a version of the stream's status, 16 bytes; empty while the request waits             |
| is_kept     | whether its last status stays                                                                  |
| reason      | of a refusal, otherwise empty                                                                  |
| workflow    | name of the state that the workflow takes the stream to; decides which fields below count      |
| record      | what is to be done, in a form of its own: epoch-transition, committing-transactions,           |
|             | truncation or configuration                                                                    |
| base_id     | 16 bytes, or empty: what the record names that a truncation or a configuration replaces        |
| into_epoch  | of a commit: the epoch whose segments take the data; otherwise 0                               |
| time_ms     | of a commit: when its first duplicate epoch begins; otherwise 0                                |
| is_manual   | of a scale: whether a person asked for it; otherwise true                                      |
| is_submitted| of a scale or commit: whether a key of the stream holds it, and is emptied at the end          |
"""

from __future__ import annotations

from typing import Final

import msgspec

from accel.history.codecs.cuts import TRUNCATION
from accel.history.codecs.epochs import EPOCH_TRANSITION
from accel.history.codecs.history_form import HistoryForm
from accel.history.codecs.numbers import checked, member, optional_uuid, optional_uuid_bytes
from accel.history.codecs.streams import CONFIGURATION
from accel.history.codecs.transactions import COMMITTING_TRANSACTIONS
from accel.history.rules.configuration import ConfigurationRecord
from accel.history.rules.ids import EPOCH_MAX
from accel.history.rules.requests import (
    REASON_SIZE_MAX,
    CommitPlan,
    Plan,
    RequestStatus,
    ScalePlan,
    TruncationPlan,
    UpdatePlan,
    WorkflowRequest,
)
from accel.history.rules.states import StreamState


class StoredRequest(msgspec.Struct, frozen=True):
    """The stored fields of a `WorkflowRequest`."""

    workflow_id: bytes
    status: str
    base: bytes
    is_kept: bool
    reason: str
    workflow: str
    record: bytes
    base_id: bytes = b""
    into_epoch: int = 0
    time_ms: int = 0
    is_manual: bool = True
    is_submitted: bool = False


def _stored_request(request: WorkflowRequest) -> StoredRequest:
    checked("characters of a reason", len(request.reason), 0, REASON_SIZE_MAX)
    return msgspec.structs.replace(
        _stored_plan(request.plan),
        workflow_id=request.workflow_id.bytes,
        status=request.status.name,
        base=request.base,
        is_kept=request.is_kept,
        reason=request.reason,
        workflow=request.workflow.name,
    )


def _stored_plan(plan: Plan) -> StoredRequest:
    empty = StoredRequest(b"", "", b"", is_kept=False, reason="", workflow="", record=b"")
    if isinstance(plan, ScalePlan):
        record = EPOCH_TRANSITION.encode(plan.transition)
        own: dict[str, object] = {"is_manual": plan.is_manual, "is_submitted": plan.is_submitted}
    elif isinstance(plan, CommitPlan):
        record = COMMITTING_TRANSACTIONS.encode(plan.committing)
        own = {"into_epoch": plan.into_epoch, "time_ms": plan.time_ms, "is_submitted": plan.is_submitted}
    elif isinstance(plan, TruncationPlan):
        record = TRUNCATION.encode(plan.record)
        own = {"base_id": optional_uuid_bytes(plan.base_id)}
    else:
        record = CONFIGURATION.encode(ConfigurationRecord(plan.configuration))
        own = {"base_id": optional_uuid_bytes(plan.base_id)}
    return msgspec.structs.replace(empty, record=record, **own)


def _restored_request(fields: StoredRequest, where: str) -> WorkflowRequest:
    workflow_id = optional_uuid(fields.workflow_id)
    if workflow_id is None:
        raise ValueError("expected the id of a workflow, found none")
    checked("characters of a reason", len(fields.reason), 0, REASON_SIZE_MAX)
    return WorkflowRequest(
        workflow_id=workflow_id,
        plan=_restored_plan(fields, f"{where}, record"),
        status=member(RequestStatus, fields.status),
        base=fields.base,
        is_kept=fields.is_kept,
        reason=fields.reason,
    )


def _restored_plan(fields: StoredRequest, where: str) -> Plan:
    base_id = optional_uuid(fields.base_id)
    match member(StreamState, fields.workflow):
        case StreamState.SCALING:
            transition = EPOCH_TRANSITION.decode(fields.record, where)
            return ScalePlan(transition, is_manual=fields.is_manual, is_submitted=fields.is_submitted)
        case StreamState.COMMITTING_TXN:
            committing = COMMITTING_TRANSACTIONS.decode(fields.record, where)
            into_epoch = checked("an epoch", fields.into_epoch, 0, EPOCH_MAX)
            return CommitPlan(committing, into_epoch, fields.time_ms, is_submitted=fields.is_submitted)
        case StreamState.TRUNCATING:
            return TruncationPlan(TRUNCATION.decode(fields.record, where), base_id)
        case StreamState.UPDATING:
            return UpdatePlan(CONFIGURATION.decode(fields.record, where).configuration, base_id)
        case other:
            raise ValueError(f"expected a state of a workflow, found {other.name}")


WORKFLOW_REQUEST: Final = HistoryForm("workflow-request", 1, StoredRequest, _stored_request, _restored_request)
