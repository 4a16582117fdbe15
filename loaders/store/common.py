"""Functions that all stores share: checks of arguments, listings in pages, deletes in batches, byte ranges.

Ranges are `[start, end)` here and `first-last` in HTTP.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from loaders.errors import BucketMissing, CorruptObject, CredentialsMissing, StoreError, shortened
from loaders.store.base import (
    DELETE_BATCH_KEYS_MAX,
    LIST_PAGE_KEYS_MAX,
    MARK_NAME,
    MARK_SIZE_BYTES_MAX,
    PART_NUMBER_MAX,
    DeleteFailure,
    DeleteFailures,
    IfMatch,
)
from loaders.store.error_table import store_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from loaders.store.base import Condition, Fetched, ListPage, ObjectInfo

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
