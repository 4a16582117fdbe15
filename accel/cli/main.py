"""The command `accel`: its groups, and how errors are printed.

Exit codes, the same for every command:

    | code | meaning                                                        |
    |------|----------------------------------------------------------------|
    | 0    | done                                                           |
    | 1    | it failed, or something could not be checked                   |
    | 2    | the command line is wrong                                      |
    | 3    | a verification ran, and found problems                         |
    | 4    | a job did part of its work, and could not do the rest          |
    | 130  | Ctrl-C ended it (128 + 2)                                      |
    | 143  | SIGTERM ended it (128 + 15); 129: the end of its terminal      |
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from itertools import pairwise
from typing import Any

import click

from accel.cli.config_file import check_names, config_of, config_option, origin
from accel.cli.ending import Stopped, end_on_signals
from accel.cli.groups import CommandGroup, LazyCommand
from accel.cli.standard_streams import leave_unwritten, print_what_can_be_shown
from accel.errors import AccelError
from loaders.errors import redacted

EXIT_FAILURE = 1
EXIT_USAGE = 2

EPILOG = """\b
Exit codes:  0 done   1 failed, or not all could be checked   2 wrong usage   3 verify found problems
             4 a job left work undone

\b
Examples:
  accel demo
  accel explain s3://bucket/prefix --image image.json --stream 420000 --start 1000 --end 1600
  accel object verify s3://bucket --all --image image.json --data

The store is s3://bucket/prefix at any position, --store, or ACCEL_STORE. --output may be at any position.
Options can come from the environment (ACCEL_STORE, ACCEL_IMAGE, ...) or a file: accel doctor shows which. Flags win.
Credentials, region and endpoint are found as every AWS tool finds them."""


class AccelGroup(CommandGroup):
    """A group that prints Accel's errors in two lines."""

    def __call__(self, *args: Any, **extra: Any) -> Any:
        """Run as the program of this process."""
        undo = end_on_signals()
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy would start one for each processor, for nothing here
        try:
            return super().__call__(*args, **extra)
        finally:
            undo()

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command line."""
        print_what_can_be_shown(sys.stdout, sys.stderr)
        try:
            return super().main(*args, **extra)
        finally:
            leave_unwritten()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, after the form of errors is known."""
        ctx.meta[_ARGS] = list(args)
        with _errors_told(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command if the names of all settings are known, and print its errors."""
        with _errors_told(ctx):
            if not {*ctx.meta[_ARGS]} & {*ctx.help_option_names}:
                check_names(self, ctx, os.environ)
            return super().invoke(ctx)


_ARGS = "accel.args"


@contextmanager
def _errors_told(ctx: click.Context) -> Iterator[None]:
    try:
        yield
    except (AccelError, OSError, KeyboardInterrupt, RuntimeError) as error:
        ended: BaseException = Stopped() if type(error) is KeyboardInterrupt else error
        if "start new thread" in str(error):  # of a pool that is not ours
            from loaders.threads import no_thread  # noqa: PLC0415 - seldom needed

            ended = no_thread()
        elif not isinstance(error, AccelError | OSError | KeyboardInterrupt):
            raise
        from accel.rendering import StdoutClosed, show_error  # noqa: PLC0415 - a list of commands is printed without it

        if isinstance(ended, StdoutClosed):
            ctx.exit()
        show_error(ended, is_json=_wants_json(ctx))
        ctx.exit(ended.code if isinstance(ended, Stopped) else EXIT_FAILURE)
    except click.ClickException as error:
        from accel.rendering import show_error, shown_text  # noqa: PLC0415 - likewise

        if isinstance(error, click.BadParameter) and error.ctx and (place := origin(error.ctx, error.param)):
            vars(error).update(message=f"{error.message.rstrip('.')}, from {place}")
        if not _wants_json(ctx):
            vars(error).update(message=shown_text(redacted(error.message)))  # click prints it
            raise
        show_error(error, is_json=True)
        ctx.exit(error.exit_code)


def _wants_json(ctx: click.Context) -> bool:
    # Searched without click: the error of a command line that cannot be parsed is also JSON.
    args: Sequence[str] = ctx.meta[_ARGS]
    choices = [after for before, after in pairwise(args) if before == "--output"]
    choices += [argument.removeprefix("--output=") for argument in args if argument.startswith("--output=")]
    unflagged = os.environ.get("ACCEL_OUTPUT") or config_of(ctx).common.get("output", "")
    return (choices or [str(unflagged)])[-1] == "json"


def _version() -> str:
    try:
        return metadata.version("accel-streams")
    except metadata.PackageNotFoundError:
        return "unknown (run from a directory, not installed)"


COMMANDS = {
    "adopt": LazyCommand(
        "accel.cli.adoption:adopt_group",
        "Bring existing objects into a catalog, or compact those of a controller.",
    ),
    "catalog": LazyCommand(
        "accel.cli.catalog:catalog_group", "Create, show and maintain the object catalog of a bucket."
    ),
    "demo": LazyCommand("accel.cli.demo:demo", "Run lookups on an embedded S3, and compare policies."),
    "doctor": LazyCommand("accel.cli.doctor:doctor", "Check access to a bucket: each line is ok, or contains advice."),
    "explain": LazyCommand("accel.cli.lookups:explain", "Make a lookup and show its trace."),
    "get-objects": LazyCommand("accel.cli.lookups:get_objects", "Find the objects that hold a stream's offsets."),
    "group": LazyCommand("accel.cli.stream:groups_group", "Create, show, move and delete groups of readers."),
    "object": LazyCommand("accel.cli.objects:object_group", "Inspect objects, and verify them."),
    "read": LazyCommand("accel.cli.lookups:read", "Read the records of a stream."),
    "repair": LazyCommand(
        "accel.cli.repair:repair", "Rebuild what is damaged, or restore it from a copy; a dry run without --yes."
    ),
    "scope": LazyCommand("accel.cli.inside:scope_group", "Delete scopes, which hold streams."),
    "serve": LazyCommand("accel.cli.serving:serve", "Serve lookups over HTTP, for brokers in any language."),
    "stream": LazyCommand("accel.cli.stream:stream_group", "Create streams, show their history, and change them."),
    "table": LazyCommand("accel.cli.inside:table", "Show the tables of a bucket, the keys of one, or a value."),
    "txn": LazyCommand("accel.cli.inside:transaction_group", "List transactions of a stream, and abort them."),
}
"""The short help is that of the command."""


@click.group(
    cls=AccelGroup,
    lazy=COMMANDS,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "ACCEL", "max_content_width": 100},
)
@click.version_option(_version(), prog_name="accel", message="%(prog)s %(version)s")
def main() -> None:
    """Find which S3 objects hold a stream's offsets, and inspect them."""


main.params.insert(0, config_option())
