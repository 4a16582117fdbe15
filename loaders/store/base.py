"""The interface between Accel and an object store: its operations, their values, and functions that all stores share.

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

All stores share checks of arguments, listings in pages, deletes in batches, and byte ranges: these are `[start, end)`
here and `first-last` in HTTP.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from loaders.errors import BucketMissing, CorruptObject, CredentialsMissing, StoreError, shortened
from loaders.store.error_table import store_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

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


KEY_SIZE_BYTES_MAX = 1024


EMPTY_PAGES_MAX = 10_000
"""Pages without keys that may follow one another: a server may answer one for each 1,000 deleted keys that it skips."""


class PagedListing(ABC):
    """Implements `list` of a store by its `list_page`. Keeps no state."""

    keeps_conditions = False

    @abstractmethod
    def list_page(
        self, prefix: str, start_after: str = "", limit: int = LIST_PAGE_KEYS_MAX, token: str = ""
    ) -> ListPage:
        """Read one page; see `ObjectStore.list_page`."""

    def list(self, prefix: str, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        """Iterate over the keys with `prefix` after `start_after`, page by page; see `ObjectStore.list`."""
        if limit is not None and limit < 0:
            raise ValueError(f"expected a limit of 0 or more, or None, found {limit}")
        # A page of fewer keys than the limit would cost one more request; a larger page would contain unused keys.
        page_limit = LIST_PAGE_KEYS_MAX if limit is None else min(max(limit, 1), LIST_PAGE_KEYS_MAX)
        pages = follow_pages(prefix, start_after, lambda after, token: self.list_page(prefix, after, page_limit, token))
        return islice(pages, limit)


def follow_pages(prefix: str, start_after: str, ask: Callable[[str, str], ListPage]) -> Iterator[ObjectInfo]:
    """Iterate over the keys of a listing, and check that its pages go on and agree; see `ObjectStore.list`.

    Keys up to `start_after` are left out: some servers do not know it. A key that is skipped may be taken for deleted,
    so a listing is refused if it may not be complete.

    Args:
        prefix: of the keys.
        start_after: only later keys are returned.
        ask: requests the page after a key, or, if it is not empty, that of a token.
    """
    after, token, last, empty_pages = start_after, "", "", 0
    while True:
        page = ask(after, token)
        for info in page.objects:
            check_listed(prefix, last, info.key)
            last = info.key
            if last > start_after:
                yield info
        if not page.more:
            return
        empty_pages = 0 if page.objects else empty_pages + 1
        if empty_pages and (page.token == token or empty_pages > EMPTY_PAGES_MAX):
            found = f"{empty_pages} without keys, the last one {'with the same token' if token else 'without a token'}"
            raise store_error("list", prefix, f"expected pages that go on after {last!r}, found {found}")
        after, token = max(start_after, last), page.token


def check_listed(prefix: str, last: str, key: str) -> None:
    """Check that a listing with this prefix may have `key` after `last`; characters are in the order of UTF-8 bytes.

    Raises:
        RequestRefused: it may not.
    """
    if not key.startswith(prefix):
        expected = f"keys that begin with {prefix!r}, not encoded"
    elif key <= last:
        expected = f"keys after {last!r}"
    else:
        return
    raise store_error("list", prefix, f"expected {expected}, found {shortened(key)!r}")


def check_page_limit(limit: int) -> None:
    """Check that a page has 1 to 1,000 keys; otherwise ValueError."""
    if not 1 <= limit <= LIST_PAGE_KEYS_MAX:
        raise ValueError(f"expected a page of 1 to {LIST_PAGE_KEYS_MAX} keys, found {limit}")


def delete_in_batches(
    keys: Iterable[str],
    delete_batch: Callable[[Sequence[str]], Iterable[DeleteFailure]],
    delete: Callable[[str], object],
) -> DeleteFailures:
    """Delete keys, 1,000 at a time, and return the failures; see `ObjectStore.delete_many`.

    Args:
        keys: of the objects.
        delete_batch: deletes several.
        delete: deletes one; for the keys of a batch that was refused.
    """
    failures: DeleteFailures = []
    rest = iter(keys)
    while batch := list(islice(rest, DELETE_BATCH_KEYS_MAX)):
        try:
            failures.extend(delete_batch(batch))
        except StoreError as error:
            if is_of_the_store(error):
                failures.extend(DeleteFailure(key, error) for key in batch)
            else:
                failures.extend(delete_each(batch, delete))
    return failures


def delete_each(keys: Iterable[str], delete: Callable[[str], object]) -> DeleteFailures:
    """Delete keys one by one; after an error that concerns all keys, the rest fails with it, without a request."""
    failures: DeleteFailures = []
    general: StoreError | None = None
    for key in keys:
        try:
            if general is None:
                delete(key)
            else:
                failures.append(DeleteFailure(key, general))
        except StoreError as error:
            failures.append(DeleteFailure(key, error))
            general = error if is_of_the_store(error) else None
    return failures


def is_of_the_store(error: StoreError) -> bool:
    """Whether the same request for another key would fail likewise."""
    return error.retryable or isinstance(error, BucketMissing | CredentialsMissing)


_CONTENT_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19})")


def check_range(start: int, end: int) -> None:
    """Check that a range `[start, end)` is neither empty nor negative; otherwise ValueError."""
    if not 0 <= start < end:
        raise ValueError(f"expected a range with 0 <= start < end, found [{start}, {end})")


def check_tail(length: int) -> None:
    """Check that a tail has at least one byte; otherwise ValueError. Some servers answer a tail of 0 with all bytes."""
    if length < 1:
        raise ValueError(f"expected a tail of at least 1 byte, found {length}")


def check_part_number(number: int) -> None:
    """Check that the number of a part is 1 to 10,000; otherwise ValueError."""
    if not 1 <= number <= PART_NUMBER_MAX:
        raise ValueError(f"expected a part number of 1 to {PART_NUMBER_MAX}, found {number}")


def range_header(start: int, end: int) -> str:
    """`[start, end)` as the value of the HTTP header Range.

    >>> range_header(0, 10)
    'bytes=0-9'
    """
    return f"bytes={start}-{end - 1}"


def check_size(key: str, size_bytes: int, size_bytes_max: int | None) -> None:
    """Check that an object is not longer than the limit of its key; called before its body is read.

    Raises:
        CorruptObject: it is longer.
    """
    if size_bytes_max is not None and size_bytes > size_bytes_max:
        raise CorruptObject(key, size_bytes, expected=f"at most {size_bytes_max} bytes", found=f"{size_bytes}")


def parse_content_range(header: str) -> tuple[int, int, int]:
    """Parse the range that an answer contains: (start, end, size of the object); otherwise ValueError.

    >>> parse_content_range("bytes 0-9/100")
    (0, 10, 100)
    """
    match = _CONTENT_RANGE.fullmatch(header)
    if match is None:
        raise ValueError(f"expected a Content-Range of 'bytes first-last/size', found {shortened(header)!r}")
    first, last, size = (int(part) for part in match.groups())
    return first, last + 1, size


def cut(operation: str, key: str, found: Fetched, start: int, end: int) -> Fetched:
    """Bytes `[start, end)` of an object, the end clamped, from an answer that contains at least these.

    HTTP allows a server to answer a range with the whole object; then the range is cut out of it here.

    Raises:
        RangeInvalid: the object ends at or before `start`.
        RequestRefused: the answer contains other bytes than the requested ones.
    """
    size = found.object_size_bytes
    end = min(end, size)
    if start >= size:
        raise store_error(
            operation, key, f"expected a start below the size of {size} bytes, found {start}", code="InvalidRange"
        )
    first, last = start - found.start, end - found.start
    if first < 0 or last > len(found.body):
        got = f"[{found.start}, {found.start + len(found.body)})"
        raise store_error(operation, key, f"expected bytes [{start}, {end}) of {size}, found {got}")
    if last - first == len(found.body):
        return found
    return replace(found, body=found.body[first:last], start=start)


def check_key(operation: str, key: str) -> None:
    """Check that a key has 1 to 1,024 bytes, as on S3.

    Raises:
        RequestRefused: it is empty or longer.
    """
    size_bytes = len(key.encode())
    if not 1 <= size_bytes <= KEY_SIZE_BYTES_MAX:
        detail = f"expected a key of 1 to {KEY_SIZE_BYTES_MAX} bytes, found {size_bytes}"
        raise store_error(operation, key, detail, code="KeyTooLongError", status=400)


_MARK = re.compile(f"[!-~]{{1,{MARK_SIZE_BYTES_MAX}}}")


def metadata_of(mark: str | None) -> dict[str, str]:
    """The object metadata that holds a mark; empty without one.

    >>> metadata_of("7.42")
    {'accelmark': '7.42'}

    Raises:
        ValueError: it is not 1 to 128 characters of visible ASCII.
    """
    if mark is None:
        return {}
    if not _MARK.fullmatch(mark):
        raise ValueError(f"expected a mark of 1 to {MARK_SIZE_BYTES_MAX} visible ASCII characters, found {mark!a}")
    return {MARK_NAME: mark}


def mark_in(metadata: Mapping[str, object]) -> str | None:
    """The mark in the metadata of an answer; None if there is none, or its form is unknown.

    >>> mark_in({"Accelmark": "7.42", "other": "x"})
    '7.42'
    """
    for name, mark in metadata.items():
        if name.lower() == MARK_NAME:  # servers return names in other cases
            return mark if isinstance(mark, str) and _MARK.fullmatch(mark) else None
    return None


def check_strong(key: str, condition: Condition) -> None:
    """Check that a write does not rest on a weak ETag: conditions on it never hold, or hold for other bytes.

    Raises:
        RequestRefused: the ETag of the condition is weak.
    """
    if isinstance(condition, IfMatch) and condition.etag.startswith("W/"):
        what = f"expected the ETag that the store gave the object, found a weak one, {condition.etag}"
        raise store_error("put", key, f"{what}: a proxy between has changed the answer, perhaps to compress it")


def bare_etag(etag: str) -> str:
    """An ETag without quotes, as in results of `ObjectStore`.

    >>> bare_etag('"9e107d9d372bb6826bd81d3542a419d6"')
    '9e107d9d372bb6826bd81d3542a419d6'
    """
    return etag.strip('"')
