"""The interface between Accel and an object store: the operations of a store, and their values.

All code that reads or writes objects takes an `ObjectStore` and does not depend on S3 clients. A store is a flat map
from key to bytes with the few verbs that every S3 endpoint implements reliably:

    | verb           | operation of S3                              | promise                                         |
    |----------------|----------------------------------------------|-------------------------------------------------|
    | get            | GetObject                                    | the whole object, or nothing if it is too long  |
    | get_range      | GetObject, Range: bytes=a-b                  | half open here; an end past it is clamped       |
    | get_tail       | GetObject, Range: bytes=-n                   | a length past the object returns all of it      |
    | get_if_changed | GetObject, If-None-Match                     | no body if the object is unchanged              |
    | put            | PutObject, also If-None-Match:* and If-Match | atomic; a condition holds or nothing is written |
    | delete         | DeleteObject, DeleteObjects                  | a missing key counts as deleted                 |
    | list           | ListObjectsV2, StartAfter                    | in the order of the keys' UTF-8 bytes, in pages |
    | multipart      | Create/UploadPart(Copy)/Complete/Abort       | the object exists whole at the end, or not      |

Only these two conditions exist, on purpose: servers in real use ignore conditions of deletes, copies and completions.
If a condition does not hold, a write raises `PreconditionFailed`; after `WriteConflict` and `StoreUnavailable` of a
conditional write the outcome is not known: read again. No store repeats a conditional write by itself.

A write may leave a *mark* on the object, a line of text that says who wrote it. It is object metadata, and every get
returns it: a program can prove that an object is its own before it deletes or replaces it. Clients and servers that
keep no metadata, or other metadata, return None.

ETags have no quotes. Every method may raise the errors of `loaders.errors`; invalid arguments (a negative offset, an
empty range) raise ValueError before a request is sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from loaders.errors import StoreError

Body: TypeAlias = bytes | bytearray | memoryview
"""The types of a body to be written."""

LIST_PAGE_KEYS_MAX = 1000
"""Largest number of keys in one answer of ListObjectsV2."""

DELETE_BATCH_KEYS_MAX = 1000
"""Largest number of keys in one DeleteObjects request."""

PART_NUMBER_MAX = 10_000
"""Largest number of parts of one multipart upload."""

MARK_NAME = "accelmark"
"""Name of the metadata that holds a mark; without a hyphen, as Azure takes identifiers only."""

MARK_SIZE_BYTES_MAX = 128
"""Longest mark, in characters of visible ASCII."""

PART_SIZE_BYTES_MIN = 5 * 1024 * 1024
"""Smallest size of every part but the last on S3."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """Bytes of an object, and the version and size of the object.

    Attributes:
        body: the requested bytes, complete.
        etag: the object's version, without quotes.
        object_size_bytes: size of the whole object.
        start: position of the body's first byte within the object.
        mark: that the object was written with; None if there is none, or the server did not keep it.
    """

    body: bytes
    etag: str
    object_size_bytes: int
    start: int = 0
    mark: str | None = None


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object in a listing; `modified_seconds` counts since 1970, UTC."""

    key: str
    size_bytes: int
    etag: str
    modified_seconds: float


@dataclass(frozen=True, slots=True)
class ListPage:
    """One page of a listing; only `list` checks what a server answers.

    Attributes:
        objects: may be fewer than asked for, and none although keys follow.
        more: whether keys may follow.
        token: asks for the next page; empty = the next page is asked for by the last key of this one.
    """

    objects: Sequence[ObjectInfo]
    more: bool
    token: str = ""


@dataclass(frozen=True, slots=True)
class Always:
    """Write in any case."""


@dataclass(frozen=True, slots=True)
class CreateOnly:
    """Write only if there is no object at the key."""


@dataclass(frozen=True, slots=True)
class IfMatch:
    """Write only if the object at the key is still the version with this ETag (no quotes).

    Attributes:
        etag: the version.
        quotes: whether the request has quotes around the ETag; None = as in the settings of the store.
    """

    etag: str
    quotes: bool | None = None


Condition: TypeAlias = Always | CreateOnly | IfMatch
"""The condition of a write."""

ALWAYS = Always()

STALE_ETAG = "6eff3450105497cc2ce22ea267f564ba"
"""The MD5 of bytes that Accel never writes: `IfMatch` with it never holds. Every store sends it to the server."""


@dataclass(frozen=True, slots=True)
class PartReceipt:
    """A part that was uploaded; `complete` takes the receipts of all parts."""

    number: int
    etag: str


@dataclass(frozen=True, slots=True)
class DeleteFailure:
    """A key that was not deleted, or whose deletion is not known, and the reason."""

    key: str
    error: StoreError


DeleteFailures: TypeAlias = list[DeleteFailure]
"""A separate name, because in the class of a store `list` is a method."""


class MultipartUpload(Protocol):
    """An object that is being uploaded. Many threads may send parts at once; one thread completes or aborts it."""

    @property
    def upload_id(self) -> str:
        """The store's name of this upload, for `ObjectStore.abort_multipart`; empty if the store keeps no parts."""
        ...

    def upload_part(self, number: int, body: Body) -> PartReceipt:
        """Send part `number` (1 to 10,000); sent again, it replaces the earlier one."""
        ...

    def copy_part(self, number: int, source_key: str, start: int, end: int) -> PartReceipt:
        """Copy bytes `[start, end)` of another object of this store to part `number`, within the store.

        The range must be within the source. S3 itself copies ranges only from objects above 5 MB.
        """
        ...

    def complete(self, receipts: Iterable[PartReceipt]) -> str:
        """Create the object from these parts, by ascending number, and return its ETag.

        If the reply is lost, the outcome is not known: `StoreUnavailable`, or an error about an unknown upload,
        although the object may exist.
        """
        ...

    def abort(self) -> None:
        """Delete all parts. Aborting an upload that does not exist any more is no error."""
        ...


@runtime_checkable
class DatedStore(Protocol):
    """A store that reports its time. Blocking; any thread."""

    def date_seconds(self, prefix: str | None = "") -> float | None:
        """The time of the store's clock, whole seconds since 1970; None if its answer has no time. 1 or 2 requests.

        Args:
            prefix: the beginning of the keys that the caller may write; None = it may write none. Through some clients
                the store reports its time only as that of an object: they write `CLOCK_KEY` below it, and read when it
                was written.

        Raises:
            StoreError: the store did not answer, or refused to write that object.
        """
        ...


@runtime_checkable
class FolderStore(Protocol):
    """A store in a folder, which may vanish, be replaced, or fill up. Blocking; any thread."""

    def give_up_reserve(self) -> bool:
        """Free the space that is kept for collections on a full disk; False if it was given up before."""
        ...

    def notices(self) -> list[str]:
        """What this process met there: entries that listings passed over, and what the file system cannot do."""
        ...


class ObjectStore(Protocol):
    """Objects by key. Blocking; every method may be called from many threads at once."""

    @property
    def can_copy_parts(self) -> bool:
        """Whether this store implements `copy_part`."""
        ...

    @property
    def keeps_conditions(self) -> bool:
        """Whether the conditions of writes need not be tried: no server or gateway could ignore them.

        A decorator returns False; ask the store inside (`decorated.undecorated`).
        """
        ...

    def get(self, key: str, *, size_bytes_max: int | None = None) -> Fetched:
        """Read a whole object. One request.

        Args:
            key: its key.
            size_bytes_max: the largest size of a valid object at this key; None = no bound.

        Raises:
            CorruptObject: it is longer; at most `size_bytes_max` bytes of its body were read.
        """
        ...

    def get_range(self, key: str, start: int, end: int) -> Fetched:
        """Read bytes `[start, end)`; an end past the object is clamped. One request.

        Raises:
            RangeInvalid: `start` is at or past the end of the object; an empty object has no valid range.
        """
        ...

    def get_tail(self, key: str, length: int) -> Fetched:
        """Read the last `length` bytes, or all if the object is shorter. One request (for an empty object, two)."""
        ...

    def get_if_changed(self, key: str, etag: str, *, size_bytes_max: int | None = None) -> Fetched | None:
        """Read a whole object; return None, without reading the body, if it still has this ETag. One request.

        Raises:
            CorruptObject: as for `get`.
        """
        ...

    def put(self, key: str, body: Body, *, condition: Condition = ALWAYS, mark: str | None = None) -> str:
        """Write an object and return its ETag. One request; never repeated when it has a condition.

        Args:
            key: its key.
            body: all of its bytes.
            condition: under which it is written.
            mark: 1 to 128 characters of visible ASCII that gets of the object return; None = none.

        Raises:
            PreconditionFailed: the condition does not hold; nothing was written.
            WriteConflict: another write was under way, and the outcome is not known: read again.
            StoreUnavailable: with a condition, the outcome is not known: read again.
        """
        ...

    def delete(self, key: str) -> None:
        """Delete an object; a missing one is a success. One request."""
        ...

    def delete_many(self, keys: Iterable[str]) -> DeleteFailures:
        """Delete objects, 1,000 a request, and return the keys that failed; continues after a failure.

        The keys of a request that the store refuses are deleted one by one: some servers refuse all such requests, and
        some because of one key. If the store is unavailable, each key of the request is a failure.
        """
        ...

    def list(self, prefix: str, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        """Iterate over the keys that begin with `prefix` and are after `start_after`, in UTF-8 byte order.

        Lazy: each page of 1,000 is requested after the page before was consumed. At most `limit` keys.

        Raises:
            RequestRefused: the answers contradict themselves: a key without the prefix or out of order, a page that
                repeats, no way to go on. What was returned before is true, but it is not all.
        """
        ...

    def list_page(
        self, prefix: str, start_after: str = "", limit: int = LIST_PAGE_KEYS_MAX, token: str = ""
    ) -> ListPage:
        """Read one page of a listing, as the server answers it: callers use `list`. One request.

        Args:
            prefix: as for `list`.
            start_after: as for `list`; some servers ignore it.
            limit: at most this many keys, up to 1,000.
            token: of the page before; it takes precedence over `start_after`.
        """
        ...

    def start_multipart(self, key: str, *, mark: str | None = None) -> MultipartUpload:
        """Begin to upload an object in parts; every part but the last has at least 5 MiB. Its mark is as for `put`."""
        ...

    def abort_multipart(self, key: str, upload_id: str) -> None:
        """Delete the parts of an upload that another process began; an unknown upload is no error. One request.

        Args:
            key: of the object.
            upload_id: `MultipartUpload.upload_id`.
        """
        ...
