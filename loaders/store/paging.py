"""Many keys, some at a time: how every store pages a listing and batches a delete."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import islice
from typing import TYPE_CHECKING

from loaders.errors import StoreError
from loaders.store.base import DELETE_BATCH_KEYS_MAX, LIST_PAGE_KEYS_MAX, DeleteFailure, DeleteFailures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from loaders.store.base import ListPage, ObjectInfo


class PagedListing(ABC):
    """Gives a store `list` from its `list_page`. Keeps no state."""

    @abstractmethod
    def list_page(self, prefix: str, start_after: str = "", limit: int = LIST_PAGE_KEYS_MAX) -> ListPage:
        """Read one page; see `ObjectStore.list_page`."""

    def list(self, prefix: str, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        """Go through the keys under `prefix` after `start_after`, page by page; see `ObjectStore.list`."""
        if limit is not None and limit < 0:
            raise ValueError(f"a listing's limit is 0 or more, or None: {limit}")
        return islice(self._all(prefix, start_after, limit), limit)

    def _all(self, prefix: str, start_after: str, limit: int | None) -> Iterator[ObjectInfo]:
        # A page of fewer keys than wanted would cost one more request; a page of more would send keys for nothing.
        page_limit = LIST_PAGE_KEYS_MAX if limit is None else min(max(limit, 1), LIST_PAGE_KEYS_MAX)
        while True:
            page = self.list_page(prefix, start_after, page_limit)
            yield from page.objects
            if not page.more or not page.objects:
                return
            start_after = page.objects[-1].key


def check_page_limit(limit: int) -> None:
    """A page holds 1 to 1,000 keys; else ValueError."""
    if not 1 <= limit <= LIST_PAGE_KEYS_MAX:
        raise ValueError(f"a page holds 1 to {LIST_PAGE_KEYS_MAX} keys: {limit}")


def delete_in_batches(
    keys: Iterable[str], delete_batch: Callable[[Sequence[str]], Iterable[DeleteFailure]]
) -> DeleteFailures:
    """Delete keys, 1,000 at a time, and gather what failed; a batch that fails as a whole fails for all its keys."""
    failures: DeleteFailures = []
    rest = iter(keys)
    while batch := list(islice(rest, DELETE_BATCH_KEYS_MAX)):
        try:
            failures.extend(delete_batch(batch))
        except StoreError as error:
            failures.extend(DeleteFailure(key, error) for key in batch)
    return failures
