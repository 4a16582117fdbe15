"""The whole tree of errors, and those that lookups raise.

Errors of stores, tables and formats are defined in `loaders/errors.py` and exported here too, so that this page is the
one to read. `retryable` says whether the same call may succeed later by itself; `advice` says what a person can do.

    AccelError
    ├── StoreError                 the object store answered, but not with what was asked for
    │   ├── KeyMissing             no object at this key
    │   ├── BucketMissing          no such bucket
    │   ├── AccessDenied           the credentials may not do this
    │   ├── PreconditionFailed     a conditional request lost
    │   ├── WriteConflict          a conditional write was not decided: read again            (retryable)
    │   ├── RangeInvalid           the bytes asked for lie outside the object
    │   ├── StoreUnavailable       throttled, timed out or broken on the way                  (retryable)
    │   └── RequestRefused         the store rejects the request as such
    ├── FormatError                bytes that are not what a format says
    │   ├── CorruptObject          an object contradicts the format or itself
    │   ├── FormatLimit            more was to be written than the format can express
    │   └── FormatTooNew           a newer release wrote this
    ├── TableError                 a versioned table could not do what was asked
    │   ├── DataExists             the key was to be created and is there
    │   ├── DataNotFound           the key is not there
    │   │   └── TableMissing       the whole table is not there
    │   ├── DataConflict           the key is no longer the version that was read             (retryable)
    │   └── AmbiguousWrite         a lost reply that reading again does not settle
    ├── CatalogError               the object catalog could not do what was asked
    │   ├── CatalogMissing         no catalog lies here
    │   ├── CommitRefused          a commit contradicts what the catalog holds
    │   ├── SessionFenced          a newer session writes for this node
    │   └── MaintenanceRefused     it would not be safe to delete, undo or import now
    ├── ImageTooOld                the image at hand is older than readers may serve from     (retryable)
    ├── ImageRefused               a metadata image contradicts itself
    ├── InvalidRequest             the arguments of a lookup make no sense for this image
    ├── InconsistentAnswer         what was found does not join up: the metadata is wrong
    ├── ObjectLost                 an object that the newest image lists does not exist
    ├── StillPending               a waiting fetch ran out of time before the data was there  (retryable)
    └── MissingExtra               an optional part is not installed
"""

from __future__ import annotations

from loaders.errors import (
    AccelError,
    AccessDenied,
    AmbiguousWrite,
    BucketMissing,
    CorruptObject,
    DataConflict,
    DataExists,
    DataNotFound,
    FormatError,
    FormatLimit,
    FormatTooNew,
    KeyMissing,
    PreconditionFailed,
    RangeInvalid,
    RequestRefused,
    StoreError,
    StoreUnavailable,
    TableError,
    TableMissing,
    WriteConflict,
)

__all__ = [
    "AccelError",
    "AccessDenied",
    "AmbiguousWrite",
    "BucketMissing",
    "CatalogError",
    "CatalogMissing",
    "CommitRefused",
    "CorruptObject",
    "DataConflict",
    "DataExists",
    "DataNotFound",
    "FormatError",
    "FormatLimit",
    "FormatTooNew",
    "ImageRefused",
    "ImageTooOld",
    "InconsistentAnswer",
    "InvalidRequest",
    "KeyMissing",
    "MaintenanceRefused",
    "MissingExtra",
    "ObjectLost",
    "PreconditionFailed",
    "RangeInvalid",
    "RequestRefused",
    "SessionFenced",
    "StillPending",
    "StoreError",
    "StoreUnavailable",
    "TableError",
    "TableMissing",
    "WriteConflict",
]


class CatalogError(AccelError):
    """The object catalog could not do what was asked."""


class CatalogMissing(CatalogError):
    """No catalog lies at this place."""

    advice = "check bucket and prefix; accel catalog init makes a new one"


class CommitRefused(CatalogError):
    """A commit contradicts what the catalog holds; nothing was written."""

    advice = "do not repeat it: the message says what was expected; objects that it would have added are not listed"


class SessionFenced(CatalogError):
    """A newer session was opened for this node; this one may not commit any more."""

    advice = "stop this writer; if it is the one that should live, open the node again"


class MaintenanceRefused(CatalogError):
    """Deleting, undoing or importing would not be safe as things stand; nothing was changed."""

    advice = "the message says what is missing; look at it before anything is forced"


class ImageTooOld(AccelError):
    """The image at hand is older than readers may serve from: objects that it lists may be deleted by now."""

    retryable = True
    advice = "the catalog could not be read for that long: look at the store, and at the warnings in the log"


class ImageRefused(AccelError, ValueError):
    """A metadata image contradicts itself, or is not of the form that an image has."""

    advice = "look at who wrote the image; the message names the stream or node at fault"


class InvalidRequest(AccelError, ValueError):
    """The arguments of a lookup are out of bounds for this image: unknown stream, trimmed offset, negative limit."""

    advice = "ask for a stream that the image has, and for offsets from its first kept one on"


class InconsistentAnswer(AccelError):
    """The objects that were found do not join up; the lookup refuses to give them out.

    Source: the check that the production system makes on every answer.
    """

    advice = "the metadata or an object index is wrong: run accel object verify --all with this image"


class ObjectLost(AccelError):
    """The newest image lists an object that does not exist.

    Args:
        object_id: the object's id.
        key: where it should lie.
        node_id: the node whose list names it; -1 for an object of one stream.
    """

    advice = "restore the object, or have the list corrected; reads of its offsets fail until then"

    def __init__(self, object_id: int, key: str, node_id: int) -> None:
        where = f"for node {node_id}" if node_id >= 0 else "as a stream's own"
        super().__init__(f"object {object_id} at {key!r} is listed {where} in the newest image, and is gone")
        self.object_id = object_id
        self.key = key
        self.node_id = node_id

    def __reduce__(self) -> tuple[type[ObjectLost], tuple[int, str, int]]:
        return type(self), (self.object_id, self.key, self.node_id)


class StillPending(AccelError, TimeoutError):
    """A waiting fetch ran out of time: the newest image has a hole where the data is expected."""

    retryable = True
    advice = "the data is not committed yet; ask again, or look at the writer that owns these offsets"


class MissingExtra(AccelError, ImportError):
    """An optional part of Accel is not installed."""

    advice = "install the extra that the message names"
