"""The metadata of one object, before the object is opened."""

from __future__ import annotations

from dataclasses import dataclass, field

from loaders.settings import make_plain
from loaders.store.base import ObjectStore

UNKNOWN = -1
"""As a size or as attributes: the metadata does not contain them."""

_TYPE_MASK = 0b11
_COMPOSITE = 1


@dataclass(frozen=True, slots=True, eq=False)
class Proof:
    """Proof that this process wrote an object. Valid only in this process: a pickled copy proves nothing.

    Args:
        key: the key of the object.
        store: the store of the object; None = not known.
    """

    key: str
    store: ObjectStore | None

    def __reduce__(self) -> tuple[type[Proof], tuple[str, None]]:
        return type(self), (self.key, None)


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """One object: its id, and other facts that the metadata contains.

    Args:
        object_id: never used twice.
        size_bytes: of the whole object, or -1; without it the tail is read by a suffix range.
        index_size_bytes: of its block index, or -1; with it an index is opened by exactly one request.
        attributes: kind and placement bits of the object, or -1 if they are not set.
        tail_checksum: of its index, footer and size (`loaders.format.tail_checksum`), or -1; the opener of an object
            whose checksum is known refuses other bytes under its key.
        proof: proof that this process wrote it; not part of the metadata.
    """

    object_id: int
    size_bytes: int = UNKNOWN
    index_size_bytes: int = UNKNOWN
    attributes: int = UNKNOWN
    tail_checksum: int = UNKNOWN
    proof: Proof | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        make_plain(self)

    @property
    def is_composite(self) -> bool:
        """Whether the object only links blocks of other objects; its size is then not the number of its bytes."""
        return self.attributes != UNKNOWN and self.attributes & _TYPE_MASK == _COMPOSITE
