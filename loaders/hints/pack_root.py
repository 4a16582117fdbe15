"""The root of a node's filter pack: whose filters there are, and where they lie.

A pack is the filters of a node's objects, each in its stored form (docs/filters.md), end to end in a few data objects.
The root is a record (form ``pack-root``, version 1) in the envelope of every root:

    | field       | meaning                                                                           |
    |-------------|-----------------------------------------------------------------------------------|
    | namespace   | of the cluster's objects                                                          |
    | node_id     | whose list it is                                                                  |
    | generation  | of the root                                                                       |
    | parts       | the data objects: generation and name (which make the key), size_bytes            |
    | entries     | packed columns, below: one row a filter, by ascending object id                   |

    | column      | meaning                                                                           |
    |-------------|-----------------------------------------------------------------------------------|
    | object_id, size_bytes | the object that the filter was built for; it says nothing of any other  |
    | part        | number of the data object                                                         |
    | offset, length | its bytes there                                                                |
    | crc32       | of them                                                                           |
    | capacity    | ids that the filter was made for, as its own header says again                    |

A generation that adds and drops objects writes data objects for what it adds and names those of earlier generations for
the rest, so a data object can hold bytes that nobody names any more. When these are more than half, or the data objects
are many, everything is copied into new ones (loaders/hints/pack_writer.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from bloom import Geometry
from bloom.stream_filter import HEADER_SIZE_BYTES
from loaders.hints.covered_objects import CoveredObjects
from loaders.hints.root_bytes import check_identity, damage_told, open_root, seal_root
from loaders.layout import HINT_ROOT_NAME, HintKind, hint_file_key, hint_root_key
from loaders.tables.columns import pack_columns, unpack_columns
from loaders.tables.records import RecordForm

if TYPE_CHECKING:
    from collections.abc import Iterable

PARTS_MAX = 10_000
PACK_ENTRY = np.dtype(
    [(name, "<i8") for name in ("object_id", "size_bytes", "part", "offset", "length", "crc32", "capacity")]
)
"""A filter in the root; ``part`` is the number of its data object there."""


class PackPart(msgspec.Struct, frozen=True):
    """One data object: generation and last segment of its key, and its length."""

    generation: int
    name: str
    size_bytes: int


class _StoredRoot(msgspec.Struct, frozen=True):
    namespace: str
    node_id: int
    generation: int
    parts: list[PackPart]
    entries: bytes


PACK_ROOT_FORM = RecordForm("pack-root", 1, _StoredRoot)
"""The stored form."""


@dataclass(frozen=True, slots=True, eq=False)
class PackRoot:
    """The root of one node's pack, checked. Threads: immutable.

    Args:
        namespace: of the cluster's objects.
        node_id: whose list it is.
        generation: of the root.
        parts: the data objects.
        entries: of dtype `PACK_ENTRY`, by ascending object id.
    """

    namespace: str
    node_id: int
    generation: int
    parts: tuple[PackPart, ...]
    entries: NDArray[np.void]

    def __post_init__(self) -> None:
        if flaw := _find_flaw(self):
            raise ValueError(flaw)

    @property
    def key(self) -> str:
        """Where the root lies."""
        return hint_root_key(HintKind.PACKS, self.node_id)

    @property
    def nbytes(self) -> int:
        """Memory it takes."""
        return self.entries.nbytes + 200 * len(self.parts)

    @property
    def covered(self) -> CoveredObjects:
        """The objects that have a filter."""
        return CoveredObjects(self.entries["object_id"], self.entries["size_bytes"])

    @property
    def live_size_bytes(self) -> int:
        """Bytes of all filters that are named."""
        return int(self.entries["length"].sum())

    @property
    def dead_size_bytes(self) -> int:
        """Bytes of the data objects that nobody names any more."""
        return sum(part.size_bytes for part in self.parts) - self.live_size_bytes

    def covers(self, object_ids: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """For each object, whether it has a filter, size included; O(n log objects)."""
        return self.covered.covers(object_ids, sizes)

    def part_key(self, part: int) -> str:
        """Where a data object lies."""
        named = self.parts[part]
        return hint_file_key(HintKind.PACKS, self.node_id, named.generation, named.name)

    def encode(self) -> bytes:
        """The bytes to put.

        Raises:
            FormatLimit: more than 1,048,576 filters.
        """
        entries = pack_columns(self.entries)
        stored = _StoredRoot(self.namespace, self.node_id, self.generation, list(self.parts), entries)
        return seal_root(PACK_ROOT_FORM.encode(stored))


def make_pack_root(
    namespace: str, node_id: int, generation: int, parts: Iterable[PackPart], entries: NDArray[np.void]
) -> PackRoot:
    """A checked root of entries in any order, without the data objects that none of them names.

    Raises:
        ValueError: parts that contradict each other.
    """
    parts = tuple(parts)
    entries = entries[np.argsort(entries["object_id"], kind="stable")]
    named = np.unique(entries["part"])
    if len(named) and not 0 <= named[0] <= named[-1] < len(parts):
        raise ValueError(f"expected entries in one of {len(parts)} data objects, found {named.tolist()}")
    entries["part"] = named.searchsorted(entries["part"])
    return PackRoot(namespace, node_id, generation, tuple(parts[number] for number in named), entries)


def decode_pack_root(data: bytes, *, namespace: str, node_id: int) -> PackRoot:
    """Read a root: what `PackRoot.encode` made, in this release or another one. O(size).

    Args:
        data: all bytes of the object at the node's root key.
        namespace: of the cluster that the reader serves.
        node_id: whose root was asked for.

    Raises:
        HintProblem: corrupt; or foreign: of another cluster, node, or a newer release.
    """
    where = hint_root_key(HintKind.PACKS, node_id)
    stored = open_root(data, PACK_ROOT_FORM, where)
    check_identity(where, (stored.namespace, stored.node_id), (namespace, node_id))
    with damage_told(where):
        entries = unpack_columns(stored.entries, PACK_ENTRY, where)
        return PackRoot(namespace, node_id, stored.generation, tuple(stored.parts), entries)


def _find_flaw(root: PackRoot) -> str | None:
    if len(root.parts) > PARTS_MAX:
        return f"expected at most {PARTS_MAX} data objects, found {len(root.parts)}"
    hint_file_key(HintKind.PACKS, root.node_id, root.generation, HINT_ROOT_NAME)  # raises for what makes no key
    for number in range(len(root.parts)):
        root.part_key(number)
    entries = root.entries
    if not len(entries):
        return None
    _ = root.covered  # checks ids and sizes
    for name, most in (("part", len(root.parts) - 1), ("offset", 1 << 40), ("crc32", 2**32 - 1)):
        if not (entries[name].min() >= 0 and entries[name].max() <= most):
            return f"expected a {name} of 0 to {most} in each entry, found others"
    return _find_wrong_length(entries) or _find_misplaced(root)


def _find_misplaced(root: PackRoot) -> str | None:
    entries = root.entries
    part_sizes = np.array([part.size_bytes for part in root.parts], dtype=np.int64)
    if (entries["offset"] + entries["length"] > part_sizes[entries["part"]]).any():
        return "expected filters within their data objects, found others"
    entries = entries[np.lexsort((entries["offset"], entries["part"]))]
    before, after = entries[:-1], entries[1:]
    overlaps = (before["part"] == after["part"]) & (before["offset"] + before["length"] > after["offset"])
    return "expected filters that share no bytes, found others" if overlaps.any() else None


def _find_wrong_length(entries: NDArray[np.void]) -> str | None:
    """A filter's length follows from its capacity, as all filters here are made for 1 %."""
    for capacity in np.unique(entries["capacity"]).tolist():
        lengths = entries["length"][entries["capacity"] == capacity]
        expected = HEADER_SIZE_BYTES + Geometry(capacity).filter_size_bytes
        if (lengths != expected).any():
            return f"expected filters of {expected} bytes for a capacity of {capacity}, found others"
    return None
