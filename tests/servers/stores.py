"""The stores on S3 that tests run on: each client on each server."""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import loaders.store.s3
from loaders.store import ObstoreStore, S3Store, StoreSettings
from tests.servers.fixtures import Endpoint, drop_bucket, is_server_named, new_bucket

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

CLIENTS: dict[str, type[S3Store]] = {"boto3": S3Store, "obstore": ObstoreStore}
SERVERS = ("moto", "named") if is_server_named(os.environ) else ("moto",)
S3_STORES = tuple(f"{client}-{server}" for server in SERVERS for client in CLIENTS)
"""Parameters for `store_on_s3`: client and server. For tests of the stores themselves."""

ON_S3 = tuple(each for each in S3_STORES if each != "obstore-moto")
"""The same for what is built on a store and does not see its client: on the embedded server one client will do."""


_connect = loaders.store.s3.connect


@cache
def _shared(process_id: int, access_key: str, settings: StoreSettings) -> loaders.store.s3.S3Clients:
    del process_id, access_key
    return _connect(settings)


def share_clients(environment: pytest.MonkeyPatch) -> None:
    """Let stores of this test take the clients of earlier ones with the same settings: they cost more than most tests.

    The clients of boto3 know no bucket. A forked process has its own.
    """
    environment.setattr(
        loaders.store.s3, "connect", lambda settings: _shared(os.getpid(), os.environ["AWS_ACCESS_KEY_ID"], settings)
    )


@contextmanager
def store_on_s3(request: pytest.FixtureRequest, name: str, *, knows_quotes: bool = True) -> Iterator[S3Store]:
    """An empty bucket of its own, by way of one client on one server.

    Args:
        request: of the fixture that gives the store to a test.
        name: one of `S3_STORES`.
        knows_quotes: whether the store's settings say how the server wants If-Match; otherwise they are left as they
            are by default, and whoever writes has to find out.
    """
    client, server = name.split("-")
    endpoint: Endpoint = request.getfixturevalue(f"{server}_endpoint")
    environment: pytest.MonkeyPatch = request.getfixturevalue("aws_environment")
    environment.setenv("AWS_ACCESS_KEY_ID", endpoint.access_key)
    environment.setenv("AWS_SECRET_ACCESS_KEY", endpoint.secret_key)
    share_clients(environment)
    quotes = endpoint.etag_quotes if knows_quotes else StoreSettings().etag_quotes
    bucket = new_bucket(endpoint.client)
    yield CLIENTS[client](bucket, StoreSettings(endpoint_url=endpoint.url, etag_quotes=quotes))
    if endpoint.is_lasting:
        drop_bucket(endpoint.client, bucket)
