"""The rules of a node's list, in one place to import from.

    list_commits        opened, with_prepared, with_extended, with_upload, with_compaction
    list_collection     without_expired, without_prepared, with_doomed, without_collected, without_stream_objects,
                        without_withdrawn
    list_undo           undone
    list_checks         check_list

An object's way through a list:

    (an id) -> prepared -> live -> retired -> doomed -> (gone)
                  |          ^---------|
                  |            undone
                  '-> (gone)

Only `undone` leads back, and never from doomed. All rules are pure: a list and facts in, the next list out.
"""

from __future__ import annotations

from accel.catalog.list_checks import check_list
from accel.catalog.list_collection import (
    with_doomed,
    without_collected,
    without_expired,
    without_prepared,
    without_stream_objects,
    without_withdrawn,
)
from accel.catalog.list_commits import (
    NO_STREAM_OBJECTS,
    PREPARED_MAX,
    opened,
    with_compaction,
    with_extended,
    with_prepared,
    with_upload,
)
from accel.catalog.list_undo import Undo, undone

__all__ = [
    "NO_STREAM_OBJECTS",
    "PREPARED_MAX",
    "Undo",
    "check_list",
    "opened",
    "undone",
    "with_compaction",
    "with_doomed",
    "with_extended",
    "with_prepared",
    "with_upload",
    "without_collected",
    "without_expired",
    "without_prepared",
    "without_stream_objects",
    "without_withdrawn",
]
