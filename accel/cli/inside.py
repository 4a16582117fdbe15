"""For who looks inside: `accel table`, `accel scope delete`, `accel txn list` and `abort`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import click
import msgspec

from accel.catalog import records
from accel.catalog.job_runs import JOB_RUNS_FORM
from accel.cli.groups import CommandGroup
from accel.cli.options import INTEGER, StoreChoice, command, store_options, yes_option
from accel.cli.stream.notation import moment_ms_text
from accel.cli.stream.options import ScopeChoice, StreamChoice, holder_option, scope_options, stream_options
from accel.errors import IllegalState, InvalidArgument, NotInHistory
from accel.history.rules.transactions import TransactionStatus
from accel.rendering import Column, Fields, Output, Shown, said, shown_names, shown_rows, word
from accel.system import SYSTEM
from accel.units import count_text
from loaders.layout import encode_name
from loaders.tables import FORMAT_FORM, FormRegistry, Tables, raw_key

if TYPE_CHECKING:
    from accel.history.rules.transactions import ActiveTransaction
    from accel.history.store import Stream

NAMES_MAX: Final = 1000
ROWS_MAX: Final = 20

_AFTER_NAME = "/"  # tables are sorted by their encoded names with a slash appended


@command(
    "Show the tables of a bucket, the keys of one, or a value.",
    "accel table --store s3://bucket",
    "accel table node-list-history --store s3://bucket --prefix 0000000004- --limit 10",
    "accel table node-lists 0000000004 --store s3://bucket --output json",
)
@click.argument("table", required=False)
@click.argument("key", required=False)
@click.option("--prefix", default="", help="Only names with this prefix.")
@click.option("--after", default="", help="Only names after this one.")
@click.option(
    "--limit",
    type=INTEGER,
    help=f"The maximum number of names, {NAMES_MAX} by default, or rows of a list in a value, {ROWS_MAX}; 0 for all.",
)
@store_options
def table(
    *,
    table: str | None,
    key: str | None,
    prefix: str,
    after: str,
    limit: int | None,
    store: StoreChoice,
    output: Output,
) -> None:
    """List the tables, or the keys of one table, in the order of their encoded names; or show a value.

    Of a value it shows the sequence number, the form, and the record, columns as rows.
    """
    tables = Tables(store.open(), nonce=SYSTEM.nonce, sleep=SYSTEM.sleep, jitter=SYSTEM.jitter)
    try:
        if table is not None and key is not None:
            output.show(_value(tables, table, key, ROWS_MAX if limit is None else limit))
            return
        names = (
            _tables_after(tables.table_names(prefix), after)
            if table is None
            else tables.table(table).keys(prefix, after)
        )
        shown = shown_names("tables" if table is None else "keys", names, NAMES_MAX if limit is None else limit)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    output.show(shown)
    if shown.data["more"]:
        output.note("there are more: continue with --after, or raise --limit")


def _value(tables: Tables, table: str, key: str, limit: int) -> Shown:
    entry = raw_key(tables.table(table), key).get()
    left_out: dict[str, int] = {}
    where = f"table {table!r}, key {key!r}"
    form, form_version, record = _registry().decode_any(entry.value, where, limit or None, left_out)
    data = {"table": table, "key": key, "sequence": entry.version.sequence, "form": form, "form_version": form_version}
    data |= {"size_bytes": len(entry.value), "record": record, "left_out": left_out}
    return Shown(data, _lines(data))


def _lines(data: dict[str, Any]) -> Iterator[str]:
    """One line about the value, then the record as JSON."""
    form = f"form {data['form']} version {data['form_version']}"
    yield f"sequence {data['sequence']}, {form}, {count_text(data['size_bytes'], 'byte')}"
    yield msgspec.json.format(msgspec.json.encode(data["record"]), indent=2).decode()
    for name, count in data["left_out"].items():
        yield f"{name}: {count_text(count, 'row')} more (--limit 0 shows all)"


def _tables_after(names: Iterable[str], after: str) -> Iterator[str]:
    last = encode_name(after) + _AFTER_NAME if after else ""
    return (name for name in names if encode_name(name) + _AFTER_NAME > last)


def _registry() -> FormRegistry:
    # Imported here, so that other commands start without them.
    from accel.history import records as history_records  # noqa: PLC0415
    from accel.streams import groups  # noqa: PLC0415

    registry = FormRegistry()
    registry.register(FORMAT_FORM, JOB_RUNS_FORM, *records.ALL_FORMS, *history_records.ALL_FORMS, groups.READER_GROUP)
    return registry


@click.group("scope", cls=CommandGroup)
def scope_group() -> None:
    """Delete scopes, which hold streams."""


@command(
    "Delete a scope without streams; a dry run without --yes.",
    "accel scope delete --store s3://bucket --scope shop --yes",
    name="delete",
    group=scope_group,
)
@yes_option("Delete; without it nothing is changed.")
@scope_options
def delete_scope(*, yes: bool, scope: ScopeChoice, output: Output) -> None:
    """Delete a scope without streams; a missing scope counts as deleted."""
    store, name = scope.open(), scope.scope
    if yes:
        store.delete_scope(name)
        output.show(said(f"scope {name} deleted", scope=name, dry_run=False, exists=False))
        return
    try:
        first = next(store.streams(name), None)
    except NotInHistory:
        output.show(said(f"dry run: there is no scope {name}", scope=name, dry_run=True, exists=False))
        return
    if first is not None:
        raise IllegalState(f"expected a scope without streams, found {name!r} with {first!r}")
    output.show(said(f"dry run: scope {name} would be deleted (--yes does it)", scope=name, dry_run=True, exists=True))


_COLUMNS: Final[tuple[Column[Fields], ...]] = (
    word("transaction", "transaction"),
    word("status", "status"),
    word("lives until", lambda row: moment_ms_text(row["lease_expiry_ms"])),
    word("writer", lambda row: row["writer"] or ""),
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
    active = [_data(*item) for item in stream.open().transactions.each_active()]
    output.show(shown_rows({"transactions": active}, "transactions", _COLUMNS, count_text(len(active), "transaction")))


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
