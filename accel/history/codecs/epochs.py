"""The bytes of epochs, and of the scale that leads from one to the next.

| form             | fields                                                                                       |
|------------------|----------------------------------------------------------------------------------------------|
| epoch-record     | epoch, reference_epoch, creation_time_ms, splits, merges; segments (see segment_columns)     |
| epoch-transition | active_epoch, time_ms, first_number; columns segments_to_seal, new_ranges                    |
| sealed-epoch     | epoch: the one that sealed a segment                                                         |

An epoch has at most 750,000 segments, so neither record has more rows of a kind.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from accel.history.codecs.history_form import HistoryForm
from accel.history.codecs.id_columns import packed_set, unpacked_set
from accel.history.codecs.numbers import number_form
from accel.history.codecs.segment_columns import (
    StoredSegments,
    key_bits,
    keys_of_bits,
    make_rows,
    restored_segments,
    stored_segments,
)
from accel.history.rules.configuration import SEGMENTS_MAX
from accel.history.rules.epochs import EpochRecord, EpochTransition
from accel.history.rules.ids import EPOCH_MAX
from accel.history.rules.segments import KeyRanges
from loaders.tables.columns import pack_columns, unpack_columns

RANGE: Final = np.dtype([("start", "<i8"), ("end", "<i8")])
"""Bits of float64 keys, read as integers."""


class StoredEpoch(msgspec.Struct, frozen=True):
    """The stored fields of an `EpochRecord`."""

    epoch: int
    reference_epoch: int
    creation_time_ms: int
    splits: int
    merges: int
    segments: StoredSegments


class StoredTransition(msgspec.Struct, frozen=True):
    """The stored fields of an `EpochTransition`."""

    active_epoch: int
    time_ms: int
    segments_to_seal: bytes
    first_number: int
    new_ranges: bytes


class StoredSealedEpoch(msgspec.Struct, frozen=True):
    """The epoch that sealed a segment."""

    epoch: int


def _stored_epoch(record: EpochRecord) -> StoredEpoch:
    return StoredEpoch(
        epoch=record.epoch,
        reference_epoch=record.reference_epoch,
        creation_time_ms=record.creation_time_ms,
        splits=record.splits,
        merges=record.merges,
        segments=stored_segments(record.segments),
    )


def _restored_epoch(fields: StoredEpoch, where: str) -> EpochRecord:
    return EpochRecord(
        epoch=fields.epoch,
        reference_epoch=fields.reference_epoch,
        segments=restored_segments(fields.segments, where, SEGMENTS_MAX),
        creation_time_ms=fields.creation_time_ms,
        splits=fields.splits,
        merges=fields.merges,
    )


def _stored_transition(transition: EpochTransition) -> StoredTransition:
    ranges = transition.new_ranges
    return StoredTransition(
        active_epoch=transition.active_epoch,
        time_ms=transition.time_ms,
        segments_to_seal=packed_set(transition.segments_to_seal),
        first_number=transition.first_number,
        new_ranges=pack_columns(make_rows(RANGE, start=key_bits(ranges.starts), end=key_bits(ranges.ends))),
    )


def _restored_transition(fields: StoredTransition, where: str) -> EpochTransition:
    ranges = unpack_columns(fields.new_ranges, RANGE, f"{where}, new ranges", rows_max=SEGMENTS_MAX)
    return EpochTransition(
        active_epoch=fields.active_epoch,
        time_ms=fields.time_ms,
        segments_to_seal=unpacked_set(fields.segments_to_seal, f"{where}, segments to seal", SEGMENTS_MAX),
        first_number=fields.first_number,
        new_ranges=KeyRanges(keys_of_bits(ranges["start"]), keys_of_bits(ranges["end"])),
    )


EPOCH_RECORD: Final = HistoryForm("epoch-record", 1, StoredEpoch, _stored_epoch, _restored_epoch)
EPOCH_TRANSITION: Final = HistoryForm("epoch-transition", 1, StoredTransition, _stored_transition, _restored_transition)
SEALED_EPOCH: Final = number_form("sealed-epoch", StoredSealedEpoch, EPOCH_MAX)
