"""The filter of one object: excludes streams that the object certainly does not hold.

A filter returns "no" or "maybe" for the query whether the object holds a stream. It never returns "no" for a stream
that the object holds, and at 1 % it returns "maybe" for one absent stream in a hundred. It is built once from all ids
of the object and never changes, as the object does not.

A stored filter has the same bytes as ``pybloom_live.BloomFilter(capacity, 0.01)`` writes with ``tofile`` after ``add``
of the same ids in ascending order, so that library can read it, and this module reads filters of that library:

    | bytes | field          | meaning                                                              |
    |-------|----------------|----------------------------------------------------------------------|
    | 8     | error rate     | a double                                                             |
    | 8     | slices         | follows from the error rate: 7 at 1 %                                |
    | 8     | bits per slice | follows from capacity and error rate                                 |
    | 8     | capacity       | the number of ids that the filter was made for                       |
    | 8     | count          | ids that changed at least one bit when they were added, in order     |
    | n     | bits           | the slices, one after the other; the lowest bit of a byte comes first|

All fields are little endian; bits are padded with zeros to a whole byte. An id whose bits were all set already is not
counted, as that library cannot distinguish it from an id added before.

The sizes in AutoMQ issue 2731, section 2 (10,784 / 1,080 / 112 bytes for 9,000 / 900 / 90 ids), are those of another
library: the bits at 1 %, rounded up to words of 8 bytes, without a header. The sizes of these filters, for the same
capacities, are 10,824 / 1,119 / 149: the slices rounded up to whole bits, all of them to bytes (10,784 / 1,079 / 109),
and 40 bytes.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import numpy as np
from numpy.typing import NDArray

from bloom.geometry import CAPACITY_MAX, Geometry, PieceCache, Pieces, class_for, hash_id, hash_ids, piece_dtype

if TYPE_CHECKING:
    from pybloom_live import BloomFilter

HEADER_SIZE_BYTES: Final = 40

_HEADER: Final = struct.Struct("<dQQQQ")


@dataclass(frozen=True, slots=True)
class StreamFilter:
    """The filter of one object. Created by ``build`` or ``from_bytes``.

    Immutable: any thread may use it.

    Args:
        geometry: its shape.
        count: the number of ids that changed it, as pybloom_live counts.
        bits: ``geometry.filter_size_bytes`` bytes.
    """

    geometry: Geometry
    count: int
    bits: bytes

    def __post_init__(self) -> None:
        if len(self.bits) != self.geometry.filter_size_bytes:
            raise ValueError(f"expected {self.geometry.filter_size_bytes} bytes of bits, found {len(self.bits)}")

    @classmethod
    def build(
        cls, stream_ids: NDArray[np.int64], capacity: int | None = None, *, cache: PieceCache | None = None
    ) -> Self:
        """The 1 % filter of an object that holds exactly these streams.

        Complexity: O(len(stream_ids)): for 9,000 about 0.5 ms, of which 0.3 ms is hashing; for more than 23,929 about
        0.6 us an id.

        Args:
            stream_ids: ascending and distinct, at least 0.
            capacity: by default the class for the number of ids (``class_for``).
            cache: caches hashes for the filters of objects with the same streams.

        Raises:
            ValueError: ids that are not ascending, distinct and non-negative; more ids than the capacity, or than the
                largest filter (1,000,000); no ids and no capacity.
        """
        stream_ids = _ascending_ids(stream_ids)
        if capacity is None:
            capacity = class_for(len(stream_ids))
        if capacity is None:
            raise ValueError(f"expected 1 to {CAPACITY_MAX} streams for a filter, found {len(stream_ids)}")
        geometry = Geometry(capacity)
        hashed = hash_ids if cache is None else cache.hash_ids
        return cls.from_pieces(hashed(stream_ids, is_wide=geometry.is_wide), geometry)

    @classmethod
    def from_pieces(cls, pieces: Pieces, geometry: Geometry) -> Self:
        """The filter of hashed ids.

        Complexity: O(n + bits), for 9,000 ids about 0.2 ms.

        Args:
            pieces: shape ``(n, 8)``, of distinct ids in ascending order (``bloom.geometry``); wide if the geometry is.
            geometry: the filter's shape.

        Raises:
            ValueError: more ids than the geometry's capacity; pieces of the wrong width.
        """
        expected = piece_dtype(is_wide=geometry.is_wide)
        if pieces.dtype != expected:
            raise ValueError(f"expected pieces of {expected} for {geometry.bits_per_slice} bits, found {pieces.dtype}")
        if len(pieces) > geometry.capacity:
            raise ValueError(f"expected at most {geometry.capacity} ids, found {len(pieces)}")
        bits, count = _add_all(pieces, geometry)
        return cls(geometry, count, np.packbits(bits, bitorder="little").tobytes())

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> Self:
        """Read a stored filter, of this class or of pybloom_live.

        Every field is checked against the others and against the length before it is used.

        Complexity: O(len(data)).

        Raises:
            ValueError: a field that contradicts the others, the bits or the length; a geometry that needs another hash.
        """
        if len(data) < HEADER_SIZE_BYTES:
            raise ValueError(f"expected a filter of at least {HEADER_SIZE_BYTES} bytes, found {len(data)}")
        error_rate, slices, bits_per_slice, capacity, count = _HEADER.unpack_from(data)
        geometry = Geometry(capacity, error_rate)
        if (slices, bits_per_slice) != (geometry.slices, geometry.bits_per_slice):
            expected = f"{geometry.slices} slices of {geometry.bits_per_slice} bits"
            raise ValueError(f"expected {expected} for a capacity of {capacity}, found {slices} of {bits_per_slice}")
        if len(data) != HEADER_SIZE_BYTES + geometry.filter_size_bytes:
            expected = f"{HEADER_SIZE_BYTES + geometry.filter_size_bytes} bytes"
            raise ValueError(f"expected {expected} for a capacity of {capacity}, found {len(data)}")
        _check_bits(data, geometry, count)
        return cls(geometry, count, bytes(data[HEADER_SIZE_BYTES:]))

    def to_bytes(self) -> bytes:
        """The stored form, as in the table above."""
        shape = self.geometry
        fields = shape.error_rate, shape.slices, shape.bits_per_slice, shape.capacity, self.count
        return _HEADER.pack(*fields) + self.bits

    @classmethod
    def from_pybloom(cls, peer: BloomFilter) -> Self:
        """Convert a filter of pybloom_live; later changes of that filter do not change the result.

        Complexity: O(bits).

        Args:
            peer: of stream ids that were added as integers.

        Raises:
            ValueError: a geometry that needs a hash that is not implemented, for example more than eight slices.
        """
        stored = io.BytesIO()
        peer.tofile(stored)
        return cls.from_bytes(stored.getbuffer())

    def to_pybloom(self) -> BloomFilter:
        """Convert to a filter of pybloom_live with the same bits, which that library reads from the stored form.

        Complexity: O(bits), about 50 us for 9,000 ids.
        """
        from pybloom_live import BloomFilter  # noqa: PLC0415 - lookups do not need it, and start faster

        return BloomFilter.fromfile(io.BytesIO(self.to_bytes()))

    @property
    def nbytes(self) -> int:
        """Length of the stored form."""
        return HEADER_SIZE_BYTES + len(self.bits)

    def __contains__(self, stream_id: int) -> bool:
        """False if the object certainly lacks the stream; about 1.5 us. Raises ValueError for an invalid id."""
        bits_per_slice, bits = self.geometry.bits_per_slice, self.bits
        offset = 0
        for piece in hash_id(stream_id, is_wide=self.geometry.is_wide)[: self.geometry.slices].tolist():
            position = offset + piece % bits_per_slice
            if not bits[position >> 3] >> (position & 7) & 1:
                return False
            offset += bits_per_slice
        return True

    def may_hold(self, stream_ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """For each stream id, in any order, the result of ``in``.

        Complexity: O(len(stream_ids)), about 60 ns an id.

        Raises:
            ValueError: an id is negative.
        """
        slice_starts = np.arange(self.geometry.slices)[:, np.newaxis] * self.geometry.bits_per_slice
        pieces = hash_ids(stream_ids, is_wide=self.geometry.is_wide)
        positions = slice_positions(pieces, self.geometry) + slice_starts
        held: NDArray[np.bool_] = np.logical_and.reduce(self.unpacked_bits().view(np.bool_).take(positions), axis=0)
        return held

    def unpacked_bits(self) -> NDArray[np.uint8]:
        """The bits as one byte of 0 or 1 each, in a new array of ``geometry.bits`` elements."""
        return np.unpackbits(np.frombuffer(self.bits, dtype=np.uint8), count=self.geometry.bits, bitorder="little")


def slice_positions(pieces: Pieces, geometry: Geometry) -> Pieces:
    """For ``pieces`` of shape ``(n, 8)`` the bit within each slice, shape ``(slices, n)``, each row contiguous."""
    positions = np.ascontiguousarray(pieces[:, : geometry.slices].T)
    # Division by a constant is vectorised, the remainder is not: this takes a seventh of the time.
    bits_per_slice = pieces.dtype.type(geometry.bits_per_slice)
    found: Pieces = positions - positions // bits_per_slice * bits_per_slice
    return found


def _ascending_ids(stream_ids: NDArray[np.int64]) -> NDArray[np.int64]:
    stream_ids = np.asarray(stream_ids)
    if stream_ids.ndim != 1 or (stream_ids.dtype.kind not in "iu" and stream_ids.size):
        found = f"{stream_ids.ndim} dimensions of {stream_ids.dtype}"
        raise ValueError(f"expected a one-dimensional array of integer stream ids, found {found}")
    stream_ids = stream_ids.astype(np.int64, copy=False)
    falls = np.flatnonzero(stream_ids[1:] <= stream_ids[:-1])
    if len(falls):
        found = f"{stream_ids[falls[0] + 1]} after {stream_ids[falls[0]]}"
        raise ValueError(f"expected ascending, distinct stream ids, found {found}")
    return stream_ids


def _add_all(pieces: Pieces, geometry: Geometry) -> tuple[NDArray[np.bool_], int]:
    """The bits of a filter to which these ids were added in order, and the number of ids that changed it.

    Ids are numbered backwards, the last one 0, and their numbers are written to their bits in that order. If several
    ids share a bit, the last write remains, that of the id that was added first. An id counts if it was the first at
    one bit or more: each slice is checked for the ids that do not count yet.
    """
    no_setter = len(pieces)
    numbers = np.arange(no_setter, dtype=np.min_scalar_type(no_setter))
    first_setters = np.full((geometry.slices, geometry.bits_per_slice), no_setter, dtype=numbers.dtype)
    undecided: NDArray[np.intp] | None = None  # in the first slice all ids are, which is handled faster
    for setters, positions in zip(first_setters, slice_positions(pieces[::-1], geometry), strict=True):
        indices = positions.astype(np.intp)  # converted once, as each use would convert them
        setters[indices] = numbers
        if undecided is None:
            undecided = np.flatnonzero(setters.take(indices) != numbers)
        else:
            undecided = undecided[setters.take(indices.take(undecided)) != undecided]
    return first_setters.ravel() != no_setter, no_setter - (0 if undecided is None else len(undecided))


def _check_bits(data: bytes | bytearray | memoryview, geometry: Geometry, count: int) -> None:
    # A filter that lost bits would exclude objects wrongly. Each counted id has set a bit; copies and unions of
    # pybloom_live are stored with a count of 0, too, so a count of 0 proves nothing.
    if count > geometry.capacity + 1:
        raise ValueError(f"expected at most {geometry.capacity + 1} ids in the filter, found {count}")
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8, offset=HEADER_SIZE_BYTES), bitorder="little")
    if bits[geometry.bits :].any():
        raise ValueError(f"expected zeros after the {geometry.bits} bits of the filter, found others")
    bits_set = int(np.count_nonzero(bits))
    if count > bits_set:
        raise ValueError(f"expected at least {count} bits set by {count} ids, found {bits_set}")
