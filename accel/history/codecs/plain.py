"""Records of a history as dicts, lists, text and numbers, for people: segments by ``number@epoch``, one by one."""

from __future__ import annotations

from array import array
from collections.abc import Sized
from functools import partial
from itertools import islice

import msgspec

from accel.history.rules.epochs import HistoryChunk
from accel.history.rules.ids import IdMap, IdSet, segment_text
from accel.history.rules.retention import RetentionSet
from accel.history.rules.segments import KeyRanges, Segments
from loaders.tables.records import RowsView

_VIEW = "\0view"  # no field has such a name


def plain(value: object) -> object:
    """A record, or its fields, as JSON can say it, its rows as `RowsView`s. O(size) without the rows."""
    views: list[RowsView] = []

    def viewed(rows: object) -> object:
        views.append(_view(rows))
        return {_VIEW: len(views) - 1}

    return _placed(msgspec.json.decode(msgspec.json.encode(value, enc_hook=viewed)), views)


def _placed(value: object, views: list[RowsView]) -> object:
    if isinstance(value, dict):
        if _VIEW in value:
            return views[value[_VIEW]]
        return {name: _placed(each, views) for name, each in value.items()}
    return [_placed(each, views) for each in value] if isinstance(value, list) else value


def _view(rows: object) -> RowsView:
    if not isinstance(rows, Sized):
        raise TypeError(f"expected a value that JSON can say, found {type(rows).__name__}")
    return RowsView(len(rows), partial(_first, rows))


def _first(rows: object, count: int) -> object:
    return msgspec.json.decode(msgspec.json.encode(_unpacked(rows, count), enc_hook=_unpacked))


def _unpacked(value: object, count: int | None = None) -> object:
    if isinstance(value, Segments):
        return [_segment(*row) for row in value.rows[:count].tolist()]
    if isinstance(value, IdMap):
        return {segment_text(each): number for each, number in islice(value.items(), count)}
    if isinstance(value, IdSet):
        return [segment_text(each) for each in islice(value, count)]
    if isinstance(value, KeyRanges | HistoryChunk | RetentionSet | array):
        return list(islice(value, count))
    raise TypeError(f"expected a value that JSON can say, found {type(value).__name__}")


def _segment(segment_id: int, creation_time_ms: int, key_start: float, key_end: float) -> dict[str, object]:
    name = segment_text(segment_id)
    return {"id": name, "creation_time_ms": creation_time_ms, "key_start": key_start, "key_end": key_end}
