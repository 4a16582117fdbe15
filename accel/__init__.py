"""Accel finds which objects hold a stream's offsets, with few requests instead of thousands.

    from accel import MetadataImage, ReadAccelerator, StaticImages, open_store

    image = MetadataImage.from_dict({"streams": [...], "nodes": [...]})
    with ReadAccelerator(StaticImages(image), open_store("s3://bucket")) as accelerator:
        answer = accelerator.get_objects(stream_id=420000, start=1000, end=1600, limit=4)

These are the public names. Start with `ReadAccelerator`; README.md has a tour, docs/how-it-works.md the reasons.
"""

from accel.accelerator import ReadAccelerator, Reading
from accel.answer import Answer, Ending, FoundObject, Kind, Request, check_ranges
from accel.async_accelerator import AsyncReadAccelerator, AsyncReading
from accel.errors import (
    AccelError,
    AccessDenied,
    BucketMissing,
    CorruptObject,
    FormatError,
    FormatLimit,
    ImageRefused,
    ImageTooOld,
    InconsistentAnswer,
    InvalidRequest,
    KeyMissing,
    MissingExtra,
    ObjectLost,
    PreconditionFailed,
    RangeInvalid,
    RequestRefused,
    StillPending,
    StoreError,
    StoreUnavailable,
    WriteConflict,
)
from accel.explain import Explanation
from accel.image import MetadataImage, NodeChange, NodeImage, ObjectRef, OwnershipRange, StreamImage, StreamObject
from accel.image_source import ImageSource, JsonFile, PolledImages, StaticImages, load_image_file
from accel.metrics import AcceleratorStats, LookupStats
from accel.settings import Settings
from accel.system import SYSTEM, Components
from accel.version import ImageVersion, VersionVector, is_newer
from accel.wrap import Difference, accelerate
from loaders.store import S3Settings, open_store

__all__ = [
    "SYSTEM",
    "AccelError",
    "AcceleratorStats",
    "AccessDenied",
    "Answer",
    "AsyncReadAccelerator",
    "AsyncReading",
    "BucketMissing",
    "Components",
    "CorruptObject",
    "Difference",
    "Ending",
    "Explanation",
    "FormatError",
    "FormatLimit",
    "FoundObject",
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
    "ObjectLost",
    "ObjectRef",
    "OwnershipRange",
    "PolledImages",
    "PreconditionFailed",
    "RangeInvalid",
    "ReadAccelerator",
    "Reading",
    "Request",
    "RequestRefused",
    "S3Settings",
    "Settings",
    "StaticImages",
    "StillPending",
    "StoreError",
    "StoreUnavailable",
    "StreamImage",
    "StreamObject",
    "VersionVector",
    "WriteConflict",
    "accelerate",
    "check_ranges",
    "is_newer",
    "load_image_file",
    "open_store",
]
