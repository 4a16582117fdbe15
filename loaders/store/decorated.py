"""Stores that wrap a store: the base class of decorators, a store that counts requests, and a store with a prefix.

A decorator overrides one method, `_around(call, send)`: `call` describes the request, `send()` sends it and returns the
answer. Each request of the inner store is one call of `_around`: a listing page by page, a delete of many keys batch by
batch, a multipart upload part by part. (Repetitions within an S3 client are not visible.)
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from itertools import count
from os import getpid
from typing import TYPE_CHECKING, Final, TypeVar

from loaders.counting import SECONDS_BOUNDS, Histogram, HistogramStats
from loaders.errors import CredentialsMissing, StoreError, StoreUnavailable
from loaders.lifetime import ProcessLock
from loaders.store.base import (
    ALWAYS,
    LIST_PAGE_KEYS_MAX,
    Always,
    DatedStore,
    DeleteFailure,
    DeleteFailures,
    Fetched,
    FolderStore,
    ListPage,
    PagedListing,
    delete_in_batches,
)
from loaders.tracing import traced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from loaders.store.base import Body, Condition, MultipartUpload, ObjectStore, PartReceipt


Answer = TypeVar("Answer")

GETS = frozenset({"get", "get_range", "get_tail", "get_if_changed"})
"""Operations whose answers have a body."""

WRITES = frozenset(
    {"put", "delete", "delete_many", "start_multipart", "upload_part", "copy_part", "complete", "abort"},
)
"""Operations that change the store. Neither in `GETS` nor here: `list`, one page of a listing, and `date`."""

OPERATIONS = GETS | WRITES | {"list", "date"}


@dataclass(frozen=True, slots=True)
class StoreCall:
    """The description of one request, before it is sent.

    Attributes:
        operation: one of `OPERATIONS`.
        key: the object's key, the prefix of a listing, or the first key of a batch.
        sent_bytes: length of the body that is sent.
        conditional: whether it is a write with a condition.
    """

    operation: str
    key: str
    sent_bytes: int = 0
    conditional: bool = False


def received_bytes(answer: object) -> int:
    """Length of the body of an answer."""
    return len(answer.body) if isinstance(answer, Fetched) else 0


class DecoratedStore(PagedListing):
    """Sends every request through `_around`. Threads: as for the inner store and `_around`."""

    prefix = ""
    """The text before each key in the inner store."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:  # noqa: ARG002 - for subclasses
        return send()

    @property
    def can_copy_parts(self) -> bool:
        """See `ObjectStore.can_copy_parts`."""
        return self._store.can_copy_parts

    def get(self, key: str, *, size_bytes_max: int | None = None) -> Fetched:
        """See `ObjectStore.get`."""
        return self._around(
            StoreCall("get", key), lambda: self._store.get(self.prefix + key, size_bytes_max=size_bytes_max)
        )

    def get_range(self, key: str, start: int, end: int) -> Fetched:
        """See `ObjectStore.get_range`."""
        return self._around(StoreCall("get_range", key), lambda: self._store.get_range(self.prefix + key, start, end))

    def get_tail(self, key: str, length: int) -> Fetched:
        """See `ObjectStore.get_tail`."""
        return self._around(StoreCall("get_tail", key), lambda: self._store.get_tail(self.prefix + key, length))

    def get_if_changed(self, key: str, etag: str, *, size_bytes_max: int | None = None) -> Fetched | None:
        """See `ObjectStore.get_if_changed`."""
        call = StoreCall("get_if_changed", key)
        return self._around(
            call, lambda: self._store.get_if_changed(self.prefix + key, etag, size_bytes_max=size_bytes_max)
        )

    def put(self, key: str, body: Body, *, condition: Condition = ALWAYS, mark: str | None = None) -> str:
        """See `ObjectStore.put`."""
        call = StoreCall("put", key, len(body), conditional=not isinstance(condition, Always))
        return self._around(call, lambda: self._store.put(self.prefix + key, body, condition=condition, mark=mark))

    def delete(self, key: str) -> None:
        """See `ObjectStore.delete`."""
        self._around(StoreCall("delete", key), lambda: self._store.delete(self.prefix + key))

    def delete_many(self, keys: Iterable[str]) -> DeleteFailures:
        """See `ObjectStore.delete_many`."""
        return delete_in_batches(keys, self._delete_batch, self.delete)

    def _delete_batch(self, keys: Sequence[str]) -> DeleteFailures:
        inside = [self.prefix + key for key in keys]
        failures = self._around(StoreCall("delete_many", keys[0]), lambda: self._store.delete_many(inside))
        return [DeleteFailure(failure.key.removeprefix(self.prefix), failure.error) for failure in failures]

    def list_page(
        self, prefix: str, start_after: str = "", limit: int = LIST_PAGE_KEYS_MAX, token: str = ""
    ) -> ListPage:
        """See `ObjectStore.list_page`."""
        inside, after = self.prefix + prefix, start_after and self.prefix + start_after
        page = self._around(StoreCall("list", prefix), lambda: self._store.list_page(inside, after, limit, token))
        if not self.prefix:
            return page
        return replace(page, objects=[replace(info, key=info.key.removeprefix(self.prefix)) for info in page.objects])

    def date_seconds(self, prefix: str | None = "") -> float | None:
        """See `DatedStore.date_seconds`; None if the inner store does not implement it."""
        inside = _dated(self._store)
        if inside is None:
            return None
        writable = None if prefix is None else self.prefix + prefix
        return self._around(StoreCall("date", ""), lambda: inside.date_seconds(writable))

    def start_multipart(self, key: str, *, mark: str | None = None) -> MultipartUpload:
        """See `ObjectStore.start_multipart`."""
        call = StoreCall("start_multipart", key)
        return _DecoratedUpload(
            self, self._around(call, lambda: self._store.start_multipart(self.prefix + key, mark=mark)), key
        )

    def abort_multipart(self, key: str, upload_id: str) -> None:
        """See `ObjectStore.abort_multipart`."""
        self._around(StoreCall("abort", key), lambda: self._store.abort_multipart(self.prefix + key, upload_id))


class _DecoratedUpload:
    """An upload that sends its requests through the `_around` of its store."""

    def __init__(self, store: DecoratedStore, upload: MultipartUpload, key: str) -> None:
        self._around = store._around  # noqa: SLF001 - the two classes are one mechanism
        self._upload = upload
        self._key = key
        self._prefix = store.prefix
        self.upload_id = upload.upload_id

    def upload_part(self, number: int, body: Body) -> PartReceipt:
        call = StoreCall("upload_part", self._key, len(body))
        return self._around(call, lambda: self._upload.upload_part(number, body))

    def copy_part(self, number: int, source_key: str, start: int, end: int) -> PartReceipt:
        call, source = StoreCall("copy_part", self._key), self._prefix + source_key
        return self._around(call, lambda: self._upload.copy_part(number, source, start, end))

    def complete(self, receipts: Iterable[PartReceipt]) -> str:
        return self._around(StoreCall("complete", self._key), lambda: self._upload.complete(receipts))

    def abort(self) -> None:
        self._around(StoreCall("abort", self._key), self._upload.abort)


def folder_of(store: ObjectStore) -> FolderStore | None:
    """The store inside all decorators, if it is in a folder."""
    while isinstance(store, DecoratedStore):
        store = store._store  # noqa: SLF001 - the function is a part of these classes
    return store if isinstance(store, FolderStore) else None


def notices_of(store: ObjectStore) -> list[str]:
    """`FolderStore.notices`, if the store is in a folder."""
    folder = folder_of(store)
    return [] if folder is None else folder.notices()


def undecorated(store: ObjectStore) -> ObjectStore:
    """The store inside decorators that do not change its writes: all stores of one client share it."""
    while isinstance(store, DecoratedStore) and type(store).put is DecoratedStore.put:
        store = store._store  # noqa: SLF001 - the function is a part of these classes
    return store


class TracedStore(DecoratedStore):
    """Makes each request a span (`loaders.tracing`). Threads: as for the inner store."""

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        with traced(f"accel.store {call.operation}", key=call.key):
            return send()


class PrefixedStore(DecoratedStore):
    """Adds a prefix to every key and removes it in listings. Threads: as for the inner store.

    Errors contain the full key, with the prefix.

    Args:
        store: the inner store.
        prefix: the text before each key, unchanged: it ends with "/" if keys are paths.
    """

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        super().__init__(store)
        self.prefix = prefix


@dataclass(frozen=True, slots=True)
class OperationCount:
    """The counts of one operation.

    Attributes:
        requests: the number of requests, failures included.
        failures: the number of requests that ended with an error of the store, such as a missing key.
        sent_bytes: bytes of sent bodies.
        received_bytes: bytes of received bodies.
    """

    requests: int = 0
    failures: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0

    def __add__(self, other: OperationCount) -> OperationCount:
        return OperationCount(*(getattr(self, counter.name) + getattr(other, counter.name) for counter in fields(self)))

    def __sub__(self, other: OperationCount) -> OperationCount:
        return OperationCount(*(getattr(self, counter.name) - getattr(other, counter.name) for counter in fields(self)))


@dataclass(frozen=True)
class StoreCounts:
    """The counts of all requests up to one moment; the difference of two is supported.

    Attributes:
        by_operation: operation -> its counts, if it was requested at all; see `decorated.OPERATIONS`.
    """

    by_operation: Mapping[str, OperationCount] = field(default_factory=dict)

    def of(self, *operations: str) -> OperationCount:
        """The sum of these operations."""
        return sum((self.by_operation.get(name, OperationCount()) for name in operations), OperationCount())

    @property
    def total(self) -> OperationCount:
        """The sum of all operations."""
        return self.of(*self.by_operation)

    @property
    def gets(self) -> int:
        """The number of requests that read objects: whole, range, tail, and if changed."""
        return self.of(*GETS).requests

    def __sub__(self, earlier: StoreCounts) -> StoreCounts:
        changed = {name: self.of(name) - earlier.of(name) for name in self.by_operation}
        return StoreCounts({name: count for name, count in changed.items() if count != OperationCount()})


OK: Final = "ok"
"""The outcome of a successful request; other outcomes are names of error classes."""

OTHER_ERROR: Final = "other"
"""The outcome of a request with an exception that is not a `StoreError`."""


class CountingStore(DecoratedStore):
    """Counts requests to the inner store, and bytes, by operation; and measures their durations. Threads: any.

    S3 bills requests, so most claims of this project are claims about these numbers.

    Args:
        store: the inner store.
        timer: seconds from any start; None = no durations.

    Attributes:
        is_failing: whether the last ended request failed with `StoreUnavailable`, or for want of valid credentials.
    """

    def __init__(self, store: ObjectStore, timer: Callable[[], float] | None = None) -> None:
        super().__init__(store)
        self._timer = timer
        self._lock = ProcessLock()
        self._counts: dict[str, OperationCount] = {}
        self._seconds: dict[tuple[str, str], Histogram] = {}
        self._began_seconds: dict[tuple[int, int], float] = {}  # by process: a forked process has no requests under way
        self._numbers = count()
        self.is_failing = False

    def request_seconds(self) -> dict[tuple[str, str], HistogramStats]:
        """The durations of requests since the start, by operation and outcome; empty without a timer.

        An outcome is `OK`, the name of an error's class (`StoreUnavailable`, `KeyMissing`), or `OTHER_ERROR`.
        """
        with self._lock:
            return {kind: histogram.stats() for kind, histogram in self._seconds.items()}

    def oldest_request_seconds(self) -> float:
        """The duration so far of the oldest request under way in this process; 0 if there is none, or no timer.

        Requests to a store that does not answer fail only after the client's time-out; this value rises at once.
        """
        if self._timer is None:
            return 0.0
        here = getpid()
        with self._lock:
            began = [seconds for (process_id, _), seconds in self._began_seconds.items() if process_id == here]
        return max(0.0, self._timer() - min(began)) if began else 0.0

    def snapshot(self) -> StoreCounts:
        """The counts until now, all at the same moment."""
        with self._lock:
            return StoreCounts(dict(self._counts))

    def moved_bytes(self) -> int:
        """The number of bytes that were sent and received until now."""
        total = self.snapshot().total
        return total.sent_bytes + total.received_bytes

    def reset(self) -> StoreCounts:
        """Reset the counts to zero, and return the counts until now."""
        with self._lock:
            counts, self._counts = self._counts, {}
        return StoreCounts(counts)

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        if self._timer is None:
            return self._counted(call, send)
        started_seconds, outcome = self._timer(), OTHER_ERROR
        request = getpid(), next(self._numbers)
        with self._lock:
            self._began_seconds[request] = started_seconds
        try:
            answer = self._counted(call, send)
            outcome = OK
        except StoreError as error:
            outcome = type(error).__name__
            raise
        finally:
            self._note(request, (call.operation, outcome), self._timer() - started_seconds)
        return answer

    def _counted(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        try:
            answer = send()
        except StoreError as error:
            self.is_failing = isinstance(error, StoreUnavailable | CredentialsMissing)
            self._add(call.operation, OperationCount(1, 1, call.sent_bytes))
            raise
        self.is_failing = False
        self._add(call.operation, OperationCount(1, 0, call.sent_bytes, received_bytes(answer)))
        return answer

    def _note(self, request: tuple[int, int], kind: tuple[str, str], seconds: float) -> None:
        with self._lock:
            self._began_seconds.pop(request, None)
            histogram = self._seconds.get(kind)
            if histogram is None:
                histogram = self._seconds[kind] = Histogram(SECONDS_BOUNDS)
            histogram.add(seconds)

    def _add(self, operation: str, count: OperationCount) -> None:
        with self._lock:
            self._counts[operation] = self._counts.get(operation, OperationCount()) + count


def _dated(store: ObjectStore) -> DatedStore | None:
    """A store, if it or the store that it wraps reports its time."""
    inside: object = store
    while isinstance(inside, DecoratedStore) and type(inside).date_seconds is DecoratedStore.date_seconds:
        inside = inside._store  # noqa: SLF001 - the function is a part of these classes
    return store if isinstance(inside, DatedStore) and isinstance(store, DatedStore) else None
