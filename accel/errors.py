"""All error classes: of stores, formats and tables, of the catalog, of histories, and of lookups.

Some are defined in `loaders/errors.py` and exported here too, so that this module is the complete reference.
`retryable` is true if the same call may succeed later; `advice` is a text for the user.

    AccelError
    ├── StoreError                 the object store did not return what was requested
    │   ├── KeyMissing             no object at this key
    │   ├── BucketMissing          no such bucket
    │   ├── WrongFolder            the folder of a store is gone, or has another id           (retryable)
    │   ├── StoreFull              no space is left, or a quota is used up
    │   ├── AccessDenied           the credentials do not permit this
    │   ├── CredentialsMissing     no credentials were found
    │   │   └── CredentialsExpired  the store does not accept the credentials (any more)     (retryable)
    │   ├── PreconditionFailed     a conditional request lost
    │   │   └── ObjectExists       another object is at the key to be written
    │   ├── NamespaceShared        an object of another system is at the key to be written
    │   ├── WriteConflict          a conditional write was not decided: read again            (retryable)
    │   ├── RangeInvalid           the requested bytes are outside the object
    │   ├── StoreUnavailable       throttled, timed out or connection lost                    (retryable)
    │   │   ├── StoreThrottled     the store asks for fewer requests: 503 SlowDown, 429          (retryable)
    │   │   └── EndpointUnreachable  nothing answers at the endpoint's name and port      (retryable)
    │   │       └── WrongServer    what answers there is no object store                  (retryable)
    │   └── RequestRefused         the store rejects the request itself
    ├── FormatError                bytes that do not have their format
    │   ├── CorruptObject          an object contradicts the format or itself
    │   │   └── TransactionDamaged  the events of a transaction to commit are missing or damaged
    │   ├── FormatLimit            a value is too large for the format
    │   ├── NameRefused            a name that cannot be part of a key
    │   └── FormatTooNew           a newer release wrote this
    ├── TableError                 an operation of a versioned table failed
    │   ├── DataExists             the key to be created exists
    │   ├── DataNotFound           the key does not exist
    │   │   └── TableMissing       the whole table does not exist
    │   ├── DataConflict           the key is no longer the version that was read             (retryable)
    │   └── AmbiguousWrite         a lost reply whose result reading does not show
    ├── CatalogError               an operation of the object catalog failed
    │   ├── CatalogMissing         there is no catalog here
    │   ├── CatalogDamaged         a key that must be there is gone, or went back in time
    │   ├── CatalogWentBack        a key is older than when it was last read
    │   │   └── CommitsLost        the node's list lacks commits that were acknowledged to its session
    │   ├── UnknownNode            the catalog, or the image, has no list of a node
    │   ├── CommitRefused          a commit contradicts the catalog
    │   ├── SessionFenced          a newer session writes for this node
    │   ├── MaintenanceRefused     it would not be safe to delete, undo or import now
    │   └── MaintenanceStopped     a collection ended half-way
    ├── HistoryError               a query or a change of a stream's history failed
    │   ├── InvalidArgument        a cut, time or size that is invalid for this stream
    │   │   └── PositionBeyondEnd  a position after the end of its segment
    │   ├── NotInHistory           an epoch, segment, recorded cut or transaction that does not exist
    │   │   └── StreamDeleted      the stream was deleted since it was opened, or is being deleted
    │   ├── IllegalState           the state of the stream or transaction does not allow it
    │   ├── PositionTruncated      the stream now begins after a reader's position
    │   ├── ReaderReplaced         another reader joined the group under this one's name
    │   ├── HostMissing            a workflow needs the process that holds the segments
    │   ├── OperationNotAllowed    another workflow has the stream                            (retryable)
    │   │   └── SegmentsElsewhere  a step is for the node that has the segments open          (retryable)
    │   ├── ScaleInputInvalid      new key ranges that do not replace the sealed ones
    │   ├── ScalePrecondition      segments that are not active, or too few afterwards
    │   └── ScaleConflict          another scale is under way                                 (retryable)
    ├── Closed                     the object was closed before or during the call
    ├── WrongProcess               the object belongs to another process: this one was forked, or received a copy
    ├── NoThread                   the host lets this process start no further thread
    ├── ImageTooOld                the current image is too old to answer from           (retryable)
    ├── ImageRefused               a metadata image contradicts itself
    ├── InvalidRequest             the arguments of a lookup are invalid for this image
    │   ├── UnknownStream          a stream that the image does not have               (sometimes retryable)
    │   └── OffsetBeyondEnd        a fetch waits for offsets that begin after the end of the stream
    ├── InconsistentAnswer         the objects found do not join up: the metadata is wrong
    ├── ObjectLost                 an object that the newest image lists does not exist
    ├── OffsetsGivenUp             the object that held the offsets was lost, and given up
    ├── WrongPlace                 no object of the namespace is at the store: a wrong prefix or namespace
    ├── WriterStalled              the buffers stayed full: uploads are too slow              (retryable)
    ├── ReaderStalled              a reader did not find data that must exist                 (retryable)
    ├── StillPending               a waiting fetch timed out before the data was there        (retryable)
    ├── LookupTimedOut             a wrapped lookup found no object within its time           (retryable)
    └── MissingExtra               an optional part is not installed
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, unique
from typing import Any, ClassVar
from uuid import UUID

from loaders.errors import (
    AccelError,
    AccessDenied,
    AmbiguousWrite,
    BucketMissing,
    Closed,
    CorruptObject,
    CredentialsExpired,
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
    NamespaceShared,
    NoThread,
    ObjectExists,
    PreconditionFailed,
    RangeInvalid,
    RequestRefused,
    StoreError,
    StoreFull,
    StoreThrottled,
    StoreUnavailable,
    TableError,
    TableMissing,
    WriteConflict,
    WrongFolder,
    WrongProcess,
    WrongServer,
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
    "CommitsLost",
    "CorruptObject",
    "CredentialsExpired",
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
    "NamespaceShared",
    "NoThread",
    "NotInHistory",
    "ObjectExists",
    "ObjectLost",
    "OffsetBeyondEnd",
    "OffsetsGivenUp",
    "OperationNotAllowed",
    "PositionBeyondEnd",
    "PositionTruncated",
    "PreconditionFailed",
    "RangeInvalid",
    "ReaderReplaced",
    "ReaderStalled",
    "RequestRefused",
    "ScaleConflict",
    "ScaleInputInvalid",
    "ScalePrecondition",
    "SegmentsElsewhere",
    "SessionFenced",
    "StillPending",
    "StoreError",
    "StoreFull",
    "StoreThrottled",
    "StoreUnavailable",
    "StreamDeleted",
    "TableError",
    "TableMissing",
    "TransactionDamaged",
    "UnknownNode",
    "UnknownStream",
    "WriteConflict",
    "WriterStalled",
    "WrongFolder",
    "WrongPlace",
    "WrongProcess",
    "WrongServer",
]


class CatalogError(AccelError):
    """An operation of the object catalog failed."""


class CatalogMissing(CatalogError):
    """There is no catalog at this place."""

    advice = "check bucket and prefix; accel catalog init creates one"


class CatalogDamaged(CatalogError):
    """A required key is missing, or holds less than it is known to have held; nothing was written.

    Continuing would allocate ids twice, or start anew beside committed objects.
    """

    advice = (
        "stop accel catalog gc and the writers, and restore the key that the message names from the bucket's versions "
        "or a backup (docs/operations/repair.md, 'A key that does not decode'); "
        "then run accel catalog verify, and accel catalog restored if a counter is missing or a version older"
    )


class CatalogWentBack(CatalogError):
    """A key of the catalog holds an earlier version than was read from it before, or another history.

    Args:
        where: the key.
        seen: sequence number and nonce that were read before.
        found: the present ones; None if the key is missing.
    """

    advice = (
        'the bucket or this key was restored from a copy: stop writers, and see "A bucket from yesterday\'s backup" in '
        "docs/operations/repair.md; accel catalog restored lets readers continue from the present state"
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


class CommitsLost(CatalogWentBack):
    """The list of a node does not follow from the last commit of its session, or lacks acknowledged objects.

    The session has ended. The objects are not deleted before `orphan_seconds`.

    Args:
        where: the key of the list.
        seen: sequence number and nonce of the session's last version of the list.
        found: the present ones; None if the key is missing.
        object_ids: the objects of acknowledged commits that are not listed any more.
    """

    advice = (
        "stop all writers; if the bucket was restored from a copy, see docs/operations/repair.md; otherwise the"
        " endpoint, or a gateway before it, ignores conditions of writes: accel doctor; then write the data again"
    )

    def __init__(
        self, where: str, seen: tuple[int, bytes], found: tuple[int, bytes] | None, object_ids: tuple[int, ...] = ()
    ) -> None:
        super().__init__(where, seen, found)
        self.object_ids = object_ids
        lost = ", ".join(map(str, object_ids[:20])) + (", ..." if len(object_ids) > 20 else "")
        self.args = (f"{self.args[0]}; acknowledged objects that are not listed: {len(object_ids)} ({lost or 'none'})",)


class UnknownNode(CatalogError, ValueError):
    """A job was given a node that the catalog, or the image, does not list; nothing was changed."""

    advice = "accel catalog status lists the nodes"


class CommitRefused(CatalogError):
    """A commit contradicts the catalog; nothing was written."""

    advice = "do not repeat it: the message says what was expected; its objects are not listed"


class StreamsReleased(CommitRefused):
    """Another node takes streams over from this one, or has done so: their data was not committed.

    Args:
        node_id: the node that had them open.
        stream_ids: the streams. Other data of the commit was not committed either; it may be committed without these
            streams.
    """

    advice = "commit the other streams without these; then open these again: the error names the node that has them now"

    def __init__(self, node_id: int, stream_ids: tuple[int, ...]) -> None:
        shown = ", ".join(str(stream_id) for stream_id in stream_ids[:5])
        more = "" if len(stream_ids) <= 5 else f", ... ({len(stream_ids)} in all)"
        super().__init__(
            f"expected streams of node {node_id}, found {shown}{more} released: another node takes them over"
        )
        self.node_id = node_id
        self.stream_ids = stream_ids


class OwnerReplaced(CatalogError):
    """Another process has registered as the owner for this node.

    Args:
        node_id: the node.
    """

    advice = "stop this process's writers; if this process should be the owner, register again and open the node again"

    def __init__(self, node_id: int) -> None:
        super().__init__(f"expected to be the owner of node {node_id}, found another process registered for it")
        self.node_id = node_id


class OwnerUnreachable(CatalogError):
    """Another node owns a segment, and cannot be reached; nothing was written.

    Args:
        node_id: the owner.
        address: where the owner accepts events; empty = nowhere.
        segment: as text, with its stream.
        reason: why it cannot be reached.
    """

    retryable = True
    advice = "wait for the owner, or for the end of its lease; check that this client can reach its address"

    def __init__(self, node_id: int, address: str, segment: str, reason: str) -> None:
        where = f"at {address}" if address else "without an address"
        super().__init__(f"expected to reach the owner of {segment}, node {node_id} {where}, found {reason}")
        self.node_id, self.address, self.segment, self.reason = node_id, address, segment, reason


class ForwardInDoubt(CatalogError):
    """Events were sent to the owner of their segment, and no reply arrived: they may be durable or not.

    Args:
        node_id: the owner.
        address: of the owner.
        segment: as text, with its stream.
    """

    retryable = True
    advice = (
        "flush again: events whose futures are open are sent again, and none is written twice, by any owner. An"
        " event whose future failed was given up while its owner ran: read the end of the segment, or use writer_id"
    )

    def __init__(self, node_id: int, address: str, segment: str) -> None:
        super().__init__(f"expected a reply from node {node_id} at {address} for {segment}, found none")
        self.node_id, self.address, self.segment = node_id, address, segment


class SessionFenced(CatalogError):
    """A newer session was opened for this node; this one may not commit any more."""

    advice = "stop this writer; if this one should write, open the node again"


class MaintenanceRefused(CatalogError):
    """Deleting, undoing or importing would not be safe in the present state; nothing was changed."""

    advice = "nothing was changed; check what the message expected before you force anything"


class MaintenanceStopped(CatalogError):
    """A collection ended half-way: its deletions so far are final, and its journals list them.

    Args:
        message: how much was done, and why it ended.
        report: the same as data: an `accel.catalog.collect.CollectionReport`.
    """

    advice = "no needed object was deleted; the deletions are final; remove the reason, then start again"

    def __init__(self, message: str, report: Any) -> None:
        super().__init__(message)
        self.report = report


class HistoryError(AccelError):
    """A query of a stream's history, or a change of it, failed."""

    code: ClassVar[str] = ""
    """The kind, in the terms of controllers of stream stores."""


class InvalidArgument(HistoryError, ValueError):
    """A cut, a time or a size that is invalid for this stream; nothing was changed."""

    code = "INVALID_ARGUMENT"
    advice = "the message says what was expected; accel stream describe shows the stream"

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        if advice:
            self.advice = advice  # type: ignore[misc]  # of an argument that is not of a stream


@unique
class Sought(Enum):
    """What was searched in a history, and the command that lists what exists."""

    SCOPE = "accel stream list without --scope and ACCEL_SCOPE lists the scopes"
    STREAM = "accel stream list lists the streams of a scope; if one is half created, create it again, or delete it"
    EPOCH = "accel stream describe shows the current epoch; accel stream history lists those up to it"
    SEGMENT = (
        "accel stream segments lists the segments of the present or of a time, accel stream history those of an epoch"
    )
    CUT = "accel stream cuts lists the times of recorded cuts; retention deletes those that it has passed"
    REQUEST = "accel stream requests lists waiting requests, and the last that ended"
    GROUP = "accel group list lists the groups of readers of a stream"
    TRANSACTION = "accel txn list shows open transactions; the result of one is kept for a day or two"


class HostMissing(HistoryError, RuntimeError):
    """A workflow needs the process that holds the segments, and the store was opened without one.

    Args:
        what: the workflow, as "scale".
        stream: scope and name.
    """

    code = "HOST_MISSING"
    advice = (
        "do it in a process that holds the segments, as StreamStore.open(store, host=ObjectSegments(...)); or"
        " request a scale with Stream.request_scale, which that process carries out"
    )

    def __init__(self, what: str, stream: str) -> None:
        super().__init__(f"expected a host of the segments to {what} of {stream}, found none")


class NotInHistory(HistoryError, LookupError):
    """A scope or stream does not exist, or a stream has no such epoch, segment, cut, request, group or transaction.

    Args:
        message: what was expected, and what was found.
        sought: the kind of what was searched; the advice depends on it.
    """

    code = "DATA_NOT_FOUND"
    advice = Sought.EPOCH.value

    def __init__(self, message: str, sought: Sought = Sought.EPOCH) -> None:
        super().__init__(message)
        self.sought = sought
        self.advice = sought.value  # type: ignore[misc]  # of this one question


class StreamDeleted(NotInHistory):
    """A stream was deleted since it was opened, or is being deleted; a later stream of its name is another stream.

    Args:
        stream: scope and name.
        unique_id: distinguishes it from others of its name.
    """

    def __init__(self, stream: str, unique_id: str) -> None:
        super().__init__(f"expected stream {stream} ({unique_id}), found that it is deleted", Sought.STREAM)
        self.advice = (  # type: ignore[misc]  # of this one refusal
            "if there is a new stream of its name, open it by its name; deleted data cannot be restored"
        )
        self.stream = stream
        self.unique_id = unique_id


class IllegalState(HistoryError):
    """The state of the stream, or of the transaction, does not allow it; nothing was changed."""

    code = "ILLEGAL_STATE"
    advice = (
        "the message names the state: a sealed stream or an ended transaction allows no such change; "
        "a stream is sealed before it is deleted, and a scope is emptied"
    )


class OperationNotAllowed(HistoryError):
    """Another workflow has the stream; nothing was changed."""

    code = "OPERATION_NOT_ALLOWED"
    retryable = True
    advice = "retry when it is done; if it lasts, accel stream recover finishes workflows of crashed processes"


class SegmentsElsewhere(OperationNotAllowed):
    """A step of a workflow must be done by the node that has the segments open; the workflow is still under way.

    The step is done for the segments open in this process. Any process can continue after the others did their part.

    Args:
        what: the step, as "seal".
        stream: scope and name.
        nodes: the nodes that have the segments open.
        segments: as text, those that they have open.
        owners: the same: nodes by segment id.
    """

    code = "SEGMENTS_ELSEWHERE"
    advice = (
        "that node does the step when its writer flushes, or by StreamWriter.carry_out_requests; if its process is"
        " dead, open a session for the node, ObjectSegments(catalog, store, node_id=...), which fences it, and recover"
    )

    def __init__(
        self, what: str, stream: str, nodes: tuple[int, ...], segments: str, owners: Mapping[int, int] | None = None
    ) -> None:
        named = f"node {nodes[0]}" if len(nodes) == 1 else f"nodes {', '.join(map(str, nodes))}"
        super().__init__(f"expected to {what} segments of {stream} that are open here, found {segments} on {named}")
        self.what, self.stream, self.nodes, self.segments = what, stream, nodes, segments
        self.owners = dict(owners or {})


class ScaleInputInvalid(HistoryError, ValueError):
    """The new key ranges of a scale do not cover exactly the keys of the sealed segments."""

    code = "INPUT_INVALID"
    advice = "the new ranges must fill the sealed ones exactly, without overlap; use the stored bounds, digit by digit"


class ScalePrecondition(HistoryError):
    """A scale names segments that are not active, or would leave too few; nothing was changed."""

    code = "PRECONDITION"
    advice = "plan it again: accel stream segments shows the active ones, accel stream describe the minimum number"


class ScaleConflict(HistoryError):
    """Another scale was requested and is not finished; nothing was changed."""

    code = "SCALE_CONFLICT"
    retryable = True
    advice = "retry with the segments after the other scale; if it lasts, accel stream recover finishes it"


class PositionBeyondEnd(InvalidArgument):
    """A position is after the end of its segment: of another stream, mistyped, or of a bucket before it was restored.

    Args:
        stream: which stream.
        segment_id: the segment of the position.
        offset: the position in that segment.
        end: the end of the segment, as the newest metadata has it.
    """

    code = "INVALID_ARGUMENT"
    advice = "begin at an earlier position; a group is moved by ReaderGroup.reset(), or accel group reset"

    def __init__(self, stream: str, segment_id: int, offset: int, end: int) -> None:
        name = f"{segment_id & 0xFFFFFFFF}@{segment_id >> 32}"
        super().__init__(f"{stream}: expected a position up to the end of segment {name}, {end}, found {name}={offset}")
        self.stream, self.segment_id, self.offset, self.end = stream, segment_id, offset, end


class TransactionDamaged(CorruptObject):
    """The object with the events of a transaction is missing, damaged, or has other contents than were decided.

    The transaction was not committed; its stream stays with the commit.

    Args:
        transaction: the transaction's id.
        key: the key of the object.
        size_bytes: its size; -1 if it is missing.
        expected: what was expected.
        found: what was found.
    """

    advice = (
        "restore the object from the bucket's versions or a copy, and then commit or recover the stream; or give up the"
        " events of this one transaction: accel txn abort --give-up"
    )

    def __init__(self, transaction: UUID, key: str, size_bytes: int, *, expected: str, found: str) -> None:
        super().__init__(key, size_bytes, expected=expected, found=found)
        self.transaction = transaction
        self.args = (f"transaction {transaction}, object {key!r}: expected {self.expected}, found {self.found}",)


class PositionTruncated(HistoryError, LookupError):
    """The stream now begins after a reader's position: the reader's next data was truncated.

    Args:
        stream: which stream.
        segment_id: the segment of the position.
        offset: the position in that segment.
        head: the cut at which the stream begins now.
    """

    code = "TRUNCATED"
    advice = "continue at the head: StreamReader.skip_to_head(), or accel stream read --skip-truncated"

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


class ReaderReplaced(HistoryError):
    """Another reader joined the group under this reader's name. This reader never joins again; nothing was changed."""

    code = "READER_REPLACED"
    advice = (
        "running readers of a group need different names, such as the names of their pods; if the other reader is this"
        " one's successor, after a restart, close this one"
    )


class ImageTooOld(AccelError):
    """The current image is too old to answer from: objects that it lists may already be deleted."""

    retryable = True
    advice = "the catalog could not be read for that long: check the store, and the warnings in the log"


class ImageRefused(AccelError, ValueError):
    """A metadata image contradicts itself, or does not have the form of an image."""

    advice = "check the program that wrote the image; the message names the stream or node at fault"


class InvalidRequest(AccelError, ValueError):
    """The arguments of a lookup are invalid: not numbers, unknown stream, trimmed offset, negative limit."""

    advice = "use a stream of the image, and offsets from its first kept one on"


class UnknownStream(InvalidRequest):
    """The image does not have this stream.

    If it is the newest image, the stream does not exist. If a newer image could not be loaded, or another lookup has
    just requested one, the stream may have been opened since: then the message contains this, and a retry may succeed.

    Args:
        stream_id: the stream.
        image_version: the version of the image, as text.
        unconfirmed: why the image may not be the newest; empty if it was just confirmed.
    """

    def __init__(self, stream_id: int, image_version: str, unconfirmed: str = "") -> None:
        behind = f"; {unconfirmed}" if unconfirmed else ""
        super().__init__(f"expected a stream of image version {image_version}, found stream {stream_id}{behind}")
        self.stream_id = stream_id
        self.image_version = image_version
        self.unconfirmed = unconfirmed
        if unconfirmed:
            self.retryable = True  # type: ignore[misc]  # in this case alone: the newest image may have it
            self.advice = "retry in a second: the stream may be newer than the image"  # type: ignore[misc]  # likewise


class OffsetBeyondEnd(InvalidRequest):
    """A fetch that would wait begins after the end of its stream: of another stream, or of before a restore.

    Args:
        stream_id: the stream.
        offset: the start of the fetch.
        end: the end of the stream, as the newest image has it.
    """

    advice = "begin at the end that is named, or earlier; or retry if data up to there is about to be committed"

    def __init__(self, stream_id: int, offset: int, end: int) -> None:
        super().__init__(f"stream {stream_id}: expected a start up to the end of the stream, {end}, found {offset}")
        self.stream_id, self.offset, self.end = stream_id, offset, end


class InconsistentAnswer(AccelError):
    """The objects that were found do not join up; the lookup refuses to return them.

    Source: the production system makes the same check on every answer.
    """

    advice = "the metadata or an object index is wrong: run accel object verify --all with this image"


class ObjectLost(AccelError):
    """The newest image lists an object that does not exist.

    If the source of images failed, so that no newer image could be loaded, the object may have left the list since:
    then the message contains this, and a retry succeeds once the source answers.

    Args:
        object_id: the object's id.
        key: its expected key.
        node_id: the node that lists it; -1 for an object of one stream.
        unconfirmed_seconds: time since the image was last known to be the newest; None if it was just confirmed.
        reason: why no newer image could be loaded.
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
            self.advice = "check the source of images first: it may be listed no more"  # type: ignore[misc]  # likewise
        super().__init__(f"object {object_id} at {key!r} is listed {where} in {image}, and is gone{failure}")
        self.object_id, self.key, self.node_id = object_id, key, node_id
        self.unconfirmed_seconds, self.reason = unconfirmed_seconds, reason


class OffsetsGivenUp(AccelError):
    """The object that held the requested offsets was lost, and an operator has given it up.

    Args:
        stream_id: the stream.
        offset: the requested offset.
        end: one past the last offset that is lost there.
        object_id: the lost object.
    """

    advice = "the data is lost: go on at the end that the message names"

    def __init__(self, stream_id: int, offset: int, end: int, object_id: int) -> None:
        lost = f"[{offset}, {end}) was lost with object {object_id}, which was given up"
        super().__init__(
            f"stream {stream_id}: expected data at offset {offset}, found that {lost}; data follows at {end}"
        )
        self.stream_id = stream_id
        self.offset = offset
        self.end = end
        self.object_id = object_id


class WrongPlace(AccelError):
    """No object of the namespace is at the store: the prefix or the namespace is wrong; the objects are not lost."""

    advice = "check the bucket and the prefix of the store, and the namespace of the image or the catalog"


class WriterStalled(AccelError, TimeoutError):
    """The buffers stayed full for `room_seconds`: earlier events are not durable yet."""

    retryable = True
    advice = (
        "write it again: no part of it was accepted. If it lasts, the store is slower than events are"
        " written; the message contains the last failure of an upload"
    )


class ReaderStalled(AccelError, TimeoutError):
    """A reader waited in vain for older events of a segment, or for data of a sealed one.

    Nothing was passed over: the next call waits again. On a store that needs longer, raise
    `ReaderSettings.history_wait_seconds`.
    """

    retryable = True
    advice = "call again; accel catalog verify shows what is missing; if a size was set by hand, it may be too large"


class StillPending(AccelError, TimeoutError):
    """A waiting fetch timed out: the newest image has a hole where the data is expected."""

    retryable = True
    advice = "the data is not committed yet; retry, or check the writer that owns these offsets"


class LookupTimedOut(AccelError, TimeoutError):
    """A wrapped lookup with a time limit found no object within it; whether there are objects is unknown."""

    retryable = True
    advice = "retry; give accelerate more time, or use fall_back, which calls the broker's own lookup instead"


class MissingExtra(AccelError, ImportError):
    """An optional part of Accel is not installed."""

    advice = (
        "install the extra that the message names; in a checkout: pip install -e '.[NAME]', of a wheel: "
        "pip install 'FILE.whl[NAME]'"
    )
