"""Proxies, authorities of one's own, and addresses: what each client does on the way to a store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import botocore.endpoint
import pytest

from accel.image_source import fetched
from loaders.errors import EndpointUnreachable, RequestRefused, StoreError
from loaders.store import StoreSettings
from loaders.store.settings import CA_VARIABLES, is_loopback
from tests.servers.scripted import Reply, ScriptedServer, found, scripted_server
from tests.servers.wrong import CLIENTS, Certificates, behind_tls, certificates

TIMES = {"size_bytes_max": 100, "timeout_seconds": 20.0}
PROXIES = ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy")


@pytest.fixture(autouse=True)
def environment(aws_environment: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No proxy and no authority but those of a test."""
    aws_environment.setattr(botocore.endpoint, "time", SimpleNamespace(sleep=lambda _: None))
    aws_environment.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    for name in (*PROXIES, *CA_VARIABLES):
        aws_environment.delenv(name, raising=False)
    return aws_environment


@pytest.fixture
def proxy(environment: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    """A proxy for all that goes by HTTP, which answers itself."""
    with scripted_server() as server:
        environment.setenv("http_proxy", server.url)
        server.expect(*[found(b"of the proxy")] * 9)
        yield server


def read(client: str, url: str, ca_bundle: str | None = None) -> bytes:
    settings = StoreSettings(endpoint_url=url, attempts=1, ca_bundle=ca_bundle, no_sign_request=client in ("gs", "az"))
    return bytes(CLIENTS[client]("bucket", settings).get("k").body)


@pytest.mark.parametrize("client", CLIENTS)
def test_loopback_is_reached_without_the_proxy_and_others_by_it(
    client: str, scripted: ScriptedServer, proxy: ScriptedServer
) -> None:
    for url in (scripted.url, scripted.url.replace("127.0.0.1", "localhost")):
        scripted.expect(found(b"of the store"))
        assert read(client, url) == b"of the store"
    assert proxy.requests == []
    assert read(client, "http://store.example:9000") == b"of the proxy"


def test_an_image_on_loopback_is_fetched_without_the_proxy(scripted: ScriptedServer, proxy: ScriptedServer) -> None:
    scripted.expect(Reply(200, b"{}"), Reply(200, b"{}"))
    assert fetched(f"{scripted.url}/image", **TIMES) == b"{}"  # type: ignore[arg-type]  # as they are
    assert fetched(f"{scripted.url}/image?X-Amz-Signature=secret", **TIMES) == b"{}"  # type: ignore[arg-type]  # likewise
    assert proxy.requests == []
    assert fetched("http://store.example/image", **TIMES) == b"of the proxy"  # type: ignore[arg-type]  # likewise


def test_no_proxy_reads_a_signature(proxy: ScriptedServer) -> None:
    with pytest.raises(
        OSError, match=r"expected https:// for a URL with a signature, found the proxy 127\.0\.0\.1"
    ) as caught:
        fetched("http://store.example/image?X-Amz-Signature=secret", **TIMES)  # type: ignore[arg-type]  # as they are
    assert "secret" not in str(caught.value)
    assert proxy.requests == []


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates of an authority that no system knows."""
    return certificates(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize("client", CLIENTS)
def test_an_own_authority_is_trusted_by_a_setting_and_by_the_usual_variables(
    client: str, scripted: ScriptedServer, signed: Certificates, environment: pytest.MonkeyPatch
) -> None:
    authority = str(signed.authority)
    with behind_tls(scripted.url, signed) as url:
        scripted.expect(*[found(b"x")] * 9)
        with pytest.raises(EndpointUnreachable) as caught:
            read(client, url)
        assert "AWS_CA_BUNDLE" in caught.value.advice
        assert read(client, url, authority) == b"x"
        for name in CA_VARIABLES:
            environment.setenv(name, authority)
            assert read(client, url) == b"x", name
            environment.delenv(name)


@pytest.mark.parametrize("client", ["boto3", "obstore"])
def test_the_authority_of_the_profile_is_trusted(
    client: str, scripted: ScriptedServer, signed: Certificates, environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "config").write_text(f"[default]\nca_bundle = {signed.authority}\n")
    environment.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    scripted.expect(found(b"x"))
    with behind_tls(scripted.url, signed) as url:
        assert read(client, url) == b"x"


@pytest.mark.parametrize("client", CLIENTS)
def test_a_file_of_an_authority_that_does_not_exist_is_named(client: str, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("SSL_CERT_FILE", "/nowhere/authority.pem")
    with pytest.raises(RequestRefused, match=r"'/nowhere/authority\.pem': expected a file with certificates"):
        read(client, "https://127.0.0.1:1")


@pytest.mark.parametrize("client", CLIENTS)
def test_a_proxy_that_is_away_is_named(client: str, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("http_proxy", "http://127.0.0.1:1")
    with pytest.raises(StoreError) as caught:
        read(client, "http://store.example:9000")
    assert isinstance(caught.value, EndpointUnreachable)
    assert "HTTP_PROXY" in caught.value.advice or client != "boto3"


def test_addresses_of_this_machine_are_known_and_zones_refused() -> None:
    local = ("http://localhost:9", "https://b.localhost", "http://127.8.8.8", "http://[::1]:9", "http://LOCALHOST")
    assert all(map(is_loopback, local))
    assert not any(map(is_loopback, ("http://10.0.0.1", "https://s3.amazonaws.com", "http://localhost.example", "x")))
    for url in ("http://[fe80::1%eth0]:9000", "http://[fe80::1%25eth0]:9000"):
        with pytest.raises(ValueError, match="an address without a zone"):
            StoreSettings(endpoint_url=url)
