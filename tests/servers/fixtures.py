"""Fixtures for S3 endpoints: the embedded one, and any that the environment names.

    ACCEL_TEST_S3_ENDPOINT     URL of a server to run the tests against too
    ACCEL_TEST_S3_ACCESS_KEY   credentials that may create and delete buckets there
    ACCEL_TEST_S3_SECRET_KEY

Tests that take the named server get the marker `named_server` by themselves: those that use `named_endpoint`, and the
cases of parametrised ones that have `named` in their id ("boto3-named"). `make test-s3` runs what has the marker.

Tests see no other AWS configuration than the one made here: nothing real can be reached.
"""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import boto3
import botocore.client
import botocore.endpoint_provider
import botocore.hooks
import botocore.loaders
import botocore.session
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from accel.cli.embedded_s3 import embedded_s3
from tests.servers.scripted import ScriptedServer, scripted_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from types import ModuleType

    from types_boto3_s3 import S3Client

VARIABLES = ("ACCEL_TEST_S3_ENDPOINT", "ACCEL_TEST_S3_ACCESS_KEY", "ACCEL_TEST_S3_SECRET_KEY")
MARKER = "named_server"


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, and let all sessions of botocore share what they read and never change.

    Each new session parses 2 MB of JSON (the models of S3, the endpoints of all regions), and each client makes objects
    of them, which takes longer than most tests.
    """
    config.addinivalue_line("markers", f"{MARKER}: takes the S3 server that {VARIABLES[0]} names")
    botocore.session.create_loader = cache(botocore.loaders.create_loader)
    replacements: tuple[tuple[ModuleType, str, Callable[[Any], object]], ...] = (
        (botocore.client, "ServiceModel", _once_made),
        (botocore.endpoint_provider, "RuleSet", _once_made),
        (botocore.hooks, "accepts_kwargs", lambda _: _accepts_kwargs),
    )
    for module, name, replacement in replacements:
        setattr(module, name, replacement(getattr(module, name)))


def _once_made(kind: Callable[..., Any]) -> Callable[..., Any]:
    """Makes one object of the same parsed JSON, which the loader keeps for good."""
    made: dict[tuple[int | str, ...], Any] = {}

    def make(*given: Any, **named: Any) -> Any:
        key = tuple(each if isinstance(each, str) else id(each) for each in (*given, *named.values()))
        if key not in made:
            made[key] = kind(*given, **named)
        return made[key]

    return make


def _accepts_kwargs(handler: Any) -> bool:
    """What botocore asks of each of the hundred handlers of a session, without a signature made for it."""
    code = getattr(handler, "__code__", None)
    named = inspect.getfullargspec(handler).varkw if code is None else code.co_flags & inspect.CO_VARKEYWORDS
    return bool(named)


@pytest.hookimpl(tryfirst=True)  # before anybody selects by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what takes the named server."""
    for item in items:
        if isinstance(item, pytest.Function) and takes_named_server(item):
            item.add_marker(MARKER)


def takes_named_server(item: pytest.Function) -> bool:
    """Whether a test takes the named server, by its fixtures or by the id of its case."""
    case = item.callspec.id if hasattr(item, "callspec") else ""
    return "named_endpoint" in item.fixturenames or "named" in case.split("-")


@dataclass(frozen=True)
class Endpoint:
    """A server to test against.

    Attributes:
        client: for arranging what a store cannot, and for looking behind its back.
        etag_quotes: whether it wants quotes around the ETag of If-Match.
        is_lasting: it outlives the tests, so that they have to tidy up.
    """

    url: str
    access_key: str
    secret_key: str
    client: S3Client
    etag_quotes: bool = True
    is_lasting: bool = False


@pytest.fixture(scope="session")
def moto_endpoint() -> Iterator[Endpoint]:
    """The embedded server, on a free port, for the whole session. It takes any credentials."""
    with embedded_s3() as url:
        yield Endpoint(url, "testing", "testing", _client(url, "testing", "testing"))


@pytest.fixture(scope="session")
def named_endpoint() -> Endpoint:
    """The server that the environment names; skips where it names none."""
    if not is_server_named(os.environ):
        pytest.skip(f"{VARIABLES[0]} names no server")
    if unset := unset_variables(os.environ):
        pytest.fail(f"{VARIABLES[0]} names a server, but {' and '.join(unset)} is not set")
    return endpoint_at(*(os.environ[name] for name in VARIABLES))


def endpoint_at(url: str, access_key: str, secret_key: str) -> Endpoint:
    """A server that outlives the tests. Asks it how it wants If-Match."""
    client = _client(url, access_key, secret_key)
    return Endpoint(url, access_key, secret_key, client, _wants_quotes(client), is_lasting=True)


def is_server_named(environment: Mapping[str, str]) -> bool:
    """Whether an environment names a server."""
    return bool(environment.get(VARIABLES[0]))


def unset_variables(environment: Mapping[str, str]) -> list[str]:
    """Those of `VARIABLES` that an environment lacks."""
    return [name for name in VARIABLES if not environment.get(name)]


def _client(url: str, access_key: str, secret_key: str) -> S3Client:
    return boto3.client(
        "s3",
        endpoint_url=url,
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        region_name="us-east-1",
        config=Config(s3={"addressing_style": "path"}),
    )


def _wants_quotes(client: S3Client) -> bool:
    bucket = new_bucket(client)
    try:
        # Only one of the two writes can be refused for its form: the ETag is the object's.
        etag = client.put_object(Bucket=bucket, Key="k", Body=b"1")["ETag"]
        if _takes(client, bucket, etag):
            return True
        if _takes(client, bucket, etag.strip('"')):
            return False
        pytest.fail(f"the server refuses If-Match with the ETag that it gave ({etag}), with quotes and without")
    finally:
        drop_bucket(client, bucket)


def _takes(client: S3Client, bucket: str, etag: str) -> bool:
    try:
        client.put_object(Bucket=bucket, Key="k", Body=b"2", IfMatch=etag)
    except ClientError as error:
        if error.response["Error"]["Code"] != "PreconditionFailed":
            raise
        return False
    return True


def new_bucket(client: S3Client) -> str:
    """Create a bucket with a name of its own."""
    bucket = f"accel-test-{uuid4().hex}"
    client.create_bucket(Bucket=bucket)
    return bucket


def drop_bucket(client: S3Client, bucket: str) -> None:
    """Delete a bucket with all that is in it, unfinished uploads included."""
    for upload in client.list_multipart_uploads(Bucket=bucket).get("Uploads", ()):
        client.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        if found := page.get("Contents"):
            client.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": each["Key"]} for each in found]})
    client.delete_bucket(Bucket=bucket)


@pytest.fixture
def aws_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """An AWS configuration that reaches nothing real; gives the monkeypatch, for what a test adds to it."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "aws-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "aws-credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    return monkeypatch


@pytest.fixture
def scripted() -> Iterator[ScriptedServer]:
    """A server that answers from a script."""
    with scripted_server() as server:
        yield server
