"""Accel finds which objects hold a stream's offsets, with few requests instead of thousands.

    from accel import MetadataImage, ReadAccelerator, StaticImages, open_store

    image = MetadataImage.from_dict({"streams": [...], "nodes": [...]})
    with ReadAccelerator(StaticImages(image), open_store("s3://bucket")) as accelerator:
        answer = accelerator.get_objects(stream_id=420000, start=1000, end=1600, limit=4)

These are the names that most users need; others are imported from their modules. Here are the six errors that a caller
handles differently; all errors are in `accel.errors`.
Start with `ReadAccelerator`; README.md has a tour, docs/explanation/lookup.md the reasons. Names other than errors are
loaded on first use, with their dependencies: a program that pushes images loads nothing of the catalog, histories or
streams.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if sys.platform == "win32":
    raise ImportError(
        "Accel runs on Linux and macOS: a store file:// takes their file locks, and commands their signals. On Windows "
        "run it in WSL 2 or a container; programs of Windows reach it over HTTP (accel serve)."
    )

_OWN = {"bloom": "FilterMatrix", "loaders": "`object_index`", "range_index": "StreamRangeIndex"}
"""Packages that other projects may have, too -> a text that ours begins with."""


def _check_own_packages() -> None:
    home = Path(__file__).parent.parent
    for name, text in _OWN.items():
        spec = find_spec(name)
        found = (
            "nothing" if spec is None else spec.origin or f"a folder without code, {spec.submodule_search_locations}"
        )
        source = getattr(spec and spec.loader, "get_source", lambda _: None)(name)
        if Path(found).parent.parent != home or (source is not None and text not in source):
            advice = (
                "install accel-streams into an environment of its own, and run Python where no folder has this name"
            )
            raise ImportError(f"expected the package {name} of Accel in {home}, found {found}: {advice}")


_check_own_packages()  # before the first of them is imported

from accel.errors import (  # noqa: E402 - see above
    ImageTooOld,
    PositionTruncated,
    SessionFenced,
    StillPending,
    StreamDeleted,
    UnknownStream,
)

if TYPE_CHECKING:
    from accel.catalog import CatalogSettings, ObjectCatalog
    from accel.history.rules.configuration import RetentionPolicy, StreamConfiguration
    from accel.history.store import Stream, StreamStore
    from accel.image import MetadataImage, ObjectRef
    from accel.image_source import PolledImages, StaticImages, load_image_file
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
    from loaders.format import RecordBatch
    from loaders.store import StoreSettings, open_store
    from loaders.tables import FormatRecord

__all__ = [
    "Answer",
    "AsyncConnection",
    "AsyncGroupReader",
    "AsyncReadAccelerator",
    "AsyncStreamReader",
    "AsyncStreamWriter",
    "CatalogSettings",
    "Connection",
    "ConnectionSettings",
    "Ending",
    "Event",
    "FormatRecord",
    "GroupReader",
    "ImageTooOld",
    "MetadataImage",
    "ObjectCatalog",
    "ObjectRef",
    "ObjectSegmentSource",
    "ObjectSegments",
    "PolledImages",
    "PositionTruncated",
    "ReadAccelerator",
    "ReaderGroup",
    "ReaderSettings",
    "RecordBatch",
    "Request",
    "RetentionPolicy",
    "SessionFenced",
    "Settings",
    "StaticImages",
    "StillPending",
    "StoreSettings",
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

_MODULES = {
    "accel.catalog": "CatalogSettings ObjectCatalog",
    "accel.history.rules.configuration": "RetentionPolicy StreamConfiguration",
    "accel.history.store": "Stream StreamStore",
    "accel.image": "MetadataImage ObjectRef",
    "accel.image_source": "PolledImages StaticImages load_image_file",
    "accel.lookup.accelerator": "ReadAccelerator",
    "accel.lookup.answer": "Answer Ending Request",
    "accel.lookup.async_accelerator": "AsyncReadAccelerator",
    "accel.lookup.shadow": "accelerate",
    "accel.settings": "Settings",
    "accel.streams.aio": "AsyncGroupReader AsyncStreamReader AsyncStreamWriter",
    "accel.streams.connection": "AsyncConnection Connection connect",
    "accel.streams.group_readers": "GroupReader",
    "accel.streams.groups": "ReaderGroup",
    "accel.streams.reader": "StreamReader",
    "accel.streams.rules.events": "Event",
    "accel.streams.rules.settings": "ReaderSettings",
    "accel.streams.segment_source": "ObjectSegmentSource",
    "accel.streams.segments_host": "ObjectSegments",
    "accel.streams.settings": "ConnectionSettings",
    "accel.streams.writer": "StreamWriter",
    "loaders.format": "RecordBatch",
    "loaders.store": "StoreSettings open_store",
    "loaders.tables": "FormatRecord",
}
_LOADED_WHEN_ASKED_FOR = {name: module for module, names in _MODULES.items() for name in names.split()}

if not TYPE_CHECKING:  # a type checker would otherwise accept any name as public

    def __getattr__(name: str) -> Any:
        if name not in _LOADED_WHEN_ASKED_FOR:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_LOADED_WHEN_ASKED_FOR[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LOADED_WHEN_ASKED_FOR})
