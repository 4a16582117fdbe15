"""What a session has to upload, one object after the other: from the buffer to the catalog, and then the time indexes.

Objects of one session follow one another, because each continues its segments where the one before ended them. So what
failed comes first when it is tried again, and until it is done nothing more is taken from the buffer.
"""

from __future__ import annotations

import logging

from accel.catalog.rows import STREAMS_AN_OBJECT_MAX
from accel.streams.writing.append_buffer import AppendBuffer
from accel.streams.writing.open_segments import OpenSegments
from accel.streams.writing.upload import Upload, UploadParts
from loaders.errors import StoreUnavailable, WriteConflict

logger = logging.getLogger(__name__)


class UploadQueue:
    """Carries out uploads in their order. Threads: one at a time.

    Args:
        parts: of the session.
        segments: that it writes.
        buffer: what waits to be written.
    """

    def __init__(self, parts: UploadParts, segments: OpenSegments, buffer: AppendBuffer) -> None:
        self._parts = parts
        self._segments = segments
        self._buffer = buffer
        self._uploads: list[Upload] = []

    def flush(self) -> None:
        """Make everything durable that is in the buffer now.

        Raises:
            What `Upload.carry_out` raises; what is not durable stays here, or in the buffer.
        """
        self._carry_out()
        self._uploads += [Upload(self._parts, each) for each in self._buffer.take(STREAMS_AN_OBJECT_MAX)]
        self._carry_out()

    def add(self, upload: Upload) -> None:
        """Carry out one more upload, after those that are here.

        Raises:
            What `Upload.carry_out` raises; it stays here.
        """
        self._uploads.append(upload)
        self._carry_out()

    def _carry_out(self) -> None:
        while self._uploads:
            self._uploads[0].carry_out()
            self._move_times(self._uploads.pop(0))

    def _move_times(self, done: Upload) -> None:
        least = self._parts.settings.move_records_min
        due = [each for each in done.segments if each.index.records_in_memory >= least]
        try:
            self._segments.move_times(due)
        except (StoreUnavailable, WriteConflict):  # the data is durable; the records are moved with those that follow
            logger.warning("time indexes of %d segments stay in memory for now", len(due), exc_info=True)
