"""A part of a store as a store of its own: all keys under one prefix, without saying it again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from loaders.store.base import ALWAYS, LIST_PAGE_KEYS_MAX, DeleteFailure, DeleteFailures, ListPage
from loaders.store.paging import PagedListing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loaders.store.base import Body, Condition, Fetched, MultipartUpload, ObjectStore, PartReceipt


class PrefixedStore(PagedListing):
    """Puts a prefix before every key and takes it off in listings. As safe for threads as the store behind it.

    Errors name the full key, as the bucket's owner sees it.

    Args:
        store: the store that holds the objects.
        prefix: what goes before each key, as it is: end it with "/" where keys are paths.
    """

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self.prefix = prefix
        self._store = store

    @property
    def can_copy_parts(self) -> bool:
        """See `ObjectStore.can_copy_parts`."""
        return self._store.can_copy_parts

    def get(self, key: str, *, size_bytes_max: int | None = None) -> Fetched:
        """See `ObjectStore.get`."""
        return self._store.get(self.prefix + key, size_bytes_max=size_bytes_max)

    def get_range(self, key: str, start: int, end: int) -> Fetched:
        """See `ObjectStore.get_range`."""
        return self._store.get_range(self.prefix + key, start, end)

    def get_tail(self, key: str, length: int) -> Fetched:
        """See `ObjectStore.get_tail`."""
        return self._store.get_tail(self.prefix + key, length)

    def get_if_changed(self, key: str, etag: str, *, size_bytes_max: int | None = None) -> Fetched | None:
        """See `ObjectStore.get_if_changed`."""
        return self._store.get_if_changed(self.prefix + key, etag, size_bytes_max=size_bytes_max)

    def put(self, key: str, body: Body, *, condition: Condition = ALWAYS) -> str:
        """See `ObjectStore.put`."""
        return self._store.put(self.prefix + key, body, condition=condition)

    def delete(self, key: str) -> None:
        """See `ObjectStore.delete`."""
        self._store.delete(self.prefix + key)

    def delete_many(self, keys: Iterable[str]) -> DeleteFailures:
        """See `ObjectStore.delete_many`."""
        failures = self._store.delete_many(self.prefix + key for key in keys)
        return [DeleteFailure(self._short(failure.key), failure.error) for failure in failures]

    def list_page(self, prefix: str, start_after: str = "", limit: int = LIST_PAGE_KEYS_MAX) -> ListPage:
        """See `ObjectStore.list_page`."""
        after = self.prefix + start_after if start_after else ""
        page = self._store.list_page(self.prefix + prefix, after, limit)
        return ListPage([replace(found, key=self._short(found.key)) for found in page.objects], page.more)

    def start_multipart(self, key: str) -> MultipartUpload:
        """See `ObjectStore.start_multipart`."""
        return _PrefixedUpload(self._store.start_multipart(self.prefix + key), self.prefix)

    def _short(self, key: str) -> str:
        return key.removeprefix(self.prefix)


class _PrefixedUpload:
    """Forwards to another upload; only the source of a copy needs the prefix."""

    def __init__(self, upload: MultipartUpload, prefix: str) -> None:
        self._prefix = prefix
        self.upload_part = upload.upload_part
        self.complete = upload.complete
        self.abort = upload.abort
        self._copy_part = upload.copy_part

    def copy_part(self, number: int, source_key: str, start: int, end: int) -> PartReceipt:
        return self._copy_part(number, self._prefix + source_key, start, end)
