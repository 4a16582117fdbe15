"""Requests of workflows: whether one that was claimed can have an effect any more."""

from __future__ import annotations

from uuid import UUID

import pytest

from accel.history.rules.configuration import StreamConfiguration
from accel.history.rules.requests import RequestStatus, UpdatePlan, WorkflowRequest, is_spent

ITS_OWN, ANOTHER = UUID(int=1), UUID(int=2)
BASE, LATER = b"b" * 16, b"l" * 16


@pytest.mark.parametrize(
    ("status", "nonce", "owner", "expected"),
    [
        (RequestStatus.CLAIMED, LATER, ANOTHER, True),
        (RequestStatus.CLAIMED, LATER, None, True),
        (RequestStatus.CLAIMED, BASE, ANOTHER, False),  # the status has not changed: its claim may still succeed
        (RequestStatus.CLAIMED, LATER, ITS_OWN, False),  # it is being carried out
        (RequestStatus.WAITING, LATER, ANOTHER, False),  # nobody has claimed it
    ],
    ids=["another's", "nobody's", "unchanged", "its own", "waiting"],
)
def test_a_claim_is_spent_if_the_status_changed_and_another_workflow_has_the_stream(
    status: RequestStatus, nonce: bytes, owner: UUID | None, expected: bool
) -> None:
    request = WorkflowRequest(ITS_OWN, UpdatePlan(StreamConfiguration(), None), status, BASE)
    assert is_spent(request, nonce, owner) is expected
