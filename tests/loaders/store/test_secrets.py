"""Of an endpoint's URL no user and no password is shown: not printed, in no error, and in no cause that logs print."""

from __future__ import annotations

import pickle
import traceback

import pytest

from loaders.errors import StoreError, redacted
from loaders.store import PrefixedStore, open_store
from loaders.store.settings import Client, StoreSettings


def kinds_of(base: type[StoreError]) -> set[type[StoreError]]:
    return {base}.union(*map(kinds_of, base.__subclasses__()))


URL = "http://me:s3cr%2Ft@127.0.0.1:1/"


@pytest.mark.parametrize("client", ["boto3", "obstore"])
def test_an_endpoint_that_does_not_answer_is_named_without_its_password(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    settings = StoreSettings(client=client, endpoint_url=URL, region="us-east-1", attempts=1, connect_timeout_seconds=1)
    store = open_store("s3://bucket/prefix", settings)
    with pytest.raises(StoreError) as caught:
        store.get("k")
    told = "".join(traceback.format_exception(caught.value))
    assert "127.0.0.1:1" in told
    assert "s3cr" not in told


def test_settings_are_printed_without_the_password_and_stay_what_they_are() -> None:
    settings = StoreSettings(endpoint_url=URL, region="eu-1")
    assert repr(settings).startswith("StoreSettings(endpoint_url='http://***@127.0.0.1:1/', no_sign_request=False,")
    assert settings.endpoint_url == URL
    copied = pickle.loads(pickle.dumps(settings))  # noqa: S301 - our own bytes
    assert copied == settings
    assert copied.endpoint_url == URL
    assert "s3cr" not in repr(open_store("s3://bucket", settings))


SECRET_URLS = [
    *(f"{scheme}://me:s3cr%2Ft@bucket/prefix" for scheme in ("s3", "s3a", "s3n", "gs", "az", "memory", "file", "http")),
    *(f"{scheme}://s3cr%2Ft@account.blob.example/container" for scheme in ("az", "abfss")),
    "az://container/prefix?sv=2024-11-04&sp=rl&sig=s3cr%2Ft",
    "az://container?SIG=s3cr%2Ft&se=2026",
    "s3://bucket/prefix?AWSAccessKeyId=s3cr%2Ft&Signature=s3cr%2Ft",
    "s3://bucket/p?X-Amz-Credential=s3cr%2Ft%2Feu&X-Amz-Security-Token=s3cr&X-Amz-Signature=s3cr",
    "gs://bucket/prefix?X-Goog-Credential=s3cr&X-Goog-Signature=s3cr",
]


@pytest.mark.parametrize("url", SECRET_URLS)
def test_a_url_with_credentials_is_refused_without_showing_them(url: str) -> None:
    with pytest.raises(ValueError, match=r"found '.*\*\*\*") as refused:
        open_store(url)
    told = "".join(traceback.format_exception(refused.value))
    assert "s3cr" not in str(refused.value)
    assert "s3cr" not in repr(refused.value)
    assert "found" in told


@pytest.mark.parametrize("name", ["bucket/prefix", "a.bucket-1/some/prefix?with=signs&more", "bucket/mail@example.org"])
def test_a_url_without_credentials_is_a_store(name: str) -> None:
    assert isinstance(open_store(f"s3://{name}", StoreSettings(region="eu-1")), PrefixedStore)


@pytest.mark.parametrize("kind", sorted(kinds_of(StoreError), key=str))
def test_no_error_of_a_store_shows_credentials_of_a_url(kind: type[StoreError]) -> None:
    for url in (*SECRET_URLS, URL):
        error = kind("get", "k", f"GET {url} answered 403")
        for text in (str(error), repr(error), str(error.args), error.detail, repr(pickle.loads(pickle.dumps(error)))):  # noqa: S301 - our own bytes
            assert "s3cr" not in text, text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://a:b@h/x and https://c:d@i:1?e=f@g", "http://***@h/x and https://***@i:1?e=f@g"),
        ("http://a:p@ss@h", "http://***@h"),
        ("s3://bucket/key@2 or mail@example.org", "s3://bucket/key@2 or mail@example.org"),
        ("", ""),
    ],
)
def test_only_users_of_urls_are_taken_out(text: str, shown: str) -> None:
    assert redacted(text) == shown
