"""The filters of one node's objects, tested together: finds the objects that certainly do not hold a stream.

Testing 5,000 filters one by one takes milliseconds. The matrix stores them bit-sliced in tiles, so that one read
returns one bit of 64 filters, and a stream is tested against all of them with seven such reads and an AND.

This requires filters of equal geometry. Objects differ in size, so there is a family of tiles for each geometry, in
practice for each capacity class. A family's last tile may be nearly empty, and a node of few objects has many families
with few filters each; so a family's newest tile starts 8 columns wide and doubles as it fills, up to 64. When filters
are removed, tiles are merged and narrowed again. So the memory of a family stays proportional to its filters:

    one tile     8 columns, or fewer than four times the number of filters
    more tiles   fewer free columns than filters plus 64

The matrix has no sizes, keys or images of objects. A filter may exclude only the object that it was built for; the
caller is responsible for this.

**Tiles.** A tile holds filters of equal geometry. It has one row for each bit of the filter and one column for each
object:

              object 0   1   2  ...  63
    bit 0            0   1   0  ...   1      one word, read at once
    bit 1            1   0   0  ...   1
    ...

A stream's seven bits select seven rows. Their AND has a one in the column of each object that may hold the stream.

A bank keeps all tiles of one width (8, 16, 32 or 64 columns, so rows are words of 1, 2, 4 or 8 bytes) one after the
other in one flat array, for all geometries, so that a single indexed read tests all of them:

    | tile 0: its bits, one word each | tile 1 | tile 2 | ... | a few spare words |

A closed tile leaves no gap: later tiles move down. A Tile contains its current place, so callers keep the Tile, not its
place.

No class is thread-safe: the caller's lock guards the matrix, its banks and its tiles.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, KeysView
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bloom.geometry import PIECES, Geometry, hash_id
from bloom.stream_filter import StreamFilter

WIDTHS: Final = (8, 16, 32, 64)

_TILE_SIZE_BYTES: Final = 256  # estimate for a Tile and its list entries
_SPARE_SIZE_BYTES_MAX: Final = 2**20
_VACANT: Final = -1


class Tile:
    """A part of a bank for the filters of up to ``width`` objects. Created by ``TileBank.open``.

    Attributes:
        geometry: of its filters.
        bits: its length in words, one for each bit of a filter.
        bank: the bank that contains it; changes when the tile is widened or narrowed.
        row: its number among the bank's tiles.
        start: its first word in the bank.
        vacant: the number of its free columns.
    """

    __slots__ = ("bank", "bits", "geometry", "row", "start", "vacant")

    def __init__(self, geometry: Geometry, bank: TileBank, row: int, start: int) -> None:
        self.geometry = geometry
        self.bits = geometry.bits
        self.bank = bank
        self.row = row
        self.start = start
        self.vacant = bank.width

    @property
    def width(self) -> int:
        """The number of its columns."""
        return self.bank.width

    @property
    def nbytes(self) -> int:
        """Bytes that are freed when the tile is closed."""
        return self.bank.tile_size_bytes(self.bits)

    @property
    def occupied(self) -> int:
        """The number of its columns with a filter."""
        return self.bank.width - self.vacant

    def object_ids(self) -> list[int]:
        """The objects of its filters, by column."""
        ids: list[int] = self.bank.object_ids[self.row].tolist()
        return [object_id for column, object_id in enumerate(ids) if self._mask() >> column & 1]

    def put(self, object_id: int, column_bits: NDArray[np.uint8]) -> None:
        """Store a filter in the first free column; there must be one.

        Complexity: O(bits), about 60 us for a filter of 9,000 ids.

        Args:
            object_id: the object of the filter.
            column_bits: 0 or 1 for each bit of the filter; overwritten.
        """
        mask = self._mask()
        column = (~mask & (mask + 1)).bit_length() - 1
        self._set_mask(mask | 1 << column)
        self.bank.object_ids[self.row, column] = object_id
        # One byte of each row changes; only this byte is read and written, which is fast.
        plane = self._plane(column)
        np.left_shift(column_bits, column & 7, out=column_bits)
        np.bitwise_or(plane, column_bits, out=plane)

    def remove(self, object_ids: set[int]) -> None:
        """Free the columns of these objects, all of them in this tile, and clear their bits. O(bits)."""
        cleared = 0
        for column, object_id in enumerate(self.bank.object_ids[self.row].tolist()):
            if object_id in object_ids:
                cleared |= 1 << column
                self.bank.object_ids[self.row, column] = _VACANT
        words = self.words()
        np.bitwise_and(words, words.dtype.type(~cleared & self._full()), out=words)
        self._set_mask(self._mask() & ~cleared)

    def column_bits(self, object_id: int) -> NDArray[np.uint8]:
        """The filter of one object in the tile, one byte of 0 or 1 for each bit."""
        column = self.bank.object_ids[self.row].tolist().index(object_id)
        column_bits: NDArray[np.uint8] = self._plane(column) >> (column & 7) & 1
        return column_bits

    def widen(self, bank: TileBank) -> None:
        """Move to a bank of wider tiles; every filter keeps its column. O(bits)."""
        wider = bank.open(self.geometry)
        wider.words()[:] = self.words()
        bank.object_ids[wider.row, : self.width] = self.bank.object_ids[self.row]
        wider._set_mask(self._mask())  # noqa: SLF001 - of the same class
        self._become(wider)

    def narrow(self, bank: TileBank) -> None:
        """Move to a bank of narrower tiles, which have columns for all its filters. O(bits * filters)."""
        narrower = bank.open(self.geometry)
        for object_id in self.object_ids():
            narrower.put(object_id, self.column_bits(object_id))
        self._become(narrower)

    def words(self) -> NDArray[Any]:
        """A view of its rows; valid until the bank changes."""
        return self.bank.words[self.start : self.start + self.bits]

    def _become(self, other: Tile) -> None:
        self.bank.close(self)
        self.bank, self.row, self.start, self.vacant = other.bank, other.row, other.start, other.vacant
        self.bank.tiles[self.row] = self

    def _plane(self, column: int) -> NDArray[np.uint8]:
        return self.words().view(np.uint8).reshape(self.bits, -1)[:, column >> 3]

    def _full(self) -> int:
        return (1 << self.width) - 1

    def _mask(self) -> int:
        return int(self.bank.occupied[self.row])

    def _set_mask(self, mask: int) -> None:
        self.bank.occupied[self.row] = mask
        self.vacant = self.width - mask.bit_count()


class TileBank:
    """All tiles of one width.

    Attributes:
        width: columns of a tile.
        tiles: in the order of their words.
        words: the rows of all tiles, and spare ones.
        occupied: for each tile a mask of the columns with a filter, shape ``(tiles,)``.
        object_ids: the object of each column, shape ``(tiles, width)``; -1 for a free column.
    """

    __slots__ = ("object_ids", "occupied", "tiles", "width", "words")

    def __init__(self, width: int) -> None:
        self.width = width
        self.tiles: list[Tile] = []
        dtype = np.dtype(f"<u{width // 8}")  # little endian, so that column c is bit c % 8 of byte c // 8
        self.words: NDArray[Any] = np.zeros(0, dtype=dtype)
        self.occupied: NDArray[Any] = np.zeros(0, dtype=dtype)
        self.object_ids = np.zeros((0, width), dtype=np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, including spare words."""
        arrays = self.words.nbytes + self.occupied.nbytes + self.object_ids.nbytes
        return arrays + len(self.tiles) * _TILE_SIZE_BYTES

    def tile_size_bytes(self, bits: int) -> int:
        """Bytes of a tile with this number of rows, without the spare words."""
        return (bits + 1) * self.words.itemsize + self.width * 8 + _TILE_SIZE_BYTES

    def open(self, geometry: Geometry) -> Tile:
        """Add an empty tile after the others. Amortised O(bits + tiles)."""
        tile = Tile(geometry, self, len(self.tiles), self._used())
        self._reserve(tile.start + tile.bits)
        self.tiles.append(tile)
        self.occupied = np.append(self.occupied, np.zeros(1, dtype=self.occupied.dtype))
        self.object_ids = np.append(self.object_ids, np.full((1, self.width), _VACANT, dtype=np.int64), axis=0)
        return tile

    def close(self, tile: Tile) -> None:
        """Remove a tile with its filters, and free its memory. O(words after it)."""
        used = self._used()
        self.words[tile.start : used - tile.bits] = self.words[tile.start + tile.bits : used]
        self.words[used - tile.bits : used] = 0
        del self.tiles[tile.row]
        for later in self.tiles[tile.row :]:
            later.row -= 1
            later.start -= tile.bits
        self.occupied = np.delete(self.occupied, tile.row)
        self.object_ids = np.delete(self.object_ids, tile.row, axis=0)
        self._reserve(used - tile.bits)

    def starts(self) -> NDArray[np.int64]:
        """The first word of each tile."""
        return np.array([tile.start for tile in self.tiles], dtype=np.int64)

    def matches(self, positions: NDArray[np.int64]) -> NDArray[Any]:
        """For each tile a mask of the columns that have a one in all requested rows.

        Complexity: O(tiles).

        Args:
            positions: words of the bank, shape ``(rows, tiles)``.
        """
        matches: NDArray[Any] = np.bitwise_and.reduce(self.words.take(positions), axis=0)
        return matches

    def objects_in(self, columns: NDArray[Any]) -> NDArray[np.int64]:
        """The objects of some columns of each tile; ``columns`` has the shape of ``occupied``. O(tiles)."""
        in_order = columns.astype(self.words.dtype, copy=False).view(np.uint8)
        return self.object_ids.ravel()[np.unpackbits(in_order, bitorder="little").view(np.bool_)]

    def check(self) -> None:
        """Check every invariant. O(bytes). Raises AssertionError with the state if an invariant is broken."""
        ends = [0, *(tile.start + tile.bits for tile in self.tiles)]
        holds = (
            [tile.start for tile in self.tiles] == ends[:-1]
            and [tile.row for tile in self.tiles] == list(range(len(self.tiles)))
            and all(tile.bank is self for tile in self.tiles)
            and len(self.occupied) == len(self.object_ids) == len(self.tiles)
            and ends[-1] <= len(self.words) <= ends[-1] + 2 * self._spare(ends[-1])
            and not self.words[ends[-1] :].any()
            and all(map(self._is_consistent, self.tiles))
        )
        if not holds:
            state = [(tile.row, tile.start, tile.bits, tile.vacant) for tile in self.tiles]
            raise AssertionError(f"bank of width {self.width} with {len(self.words)} words: {state}, {self.occupied}")

    def _is_consistent(self, tile: Tile) -> bool:
        mask = int(self.occupied[tile.row])
        by_column = [bool(mask >> column & 1) for column in range(self.width)]
        used_columns = int(np.bitwise_or.reduce(tile.words()))
        return (
            tile.occupied == mask.bit_count()
            and (self.object_ids[tile.row] != _VACANT).tolist() == by_column
            and used_columns & ~mask == 0
        )

    def _used(self) -> int:
        return self.tiles[-1].start + self.tiles[-1].bits if self.tiles else 0

    def _reserve(self, words: int) -> None:
        spare = self._spare(words)
        if words <= len(self.words) <= words + 2 * spare:
            return
        size = words + spare
        try:
            self.words.resize(size)  # in place if the allocator can, without a second copy
        except ValueError:  # there is another reference to the array (for example of a debugger)
            words_kept = self.words[:size]
            self.words = np.zeros(size, dtype=self.words.dtype)
            self.words[: len(words_kept)] = words_kept

    def _spare(self, words: int) -> int:
        # Enough to move rarely; few enough that spare words do not fill a limit of bytes.
        return min(words // 16, _SPARE_SIZE_BYTES_MAX // self.words.itemsize)


_WIDTH_MAX: Final = WIDTHS[-1]
_OBJECT_SIZE_BYTES: Final = 112  # estimate for an object's entry in the dict of objects
_FAMILY_SIZE_BYTES: Final = 1024


class _Family:
    """The tiles of one geometry: only the last one may be narrower than 64 columns, and none is empty between calls."""

    __slots__ = ("tiles",)

    def __init__(self) -> None:
        self.tiles: list[Tile] = []

    def is_tight(self) -> bool:
        """Whether the memory of the tiles is proportional to the filters, as described in the module docstring."""
        occupied = sum(tile.occupied for tile in self.tiles)
        vacant = sum(tile.vacant for tile in self.tiles)
        if not all(tile.occupied for tile in self.tiles):
            return False
        if len(self.tiles) == 1:
            return self.tiles[0].width == WIDTHS[0] or self.tiles[0].width < occupied * 4
        return vacant < occupied + _WIDTH_MAX


@dataclass(frozen=True, slots=True)
class _Plan:
    """The words to read for a stream's pieces; valid until a tile or a family is added or removed."""

    piece_numbers: NDArray[np.intp]  # shape (rows, families): which piece of the digest chooses the bit in this slice
    bits_per_slice: NDArray[np.int64]  # shape (families,)
    slice_starts: NDArray[np.int64]  # shape (rows, families)
    has_wide: bool  # whether a family uses pieces of 32 bits
    banks: list[tuple[TileBank, NDArray[np.intp], NDArray[np.int64]]]  # with each tile's family and first word


class FilterMatrix:
    """The filters of one node, by object id.

    Not thread-safe: the caller's lock guards it.
    """

    __slots__ = ("_banks", "_families", "_filter_bytes", "_plan", "_tiles")

    def __init__(self) -> None:
        self._banks = {width: TileBank(width) for width in WIDTHS}
        self._families: dict[Geometry, _Family] = {}
        self._tiles: dict[int, Tile] = {}
        self._filter_bytes = 0
        self._plan: _Plan | None = None

    def __len__(self) -> int:
        """The number of filters."""
        return len(self._tiles)

    def __contains__(self, object_id: int) -> bool:
        """Whether the matrix has a filter of this object."""
        return object_id in self._tiles

    @property
    def object_ids(self) -> KeysView[int]:
        """The objects with a filter in the matrix: a live view."""
        return self._tiles.keys()

    @property
    def nbytes(self) -> int:
        """Bytes of all tiles and their bookkeeping. O(families)."""
        banks = sum(bank.nbytes for bank in self._banks.values())
        return banks + len(self._tiles) * _OBJECT_SIZE_BYTES + len(self._families) * _FAMILY_SIZE_BYTES

    def add(self, object_id: int, stream_filter: StreamFilter) -> None:
        """Add a filter, which replaces a previous one of the object.

        Complexity: O(bits of the filter), about 0.1 ms for 9,000 ids, and a share of the copies when tiles grow.

        Args:
            object_id: the object that the filter was built for.
            stream_filter: any geometry; filters of equal geometry share tiles.
        """
        if object_id in self._tiles:
            self.discard([object_id])
        tile = self._tile_with_room(stream_filter.geometry)
        tile.put(object_id, stream_filter.unpacked_bits())
        self._tiles[object_id] = tile
        self._filter_bytes += tile.geometry.filter_size_bytes

    def discard(self, object_ids: Iterable[int]) -> None:
        """Remove the filters of these objects; objects without a filter are ignored. Their columns are used again.

        Complexity: O(bits) for each affected tile, about 0.05 ms for 9,000 ids, and a share of the copies when tiles
        merge.
        """
        by_tile: defaultdict[Tile, set[int]] = defaultdict(set)
        for object_id in object_ids:
            tile = self._tiles.pop(object_id, None)
            if tile is not None:
                by_tile[tile].add(object_id)
        for tile, gone in by_tile.items():
            tile.remove(gone)
            self._filter_bytes -= tile.geometry.filter_size_bytes * len(gone)
        for geometry in {tile.geometry for tile in by_tile}:
            self._tighten(geometry)

    def absent(self, stream_id: int) -> NDArray[np.int64]:
        """The objects that certainly do not hold the stream, in no particular order.

        Complexity: O(tiles): about 20 us for 5,000 objects of 9,000 streams, 60 us for 5,000 of very mixed sizes.

        Raises:
            ValueError: an invalid stream id.
        """
        answers = [bank.objects_in(~matches & bank.occupied) for bank, matches in self._matches(stream_id)]
        return np.concatenate(answers) if answers else np.empty(0, dtype=np.int64)

    def may_hold(self, stream_id: int) -> NDArray[np.int64]:
        """The objects with a filter that does not exclude the stream, in no particular order. Else as ``absent``."""
        answers = [bank.objects_in(matches & bank.occupied) for bank, matches in self._matches(stream_id)]
        return np.concatenate(answers) if answers else np.empty(0, dtype=np.int64)

    def drop_tile(self, keep: int | None = None) -> list[int]:
        """Remove a whole tile to free memory: the tile with the most bytes per filter.

        Args:
            keep: an object whose tile is kept if there is another tile.

        Returns:
            The objects whose filters were removed; they are candidates again. Empty only if the matrix is empty.
        """
        tiles = self._all_tiles()
        if not tiles:
            return []
        spared = None if keep is None else self._tiles.get(keep)
        tile = max(tiles, key=lambda tile: (tile is not spared, tile.nbytes / tile.occupied))
        object_ids = tile.object_ids()
        for object_id in object_ids:
            del self._tiles[object_id]
        self._filter_bytes -= tile.geometry.filter_size_bytes * len(object_ids)
        self._close(tile)
        self._tighten(tile.geometry)
        return object_ids

    def check(self) -> None:
        """Check every invariant; for tests and debugging. O(bytes).

        Raises:
            AssertionError: an invariant is broken; the message contains the state.
        """
        for bank in self._banks.values():
            bank.check()
        tiles = self._all_tiles()
        listed = [tile for family in self._families.values() for tile in family.tiles]
        placed = {object_id: tile for tile in tiles for object_id in tile.object_ids()}
        holds = (
            placed == self._tiles
            and sum(tile.occupied for tile in tiles) == len(placed)
            and len(listed) == len(tiles)
            and set(listed) == set(tiles)
            and all(family.tiles and family.is_tight() for family in self._families.values())
            and all(tile.width == _WIDTH_MAX for family in self._families.values() for tile in family.tiles[:-1])
            and all(tile in self._families[tile.geometry].tiles for tile in tiles)
            and sum(tile.geometry.filter_size_bytes for tile in placed.values()) == self._filter_bytes
        )
        if not holds:
            raise AssertionError(f"tiles hold {sorted(placed)}, expected {sorted(self._tiles)}")

    def _all_tiles(self) -> list[Tile]:
        return [tile for bank in self._banks.values() for tile in bank.tiles]

    def _matches(self, stream_id: int) -> list[tuple[TileBank, NDArray[Any]]]:
        plan = self._plan or self._make_plan()
        pieces: NDArray[Any] = hash_id(stream_id)
        if plan.has_wide:
            pieces = np.concatenate([pieces, hash_id(stream_id, is_wide=True)])
        in_tile = pieces[plan.piece_numbers] % plan.bits_per_slice + plan.slice_starts
        return [(bank, bank.matches(in_tile.take(families, axis=1) + starts)) for bank, families, starts in plan.banks]

    def _make_plan(self) -> _Plan:
        slices = np.array([geometry.slices for geometry in self._families], dtype=np.intp)
        bits_per_slice = np.array([geometry.bits_per_slice for geometry in self._families], dtype=np.int64)
        # Families with fewer slices than others read their last slice again, which does not change the AND.
        slice_numbers = np.minimum(np.arange(slices.max(initial=1))[:, np.newaxis], slices - 1)
        is_wide = np.array([geometry.is_wide for geometry in self._families], dtype=np.bool_)
        piece_numbers = slice_numbers + is_wide * PIECES  # wide pieces follow the others
        numbers = {geometry: number for number, geometry in enumerate(self._families)}
        banks = [
            (bank, np.array([numbers[tile.geometry] for tile in bank.tiles], dtype=np.intp), bank.starts())
            for bank in self._banks.values()
            if bank.tiles
        ]
        self._plan = _Plan(piece_numbers, bits_per_slice, slice_numbers * bits_per_slice, bool(is_wide.any()), banks)
        return self._plan

    def _tile_with_room(self, geometry: Geometry) -> Tile:
        family = self._families.setdefault(geometry, _Family())
        for tile in reversed(family.tiles):
            if tile.vacant:
                return tile
        self._plan = None
        if family.tiles and family.tiles[-1].width < _WIDTH_MAX:
            family.tiles[-1].widen(self._banks[family.tiles[-1].width * 2])
        else:
            family.tiles.append(self._banks[WIDTHS[0]].open(geometry))
        return family.tiles[-1]

    def _tighten(self, geometry: Geometry) -> None:
        family = self._families[geometry]
        while not family.is_tight():
            self._plan = None
            sparsest = min(family.tiles, key=lambda tile: tile.occupied)
            if len(family.tiles) == 1 and sparsest.occupied:
                sparsest.narrow(self._banks[sparsest.width // 2])
            else:
                self._dissolve(sparsest)
        if not family.tiles:
            self._plan = None
            del self._families[geometry]

    def _dissolve(self, tile: Tile) -> None:
        others = [other for other in self._families[tile.geometry].tiles if other is not tile]
        for object_id in tile.object_ids():
            target = next(other for other in others if other.vacant)
            target.put(object_id, tile.column_bits(object_id))
            self._tiles[object_id] = target
        self._close(tile)

    def _close(self, tile: Tile) -> None:
        self._plan = None
        self._families[tile.geometry].tiles.remove(tile)
        tile.bank.close(tile)
