"""One run on a server: a bucket of its own, the processes, the verdict."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import patch

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
    """Let processes run for some seconds, and check what they saw; their histories stay if they are to be kept."""
    folder = Path(tempfile.mkdtemp(prefix="accel-linearizability-"))
    bucket = new_bucket(server.client)
    credentials = {
        "AWS_ACCESS_KEY_ID": server.access_key,
        "AWS_SECRET_ACCESS_KEY": server.secret_key,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
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
    try:
        with patch.dict(os.environ, credentials):
            return Supervisor(orders).run(seconds)
    finally:
        drop_bucket(server.client, bucket)
        if not is_kept:
            shutil.rmtree(folder)
