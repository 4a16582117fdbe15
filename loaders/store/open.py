"""From a URL to a store: the one place that chooses which client is used.

Two kinds of URL:

    | URL                       | store                                                                      |
    |---------------------------|----------------------------------------------------------------------------|
    | `s3://bucket/some/prefix` | the keys below `some/prefix/` of a bucket; `s3a:` and `s3n:` mean the same |
    | `memory://name`           | a store in this process's memory; the same name is the same store          |
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from loaders.errors import redacted
from loaders.lifetime import ProcessLock
from loaders.store.decorated import PrefixedStore
from loaders.store.memory import MemoryStore
from loaders.store.settings import S3Settings

if TYPE_CHECKING:
    from loaders.store.base import ObjectStore

_S3_SCHEMES = ("s3", "s3a", "s3n")

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
    if not separator or not name or scheme.lower() not in {*_S3_SCHEMES, "memory"}:
        raise ValueError(f"expected s3://bucket/prefix or memory://name, found {redacted(url)!r}")
    store = _memory_store(name) if scheme.lower() == "memory" else _s3_store(name, settings or S3Settings())
    prefix = path.strip("/")
    return PrefixedStore(store, f"{prefix}/") if prefix else store


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
