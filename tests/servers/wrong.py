"""Servers that are no store, or refuse what is wrong with a request: what each client says of them, in one table.

    python -m tests.servers.wrong            prints the table: server, client, error and advice

Each answers every request in the same way. `asked` sends a listing, which is what `accel doctor` begins with.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import ssl
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import NamedTuple

import botocore.endpoint
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from loaders.errors import (
    AccessDenied,
    BucketMissing,
    CredentialsExpired,
    RequestRefused,
    StoreError,
    StoreUnavailable,
    WrongServer,
)
from loaders.store import ObjectStore, ObstoreStore, S3Store, StoreSettings
from loaders.store.clouds import AZURE, GOOGLE, CloudStore
from tests.servers.scripted import HANG_UP, Reply, refusal, scripted_server

CLIENTS: dict[str, Callable[[str, StoreSettings], ObjectStore]] = {
    "boto3": S3Store,
    "obstore": ObstoreStore,
    "gs": lambda bucket, settings: CloudStore(bucket, GOOGLE, settings),
    "az": lambda bucket, settings: CloudStore(bucket, AZURE, settings),
}
S3_CLIENTS = ("boto3", "obstore")

PAGE = b"<!DOCTYPE html><html><head><title>MinIO Console</title></head><body><p>Log in</body></html>"
AS_HTML = {"Content-Type": "text/html; charset=utf-8"}
AS_JSON = {"Content-Type": "application/json"}
ELSEWHERE = "https://login.example/bucket"
REGION = b"<Error><Code>%s</Code><Message>expecting 'eu-west-1'</Message><Region>eu-west-1</Region></Error>"


class Wrong(NamedTuple):
    """What a server does, and what is said of it.

    Args:
        answers: to every request.
        kind: the class of the error.
        says: is part of the message, in the clients that `clients` names.
        advises: is part of the advice.
        clients: to which the case applies.
    """

    answers: Reply
    kind: type[StoreError]
    says: str = ""
    advises: str = "a console has another port"
    clients: tuple[str, ...] = tuple(CLIENTS)


def html(status: int, title: str) -> Reply:
    """A page of a proxy or of another server."""
    return Reply(status, PAGE.replace(b"MinIO Console", title.encode()), AS_HTML)


NO_STORE: dict[str, Wrong] = {
    "a console, for any path": Wrong(
        html(200, "MinIO Console"), WrongServer, "HTML, 'MinIO Console'", clients=S3_CLIENTS
    ),
    "a console, with an ETag": Wrong(
        Reply(200, PAGE, {**AS_HTML, "ETag": '"e"', "Last-Modified": "Wed, 21 Oct 2026 07:28:00 GMT"}), WrongServer
    ),
    "JSON": Wrong(Reply(200, b'{"status": "ok"}', AS_JSON), WrongServer, "JSON", clients=S3_CLIENTS),
    "JSON, on the clouds": Wrong(
        Reply(200, b'{"status": "ok"}', AS_JSON), WrongServer, "invalid", clients=("gs", "az")
    ),
    "plain text": Wrong(Reply(200, b"It works!", {"Content-Type": "text/plain"}), WrongServer, clients=S3_CLIENTS),
    "nothing": Wrong(Reply(200), WrongServer, "without a body", clients=S3_CLIENTS),
    "no content": Wrong(Reply(204), WrongServer, "without a body", clients=S3_CLIENTS),
    "404 in HTML": Wrong(html(404, "404 Not Found"), WrongServer, "HTML, '404 Not Found' (status 404)"),
    "404 in JSON": Wrong(Reply(404, b'{"detail": "Not Found"}', AS_JSON), WrongServer, "JSON"),
    "404, and nothing": Wrong(Reply(404), WrongServer, "without a body (status 404)"),
    "a proxy that forbids": Wrong(html(403, "ERR_ACCESS_DENIED"), WrongServer, "'ERR_ACCESS_DENIED'"),
    "a proxy that wants a password": Wrong(html(407, "Proxy Authentication"), WrongServer, "HTML", "HTTP_PROXY"),
    "a service with a password": Wrong(Reply(401, b'{"message": "Unauthorized"}', AS_JSON), WrongServer, "JSON"),
    "a limit of a proxy": Wrong(html(413, "413 Request Entity Too Large"), WrongServer, "413", "proxies before it"),
    "http:// for a port of TLS (nginx)": Wrong(
        html(400, "400 The plain HTTP request was sent to HTTPS port"), WrongServer, "was sent to HTTPS port", "scheme"
    ),
    "http:// for a port of TLS (Go)": Wrong(
        Reply(400, b"Client sent an HTTP request to an HTTPS server.\n"), WrongServer, "to an HTTPS server", "scheme"
    ),
    "a redirect to https": Wrong(
        Reply(301, PAGE, {**AS_HTML, "Location": ELSEWHERE}),
        WrongServer,
        f"redirect to {ELSEWHERE}",
        clients=S3_CLIENTS,
    ),
    "a redirect to itself": Wrong(Reply(302, b"", {"Location": "/bucket"}), WrongServer, "redirect"),
    "a redirect for a time": Wrong(
        Reply(307, b"", {"Location": ELSEWHERE}), WrongServer, f"redirect to {ELSEWHERE}", clients=S3_CLIENTS
    ),
    "a gateway whose store is away": Wrong(html(502, "502 Bad Gateway"), StoreUnavailable, "502", "try again"),
    "a gateway without time": Wrong(html(504, "504 Gateway Time-out"), StoreUnavailable, "504", "try again"),
    "a hang-up": Wrong(HANG_UP, StoreUnavailable, "", "whether it wants https://"),
}
"""What is at the endpoint is no S3."""

REFUSALS: dict[str, Wrong] = {
    "no such bucket": Wrong(refusal(404, "NoSuchBucket"), BucketMissing, "no bucket 'bucket'", "bucket's name"),
    "a token that has expired": Wrong(refusal(400, "ExpiredToken"), CredentialsExpired, "", "renew the credentials"),
    "a key that is not known": Wrong(refusal(403, "InvalidAccessKeyId"), CredentialsExpired, "", "no such access key"),
    "a wrong secret": Wrong(refusal(403, "SignatureDoesNotMatch"), CredentialsExpired, "", "AWS_SECRET_ACCESS_KEY"),
    "a wrong clock": Wrong(refusal(403, "RequestTimeTooSkewed"), RequestRefused, "", "clock (NTP)"),
    "a permission": Wrong(refusal(403, "AccessDenied"), AccessDenied, "", "grant s3:ListBucket on the bucket"),
    "a prefix of others": Wrong(refusal(403, "AccessDenied"), AccessDenied, "", "name the bucket and the prefix that"),
    "a wrong region": Wrong(
        Reply(400, REGION % b"AuthorizationHeaderMalformed"), RequestRefused, "(region eu-west-1)", "--region"
    ),
    "a bucket of another region": Wrong(
        Reply(301, REGION % b"PermanentRedirect"), RequestRefused, "eu-west-1", "--region", S3_CLIENTS
    ),
    "the bucket in the host's name (OSS)": Wrong(
        refusal(403, "SecondLevelDomainForbidden"), RequestRefused, "", "--addressing-style virtual"
    ),
    "the bucket in the host's name (COS)": Wrong(
        refusal(403, "PathStyleDomainForbidden"), RequestRefused, "", "--addressing-style virtual"
    ),
    "any other error": Wrong(refusal(400, "InvalidArgument"), RequestRefused, "InvalidArgument scripted", "a setting"),
}
"""A store, and something wrong with the request: each has an advice of its own."""

TLS: dict[str, tuple[str, str]] = {
    "https:// for a port without TLS": ("http://", "write http:// in the endpoint"),
    "http:// for a port of TLS": ("https://", "whether it wants https://"),
    "a certificate of an unknown authority": ("https://", "--ca-bundle"),
}
"""What is wrong -> the scheme that would be right, and part of the advice."""


class Certificates(NamedTuple):
    """PEM files: of an authority, and of a server at 127.0.0.1 and localhost that it signed, with its key."""

    authority: Path
    server: Path
    key: Path


def certificates(folder: Path) -> Certificates:
    """Make an authority and a server's certificate. rustls takes no certificate for both."""
    paths = Certificates(*(folder / name for name in ("authority.pem", "server.pem", "server.key")))
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in ("an authority", "a store")]
    hosts = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    for number, path in enumerate((paths.authority, paths.server)):
        unsigned = (
            x509.CertificateBuilder(names[0], names[number], keys[number].public_key(), number + 1)
            .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
            .not_valid_after(datetime(2120, 1, 1, tzinfo=UTC))
            .add_extension(x509.BasicConstraints(ca=not number, path_length=None), critical=True)
        )
        unsigned = unsigned.add_extension(hosts, critical=False) if number else unsigned
        path.write_bytes(unsigned.sign(keys[0], hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    plain, form = serialization.NoEncryption(), serialization.PrivateFormat.PKCS8
    paths.key.write_bytes(keys[1].private_bytes(serialization.Encoding.PEM, form, plain))
    return paths


@contextmanager
def behind_tls(url: str, paths: Certificates) -> Iterator[str]:
    """An endpoint with TLS in front of one without: bytes go through."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(paths.server, paths.key)
    host, _, port = url.removeprefix("http://").partition(":")
    listener = socket.create_server(("127.0.0.1", 0))

    def pass_on(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def serve(accepted: socket.socket) -> None:
        with (
            suppress(OSError),
            accepted,
            context.wrap_socket(accepted, server_side=True) as client,
            socket.create_connection((host, int(port))) as server,
        ):
            Thread(target=pass_on, args=(client, server), daemon=True).start()
            pass_on(server, client)

    def accept() -> None:
        with suppress(OSError):
            while True:
                Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    Thread(target=accept, daemon=True).start()
    try:
        yield f"https://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def asked(client: str, url: str, settings: StoreSettings) -> StoreError | None:
    """The error of a listing; None if there is none."""
    store = CLIENTS[client]("bucket", replace(settings, endpoint_url=url, no_sign_request=client in ("gs", "az")))
    try:
        list(store.list("a/"))
    except StoreError as error:
        return error
    return None


def rows() -> Iterator[tuple[str, str, StoreError | None]]:
    """Server, client, error."""
    settings = StoreSettings(attempts=1)
    with scripted_server() as server, ExitStack() as stack:
        for name, case in (NO_STORE | REFUSALS).items():
            for client in case.clients:
                server.expect(*[case.answers] * 100)
                yield name, client, asked(client, server.url, settings)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        secure = stack.enter_context(behind_tls(server.url, certificates(folder)))
        for name, (scheme, _) in TLS.items():
            url = secure.replace("https", "http") if name.startswith("http:") else secure
            url = server.url.replace("http", "https") if scheme == "http://" else url
            for client in CLIENTS:
                yield name, client, asked(client, url, settings)
    for client in CLIENTS:
        yield "nothing listens", client, asked(client, "http://127.0.0.1:1", settings)


def reach_nothing_else() -> None:
    """An environment without a configuration of AWS, and with an account of Azure."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ |= {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AZURE_STORAGE_ACCOUNT_NAME": "account",
    }


def main() -> int:
    """Print the table as Markdown."""
    reach_nothing_else()
    botocore.endpoint.time = SimpleNamespace(sleep=lambda _: None)  # type: ignore[attr-defined] # retries need not wait
    print("| server | client | error | advice |\n|---|---|---|---|")  # noqa: T201 - a program
    for name, client, error in rows():
        advice = "" if error is None else error.advice
        said = "none" if error is None else f"{type(error).__name__}: {error}".partition("\n")[0]
        print(f"| {name} | {client} | {said} | {advice} |")  # noqa: T201 - likewise
    return 0


if __name__ == "__main__":
    sys.exit(main())
