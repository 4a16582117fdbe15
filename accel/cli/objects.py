"""`accel object`: look into single objects, and verify them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import click

from accel.cli.inspection import Inspection
from accel.cli.opening import look_into
from accel.cli.options import Place, examples, output_options, place_options
from accel.cli.output import Output
from accel.cli.targets import Targets
from accel.cli.verification import Verification
from accel.cli.verifying import Checked, Subject, Verifier, add_up, in_order, subjects_of_image, subjects_of_names
from accel.image import MetadataImage

EXIT_PROBLEMS = 3
AHEAD_PER_THREAD = 4


@click.group("object")
def object_group() -> None:
    """Look into objects, and verify them.

    An object is named by its id (digits), by its key, or as a local file that exists.
    """


@object_group.command(
    epilog=examples(
        "accel object inspect 42 --store s3://bucket", "accel object inspect ./42.bin --rows --stream 420000"
    )
)
@click.argument("name", metavar="ID|KEY|FILE")
@click.option("--rows", is_flag=True, help="Show each row of the index, rather than each stream.")
@click.option("--stream", "stream_id", type=int, help="Show this stream only.")
@click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True, help="Lines to show; 0 for all.")
@place_options
@output_options
def inspect(*, name: str, place: Place, output: Output, **choice: Any) -> None:
    """Show an object's footer, index, streams and block sizes."""
    target = Targets(place, output).find(name)
    output.show(Inspection(target, look_into(target.source, target.key), **choice))


@object_group.command(
    short_help="Check objects against the format, themselves, and the image.",
    epilog=examples(
        "accel object verify --all --store s3://bucket --image image.json",
        "accel object verify 42 43 --store s3://bucket --data",
        "accel object verify ./42.bin --data --quiet",
    ),
)
@click.argument("names", metavar="[ID|KEY|FILE]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every object of the image.")
@click.option("--data", is_flag=True, help="Read every block, too, not only the indexes.")
@click.option("--parallel", type=click.IntRange(1, 1024), default=32, show_default=True, help="Objects at once.")
@place_options
@output_options
@click.pass_context
def verify(
    ctx: click.Context,
    *,
    names: tuple[str, ...],
    everything: bool,
    data: bool,
    parallel: int,
    place: Place,
    output: Output,
) -> None:
    """Check objects against the format, against themselves, and against the image.

    Reads every index; with --data every block. With --image it also compares sizes, and finds the streams whose
    offsets do not ascend through a node's list. Ends with 3 if there are problems, else with 1 if something could not
    be checked. With --quiet it says nothing when all is well.
    """
    targets = Targets(place, output)
    subjects = _subjects(names, everything=everything, image=place.image, targets=targets)
    found = Verification(with_data=data, quiet=output.is_quiet)
    verifier = Verifier(targets, with_data=data)
    with ThreadPoolExecutor(parallel) as executor, output.progress("verifying", len(subjects)) as advance:

        def check(subject: Subject) -> Checked:
            checked = verifier.check(subject)
            advance()
            return checked

        add_up(in_order(executor, check, subjects, parallel * AHEAD_PER_THREAD), place.image, found)
    found.requests, found.bytes_read = targets.reads
    output.show(found)
    ctx.exit(EXIT_PROBLEMS if found.found_problems else int(bool(found.unchecked)))


def _subjects(
    names: tuple[str, ...], *, everything: bool, image: MetadataImage | None, targets: Targets
) -> list[Subject]:
    if everything == bool(names):
        raise click.UsageError("Expected either objects to verify or --all.")
    if not everything:
        return subjects_of_names(names, image, targets)
    if image is None:
        raise click.UsageError("Missing option '--image' (or ACCEL_IMAGE): --all means the objects that it lists.")
    return list(subjects_of_image(image, targets))
