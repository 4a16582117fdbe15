"""Accel finds which objects hold a stream's offsets, with few requests instead of thousands.

    from accel import MetadataImage, ReadAccelerator, StaticImages, open_store

    image = MetadataImage.from_dict({"streams": [...], "nodes": [...]})
    with ReadAccelerator(StaticImages(image), open_store("s3://bucket")) as accelerator:
        answer = accelerator.get_objects(stream_id=420000, start=1000, end=1600, limit=4)

These are the public names. Start with `ReadAccelerator`; README.md has a tour, docs/how-it-works.md the reasons. Those
of the object catalog are loaded when they are first asked for: who pushes images in needs none of it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from accel.errors import (
    AccelError,
    AccessDenied,
    BucketMissing,
    CatalogDamaged,
    CatalogError,
    CatalogMissing,
    CatalogWentBack,
    CommitRefused,
    CorruptObject,
    FormatError,
    FormatLimit,
    ImageRefused,
    ImageTooOld,
    InconsistentAnswer,
    InvalidRequest,
    KeyMissing,
    MissingExtra,
    ObjectExists,
    ObjectLost,
    PreconditionFailed,
    RangeInvalid,
    RequestRefused,
    SessionFenced,
    StillPending,
    StoreError,
    StoreUnavailable,
    WriteConflict,
)
from accel.image import (
    ImageVersion,
    MetadataImage,
    NodeChange,
    NodeImage,
    ObjectRef,
    OwnershipRange,
    StreamImage,
    StreamObject,
    VersionVector,
    is_newer,
)
from accel.image_source import ImageSource, JsonFile, PolledImages, PollingSource, StaticImages, load_image_file
from accel.lookup.accelerator import ReadAccelerator, Reading
from accel.lookup.answer import Answer, Ending, FoundObject, Kind, Request, check_ranges
from accel.lookup.async_accelerator import AsyncReadAccelerator, AsyncReading
from accel.lookup.explain import Explanation
from accel.lookup.shadow import Difference, accelerate
from accel.lookup.stats import AcceleratorStats, HintStats, LookupStats
from accel.lookup.warming import WarmReport
from accel.settings import Settings
from accel.system import SYSTEM, Components
from loaders.store import S3Settings, open_store

if TYPE_CHECKING:
    from accel.catalog import CatalogSettings, NodeWriter, ObjectCatalog
    from accel.history.rules.configuration import StreamConfiguration
    from accel.history.store import HistorySettings, Stream, StreamStore
    from accel.streams.groups import GroupReader, ReaderGroup
    from accel.streams.reader import AsyncStreamReader, Order, StreamReader
    from accel.streams.rules.events import Event
    from accel.streams.rules.reader_core import ReaderSettings
    from accel.streams.segment_source import ObjectSegmentSource
    from accel.streams.segments_host import ObjectSegments
    from accel.streams.writer import StreamWriter
    from loaders.tables import FormatRecord

__all__ = [
    "SYSTEM",
    "AccelError",
    "AcceleratorStats",
    "AccessDenied",
    "Answer",
    "AsyncReadAccelerator",
    "AsyncReading",
    "AsyncStreamReader",
    "BucketMissing",
    "CatalogDamaged",
    "CatalogError",
    "CatalogMissing",
    "CatalogSettings",
    "CatalogWentBack",
    "CommitRefused",
    "Components",
    "CorruptObject",
    "Difference",
    "Ending",
    "Event",
    "Explanation",
    "FormatError",
    "FormatLimit",
    "FormatRecord",
    "FoundObject",
    "GroupReader",
    "HintStats",
    "HistorySettings",
    "ImageRefused",
    "ImageSource",
    "ImageTooOld",
    "ImageVersion",
    "InconsistentAnswer",
    "InvalidRequest",
    "JsonFile",
    "KeyMissing",
    "Kind",
    "LookupStats",
    "MetadataImage",
    "MissingExtra",
    "NodeChange",
    "NodeImage",
    "NodeWriter",
    "ObjectCatalog",
    "ObjectExists",
    "ObjectLost",
    "ObjectRef",
    "ObjectSegmentSource",
    "ObjectSegments",
    "Order",
    "OwnershipRange",
    "PolledImages",
    "PollingSource",
    "PreconditionFailed",
    "RangeInvalid",
    "ReadAccelerator",
    "ReaderGroup",
    "ReaderSettings",
    "Reading",
    "Request",
    "RequestRefused",
    "S3Settings",
    "SessionFenced",
    "Settings",
    "StaticImages",
    "StillPending",
    "StoreError",
    "StoreUnavailable",
    "Stream",
    "StreamConfiguration",
    "StreamImage",
    "StreamObject",
    "StreamReader",
    "StreamStore",
    "StreamWriter",
    "VersionVector",
    "WarmReport",
    "WriteConflict",
    "accelerate",
    "check_ranges",
    "is_newer",
    "load_image_file",
    "open_store",
]

_LOADED_WHEN_ASKED_FOR = {
    "AsyncStreamReader": "accel.streams.reader",
    "CatalogSettings": "accel.catalog",
    "Event": "accel.streams.rules.events",
    "FormatRecord": "loaders.tables",
    "GroupReader": "accel.streams.groups",
    "HistorySettings": "accel.history.store",
    "NodeWriter": "accel.catalog",
    "ObjectCatalog": "accel.catalog",
    "ObjectSegmentSource": "accel.streams.segment_source",
    "ObjectSegments": "accel.streams.segments_host",
    "Order": "accel.streams.reader",
    "ReaderGroup": "accel.streams.groups",
    "ReaderSettings": "accel.streams.rules.reader_core",
    "Stream": "accel.history.store",
    "StreamConfiguration": "accel.history.rules.configuration",
    "StreamReader": "accel.streams.reader",
    "StreamStore": "accel.history.store",
    "StreamWriter": "accel.streams.writer",
}

if not TYPE_CHECKING:  # a checker that saw this would take any name for a public one

    def __getattr__(name: str) -> Any:
        if name not in _LOADED_WHEN_ASKED_FOR:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_LOADED_WHEN_ASKED_FOR[name]), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LOADED_WHEN_ASKED_FOR})
