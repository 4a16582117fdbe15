"""Which objects a root speaks of: their ids and sizes, so that it is never believed about any other.

An id is never used twice, and an object never changes. The size is compared as well, so that a root that came from
another bucket or another cluster, whose ids may look alike, is not taken for true.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loaders.object_ref import ObjectRef

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class CoveredObjects:
    """Objects by ascending id, each with its size in bytes. Threads: immutable."""

    object_ids: Numbers
    sizes: Numbers

    def __post_init__(self) -> None:
        ids, sizes = self.object_ids, self.sizes
        if ids.shape != (len(ids),) or sizes.shape != ids.shape:
            raise ValueError(f"expected a size for each object, found {ids.shape} ids and {sizes.shape} sizes")
        if len(ids) and (ids[0] < 0 or (ids[1:] <= ids[:-1]).any()):
            raise ValueError("expected ascending object ids of at least 0, each once, found others")
        if len(ids) and sizes.min() < 0:
            raise ValueError(f"expected sizes of at least 0, found {int(sizes.min())}")

    @classmethod
    def of(cls, refs: Iterable[ObjectRef]) -> Self:
        """Build from references in any order.

        Raises:
            ValueError: an id twice, or a size that is not known.
        """
        pairs = sorted((ref.object_id, ref.size_bytes) for ref in refs)
        table = np.array(pairs, dtype=np.int64).reshape(len(pairs), 2)
        return cls(np.ascontiguousarray(table[:, 0]), np.ascontiguousarray(table[:, 1]))

    def __len__(self) -> int:
        """How many objects."""
        return len(self.object_ids)

    @property
    def nbytes(self) -> int:
        """Memory of the arrays: 16 bytes an object."""
        return self.object_ids.nbytes + self.sizes.nbytes

    def positions(self, object_ids: Numbers) -> Numbers:
        """For each id its position here, or -1; O(n log objects)."""
        if not len(self):
            return np.full(len(object_ids), -1, dtype=np.int64)
        places = np.minimum(self.object_ids.searchsorted(object_ids), len(self) - 1)
        return np.where(self.object_ids[places] == object_ids, places, -1)

    def covers(self, object_ids: Numbers, sizes: Numbers) -> NDArray[np.bool_]:
        """For each object, whether it is one of these, size included; O(n log objects)."""
        places = self.positions(object_ids)
        if not len(self):
            return places >= 0
        covered: NDArray[np.bool_] = (places >= 0) & (self.sizes[places] == sizes)
        return covered
