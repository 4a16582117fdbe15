"""The bytes of a reader group.

    | field     | meaning                                                                                       |
    |-----------|-----------------------------------------------------------------------------------------------|
    | segments  | rows and keys, as of any segments (see `accel.history.codecs.segment_columns`); ascending by id |
    | places    | columns offset, owner: one row for each segment                                               |
    | readers   | names, ascending                                                                              |
    | reports   | columns lag, has_waited: one row for each reader                                              |

    offset  -1: the segment waits                     owner  position of a reader; -1: nobody's, -2: read to its end

A group of 10,000 readers and as many segments takes about 130 kB, most of it names.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
import numpy as np

from accel.history.codecs.history_form import HistoryForm
from accel.history.codecs.plain import plain
from accel.history.codecs.segment_columns import (
    StoredSegments,
    check_within,
    make_rows,
    restored_segments,
    stored_segments,
)
from accel.streams.groups.group_state import ENDED, FREE, READERS_MAX, GroupState, Reader
from loaders.tables.columns import pack_columns, unpack_columns

PLACE: Final = np.dtype([("offset", "<i8"), ("owner", "<i8")])
REPORT: Final = np.dtype([("lag", "<i8"), ("has_waited", "<i8")])


class StoredGroup(msgspec.Struct, frozen=True):
    """The stored fields of a `GroupState`."""

    segments: StoredSegments
    places: bytes
    readers: Annotated[list[str], msgspec.Meta(max_length=READERS_MAX)]
    reports: bytes


def _stored(state: GroupState) -> StoredGroup:
    has_waited = [each.has_waited for each in state.readers]
    return StoredGroup(
        segments=stored_segments(state.segments),
        places=pack_columns(make_rows(PLACE, offset=state.offsets, owner=state.owners)),
        readers=[each.name for each in state.readers],
        reports=pack_columns(make_rows(REPORT, lag=state.lags, has_waited=has_waited)),
    )


def _restored(fields: StoredGroup, where: str) -> GroupState:
    places = unpack_columns(fields.places, PLACE, f"{where}, places")
    reports = unpack_columns(fields.reports, REPORT, f"{where}, reports", rows_max=READERS_MAX)
    check_within("marks of waiting", reports["has_waited"], 0, 1)
    rows = zip(fields.readers, reports["lag"].tolist(), reports["has_waited"].tolist(), strict=True)
    return GroupState(
        restored_segments(fields.segments, where),
        places["offset"].copy(),
        places["owner"].copy(),
        tuple(Reader(name, lag, bool(has_waited)) for name, lag, has_waited in rows),
    )


class _GroupForm(HistoryForm[GroupState, StoredGroup]):
    """Shows the owners of segments by their names. Threads: immutable."""

    def expand(self, fields: StoredGroup) -> object:
        state = _restored(fields, self.name)
        names = {FREE: None, ENDED: "ended"} | {at: {"reader": name} for at, name in enumerate(fields.readers)}
        return plain(
            {
                "position": state.position(),
                "owners": [names[each] for each in state.owners.tolist()],
                "readers": list(state.readers),
                "segments": state.segments,
            }
        )


READER_GROUP: Final = _GroupForm("reader-group", 1, StoredGroup, _stored, _restored)
