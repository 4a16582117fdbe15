"""Index snapshots for readers: roots in memory, and one ranged GET for all entries of a stream.

    reader = SnapshotReader(store, namespace="_kafka_...", timer=...)
    reader.read_entries(node_id=7, stream_id=420000)           StreamEntries, or a HintProblem

Whoever does the I/O elsewhere takes the steps one by one; each but the reads is pure or touches memory only:

    known = reader.roots.known(7)                 None: GET reader.root_key(7), known = reader.roots.take(7, fetched)
    span = reader.plan(known.root, 420000)        None: no covered object holds the stream
    body = checked_body(span, fetched)            of a GET of span.key, bytes [span.start, span.end)
    reader.decode(known.root, span, body, 420000)
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from loaders.hints.errors import HintProblem, HintTrouble
from loaders.hints.root_cache import ROOTS_SIZE_BYTES_MAX, TTL_SECONDS, RootCache
from loaders.hints.snapshot_lookup import StreamEntries, decode_entries, no_entries, plan_entries
from loaders.hints.snapshot_root import SnapshotRoot, decode_snapshot_root
from loaders.hints.span_reading import read_span
from loaders.layout import HintKind, hint_root_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from loaders.store.base import ObjectStore


class SnapshotReader:
    """Reads the snapshots of any number of nodes.

    Args:
        store: where they lie.
        namespace: of the cluster; roots of another one are foreign.
        timer: seconds, from any start.
        size_bytes_max: bound of the roots in memory, 64 MiB by default.
        ttl_seconds: after which a root is asked for again, 60 by default.

    Threads: any.
    """

    def __init__(
        self,
        store: ObjectStore,
        namespace: str,
        timer: Callable[[], float],
        *,
        size_bytes_max: int = ROOTS_SIZE_BYTES_MAX,
        ttl_seconds: float = TTL_SECONDS,
    ) -> None:
        self._store = store
        decode = partial(_decode, namespace)
        self.roots: RootCache[SnapshotRoot] = RootCache(
            self.root_key, decode, timer, size_bytes_max=size_bytes_max, ttl_seconds=ttl_seconds
        )
        """The roots in memory."""

    plan = staticmethod(plan_entries)
    """See `plan_entries`."""

    decode = staticmethod(decode_entries)
    """See `decode_entries`."""

    @staticmethod
    def root_key(node_id: int) -> str:
        """Where a node's root lies."""
        return hint_root_key(HintKind.SNAPSHOTS, node_id)

    def read_root(self, node_id: int) -> SnapshotRoot:
        """A node's root, from memory or by one request.

        Raises:
            HintProblem: there is none that can be used.
            StoreError: the store could not say.
        """
        known = self.roots.read(self._store, node_id)
        if known.root is None:
            raise known.problem or HintProblem(HintTrouble.MISSING, self.root_key(node_id), "no root")
        return known.root

    def read_entries(self, node_id: int, stream_id: int, offset: int = 0) -> StreamEntries:
        """The entries of a stream in a node: two requests cold, one with the root in memory, none for an absent stream.

        Raises:
            HintProblem: there is no snapshot that can be used. A stale or mixed one is read again after a few seconds.
            StoreError: the store could not say.
            ModuleNotFoundError: pyarrow is not installed.
        """
        root = self.read_root(node_id)
        span = plan_entries(root, stream_id, offset)
        if span is None:
            return no_entries(stream_id)
        try:
            return decode_entries(root, span, read_span(self._store, span), stream_id)
        except HintProblem as problem:
            if problem.kind in {HintTrouble.STALE, HintTrouble.MIXED}:
                self.roots.give_up(node_id, problem)
            raise


def _decode(namespace: str, data: bytes, node_id: int) -> SnapshotRoot:
    return decode_snapshot_root(data, namespace=namespace, node_id=node_id)
