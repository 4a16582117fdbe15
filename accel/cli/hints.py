"""`accel hints show` and `accel warm`: which hints are in the bucket, and what a reader gains from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from accel.cli.catalog.hints import node_option
from accel.cli.groups import CommandGroup
from accel.cli.options import ReaderChoice, StoreChoice, command, end_with, image_option, reader_options, store_options
from accel.hint_building import listed_nodes, opened_catalog
from accel.hint_building.stored import StoredHint, stored_hints
from accel.image import MetadataImage
from accel.lookup.stats import NodeHint
from accel.lookup.warming import WarmReport
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
    output.show(Shown({"checked": is_checked, "hints": [each.to_dict() for each in found]}, _lines(found)))
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


@command(
    "Warm up as a broker does, and report the cost and the effect.",
    "accel warm --store s3://bucket",
    "accel warm --node 4 --image image.json --store s3://bucket",
)
@node_option
@reader_options
def warm(*, nodes: frozenset[int] | None, reader: ReaderChoice, output: Output) -> None:
    """Warm up as a broker does before its first lookup, and report the cost and the effect.

    Loads the roots of snapshots and the filters of packs into the memory of this command only; a broker calls
    ReadAccelerator.warm. Exits with 1 if the store failed; missing or damaged hints are not a failure.
    """
    store = reader.store.open()
    with reader.open(store) as opened, output.progress("warming up", moved=store.moved_bytes):
        report = opened.accelerator.warm(nodes)
    empty = sorted({each.node_id for each in report.hints if not each.listed} & (nodes or frozenset()))
    if empty:
        found = ", ".join(map(str, empty))
        raise click.BadParameter(f"expected nodes that list objects, found {found}", param_hint="'--node'")
    data: dict[str, Any] = asdict(report) | {"hints": [asdict(each) for each in report.hints]}
    output.show(Shown(data, _warm_lines(report)))


def _warm_lines(report: WarmReport) -> Iterator[Rendered]:
    columns: tuple[Column[NodeHint], ...] = (
        Column("node", lambda each: each.node_id),
        word("kind", lambda each: each.kind),
        word("state", lambda each: each.state.value),
        Column("covers", lambda each: f"{each.covered} of {each.listed}"),
        Column("reason", lambda each: each.reason, "left", no_wrap=False),
    )
    if report.hints:
        yield table_of(report.hints, *columns)
        yield ""
    roots = f"{count_text(report.snapshots, 'snapshot')}, {count_text(report.packs, 'pack')}"
    told = f"{count_text(report.nodes, 'node')}: {roots}"
    bad = f", {report.filters_bad} damaged" if report.filters_bad else ""
    cost = f"{count_text(report.requests, 'request')}, {size_text(report.bytes_read)}, {time_text(report.seconds)}"
    yield f"{told}, {count_text(report.filters, 'filter')} in memory{bad}; {cost}"
