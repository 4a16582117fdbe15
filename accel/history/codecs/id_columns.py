"""Maps and sets of segment ids as packed columns.

| column         | meaning                                                                                  |
|----------------|------------------------------------------------------------------------------------------|
| creation_epoch | high half of the id; ids ascend, so most steps are small                                 |
| number         | low half of the id                                                                       |
| value          | of a map: an offset, a size or an epoch                                                  |
"""

from __future__ import annotations

from typing import Final

import numpy as np

from accel.history.codecs.segment_columns import make_ids, make_rows
from accel.history.rules.ids import NUMBER_BITS, NUMBER_MASK, IdMap, IdSet, Integers
from loaders.tables.columns import ROWS_MAX, pack_columns, unpack_columns

SET_ROW: Final = np.dtype([(name, "<i8") for name in ("creation_epoch", "number")])
MAP_ROW: Final = np.dtype([(name, "<i8") for name in ("creation_epoch", "number", "value")])


def packed_map(values: IdMap) -> bytes:
    """A map from segment ids to numbers as bytes; O(n)."""
    epochs, numbers = _halves(values.ids)
    return pack_columns(make_rows(MAP_ROW, creation_epoch=epochs, number=numbers, value=values.values_array))


def unpacked_map(data: bytes, where: str) -> IdMap:
    """The same map; O(n).

    Raises:
        CorruptObject: bytes that are no packed columns.
        FormatTooNew: columns that this release does not know.
        ValueError: rows that are no segment ids, or do not ascend.
    """
    rows = unpack_columns(data, MAP_ROW, where)
    return IdMap(make_ids(rows["creation_epoch"], rows["number"]), np.ascontiguousarray(rows["value"]))


def packed_set(ids: IdSet) -> bytes:
    """A set of segment ids as bytes; O(n)."""
    epochs, numbers = _halves(ids.ids)
    return pack_columns(make_rows(SET_ROW, creation_epoch=epochs, number=numbers))


def unpacked_set(data: bytes, where: str, rows_max: int = ROWS_MAX) -> IdSet:
    """The same set; O(n). More than ``rows_max`` ids are refused before they are unpacked.

    Raises:
        CorruptObject, FormatTooNew, ValueError: as `unpacked_map`.
    """
    rows = unpack_columns(data, SET_ROW, where, rows_max=rows_max)
    return IdSet(make_ids(rows["creation_epoch"], rows["number"]))


def _halves(ids: Integers) -> tuple[Integers, Integers]:
    return ids >> NUMBER_BITS, ids & NUMBER_MASK
