"""Accel finds which objects hold a stream's offsets, with few requests instead of thousands.

    from accel import MetadataImage, ReadAccelerator, StaticImages, open_store

    image = MetadataImage.from_dict({"streams": [...], "nodes": [...]})
    with ReadAccelerator(StaticImages(image), open_store("s3://bucket")) as accelerator:
        answer = accelerator.get_objects(stream_id=420000, start=1000, end=1600, limit=4)

These are the names that most users need; others are imported from their modules, such as errors from `accel.errors`.
Start with `ReadAccelerator`; README.md has a tour, docs/explanation/lookup.md the reasons. Names other than errors are
loaded on first use, with their dependencies: a program that pushes images loads nothing of the catalog, histories or
streams.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from accel.errors import (
    AccelError,
    CommitRefused,
    CorruptObject,
    HistoryError,
    IllegalState,
    ImageRefused,
    ImageTooOld,
    InvalidRequest,
    NotInHistory,
    ObjectLost,
    OffsetBeyondEnd,
    OperationNotAllowed,
    PositionBeyondEnd,
    PositionTruncated,
    ReaderReplaced,
    SessionFenced,
    StillPending,
    StoreError,
    StoreUnavailable,
    StreamDeleted,
    UnknownStream,
)

if TYPE_CHECKING:
    from accel.catalog import CatalogSettings, NodeWriter, ObjectCatalog
    from accel.history.rules.configuration import RetentionPolicy, StreamConfiguration
    from accel.history.store import Stream, StreamStore
    from accel.image import MetadataImage, ObjectRef
    from accel.image_source import ImageSource, PolledImages, StaticImages, load_image_file
    from accel.lookup.accelerator import ReadAccelerator
    from accel.lookup.answer import Answer, Ending, Request
    from accel.lookup.async_accelerator import AsyncReadAccelerator
    from accel.lookup.shadow import accelerate
    from accel.settings import Settings
    from accel.streams.aio import AsyncGroupReader, AsyncStreamReader, AsyncStreamWriter
    from accel.streams.connection import AsyncConnection, Connection, connect
    from accel.streams.group_readers import GroupReader
    from accel.streams.groups import ReaderGroup
    from accel.streams.reader import StreamReader
    from accel.streams.rules.events import Event
    from accel.streams.rules.settings import ReaderSettings
    from accel.streams.segment_source import ObjectSegmentSource
    from accel.streams.segments_host import ObjectSegments
    from accel.streams.settings import ConnectionSettings
    from accel.streams.writer import StreamWriter
    from loaders.store import StoreSettings, open_store
    from loaders.tables import FormatRecord

__all__ = [
    "AccelError",
    "Answer",
    "AsyncConnection",
    "AsyncGroupReader",
    "AsyncReadAccelerator",
    "AsyncStreamReader",
    "AsyncStreamWriter",
    "CatalogSettings",
    "CommitRefused",
    "Connection",
    "ConnectionSettings",
    "CorruptObject",
    "Ending",
    "Event",
    "FormatRecord",
    "GroupReader",
    "HistoryError",
    "IllegalState",
    "ImageRefused",
    "ImageSource",
    "ImageTooOld",
    "InvalidRequest",
    "MetadataImage",
    "NodeWriter",
    "NotInHistory",
    "ObjectCatalog",
    "ObjectLost",
    "ObjectRef",
    "ObjectSegmentSource",
    "ObjectSegments",
    "OffsetBeyondEnd",
    "OperationNotAllowed",
    "PolledImages",
    "PositionBeyondEnd",
    "PositionTruncated",
    "ReadAccelerator",
    "ReaderGroup",
    "ReaderReplaced",
    "ReaderSettings",
    "Request",
    "RetentionPolicy",
    "SessionFenced",
    "Settings",
    "StaticImages",
    "StillPending",
    "StoreError",
    "StoreSettings",
    "StoreUnavailable",
    "Stream",
    "StreamConfiguration",
    "StreamDeleted",
    "StreamReader",
    "StreamStore",
    "StreamWriter",
    "UnknownStream",
    "accelerate",
    "connect",
    "load_image_file",
    "open_store",
]

_LOADED_WHEN_ASKED_FOR = {
    "Answer": "accel.lookup.answer",
    "AsyncConnection": "accel.streams.connection",
    "AsyncGroupReader": "accel.streams.aio",
    "AsyncReadAccelerator": "accel.lookup.async_accelerator",
    "AsyncStreamReader": "accel.streams.aio",
    "AsyncStreamWriter": "accel.streams.aio",
    "CatalogSettings": "accel.catalog",
    "Connection": "accel.streams.connection",
    "ConnectionSettings": "accel.streams.settings",
    "Ending": "accel.lookup.answer",
    "Event": "accel.streams.rules.events",
    "FormatRecord": "loaders.tables",
    "GroupReader": "accel.streams.group_readers",
    "ImageSource": "accel.image_source",
    "MetadataImage": "accel.image",
    "NodeWriter": "accel.catalog",
    "ObjectCatalog": "accel.catalog",
    "ObjectRef": "accel.image",
    "ObjectSegmentSource": "accel.streams.segment_source",
    "ObjectSegments": "accel.streams.segments_host",
    "PolledImages": "accel.image_source",
    "ReadAccelerator": "accel.lookup.accelerator",
    "ReaderGroup": "accel.streams.groups",
    "ReaderSettings": "accel.streams.rules.settings",
    "Request": "accel.lookup.answer",
    "RetentionPolicy": "accel.history.rules.configuration",
    "Settings": "accel.settings",
    "StaticImages": "accel.image_source",
    "StoreSettings": "loaders.store",
    "Stream": "accel.history.store",
    "StreamConfiguration": "accel.history.rules.configuration",
    "StreamReader": "accel.streams.reader",
    "StreamStore": "accel.history.store",
    "StreamWriter": "accel.streams.writer",
    "accelerate": "accel.lookup.shadow",
    "connect": "accel.streams.connection",
    "load_image_file": "accel.image_source",
    "open_store": "loaders.store",
}

if not TYPE_CHECKING:  # a type checker would otherwise accept any name as public

    def __getattr__(name: str) -> Any:
        if name not in _LOADED_WHEN_ASKED_FOR:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_LOADED_WHEN_ASKED_FOR[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LOADED_WHEN_ASKED_FOR})
