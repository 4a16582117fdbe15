"""The whole tree of errors: those of stores, formats and tables, of the catalog, of histories, and of lookups.

The first of these are defined in `loaders/errors.py` and exported here too, so that this page is the one to read.
`retryable` says whether the same call may succeed later by itself; `advice` says what a person can do.

    AccelError
    ├── StoreError                 the object store answered, but not with what was asked for
    │   ├── KeyMissing             no object at this key
    │   ├── BucketMissing          no such bucket
    │   ├── AccessDenied           the credentials may not do this
    │   ├── CredentialsMissing     there is nobody to ask as: no credentials were found
    │   ├── PreconditionFailed     a conditional request lost
    │   │   └── ObjectExists       another object lies where this one was to be written
    │   ├── WriteConflict          a conditional write was not decided: read again            (retryable)
    │   ├── RangeInvalid           the bytes asked for lie outside the object
    │   ├── StoreUnavailable       throttled, timed out or broken on the way                  (retryable)
    │   │   └── EndpointUnreachable  nothing answers at the endpoint's name and port      (retryable)
    │   └── RequestRefused         the store rejects the request as such
    ├── FormatError                bytes that are not what a format says
    │   ├── CorruptObject          an object contradicts the format or itself
    │   ├── FormatLimit            more was to be written than the format can express
    │   ├── NameRefused            a name that cannot stand in a key
    │   └── FormatTooNew           a newer release wrote this
    ├── TableError                 a versioned table could not do what was asked
    │   ├── DataExists             the key was to be created and is there
    │   ├── DataNotFound           the key is not there
    │   │   └── TableMissing       the whole table is not there
    │   ├── DataConflict           the key is no longer the version that was read             (retryable)
    │   └── AmbiguousWrite         a lost reply that reading again does not settle
    ├── CatalogError               the object catalog could not do what was asked
    │   ├── CatalogMissing         no catalog lies here
    │   ├── CatalogDamaged         a key that must be there is gone, or went back in time
    │   ├── CatalogWentBack        a key holds less than was read from it before
    │   ├── CommitRefused          a commit contradicts what the catalog holds
    │   ├── SessionFenced          a newer session writes for this node
    │   ├── MaintenanceRefused     it would not be safe to delete, undo or import now
    │   └── MaintenanceStopped     a collection ended half-way
    ├── HistoryError               a question about a stream's history, or a change of it, cannot be
    │   ├── InvalidArgument        a cut, time or size that makes no sense for this stream
    │   ├── NotInHistory           an epoch, segment, recorded cut or transaction that is not there
    │   │   └── StreamDeleted      the stream was deleted since it was opened, or is being deleted
    │   ├── IllegalState           not while the stream or transaction stands where it does
    │   ├── PositionTruncated      the stream begins behind where a reader stands
    │   ├── HostMissing            a workflow needs the process that holds the segments
    │   ├── OperationNotAllowed    another workflow has the stream                            (retryable)
    │   │   └── SegmentsElsewhere  a step is for the node that has the segments open          (retryable)
    │   ├── ScaleInputInvalid      new key ranges that do not replace the sealed ones
    │   ├── ScalePrecondition      segments that are not active, or too few afterwards
    │   └── ScaleConflict          another scale is under way                                 (retryable)
    ├── Closed                     what was asked was closed before, or meanwhile
    ├── WrongProcess               what was asked belongs to another process: this one was forked, or sent a copy
    ├── ImageTooOld                the image at hand is older than readers may serve from     (retryable)
    ├── ImageRefused               a metadata image contradicts itself
    ├── InvalidRequest             the arguments of a lookup make no sense for this image
    │   └── UnknownStream          a stream that the image does not have               (sometimes retryable)
    ├── InconsistentAnswer         what was found does not join up: the metadata is wrong
    ├── ObjectLost                 an object that the newest image lists does not exist
    ├── WrongPlace                 no object of the namespace lies at the store: a wrong prefix or namespace
    ├── WriterStalled              no room came free for an event: uploads are too slow       (retryable)
    ├── ReaderStalled              a reader waited in vain for what must be there             (retryable)
    ├── StillPending               a waiting fetch ran out of time before the data was there  (retryable)
    ├── LookupTimedOut             a wrapped lookup found no object within its time           (retryable)
    └── MissingExtra               an optional part is not installed
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, unique
from typing import Any, ClassVar

from loaders.errors import (
    AccelError,
    AccessDenied,
    AmbiguousWrite,
    BucketMissing,
    Closed,
    CorruptObject,
    CredentialsMissing,
    DataConflict,
    DataExists,
    DataNotFound,
    EndpointUnreachable,
    FormatError,
    FormatLimit,
    FormatTooNew,
    KeyMissing,
    NameRefused,
    ObjectExists,
    PreconditionFailed,
    RangeInvalid,
    RequestRefused,
    StoreError,
    StoreUnavailable,
    TableError,
    TableMissing,
    WriteConflict,
    WrongProcess,
)

__all__ = [
    "AccelError",
    "AccessDenied",
    "AmbiguousWrite",
    "BucketMissing",
    "CatalogDamaged",
    "CatalogError",
    "CatalogMissing",
    "CatalogWentBack",
    "Closed",
    "CommitRefused",
    "CorruptObject",
    "CredentialsMissing",
    "DataConflict",
    "DataExists",
    "DataNotFound",
    "EndpointUnreachable",
    "FormatError",
    "FormatLimit",
    "FormatTooNew",
    "HistoryError",
    "HostMissing",
    "IllegalState",
    "ImageRefused",
    "ImageTooOld",
    "InconsistentAnswer",
    "InvalidArgument",
    "InvalidRequest",
    "KeyMissing",
    "LookupTimedOut",
    "MaintenanceRefused",
    "MaintenanceStopped",
    "MissingExtra",
    "NameRefused",
    "NotInHistory",
    "ObjectExists",
    "ObjectLost",
    "OperationNotAllowed",
    "PositionTruncated",
    "PreconditionFailed",
    "RangeInvalid",
    "ReaderStalled",
    "RequestRefused",
    "ScaleConflict",
    "ScaleInputInvalid",
    "ScalePrecondition",
    "SegmentsElsewhere",
    "SessionFenced",
    "StillPending",
    "StoreError",
    "StoreUnavailable",
    "StreamDeleted",
    "TableError",
    "TableMissing",
    "UnknownStream",
    "WriteConflict",
    "WriterStalled",
    "WrongPlace",
    "WrongProcess",
]


class CatalogError(AccelError):
    """The object catalog could not do what was asked."""


class CatalogMissing(CatalogError):
    """No catalog lies at this place."""

    advice = "check bucket and prefix; accel catalog init makes a new one"


class CatalogDamaged(CatalogError):
    """A key that must be there is gone, or holds less than what is known to have stood there; nothing was written.

    Going on would give out ids twice, or begin anew beside objects that were acknowledged.
    """

    advice = (
        "stop accel catalog gc and the writers, and put the key that the message names back from the bucket's versions "
        "or a backup (docs/operations/repair.md, 'A key that does not decode'); "
        "then run accel catalog verify, and accel catalog restored if a counter is gone or an older version came back"
    )


class CatalogWentBack(CatalogError):
    """A key of the catalog holds an earlier version than was read from it before, or another history.

    Args:
        where: the key.
        seen: sequence number and nonce that were read before.
        found: those of what stands there now; None if nothing does.
    """

    advice = (
        'the bucket or this key was put back from a copy: stop writers, and see "A bucket from yesterday\'s backup" in '
        "docs/operations/repair.md; accel catalog restored lets readers go on with what is there now"
    )

    def __init__(self, where: str, seen: tuple[int, bytes], found: tuple[int, bytes] | None) -> None:
        now = "nothing" if found is None else f"version {found[0]} ({found[1].hex()})"
        super().__init__(
            f"{where}: expected version {seen[0]} ({seen[1].hex()}), which was read before, or one that follows it, "
            f"found {now}"
        )
        self.where = where
        self.seen = seen
        self.found = found

    def __reduce__(self) -> tuple[type[CatalogWentBack], tuple[str, tuple[int, bytes], tuple[int, bytes] | None]]:
        return type(self), (self.where, self.seen, self.found)


class CommitRefused(CatalogError):
    """A commit contradicts what the catalog holds; nothing was written."""

    advice = "do not repeat it: the message says what was expected; objects that it would have added are not listed"


class StreamsReleased(CommitRefused):
    """Another node takes streams over from this one, or has done so: their data was not committed.

    Args:
        node_id: the node that had them open.
        stream_ids: the streams. What else the commit would have brought was not committed either, and may be committed
            without them.
    """

    advice = "commit the other streams without these; then open these again, which tells the node that has them now"

    def __init__(self, node_id: int, stream_ids: tuple[int, ...]) -> None:
        shown = ", ".join(str(stream_id) for stream_id in stream_ids[:5])
        more = "" if len(stream_ids) <= 5 else f", ... ({len(stream_ids)} in all)"
        super().__init__(
            f"expected streams of node {node_id}, found {shown}{more} released: another node takes them over"
        )
        self.node_id = node_id
        self.stream_ids = stream_ids

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.node_id, self.stream_ids)


class OwnerReplaced(CatalogError):
    """Another process has registered as the owner for this node.

    Args:
        node_id: the node.
    """

    advice = "stop this process's writers; if it is the one that should live, register again and open the node again"

    def __init__(self, node_id: int) -> None:
        super().__init__(f"expected to be the owner of node {node_id}, found another process registered for it")
        self.node_id = node_id

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.node_id,)


class OwnerUnreachable(CatalogError):
    """A segment is another node's, which cannot be asked; nothing was written.

    Args:
        node_id: its owner.
        address: where that takes events; empty = nowhere.
        segment: as text, with its stream.
        reason: what stands in the way.
    """

    retryable = True
    advice = "wait for the owner, or for the end of its lease; see that its address is one that this client may ask"

    def __init__(self, node_id: int, address: str, segment: str, reason: str) -> None:
        where = f"at {address}" if address else "without an address"
        super().__init__(f"expected to reach the owner of {segment}, node {node_id} {where}, found {reason}")
        self.node_id, self.address, self.segment, self.reason = node_id, address, segment, reason

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.node_id, self.address, self.segment, self.reason)


class ForwardInDoubt(CatalogError):
    """Events were sent to the owner of their segment, and no reply came: they may be durable or not.

    Args:
        node_id: the owner.
        address: where it was asked.
        segment: as text, with its stream.
    """

    retryable = True
    advice = (
        "flush again: events whose futures are open are sent again, and none is taken twice, by whatever owner. An"
        " event whose future failed was given up while its owner lived: read the end of the segment, or use writer_id"
    )

    def __init__(self, node_id: int, address: str, segment: str) -> None:
        super().__init__(f"expected a reply of node {node_id} at {address} for {segment}, found none")
        self.node_id, self.address, self.segment = node_id, address, segment

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.node_id, self.address, self.segment)


class SessionFenced(CatalogError):
    """A newer session was opened for this node; this one may not commit any more."""

    advice = "stop this writer; if it is the one that should live, open the node again"


class MaintenanceRefused(CatalogError):
    """Deleting, undoing or importing would not be safe as things stand; nothing was changed."""

    advice = "nothing was changed; the message says what was expected: look at that before anything is forced"


class MaintenanceStopped(CatalogError):
    """A collection ended half-way: what it had done by then stands, and its journals tell of it.

    Args:
        message: how far it came, and why no further.
        report: the same as data: an `accel.catalog.collect.CollectionReport`.
    """

    advice = "nothing that was deleted comes back, and nothing that is needed was; look at the reason, then start again"

    def __init__(self, message: str, report: Any) -> None:
        super().__init__(message)
        self.report = report

    def __reduce__(self) -> tuple[type[MaintenanceStopped], tuple[str, Any]]:
        return type(self), (str(self), self.report)


class HistoryError(AccelError):
    """A question about a stream's history, or a change of it, cannot be answered or made."""

    code: ClassVar[str] = ""
    """The kind, as controllers of stream stores name it."""


class InvalidArgument(HistoryError, ValueError):
    """A cut, a time or a size that makes no sense for this stream; nothing was changed."""

    code = "INVALID_ARGUMENT"
    advice = "the message says what was expected; accel stream describe shows what the stream has"


@unique
class Sought(Enum):
    """What was looked for in a history, and where a person finds what there is."""

    SCOPE = "accel scope list shows the scopes that there are"
    STREAM = "accel stream list shows the streams of a scope; one that is half created: create it again, or delete it"
    EPOCH = "accel stream describe tells the current epoch; accel stream epochs lists those up to there"
    SEGMENT = "accel stream segments shows those of now or of a time, accel stream epochs those of an epoch"
    CUT = "accel stream cuts list shows when cuts were recorded; those that retention passed are deleted"
    REQUEST = "accel stream requests lists those that wait, and the last that ended"
    GROUP = "accel stream group list shows the groups of readers that a stream has"
    TRANSACTION = "accel txn list shows those that have not ended; how one ended is remembered for a day or two"


class HostMissing(HistoryError, RuntimeError):
    """A workflow needs the process that holds the segments, and the store was opened without one.

    Args:
        what: the workflow, as "scale".
        stream: scope and name.
    """

    code = "HOST_MISSING"
    advice = (
        "do it in a process that holds the segments, as StreamStore.open(store, host=ObjectSegments(...)); a scale can"
        " be asked for with Stream.request_scale, and is carried out there"
    )

    def __init__(self, what: str, stream: str) -> None:
        super().__init__(f"expected a host of the segments to {what} of {stream}, found none")


class NotInHistory(HistoryError, LookupError):
    """There is no such scope or stream, or the stream has no such epoch, segment, cut, request, group or transaction.

    Args:
        message: what was expected, and what was found.
        sought: what was looked for: the advice depends on it.
    """

    code = "DATA_NOT_FOUND"
    advice = Sought.EPOCH.value

    def __init__(self, message: str, sought: Sought = Sought.EPOCH) -> None:
        super().__init__(message)
        self.sought = sought
        self.advice = sought.value  # type: ignore[misc]  # of this one question

    def __reduce__(self) -> tuple[type[NotInHistory], tuple[str, Sought]]:
        return type(self), (str(self), self.sought)


class StreamDeleted(NotInHistory):
    """A stream was deleted since it was opened, or is being deleted; one of its name that came later is another stream.

    Args:
        stream: scope and name.
        unique_id: what told it from others of its name.
    """

    def __init__(self, stream: str, unique_id: str) -> None:
        super().__init__(f"expected stream {stream} ({unique_id}), found that it is deleted", Sought.STREAM)
        self.advice = (  # type: ignore[misc]  # of this one refusal
            "open it again by its name, if there is one of that name; what was deleted does not come back"
        )
        self.stream = stream
        self.unique_id = unique_id

    def __reduce__(self) -> tuple[type[StreamDeleted], tuple[str, str]]:  # type: ignore[override]  # its own arguments
        return type(self), (self.stream, self.unique_id)


class IllegalState(HistoryError):
    """Not while the stream, or the transaction, stands where it does; nothing was changed."""

    code = "ILLEGAL_STATE"
    advice = (
        "the message says what stands in the way: what is sealed or has ended takes no such change any more; "
        "a stream is sealed before it is deleted, and a scope is emptied"
    )


class OperationNotAllowed(HistoryError):
    """Another workflow has the stream; nothing was changed."""

    code = "OPERATION_NOT_ALLOWED"
    retryable = True
    advice = "try again when it is done; if it lasts, accel stream recover finishes what a crash left behind"


class SegmentsElsewhere(OperationNotAllowed):
    """A step of a workflow is for the node that has the segments open; the workflow still has the stream.

    What this process has open was dealt with. The workflow goes on in any process, once the others have done theirs.

    Args:
        what: the step, as "seal".
        stream: scope and name.
        nodes: which have the segments open.
        segments: as text, those that they have open.
        owners: the same: nodes by segment id.
    """

    code = "SEGMENTS_ELSEWHERE"
    advice = (
        "that node goes on with it when its writer flushes, or by StreamWriter.carry_out_requests; if its process is"
        " dead, open a session for the node, ObjectSegments(catalog, store, node_id=...), which fences it, and recover"
    )

    def __init__(
        self, what: str, stream: str, nodes: tuple[int, ...], segments: str, owners: Mapping[int, int] | None = None
    ) -> None:
        named = f"node {nodes[0]}" if len(nodes) == 1 else f"nodes {', '.join(map(str, nodes))}"
        super().__init__(f"expected to {what} segments of {stream} that are open here, found {segments} on {named}")
        self.what, self.stream, self.nodes, self.segments = what, stream, nodes, segments
        self.owners = dict(owners or {})

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.what, self.stream, self.nodes, self.segments, self.owners)


class ScaleInputInvalid(HistoryError, ValueError):
    """The new key ranges of a scale do not cover exactly what the sealed segments cover."""

    code = "INPUT_INVALID"
    advice = "the new ranges must fill the sealed ones exactly, without overlap; give the stored bounds, digit by digit"


class ScalePrecondition(HistoryError):
    """A scale names segments that are not active, or would leave too few; nothing was changed."""

    code = "PRECONDITION"
    advice = "plan the scale anew: accel stream segments shows the active ones, accel stream describe the least number"


class ScaleConflict(HistoryError):
    """Another scale was asked for and is not finished; nothing was changed."""

    code = "SCALE_CONFLICT"
    retryable = True
    advice = "try again with the segments that the other scale leaves; if it lasts, accel stream recover finishes it"


class PositionTruncated(HistoryError, LookupError):
    """A reader stands where the stream begins no more: what it would read next was truncated away.

    Args:
        stream: which stream.
        segment_id: the segment that it reads.
        offset: where it stands in that.
        head: the cut that the stream begins with now.
    """

    code = "TRUNCATED"
    advice = "go on at the head: StreamReader.skip_to_head(), or accel stream read --skip-truncated"

    def __init__(self, stream: str, segment_id: int, offset: int, head: Mapping[int, int]) -> None:
        found = f"segment {segment_id & 0xFFFFFFFF}@{segment_id >> 32} at {offset}"
        begins = " ".join(
            f"{number & 0xFFFFFFFF}@{number >> 32}={value}" for number, value in sorted(head.items())[:20]
        )
        super().__init__(f"{stream}: expected a position from the stream's head ({begins}) on, found {found}")
        self.stream = stream
        self.segment_id = segment_id
        self.offset = offset
        self.head = dict(head)

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.stream, self.segment_id, self.offset, self.head)


class ImageTooOld(AccelError):
    """The image at hand is older than readers may serve from: objects that it lists may be deleted by now."""

    retryable = True
    advice = "the catalog could not be read for that long: look at the store, and at the warnings in the log"


class ImageRefused(AccelError, ValueError):
    """A metadata image contradicts itself, or is not of the form that an image has."""

    advice = "look at who wrote the image; the message names the stream or node at fault"


class InvalidRequest(AccelError, ValueError):
    """The arguments of a lookup are no numbers, or out of bounds: unknown stream, trimmed offset, negative limit."""

    advice = "ask for a stream that the image has, and for offsets from its first kept one on"


class UnknownStream(InvalidRequest):
    """The image does not have this stream.

    If it is the newest, there is no such stream. If a newer one could not be had, or was asked for by another lookup a
    moment ago, the stream may have been opened since: then the message says so, and a retry helps.

    Args:
        stream_id: the stream.
        image_version: the version of the image, as text.
        unconfirmed: why the image may not be the newest; empty if it was asked for just now.
    """

    def __init__(self, stream_id: int, image_version: str, unconfirmed: str = "") -> None:
        behind = f"; {unconfirmed}" if unconfirmed else ""
        super().__init__(f"expected a stream of image version {image_version}, found stream {stream_id}{behind}")
        self.stream_id = stream_id
        self.image_version = image_version
        self.unconfirmed = unconfirmed
        if unconfirmed:
            self.retryable = True  # type: ignore[misc]  # in this case alone: the newest image may have it
            self.advice = "ask again in a second: the stream may be newer than the image"  # type: ignore[misc]  # likewise

    def __reduce__(self) -> tuple[type[UnknownStream], tuple[int, str, str]]:
        return type(self), (self.stream_id, self.image_version, self.unconfirmed)


class InconsistentAnswer(AccelError):
    """The objects that were found do not join up; the lookup refuses to give them out.

    Source: the check that the production system makes on every answer.
    """

    advice = "the metadata or an object index is wrong: run accel object verify --all with this image"


class ObjectLost(AccelError):
    """The newest image lists an object that does not exist.

    If no newer image could be had, because the source of images failed, the object may well have left the list since:
    then the message says so, and a retry helps once the source answers.

    Args:
        object_id: the object's id.
        key: where it should lie.
        node_id: the node whose list names it; -1 for an object of one stream.
        unconfirmed_seconds: how long ago the image was last known to be the newest; None if it was asked for just now.
        reason: why a newer image could not be had.
    """

    advice = "restore the object, or have the list corrected; reads of its offsets fail until then"

    def __init__(
        self, object_id: int, key: str, node_id: int, unconfirmed_seconds: float | None = None, reason: str = ""
    ) -> None:
        where = f"for node {node_id}" if node_id >= 0 else "as a stream's own"
        image, failure = "the newest image", ""
        if unconfirmed_seconds is not None:
            image = f"an image that was last known to be the newest {unconfirmed_seconds:.1f} s ago"
            failure = f"; a newer one could not be had: {reason}"
            self.retryable = True  # type: ignore[misc]  # in this case alone: the newest image may not list it
            self.advice = "look at the source of images first: the object may have left the list since"  # type: ignore[misc]  # likewise
        super().__init__(f"object {object_id} at {key!r} is listed {where} in {image}, and is gone{failure}")
        self.object_id = object_id
        self.key = key
        self.node_id = node_id
        self.unconfirmed_seconds = unconfirmed_seconds
        self.reason = reason

    def __reduce__(self) -> tuple[type[ObjectLost], tuple[int, str, int, float | None, str]]:
        return type(self), (self.object_id, self.key, self.node_id, self.unconfirmed_seconds, self.reason)


class WrongPlace(AccelError):
    """No object of the namespace lies at the store: the prefix or the namespace is wrong, rather than all lost."""

    advice = "check the bucket and the prefix of the store, and the namespace of the image or the catalog"


class WriterStalled(AccelError, TimeoutError):
    """No room came free for an event within `room_seconds`: what was written before is not durable yet."""

    retryable = True
    advice = (
        "write it again: nothing of it was taken. If it lasts, the store answers too slowly, or takes less than is"
        " written; the message has the last failure of an upload"
    )


class ReaderStalled(AccelError, TimeoutError):
    """A sealed segment has more than can be found: a reader that does not follow waited for it in vain."""

    retryable = True
    advice = "accel catalog verify tells what is missing; if the size was given by hand, it may be too large"


class StillPending(AccelError, TimeoutError):
    """A waiting fetch ran out of time: the newest image has a hole where the data is expected."""

    retryable = True
    advice = "the data is not committed yet; ask again, or look at the writer that owns these offsets"


class LookupTimedOut(AccelError, TimeoutError):
    """A wrapped lookup that may take only so long found no object by then: nothing is known of what there is."""

    retryable = True
    advice = "ask again; give accelerate more time, or fall_back, which asks the broker's own lookup instead"


class MissingExtra(AccelError, ImportError):
    """An optional part of Accel is not installed."""

    advice = "install the extra that the message names"
