"""`accel txn`: begin transactions of a stream, look at them, end them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from accel.cli.options import TIME, Command, examples, output_options
from accel.cli.stream.notation import moment_ms_text
from accel.cli.stream.options import StreamChoice, holder_option, size_options, stream_options
from accel.history.ids import transaction_epoch
from accel.history.transactions import TransactionStatus
from accel.lookup.explain import count_text
from accel.rendering import Output, Shown, said, table_of

if TYPE_CHECKING:
    from accel.history.store import Stream
    from accel.history.transactions import ActiveTransaction

COMMITS_MAX = 1000
"""Commits until a transaction's turn comes: each takes a thousand of those before it."""


def id_option(command: Command) -> Command:
    """`--id` -> ``transaction_id``."""
    return click.option("--id", "transaction_id", type=click.UUID, required=True, help="The transaction.")(command)


def decide_option(command: Command) -> Command:
    """`--decide-only` -> ``decide_only``."""
    text = "Leave it to others to carry it out: to whoever holds the segments."
    return click.option("--decide-only", is_flag=True, help=text)(command)


@click.group("txn")
def transaction_group() -> None:
    """Begin transactions of a stream, look at them, end them.

    Their data are held by a broker, or by a program with a SegmentHost of its own, which merges and deletes them: these
    commands only decide how a transaction ends.
    """


@transaction_group.command(
    short_help="Begin a transaction.",
    epilog=examples("accel txn create --store s3://bucket --scope shop --stream orders --lease 10m"),
)
@click.option("--lease", type=TIME, metavar="TIME", help="How long it lives; a minute by default.")
@click.option("--writer", metavar="NAME", help="Who writes it.")
@stream_options
@output_options
def create(*, lease: float | None, writer: str | None, stream: StreamChoice, output: Output) -> None:
    """Begin a transaction, and print its id."""
    lease_ms = None if lease is None else round(lease * 1000)
    begun = stream.open(output).transactions.begin(lease_ms=lease_ms, writer_id=writer)
    output.show(said(str(begun), transaction=str(begun), epoch=transaction_epoch(begun)))


@transaction_group.command(
    "list",
    short_help="List transactions that have not ended.",
    epilog=examples("accel txn list --store s3://bucket --scope shop --stream orders"),
)
@stream_options
@output_options
def list_transactions(*, stream: StreamChoice, output: Output) -> None:
    """List a stream's transactions that have not ended."""
    found = list(stream.open(output).transactions.each_active())
    cells = [
        (str(each), value.status.value, moment_ms_text(value.lease_expiry_ms), value.writer_id or "")
        for each, value in found
    ]
    table = table_of(dict.fromkeys(("transaction", "status", "lives until", "writer"), False), cells)
    data = {"transactions": [_data(each, value) for each, value in found]}
    output.show(Shown(data, (table, "", count_text(len(found), "transaction"))))


@transaction_group.command(
    short_help="Show where a transaction stands.",
    epilog=examples("accel txn status --store s3://bucket --scope shop --stream orders --id ID"),
)
@id_option
@stream_options
@output_options
def status(*, transaction_id: UUID, stream: StreamChoice, output: Output) -> None:
    """Show where a transaction stands; UNKNOWN if nobody knows it any more."""
    output.show(_status(transaction_id, stream.open(output).transactions.status(transaction_id)))


@transaction_group.command(
    short_help="Commit a transaction.",
    epilog=examples("accel txn commit --store s3://bucket --scope shop --stream orders --id ID"),
)
@id_option
@decide_option
@size_options
@stream_options
@output_options
def commit(
    *, transaction_id: UUID, decide_only: bool, sizes: dict[int, int] | None, stream: StreamChoice, output: Output
) -> None:
    """Commit a transaction, after those that were to be committed before it.

    It is decided; the process that holds the segments carries it out. With --size or --data-elsewhere it is committed
    at once.
    """
    opened = stream.open(output, sizes)
    found = opened.transactions.seal(transaction_id, commit=True)
    if found is TransactionStatus.COMMITTING and sizes is not None and not decide_only:
        found = _committed(opened, transaction_id)
    output.show(_status(transaction_id, found))


@transaction_group.command(
    short_help="Abort a transaction.",
    epilog=examples("accel txn abort --store s3://bucket --scope shop --stream orders --id ID"),
)
@id_option
@decide_option
@holder_option
@stream_options
@output_options
def abort(
    *, transaction_id: UUID, decide_only: bool, sizes: dict[int, int] | None, stream: StreamChoice, output: Output
) -> None:
    """Abort a transaction.

    It is decided; the process that holds the segments deletes its data. With --data-elsewhere it has ended at once.
    """
    opened = stream.open(output, sizes)
    if decide_only:
        found = opened.transactions.seal(transaction_id, commit=False)
    else:
        found = opened.transactions.abort(transaction_id)
    output.show(_status(transaction_id, found))


def _committed(stream: Stream, transaction_id: UUID) -> TransactionStatus:
    for _ in range(COMMITS_MAX):
        done = stream.commit()
        found = stream.transactions.status(transaction_id)
        if found is not TransactionStatus.COMMITTING or done.is_empty:
            return found
    return TransactionStatus.COMMITTING


def _status(transaction_id: UUID, found: TransactionStatus) -> Shown:
    return said(f"{transaction_id}  {found.value}", transaction=str(transaction_id), status=found.value)


def _data(transaction_id: UUID, found: ActiveTransaction) -> dict[str, Any]:
    return {
        "transaction": str(transaction_id),
        "status": found.status.value,
        "created_ms": found.created_ms,
        "lease_expiry_ms": found.lease_expiry_ms,
        "max_execution_expiry_ms": found.max_execution_expiry_ms,
        "writer": found.writer_id,
    }
