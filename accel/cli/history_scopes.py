"""`accel scope`: make, list and delete scopes, which hold streams."""

from __future__ import annotations

from itertools import islice

import click

from accel.cli.history_options import ScopeChoice, scope_options
from accel.cli.history_shown import said
from accel.cli.options import StoreChoice, examples, output_options, store_options
from accel.cli.output import Output
from accel.cli.tables import Names
from accel.errors import IllegalState, NotInHistory

LIMIT = click.option(
    "--limit", type=click.IntRange(min=0), default=1000, show_default=True, help="At most so many; 0 for all."
)


@click.group("scope")
def scope_group() -> None:
    """Make, list and delete scopes, which hold streams."""


@scope_group.command(short_help="Make a scope.", epilog=examples("accel scope create --store s3://bucket --scope shop"))
@scope_options
@output_options
def create(*, scope: ScopeChoice, output: Output) -> None:
    """Make a scope; one that is there stays as it is."""
    is_new = scope.open(output).create_scope(scope.scope)
    output.show(said(f"scope {scope.scope} {'created' if is_new else 'was there'}", scope=scope.scope, created=is_new))


@scope_group.command(
    "list", short_help="List scopes.", epilog=examples("accel scope list --store s3://bucket --output json")
)
@LIMIT
@store_options
@output_options
def list_scopes(*, limit: int, store: StoreChoice, output: Output) -> None:
    """List all scopes, in the order of their encoded names."""
    found = list(islice(ScopeChoice(store).open(output).scopes(), limit + 1 if limit else None))
    more = bool(limit) and len(found) > limit
    output.show(Names("scopes", found[:limit] if more else found, more))


@scope_group.command(
    short_help="Delete a scope without streams; a dry run without --yes.",
    epilog=examples("accel scope delete --store s3://bucket --scope shop --yes"),
)
@click.option("--yes", is_flag=True, help="Delete; without it nothing is changed.")
@scope_options
@output_options
def delete(*, yes: bool, scope: ScopeChoice, output: Output) -> None:
    """Delete a scope without streams; one that is not there counts as deleted."""
    store, name = scope.open(output), scope.scope
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
