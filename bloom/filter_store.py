"""The filters of many nodes within one limit of bytes.

Each node has its own matrix (bloom/filter_matrix.py). If all matrices exceed the limit, tiles of the least recently
used node are evicted one by one, then those of the next node. Evictions never make an answer wrong: an object without a
filter is a candidate, which may cost another request.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bloom.filter_matrix import FilterMatrix
from bloom.stream_filter import StreamFilter

BYTES_MAX: Final = 256 * 2**20

_NODE_SIZE_BYTES: Final = 2048  # estimate for an empty matrix and its entry


class FilterStore:
    """node id -> the filters of its objects, at most ``bytes_max`` bytes in total.

    Not thread-safe: the caller's lock guards it.

    Args:
        bytes_max: the limit. A tile that is larger than the limit is not kept, so the limit should be several MiB: a
            full tile of filters of 9,000 ids takes 0.8 MB, of 100,000 ids 7.7 MB, the largest 77 MB.

    Attributes:
        evicted: filters evicted to keep the limit since the store was created.
        evicted_bytes: bytes of the evicted filters.

    Raises:
        ValueError: the limit is negative.
    """

    __slots__ = ("_bytes_max", "_matrices", "_nbytes", "evicted", "evicted_bytes")

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        if bytes_max < 0:
            raise ValueError(f"expected a limit of at least 0 bytes, found {bytes_max}")
        self._bytes_max = bytes_max
        self._matrices: OrderedDict[int, FilterMatrix] = OrderedDict()  # the last used node is the last one
        self._nbytes = 0
        self.evicted = self.evicted_bytes = 0

    @property
    def nbytes(self) -> int:
        """Bytes of all matrices. O(1)."""
        return self._nbytes

    def __len__(self) -> int:
        """The number of filters of all nodes."""
        return sum(map(len, self._matrices.values()))

    def holds(self, node_id: int, object_id: int) -> bool:
        """Whether the store has a filter of this object."""
        return object_id in self._matrices.get(node_id, ())

    def object_ids(self, node_id: int) -> list[int]:
        """The node's objects with a filter."""
        matrix = self._matrices.get(node_id)
        return [] if matrix is None else list(matrix.object_ids)

    def add(self, node_id: int, object_id: int, stream_filter: StreamFilter) -> None:
        """Add the filter of one object of one node; others are evicted to keep the limit.

        Complexity: as ``FilterMatrix.add``, and closing the evicted tiles.
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
        """Remove the filters of objects that the node no longer has. As ``FilterMatrix.discard``."""
        matrix = self._matrices.get(node_id)
        if matrix is not None:
            size_before = matrix.nbytes
            matrix.discard(object_ids)
            self._settle(node_id, matrix, size_before)

    def discard_node(self, node_id: int) -> None:
        """Remove all filters of a node."""
        matrix = self._matrices.pop(node_id, None)
        if matrix is not None:
            self._nbytes -= matrix.nbytes + _NODE_SIZE_BYTES

    def absent(self, node_id: int, stream_id: int) -> NDArray[np.int64]:
        """The node's objects that certainly do not hold the stream. As ``FilterMatrix.absent``; counts as a use."""
        matrix = self._matrices.get(node_id)
        if matrix is None:
            return np.empty(0, dtype=np.int64)
        self._matrices.move_to_end(node_id)
        return matrix.absent(stream_id)

    def check(self) -> None:
        """Check every invariant of the store and of its matrices. O(bytes).

        Raises:
            AssertionError: an invariant is broken; the message contains the state.
        """
        for matrix in self._matrices.values():
            matrix.check()
        nbytes = sum(matrix.nbytes + _NODE_SIZE_BYTES for matrix in self._matrices.values())
        if nbytes != self._nbytes or nbytes > self._bytes_max or not all(self._matrices.values()):
            raise AssertionError(f"{self._nbytes} of {self._bytes_max} bytes: the matrices take {nbytes} bytes")

    def _evict_tile(self, newest_node_id: int, newest_object_id: int) -> None:
        node_id, matrix = next(iter(self._matrices.items()))
        size_before = matrix.nbytes
        self.evicted += len(matrix.drop_tile(newest_object_id if node_id == newest_node_id else None))
        self.evicted_bytes += size_before - matrix.nbytes
        self._settle(node_id, matrix, size_before)

    def _settle(self, node_id: int, matrix: FilterMatrix, size_before: int) -> None:
        self._nbytes += matrix.nbytes - size_before
        if not matrix:
            self.discard_node(node_id)
