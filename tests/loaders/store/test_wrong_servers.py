"""What is at the endpoint is no store, or the store refuses for a reason that has a remedy: each is named as such."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import botocore.endpoint
import pytest

from loaders.errors import EndpointUnreachable, KeyMissing, StoreError, WrongServer
from loaders.store import CreateOnly, ObjectStore, StoreSettings
from loaders.store.error_table import foreign_answer, store_error
from tests.servers.scripted import Reply, ScriptedServer, found, scripted_server
from tests.servers.stores import share_clients
from tests.servers.wrong import (
    CLIENTS,
    NO_STORE,
    REFUSALS,
    S3_CLIENTS,
    TLS,
    Wrong,
    asked,
    behind_tls,
    certificates,
    main,
)

SETTINGS = StoreSettings(attempts=3)
OPERATIONS: dict[str, Callable[[ObjectStore], object]] = {
    "get": lambda store: store.get("k"),
    "get_range": lambda store: store.get_range("k", 0, 4),
    "get_tail": lambda store: store.get_tail("k", 4),
    "get_if_changed": lambda store: store.get_if_changed("k", "e"),
    "list": lambda store: list(store.list("a/")),
    "put": lambda store: store.put("k", b"x"),
    "create": lambda store: store.put("k", b"x", condition=CreateOnly()),
    "start_multipart": lambda store: store.start_multipart("k").complete([]),
}
"""Operations that no wrong server may seem to carry out."""


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    """One server for all cases, so that clients of it are made once."""
    with scripted_server() as made:
        yield made


@pytest.fixture(autouse=True)
def environment(aws_environment: pytest.MonkeyPatch) -> None:
    """Retries do not wait, and Azure has an account."""
    aws_environment.setattr(botocore.endpoint, "time", SimpleNamespace(sleep=lambda _: None))
    aws_environment.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    share_clients(aws_environment)


@pytest.mark.parametrize("case", (NO_STORE | REFUSALS).values(), ids=(NO_STORE | REFUSALS).keys())
def test_each_wrong_server_and_each_refusal_has_its_sentence_and_its_advice(
    case: Wrong, server: ScriptedServer
) -> None:
    for client in case.clients:
        server.expect(*[case.answers] * 50)
        error = asked(client, server.url, StoreSettings(attempts=1))
        assert type(error) is case.kind, client
        assert case.says in str(error), client
        assert case.advises in error.advice, client


def test_a_wrong_server_is_asked_once(server: ScriptedServer) -> None:
    for client, case in ((client, case) for client in S3_CLIENTS for case in NO_STORE.values()):
        if case.kind is WrongServer:
            server.expect(*[case.answers] * 50)
            asked(client, server.url, SETTINGS)
            assert len(server.requests) == 1


def test_each_refusal_has_an_advice_of_its_own(server: ScriptedServer) -> None:
    advice = {}
    for name, case in REFUSALS.items():
        server.expect(*[case.answers] * 50)
        error = asked("boto3", server.url, SETTINGS)
        assert error is not None
        advice[name] = error.advice
    same = {("a permission", "a prefix of others"), ("a wrong region", "a bucket of another region")}
    same |= {("the bucket in the host's name (OSS)", "the bucket in the host's name (COS)")}
    assert len({*advice.values()}) == len(advice) - len(same)


@pytest.mark.parametrize(
    ("operation", "permission"),
    [
        ("get_tail", "s3:GetObject"),
        ("put", "s3:PutObject"),
        ("copy_part", "s3:PutObject"),
        ("list", "s3:ListBucket on the bucket"),
        ("delete_many", "s3:DeleteObject"),
        ("abort", "s3:AbortMultipartUpload"),
    ],
)
def test_a_missing_permission_is_that_of_the_operation(operation: str, permission: str) -> None:
    error = store_error(operation, "k", "no", code="AccessDenied", status=403)
    assert permission in error.advice
    assert ("s3:GetObject" in error.advice) == operation.startswith("get")


@pytest.mark.parametrize("client", S3_CLIENTS)
def test_no_operation_succeeds_or_fails_without_words_at_a_wrong_server(client: str, server: ScriptedServer) -> None:
    store = CLIENTS[client]("bucket", StoreSettings(endpoint_url=server.url, attempts=1))
    for name, case in NO_STORE.items():
        for operation, act in OPERATIONS.items():
            if (client, name) == ("obstore", "a console, with an ETag") and operation in ("put", "create"):
                continue  # obstore returns the ETag and nothing else
            server.expect(*[case.answers] * 50)
            with pytest.raises(StoreError) as caught:
                act(store)
            is_of_key = case.answers.status == 404 and not case.answers.body
            assert is_of_key or not isinstance(caught.value, KeyMissing), (name, operation)
        if case.answers.body:  # an empty answer is what stores give, too
            server.expect(*[case.answers] * 50)
            with pytest.raises(StoreError):
                store.delete("k")
            assert len([*store.delete_many(["a", "b"])]) == 2


@pytest.mark.parametrize("client", ["gs", "az"])
def test_no_read_of_the_clouds_succeeds_at_a_wrong_server(client: str, server: ScriptedServer) -> None:
    store = CLIENTS[client]("bucket", StoreSettings(endpoint_url=server.url, attempts=1, no_sign_request=True))
    for name, case in NO_STORE.items():
        if case.kind is not WrongServer:  # clouds repeat what may pass, and wait between
            continue
        for operation in ("get", "get_range", "get_if_changed"):  # the tail needs a HEAD, whose answer has no body
            server.expect(*[case.answers] * 50)
            with pytest.raises(StoreError) as caught:
                OPERATIONS[operation](store)
            assert case.answers.body == b"" or not isinstance(caught.value, KeyMissing), (name, operation)


@pytest.mark.parametrize("client", S3_CLIENTS)
def test_an_object_that_is_a_page_of_html_is_read_where_a_store_sent_it(client: str, server: ScriptedServer) -> None:
    store = CLIENTS[client]("bucket", StoreSettings(endpoint_url=server.url))
    page = found(b"<p>an object</p>")
    server.expect(Reply(200, page.body, {**page.headers, "Content-Type": "text/html", "x-amz-request-id": "1"}))
    assert store.get("k").body == page.body


def test_a_part_without_its_place_is_refused(server: ScriptedServer) -> None:
    server.expect(*[found(b"3456", status=206)] * 3)
    with pytest.raises(WrongServer, match="Content-Range"):
        CLIENTS["boto3"]("bucket", StoreSettings(endpoint_url=server.url)).get_range("k", 0, 4)


def test_answers_for_parts_are_checked_as_all_others(server: ScriptedServer) -> None:
    store = CLIENTS["boto3"]("bucket", StoreSettings(endpoint_url=server.url))
    empty = b"<?xml version='1.0'?><CopyPartResult></CopyPartResult>"
    begun = b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
    server.expect(Reply(200, b"<InitiateMultipartUploadResult></InitiateMultipartUploadResult>"))
    with pytest.raises(WrongServer, match="UploadId"):
        store.start_multipart("k")
    server.expect(Reply(200, begun), Reply(200), Reply(200, empty))
    upload = store.start_multipart("k")
    with pytest.raises(WrongServer, match="ETag"):
        upload.upload_part(1, b"x")
    with pytest.raises(WrongServer, match="ETag"):
        upload.copy_part(1, "other", 0, 4)


def test_what_asks_for_another_attempt_is_never_foreign() -> None:
    for status in (408, 429, 500, 502, 503, 504):
        assert foreign_answer(status, b"<html>", "https://elsewhere", "a body") is None
    shown = str(foreign_answer(302, b"", "https://me:secret@host/?X-Amz-Signature=abc"))
    assert "secret" not in shown
    assert "abc" not in shown


@pytest.mark.parametrize("name", TLS)
def test_tls_on_a_port_without_and_the_reverse_is_said(name: str, server: ScriptedServer, tmp_path: Path) -> None:
    with behind_tls(server.url, certificates(tmp_path)) as secure:
        url = secure.replace("https", "http") if name.startswith("http:") else secure
        url = server.url.replace("http", "https") if TLS[name][0] == "http://" else url
        for client in CLIENTS:
            error = asked(client, url, StoreSettings(attempts=1))
            assert error is not None
            assert error.retryable
            assert TLS[name][1] in error.advice, client
            assert isinstance(error, EndpointUnreachable) or name.startswith("http:")


def test_the_table_is_printed_whole() -> None:
    with redirect_stdout(io.StringIO()) as printed:
        assert main() == 0
    table = printed.getvalue()
    assert all(f"| {name} | " in table for name in (*NO_STORE, *REFUSALS, *TLS, "nothing listens"))
    assert "| none |" not in table
