"""One run on a server: a bucket of its own, the processes, the verdict."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.linearizability.planted import DEFECTS
from tests.linearizability.process import Orders
from tests.linearizability.supervisor import Ran, Supervisor
from tests.servers.fixtures import VARIABLES, Endpoint, drop_bucket, endpoint_at, new_bucket

Server = Endpoint


def named_server(environment: Mapping[str, str]) -> Server:
    """The server that an environment names."""
    url, access_key, secret_key = (environment[name] for name in VARIABLES)
    return endpoint_at(url, access_key, secret_key)


def one_run(server: Server, seed: int, seconds: float, *, planted: str = "", is_kept: bool = False) -> Ran:
    """Let processes run for some seconds, and check what they saw.

    Args:
        server: where.
        seed: decides what processes do, and what becomes of them.
        seconds: how long.
        planted: a mistake in the code of all of them; one of `DEFECTS`.
        is_kept: whether the folder with the histories stays.
    """
    folder = Path(tempfile.mkdtemp(prefix="accel-linearizability-"))
    bucket = new_bucket(server.client)
    try:
        with _credentials(server):
            orders = Orders(
                folder=str(folder),
                name="",
                seed=str(seed),
                endpoint_url=server.url,
                bucket=bucket,
                etag_quotes=server.etag_quotes,
                roles=DEFECTS[planted].roles,
                planted=planted,
            )
            return Supervisor(orders).run(seconds)
    finally:
        drop_bucket(server.client, bucket)
        if not is_kept:
            shutil.rmtree(folder)


@contextmanager
def _credentials(server: Server) -> Iterator[None]:
    """What this process and those that it starts sign with."""
    ours = {
        "AWS_ACCESS_KEY_ID": server.access_key,
        "AWS_SECRET_ACCESS_KEY": server.secret_key,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
