"""The sketch of one object: 15 bytes that exclude streams which it certainly does not hold.

A filter takes ten bits a stream, and must be fetched. A sketch is so small that it is stored with the object in a list
that is read anyway. Its bits are called cells. There are two ways to map a stream to cells: a builder uses the first
one if it leaves at most one stream in 500 undecided, since it takes fewer bytes; else the one that leaves fewer:

    by place    88 cells; cell i covers the ids from (first + i) * width on, width of them. Ids below the first cell
                and above the last set cell are excluded: the lowest and the highest id, rounded. It suits objects of
                neighbouring ids, of any number, such as those of one topic's partitions.
    by hash     112 cells; a stream has k of them, k = 1 to 8: pieces 0 to k - 1 of its hash (`bloom.geometry`) modulo
                112. It suits objects of few streams, up to about a hundred, with any ids.

The sketch of thousands of streams with scattered ids excludes almost nothing. It costs almost nothing, too: all of its
cells are set, and a column of equal numbers takes no bytes.

    | number | bits | by place                                        | by hash                           |
    |--------|------|-------------------------------------------------|-----------------------------------|
    | form   | 8    | code of the width, 0 to 235                     | -k                                |
    | low    | 64   | cells 0 to 63, cell 0 in bit 0                  | likewise                          |
    | rest   | 48   | first * 2**24, and cells 64 to 87, 64 in bit 0  | cells 64 to 111, cell 64 in bit 0 |

`first` is the lowest id divided by the width, below 2**24. The width of code c is ((4 + c mod 4) << c div 4) >> 2: 1,
1, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 10, ... A builder uses the smallest code for which `first` is small enough and the
cells cover all ids. `low` is stored as a signed number.

A sketch never excludes the ids that it was built from. For figures and reasons see
docs/decisions/0004-filters-and-sketches.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from bloom.geometry import PIECES, STREAM_ID_MAX, hash_id, hash_ids

PLACED_CELLS: Final = 88
HASHED_CELLS: Final = 112
HASHED_IDS_MAX: Final = 400
"""The maximum number of ids for hashing: with more, each with one cell, fewer than a fortieth of the cells is unset."""

_FEW: Final = 1 / 500

WIDTH_CODES: Final = 236
_WIDTHS: Final = [((4 + code % 4) << code // 4) >> 2 for code in range(WIDTH_CODES)]
_LOW_CELLS: Final = 64
_LOW_MASK: Final = 2**_LOW_CELLS - 1
_HIGH_BITS: Final = PLACED_CELLS - _LOW_CELLS
_HIGH_MASK: Final = 2**_HIGH_BITS - 1
_FIRST_MAX: Final = 2**24 - 1
_REST_MAX: Final = 2**48 - 1


@dataclass(frozen=True, slots=True)
class StreamSketch:
    """The sketch of one object. Created by `build`, or from stored numbers. Immutable: any thread may use it.

    Args:
        form: the code of a width, or -1 to -8: minus the number of cells that a stream has.
        low: cells 0 to 63, as a signed number of 64 bits.
        rest: the other cells; by place preceded by the first cell's number.

    Raises:
        ValueError: numbers that are not those of a sketch.
    """

    form: int
    low: int
    rest: int

    def __post_init__(self) -> None:
        is_known = -PIECES <= self.form < WIDTH_CODES and 0 <= self.rest <= _REST_MAX
        if not is_known or not -(2**63) <= self.low < 2**63:
            raise ValueError(f"expected the numbers of a sketch, found {self}")

    @classmethod
    def build(cls, stream_ids: NDArray[np.int64]) -> Self:
        """The sketch of an object that holds exactly these streams.

        Complexity: O(n), no loop over ids in Python; 9,000 ids take about 0.1 ms.

        Args:
            stream_ids: n >= 1 ids, ascending, at least 0.

        Raises:
            ValueError: no ids, descending or negative ones.
        """
        if not len(stream_ids) or stream_ids[0] < 0 or (stream_ids[1:] < stream_ids[:-1]).any():
            raise ValueError("expected ascending stream ids of at least 0, found others, or none")
        lowest, highest = int(stream_ids[0]), int(stream_ids[-1])
        code = _width_code(lowest, highest)
        width = _WIDTHS[code]
        first = lowest // width
        placed = _cells_of(stream_ids // width - first)
        # Ids are assigned in ascending order from 0 on, so an object's highest id is a lower bound of their number.
        undecided = placed.bit_count() * width / (highest + 1)
        if undecided > _FEW and len(stream_ids) <= HASHED_IDS_MAX:
            count = max(1, min(PIECES, round(HASHED_CELLS / len(stream_ids) * math.log(2))))
            hashed = _cells_of((hash_ids(stream_ids)[:, :count] % HASHED_CELLS).ravel())
            if (hashed.bit_count() / HASHED_CELLS) ** count < undecided:
                return cls(-count, _signed(hashed & _LOW_MASK), hashed >> _LOW_CELLS)
        return cls(code, _signed(placed & _LOW_MASK), first << _HIGH_BITS | placed >> _LOW_CELLS)

    def excludes(self, stream_id: int) -> bool:
        """Whether the object certainly does not hold this stream. O(1)."""
        low = self.low & _LOW_MASK
        if self.form < 0:
            cells = low | self.rest << _LOW_CELLS
            return _hashed_cells(stream_id, -self.form) & ~cells != 0
        cells = low | (self.rest & _HIGH_MASK) << _LOW_CELLS
        cell = stream_id // _WIDTHS[self.form] - (self.rest >> _HIGH_BITS)
        return not (0 <= cell < PLACED_CELLS and cells >> cell & 1)


class SketchColumns:
    """The sketches of many objects, tested together for one stream. Immutable: any thread may use it.

    Args:
        forms, lows, rests: columns of n int64 numbers, those of `StreamSketch`. Rows with invalid numbers exclude
            nothing.

    Attributes:
        wrong: the rows with invalid numbers.
    """

    __slots__ = ("_by_hash", "_count", "_firsts", "_highs", "_lows", "_placed", "_widths", "wrong")

    def __init__(self, forms: NDArray[np.int64], lows: NDArray[np.int64], rests: NDArray[np.int64]) -> None:
        in_bounds = (forms >= -PIECES) & (forms < WIDTH_CODES) & (rests >= 0) & (rests <= _REST_MAX)
        self.wrong: NDArray[np.int64] = np.flatnonzero(~in_bounds)
        self._count = len(forms)
        self._placed = np.flatnonzero(in_bounds & (forms >= 0))
        placed_rests = rests[self._placed]
        self._widths = np.array(_WIDTHS, dtype=np.int64)[forms[self._placed]]
        self._firsts = placed_rests >> _HIGH_BITS
        self._lows = lows[self._placed].view(np.uint64)
        self._highs = (placed_rests & _HIGH_MASK).view(np.uint64)
        hashed = ((count, np.flatnonzero(in_bounds & (forms == -count))) for count in range(1, PIECES + 1))
        self._by_hash = [(count, rows, lows[rows], rests[rows]) for count, rows in hashed if len(rows)]

    def __len__(self) -> int:
        return self._count

    def excludes(self, stream_id: int) -> NDArray[np.bool_]:
        """By row, whether the object certainly does not hold this stream. O(n), no loop over rows in Python."""
        excluded = np.zeros(self._count, dtype=np.bool_)
        if not 0 <= stream_id <= STREAM_ID_MAX:
            return excluded
        if len(self._placed):
            excluded[self._placed] = ~self._has_place(stream_id)
        for count, rows, lows, rests in self._by_hash:
            cells = _hashed_cells(stream_id, count)
            low, rest = np.int64(_signed(cells & _LOW_MASK)), np.int64(cells >> _LOW_CELLS)
            excluded[rows] = (lows & low != low) | (rests & rest != rest)
        return excluded

    def _has_place(self, stream_id: int) -> NDArray[np.bool_]:
        cells = stream_id // self._widths - self._firsts
        within = (cells >= 0) & (cells < PLACED_CELLS)
        words = np.where(cells < _LOW_CELLS, self._lows, self._highs)
        bits = words >> (np.where(within, cells, 0) % _LOW_CELLS).astype(np.uint64)
        found: NDArray[np.bool_] = within & (bits & np.uint64(1) != 0)
        return found


def _width_code(lowest: int, highest: int) -> int:
    return next(
        code
        for code, width in enumerate(_WIDTHS)
        if lowest // width <= _FIRST_MAX and highest // width - lowest // width < PLACED_CELLS
    )


def _cells_of(cells: NDArray[np.integer[Any]]) -> int:
    """A number whose bit i is set if cell i is among these."""
    marks = np.zeros(HASHED_CELLS, dtype=np.uint8)
    marks[cells] = 1
    return int.from_bytes(np.packbits(marks, bitorder="little").tobytes(), "little")


def _hashed_cells(stream_id: int, count: int) -> int:
    cells = 0
    for piece in hash_id(stream_id)[:count].tolist():
        cells |= 1 << piece % HASHED_CELLS
    return cells


def _signed(word: int) -> int:
    return word - (1 << _LOW_CELLS) if word >> (_LOW_CELLS - 1) else word
