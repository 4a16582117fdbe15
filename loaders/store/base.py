"""The seam between Accel and an object store: what a store can do, and the values that cross.

Everything that reads or writes objects takes an `ObjectStore` and knows nothing of S3 clients. A store is a flat map
from key to bytes with the few verbs that every S3 endpoint keeps its word on:

    | verb           | what S3 calls it                             | promise                                         |
    |----------------|----------------------------------------------|-------------------------------------------------|
    | get            | GetObject                                    | the whole object, or nothing if it is too long  |
    | get_range      | GetObject, Range: bytes=a-b                  | half open here; an end past it is clamped       |
    | get_tail       | GetObject, Range: bytes=-n                   | a length past the object gives all of it        |
    | get_if_changed | GetObject, If-None-Match                     | nothing changed costs no body                   |
    | put            | PutObject, also If-None-Match:* and If-Match | atomic; a condition holds or nothing is written |
    | delete         | DeleteObject, DeleteObjects                  | a missing key counts as deleted                 |
    | list           | ListObjectsV2, StartAfter                    | in the order of the keys' UTF-8 bytes, in pages |
    | multipart      | Create/UploadPart(Copy)/Complete/Abort       | the object appears whole at the end, or not     |

These two conditions are all there is on purpose: conditional deletes, copies and completions are ignored by servers
in real use. A lost condition is `PreconditionFailed`; `WriteConflict` and `StoreUnavailable` on a conditional write
mean that nobody knows who won: read again. No store repeats a conditional write by itself.

ETags cross without quotes. Every method may raise the errors of `loaders.errors`; arguments that make no sense
(a negative offset, an empty range) raise ValueError before anything is sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from loaders.errors import StoreError

Body: TypeAlias = bytes | bytearray | memoryview
"""What may be written."""

LIST_PAGE_KEYS_MAX = 1000
"""Keys in one answer of ListObjectsV2."""

DELETE_BATCH_KEYS_MAX = 1000
"""Keys in one DeleteObjects request."""

PART_NUMBER_MAX = 10_000
"""Parts of one multipart upload."""

PART_SIZE_BYTES_MIN = 5 * 1024 * 1024
"""Size that every part but the last must have on S3."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """Bytes of an object, and which object they were.

    Attributes:
        body: the bytes asked for, complete.
        etag: the object's version, without quotes.
        object_size_bytes: size of the whole object.
        start: position of the body's first byte within the object.
    """

    body: bytes
    etag: str
    object_size_bytes: int
    start: int = 0


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object as a listing shows it; `modified_seconds` counts since 1970, UTC."""

    key: str
    size_bytes: int
    etag: str
    modified_seconds: float


@dataclass(frozen=True, slots=True)
class ListPage:
    """One answer of a listing; `more` says whether keys follow its last one."""

    objects: Sequence[ObjectInfo]
    more: bool


@dataclass(frozen=True, slots=True)
class Always:
    """Write whatever is there."""


@dataclass(frozen=True, slots=True)
class CreateOnly:
    """Write only if there is no object at the key."""


@dataclass(frozen=True, slots=True)
class IfMatch:
    """Write only if the object at the key is still the version with this ETag (no quotes).

    Attributes:
        etag: the version.
        quotes: whether this endpoint wants quotes around it; None = what the store's settings say.
    """

    etag: str
    quotes: bool | None = None


Condition: TypeAlias = Always | CreateOnly | IfMatch
"""What must hold for a write to happen."""

ALWAYS = Always()


@dataclass(frozen=True, slots=True)
class PartReceipt:
    """A part that the store has; `complete` wants all of them."""

    number: int
    etag: str


@dataclass(frozen=True, slots=True)
class DeleteFailure:
    """A key that was not deleted, or of which that is not known, and why."""

    key: str
    error: StoreError


DeleteFailures: TypeAlias = list[DeleteFailure]
"""Named, because inside a store `list` is a method."""


class MultipartUpload(Protocol):
    """An object in the making. Parts may be sent by many threads at once; complete or abort by one, at the end."""

    def upload_part(self, number: int, body: Body) -> PartReceipt:
        """Send part `number` (1 to 10,000); sent again, it replaces the earlier one."""
        ...

    def copy_part(self, number: int, source_key: str, start: int, end: int) -> PartReceipt:
        """Make part `number` of bytes `[start, end)` of another object of this store, without moving them here.

        The range must lie within the source. S3 itself copies ranges only from objects above 5 MB.
        """
        ...

    def complete(self, receipts: Iterable[PartReceipt]) -> str:
        """Make the object out of these parts, by ascending number, and return its ETag.

        A reply that is lost leaves the outcome open: `StoreUnavailable`, or an error that names an unknown upload,
        although the object may lie there.
        """
        ...

    def abort(self) -> None:
        """Drop all parts; nothing remains. Aborting what is gone already is no error."""
        ...


@runtime_checkable
class DatedStore(Protocol):
    """A store that can be asked for the time. Blocking; any thread."""

    def date_seconds(self) -> float | None:
        """What the store's clock said as it answered, seconds since 1970, whole; None if it did not say. One request.

        Raises:
            StoreError: it did not answer at all.
        """
        ...


class ObjectStore(Protocol):
    """Objects by key. Blocking; every method may be called from many threads at once."""

    @property
    def can_copy_parts(self) -> bool:
        """Whether `copy_part` works here."""
        ...

    def get(self, key: str, *, size_bytes_max: int | None = None) -> Fetched:
        """Read a whole object. One request.

        Args:
            key: its key.
            size_bytes_max: what belongs at this key is no longer than this; None = of any length.

        Raises:
            CorruptObject: it is longer. Of its body no more than the limit was read.
        """
        ...

    def get_range(self, key: str, start: int, end: int) -> Fetched:
        """Read bytes `[start, end)`; an end past the object is clamped. One request.

        Raises:
            RangeInvalid: `start` is at or past the end of the object; an empty object has no valid range.
        """
        ...

    def get_tail(self, key: str, length: int) -> Fetched:
        """Read the last `length` bytes, or all when the object is shorter. One request (for an empty object, two)."""
        ...

    def get_if_changed(self, key: str, etag: str, *, size_bytes_max: int | None = None) -> Fetched | None:
        """Read a whole object unless it still has this ETag: then None, and no body is sent. One request.

        Raises:
            CorruptObject: as `get`.
        """
        ...

    def put(self, key: str, body: Body, *, condition: Condition = ALWAYS) -> str:
        """Write an object and return its ETag. One request; never repeated when it has a condition.

        Raises:
            PreconditionFailed: the condition does not hold; nothing was written.
            WriteConflict: another write was under way, the store did not decide: read again.
            StoreUnavailable: with a condition, the write may have happened or not: read again.
        """
        ...

    def delete(self, key: str) -> None:
        """Delete an object; a missing one is a success. One request."""
        ...

    def delete_many(self, keys: Iterable[str]) -> DeleteFailures:
        """Delete objects, 1,000 a request, and return the keys that failed; it goes on after a failure.

        A request that fails as a whole counts as a failure of each of its keys, so that the answer is always complete.
        """
        ...

    def list(self, prefix: str, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        """Go through the keys that start with `prefix` and come after `start_after`, in UTF-8 byte order.

        Lazy: a page of 1,000 is asked for when the one before is used up. At most `limit` keys.
        """
        ...

    def list_page(self, prefix: str, start_after: str = "", limit: int = LIST_PAGE_KEYS_MAX) -> ListPage:
        """Read one page of what `list` goes through: at most `limit` (up to 1,000) keys. One request."""
        ...

    def start_multipart(self, key: str) -> MultipartUpload:
        """Begin an object that is sent in parts; every part but the last has at least 5 MiB."""
        ...
