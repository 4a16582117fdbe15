"""Opens the store of a URL, and chooses its client.

Kinds of URL:

    | URL                       | store                                                                      |
    |---------------------------|----------------------------------------------------------------------------|
    | `s3://bucket/some/prefix` | the keys below `some/prefix/` of a bucket; `s3a:` and `s3n:` mean the same |
    | `file:///folder/of/it`    | a store in a folder of this machine, without a server; kept on disk        |
    | `gs://bucket/some/prefix` | the same for Google Cloud Storage; needs the extra `obstore`               |
    | `az://container/prefix`   | the same for Azure Blob Storage; needs the extra `obstore`                 |
    | `memory://name`           | a store in this process's memory; the same name is the same store          |

How a store on a network is reached is a value (`settings.StoreSettings`). Credentials are never part of a URL or of
settings: each client finds them on its own machine.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes, urlsplit

from loaders.errors import redacted
from loaders.lifetime import ProcessLock
from loaders.settings import CONVERSIONS, plain_arguments
from loaders.store.decorated import PrefixedStore
from loaders.store.memory import MemoryStore
from loaders.store.settings import StoreSettings

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


@plain_arguments(ValueError)
def open_store(url: str, settings: StoreSettings | None = None) -> ObjectStore:
    """Open the store of a URL. Sends no request: the first request reports a wrong bucket.

    Args:
        url: see the table above. Keys are relative to the prefix.
        settings: how to reach the store; by default as the cloud's own tools do, S3 through boto3. Settings of S3 only
            are not used by `gs://` and `az://`.

    Raises:
        ValueError: the URL has another form, or contains credentials.
        ModuleNotFoundError: the client of the settings is not installed; the message names the package to install.
    """
    scheme, separator, rest = url.partition("://")
    name, _, path = rest.partition("/")
    if separator and scheme.lower() == "file":
        return _file_store(url)
    if not separator or not name or scheme.lower() not in SCHEMES:
        raise ValueError(f"expected {STORE_URLS}, found {redacted(url)!r}")
    if redacted(url) != url:
        raise ValueError(f"expected a URL without user, password and signature, found {redacted(url)!r}")
    store = _store_of(scheme.lower(), name, settings or StoreSettings())
    prefix = path.strip("/")
    return PrefixedStore(store, f"{prefix}/") if prefix else store


CONVERSIONS["ObjectStore"] = lambda value: open_store(value) if isinstance(value, str) and "://" in value else None


def _store_of(scheme: str, name: str, settings: StoreSettings) -> ObjectStore:
    if scheme == "memory":
        return _memory_store(name)
    if scheme in _CLOUD_SCHEMES:
        return _cloud_store(scheme, name, settings)
    return _s3_store(name, settings)


def _cloud_store(scheme: str, bucket: str, settings: StoreSettings) -> ObjectStore:
    from loaders.store.clouds import CLOUDS, CloudStore  # noqa: PLC0415 - obstore need not be installed

    return CloudStore(bucket, CLOUDS[scheme], settings)


def _file_store(url: str) -> FileStore:
    parts = urlsplit(url)
    folder = path_of(url)
    if folder == Path(folder.anchor) or ".." in folder.parts:
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
        ValueError: not a URL, another host, or a path with a zero byte, which no file has.
    """
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise ValueError(f"expected file:/// and a path, with three slashes, found {redacted(url)!r}")
    path = unquote_to_bytes(os.fsencode(parts.path))
    if b"\0" in path:
        raise ValueError(f"expected a path without zero bytes, found {redacted(url)!r}")
    return Path(os.fsdecode(path))


def _memory_store(name: str) -> MemoryStore:
    with _memory_lock:
        # A caller that opens a store by URL is a program, not a simulation: it gets the real clock.
        return _memory_stores.setdefault(name, MemoryStore(clock=time.time))  # noqa: TID251 - the edge of the program


def _s3_store(bucket: str, settings: StoreSettings) -> ObjectStore:
    # Imported here: boto3 takes a while to load, and obstore need not be installed.
    if settings.client == "obstore":
        from loaders.store.obstore_s3 import ObstoreStore  # noqa: PLC0415 - see above

        return ObstoreStore(bucket, settings)
    from loaders.store.s3 import S3Store  # noqa: PLC0415 - see above

    return S3Store(bucket, settings)
