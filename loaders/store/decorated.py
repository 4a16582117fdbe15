"""What counting, latency and fault injection have in common: a store around a store that sees each request go by.

A decorator overrides one method, `_around(call, send)`: `call` says what is about to be asked, `send()` asks it and
returns the answer. One `_around` is one request as the inner store would make it: a listing comes by page by page, a
delete of many keys batch by batch, a multipart upload part by part. (Repetitions inside an S3 client are not seen.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from loaders.store.base import ALWAYS, LIST_PAGE_KEYS_MAX, Always, Fetched
from loaders.store.paging import PagedListing, delete_in_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from loaders.store.base import (
        Body,
        Condition,
        DeleteFailures,
        ListPage,
        MultipartUpload,
        ObjectStore,
        PartReceipt,
    )

Answer = TypeVar("Answer")

GETS = frozenset({"get", "get_range", "get_tail", "get_if_changed"})
"""Operations that answer with a body."""

WRITES = frozenset(
    {"put", "delete", "delete_many", "start_multipart", "upload_part", "copy_part", "complete", "abort"},
)
"""Operations that change the store. The one that is left is `list`, a page of a listing."""

OPERATIONS = GETS | WRITES | {"list"}


@dataclass(frozen=True, slots=True)
class Call:
    """One request, as a decorator sees it before it is sent.

    Attributes:
        operation: one of `OPERATIONS`.
        key: the object's key; of a listing its prefix, of a batch its first key.
        sent_bytes: length of the body that goes to the store.
        conditional: a write that happens only under a condition.
    """

    operation: str
    key: str
    sent_bytes: int = 0
    conditional: bool = False


def received_bytes(answer: object) -> int:
    """Length of the body that came from the store."""
    return len(answer.body) if isinstance(answer, Fetched) else 0


class DecoratedStore(PagedListing):
    """Sends every request through `_around`. As safe for threads as the store inside and `_around` are."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def _around(self, call: Call, send: Callable[[], Answer]) -> Answer:  # noqa: ARG002 - for those who override it
        return send()

    @property
    def can_copy_parts(self) -> bool:
        """See `ObjectStore.can_copy_parts`."""
        return self._store.can_copy_parts

    def get(self, key: str, *, size_bytes_max: int | None = None) -> Fetched:
        """See `ObjectStore.get`."""
        return self._around(Call("get", key), lambda: self._store.get(key, size_bytes_max=size_bytes_max))

    def get_range(self, key: str, start: int, end: int) -> Fetched:
        """See `ObjectStore.get_range`."""
        return self._around(Call("get_range", key), lambda: self._store.get_range(key, start, end))

    def get_tail(self, key: str, length: int) -> Fetched:
        """See `ObjectStore.get_tail`."""
        return self._around(Call("get_tail", key), lambda: self._store.get_tail(key, length))

    def get_if_changed(self, key: str, etag: str, *, size_bytes_max: int | None = None) -> Fetched | None:
        """See `ObjectStore.get_if_changed`."""
        call = Call("get_if_changed", key)
        return self._around(call, lambda: self._store.get_if_changed(key, etag, size_bytes_max=size_bytes_max))

    def put(self, key: str, body: Body, *, condition: Condition = ALWAYS) -> str:
        """See `ObjectStore.put`."""
        call = Call("put", key, len(body), conditional=not isinstance(condition, Always))
        return self._around(call, lambda: self._store.put(key, body, condition=condition))

    def delete(self, key: str) -> None:
        """See `ObjectStore.delete`."""
        self._around(Call("delete", key), lambda: self._store.delete(key))

    def delete_many(self, keys: Iterable[str]) -> DeleteFailures:
        """See `ObjectStore.delete_many`."""
        return delete_in_batches(keys, self._delete_batch)

    def _delete_batch(self, keys: Sequence[str]) -> DeleteFailures:
        return self._around(Call("delete_many", keys[0]), lambda: self._store.delete_many(keys))

    def list_page(self, prefix: str, start_after: str = "", limit: int = LIST_PAGE_KEYS_MAX) -> ListPage:
        """See `ObjectStore.list_page`."""
        return self._around(Call("list", prefix), lambda: self._store.list_page(prefix, start_after, limit))

    def start_multipart(self, key: str) -> MultipartUpload:
        """See `ObjectStore.start_multipart`."""
        upload = self._around(Call("start_multipart", key), lambda: self._store.start_multipart(key))
        return _DecoratedUpload(self, upload, key)


class _DecoratedUpload:
    """An upload whose requests go through the `_around` of the store that began it."""

    def __init__(self, store: DecoratedStore, upload: MultipartUpload, key: str) -> None:
        self._around = store._around  # noqa: SLF001 - the two classes are one mechanism
        self._upload = upload
        self._key = key

    def upload_part(self, number: int, body: Body) -> PartReceipt:
        call = Call("upload_part", self._key, len(body))
        return self._around(call, lambda: self._upload.upload_part(number, body))

    def copy_part(self, number: int, source_key: str, start: int, end: int) -> PartReceipt:
        call = Call("copy_part", self._key)
        return self._around(call, lambda: self._upload.copy_part(number, source_key, start, end))

    def complete(self, receipts: Iterable[PartReceipt]) -> str:
        return self._around(Call("complete", self._key), lambda: self._upload.complete(receipts))

    def abort(self) -> None:
        self._around(Call("abort", self._key), self._upload.abort)
