"""The two parts of maintenance that take time: going through the bucket, and opening every object.

Both are the same work over and over, on things that have nothing to do with one another; so whoever has many machines
can divide it among them. What is concluded from it is concluded in one place, by `verifying` and `collecting`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from accel.catalog.parts import CatalogParts, open_each
from accel.catalog.survey import Progress, StoredObjects, list_objects
from accel.errors import AccelError
from loaders.object_index import OpenedObject
from loaders.object_ref import ObjectRef
from range_index import ObjectRanges


@dataclass(frozen=True, slots=True, eq=False)
class ExistingObject:
    """An object that is there and can be opened. Picklable, and small: 20 bytes a stream.

    Args:
        ranges: what it holds.
        index_size_bytes: of its block index; -1 for a composite object, which has none of its own.
    """

    ranges: ObjectRanges
    index_size_bytes: int

    @classmethod
    def of(cls, opened: OpenedObject) -> ExistingObject:
        """What matters of an opened object."""
        return cls(opened.ranges, -1 if opened.composite is not None else opened.index.nbytes)


Looked = tuple[ObjectRef, ExistingObject | AccelError]
"""What was said of an object, and what was found: its error, if it cannot be opened."""


class Legwork(Protocol):
    """Who does it."""

    def list_objects(self, parts: CatalogParts, progress: Progress | None = None) -> StoredObjects:
        """All objects of the bucket; one request for 1,000 keys.

        Raises:
            AccelError: a part of the bucket could not be listed.
        """
        ...

    def look_at(self, parts: CatalogParts, wanted: Iterable[tuple[int, ObjectRef]]) -> Iterator[Looked]:
        """Open indexes of (node id, object) pairs, and give what was found in this order; one ranged GET an object."""
        ...


class OwnLegwork:
    """This process does it, with some threads."""

    def list_objects(self, parts: CatalogParts, progress: Progress | None = None) -> StoredObjects:
        """See `Legwork`."""
        return list_objects(parts, progress)

    def look_at(self, parts: CatalogParts, wanted: Iterable[tuple[int, ObjectRef]]) -> Iterator[Looked]:
        """See `Legwork`."""
        return (as_looked(ref, found) for ref, found in open_each(parts, wanted))


def as_looked(ref: ObjectRef, found: OpenedObject | AccelError) -> Looked:
    """What was found, in the small form."""
    return ref, ExistingObject.of(found) if isinstance(found, OpenedObject) else found
