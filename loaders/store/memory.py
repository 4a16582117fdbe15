"""A store in memory that behaves like S3: for tests, simulations and the demo's large node.

It keeps the promises of S3 on which Accel depends: a write is visible whole and at once, a condition and its write are
one step, ETags are the MD5 of the bytes (so that equal bytes have equal ETags, and a version with the bytes of an
earlier one looks unchanged), a multipart ETag is the MD5 of the parts' MD5s with their number, listings are in the
order of the UTF-8 bytes of the keys, a range past the end is refused and an end past the end is clamped.
"""

from __future__ import annotations

import hashlib
import itertools
from bisect import bisect_left, bisect_right, insort
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loaders.lifetime import ProcessLock, unpickled
from loaders.store.base import (
    ALWAYS,
    LIST_PAGE_KEYS_MAX,
    CreateOnly,
    DeleteFailures,
    Fetched,
    IfMatch,
    ListPage,
    ObjectInfo,
    PagedListing,
    PartReceipt,
    check_key,
    check_page_limit,
    check_part_number,
    check_range,
    check_size,
    check_tail,
    delete_each,
    metadata_of,
)
from loaders.store.error_table import store_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from loaders.store.base import Body, Condition


@dataclass(frozen=True, slots=True)
class _Stored:
    body: bytes
    etag: str
    modified_seconds: float
    mark: str | None


class MemoryStore(PagedListing):
    """Objects in a dict. Safe for many threads: one lock, held for the bookkeeping only.

    A forked process has a copy; neither process sees later writes of the other. It cannot be pickled.

    Args:
        clock: returns modification times in seconds since 1970; without a clock the times are the numbers of the
            writes, so that two runs of a test are alike.
        part_size_bytes_min: smallest size of every part but the last; S3's is `PART_SIZE_BYTES_MIN`, and 0, the
            default, lets tests upload small parts.
    """

    can_copy_parts = True
    keeps_conditions = True

    def __init__(self, *, clock: Callable[[], float] | None = None, part_size_bytes_min: int = 0) -> None:
        count = itertools.count(1)
        self._clock = clock or (lambda: float(next(count)))
        self.part_size_bytes_min = part_size_bytes_min
        self._lock = ProcessLock()
        self._objects: dict[str, _Stored] = {}
        self._keys: list[str] = []  # ascending: the order of code points is that of UTF-8 bytes
        self._uploads: dict[str, _MemoryUpload] = {}

    __reduce__ = unpickled("a store in memory")

    def get(self, key: str, *, size_bytes_max: int | None = None) -> Fetched:
        """See `ObjectStore.get`. O(1): the bytes are not copied."""
        stored = self._stored("get", key)
        check_size(key, len(stored.body), size_bytes_max)
        return Fetched(stored.body, stored.etag, len(stored.body), mark=stored.mark)

    def get_range(self, key: str, start: int, end: int) -> Fetched:
        """See `ObjectStore.get_range`."""
        check_range(start, end)
        stored = self._stored("get_range", key)
        if start >= len(stored.body):
            detail = f"expected a start below the size of {len(stored.body)} bytes, found {start}"
            raise store_error("get_range", key, detail, code="InvalidRange", status=416)
        return Fetched(stored.body[start:end], stored.etag, len(stored.body), start, stored.mark)

    def get_tail(self, key: str, length: int) -> Fetched:
        """See `ObjectStore.get_tail`."""
        check_tail(length)
        stored = self._stored("get_tail", key)
        start = max(0, len(stored.body) - length)
        return Fetched(stored.body[start:], stored.etag, len(stored.body), start, stored.mark)

    def get_if_changed(self, key: str, etag: str, *, size_bytes_max: int | None = None) -> Fetched | None:
        """See `ObjectStore.get_if_changed`."""
        stored = self._stored("get_if_changed", key)
        if stored.etag == etag:
            return None
        check_size(key, len(stored.body), size_bytes_max)
        return Fetched(stored.body, stored.etag, len(stored.body), mark=stored.mark)

    def put(self, key: str, body: Body, *, condition: Condition = ALWAYS, mark: str | None = None) -> str:
        """See `ObjectStore.put`. Never WriteConflict: the outcome of a race is always known."""
        check_key("put", key)
        metadata_of(mark)
        content = bytes(body)
        etag = _md5(content).hexdigest()
        with self._whole():
            self._check(condition, key)
            self._write(key, content, etag, mark)
        return etag

    def delete(self, key: str) -> None:
        """See `ObjectStore.delete`."""
        with self._whole():
            if self._objects.pop(key, None) is not None:
                del self._keys[bisect_left(self._keys, key)]

    def delete_many(self, keys: Iterable[str]) -> DeleteFailures:
        """See `ObjectStore.delete_many`."""
        return delete_each(keys, self.delete)

    def list_page(
        self,
        prefix: str,
        start_after: str = "",
        limit: int = LIST_PAGE_KEYS_MAX,
        token: str = "",  # noqa: ARG002 - pages have none
    ) -> ListPage:
        """See `ObjectStore.list_page`. O(log n) and the page."""
        check_page_limit(limit)
        with self._whole():
            after = bisect_right(self._keys, start_after) if start_after else 0
            first = max(after, bisect_left(self._keys, prefix))
            window = self._keys[first : first + limit + 1]
            names = list(itertools.takewhile(lambda key: key.startswith(prefix), window))
            listed = [self._info(key) for key in names[:limit]]
        return ListPage(listed, more=len(names) > limit)

    def start_multipart(self, key: str, *, mark: str | None = None) -> _MemoryUpload:
        """See `ObjectStore.start_multipart`."""
        check_key("start_multipart", key)
        metadata_of(mark)
        upload = _MemoryUpload(self, key, mark)
        with self._lock:
            self._uploads[upload.upload_id] = upload
        return upload

    def abort_multipart(self, key: str, upload_id: str) -> None:
        """See `ObjectStore.abort_multipart`."""
        with self._lock:
            if (upload := self._uploads.get(upload_id)) is not None and upload.key == key:
                del self._uploads[upload_id]

    @property
    def open_uploads(self) -> int:
        """The number of multipart uploads that were neither completed nor aborted, and whose storage S3 would bill."""
        with self._lock:
            return len(self._uploads)

    def __len__(self) -> int:
        """The number of objects."""
        return len(self._objects)

    def _stored(self, operation: str, key: str) -> _Stored:
        with self._lock:
            stored = self._objects.get(key)
        if stored is None:
            raise store_error(operation, key, "no such key", code="NoSuchKey", status=404)
        return stored

    def _check(self, condition: Condition, key: str) -> None:
        stored = self._objects.get(key)
        etag = stored.etag if stored else None
        create_lost = isinstance(condition, CreateOnly) and etag is not None
        match_lost = isinstance(condition, IfMatch) and condition.etag != etag
        if create_lost or match_lost:
            detail = f"expected {condition}, found {f'ETag {etag}' if etag else 'no object'}"
            raise store_error("put", key, detail, code="PreconditionFailed", status=412, conditional=True)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Hold the lock; rebuild the keys if this process was forked while another thread was writing a key."""
        with self._lock:
            if len(self._keys) != len(self._objects):
                self._keys = sorted(self._objects)
            yield

    def _write(self, key: str, content: bytes, etag: str, mark: str | None) -> None:
        if key not in self._objects:
            insort(self._keys, key)
        self._objects[key] = _Stored(content, etag, self._clock(), mark)

    def _info(self, key: str) -> ObjectInfo:
        stored = self._objects[key]
        return ObjectInfo(key, len(stored.body), stored.etag, stored.modified_seconds)

    def _abandon(self, upload: _MemoryUpload) -> None:
        with self._lock:
            self._uploads.pop(upload.upload_id, None)

    def _complete(self, upload: _MemoryUpload, content: bytes, etag: str) -> None:
        with self._whole():
            if upload.upload_id not in self._uploads:
                raise store_error("complete", upload.key, "no such upload", code="NoSuchUpload", status=404)
            del self._uploads[upload.upload_id]
            self._write(upload.key, content, etag, upload.mark)


_UPLOADS = itertools.count(1)


class _MemoryUpload:
    """An object that is being uploaded; see `MultipartUpload`. Safe for many threads."""

    def __init__(self, store: MemoryStore, key: str, mark: str | None) -> None:
        self.key = key
        self.mark = mark
        self.upload_id = f"upload-{next(_UPLOADS)}"
        self._store = store
        self._lock = ProcessLock()
        self._parts: dict[int, bytes] = {}

    def upload_part(self, number: int, body: Body) -> PartReceipt:
        check_part_number(number)
        content = bytes(body)
        with self._lock:
            self._parts[number] = content
        return PartReceipt(number, _md5(content).hexdigest())

    def copy_part(self, number: int, source_key: str, start: int, end: int) -> PartReceipt:
        check_part_number(number)
        source = self._store.get_range(source_key, start, end)
        if end > source.object_size_bytes:
            detail = f"expected a range within {source.object_size_bytes} bytes, found [{start}, {end})"
            raise store_error("copy_part", source_key, detail, code="InvalidRange", status=416)
        return self.upload_part(number, source.body)

    def complete(self, receipts: Iterable[PartReceipt]) -> str:
        ordered = sorted(receipts, key=lambda receipt: receipt.number)
        with self._lock:
            parts = [self._part(receipt) for receipt in ordered]
        self._check_sizes(parts)
        etag = _md5(b"".join(_md5(part).digest() for part in parts)).hexdigest() + f"-{len(parts)}"
        self._store._complete(self, b"".join(parts), etag)  # noqa: SLF001 - the two classes are one mechanism
        return etag

    def abort(self) -> None:
        self._store._abandon(self)  # noqa: SLF001 - the two classes are one mechanism
        with self._lock:
            self._parts.clear()

    def _part(self, receipt: PartReceipt) -> bytes:
        part = self._parts.get(receipt.number)
        if part is None or _md5(part).hexdigest() != receipt.etag:
            raise store_error("complete", self.key, f"no such part: {receipt}", code="InvalidPart", status=400)
        return part

    def _check_sizes(self, parts: Sequence[bytes]) -> None:
        smallest = self._store.part_size_bytes_min
        if not parts:
            raise store_error("complete", self.key, "an upload has at least one part", code="MalformedXML", status=400)
        for number, part in enumerate(parts[:-1], start=1):
            if len(part) < smallest:
                detail = f"part {number} of {len(parts)} has {len(part)} bytes; all but the last need {smallest}"
                raise store_error("complete", self.key, detail, code="EntityTooSmall", status=400)


def _md5(content: bytes) -> hashlib._Hash:
    return hashlib.md5(content, usedforsecurity=False)
