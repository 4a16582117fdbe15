"""`accel example`: a generated bucket to try the commands on, on an S3 server inside the command.

It contains the example node of AutoMQ issue 2731, in a catalog, so that no command needs an image; and a stream with a
history, `shop/orders`, of 100 events. The sidecar's demo serves the same bucket.
"""

from __future__ import annotations

import random
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

import click

from accel.cli.demo.nodes import STREAM_ID, issue_node
from accel.cli.demo.report import embedded_buckets
from accel.cli.options import command, output_options
from accel.rendering import Output, Shown
from accel.streams.connection import connect
from loaders.store import S3Store

EVENTS = 100
_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "demo", "AWS_SECRET_ACCESS_KEY": "demo"}


@contextmanager
def example_store(output: Output) -> Iterator[S3Store]:
    """An S3 server in this process that contains the example bucket.

    Raises:
        MissingExtra: moto is not installed.
    """
    with embedded_buckets(output) as bucket:
        store = bucket("example")
        with issue_node(store, random.Random(1)):  # noqa: S311 - the same objects each time, no secrets
            pass
        with connect(store) as streams:
            streams.create_scope("shop")
            streams.create_stream("shop", "orders")
            with streams.writer("shop", "orders") as writer:
                for number in range(EVENTS):
                    writer.write(b"order %d" % number, key=f"customer {number % 7}")
        yield store


@command(
    "Serve an example bucket on this machine, to try the commands on.",
    "accel example --serve",
    "accel example --serve --output json",
)
@click.option("--serve", is_flag=True, help="Serve it until the command is interrupted.")
@output_options
def example(*, serve: bool, output: Output) -> None:
    """Serve a bucket with 21 objects of stream 420000 in a catalog, and with the stream shop/orders.

    Prints the variables to export in another terminal. Needs no account and leaves no data: the S3 server and its
    objects are in the memory of this command.
    """
    if not serve:
        raise click.UsageError("Missing option '--serve': the bucket exists only while the command serves it.")
    ended = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with example_store(output) as store:
        variables = {
            **_CREDENTIALS,
            "AWS_DEFAULT_REGION": str(store.settings.region),
            "ACCEL_ENDPOINT_URL": str(store.settings.endpoint_url),
            "ACCEL_STORE": f"s3://{store.bucket}",
        }
        output.show(Shown(variables, [f"export {key}={shlex.quote(value)}" for key, value in variables.items()]))
        output.note(
            f"in another terminal: export these, then accel explain --stream {STREAM_ID} --start 1000 --end 1600"
        )
        ended.wait()
