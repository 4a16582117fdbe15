"""Stores that wrap a store: the base class of decorators, a store that counts requests, and a store with a prefix.

A decorator overrides one method, `_around(call, send)`: `call` describes the request, `send()` sends it and returns the
answer. Each request of the inner store is one call of `_around`: a listing page by page, a delete of many keys batch by
batch, a multipart upload part by part. (Repetitions within an S3 client are not visible.)
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, fields, replace
from itertools import count
from math import inf
from operator import add
from os import getpid
from typing import TYPE_CHECKING, Final, TypeVar

from loaders.counting import SECONDS_BOUNDS, Histogram, HistogramStats
from loaders.errors import CredentialsMissing, StoreError, StoreThrottled, StoreUnavailable
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
from loaders.store.bill import MONTH_SECONDS, Bill, CauseBill, Prices, RequestCause, answers_noted, request_cause
from loaders.tracing import request_times, traced

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
    """Makes each request a span, and times it for the lookup that it belongs to (`loaders.tracing`).

    Threads: as for the inner store.

    Args:
        store: the inner store.
        timer: seconds from any start.
    """

    def __init__(self, store: ObjectStore, timer: Callable[[], float]) -> None:
        super().__init__(store)
        self._timer = timer

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        span = [self._timer(), inf]
        if (times := request_times()) is not None:
            times.spans.append(span)
        try:
            with traced(f"accel.store {call.operation}", key=call.key):
                return send()
        finally:
            span[1] = self._timer()


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
        repeated: repetitions by the client besides these requests, as far as it reports them.
        throttled: answers, also to repetitions, by which the store asked for fewer requests.
        lost_seconds: the time from the first answer to the last one of requests that were repeated.
    """

    requests: int = 0
    failures: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    repeated: int = 0
    throttled: int = 0
    lost_seconds: float = 0.0

    def __add__(self, other: OperationCount) -> OperationCount:
        return OperationCount(*(getattr(self, counter.name) + getattr(other, counter.name) for counter in fields(self)))

    def __sub__(self, other: OperationCount) -> OperationCount:
        return OperationCount(*(getattr(self, counter.name) - getattr(other, counter.name) for counter in fields(self)))


@dataclass(frozen=True)
class StoreCounts:
    """The counts of all requests up to one moment; the difference of two is supported.

    Attributes:
        counts: (cause, operation) -> its counts, if it was requested at all; see `decorated.OPERATIONS`.
    """

    counts: Mapping[tuple[RequestCause, str], OperationCount] = field(default_factory=dict)

    @property
    def by_operation(self) -> Mapping[str, OperationCount]:
        """Operation -> the sum over all causes."""
        return self._by(1)

    @property
    def by_cause(self) -> Mapping[str, OperationCount]:
        """RequestCause -> the sum over all operations."""
        return self._by(0)

    def _by(self, place: int) -> dict[str, OperationCount]:
        sums: dict[str, OperationCount] = {}
        for kind, counted in self.counts.items():
            sums[kind[place]] = sums.get(kind[place], OperationCount()) + counted
        return sums

    def of(self, *operations: str) -> OperationCount:
        """The sum of these operations."""
        return sum((count for (_, name), count in self.counts.items() if name in operations), OperationCount())

    @property
    def total(self) -> OperationCount:
        """The sum of all operations."""
        return sum(self.counts.values(), OperationCount())

    @property
    def gets(self) -> int:
        """The number of requests that read objects: whole, range, tail, and if changed."""
        return self.of(*GETS).requests

    def __sub__(self, earlier: StoreCounts) -> StoreCounts:
        before = earlier.counts
        changed = {kind: count - before.get(kind, OperationCount()) for kind, count in self.counts.items()}
        return StoreCounts({kind: count for kind, count in changed.items() if count != OperationCount()})


OK: Final = "ok"
"""The outcome of a successful request; other outcomes are names of error classes."""

OTHER_ERROR: Final = "other"
"""The outcome of a request with an exception that is not a `StoreError`."""

RATE_SECONDS: Final = 600.0
"""The present rate is measured over at least this time, as far as it has passed."""

RATE_SECONDS_MIN: Final = 60.0
"""Before this time there is no rate; so often the counts are kept for it."""


class CountingStore(DecoratedStore):
    """Counts requests to the inner store, and bytes, by cause and operation; and measures durations. Threads: any.

    S3 bills requests, so most claims of this project are claims about these numbers.

    Args:
        store: the inner store.
        timer: seconds from any start; None = no durations, and no rates.

    Attributes:
        is_failing: whether the last ended request failed with `StoreUnavailable`, or for want of valid credentials.
    """

    def __init__(self, store: ObjectStore, timer: Callable[[], float] | None = None) -> None:
        super().__init__(store)
        self._timer = timer
        self._lock = ProcessLock()
        self._counts: dict[
            tuple[RequestCause, str], Sequence[float]
        ] = {}  # figures of an `OperationCount`: quick to add
        self._kept: deque[tuple[float, StoreCounts]] = deque()  # the counts at earlier times, at most 11
        self._seconds: dict[tuple[str, str], Histogram] = {}
        self._began_seconds: dict[tuple[int, int], float] = {}  # by process: a forked process has no requests under way
        self._numbers = count()
        self.is_failing = False
        self._keep_counts()

    def request_seconds(self) -> dict[tuple[str, str], HistogramStats]:
        """The durations of requests since the start, by operation and outcome; empty without a timer.

        An outcome is `OK`, the name of an error's class (`StoreThrottled`, `KeyMissing`), or `OTHER_ERROR`.
        """
        with self._lock:
            return {kind: histogram.stats() for kind, histogram in self._seconds.items()}

    def oldest_request_seconds(self) -> float:
        """The duration so far of the oldest request under way in this process; 0 if there is none, or no timer.

        Requests to a store that does not answer fail only after the client's time-out; this value rises at once.
        """
        began = self._under_way()
        return max(0.0, self._timer() - min(began)) if self._timer is not None and began else 0.0

    def requests_under_way(self) -> int:
        """The number of requests of this process that have not ended; 0 without a timer."""
        return len(self._under_way())

    def _under_way(self) -> list[float]:
        """When the requests under way began."""
        here = getpid()
        with self._lock:
            return [seconds for (process_id, _), seconds in self._began_seconds.items() if process_id == here]

    def snapshot(self) -> StoreCounts:
        """The counts until now, all at the same moment."""
        with self._lock:
            return self._counts_now()

    def bill(self, prices: Prices | None = None) -> Bill:
        """What the requests since the start cost by cause, and what a month costs at the present rate.

        Args:
            prices: of requests; None = the list prices of S3.
        """
        prices = prices or Prices()
        self._keep_counts()
        with self._lock:
            now, earlier = self._counts_now(), self._kept[0] if self._kept else None
        rate_seconds = 0.0 if earlier is None or self._timer is None else self._timer() - earlier[0]
        recent = None if earlier is None or rate_seconds < RATE_SECONDS_MIN else now - earlier[1]

        def price(counts: StoreCounts, cause: str) -> float:
            of_cause = [(name, each) for (other, name), each in counts.counts.items() if other == cause]
            return sum(prices.of(name, each.requests + each.repeated) for name, each in of_cause)

        parts = {}
        for cause, each in now.by_cause.items():
            month = None if recent is None else price(recent, cause) * MONTH_SECONDS / rate_seconds
            sums = each.requests, each.sent_bytes, each.received_bytes, each.repeated
            parts[str(cause)] = CauseBill(*sums, price(now, cause), month)
        months = None if recent is None else sum(part.month_price or 0.0 for part in parts.values())
        return Bill(prices.currency, sum(part.price for part in parts.values()), months, rate_seconds, parts)

    def moved_bytes(self) -> int:
        """The number of bytes that were sent and received until now."""
        total = self.snapshot().total
        return total.sent_bytes + total.received_bytes

    def reset(self) -> StoreCounts:
        """Reset the counts to zero, and return the counts until now."""
        with self._lock:
            counts = self._counts_now()
            self._counts = {}
            self._kept.clear()
        self._keep_counts()
        return counts

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        if self._timer is None:
            return self._counted(call, send)[0]
        request = getpid(), next(self._numbers)
        started_seconds, outcome = self._timer(), OTHER_ERROR
        with self._lock:
            self._began_seconds[request] = started_seconds
        try:
            answer, outcome = self._counted(call, send)
        except StoreError as error:
            outcome = type(error).__name__
            raise
        finally:
            self._note(request, (call.operation, outcome), self._timer() - started_seconds)
        return answer

    def _counted(self, call: StoreCall, send: Callable[[], Answer]) -> tuple[Answer, str]:
        cause, failures, received, refused = request_cause(call.operation, call.key), 1, 0, 0
        with answers_noted(self._timer) as noted:
            try:
                answer = send()
                self.is_failing, failures, received = False, 0, received_bytes(answer)
            except StoreError as error:
                self.is_failing = isinstance(error, StoreUnavailable | CredentialsMissing)
                refused = int(isinstance(error, StoreThrottled))
                raise
            finally:
                throttled = noted.throttled or refused  # a client that reports no answers reports at least the last one
                lost = noted.repeated, throttled, noted.lost_seconds()
                self._add((cause, call.operation), (1, failures, call.sent_bytes, received, *lost))
        return answer, OK

    def _note(self, request: tuple[int, int], kind: tuple[str, str], seconds: float) -> None:
        with self._lock:
            self._began_seconds.pop(request, None)
            histogram = self._seconds.get(kind)
            if histogram is None:
                histogram = self._seconds[kind] = Histogram(SECONDS_BOUNDS)
            histogram.add(seconds)

    def _add(self, kind: tuple[RequestCause, str], figures: Sequence[float]) -> None:
        self._keep_counts()
        with self._lock:
            before = self._counts.get(kind)
            self._counts[kind] = figures if before is None else [*map(add, before, figures)]

    def _counts_now(self) -> StoreCounts:
        """The counts; the lock is held."""
        return StoreCounts({kind: OperationCount(*figures) for kind, figures in self._counts.items()})  # type: ignore[arg-type]  # all but the last are whole

    def _keep_counts(self) -> None:
        """Keep the counts for the rate, once a minute; the first ones that are kept are those of ten minutes ago."""
        if self._timer is None:
            return
        now_seconds = self._timer()
        with self._lock:
            if self._kept and now_seconds - self._kept[-1][0] < RATE_SECONDS_MIN:
                return
            self._kept.append((now_seconds, self._counts_now()))
            while len(self._kept) > 2 and self._kept[1][0] <= now_seconds - RATE_SECONDS:
                self._kept.popleft()


def counting_store(store: ObjectStore) -> CountingStore | None:
    """The first store that counts, of a store and those that it decorates."""
    while isinstance(store, DecoratedStore):
        if isinstance(store, CountingStore):
            return store
        store = store._store  # noqa: SLF001 - the function is a part of these classes
    return None


def _dated(store: ObjectStore) -> DatedStore | None:
    """A store, if it or the store that it wraps reports its time."""
    inside: object = store
    while isinstance(inside, DecoratedStore) and type(inside).date_seconds is DecoratedStore.date_seconds:
        inside = inside._store  # noqa: SLF001 - the function is a part of these classes
    return store if isinstance(inside, DatedStore) and isinstance(store, DatedStore) else None
