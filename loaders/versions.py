"""The versions of a key in a versioned table, and a value with the version at which it was read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")

NONCE_SIZE_BYTES = 16
ANCESTORS_MAX = 8
"""The number of earlier versions that a stored value names."""

UNKNOWN_ETAG = ""
"""The ETag of a version that was overwritten before its ETag was known."""


@dataclass(frozen=True, slots=True)
class Version:
    """One version of one key; the argument of `update` and `delete`. Immutable.

    Two versions are equal if they are the same write.

    Attributes:
        etag: the ETag in the store. Empty if the write was overwritten before its ETag was known; such a version is not
            the newest one, so no update with it succeeds.
        sequence: 1 for the first version of a key; each write, deletes included, adds 1.
        nonce: 16 random bytes of this write alone.
        final: whether the key is never written again, and never deleted by version.
        ancestors: the nonces of up to 8 versions before this one, the newest first; zeros for missing ones.
    """

    etag: str
    sequence: int
    nonce: bytes
    final: bool = field(default=False, compare=False)
    ancestors: bytes = field(default=b"", compare=False, repr=False)

    def nonce_at(self, sequence: int) -> bytes | None:
        """The nonce of the version with this sequence number; None if it is not known."""
        if sequence == self.sequence:
            return self.nonce
        start = (self.sequence - sequence - 1) * NONCE_SIZE_BYTES
        if start < 0:
            return None
        nonce = self.ancestors[start : start + NONCE_SIZE_BYTES]
        return nonce if any(nonce) else None

    def follows(self, earlier: Version) -> bool:
        """Whether this may be the same or a later version of the same key: false proves that the key went back.

        The sequence number must not be lower, and the nonce that both contain must be equal. More than 8 writes later
        only the sequence numbers can be compared.
        """
        return self.sequence >= earlier.sequence and self.nonce_at(earlier.sequence) in (None, earlier.nonce)

    @property
    def lineage(self) -> bytes:
        """The `ancestors` of the next version: 128 bytes."""
        size_bytes = ANCESTORS_MAX * NONCE_SIZE_BYTES
        return (self.nonce + self.ancestors)[:size_bytes].ljust(size_bytes, b"\0")


class Versioned(NamedTuple, Generic[T]):
    """A value of a key, and the version of the key that it was read from."""

    value: T
    version: Version


Entry: TypeAlias = Versioned[bytes]
"""The result of reads of a table."""
