"""Memory for tiles: filters of several objects side by side, so that one read asks all of them.

A tile holds filters of equal geometry. It has one row for each bit of the filter and one column for each object:

              object 0   1   2  ...  63
    bit 0            0   1   0  ...   1      one word, read at once
    bit 1            1   0   0  ...   1
    ...

A stream's seven bits select seven rows. Their AND has a one in the column of each object that may hold the stream.

A bank keeps all tiles of one width (8, 16, 32 or 64 columns, so rows are words of 1, 2, 4 or 8 bytes) end to end in one
flat array, whatever their geometry, because then a single indexed read serves all of them:

    | tile 0: its bits, one word each | tile 1 | tile 2 | ... | a few spare words |

A closed tile leaves no gap: what lies behind it moves down. Tiles say where they lie, so a holder keeps the Tile.

Nothing here is thread-safe: the caller's lock guards the bank and its tiles.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bloom.geometry import Geometry

WIDTHS: Final = (8, 16, 32, 64)

_TILE_SIZE_BYTES: Final = 256  # a Tile and its places in lists, for the accounting
_SPARE_SIZE_BYTES_MAX: Final = 2**20
_VACANT: Final = -1


class Tile:
    """A place for the filters of up to ``width`` objects, in a bank. Made by ``TileBank.open``.

    Attributes:
        geometry: of its filters.
        bits: its length in words, one for each bit of a filter.
        bank: where it lies; changes when the tile is widened or narrowed.
        row: its number among the bank's tiles.
        start: its first word in the bank.
        vacant: how many of its columns are free.
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
        """How many columns it has."""
        return self.bank.width

    @property
    def nbytes(self) -> int:
        """What closing the tile gives back."""
        return self.bank.tile_size_bytes(self.bits)

    @property
    def occupied(self) -> int:
        """How many of its columns hold a filter."""
        return self.bank.width - self.vacant

    def object_ids(self) -> list[int]:
        """The objects in it, by column."""
        ids: list[int] = self.bank.object_ids[self.row].tolist()
        return [object_id for column, object_id in enumerate(ids) if self._mask() >> column & 1]

    def put(self, object_id: int, column_bits: NDArray[np.uint8]) -> None:
        """Set a filter into the first free column; there must be one.

        Complexity: O(bits), about 60 us for a filter of 9,000 ids.

        Args:
            object_id: whose filter it is.
            column_bits: 0 or 1 for each bit of the filter; used up.
        """
        mask = self._mask()
        column = (~mask & (mask + 1)).bit_length() - 1
        self._set_mask(mask | 1 << column)
        self.bank.object_ids[self.row, column] = object_id
        # One byte of each row changes; reading and writing no more than it is what makes this quick.
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
        """The filter of one object in the tile, one byte of 0 or 1 each bit."""
        column = self.bank.object_ids[self.row].tolist().index(object_id)
        column_bits: NDArray[np.uint8] = self._plane(column) >> (column & 7) & 1
        return column_bits

    def widen(self, bank: TileBank) -> None:
        """Move to a bank of wider tiles; every filter keeps its column. O(bits)."""
        wider = bank.open(self.geometry)
        wider.words()[:] = self.words()
        bank.object_ids[wider.row, : self.width] = self.bank.object_ids[self.row]
        wider._set_mask(self._mask())  # noqa: SLF001 - the other tile is one of ours
        self._become(wider)

    def narrow(self, bank: TileBank) -> None:
        """Move to a bank of narrower tiles that have room for all filters here. O(bits * filters)."""
        narrower = bank.open(self.geometry)
        for object_id in self.object_ids():
            narrower.put(object_id, self.column_bits(object_id))
        self._become(narrower)

    def words(self) -> NDArray[Any]:
        """A view of its rows; not to be kept, as it ends when the bank grows."""
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
        tiles: in the order in which they lie.
        words: the rows of all tiles, and spare ones.
        occupied: for each tile the columns that hold a filter, shape ``(tiles,)``.
        object_ids: the object of each column, shape ``(tiles, width)``; -1 where the column is free.
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
        """Bytes of all arrays, spare ones included."""
        arrays = self.words.nbytes + self.occupied.nbytes + self.object_ids.nbytes
        return arrays + len(self.tiles) * _TILE_SIZE_BYTES

    def tile_size_bytes(self, bits: int) -> int:
        """What a tile of so many rows takes, without the spare words."""
        return (bits + 1) * self.words.itemsize + self.width * 8 + _TILE_SIZE_BYTES

    def open(self, geometry: Geometry) -> Tile:
        """A new, empty tile behind the others. Amortised O(bits + tiles)."""
        tile = Tile(geometry, self, len(self.tiles), self._used())
        self._reserve(tile.start + tile.bits)
        self.tiles.append(tile)
        self.occupied = np.append(self.occupied, np.zeros(1, dtype=self.occupied.dtype))
        self.object_ids = np.append(self.object_ids, np.full((1, self.width), _VACANT, dtype=np.int64), axis=0)
        return tile

    def close(self, tile: Tile) -> None:
        """Give the tile's memory back, with whatever it holds. O(words behind it)."""
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
        """For each tile the columns that have a one in all rows asked for,.

        Complexity: O(tiles).

        Args:
            positions: words of the bank, shape ``(rows, tiles)``.
        """
        matches: NDArray[Any] = np.bitwise_and.reduce(self.words.take(positions), axis=0)
        return matches

    def objects_in(self, columns: NDArray[Any]) -> NDArray[np.int64]:
        """The objects of some columns of each tile, shape of ``columns`` as that of ``occupied``. O(tiles)."""
        in_order = columns.astype(self.words.dtype, copy=False).view(np.uint8)
        return self.object_ids.ravel()[np.unpackbits(in_order, bitorder="little").view(np.bool_)]

    def check(self) -> None:
        """Walk every invariant. O(bytes). Raises AssertionError with the state if one does not hold."""
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
            self.words.resize(size)  # in place where the allocator can, without a second copy of it all
        except ValueError:  # something else still refers to the array (a debugger does)
            words_kept = self.words[:size]
            self.words = np.zeros(size, dtype=self.words.dtype)
            self.words[: len(words_kept)] = words_kept

    def _spare(self, words: int) -> int:
        # Enough to move seldom; little enough that a bound of bytes is not filled with nothing.
        return min(words // 16, _SPARE_SIZE_BYTES_MAX // self.words.itemsize)
