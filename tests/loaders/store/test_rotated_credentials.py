"""Credentials that are replaced while a process runs: both S3 clients take the new ones up."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import botocore.endpoint
import pytest
from botocore.credentials import Credentials

from loaders.errors import AccessDenied, CredentialsExpired, CredentialsMissing, StoreError
from loaders.store import (
    CountingStore,
    CreateOnly,
    Fetched,
    MemoryStore,
    ObjectStore,
    ObstoreStore,
    S3Store,
    StoreSettings,
)
from loaders.store.decorated import Answer, DecoratedStore, StoreCall
from loaders.store.s3 import RENEWAL_SECONDS, CurrentCredentials
from tests.servers.scripted import WRITTEN, Reply, ScriptedServer, found, refusal

EXPIRED = refusal(400, "ExpiredToken")


class Agent:
    """Writes the shared credentials file, as an agent on a machine does."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.write("KEYONE")

    def write(self, key: str, profile: str = "default") -> None:
        """Replace the credentials."""
        names = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
        values = "\n".join(f"{name} = {key}" for name in names)
        self._path.write_text(f"[{profile}]\n{values}\n")


@pytest.fixture
def agent(tmp_path: Path, aws_environment: pytest.MonkeyPatch) -> Agent:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        aws_environment.delenv(name)
    aws_environment.setattr(botocore.endpoint, "time", SimpleNamespace(sleep=lambda _: None))
    return Agent(tmp_path / "aws-credentials")


@pytest.fixture(params=[S3Store, ObstoreStore])
def store(request: pytest.FixtureRequest, agent: Agent, scripted: ScriptedServer) -> S3Store:
    del agent  # the file is there
    made: S3Store = request.param("bucket", StoreSettings(endpoint_url=scripted.url, attempts=2))
    return made


def keys(scripted: ScriptedServer) -> list[str]:
    """The access keys of the requests, without repetitions."""
    headers = [each.headers.get("Authorization", "") for each in scripted.requests]
    found_keys = [re.search(r"Credential=([^/]+)/", header) for header in headers]
    names = [match[1] for match in found_keys if match]
    return [name for at, name in enumerate(names) if at == 0 or names[at - 1] != name]


def refused(store: ObjectStore, *replies: Reply, refusals: Reply = EXPIRED) -> tuple[Reply, ...]:
    """A script in which the old credentials are refused: obstore first, and then boto3, ask with those."""
    return (*[refusals] * (2 if isinstance(store, ObstoreStore) else 1), *replies)


OPERATIONS: list[tuple[Callable[[ObjectStore], object], Reply]] = [
    (lambda store: store.get("k"), found(b"x")),
    (lambda store: store.get_range("k", 0, 1), found(b"x", status=206, content_range="bytes 0-0/1")),
    (lambda store: store.get_tail("k", 1), found(b"x", status=206, content_range="bytes 0-0/1")),
    (lambda store: store.get_if_changed("k", "e0"), found(b"x")),
    (lambda store: store.put("k", b"x"), WRITTEN),
    (lambda store: store.put("k", b"x", condition=CreateOnly()), WRITTEN),
]


@pytest.mark.parametrize(("ask", "reply"), OPERATIONS)
def test_a_refused_request_is_sent_again_with_the_credentials_of_a_file_that_was_rewritten(
    ask: Callable[[ObjectStore], object], reply: Reply, store: ObjectStore, scripted: ScriptedServer, agent: Agent
) -> None:
    scripted.expect(found(b"x"), *refused(store, reply))
    store.get("k")
    agent.write("KEYTWO")
    ask(store)
    assert keys(scripted) == ["KEYONE", "KEYTWO"]
    assert not scripted.script


@pytest.mark.parametrize("code", ["InvalidAccessKeyId", "ExpiredToken", "InvalidTokenId", "SignatureDoesNotMatch"])
def test_any_refusal_of_credentials_is_answered_so(code: str, agent: Agent, scripted: ScriptedServer) -> None:
    store = S3Store("bucket", StoreSettings(endpoint_url=scripted.url))
    scripted.expect(found(b"x"), refusal(403, code), Reply(204))
    store.get("k")
    agent.write("KEYTWO")
    store.delete("k")
    assert keys(scripted) == ["KEYONE", "KEYTWO"]


def test_a_profile_of_the_settings_is_searched_again(agent: Agent, scripted: ScriptedServer) -> None:
    agent.write("KEYONE", "other")
    store = S3Store("bucket", StoreSettings(endpoint_url=scripted.url, profile="other", region="eu-west-1"))
    scripted.expect(EXPIRED, found(b"x"))
    store.clients()
    agent.write("KEYTWO", "other")
    assert store.get("k").body == b"x"
    assert keys(scripted) == ["KEYONE", "KEYTWO"]
    assert all("/eu-west-1/s3/" in each.headers["Authorization"] for each in scripted.requests)


def from_a_process(key: str, tmp_path: Path) -> list[Reply]:
    answer = {"Version": 1, "AccessKeyId": key, "SecretAccessKey": "s", "SessionToken": "t"}
    (tmp_path / "answer").write_text(json.dumps(answer))
    (tmp_path / "aws-config").write_text(f"[default]\ncredential_process = cat {tmp_path / 'answer'}\n")
    return []


def from_a_container(key: str, _: Path) -> list[Reply]:
    answer = {"AccessKeyId": key, "SecretAccessKey": "s", "Token": "t", "Expiration": "2099-01-01T00:00:00Z"}
    return [Reply(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})]


def from_a_web_identity(key: str, tmp_path: Path) -> list[Reply]:
    (tmp_path / "token").write_text(f"token of {key}")
    inside = f"<AccessKeyId>{key}</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>"
    credentials = f"<Credentials>{inside}<Expiration>2099-01-01T00:00:00Z</Expiration></Credentials>"
    result = f"<AssumeRoleWithWebIdentityResult>{credentials}</AssumeRoleWithWebIdentityResult>"
    body = f"<AssumeRoleWithWebIdentityResponse>{result}</AssumeRoleWithWebIdentityResponse>"
    return [Reply(200, body.encode(), {"Content-Type": "text/xml"})]


@pytest.mark.parametrize("give", [from_a_process, from_a_container, from_a_web_identity])
def test_processes_containers_and_web_identities_are_asked_again(
    give: Callable[[str, Path], list[Reply]],
    agent: Agent,
    scripted: ScriptedServer,
    tmp_path: Path,
    aws_environment: pytest.MonkeyPatch,
) -> None:
    del agent
    (tmp_path / "aws-credentials").unlink()
    if give is from_a_container:
        aws_environment.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{scripted.url}/credentials")
    if give is from_a_web_identity:
        aws_environment.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/some")
        aws_environment.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
        aws_environment.setenv("AWS_ENDPOINT_URL_STS", scripted.url)
    store = S3Store("bucket", StoreSettings(endpoint_url=scripted.url))
    scripted.expect(*give("KEYONE", tmp_path), found(b"x"))
    store.get("k")
    first = keys(scripted)
    scripted.expect(EXPIRED, *give("KEYTWO", tmp_path), found(b"y"))
    assert store.get("k").body == b"y"
    assert (first, keys(scripted)) == (["KEYONE"], ["KEYONE", "KEYTWO"])
    assert not scripted.script


def test_without_other_credentials_the_error_says_that_they_expired_and_is_raised_at_once(
    store: ObjectStore, scripted: ScriptedServer
) -> None:
    scripted.expect(*refused(store))
    with pytest.raises(CredentialsExpired, match="ExpiredToken") as caught:
        store.get("k")
    assert caught.value.retryable
    assert "shared credentials file" in caught.value.advice
    assert not scripted.script


def test_a_denied_request_looks_for_no_credentials(store: ObjectStore, scripted: ScriptedServer, agent: Agent) -> None:
    scripted.expect(found(b"x"), refusal(403, "AccessDenied"))
    store.get("k")
    agent.write("KEYTWO")
    with pytest.raises(AccessDenied):
        store.get("k")
    assert keys(scripted) == ["KEYONE"]


def test_a_file_that_cannot_be_read_now_leaves_the_old_credentials(
    store: ObjectStore, scripted: ScriptedServer, tmp_path: Path
) -> None:
    scripted.expect(found(b"x"), *refused(store), found(b"y"))
    store.get("k")
    (tmp_path / "aws-credentials").write_text("[default\n")
    with pytest.raises(CredentialsExpired):
        store.get("k")
    assert store.get("k").body == b"y"


# The search


def test_a_search_follows_a_refusal_at_most_every_ten_seconds_and_only_what_differs_counts() -> None:
    seconds, searched = [0.0], []
    chain = [Credentials("one", "s"), Credentials("two", "s"), Credentials("three", "s")]

    def find() -> Credentials:
        searched.append(seconds[0])
        return chain[0]

    current = CurrentCredentials(Credentials("one", "s"), find, lambda: seconds[0])
    assert not current.renewed_since(0)
    for seconds[0] in (1.0, RENEWAL_SECONDS - 1, RENEWAL_SECONDS, RENEWAL_SECONDS + 1):
        del chain[: len(chain) - 2]
        current.renewed_since(0)
    assert searched == [0.0, RENEWAL_SECONDS]
    assert current.get_frozen_credentials().access_key == current.access_key == "two"
    assert current.renewed_since(0)
    assert not current.renewed_since(1)


def test_threads_that_are_refused_at_once_share_one_search() -> None:
    begun, searches = threading.Barrier(8), []

    def find() -> Credentials:
        searches.append(1)
        return Credentials("two", "s")

    current = CurrentCredentials(Credentials("one", "s"), find, lambda: 0.0)

    def ask(_: int) -> bool:
        begun.wait()
        return current.renewed_since(0)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(8)))
    assert searches == [1]


# What is told


class Refusing(DecoratedStore):
    """A store that raises an error for each request, if there is one."""

    error: type[StoreError] | None = None

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        if self.error is not None:
            raise self.error(call.operation, call.key, "on purpose")
        return send()


def test_a_store_that_refuses_the_credentials_counts_as_failing_until_it_answers() -> None:
    refusing = Refusing(MemoryStore())
    counting = CountingStore(refusing)
    counting.put("k", b"x")

    def get() -> Fetched:
        return counting.get("k")

    for refusing.error in (CredentialsExpired, CredentialsMissing):
        with pytest.raises(CredentialsMissing):
            get()
        assert counting.is_failing
    refusing.error = None
    get()
    assert not counting.is_failing
