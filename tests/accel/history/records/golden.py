"""One record of every form, and the bytes that an earlier release wrote for it.

The bytes lie in tests/data/history and are never made anew: what was once written must be readable for ever. A new
version of a form gets a file of its own, beside the old one.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from accel.history import records as codecs
from accel.history.records import HistoryForm
from accel.history.rules.configuration import (
    ConfigurationRecord,
    HistoryLayout,
    OffsetUnit,
    RetentionKind,
    RetentionPolicy,
    ScalingKind,
    ScalingPolicy,
    ShardBy,
    StreamConfiguration,
)
from accel.history.rules.cuts import CutSpan
from accel.history.rules.epochs import EpochRecord, EpochTransition, HistoryChunk, HistoryDelta
from accel.history.rules.requests import CommitPlan, WorkflowRequest
from accel.history.rules.retention import RetentionSet, StreamCutRecord, TruncationRecord
from accel.history.rules.segments import NO_SEGMENTS, KeyRanges, SegmentRecord, Segments
from accel.history.rules.states import NamePhase, ScopeEntry, StreamEntry, StreamState, StreamStatus
from accel.history.rules.transactions import (
    ActiveTransaction,
    CommitOrder,
    CommittingTransactions,
    CompletedTransaction,
    TransactionStatus,
)
from accel.history.rules.values import IdMap, IdSet, make_id, make_transaction_id
from range_index.epoch_times import Block, BlockKind, BlockTimes, EpochTimesRoot

FOLDER = Path(__file__).parents[3] / "data" / "history"

A, B, C, D = make_id(0, 0), make_id(0, 1), make_id(3, 2), make_id(3, 3)
BEGAN_MS, SCALED_MS = 1_760_000_000_123, 1_760_003_600_007

SEGMENTS = Segments.of(
    [
        SegmentRecord(A, BEGAN_MS, 0.0, 1 / 3),
        SegmentRecord(C, SCALED_MS, 0.7, 1.0),
        SegmentRecord(D, SCALED_MS, 1 / 3, 0.7),
    ]
)
WORKFLOW = UUID(int=0x5EED)
UNIQUE_ID = UUID("12345678-1234-5678-8234-567812345678")
TRANSACTIONS = (make_transaction_id(3, 2**90 + 1), make_transaction_id(3, 7))


def golden_bytes(name: str) -> bytes:
    """The bytes of one golden file."""
    return (FOLDER / f"{name}.bin").read_bytes()


def epoch() -> EpochRecord:
    """Three segments of two epochs, keys that have no short form, after events of a clock that was a day ahead."""
    return EpochRecord(3, 3, SEGMENTS, SCALED_MS, splits=2, merges=1, late_ms=86_400_001)


def chunk() -> HistoryChunk:
    """A split of a segment from before the chunk, a duplicate, a merge of what the split made."""
    old = Segments.of([SegmentRecord(make_id(2, 9), BEGAN_MS, 0.25, 0.5)])
    new = Segments.of(
        [SegmentRecord(make_id(40, 10), SCALED_MS, 0.25, 0.3), SegmentRecord(make_id(40, 11), SCALED_MS, 0.3, 0.5)]
    )
    merged = Segments.of([SegmentRecord(make_id(42, 12), SCALED_MS + 900, 0.25, 0.5)])
    return HistoryChunk.of(
        [
            HistoryDelta(40, 40, old, new, SCALED_MS),
            HistoryDelta(41, 17, NO_SEGMENTS, NO_SEGMENTS, SCALED_MS + 1, 5_000),
            HistoryDelta(42, 42, new, merged, SCALED_MS + 1_000, 4_001),
        ]
    )


def times_root() -> EpochTimesRoot:
    """A leaf of four epochs, a part of two, a tail, and an epoch that is not visible yet."""
    return EpochTimesRoot(
        tail=array("q", [BEGAN_MS + 6_004, BEGAN_MS + 6_990]),
        part_starts=array("q", [BEGAN_MS + 4_100]),
        leaf_starts=array("q", [BEGAN_MS]),
        visible_epochs=7,
        part_epochs=2,
        leaf_parts=2,
    )


def times_block() -> BlockTimes:
    """A leaf of five epochs about a second apart."""
    times = [BEGAN_MS, BEGAN_MS + 950, BEGAN_MS + 2_010, BEGAN_MS + 3_000, BEGAN_MS + 4_100]
    return BlockTimes(Block(BlockKind.LEAF, 6, 5), array("q", times))


def truncation() -> TruncationRecord:
    """A cut with a segment that it does not reach into yet, while others are being deleted."""
    return TruncationRecord(
        cut=IdMap([A, C, D], [2**40, -1, 17]),
        span=CutSpan(SEGMENTS, IdMap([A, C, D], [5, 3, 4])),
        last_cut=IdMap([A, D], [3, 5]),
        last_span=CutSpan(SEGMENTS.where([0, 2]), IdMap([A, D], [4, 4])),
        deleted_count=1,
        to_delete_count=300,
        size_till=2**41,
        updating=True,
        workflow_id=WORKFLOW,
    )


def request() -> WorkflowRequest:
    """A commit that rolls, as it has the stream."""
    plan = CommitPlan(CommittingTransactions(3, TRANSACTIONS, active_epoch=5), 5, SCALED_MS)
    return WorkflowRequest(WORKFLOW, plan, base=bytes(range(16)))


CASES: dict[str, tuple[HistoryForm[Any], Callable[[], Any]]] = {
    "epoch-record": (codecs.EPOCH_RECORD, epoch),
    "epoch-transition": (
        codecs.EPOCH_TRANSITION,
        lambda: EpochTransition(3, SCALED_MS, IdSet([A, D]), 4, KeyRanges([0.0, 0.1 + 0.2], [0.1 + 0.2, 0.7])),
    ),
    "sealed-epoch": (codecs.SEALED_EPOCH, lambda: 2**31 - 1),
    "history-chunk": (codecs.HISTORY_CHUNK, chunk),
    "epoch-times": (codecs.EPOCH_TIMES, times_root),
    "epoch-times-block": (codecs.EPOCH_TIMES_BLOCK, times_block),
    "truncation": (codecs.TRUNCATION, truncation),
    "retention-set": (
        codecs.RETENTION_SET,
        lambda: RetentionSet([BEGAN_MS, BEGAN_MS + 1_800_017, BEGAN_MS + 3_600_001], [0, 2**33, 2**33]),
    ),
    "stream-cut": (codecs.STREAM_CUT, lambda: StreamCutRecord(BEGAN_MS, 2**33, IdMap([A, C, D], [2**40, -1, 17]))),
    "sealed-sizes": (codecs.SEALED_SIZES, lambda: IdMap([A, B, make_id(999, 2**31 - 1)], [0, 2**62, 17])),
    "active-transaction": (
        codecs.ACTIVE_TRANSACTION,
        lambda: ActiveTransaction(
            created_ms=BEGAN_MS,
            lease_expiry_ms=BEGAN_MS + 30_000,
            max_execution_expiry_ms=BEGAN_MS + 600_000,
            status=TransactionStatus.COMMITTING,
            writer_id="writer é",
            commit_time_ms=-1,
            commit_position=12,
            commit_offsets=IdMap([A, D], [100, 2**35]),
        ),
    ),
    "completed-transaction": (
        codecs.COMPLETED_TRANSACTION,
        lambda: CompletedTransaction(SCALED_MS, TransactionStatus.ABORTED),
    ),
    "committing-transactions": (
        codecs.COMMITTING_TRANSACTIONS,
        lambda: CommittingTransactions(3, TRANSACTIONS, active_epoch=5),
    ),
    "commit-order": (
        codecs.COMMIT_ORDER,
        lambda: CommitOrder(14, (3, 12, 13), (TRANSACTIONS[1], TRANSACTIONS[0], TRANSACTIONS[1])),
    ),
    "stream-state": (codecs.STREAM_STATE, lambda: StreamStatus(StreamState.COMMITTING_TXN, WORKFLOW)),
    "configuration": (
        codecs.CONFIGURATION,
        lambda: ConfigurationRecord(
            StreamConfiguration(
                min_segments=3,
                scaling=ScalingPolicy(ScalingKind.EVENTS, 1_000, 2),
                retention=RetentionPolicy(RetentionKind.SIZE, 2**40, 2**41),
                offset_unit=OffsetUnit.BYTES,
                tags=("billing", "größe"),
            ),
            WORKFLOW,
        ),
    ),
    "history-layout": (codecs.HISTORY_LAYOUT, lambda: HistoryLayout(7, 9, ShardBy.NUMBER)),
    "creation-time": (codecs.CREATION_TIME, lambda: BEGAN_MS),
    "scope-entry": (codecs.SCOPE_ENTRY, lambda: ScopeEntry(UNIQUE_ID, NamePhase.CLOSING)),
    "stream-entry": (
        codecs.STREAM_ENTRY,
        lambda: StreamEntry(
            UNIQUE_ID, NamePhase.LIVE, StreamConfiguration(min_segments=3, tags=("billing",)), BEGAN_MS, 18, 3, 41
        ),
    ),
    "last-number": (codecs.LAST_NUMBER, lambda: 18),
    "id-counter": (codecs.ID_COUNTER, lambda: 2**62),
    "segment-stream": (codecs.SEGMENT_STREAM, lambda: 420_000),
    "workflow-request": (codecs.WORKFLOW_REQUEST, request),
}
