"""Records of a history as dicts, lists, text and numbers, for people: segments by ``number@epoch``, one by one."""

from __future__ import annotations

from array import array

import msgspec

from accel.history.history_chunk import HistoryChunk
from accel.history.id_columns import IdMap, IdSet
from accel.history.ids import segment_text
from accel.history.records import RetentionSet
from accel.history.segments import KeyRanges, Segments


def plain(value: object) -> object:
    """A record, or its fields, as JSON can say it; O(size), with an object for each row."""
    return msgspec.json.decode(msgspec.json.encode(value, enc_hook=_unpacked))


def _unpacked(value: object) -> object:
    if isinstance(value, Segments):
        return [_segment(*row) for row in value.rows.tolist()]
    if isinstance(value, IdMap):
        return {segment_text(each): number for each, number in value.items()}
    if isinstance(value, IdSet):
        return [segment_text(each) for each in value]
    if isinstance(value, KeyRanges | HistoryChunk | RetentionSet | array):
        return list(value)
    raise TypeError(f"expected a value that JSON can say, found {type(value).__name__}")


def _segment(segment_id: int, creation_time_ms: int, key_start: float, key_end: float) -> dict[str, object]:
    name = segment_text(segment_id)
    return {"id": name, "creation_time_ms": creation_time_ms, "key_start": key_start, "key_end": key_end}
