"""Versions of metadata images: which of two images is newer.

An image that is made in one place has a number for a version, and a newer one has a higher number. An image that is
read key by key from versioned tables has a vector: for each key the sequence number of the value that went into it.

    before = VersionVector({"node-lists/0000000004": 7, "stream-buckets/00000": 3})
    after = VersionVector({"node-lists/0000000004": 8, "stream-buckets/00000": 3})

Keys are written independently of each other, so two vectors need not be in order: when each of two images has read a
value that the other has not, neither is newer, and whoever holds one of them keeps it until an image comes that is
behind in nothing. That is why versions are compared by `is_newer`, and never by ``>`` or ``<=``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from accel.errors import ImageRefused


class VersionVector(Mapping[str, int]):
    """The sequence number of each key that an image was read from. Immutable; any thread may read it.

    A key that is not there counts as 0, which is below the sequence of every written value; so a sequence of 0 says
    nothing, and is left out.

    >>> str(VersionVector({"a": 3, "b": 4}))
    'total 7 of 2 keys'

    Args:
        sequences: key -> sequence number; a key and its table make one text that no other key has.
        generation: which of several lives of the catalog these belong to: empty in the first one. A catalog that was
            put back from a copy gets a new one, which is above all before it; then sequences do not matter.

    Raises:
        ImageRefused: a negative sequence.
    """

    __slots__ = ("_hash", "_sequences", "generation", "total")

    generation: str
    """Which life of the catalog; ascending."""

    total: int
    """The sum of all sequences: one number that rises with every newer image, for people and for graphs."""

    def __init__(self, sequences: Mapping[str, int], generation: str = "") -> None:
        for key, sequence in sequences.items():
            if sequence < 0:
                raise ImageRefused(f"key {key!r}: expected a sequence of at least 0, found {sequence}")
        self._sequences = {key: sequence for key, sequence in sequences.items() if sequence}
        self.generation = generation
        self._hash = hash((generation, frozenset(self._sequences.items())))
        self.total = sum(self._sequences.values())

    def __getitem__(self, key: str) -> int:
        return self._sequences[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sequences)

    def __len__(self) -> int:
        return len(self._sequences)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, VersionVector):
            return NotImplemented
        return self._sequences == other._sequences and self.generation == other.generation

    def __str__(self) -> str:
        life = f" in generation {self.generation}" if self.generation else ""
        return f"total {self.total} of {len(self)} {'key' if len(self) == 1 else 'keys'}{life}"

    def __repr__(self) -> str:
        life = f", {self.generation!r}" if self.generation else ""
        return f"VersionVector({self._sequences!r}{life})"

    def is_behind(self, other: VersionVector) -> bool:
        """Whether ``other`` has a higher sequence of any key. Complexity: O(keys of other)."""
        mine = self._sequences
        return any(mine.get(key, 0) < sequence for key, sequence in other._sequences.items())


ImageVersion = int | VersionVector
"""The version of an image; all images of one source have the same kind."""


def is_newer(version: ImageVersion, than: ImageVersion) -> bool:
    """Whether an image of ``version`` is newer than one of ``than``: behind in nothing, and ahead in something.

    >>> is_newer(VersionVector({"a": 2}), VersionVector({"a": 1}))
    True
    >>> is_newer(VersionVector({"a": 2}), VersionVector({"a": 1, "b": 1}))
    False

    Raises:
        ImageRefused: a number and a vector: these images come from different sources.

    Complexity: O(keys).
    """
    if isinstance(version, VersionVector) and isinstance(than, VersionVector):
        if version.generation != than.generation:
            return version.generation > than.generation
        return version.total > than.total and not version.is_behind(than)
    if isinstance(version, VersionVector) or isinstance(than, VersionVector):
        raise ImageRefused(
            f"expected an image of the kind that is at hand, whose version is {than}, found one whose version is "
            f"{version}: these come from different sources"
        )
    return version > than


def generation_of(version: ImageVersion) -> str:
    """Which life of its catalog an image is of; empty for the first, and for images that are not from a catalog."""
    return version.generation if isinstance(version, VersionVector) else ""


def version_number(version: ImageVersion) -> int:
    """A version as one number, for JSON: the number itself, or the total of a vector.

    >>> version_number(7), version_number(VersionVector({"a": 3, "b": 4}))
    (7, 7)
    """
    return version.total if isinstance(version, VersionVector) else version
