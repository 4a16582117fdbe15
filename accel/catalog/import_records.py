"""What an import keeps while it is under way, so that a repeated one does not read indexes again.

    ReadBatch     what the indexes of neighbouring objects say             one key a batch; never written again
    ImportRun     what the counter of object ids said before the import    one key

Threads: all records are immutable, any thread may read them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from accel.catalog.rows import Dtype, Rows, frozen

READ_OBJECT: Final = np.dtype(
    [(name, "<i8") for name in ("object_id", "size_bytes", "index_size_bytes", "tail_checksum", "streams")]
)
"""An object that was opened; `streams` says how many rows of ranges are its own."""

READ_RANGE: Final = np.dtype([(name, "<i8") for name in ("stream_id", "start", "end", "holed")])
"""What an object holds of one stream; `holed` is 1 where offsets in between are missing."""


@dataclass(frozen=True, slots=True, eq=False)
class ReadBatch:
    """What the indexes of some objects say.

    Args:
        objects: READ_OBJECT rows, ascending by object id.
        ranges: READ_RANGE rows, those of the first object first.

    Raises:
        ValueError: rows of the wrong type or out of order, or numbers that contradict one another.
    """

    objects: Rows
    ranges: Rows

    def __post_init__(self) -> None:
        for rows, dtype in ((self.objects, READ_OBJECT), (self.ranges, READ_RANGE)):
            _check_type(rows, dtype)
            frozen(rows)
        counts, ids = self.objects["streams"], self.objects["object_id"]
        if (counts < 0).any() or int(counts.sum()) != len(self.ranges):
            raise ValueError(f"expected {counts.tolist()[:5]}... ranges of objects, found {len(self.ranges)} in all")
        if (ids[1:] <= ids[:-1]).any() or any(
            (self.objects[name] < 0).any() for name in self.objects.dtype.names or ()
        ):
            raise ValueError("expected objects ascending by id, and no number below 0")
        ranges = self.ranges
        if (ranges["start"] < 0).any() or (ranges["end"] < ranges["start"]).any() or (ranges["stream_id"] < 0).any():
            raise ValueError("expected ranges of streams that do not end before they start")


@dataclass(frozen=True, slots=True)
class ImportRun:
    """How far an import has come with the counter of object ids, so that it can be led back.

    Args:
        counter_before: what the counter said before it was raised.
        raised_to: what this import, or a repeated one, has raised it to or was about to.
    """

    counter_before: int
    raised_to: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.counter_before < 0 or not all(each > self.counter_before for each in self.raised_to):
            raise ValueError(f"expected a counter that rises, found {self.counter_before} to {self.raised_to}")


def _check_type(rows: Rows, dtype: Dtype) -> None:
    if rows.dtype != dtype or rows.ndim != 1:
        raise ValueError(f"expected rows with the fields {dtype.names}, found {rows.dtype}")
