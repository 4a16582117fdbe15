"""What requests are for, and what they cost: the cause of each request, repetitions by clients, and prices.

A request has one cause. Code that works for one purpose names it, and it holds for everything within, in other threads
too; within another one the outer cause holds, so that the refresh of an image by a compaction counts as compaction:

    with caused_by(RequestCause.COMPACTION):
        ...

All other requests get their cause from the operation and the key:

    | cause        | named by                           | or found by the key                                         |
    |--------------|------------------------------------|-------------------------------------------------------------|
    | lookup       |                                    | reads of objects: their indexes                             |
    | data         | reads of blocks by an accelerator  |                                                             |
    | refresh      |                                    | reads of the catalog's tables and of the format record      |
    | follow       |                                    | listings of the catalog's tables, which look for changes    |
    | hints        | runs of `build-hints`              | everything of hints                                         |
    | compaction   | runs of `compact`                  |                                                             |
    | gc           | runs of `gc`                       | the journal                                                 |
    | history      |                                    | all other tables: histories, transactions, owners, groups   |
    | stream-write | uploads of segments' owners        | writes of time indexes and of transactions' data            |
    | stream-read  | readers of streams                 | reads of these                                              |
    | upload       |                                    | writes of objects and of the catalog's tables (a broker)  |
    | probe        |                                    | the probe of conditional writes, and the store's time       |
    | other        |                                    | everything else, such as a listing of the whole bucket      |

Clients repeat what failed, within one call. A client that can report each answer calls `note_answer`; boto3 can,
obstore cannot.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from loaders import layout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


class RequestCause(StrEnum):
    """What a request is for; see the module."""

    LOOKUP = "lookup"
    DATA = "data"
    REFRESH = "refresh"
    FOLLOW = "follow"
    HINTS = "hints"
    COMPACTION = "compaction"
    GC = "gc"
    HISTORY = "history"
    STREAM_WRITE = "stream-write"
    STREAM_READ = "stream-read"
    UPLOAD = "upload"
    PROBE = "probe"
    OTHER = "other"


FREE: Final = frozenset({"delete", "delete_many", "abort"})
"""Operations that S3 does not bill."""

READS: Final = frozenset({"get", "get_range", "get_tail", "get_if_changed", "date"})
"""Operations that are billed as reads; all others but the free ones are billed as writes."""

_TABLES_OF_NODES: Final = ("nodes", "node-lists", "node-list-history", "node-checkpoints")
CATALOG_TABLES: Final = (*_TABLES_OF_NODES, "stream-buckets", "counters", "import-progress", "job-runs")
"""The tables of the catalog (`accel.catalog.keys`); all others are of streams."""

MONTH_SECONDS: Final = 30 * 86_400

_cause: ContextVar[RequestCause | None] = ContextVar("cause of requests", default=None)


@contextmanager
def caused_by(cause: RequestCause) -> Iterator[None]:
    """Requests within the block, or the decorated function, have this cause, unless an outer block named one."""
    if _cause.get() is not None:
        yield
        return
    token = _cause.set(cause)
    try:
        yield
    finally:
        _cause.reset(token)


def request_cause(operation: str, key: str) -> RequestCause:
    """The cause of a request that is sent now.

    >>> request_cause("list", "accel/tables/node-lists/"), request_cause("get_tail", "a2000000/DEFAULT/42")
    (<RequestCause.FOLLOW: 'follow'>, <RequestCause.LOOKUP: 'lookup'>)
    """
    return _cause.get() or _cause_by_key(operation, key)


def _same(cause: RequestCause) -> tuple[RequestCause, RequestCause, RequestCause]:
    return cause, cause, cause


_OF_OBJECTS: Final = (RequestCause.LOOKUP, RequestCause.OTHER, RequestCause.UPLOAD)
_OF_STREAMS: Final = (RequestCause.STREAM_READ, RequestCause.STREAM_READ, RequestCause.STREAM_WRITE)
_OF_THE_CATALOG: Final = (RequestCause.REFRESH, RequestCause.FOLLOW, RequestCause.UPLOAD)

BY_PREFIX: Final = {
    layout.PROBE_PREFIX: _same(RequestCause.PROBE),
    layout.HINTS_PREFIX: _same(RequestCause.HINTS),
    layout.JOURNAL_PREFIX: _same(RequestCause.GC),
    layout.TIMES_PREFIX: _OF_STREAMS,
    layout.TRANSACTIONS_PREFIX: _OF_STREAMS,
    layout.UPLOADS_PREFIX: _same(RequestCause.UPLOAD),
    layout.FORMAT_KEY: _OF_THE_CATALOG,
    **{f"{layout.TABLES_PREFIX}{name}/": _OF_THE_CATALOG for name in CATALOG_TABLES},
    layout.TABLES_PREFIX: _same(RequestCause.HISTORY),
    layout.ACCEL_PREFIX: _same(RequestCause.OTHER),
}
"""The first prefix of a key that fits -> the causes of reads, of listings, and of writes."""


def _cause_by_key(operation: str, key: str) -> RequestCause:
    if operation == "date":
        return RequestCause.PROBE
    if (
        operation == "list"
        and key.startswith(layout.TABLES_PREFIX)
        and key.count("/") == layout.TABLES_PREFIX.count("/")
    ):
        return RequestCause.FOLLOW  # of several tables of the catalog at once
    reads, lists, writes = _OF_OBJECTS
    if key.startswith(layout.ACCEL_PREFIX):
        reads, lists, writes = next(causes for prefix, causes in BY_PREFIX.items() if key.startswith(prefix))
    return reads if operation in READS else lists if operation == "list" else writes


# Repetitions


class Answers:
    """The answers of a store to one request of its user. Threads: one, that of the request.

    Args:
        timer: seconds from any start; None = no times.
        outer: those of a store around; they are noted there, too.
    """

    def __init__(self, timer: Callable[[], float] | None, outer: Answers | None) -> None:
        self._timer = timer
        self._outer = outer
        self._first_seconds: float | None = None
        self.repeated = self.throttled = 0

    def note(self, *, is_repetition: bool, is_throttled: bool) -> None:
        """Count an answer, or the failure to get one."""
        self.repeated += is_repetition
        self.throttled += is_throttled
        if self._timer is not None and self._first_seconds is None:
            self._first_seconds = self._timer()
        if self._outer is not None:
            self._outer.note(is_repetition=is_repetition, is_throttled=is_throttled)

    def lost_seconds(self) -> float:
        """The time since the first answer, if the request was sent again after it."""
        if self._timer is None or self._first_seconds is None or not self.repeated:
            return 0.0
        return self._timer() - self._first_seconds


_answers: ContextVar[Answers | None] = ContextVar("answers to a request", default=None)


@contextmanager
def answers_noted(timer: Callable[[], float] | None) -> Iterator[Answers]:
    """Within the block, `note_answer` counts in the value."""
    noted = Answers(timer, _answers.get())
    token = _answers.set(noted)
    try:
        yield noted
    finally:
        _answers.reset(token)


def note_answer(*, is_repetition: bool, is_throttled: bool) -> None:
    """Called by a client for each answer of the server, in the thread of the request.

    Args:
        is_repetition: whether the same request was answered before, or failed.
        is_throttled: whether the server asked for fewer requests.
    """
    if (noted := _answers.get()) is not None:
        noted.note(is_repetition=is_repetition, is_throttled=is_throttled)


# Prices


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices of requests; by default the list prices of S3 Standard in us-east-1. Bytes within a region are free.

    Args:
        currency: of the prices.
        per_thousand_reads: of a thousand reads of objects.
        per_thousand_writes: of a thousand writes and listings; deletes are free.
    """

    currency: str = "USD"
    per_thousand_reads: float = 0.0004
    per_thousand_writes: float = 0.005

    def of(self, operation: str, requests: float) -> float:
        """The price of requests of one operation."""
        each = self.per_thousand_reads if operation in READS else self.per_thousand_writes
        return 0.0 if operation in FREE else requests * each / 1000


@dataclass(frozen=True, slots=True)
class CauseBill:
    """The part of one cause.

    Args:
        requests, sent_bytes, received_bytes: since the start.
        repeated_requests: repetitions by the client besides these requests, as far as it reports them.
        price: of all of them.
        month_price: of 30 days at the present rate; None = not known yet, or the requests are not timed.
    """

    requests: int
    sent_bytes: int
    received_bytes: int
    repeated_requests: int
    price: float
    month_price: float | None


@dataclass(frozen=True, slots=True)
class Bill:
    """What the requests of one process cost, by cause.

    Args:
        currency: of the prices.
        price, month_price: the sums of the causes; repetitions count with the full price, although S3 does not bill
            each refusal.
        rate_seconds: the time over which the present rate was measured: about the last ten minutes.
        by_cause: the parts, by the name of the cause.
    """

    currency: str
    price: float
    month_price: float | None
    rate_seconds: float
    by_cause: Mapping[str, CauseBill] = field(default_factory=dict)
