"""`accel stream requests`: scales that were asked for, and where they and other workflows stand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from accel.cli.history_options import StreamChoice, stream_options
from accel.cli.history_shown import Shown, table_of
from accel.cli.history_texts import moment_ms_text
from accel.cli.options import examples, output_options
from accel.cli.output import Output
from accel.history.id_columns import some_ids
from accel.history.ids import segment_text
from accel.history.requests import RequestStatus, ScalePlan
from accel.lookup.explain import count_text

if TYPE_CHECKING:
    from accel.history.requests import WorkflowRequest

RANGES_SHOWN_MAX = 5
_COLUMNS = dict.fromkeys(("request", "status", "workflow"), False)


@click.command(
    short_help="Show requests of workflows, and where they stand.",
    epilog=examples(
        "accel stream requests --store s3://bucket --scope shop --stream orders",
        "accel stream requests --store s3://bucket --scope shop --stream orders --id ID",
    ),
)
@click.option("--id", "request_id", type=click.UUID, help="One request; all of the stream without it.")
@stream_options
@output_options
def requests(*, request_id: UUID | None, stream: StreamChoice, output: Output) -> None:
    """Show the requests of a stream: those that wait, those under way, and the last 100 that ended.

    A request that waits is carried out by the process that holds the segments.
    """
    opened = stream.open(output)
    if request_id is not None:
        output.show(shown_request(opened.scale_status(request_id)))
        return
    found = opened.requests()
    table = table_of(_COLUMNS, ((str(each.workflow_id), each.status.value, _what(each)) for each in found))
    data = {"requests": [_data(each) for each in found]}
    output.show(Shown(data, (table, "", count_text(len(found), "request"))))


def shown_request(found: WorkflowRequest, note: str = "") -> Shown:
    """One request; a note says what comes next."""
    reason = f": {found.reason}" if found.reason else ""
    lines = (f"{found.workflow_id}  {found.status.value}  {_what(found)}{reason}",)
    return Shown(_data(found), (*lines, note) if note else lines)


def waiting_note(found: WorkflowRequest) -> str:
    """How a request that was left is followed."""
    if found.status is not RequestStatus.WAITING:
        return ""
    return (
        "the process that holds the segments carries it out; accel stream requests"
        f" --id {found.workflow_id} tells where it stands"
    )


def _what(found: WorkflowRequest) -> str:
    if not isinstance(found.plan, ScalePlan):
        return found.workflow.value.lower()
    transition = found.plan.transition
    ranges = list(transition.new_ranges)
    shown = ", ".join(f"[{start}, {end})" for start, end in ranges[:RANGES_SHOWN_MAX])
    more = ", ..." if len(ranges) > RANGES_SHOWN_MAX else ""
    time = moment_ms_text(transition.time_ms)
    return f"scale of {some_ids(transition.segments_to_seal.ids)} to {shown}{more} of {time}"


def _data(found: WorkflowRequest) -> dict[str, Any]:
    data: dict[str, Any] = {
        "request": str(found.workflow_id),
        "status": found.status.value,
        "workflow": found.workflow.value,
        "asked_for": found.is_kept,
        "reason": found.reason,
    }
    if isinstance(found.plan, ScalePlan):
        transition = found.plan.transition
        data["time_ms"] = transition.time_ms
        data["seal"] = [segment_text(each) for each in transition.segments_to_seal.ids.tolist()]
        data["ranges"] = [list(each) for each in transition.new_ranges]
    return data
