"""`accel catalog sketch`: give the objects of a node's list the sketches that they lack, or true ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import click

from accel.catalog import ObjectCatalog
from accel.catalog.sketching import SketchReport, sketch_list
from accel.cli.options import StoreChoice, command, store_options, yes_option
from accel.rendering import Output, Shown
from accel.units import count_text

IDS_SHOWN_MAX = 20


@command(
    "Sketch the streams of a node's objects anew; a dry run without --yes.",
    "accel catalog sketch --node 4 --store s3://bucket",
    "accel catalog sketch --node 4 --yes --store s3://bucket",
)
@click.option("--node", "node_id", type=click.IntRange(min=0), required=True, help="Whose list.")
@yes_option()
@store_options
def sketch(*, node_id: int, yes: bool, store: StoreChoice, output: Output) -> None:
    """Give each object of a node's list a sketch that is true: which streams it certainly does not hold.

    Objects lack one if their commit did not say what they hold, or if an older release wrote the list; lookups open
    them in vain then. A sketch that hides a stream of its object is damage that `accel catalog verify` finds. All live
    objects of the node are opened; with --yes the list is written once, if anything is to be changed.
    """
    with ObjectCatalog.open(store.open()) as catalog:
        report = sketch_list(catalog, node_id, is_dry_run=not yes)
        data = {"dry_run": not yes, **asdict(report)}
        output.show(Shown(data, _lines(report, is_dry_run=not yes)))


def _lines(report: SketchReport, *, is_dry_run: bool) -> Iterator[str]:
    verb = "would be sketched" if is_dry_run else "sketched"
    opened = count_text(report.objects, "object")
    if not report.missing and not report.wrong:
        yield f"node {report.node_id}: {opened} opened, and all sketches are true: nothing to do"
        return
    yield f"node {report.node_id}: {opened} opened"
    for ids, why in ((report.missing, "had no sketch"), (report.wrong, "had one that hides a stream")):
        if ids:
            shown = ", ".join(map(str, ids[:IDS_SHOWN_MAX])) + (", ..." if len(ids) > IDS_SHOWN_MAX else "")
            yield f"  {count_text(len(ids), 'object')} {verb} that {why}: {shown}"
    if is_dry_run:
        yield "nothing was written: repeat it with --yes"
