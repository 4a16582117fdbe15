"""The bytes of transactions, and of the order in which they are committed.

    | form                    | fields                                                                                |
    |-------------------------|---------------------------------------------------------------------------------------|
    | active-transaction      | created_ms, lease_expiry_ms, max_execution_expiry_ms, status, writer_id,              |
    |                         | commit_time_ms, commit_position; column commit_offsets, empty where there are none    |
    | completed-transaction   | complete_time_ms, status                                                              |
    | committing-transactions | epoch, active_epoch, transaction_ids                                                  |
    | commit-order            | next_position, transaction_ids; column positions                                      |

Transaction ids stand one after the other, 16 bytes each. A status is stored by its name.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from accel.history.codecs.history_form import HistoryForm
from accel.history.codecs.id_columns import packed_map, unpacked_map
from accel.history.codecs.numbers import checked, joined_uuids, member, split_uuids
from accel.history.codecs.segment_columns import make_rows
from accel.history.rules.checks import INT64_MAX
from accel.history.rules.ids import NOTHING
from accel.history.rules.transactions import (
    ActiveTransaction,
    CommitOrder,
    CommittingTransactions,
    CompletedTransaction,
    TransactionStatus,
)
from loaders.tables.columns import pack_columns, unpack_columns

POSITION: Final = np.dtype([("position", "<i8")])


class StoredActive(msgspec.Struct, frozen=True):
    """The stored fields of an `ActiveTransaction`."""

    created_ms: int
    lease_expiry_ms: int
    max_execution_expiry_ms: int
    status: str
    writer_id: str | None
    commit_time_ms: int | None
    commit_position: int | None
    commit_offsets: bytes


class StoredCompleted(msgspec.Struct, frozen=True):
    """The stored fields of a `CompletedTransaction`."""

    complete_time_ms: int
    status: str


class StoredCommitting(msgspec.Struct, frozen=True):
    """The stored fields of `CommittingTransactions`."""

    epoch: int
    transaction_ids: bytes
    active_epoch: int | None


class StoredOrder(msgspec.Struct, frozen=True):
    """The stored fields of a `CommitOrder`."""

    next_position: int
    positions: bytes
    transaction_ids: bytes


def _stored_active(record: ActiveTransaction) -> StoredActive:
    return StoredActive(
        created_ms=record.created_ms,
        lease_expiry_ms=record.lease_expiry_ms,
        max_execution_expiry_ms=record.max_execution_expiry_ms,
        status=record.status.name,
        writer_id=record.writer_id,
        commit_time_ms=record.commit_time_ms,
        commit_position=record.commit_position,
        commit_offsets=packed_map(record.commit_offsets) if len(record.commit_offsets) else b"",
    )


def _restored_active(fields: StoredActive, where: str) -> ActiveTransaction:
    offsets = fields.commit_offsets
    return ActiveTransaction(
        created_ms=fields.created_ms,
        lease_expiry_ms=fields.lease_expiry_ms,
        max_execution_expiry_ms=fields.max_execution_expiry_ms,
        status=member(TransactionStatus, fields.status),
        writer_id=fields.writer_id,
        commit_time_ms=fields.commit_time_ms,
        commit_position=fields.commit_position,
        commit_offsets=unpacked_map(offsets, f"{where}, commit offsets") if offsets else NOTHING,
    )


def _stored_completed(record: CompletedTransaction) -> StoredCompleted:
    return StoredCompleted(record.complete_time_ms, record.status.name)


def _restored_completed(fields: StoredCompleted, _: str) -> CompletedTransaction:
    return CompletedTransaction(fields.complete_time_ms, member(TransactionStatus, fields.status))


def _stored_committing(record: CommittingTransactions) -> StoredCommitting:
    return StoredCommitting(record.epoch, joined_uuids(record.transaction_ids), record.active_epoch)


def _restored_committing(fields: StoredCommitting, _: str) -> CommittingTransactions:
    return CommittingTransactions(fields.epoch, split_uuids(fields.transaction_ids), fields.active_epoch)


def _stored_order(order: CommitOrder) -> StoredOrder:
    checked("a next position", order.next_position, 0, INT64_MAX)
    positions = np.array(order.positions, dtype=np.int64)
    return StoredOrder(
        next_position=order.next_position,
        positions=pack_columns(make_rows(POSITION, position=positions)),
        transaction_ids=joined_uuids(order.transaction_ids),
    )


def _restored_order(fields: StoredOrder, where: str) -> CommitOrder:
    positions = unpack_columns(fields.positions, POSITION, f"{where}, positions")["position"]
    return CommitOrder(fields.next_position, tuple(positions.tolist()), split_uuids(fields.transaction_ids))


ACTIVE_TRANSACTION: Final = HistoryForm("active-transaction", 1, StoredActive, _stored_active, _restored_active)
COMPLETED_TRANSACTION: Final = HistoryForm(
    "completed-transaction", 1, StoredCompleted, _stored_completed, _restored_completed
)
COMMITTING_TRANSACTIONS: Final = HistoryForm(
    "committing-transactions", 1, StoredCommitting, _stored_committing, _restored_committing
)
COMMIT_ORDER: Final = HistoryForm("commit-order", 1, StoredOrder, _stored_order, _restored_order)
