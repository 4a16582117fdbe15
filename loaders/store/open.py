"""Opens the store of a URL, and chooses its client.

Kinds of URL:

    | URL                       | store                                                                      |
    |---------------------------|----------------------------------------------------------------------------|
    | `s3://bucket/some/prefix` | the keys below `some/prefix/` of a bucket; `s3a:` and `s3n:` mean the same |
    | `file:///folder/of/it`    | a store in a folder of this machine, without a server; kept on disk        |
    | `gs://bucket/some/prefix` | the same for Google Cloud Storage; needs the extra `obstore`               |
    | `az://container/prefix`   | the same for Azure Blob Storage; needs the extra `obstore`                 |
    | `memory://name`           | a store in this process's memory; the same name is the same store          |

The settings of S3 are a value (`S3Settings`), which can be printed, compared and sent to another process. Settings with
their defaults are read from AWS's configuration chain, as by every AWS tool: environment, profile, config files,
container and instance roles, `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, `AWS_IGNORE_CONFIGURED_ENDPOINT_URLS`. Settings
contain no credentials on purpose: settings are printed and sent to other machines, and each client finds its
credentials on its own machine.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args
from urllib.parse import unquote_to_bytes, urlsplit

from loaders.errors import redacted
from loaders.lifetime import ProcessLock
from loaders.settings import CONNECTIONS, check_settings
from loaders.store.decorated import PrefixedStore
from loaders.store.memory import MemoryStore

if TYPE_CHECKING:
    from loaders.store.base import ObjectStore
    from loaders.store.file import FileStore


_S3_SCHEMES = ("s3", "s3a", "s3n")
_CLOUD_SCHEMES = ("gs", "az")

SCHEMES = (*_S3_SCHEMES, *_CLOUD_SCHEMES, "file", "memory")
"""The schemes of URLs that `open_store` accepts."""

STORE_URLS = "s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, file:///folder or memory://name"
"""The forms of URLs of stores, for error messages."""

_memory_stores: dict[str, MemoryStore] = {}
_memory_lock = ProcessLock()


def open_store(url: str, settings: S3Settings | None = None) -> ObjectStore:
    """Open the store of a URL. Sends no request: the first request reports a wrong bucket.

    Args:
        url: see the table above. Keys are relative to the prefix.
        settings: how to reach S3; by default from AWS's configuration chain, through boto3.

    Raises:
        ValueError: the URL has another form.
        ModuleNotFoundError: the client of the settings is not installed; the message names the package to install.
    """
    scheme, separator, rest = url.partition("://")
    name, _, path = rest.partition("/")
    if separator and scheme.lower() == "file":
        return _file_store(url)
    if not separator or not name or scheme.lower() not in SCHEMES:
        raise ValueError(f"expected {STORE_URLS}, found {redacted(url)!r}")
    store = _store_of(scheme.lower(), name, settings or S3Settings())
    prefix = path.strip("/")
    return PrefixedStore(store, f"{prefix}/") if prefix else store


def _store_of(scheme: str, name: str, settings: S3Settings) -> ObjectStore:
    if scheme == "memory":
        return _memory_store(name)
    return _cloud_store(scheme, name, settings) if scheme in _CLOUD_SCHEMES else _s3_store(name, settings)


def _cloud_store(scheme: str, bucket: str, settings: S3Settings) -> ObjectStore:
    from loaders.store.clouds import CLOUDS, CloudStore  # noqa: PLC0415 - obstore need not be installed

    return CloudStore(bucket, CLOUDS[scheme], settings)


def _file_store(url: str) -> FileStore:
    parts = urlsplit(url)
    folder = path_of(url)
    if parts.netloc not in ("", "localhost") or folder == Path(folder.anchor) or ".." in folder.parts:
        raise ValueError(f"expected file:///absolute/path/of/a/folder, found {redacted(url)!r}")
    if parts.query or parts.fragment:
        raise ValueError(f"expected file:///folder with ? and # written as %3F and %23, found {redacted(url)!r}")
    from loaders.store.file import FileStore  # noqa: PLC0415 - needs fcntl, which not every platform has

    return FileStore(folder, sleep=time.sleep)  # noqa: TID251 - the edge of the program, as below


def path_of(url: str) -> Path:
    """The path in a URL with the scheme file; bytes that are not UTF-8 are written as %FF.

    >>> path_of("file:///folder/a%20b")
    PosixPath('/folder/a b')

    Raises:
        ValueError: not a URL, or a path with a zero byte, which no file has.
    """
    path = unquote_to_bytes(os.fsencode(urlsplit(url).path))
    if b"\0" in path:
        raise ValueError(f"expected a path without zero bytes, found {redacted(url)!r}")
    return Path(os.fsdecode(path))


def _memory_store(name: str) -> MemoryStore:
    with _memory_lock:
        # A caller that opens a store by URL is a program, not a simulation: it gets the real clock.
        return _memory_stores.setdefault(name, MemoryStore(clock=time.time))  # noqa: TID251 - the edge of the program


def _s3_store(bucket: str, settings: S3Settings) -> ObjectStore:
    # Imported here: boto3 takes a while to load, and obstore need not be installed.
    if settings.client == "obstore":
        from loaders.store.obstore_s3 import ObstoreStore  # noqa: PLC0415 - see above

        return ObstoreStore(bucket, settings)
    from loaders.store.s3 import S3Store  # noqa: PLC0415 - see above

    return S3Store(bucket, settings)


Client = Literal["boto3", "obstore"]


def check_endpoint_url(url: str) -> None:
    """Check the URL of an endpoint.

    Raises:
        ValueError: it has no scheme, another scheme than http and https, or no host.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        expected = "expected an endpoint with its scheme, such as http://localhost:9000 or https://host"
        raise ValueError(f"{expected}, found {redacted(url)!r}")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class S3Settings:
    """How to reach S3. The printed form contains no user and no password of the endpoint's URL.

    `gs://` and `az://` use: endpoint_url, no_sign_request, connections, attempts and the time-outs.

    Attributes:
        client: "boto3", or "obstore" (needs the extra `obstore`): the same requests with a quarter of the CPU time of
            a GET.
        endpoint_url: an endpoint other than that of AWS, Google or Azure; None = from the configuration chain.
        profile: a profile of the AWS config files; None = from the configuration chain.
        region: None = from the configuration chain, otherwise us-east-1.
        path_style: whether the bucket is part of the path; None = yes for endpoints other than AWS, which often have
            no DNS name per bucket, and for AWS from the configuration chain (by default part of the host name).
        no_sign_request: send requests without credentials, for public buckets.
        connections: connections kept open to the endpoint; use no more threads than that.
        attempts: total number of requests before an operation fails, with jittered exponential backoff between them.
            It replaces AWS_MAX_ATTEMPTS and AWS_RETRY_MODE, so that there is exactly one layer of retries of known
            size. A write with a condition is always sent once.
        connect_timeout_seconds: time to open a connection.
        read_timeout_seconds: longest silence in the middle of an answer.
        etag_quotes: whether the ETag of If-Match is sent with quotes, as S3 and the standard require. Ceph compares
            without quotes, so that a quoted ETag never matches.
    """

    client: Client = "boto3"
    endpoint_url: str | None = None
    profile: str | None = None
    region: str | None = None
    path_style: bool | None = None
    no_sign_request: bool = False
    connections: int = CONNECTIONS
    attempts: int = 5
    connect_timeout_seconds: float = 5.0
    read_timeout_seconds: float = 30.0
    etag_quotes: bool = True

    def __post_init__(self) -> None:
        if self.client not in get_args(Client):
            raise ValueError(f"expected client as one of {', '.join(get_args(Client))}, found {self.client!r}")
        if self.endpoint_url is not None:
            check_endpoint_url(self.endpoint_url)
        check_settings(self)

    def __repr__(self) -> str:
        values = (f"{setting.name}={redacted(repr(getattr(self, setting.name)))}" for setting in fields(self))
        return f"{type(self).__name__}({', '.join(values)})"

    def condition_etag(self, etag: str, quotes: bool | None = None) -> str:
        """An ETag in the form of this endpoint's If-Match; `quotes` takes precedence over the setting."""
        return f'"{etag}"' if (self.etag_quotes if quotes is None else quotes) else etag
