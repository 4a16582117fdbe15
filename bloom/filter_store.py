"""The filters of many nodes within one bound of bytes.

Each node has a matrix of its own (bloom/filter_matrix.py). When all together would take more than the bound, the node
that was not used for the longest time loses tiles, one by one, then the next. That never makes an answer wrong: an
object without a filter is a candidate like any other, it only costs a request more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bloom.filter_matrix import FilterMatrix
from bloom.stream_filter import StreamFilter

BYTES_MAX: Final = 256 * 2**20

_NODE_SIZE_BYTES: Final = 2048  # an empty matrix and its place here, for the accounting


@dataclass(frozen=True, slots=True)
class StoreStats:
    """What a store holds and what it had to let go.

    Args:
        nodes: nodes with at least one filter.
        objects: filters of all nodes.
        nbytes: what they take.
        bytes_max: the bound.
        evicted: filters that went for lack of room since the store was made.
        evicted_bytes: what these took.
    """

    nodes: int
    objects: int
    nbytes: int
    bytes_max: int
    evicted: int
    evicted_bytes: int


class FilterStore:
    """node id -> the filters of its objects, never more than ``bytes_max`` bytes in all.

    Not thread-safe: the caller's lock guards it.

    Args:
        bytes_max: the bound. A tile that does not fit under it by itself is not kept, so it should be some MiB: a
            full tile of filters of 9,000 ids takes 0.8 MB, one of 100,000 7.7 MB, the largest 77 MB.

    Raises:
        ValueError: the bound is negative.
    """

    __slots__ = ("_bytes_max", "_evicted", "_evicted_bytes", "_matrices", "_nbytes")

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        if bytes_max < 0:
            raise ValueError(f"expected a bound of at least 0 bytes, found {bytes_max}")
        self._bytes_max = bytes_max
        self._matrices: OrderedDict[int, FilterMatrix] = OrderedDict()  # the node used last stands last
        self._nbytes = 0
        self._evicted = self._evicted_bytes = 0

    @property
    def nbytes(self) -> int:
        """Bytes of all matrices. O(1)."""
        return self._nbytes

    def __len__(self) -> int:
        """How many filters there are, of all nodes."""
        return sum(map(len, self._matrices.values()))

    def holds(self, node_id: int, object_id: int) -> bool:
        """Whether there is a filter of this object."""
        return object_id in self._matrices.get(node_id, ())

    def object_ids(self, node_id: int) -> list[int]:
        """The node's objects that have a filter."""
        matrix = self._matrices.get(node_id)
        return [] if matrix is None else list(matrix.object_ids)

    def stats(self) -> StoreStats:
        """Counts and bytes of now. O(nodes)."""
        evicted = self._evicted, self._evicted_bytes
        return StoreStats(len(self._matrices), len(self), self._nbytes, self._bytes_max, *evicted)

    def add(self, node_id: int, object_id: int, stream_filter: StreamFilter) -> None:
        """Keep the filter of one object of one node; others go where there is no room.

        Complexity: that of ``FilterMatrix.add``, and of closing the tiles that go.
        """
        matrix = self._matrices.get(node_id)
        if matrix is None:
            matrix = self._matrices[node_id] = FilterMatrix()
            self._nbytes += _NODE_SIZE_BYTES
        self._matrices.move_to_end(node_id)
        size_before = matrix.nbytes
        matrix.add(object_id, stream_filter)
        self._nbytes += matrix.nbytes - size_before
        while self._nbytes > self._bytes_max:
            self._evict_tile(node_id, object_id)

    def discard(self, node_id: int, object_ids: Iterable[int]) -> None:
        """Forget the filters of objects that the node no longer has. As ``FilterMatrix.discard``."""
        matrix = self._matrices.get(node_id)
        if matrix is not None:
            size_before = matrix.nbytes
            matrix.discard(object_ids)
            self._settle(node_id, matrix, size_before)

    def discard_node(self, node_id: int) -> None:
        """Forget all filters of a node."""
        matrix = self._matrices.pop(node_id, None)
        if matrix is not None:
            self._nbytes -= matrix.nbytes + _NODE_SIZE_BYTES

    def absent(self, node_id: int, stream_id: int) -> NDArray[np.int64]:
        """The node's objects that certainly do not hold the stream. As ``FilterMatrix.absent``; a use of the node."""
        matrix = self._matrices.get(node_id)
        if matrix is None:
            return np.empty(0, dtype=np.int64)
        self._matrices.move_to_end(node_id)
        return matrix.absent(stream_id)

    def check(self) -> None:
        """Walk every invariant of the store and of its matrices. O(bytes).

        Raises:
            AssertionError: one does not hold; the message shows the state.
        """
        for matrix in self._matrices.values():
            matrix.check()
        nbytes = sum(matrix.nbytes + _NODE_SIZE_BYTES for matrix in self._matrices.values())
        if nbytes != self._nbytes or nbytes > self._bytes_max or not all(self._matrices.values()):
            raise AssertionError(f"{self.stats()}: the matrices take {nbytes} bytes")

    def _evict_tile(self, newest_node_id: int, newest_object_id: int) -> None:
        node_id, matrix = next(iter(self._matrices.items()))
        size_before = matrix.nbytes
        self._evicted += len(matrix.drop_tile(newest_object_id if node_id == newest_node_id else None))
        self._evicted_bytes += size_before - matrix.nbytes
        self._settle(node_id, matrix, size_before)

    def _settle(self, node_id: int, matrix: FilterMatrix, size_before: int) -> None:
        self._nbytes += matrix.nbytes - size_before
        if not matrix:
            self.discard_node(node_id)
