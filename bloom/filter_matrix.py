"""The filters of one node's objects, asked all at once: which objects certainly do not hold a stream?

Asking 5,000 filters one by one costs milliseconds. Here they stand bit-sliced in tiles (bloom/tile_bank.py), so that
one read tells a bit of 64 filters, and a stream is tested against all of them with seven such reads and an AND.

That takes filters of equal geometry. Objects differ in size, so there is a family of tiles for each geometry, which in
practice means for each capacity class. A family's last tile may be nearly empty, and a node of few objects has many
families with few filters each; so a family's newest tile starts 8 columns wide and doubles as it fills, up to 64. When
filters go, tiles are merged and narrowed again. What a family takes therefore stays in proportion to what it holds:

    one tile     8 columns, or fewer than four times as many as filters
    more tiles   fewer free columns than filters plus 64

The matrix knows nothing of sizes, keys or images. A filter may exclude only the object that it was built for; whoever
puts it in answers for that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, KeysView
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bloom.geometry import Geometry
from bloom.hashing import hash_id
from bloom.stream_filter import StreamFilter
from bloom.tile_bank import WIDTHS, Tile, TileBank

_WIDTH_MAX: Final = WIDTHS[-1]
_OBJECT_SIZE_BYTES: Final = 112  # an object's place in the dict of objects, for the accounting
_FAMILY_SIZE_BYTES: Final = 1024


@dataclass(frozen=True, slots=True)
class MatrixStats:
    """What a matrix holds.

    Args:
        objects: filters in it.
        families: different geometries among them.
        tiles: groups of up to 64 filters.
        columns: filters that the tiles have room for.
        filter_bytes: the bits of the filters, as if each were stored by itself without header.
        nbytes: what the matrix takes.
    """

    objects: int
    families: int
    tiles: int
    columns: int
    filter_bytes: int
    nbytes: int


class _Family:
    """The tiles of one geometry: only the last one may be narrower than 64 columns, and none is empty between calls."""

    __slots__ = ("tiles",)

    def __init__(self) -> None:
        self.tiles: list[Tile] = []

    def is_tight(self) -> bool:
        """Whether the tiles are in proportion to the filters, as the module's docstring promises."""
        occupied = sum(tile.occupied for tile in self.tiles)
        vacant = sum(tile.vacant for tile in self.tiles)
        if not all(tile.occupied for tile in self.tiles):
            return False
        if len(self.tiles) == 1:
            return self.tiles[0].width == WIDTHS[0] or self.tiles[0].width < occupied * 4
        return vacant < occupied + _WIDTH_MAX


@dataclass(frozen=True, slots=True)
class _Plan:
    """Where to read for a stream's pieces; valid until a tile or a family comes or goes."""

    piece_numbers: NDArray[np.intp]  # shape (rows, families): which piece of the digest chooses the bit in this slice
    bits_per_slice: NDArray[np.int64]  # shape (families,)
    slice_starts: NDArray[np.int64]  # shape (rows, families)
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
        """How many filters there are."""
        return len(self._tiles)

    def __contains__(self, object_id: int) -> bool:
        """Whether there is a filter of this object."""
        return object_id in self._tiles

    @property
    def object_ids(self) -> KeysView[int]:
        """The objects whose filters are here: a live view."""
        return self._tiles.keys()

    @property
    def nbytes(self) -> int:
        """Bytes of all tiles and of what is kept about them. O(families)."""
        banks = sum(bank.nbytes for bank in self._banks.values())
        return banks + len(self._tiles) * _OBJECT_SIZE_BYTES + len(self._families) * _FAMILY_SIZE_BYTES

    def stats(self) -> MatrixStats:
        """Counts and bytes of now."""
        tiles = self._all_tiles()
        columns = sum(tile.width for tile in tiles)
        return MatrixStats(len(self), len(self._families), len(tiles), columns, self._filter_bytes, self.nbytes)

    def add(self, object_id: int, stream_filter: StreamFilter) -> None:
        """Put a filter in, in place of the object's former one if there is one.

        Complexity: O(bits of the filter), about 0.1 ms for 9,000 ids, and a part of the moves when tiles grow.

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
        """Forget the filters of these objects, as far as there are any; their columns are cleared and used again.

        Complexity: O(bits) a tile touched, about 0.05 ms for 9,000 ids, and a part of the moves when tiles merge.
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
            ValueError: an impossible stream id.
        """
        answers = [bank.objects_in(~matches & bank.occupied) for bank, matches in self._matches(stream_id)]
        return np.concatenate(answers) if answers else np.empty(0, dtype=np.int64)

    def may_hold(self, stream_id: int) -> NDArray[np.int64]:
        """The objects with a filter that does not exclude the stream, in no particular order. Else as ``absent``."""
        answers = [bank.objects_in(matches & bank.occupied) for bank, matches in self._matches(stream_id)]
        return np.concatenate(answers) if answers else np.empty(0, dtype=np.int64)

    def drop_tile(self, keep: int | None = None) -> list[int]:
        """Give up a whole tile, to make room: the one with the most bytes a filter.

        Args:
            keep: an object whose tile is to be spared if there is another one.

        Returns:
            The objects that have no filter any more; they are candidates again. Empty only if the matrix is.
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
        """Walk every invariant; for tests and for the curious. O(bytes).

        Raises:
            AssertionError: one does not hold; the message shows the state.
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
            raise AssertionError(f"{self.stats()}: tiles hold {sorted(placed)}, expected {sorted(self._tiles)}")

    def _all_tiles(self) -> list[Tile]:
        return [tile for bank in self._banks.values() for tile in bank.tiles]

    def _matches(self, stream_id: int) -> list[tuple[TileBank, NDArray[Any]]]:
        pieces = hash_id(stream_id)
        plan = self._plan or self._make_plan()
        in_tile = pieces[plan.piece_numbers] % plan.bits_per_slice + plan.slice_starts
        return [(bank, bank.matches(in_tile.take(families, axis=1) + starts)) for bank, families, starts in plan.banks]

    def _make_plan(self) -> _Plan:
        slices = np.array([geometry.slices for geometry in self._families], dtype=np.intp)
        bits_per_slice = np.array([geometry.bits_per_slice for geometry in self._families], dtype=np.int64)
        # Families of fewer slices than others read their last one again, which changes no AND.
        piece_numbers = np.minimum(np.arange(slices.max(initial=1))[:, np.newaxis], slices - 1)
        numbers = {geometry: number for number, geometry in enumerate(self._families)}
        banks = [
            (bank, np.array([numbers[tile.geometry] for tile in bank.tiles], dtype=np.intp), bank.starts())
            for bank in self._banks.values()
            if bank.tiles
        ]
        self._plan = _Plan(piece_numbers, bits_per_slice, piece_numbers * bits_per_slice, banks)
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
