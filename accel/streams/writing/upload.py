"""An object on its way: what was taken from the buffer is in here until it is durable.

    1. the intent, if the object merges transactions       so that it is known later whether that happened
    2. an id is promised, the object written
    3. the commit: one conditional write
    4. data of the transactions deleted, and the intent    now that it stands in the segments

Each step may fail, and is taken up there when the upload is carried out again. A commit whose outcome is unknown is
repeated for the same object: the catalog finds out whether it had happened.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

from accel.catalog import NodeWriter
from accel.errors import CommitRefused
from accel.streams.writing.append_buffer import Taken
from accel.streams.writing.transaction_objects import MergeIntent, TransactionObjects
from accel.streams.writing.writer_settings import SegmentsSettings
from loaders.backoff import Backoff
from loaders.errors import AccelError, AmbiguousWrite, ObjectExists
from loaders.layout import ObjectLayout
from loaders.object_ref import ObjectRef
from loaders.object_writer import ObjectWriter
from loaders.store import ObjectStore
from range_index import ObjectRanges

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, eq=False)
class UploadParts:
    """What uploads of one session share.

    Args:
        store: where objects lie.
        layout: where in it.
        node: the session; one call at a time.
        transactions: data of transactions.
        settings: bounds.
        backoff: pauses between attempts.
    """

    store: ObjectStore
    layout: ObjectLayout
    node: NodeWriter
    transactions: TransactionObjects
    settings: SegmentsSettings
    backoff: Backoff


class Upload:
    """One object and what belongs to it. Threads: one at a time.

    Args:
        parts: of the session.
        taken: batches by segment; at most 20,000 segments.
        intent: which transactions it merges.
    """

    def __init__(self, parts: UploadParts, taken: Taken, intent: MergeIntent | None = None) -> None:
        self._parts = parts
        self._taken = dict(sorted(taken.items(), key=lambda each: each[0].stream_id))
        self._intent = intent
        self._is_intended = intent is None
        self._written: tuple[ObjectRef, ObjectRanges] | None = None
        self._is_doubtful = False
        self._is_committed = False

    @property
    def segments(self) -> Taken:
        """Its batches by segment, ascending by stream of the object layer."""
        return self._taken

    def carry_out(self) -> None:
        """Do what is left to do. When it returns, everything is durable.

        Raises:
            SessionFenced: a newer session writes for this node; what is not durable will never be.
            CommitRefused: it cannot be committed any more, and whether an earlier attempt was is not known: a new
                session of the node finds out.
            AccelError: with a note that says what is not durable yet; carry it out again.
        """
        try:
            if not self._is_intended and self._intent is not None:
                self._parts.transactions.intend(self._intent)
                self._is_intended = True
            if not self._is_committed:
                self._commit()
        except AccelError as error:
            error.add_note(f"not durable yet, and still in memory: {self._text()}")
            raise
        if self._intent is not None:
            self._parts.transactions.finish(self._intent)

    def _commit(self) -> None:
        try:
            self._write_and_commit()
        except CommitRefused:
            if self._is_doubtful or self._written is None:
                raise
            self._written = None  # its promise may have run out while it could not be committed
            self._write_and_commit()

    def _write_and_commit(self) -> None:
        ref, ranges = self._repeatedly(self._write) if self._written is None else self._written
        self._repeatedly(lambda: self._parts.node.commit_upload(ref, ranges), is_commit=True)
        self._is_committed = True

    def _write(self) -> tuple[ObjectRef, ObjectRanges]:
        parts = self._parts
        [object_id] = parts.node.prepare(deadline_seconds=parts.settings.promise_seconds)
        with ObjectWriter(parts.store, parts.layout, object_id, backoff=parts.backoff) as upload:
            for segment, batches in self._taken.items():
                upload.write(segment.stream_id, batches)
        self._written = upload.ref, upload.ranges
        return self._written

    def _repeatedly(self, ask: Callable[[], Answer], *, is_commit: bool = False) -> Answer:
        attempt = 1
        while True:
            try:
                return ask()
            except AccelError as error:
                is_unknown = error.retryable or isinstance(error, AmbiguousWrite)
                self._is_doubtful |= is_commit and is_unknown
                # Where another object lies, this one is written under the next id.
                may_help = is_unknown or isinstance(error, ObjectExists)
                if not may_help or attempt >= self._parts.settings.commit_attempts:
                    raise
            self._parts.backoff.pause(attempt)
            attempt += 1

    def _text(self) -> str:
        size_bytes = sum(len(each.payload) for each in chain(*self._taken.values()))
        some = ", ".join(f"stream {each.stream_id} up to {each.end}" for each in list(self._taken)[:5])
        return f"{size_bytes} bytes of {len(self._taken)} segments ({some})"
