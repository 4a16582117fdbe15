"""`accel controller`: for brokers that keep their metadata in their own controller.

`convert` converts AutoMQ's metadata to an image. `compact` merges objects of such an image, and passes the result to a
function of the controller or writes it to a file that the controller applies (docs/how-to/brokers.md).
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from accel.adoption.automq import read_automq
from accel.adoption.controller import (
    ControllerReport,
    Swap,
    SwapStatus,
    compact_for_controller,
    plan_for_controller,
    swaps_to_json,
)
from accel.cli.catalog.compact import CompactionWork, compaction_options, show_foreign_plan
from accel.cli.catalog.status import image_data
from accel.cli.groups import CommandGroup
from accel.cli.options import EXIT_PARTIAL, StoreChoice, command, end_with, image_option, output_options, store_options
from accel.image import MetadataImage
from accel.image_source import IMAGE_FILE_SIZE_BYTES_MAX
from accel.rendering import Output, Rendered, Shown
from accel.system import SYSTEM
from accel.units import count_text

FILE = click.Path(dir_okay=False, path_type=Path)


@click.group("controller", cls=CommandGroup)
def controller_group() -> None:
    """For brokers that keep their metadata in their own controller."""


@command(
    None,
    "accel controller convert dump.json --namespace _kafka_rZdE0DjZSrqy96PXrMUZVw > image.json",
    group=controller_group,
)
@click.argument("dump", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--namespace", required=True, help="The namespace in the objects' keys: _kafka_ and the cluster's id.")
@click.option(
    "--image-version",
    type=click.IntRange(min=0),
    default=0,
    help="Version of the image; a newer image has a higher one.",
)
@output_options
def convert(*, dump: Path, namespace: str, image_version: int, output: Output) -> None:
    """Convert AutoMQ's metadata, as one JSON document or as printed by kafka-dump-log, to an image.

    Writes the image to stdout, as JSON.
    """
    size_bytes = dump.stat().st_size
    if size_bytes > IMAGE_FILE_SIZE_BYTES_MAX:
        raise click.UsageError(f"expected a dump of at most {IMAGE_FILE_SIZE_BYTES_MAX} bytes, found {size_bytes}")
    metadata = read_automq(dump.read_bytes(), namespace=namespace, version=image_version)
    Output(is_json=True, is_quiet=output.is_quiet, is_verbose=False).show(Shown(image_data(metadata.image), ()))


@command(
    "Merge objects of an image; the controller commits.",
    "accel controller compact s3://bucket --image image.json --dry-run",
    "accel controller compact s3://bucket --image image.json --take-ids broker:take_ids --commit broker:commit",
    "accel controller compact s3://bucket --image image.json --take-ids broker:take_ids --swaps swaps.json",
    name="compact",
    group=controller_group,
)
@click.option("--take-ids", metavar="MODULE:FUNCTION", help="Returns the requested number of new object ids.")
@click.option("--commit", metavar="MODULE:FUNCTION", help="Commits a swap, or raises SwapRefused.")
@click.option("--swaps", type=FILE, metavar="FILE", help="Write the swaps to this file, for the controller to apply.")
@compaction_options
@image_option
@store_options
def compact_command(
    *,
    work: CompactionWork,
    take_ids: str | None,
    commit: str | None,
    swaps: Path | None,
    image: MetadataImage | None,
    store: StoreChoice,
    output: Output,
) -> None:
    """Merge many small objects into few large ones, where a controller keeps the metadata.

    This command merges and checks objects, and passes each result to --commit or writes it to --swaps. Accel changes no
    metadata and deletes nothing. It names the objects that were not committed, so that the controller can delete them.
    """
    if image is None:
        raise click.UsageError("Missing option '--image' (or ACCEL_IMAGE): the controller's metadata.")
    if not work.is_dry_run and (take_ids is None or (commit is None) == (swaps is None)):
        raise click.UsageError("Without --dry-run the command needs '--take-ids', and either '--commit' or '--swaps'.")
    opened = store.open()
    if work.is_dry_run or take_ids is None:
        show_foreign_plan(work, image, opened, output)
        return
    takes = _function("--take-ids", take_ids)
    written: list[Swap] = []
    commits = written.append if commit is None else _function("--commit", commit)
    with output.progress("planning", moved=opened.moved_bytes):
        plan = plan_for_controller(opened, image, work.settings, system=SYSTEM)
    with output.progress("merging groups", len(plan.groups), moved=opened.moved_bytes) as tell:

        def commit_one(swap: Swap) -> object:
            tell()
            return commits(swap)

        report = compact_for_controller(opened, image, plan, take_ids=takes, commit=commit_one, system=SYSTEM)
    if swaps is not None:
        swaps.write_bytes(swaps_to_json(written))
    output.show(Shown({"plan": plan.to_dict(), "report": report.to_dict()}, _lines(report, swaps)))
    end_with(EXIT_PARTIAL if report.is_partial or plan.failed else 0)


def _function(name: str, place: str) -> Callable[..., Any]:
    try:
        found = pkgutil.resolve_name(place)
    except (ImportError, AttributeError, ValueError) as error:
        raise click.BadParameter(f"expected MODULE:FUNCTION, found {place!r}: {error}", param_hint=name) from error
    if not callable(found):
        raise click.BadParameter(f"expected a function, found {type(found).__name__} at {place!r}", param_hint=name)
    return found  # type: ignore[no-any-return]  # whatever the controller's module has there


def _lines(report: ControllerReport, swaps: Path | None) -> Iterator[Rendered]:
    """Results other than committed, the objects to delete, and a summary line."""
    for result in report.groups:
        if result.status is not SwapStatus.COMMITTED:
            yield f"{result.status}: {result.group.name}: {result.reason}"
    for bad in report.bad_objects:
        yield f"could not be read: object {bad.object_id} of node {bad.node_id}, {bad.cause.text}"
    if unlisted := [object_id for result in report.groups for object_id in result.unlisted_ids]:
        yield f"not listed, to be deleted by the controller: {', '.join(map(str, unlisted))}"
    done = sum(result.status is SwapStatus.COMMITTED for result in report.groups)
    what = "passed on" if swaps is None else f"written to {swaps}; nothing is committed yet"
    yield f"{count_text(done, 'swap')} of {count_text(len(report.groups), 'group')} {what}"
