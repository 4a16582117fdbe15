"""Roots of nodes in memory: bounded in bytes, read again when they are old, never read in a storm.

A root is true of the objects that it names, however old it is; an old one merely covers fewer of the objects that are
listed now. So a root is kept until its time to live is over and then asked for again, which costs a request without a
body as long as it is the same. That a node's root cannot be used is remembered just as long; that it has none, longer
if wanted, as whoever builds no hints should not pay for them.

    node 7   root, read 40 s ago       use it
    node 8   nothing, read 40 s ago    go without; nobody asks the store again before the time is over
    node 9   root, given up            go without for a few seconds, then read it again: its files were replaced
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from loaders.errors import AccessDenied, KeyMissing
from loaders.hints.errors import HintProblem, HintTrouble
from loaders.hints.root_bytes import fetch_changed_root, fetch_root

if TYPE_CHECKING:
    from loaders.store.base import Fetched, ObjectStore

ROOTS_SIZE_BYTES_MAX = 64 << 20
TTL_SECONDS = 60.0
RETRY_SECONDS = 5.0
_ENTRY_SIZE_BYTES = 500  # what a remembered node takes besides its root


class Root(Protocol):
    """What can be kept."""

    @property
    def nbytes(self) -> int:
        """Memory it takes."""
        ...


R = TypeVar("R", bound=Root)


@dataclass(frozen=True, slots=True)
class KnownRoot(Generic[R]):
    """What is known of a node's root.

    Args:
        root: the root; None if there is none that can be used.
        problem: why there is none.
        etag: of the object that was read; empty if there was none.
        due_seconds: when it is to be read again, by the cache's timer.
        read_size_bytes: what the last read of it brought; 0 if it had not changed.
    """

    root: R | None
    problem: HintProblem | None
    etag: str
    due_seconds: float
    read_size_bytes: int = 0

    @property
    def nbytes(self) -> int:
        """Memory it takes."""
        return _ENTRY_SIZE_BYTES + (0 if self.root is None else self.root.nbytes)


@dataclass(frozen=True, slots=True)
class RootCacheStats:
    """What is kept, and what was read."""

    roots: int
    nodes: int
    nbytes: int
    nbytes_max: int
    reads: int
    hits: int
    evicted: int


class RootCache(Generic[R]):
    """Roots of one kind by node.

    Args:
        key: where a node's root lies.
        decode: makes a root of its bytes; raises HintProblem.
        timer: seconds, from any start.
        size_bytes_max: bound of all roots together; a larger one is used once and not kept. 64 MiB by default.
        ttl_seconds: after which a root is asked for again; 60 by default.
        missing_ttl_seconds: after which a node without a root is asked for one again; the same by default.

    Threads: any. The lock is not held over I/O; two threads that miss one root may both read it.
    """

    def __init__(
        self,
        key: Callable[[int], str],
        decode: Callable[[bytes, int], R],
        timer: Callable[[], float],
        *,
        size_bytes_max: int = ROOTS_SIZE_BYTES_MAX,
        ttl_seconds: float = TTL_SECONDS,
        missing_ttl_seconds: float | None = None,
    ) -> None:
        self._key = key
        self._decode = decode
        self._timer = timer
        self._size_bytes_max = size_bytes_max
        self._ttl_seconds = ttl_seconds
        self._missing_ttl_seconds = ttl_seconds if missing_ttl_seconds is None else missing_ttl_seconds
        self._lock = threading.Lock()
        self._known: OrderedDict[int, KnownRoot[R]] = OrderedDict()
        self._nbytes = 0
        self._counts = dict.fromkeys(("reads", "hits", "evicted"), 0)

    def known(self, node_id: int) -> KnownRoot[R] | None:
        """What is known and not too old; None: read the root (`take` what comes)."""
        now = self._timer()
        with self._lock:
            known = self._known.get(node_id)
            if known is None or now >= known.due_seconds:
                return None
            self._known.move_to_end(node_id)
            self._counts["hits"] += 1
            return known

    def take(self, node_id: int, fetched: Fetched | None) -> KnownRoot[R]:
        """Keep what a read of the root brought; None: there is no such object. O(size), outside the lock.

        A root that cannot be used becomes the problem of what is known; nothing is raised.
        """
        now = self._timer()
        known: KnownRoot[R]
        if fetched is None:
            missing = HintProblem(HintTrouble.MISSING, self._key(node_id), "no such object")
            return self._keep(node_id, KnownRoot(None, missing, "", now + self._missing_ttl_seconds), read=True)
        due, etag, size = now + self._ttl_seconds, fetched.etag, len(fetched.body)
        try:
            known = KnownRoot(self._decode(fetched.body, node_id), None, etag, due, size)
        except HintProblem as problem:
            known = KnownRoot(None, problem, etag, due, size)
        return self._keep(node_id, known, read=True)

    def read(self, store: ObjectStore, node_id: int) -> KnownRoot[R]:
        """What is known, read from the store if need be: at most one request.

        Raises:
            StoreError: the store could not say.
        """
        if (known := self.known(node_id)) is not None:
            return known
        with self._lock:
            old = self._known.get(node_id)
        if old is not None and old.root is not None:
            return self._read_changed(store, node_id, old)
        try:
            return self.take(node_id, fetch_root(store, self._key(node_id)))
        except HintProblem as problem:
            return self._keep(node_id, KnownRoot(None, problem, "", self._timer() + self._ttl_seconds), read=True)

    def give_up(self, node_id: int, problem: HintProblem) -> None:
        """Go without this node's root for a few seconds, then read it again: what it names is gone or another thing."""
        due = self._timer() + min(RETRY_SECONDS, self._ttl_seconds)
        self._keep(node_id, KnownRoot(None, problem, "", due), read=False)

    def stats(self) -> RootCacheStats:
        """Sizes and counts now."""
        with self._lock:
            roots = sum(known.root is not None for known in self._known.values())
            return RootCacheStats(roots, len(self._known), self._nbytes, self._size_bytes_max, **self._counts)

    def _read_changed(self, store: ObjectStore, node_id: int, old: KnownRoot[R]) -> KnownRoot[R]:
        try:
            fetched = fetch_changed_root(store, self._key(node_id), old.etag)
        except (KeyMissing, AccessDenied):  # without the right to list, S3 denies what is missing
            return self.take(node_id, None)
        except HintProblem as problem:
            return self._keep(node_id, KnownRoot(None, problem, "", self._timer() + self._ttl_seconds), read=True)
        if fetched is not None:
            return self.take(node_id, fetched)
        due = self._timer() + self._ttl_seconds
        return self._keep(node_id, replace(old, due_seconds=due, read_size_bytes=0), read=True)

    def _keep(self, node_id: int, known: KnownRoot[R], *, read: bool) -> KnownRoot[R]:
        with self._lock:
            self._counts["reads"] += read
            before = self._known.pop(node_id, None)
            self._nbytes -= 0 if before is None else before.nbytes
            if known.nbytes <= self._size_bytes_max:
                self._known[node_id] = known
                self._nbytes += known.nbytes
            while self._nbytes > self._size_bytes_max:
                _, gone = self._known.popitem(last=False)
                self._nbytes -= gone.nbytes
                self._counts["evicted"] += 1
        return known
