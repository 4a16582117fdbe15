"""`accel txn`: list and abort transactions of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import click

from accel.cli.groups import CommandGroup
from accel.cli.options import command, yes_option
from accel.cli.stream.notation import moment_ms_text
from accel.cli.stream.options import StreamChoice, holder_option, stream_options
from accel.errors import InvalidArgument
from accel.history.rules.transactions import TransactionStatus
from accel.rendering import Column, Output, Shown, said, table_of, word
from accel.units import count_text

if TYPE_CHECKING:
    from accel.history.rules.transactions import ActiveTransaction
    from accel.history.store import Stream

_COLUMNS: Final[tuple[Column[tuple[UUID, ActiveTransaction]], ...]] = (
    word("transaction", lambda item: item[0]),
    word("status", lambda item: item[1].status.value),
    word("lives until", lambda item: moment_ms_text(item[1].lease_expiry_ms)),
    word("writer", lambda item: item[1].writer_id or ""),
)


@click.group("txn", cls=CommandGroup)
def transaction_group() -> None:
    """List transactions of a stream, and abort them.

    A broker, or a program with its own SegmentHost, holds their data, and deletes it: the command only decides that a
    transaction ends so.
    """


@command(
    "List transactions that have not ended.",
    "accel txn list --store s3://bucket --scope shop --stream orders",
    name="list",
    group=transaction_group,
)
@stream_options
def list_transactions(*, stream: StreamChoice, output: Output) -> None:
    """List a stream's transactions that have not ended."""
    active = list(stream.open().transactions.each_active())
    data = {"transactions": [_data(*item) for item in active]}
    output.show(Shown(data, (table_of(active, *_COLUMNS), "", count_text(len(active), "transaction"))))


@command(
    "Abort a transaction.",
    "accel txn abort --store s3://bucket --scope shop --stream orders --id ID",
    "accel txn abort --store s3://bucket --scope shop --stream orders --id ID --give-up --yes",
    group=transaction_group,
)
@click.option("--id", "transaction_id", type=click.UUID, required=True, help="The transaction.")
@click.option("--decide-only", is_flag=True, help="Leave the data to the process that holds the segments.")
@click.option("--give-up", is_flag=True, help="Of a decided commit: its events are damaged, and lost for good.")
@yes_option("Give the events up; without it nothing is changed.")
@holder_option
@stream_options
def abort(
    *,
    transaction_id: UUID,
    decide_only: bool,
    give_up: bool,
    yes: bool,
    is_held: bool,
    stream: StreamChoice,
    output: Output,
) -> None:
    """Abort a transaction.

    The decision is recorded; the process that holds the segments deletes the data. With --data-elsewhere it ends at
    once.

    A transaction whose commit is decided is not aborted. If its events are missing or damaged, the stream stays with
    the commit. Restore the object that the error names. If that is impossible, --give-up shows what would be lost, and
    with --yes it gives this one transaction up; the process that holds the segments then goes on with everything else.
    """
    if yes and not give_up:
        raise click.UsageError("Expected '--yes' with '--give-up'.")
    opened = stream.open(is_held=is_held)
    if give_up:
        output.show(_given_up(stream, opened, transaction_id, yes=yes))
        return
    if decide_only:
        status = opened.transactions.seal(transaction_id, commit=False)
    else:
        if is_held:
            _refuse_events_here(opened, transaction_id)
        status = opened.transactions.abort(transaction_id)
    output.show(_status(transaction_id, status))


def _refuse_events_here(stream: Stream, transaction_id: UUID) -> None:
    """Refuse to end a transaction at once if another process has to delete its events.

    Raises:
        InvalidArgument: the data of the stream is in the bucket's catalog, or the transaction's writer stored events.
    """
    stream.parts.require_host("abort transactions")
    record = stream.transactions.read(transaction_id)
    if record is not None and record.event_count:
        raise InvalidArgument(
            f"expected no events of transaction {transaction_id} in this bucket to abort it at once, found "
            f"{record.contents}: the process that holds the segments does it"
        )


def _given_up(choice: StreamChoice, stream: Stream, transaction_id: UUID, *, yes: bool) -> Shown:
    from accel.streams.uploads import (  # noqa: PLC0415 - other commands do not need it
        TransactionName,
        TransactionObjects,
        refuse_readable,
    )

    record = stream.transactions.read(transaction_id)
    if record is None or record.status is not TransactionStatus.COMMITTING or record.is_merged:
        return _status(transaction_id, stream.transactions.give_up(transaction_id))  # raises, unless it was given up
    objects = TransactionObjects(choice.scope.store.open(), stream.parts.store.backoff)
    damage = refuse_readable(objects, TransactionName(stream.unique_id, transaction_id), record.contents)
    lost = "an unknown number of events" if record.contents is None else str(record.contents)
    status = stream.transactions.give_up(transaction_id) if yes else record.status
    would = "is lost" if yes else "would be lost for good (--yes gives it up)"
    return said(
        f"{transaction_id}  {status.value}: {lost} {would}; {damage}",
        transaction=str(transaction_id),
        status=status.value,
        given_up=yes,
        events=record.event_count,
        size_bytes=record.size_bytes,
        damage=damage,
    )


def _status(transaction_id: UUID, status: TransactionStatus) -> Shown:
    return said(f"{transaction_id}  {status.value}", transaction=str(transaction_id), status=status.value)


def _data(transaction_id: UUID, active: ActiveTransaction) -> dict[str, Any]:
    return {
        "transaction": str(transaction_id),
        "status": active.status.value,
        "created_ms": active.created_ms,
        "lease_expiry_ms": active.lease_expiry_ms,
        "max_execution_expiry_ms": active.max_execution_expiry_ms,
        "writer": active.writer_id,
        "lease_ms": active.lease_ms,
        "events": active.event_count,
        "size_bytes": active.size_bytes,
    }
