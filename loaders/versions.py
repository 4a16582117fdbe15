"""The versions of a key in a versioned table, and a value together with the version it was read at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")

NONCE_SIZE_BYTES = 16
ANCESTORS_MAX = 8
"""How many earlier versions a stored value names."""

UNKNOWN_ETAG = ""
"""In a version that was overwritten before its ETag was learned."""


@dataclass(frozen=True, slots=True)
class Version:
    """One version of one key; what `update` and `delete` want to see. Immutable.

    Two versions are equal if they are the same write.

    Attributes:
        etag: what the store calls it. Empty where the write was overwritten before this was learned; nothing can be
            updated with such a version, which is right, since it is not the newest one.
        sequence: 1 for the first version of a key, and one more with every write, deletes included.
        nonce: 16 bytes drawn for this write alone.
        final: never written again, and never deleted by version.
        ancestors: the nonces of up to 8 versions before this one, the newest first; zeros where there was none.
    """

    etag: str
    sequence: int
    nonce: bytes
    final: bool = field(default=False, compare=False)
    ancestors: bytes = field(default=b"", compare=False, repr=False)

    def nonce_at(self, sequence: int) -> bytes | None:
        """The nonce that the version with this sequence number had; None where that is not known."""
        if sequence == self.sequence:
            return self.nonce
        start = (self.sequence - sequence - 1) * NONCE_SIZE_BYTES
        if start < 0:
            return None
        nonce = self.ancestors[start : start + NONCE_SIZE_BYTES]
        return nonce if any(nonce) else None

    def follows(self, earlier: Version) -> bool:
        """Whether this may be a later version of the same key, or the same: false proves that the key went back.

        The sequence numbers do not fall, and where both name a version, it is the same one. More than 8 writes later
        only the numbers can be compared.
        """
        return self.sequence >= earlier.sequence and self.nonce_at(earlier.sequence) in (None, earlier.nonce)

    @property
    def lineage(self) -> bytes:
        """What the next version has for ancestors: 128 bytes."""
        size_bytes = ANCESTORS_MAX * NONCE_SIZE_BYTES
        return (self.nonce + self.ancestors)[:size_bytes].ljust(size_bytes, b"\0")


class Versioned(NamedTuple, Generic[T]):
    """A value as it stood at its key at some time, and which version of the key it was."""

    value: T
    version: Version


Entry: TypeAlias = Versioned[bytes]
"""What a table itself gives."""
