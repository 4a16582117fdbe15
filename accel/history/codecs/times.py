"""The bytes of the index of epoch times: its root, and its blocks.

    | form              | fields                                                                                      |
    |-------------------|---------------------------------------------------------------------------------------------|
    | epoch-times       | part_epochs, leaf_parts, visible_epochs; columns leaf_starts, part_starts, tail             |
    | epoch-times-block | kind ("part" or "leaf"), number, epochs; column times                                       |

Each column is packed with one field, ``time_ms``: times ascend in steps that differ little, which is what packed
columns make small. Of a stream with an epoch a second, give or take 200 ms, a leaf takes 125 kB, a part 1.4 kB, and the
root after a year 2.1 kB at most.
"""

from __future__ import annotations

from array import array
from typing import Final

import msgspec
import numpy as np

from accel.history.codecs.history_form import HistoryForm
from loaders.tables.columns import ROWS_MAX, pack_columns, unpack_columns
from range_index.epoch_times import Block, BlockKind, BlockTimes, EpochTimesRoot
from range_index.runs import pack, unpack

TIME: Final = np.dtype([("time_ms", "<i8")])


class StoredTimesRoot(msgspec.Struct, frozen=True):
    """The stored fields of an `EpochTimesRoot`."""

    part_epochs: int
    leaf_parts: int
    visible_epochs: int
    leaf_starts: bytes
    part_starts: bytes
    tail: bytes


class StoredTimesBlock(msgspec.Struct, frozen=True):
    """The stored fields of a `BlockTimes`."""

    kind: str
    number: int
    epochs: int
    times: bytes


def _packed(times: array[int]) -> bytes:
    return pack_columns(unpack(times).view(TIME))


def _unpacked(data: bytes, where: str, rows_max: int = ROWS_MAX) -> array[int]:
    return pack(unpack_columns(data, TIME, where, rows_max=rows_max)["time_ms"])


def _stored_root(root: EpochTimesRoot) -> StoredTimesRoot:
    return StoredTimesRoot(
        part_epochs=root.part_epochs,
        leaf_parts=root.leaf_parts,
        visible_epochs=root.visible_epochs,
        leaf_starts=_packed(root.leaf_starts),
        part_starts=_packed(root.part_starts),
        tail=_packed(root.tail),
    )


def _restored_root(fields: StoredTimesRoot, where: str) -> EpochTimesRoot:
    rows_max = min(max(0, fields.part_epochs), ROWS_MAX)
    return EpochTimesRoot(
        tail=_unpacked(fields.tail, f"{where}, tail", rows_max),
        part_starts=_unpacked(fields.part_starts, f"{where}, part starts"),
        leaf_starts=_unpacked(fields.leaf_starts, f"{where}, leaf starts"),
        visible_epochs=fields.visible_epochs,
        part_epochs=fields.part_epochs,
        leaf_parts=fields.leaf_parts,
    )


def _stored_block(found: BlockTimes) -> StoredTimesBlock:
    block = found.block
    return StoredTimesBlock(block.kind.value, block.number, block.epochs, _packed(found.times))


def _restored_block(fields: StoredTimesBlock, where: str) -> BlockTimes:
    if not 1 <= fields.epochs <= ROWS_MAX or fields.number < 0:
        raise ValueError(f"expected a block of 1 to {ROWS_MAX} epochs, numbered from 0 on, found {fields.epochs}")
    block = Block(BlockKind(fields.kind), fields.number, fields.epochs)
    return BlockTimes(block, _unpacked(fields.times, f"{where}, times", fields.epochs))


EPOCH_TIMES: Final = HistoryForm("epoch-times", 1, StoredTimesRoot, _stored_root, _restored_root)
EPOCH_TIMES_BLOCK: Final = HistoryForm("epoch-times-block", 1, StoredTimesBlock, _stored_block, _restored_block)
