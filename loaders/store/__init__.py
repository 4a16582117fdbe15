"""The interface to stores: S3 and its substitutes, behind one small protocol.

`base` defines the protocol; `open_store` returns the store of a URL. `MemoryStore`, `FileStore` (a folder), `S3Store`
(boto3), `ObstoreStore` (S3 by obstore) and `CloudStore` (Google and Azure by obstore) contain objects; `PrefixedStore`
and `CountingStore` wrap another store, as do the faulty, slow and crashing stores of `accel.testing`. One test suite
checks that all of them keep the same promises.

Some are imported at their first use: boto3 takes a while to load, obstore is an extra, and the locks of a folder are
not available on every platform.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from loaders.store.base import (
    ALWAYS,
    Always,
    Body,
    Condition,
    CreateOnly,
    DeleteFailure,
    Fetched,
    IfMatch,
    ListPage,
    MultipartUpload,
    ObjectInfo,
    ObjectStore,
    PartReceipt,
)
from loaders.store.decorated import CountingStore, OperationCount, PrefixedStore, StoreCounts
from loaders.store.memory import MemoryStore
from loaders.store.open import open_store
from loaders.store.settings import StoreSettings

if TYPE_CHECKING:
    from loaders.store.clouds import CloudStore
    from loaders.store.file import FileStore
    from loaders.store.obstore_s3 import ObstoreStore
    from loaders.store.s3 import S3Store

__all__ = [
    "ALWAYS",
    "Always",
    "Body",
    "CloudStore",
    "Condition",
    "CountingStore",
    "CreateOnly",
    "DeleteFailure",
    "Fetched",
    "FileStore",
    "IfMatch",
    "ListPage",
    "MemoryStore",
    "MultipartUpload",
    "ObjectInfo",
    "ObjectStore",
    "ObstoreStore",
    "OperationCount",
    "PartReceipt",
    "PrefixedStore",
    "S3Store",
    "StoreCounts",
    "StoreSettings",
    "open_store",
]

_LAZY = {
    "CloudStore": "loaders.store.clouds",
    "FileStore": "loaders.store.file",
    "ObstoreStore": "loaders.store.obstore_s3",
    "S3Store": "loaders.store.s3",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
