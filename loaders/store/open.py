"""From a URL to a store: the one place that chooses which client is used.

Kinds of URL:

    | URL                       | store                                                                      |
    |---------------------------|----------------------------------------------------------------------------|
    | `s3://bucket/some/prefix` | the keys below `some/prefix/` of a bucket; `s3a:` and `s3n:` mean the same |
    | `file:///folder/of/it`    | a store in a folder of this machine: no server, and it survives the process |
    | `gs://bucket/some/prefix` | the same of Google Cloud Storage; takes the extra `obstore`                |
    | `az://container/prefix`   | the same of Azure Blob Storage; likewise                                   |
    | `memory://name`           | a store in this process's memory; the same name is the same store          |

How to reach S3 is a value (`S3Settings`), which can be printed, compared and sent to another process. What is left at
its default is left to AWS's own configuration chain, as every AWS tool reads it: environment, profile, config files,
container and instance roles, `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, `AWS_IGNORE_CONFIGURED_ENDPOINT_URLS`. There is
no place for credentials here on purpose: settings are printed and travel to other machines, credentials are found where
the client runs.
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
"""Those of the URLs that `open_store` takes."""

STORE_URLS = "s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, file:///folder or memory://name"
"""The URLs of stores, as errors name them."""

_memory_stores: dict[str, MemoryStore] = {}
_memory_lock = ProcessLock()


def open_store(url: str, settings: S3Settings | None = None) -> ObjectStore:
    """Open the store that a URL names. Sends nothing: a wrong bucket shows at the first request.

    Args:
        url: see the table above. Keys are relative to the prefix.
        settings: how to reach S3; by default as AWS's configuration chain says, through boto3.

    Raises:
        ValueError: not such a URL.
        ModuleNotFoundError: the client that the settings name is not installed; the message says what to install.
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
    from loaders.store.file import FileStore  # noqa: PLC0415 - it locks by fcntl, which not every platform has

    return FileStore(folder, sleep=time.sleep)  # noqa: TID251 - the edge of the program, as below


def path_of(url: str) -> Path:
    """The path that a URL with the scheme file names, byte by byte: what is no UTF-8 may stand there as %FF, too.

    >>> path_of("file:///folder/a%20b")
    PosixPath('/folder/a b')

    Raises:
        ValueError: no URL, or a path with a zero byte, which no file has.
    """
    path = unquote_to_bytes(os.fsencode(urlsplit(url).path))
    if b"\0" in path:
        raise ValueError(f"expected a path without zero bytes, found {redacted(url)!r}")
    return Path(os.fsdecode(path))


def _memory_store(name: str) -> MemoryStore:
    with _memory_lock:
        # A caller that opens a store by URL is a program at work, not a simulation: it gets the real clock.
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
    """Do nothing for the URL of an endpoint.

    Raises:
        ValueError: it has no scheme, another one than http and https, or no host.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        expected = "expected an endpoint with its scheme, such as http://localhost:9000 or https://host"
        raise ValueError(f"{expected}, found {redacted(url)!r}")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class S3Settings:
    """How to reach S3. Printed, it shows no user and no password of the endpoint's URL.

    Of it `gs://` and `az://` take: endpoint_url, no_sign_request, connections, attempts and the time-outs.

    Attributes:
        client: "boto3", or "obstore" (needs the extra `obstore`): the same requests for a quarter of the CPU a GET.
        endpoint_url: an endpoint other than AWS, or than Google's or Azure's own; None = what the configuration chain
            says.
        profile: a profile of the AWS config files; None = what the configuration chain says.
        region: None = what the configuration chain says, else us-east-1.
        path_style: whether the bucket goes into the path; None = yes for endpoints other than AWS, which often have
            no DNS name per bucket, and for AWS what the configuration chain says (virtual-hosted by default).
        no_sign_request: send requests without credentials, for public buckets.
        connections: connections kept open to the endpoint; use no more threads than that.
        attempts: requests in all before an operation fails, with jittered exponential backoff between them. It
            replaces AWS_MAX_ATTEMPTS and AWS_RETRY_MODE, so that there is exactly one layer of retries of known size.
            A write with a condition is sent once, whatever this says.
        connect_timeout_seconds: time to open a connection.
        read_timeout_seconds: longest silence in the middle of an answer.
        etag_quotes: whether the endpoint wants quotes around the ETag of If-Match. S3 and the standard do; Ceph
            compares without, and there a quoted ETag never matches.
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
        """An ETag as this endpoint wants it in If-Match; `quotes` wins over the setting."""
        return f'"{etag}"' if (self.etag_quotes if quotes is None else quotes) else etag
