"""The bytes of every record of a stream's history: one named, versioned form each, with a checksum.

A form turns a record into bytes and back, and raises CorruptObject for anything that is not such bytes. What a table
keeps without a value (marks of epochs with transactions, of batches) has no form.

    epochs         epoch-record, epoch-transition, sealed-epoch
    chunks         history-chunk
    times          epoch-times, epoch-times-block
    cuts           truncation, retention-set, stream-cut, sealed-sizes
    requests       workflow-request
    transactions   active-transaction, completed-transaction, committing-transactions, commit-order
    streams        stream-state, configuration, history-layout, creation-time, cold-marker, waiting-processor,
                   scope-entry, stream-entry, last-number, id-counter, segment-stream
"""

from __future__ import annotations

from typing import Any, Final

from accel.history.codecs.chunks import HISTORY_CHUNK
from accel.history.codecs.cuts import RETENTION_SET, SEALED_SIZES, STREAM_CUT, TRUNCATION
from accel.history.codecs.epochs import EPOCH_RECORD, EPOCH_TRANSITION, SEALED_EPOCH
from accel.history.codecs.history_form import HistoryForm
from accel.history.codecs.requests import WORKFLOW_REQUEST
from accel.history.codecs.streams import (
    COLD_MARKER,
    CONFIGURATION,
    CREATION_TIME,
    HISTORY_LAYOUT,
    ID_COUNTER,
    LAST_NUMBER,
    SCOPE_ENTRY,
    SEGMENT_STREAM,
    STREAM_ENTRY,
    STREAM_STATE,
    WAITING_PROCESSOR,
)
from accel.history.codecs.times import EPOCH_TIMES, EPOCH_TIMES_BLOCK
from accel.history.codecs.transactions import (
    ACTIVE_TRANSACTION,
    COMMIT_ORDER,
    COMMITTING_TRANSACTIONS,
    COMPLETED_TRANSACTION,
)

ALL_FORMS: Final[tuple[HistoryForm[Any, Any], ...]] = (
    EPOCH_RECORD,
    EPOCH_TRANSITION,
    SEALED_EPOCH,
    HISTORY_CHUNK,
    EPOCH_TIMES,
    EPOCH_TIMES_BLOCK,
    TRUNCATION,
    RETENTION_SET,
    STREAM_CUT,
    SEALED_SIZES,
    ACTIVE_TRANSACTION,
    COMPLETED_TRANSACTION,
    COMMITTING_TRANSACTIONS,
    COMMIT_ORDER,
    STREAM_STATE,
    CONFIGURATION,
    HISTORY_LAYOUT,
    CREATION_TIME,
    COLD_MARKER,
    WAITING_PROCESSOR,
    SCOPE_ENTRY,
    STREAM_ENTRY,
    LAST_NUMBER,
    ID_COUNTER,
    SEGMENT_STREAM,
    WORKFLOW_REQUEST,
)


__all__ = [
    "ACTIVE_TRANSACTION",
    "ALL_FORMS",
    "COLD_MARKER",
    "COMMITTING_TRANSACTIONS",
    "COMMIT_ORDER",
    "COMPLETED_TRANSACTION",
    "CONFIGURATION",
    "CREATION_TIME",
    "EPOCH_RECORD",
    "EPOCH_TIMES",
    "EPOCH_TIMES_BLOCK",
    "EPOCH_TRANSITION",
    "HISTORY_CHUNK",
    "HISTORY_LAYOUT",
    "ID_COUNTER",
    "LAST_NUMBER",
    "RETENTION_SET",
    "SCOPE_ENTRY",
    "SEALED_EPOCH",
    "SEALED_SIZES",
    "SEGMENT_STREAM",
    "STREAM_CUT",
    "STREAM_ENTRY",
    "STREAM_STATE",
    "TRUNCATION",
    "WAITING_PROCESSOR",
    "WORKFLOW_REQUEST",
    "HistoryForm",
]
