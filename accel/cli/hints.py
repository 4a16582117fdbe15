"""`accel hints show`: which hints are in the bucket."""

from __future__ import annotations

from collections.abc import Iterator

import click
from msgspec import to_builtins

from accel.cli.catalog.hints import node_option
from accel.cli.groups import CommandGroup
from accel.cli.options import StoreChoice, command, end_with, image_option, store_options
from accel.hint_building import listed_nodes, opened_catalog
from accel.hint_building.stored import StoredHint, stored_hints
from accel.image import MetadataImage
from accel.rendering import Column, Output, Rendered, Shown, table_of, word
from accel.system import SYSTEM
from accel.units import count_text, size_text, time_text
from loaders.hints import HintTrouble

EXIT_PROBLEMS = 3


@click.group("hints", cls=CommandGroup)
def hints_group() -> None:
    """Show which filter packs and index snapshots are in a bucket."""


@command(
    "Show packs and snapshots: age, size, coverage and quality.",
    "accel hints show --store s3://bucket",
    "accel hints show --node 4 --check --store s3://bucket",
    "accel hints show --image image.json --store s3://bucket --output json",
    group=hints_group,
)
@node_option
@click.option("--check", "is_checked", is_flag=True, help="Read every filter, with Accel and with pybloom-live.")
@image_option
@store_options
def show(
    *, nodes: frozenset[int] | None, is_checked: bool, image: MetadataImage | None, store: StoreChoice, output: Output
) -> None:
    """Show the filter pack and the index snapshot of each node. Nothing is written.

    Sends two small requests a node; --check also reads the packs. With --image the nodes are those of a controller's
    metadata. Exits with 3 if a hint cannot be used, or if a filter is damaged, passes more than 1.25 % of absent
    streams, or differs when read with pybloom-live. Missing hints are not a problem.
    """
    opened = store.open()
    with (
        opened_catalog(opened, image) as catalog,
        output.progress("looking at hints", moved=opened.moved_bytes) as tell,
    ):
        namespace = catalog.parts.layout.namespace
        try:
            lists = listed_nodes(catalog, nodes)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="'--node'") from error
        found: list[StoredHint] = []
        for done, (node_id, live) in enumerate(lists.items(), start=1):
            found += stored_hints(opened, namespace, node_id, live, now_seconds=SYSTEM.clock(), is_checked=is_checked)
            tell(done, len(lists))
    output.show(Shown({"checked": is_checked, "hints": to_builtins(found)}, _lines(found)))
    if not all(each.is_sound for each in found):
        end_with(EXIT_PROBLEMS)


def _lines(found: list[StoredHint]) -> Iterator[Rendered]:
    if not found:
        yield "there are no nodes"
        return
    columns: list[Column[StoredHint]] = [
        Column("node", lambda each: each.node_id),
        word("kind", lambda each: each.kind.value.removesuffix("s")),
        word("state", lambda each: each.trouble.value if each.trouble else "usable"),
        Column("age", lambda each: "" if each.age_seconds is None else time_text(each.age_seconds)),
        Column("size", lambda each: size_text(each.size_bytes) if each.entries else ""),
        Column("unused", lambda each: size_text(each.unused_bytes) if each.unused_bytes else ""),
        Column("entries", lambda each: each.entries or ""),
        Column("covers", lambda each: f"{each.covered} of {each.listed}"),
        Column("unlisted", lambda each: each.unlisted or ""),
    ]
    if any(each.check for each in found):
        columns.append(word("filters read", _quality))
    yield table_of(found, *columns)
    yield ""
    troubled = [each for each in found if each.trouble not in {None, HintTrouble.MISSING}]
    yield from (f"unusable: node {each.node_id}: {each.problem}" for each in troubled)
    lacking = sum(each.listed - each.covered for each in found)
    sound = "all usable" if all(each.is_sound for each in found) else "some must be rebuilt: accel catalog build-hints"
    listed = sum(each.listed for each in found)
    yield f"{count_text(len(found), 'hint')}, {sound}; {lacking} of {listed} objects not covered (see build-hints)"


def _quality(each: StoredHint) -> str:
    check = each.check
    if check is None:
        return ""
    parts = [f"{check.read}"]
    if check.false_positive_share is not None and check.worst_share is not None:
        parts.append(f"{check.false_positive_share:.2%} of absent streams pass, {check.worst_share:.2%} at worst")
    faults = {"unreadable": check.unreadable, "bad": check.bad, "other to pybloom-live": check.differing}
    return ", ".join([*parts, *(f"{count} {name}" for name, count in faults.items() if count)])
