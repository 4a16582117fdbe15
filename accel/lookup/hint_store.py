"""What was read of the bucket's snapshots, in bounded memory: roots by node, and the entries of streams.

The entries of a stream serve twice. A lookup learns from them which objects of a list hold the stream, and which lack
it; the second is what the range index does not remember. And a read of data learns where in an object the stream's
blocks lie, so that it need not open the object's index.

All of it is true of the objects that it names, however old it is. Entries are used for lookups only with the very root
that they were read with, since that says which objects they cover.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from accel.image import ObjectRef
from accel.lookup.hint_stats import HintCounters, HintStats
from accel.lookup.wanted import SnapshotKnown
from accel.settings import Settings
from loaders.format import BlockRow
from loaders.hints import (
    ByteSpan,
    EntryColumns,
    HintProblem,
    RootCache,
    SnapshotRoot,
    StreamEntries,
    can_read_snapshots,
    decode_snapshot_root,
)
from loaders.layout import HintKind, hint_root_key

BAD_SPANS_MAX = 1024
"""What could not be used is remembered up to this number, then all of it is forgotten."""

T = TypeVar("T")

_ENTRY_SIZE_BYTES = 500  # what the remembered entries of a stream take besides their columns


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """Entries of a stream with the sizes of their objects, and of which root they are."""

    entries: StreamEntries
    object_sizes: NDArray[np.int64]
    root_etag: str

    @property
    def nbytes(self) -> int:
        return self.entries.columns.nbytes + self.object_sizes.nbytes + _ENTRY_SIZE_BYTES


class HintStore:
    """Snapshots in memory, for many lookups and reads at once.

    Args:
        namespace: of the cluster's objects; roots of another one are foreign.
        timer: seconds, from any start.
        settings: bounds.
        is_open: whether an object's index is in memory.

    Threads: any. The lock is held for work in memory only.
    """

    def __init__(
        self,
        namespace: str,
        timer: Callable[[], float],
        settings: Settings,
        is_open: Callable[[ObjectRef], bool] = lambda _: False,
    ) -> None:
        self.namespace = namespace
        self.counters = HintCounters()
        self.roots: RootCache[SnapshotRoot] = RootCache(
            snapshot_root_key,
            lambda data, node_id: decode_snapshot_root(data, namespace=namespace, node_id=node_id),
            timer,
            size_bytes_max=settings.hint_root_size_bytes_max,
            ttl_seconds=settings.hint_ttl_seconds,
            missing_ttl_seconds=settings.hint_missing_ttl_seconds,
        )
        self._bytes_max = settings.hint_entry_size_bytes_max
        self._lock = threading.Lock()
        self._held: OrderedDict[tuple[int, int], _Held] = OrderedDict()
        self._nbytes = 0
        self._bad: set[tuple[str, ByteSpan]] = set()
        self._wrong: set[tuple[int, int, int]] = set()
        self._is_open = is_open
        self._seen_root = self._seen_none = False
        self.readable = can_read_snapshots()
        """Whether snapshots can be read at all: pyarrow is installed."""

    # -- what lookups ask ----------------------------------------------------------------------------------------------

    @property
    def expected(self) -> bool:
        """Whether it may be hoped that a node has a snapshot: not if only nodes without one were seen so far."""
        return self._seen_root or not self._seen_none

    def root(self, node_id: int) -> SnapshotKnown | None:
        """What is known of a node's snapshot; None: its root has to be read first."""
        return self.roots.known(node_id)

    def held(self, node_id: int, stream_id: int, known: SnapshotKnown) -> StreamEntries | None:
        """A stream's entries in this very snapshot, if they are in memory."""
        held = self._look(node_id, stream_id)
        return held.entries if held is not None and held.root_etag == known.etag else None

    def is_bad(self, known: SnapshotKnown, span: ByteSpan) -> bool:
        """Whether these bytes of the snapshot were read before and could not be used."""
        with self._lock:
            return (known.etag, span) in self._bad

    # -- what reads of data ask ----------------------------------------------------------------------------------------

    def find(self, node_id: int, ref: ObjectRef, stream_id: int) -> BlockRow | None:
        """Where the blocks of a stream lie in an object, as if they were one row of its index; None if not known.

        Only where they lie together, without a hole between their offsets, and where the object's index, which knows
        each of them, is not in memory. Complexity: O(entries of the stream).
        """
        held = self._look(node_id, stream_id)
        if held is None or self._is_open(ref) or (node_id, ref.object_id, stream_id) in self._wrong:
            return None
        columns = held.entries.columns
        found = np.flatnonzero((columns.object_ids == ref.object_id) & (held.object_sizes == ref.size_bytes))
        if not len(found) or columns.holed[found[0]] or columns.positions[found[0]] < 0:
            return None
        at = int(found[0])
        numbers = (columns.starts, columns.ends, columns.record_counts, columns.positions, columns.sizes)
        return BlockRow(stream_id, *(int(column[at]) for column in numbers))

    def used(self, node_id: int, object_id: int, stream_id: int, *, right: bool) -> None:
        """The bytes were fetched; if they were not what the row says, it is not given again."""
        self.counters.add(spans_read=1, spans_wrong=int(not right))
        if not right:
            with self._lock:
                _add_bounded(self._wrong, (node_id, object_id, stream_id))

    # -- what loads bring ----------------------------------------------------------------------------------------------

    def saw(self, known: SnapshotKnown) -> None:
        """A root was asked for, and this came of it."""
        self._seen_root |= known.root is not None
        self._seen_none |= known.root is None

    def keep(self, node_id: int, known: SnapshotKnown, entries: StreamEntries) -> None:
        """Remember entries; copies them, so that they hold nothing else in memory."""
        if known.root is None:
            return
        columns = EntryColumns.of(column.copy() for column in entries.columns.columns())
        covered = known.root.covered
        sizes = covered.sizes[covered.positions(columns.object_ids)] if len(columns) else columns.sizes
        kept = StreamEntries(entries.stream_id, columns, entries.low, entries.high)
        held = _Held(kept, sizes, known.etag)
        with self._lock:
            self._drop((node_id, entries.stream_id))
            if held.nbytes <= self._bytes_max:
                self._held[node_id, entries.stream_id] = held
                self._nbytes += held.nbytes
            while self._nbytes > self._bytes_max:
                self._drop(next(iter(self._held)))

    def note_bad(self, known: SnapshotKnown, span: ByteSpan) -> None:
        """These bytes cannot be used: do not read them again."""
        with self._lock:
            _add_bounded(self._bad, (known.etag, span))

    def give_up(self, node_id: int, problem: HintProblem) -> None:
        """What the root names is gone or another thing: read the root again in a few seconds."""
        self.roots.give_up(node_id, problem)

    def stats(self) -> HintStats:
        """Counts, and what is in memory now."""
        roots = self.roots.stats()
        with self._lock:
            entry_bytes = self._nbytes
        return self.counters.snapshot(roots=roots.roots, root_bytes=roots.nbytes, entry_bytes=entry_bytes)

    def _look(self, node_id: int, stream_id: int) -> _Held | None:
        with self._lock:
            held = self._held.get((node_id, stream_id))
            if held is not None:
                self._held.move_to_end((node_id, stream_id))
            return held

    def _drop(self, key: tuple[int, int]) -> None:
        gone = self._held.pop(key, None)
        self._nbytes -= 0 if gone is None else gone.nbytes


def _add_bounded(few: set[T], one: T) -> None:
    if len(few) >= BAD_SPANS_MAX:
        few.clear()
    few.add(one)


def snapshot_root_key(node_id: int) -> str:
    """Where the root of a node's snapshot lies."""
    return hint_root_key(HintKind.SNAPSHOTS, node_id)
