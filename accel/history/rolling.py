"""Committing transactions of an older epoch: its segments come once more, and then those that were active.

A transaction's data lies in segments of its own, shaped like those of the epoch in which it began. If the stream has
other segments by now, the data cannot simply be merged into them. So two epochs follow the active one, A:

    | epoch          | segments                  | reference           | begins                     |
    |----------------|---------------------------|---------------------|----------------------------|
    | T = A + 1      | those of the transactions | their epoch         | now, but later than A      |
    | N = A + 2      | those of A                | that of A           | one millisecond after T    |

Order of writes: T, its history, N, its history, which epoch sealed the segments of A and of T, sizes of T; then the
segments of A are sealed, their sizes written, and the stream moves to N. Both epochs are created if absent, perhaps by
somebody before with another clock. So **T is read back, and all later times follow from what was read**; otherwise the
epoch's record would keep the first time while the history got the second.

Source: the upstream system; PDP-32 describes the duplicates.
"""

from __future__ import annotations

from accel.errors import IllegalState
from accel.history.epochs import duplicate_of
from accel.history.ids import EPOCH_MAX
from accel.history.records import CommittingTransactions, EpochRecord


def needs_rolling(current: EpochRecord, transaction_epoch: EpochRecord) -> bool:
    """Whether the stream has other segments than when the transactions began."""
    return current.reference_epoch != transaction_epoch.reference_epoch


def with_rolling(committing: CommittingTransactions, active_epoch: int) -> CommittingTransactions | None:
    """The record to write before a rolling commit goes on; None if that was done before.

    Raises:
        IllegalState: no commit is under way, one that rolls from another epoch, or epochs are used up.
    """
    if committing.is_empty or active_epoch > EPOCH_MAX - 2:
        raise IllegalState(f"expected a commit to roll from epoch {active_epoch}, found {committing}")
    if committing.active_epoch is None:
        return committing.rolling(active_epoch)
    if committing.active_epoch != active_epoch:
        found = committing.active_epoch
        raise IllegalState(f"expected a commit that rolls from epoch {active_epoch}, found one from {found}")
    return None


def transaction_epoch_again(active: EpochRecord, transaction_epoch: EpochRecord, now_ms: int) -> EpochRecord:
    """T: the segments of the transactions once more. To be created if absent, and read back.

    Args:
        active: A, the epoch that was active when the commit began to roll.
        transaction_epoch: the epoch in which the transactions began.
        now_ms: milliseconds since 1970.
    """
    return duplicate_of(transaction_epoch, active, max(active.creation_time_ms + 1, now_ms))


def active_epoch_again(active: EpochRecord, stored: EpochRecord) -> EpochRecord:
    """N: the active segments once more.

    Args:
        active: A.
        stored: T, as it was read back.

    Raises:
        ValueError: another epoch than T.
    """
    if stored.epoch != active.epoch + 1:
        raise ValueError(f"expected epoch {active.epoch + 1}, found {stored.epoch}")
    return duplicate_of(active, stored, stored.creation_time_ms + 1)


def is_rolled(committing: CommittingTransactions, current: EpochRecord) -> bool:
    """Whether the stream has moved on already, so that nothing is to be created any more."""
    return committing.active_epoch is not None and current.epoch > committing.active_epoch
