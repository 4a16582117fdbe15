"""Where a client goes and as whom: AWS's own configuration chain, and our settings above it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from botocore.awsrequest import AWSPreparedRequest

from loaders.errors import CredentialsMissing, RequestRefused
from loaders.store import ObstoreStore, S3Store, StoreSettings
from tests.servers.scripted import ScriptedServer, found, refusal

CLIENTS: list[type[S3Store]] = [S3Store, ObstoreStore]
CONFIG = """
[profile other]
region = eu-central-1
services = local

[services local]
s3 =
  endpoint_url = http://127.0.0.1:4

[profile pathlike]
region = eu-west-1
s3 =
  addressing_style = path
"""
CREDENTIALS = """
[other]
aws_access_key_id = OTHERKEY
aws_secret_access_key = secret
aws_session_token = OTHERTOKEN

[pathlike]
aws_access_key_id = PATHKEY
aws_secret_access_key = secret
"""
LOCAL = "http://127.0.0.1:"


def where_it_goes(store: S3Store) -> tuple[str, bool]:
    """The URL's scheme and host with which a key is read, and whether the bucket is in the host."""
    if isinstance(store, ObstoreStore):
        config: Mapping[str, object] = dict(store._stores()[0].config)  # it comes back as strings
        return str(config["endpoint_url_s3"]), config["virtual_hosted_style_request"] == "true"
    store.clients().retrying.meta.events.register("before-send.s3.GetObject", _stop)
    with pytest.raises(_StoppedError) as stopped:
        store.get("k")
    parts = urlsplit(str(stopped.value))
    return f"{parts.scheme}://{parts.netloc}", parts.path == "/k"


class _StoppedError(Exception):
    """Instead of a request to the URL that it names."""


def _stop(request: AWSPreparedRequest, **_: object) -> None:
    raise _StoppedError(request.url)


@pytest.mark.parametrize(
    ("environment", "settings", "host", "is_virtual"),
    [
        ({}, {}, "https://bucket.s3.amazonaws.com", True),
        ({}, {"region": "eu-west-1"}, "https://bucket.s3.eu-west-1.amazonaws.com", True),
        ({"AWS_REGION": "eu-west-1"}, {"region": "us-west-2"}, "https://bucket.s3.us-west-2.amazonaws.com", True),
        ({"AWS_ENDPOINT_URL": LOCAL + "1"}, {}, LOCAL + "1", False),
        ({"AWS_ENDPOINT_URL": LOCAL + "1", "AWS_ENDPOINT_URL_S3": LOCAL + "2"}, {}, LOCAL + "2", False),
        ({"AWS_ENDPOINT_URL_S3": LOCAL + "2"}, {"endpoint_url": LOCAL + "3"}, LOCAL + "3", False),
        ({"AWS_ENDPOINT_URL_S3": LOCAL + "2"}, {"profile": "other"}, LOCAL + "2", False),
        ({}, {"profile": "other"}, LOCAL + "4", False),
        ({"AWS_PROFILE": "other"}, {}, LOCAL + "4", False),
        (
            {"AWS_ENDPOINT_URL": LOCAL + "1", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"},
            {"region": "eu-west-1"},
            "https://bucket.s3.eu-west-1.amazonaws.com",
            True,
        ),
        ({}, {"path_style": True, "region": "eu-west-1"}, "https://s3.eu-west-1.amazonaws.com", False),
        ({}, {"profile": "pathlike"}, "https://s3.eu-west-1.amazonaws.com", False),
        ({}, {"endpoint_url": "http://s3.example", "path_style": False}, "http://bucket.s3.example", True),
    ],
)
def test_the_endpoint_is_the_chain_s_unless_a_setting_names_one(
    aws_environment: pytest.MonkeyPatch,
    tmp_path: Path,
    environment: Mapping[str, str],
    settings: Mapping[str, str | bool],
    host: str,
    is_virtual: bool,
) -> None:
    _write_config(tmp_path)
    aws_environment.delenv("AWS_DEFAULT_REGION")
    for name, value in environment.items():
        aws_environment.setenv(name, value)
    for client in CLIENTS:
        store = client("bucket", StoreSettings(**settings))  # type: ignore[arg-type] # the cases name them rightly
        assert where_it_goes(store) == (host, is_virtual), client


@pytest.mark.usefixtures("aws_environment")
def test_a_bucket_with_dots_goes_into_the_path() -> None:
    for client in CLIENTS:
        store = client("my.bucket", StoreSettings(region="eu-west-1"))
        assert where_it_goes(store) == ("https://s3.eu-west-1.amazonaws.com", False)


@pytest.mark.parametrize("client", CLIENTS)
def test_requests_are_signed_as_the_profile_says(
    client: type[S3Store], aws_environment: pytest.MonkeyPatch, tmp_path: Path, scripted: ScriptedServer
) -> None:
    _write_config(tmp_path)
    scripted.expect(found(b"x"), found(b"x"))
    aws_environment.delenv("AWS_DEFAULT_REGION")
    client("bucket", StoreSettings(endpoint_url=scripted.url, profile="other")).get("k")
    aws_environment.setenv("AWS_ACCESS_KEY_ID", "ENVKEY")
    aws_environment.setenv("AWS_DEFAULT_REGION", "us-west-2")
    client("bucket", StoreSettings(endpoint_url=scripted.url)).get("k")
    other, environment = (request.headers for request in scripted.requests)
    assert "Credential=OTHERKEY/" in other["Authorization"]
    assert "/eu-central-1/s3/" in other["Authorization"]
    assert other["x-amz-security-token"] == "OTHERTOKEN"
    assert "Credential=ENVKEY/" in environment["Authorization"]
    assert "/us-west-2/s3/" in environment["Authorization"]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("has_credentials", [True, False])
def test_unsigned_requests_need_no_credentials(
    client: type[S3Store], aws_environment: pytest.MonkeyPatch, scripted: ScriptedServer, has_credentials: bool
) -> None:
    if not has_credentials:
        aws_environment.delenv("AWS_ACCESS_KEY_ID")
        aws_environment.delenv("AWS_SECRET_ACCESS_KEY")
    scripted.expect(found(b"x"), refusal(403, "AccessDenied"))
    store = client("bucket", StoreSettings(endpoint_url=scripted.url, no_sign_request=True))
    assert store.get("k").body == b"x"
    assert scripted.requests[0].headers["Authorization"] is None


@pytest.mark.parametrize("client", CLIENTS)
def test_no_credentials_at_all_is_told(
    client: type[S3Store], aws_environment: pytest.MonkeyPatch, scripted: ScriptedServer
) -> None:
    aws_environment.delenv("AWS_ACCESS_KEY_ID")
    aws_environment.delenv("AWS_SECRET_ACCESS_KEY")
    store = client("bucket", StoreSettings(endpoint_url=scripted.url))
    with pytest.raises(CredentialsMissing, match="credentials"):
        store.get("k")
    assert scripted.requests == []


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.usefixtures("aws_environment")
def test_a_profile_that_does_not_exist_is_named(client: type[S3Store]) -> None:
    with pytest.raises(RequestRefused, match="nobody"):
        client("bucket", StoreSettings(profile="nobody")).get("k")


@pytest.mark.usefixtures("aws_environment")
def test_retries_connections_and_timeouts_are_the_settings() -> None:
    settings = StoreSettings(attempts=7, connections=9, connect_timeout_seconds=1.5, read_timeout_seconds=2.5)
    clients = S3Store("bucket", settings).clients()
    for client, attempts in ((clients.retrying, 7), (clients.once, 1)):
        config = vars(client.meta.config)["_user_provided_options"]
        assert config["retries"] == {"mode": "standard", "total_max_attempts": attempts}
        assert (config["max_pool_connections"], config["connect_timeout"], config["read_timeout"]) == (9, 1.5, 2.5)
    retrying, once = ObstoreStore("bucket", settings)._stores()
    assert retrying.retry_config is not None
    assert once.retry_config is not None
    assert (retrying.retry_config["max_retries"], once.retry_config["max_retries"]) == (6, 0)


@pytest.mark.usefixtures("aws_environment")
def test_a_completion_has_a_time_limit_of_its_own() -> None:
    settings = StoreSettings(
        endpoint_url="http://s3.example", read_timeout_seconds=2.5, completion_timeout_seconds=77.0
    )
    clients = S3Store("bucket", settings).clients()
    completing = clients.completing()
    assert completing is clients.completing()
    timeouts = [client.meta.config.read_timeout for client in (clients.retrying, clients.once, completing)]  # type: ignore[attr-defined] # missing in the stubs
    assert timeouts == [2.5, 2.5, 77.0]
    assert completing.meta.endpoint_url == clients.retrying.meta.endpoint_url


@pytest.mark.parametrize(("said", "path_style"), [("virtual", False), ("path", True), ("auto", True), ("", True)])
def test_the_addressing_style_of_the_profile_is_followed(
    said: str, path_style: bool, aws_environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    style = f"s3 =\n    addressing_style = {said}\n" if said else ""
    (tmp_path / "config").write_text(f"[default]\nregion = us-east-1\n{style}")
    aws_environment.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    assert S3Store("bucket", StoreSettings(endpoint_url="http://s3.example")).clients().path_style is path_style


def test_a_store_is_made_without_a_client(aws_environment: pytest.MonkeyPatch) -> None:
    aws_environment.setattr("boto3.Session", None)
    for client in CLIENTS:
        store = client("bucket", StoreSettings(profile="nobody"))
        assert "bucket" in repr(store)


def test_a_client_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="client"):
        StoreSettings(client="s3fs")  # type: ignore[arg-type] # wrong on purpose


def test_a_bucket_is_created_where_the_region_says(
    scripted: ScriptedServer, aws_environment: pytest.MonkeyPatch
) -> None:
    del aws_environment
    scripted.expect(found(b""), refusal(409, "BucketAlreadyOwnedByYou"), refusal(409, "BucketAlreadyExists"))
    store = S3Store("bucket", StoreSettings(endpoint_url=scripted.url, region="eu-west-1"))
    store.create_bucket()
    store.create_bucket()
    with pytest.raises(RequestRefused):
        store.create_bucket()


def _write_config(folder: Path) -> None:
    (folder / "aws-config").write_text(CONFIG)
    (folder / "aws-credentials").write_text(CREDENTIALS)
