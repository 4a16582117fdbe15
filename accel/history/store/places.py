"""Where everything of a stream's history lies: names of tables, and keys in them.

    | table                                                  | key                   | value                      |
    |--------------------------------------------------------|-----------------------|----------------------------|
    | _system/scopes                                         | entry/scope           | which scope, and its phase |
    |                                                        | listed/scope/id       | nothing                    |
    | _system/deletedStreams                                 | scope/stream          | its last segment number    |
    | _system/counters                                       | what is counted       | the next id                |
    | _system/completedTransactionsBatches                   | batch                 | nothing                    |
    | _system/completedTransactionsBatch-<batch>             | scope/stream/id       | how the transaction ended  |
    | <scope>/streamsInScope.#.<scope id>                    | entry/stream          | which stream, its phase    |
    |                                                        | listed/stream/id      | nothing                    |
    | <scope>/<stream>/metadata.#.<stream id>                | see below             |                            |
    | <scope>/<stream>/epochsWithTransactions.#.<stream id>  | epoch                 | nothing                    |
    | <scope>/<stream>/readerGroups.#.<stream id>            | group                 | where its readers stand    |
    | <scope>/<stream>/transactionsInEpoch-<e>.#.<stream id> | transaction id        | the transaction            |

Whatever is deleted and made again gets another unique id, so that nothing which lingers of the first can be taken for
the second. Keys with numbers are not padded: they are asked for one by one, and never listed in order.

An entry is written again and again as its name comes again, so it is deleted by a tombstone, and entries are never
listed. What is listed has the unique id in its key: it is written once, and erased plainly.

Source: PDP-35.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from accel.errors import InvalidArgument
from range_index.epoch_times import Block

SCOPES: Final = "_system/scopes"
DELETED_STREAMS: Final = "_system/deletedStreams"
COUNTERS: Final = "_system/counters"
COMPLETED_BATCHES: Final = "_system/completedTransactionsBatches"
SYSTEM_TABLES: Final = (DELETED_STREAMS, COUNTERS, COMPLETED_BATCHES, SCOPES)
"""In the order in which they are made: whoever finds the last one finds all."""

OWNED: Final = ".#."
"""Stands before the unique id in the name of each table of a scope or a stream, and in no other name."""

TRANSACTION_IDS: Final = "transactionIds"
SEGMENT_STREAMS: Final = "segmentStreams"

CREATION_TIME: Final = "creationTime"
LAYOUT: Final = "layout"
CONFIGURATION: Final = "configuration"
STATE: Final = "state"
TRANSITION: Final = "epochTransition"
TRUNCATION: Final = "truncation"
COMMITTING: Final = "committingTxns"
COMMIT_ORDER: Final = "commitOrder"
CURRENT_EPOCH: Final = "currentEpochRecord"
TIMES_ROOT: Final = "historyIndex"
RETENTION: Final = "retention"
WAITING_PROCESSOR: Final = "waitingRequestProcessor"
REQUESTS_PREFIX: Final = "request-"

LISTED: Final = "listed/"
"""What the keys that are listed begin with."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", re.ASCII)


@dataclass(frozen=True, slots=True)
class StreamIdentity:
    """Which stream: its name, and what tells it from earlier ones of that name.

    Args:
        scope: its scope.
        name: within the scope.
        unique_id: drawn when it was created.
    """

    scope: str
    name: str
    unique_id: UUID

    def __str__(self) -> str:
        return f"{self.scope}/{self.name}"

    @property
    def metadata_table(self) -> str:
        """The table of everything but transactions."""
        return self._table("metadata")

    @property
    def reader_groups_table(self) -> str:
        """The table of groups of readers; made when there is the first one."""
        return self._table("readerGroups")

    @property
    def epochs_table(self) -> str:
        """The table of epochs that may have transactions."""
        return self._table("epochsWithTransactions")

    def transactions_table(self, epoch: int) -> str:
        """The table of transactions that began in an epoch."""
        return self._table(f"transactionsInEpoch-{epoch}")

    @property
    def transactions_prefix(self) -> str:
        """What the names of all tables of transactions begin with; those of earlier streams of this name, too."""
        return f"{self}/transactionsInEpoch-"

    def epoch_of_table(self, table: str) -> int | None:
        """The epoch whose transactions a table holds; None for a table of another stream."""
        epoch, _, unique_id = table.removeprefix(self.transactions_prefix).partition(".#.")
        return int(epoch) if unique_id == str(self.unique_id) and epoch.isdecimal() else None

    def _table(self, name: str) -> str:
        return f"{self}/{name}.#.{self.unique_id}"


def entry_key(name: str) -> str:
    """Where it is told which scope, or which stream, has a name."""
    return f"entry/{name}"


def listed_key(name: str, unique_id: UUID) -> str:
    """What a scope or a stream is listed by; in the order of names, since no character of a name comes before "%"."""
    return f"{LISTED}{name}/{unique_id}"


def listed_name(key: str) -> tuple[str, UUID]:
    """The name and the unique id in such a key.

    Raises:
        ValueError: another key.
    """
    name, _, unique_id = key.removeprefix(LISTED).partition("/")
    return name, UUID(unique_id)


def checked_name(what: str, name: object) -> str:
    """The name of a scope or a stream.

    Raises:
        InvalidArgument: anything but 1 to 200 ASCII letters, digits, dots, dashes and underscores, of which the first
            is a letter or a digit.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidArgument(f"expected a {what} of letters, digits, '.', '-' and '_', found {name!r}")
    return name


def streams_table(scope: str, scope_id: UUID) -> str:
    """The table of a scope's streams."""
    return f"{scope}/streamsInScope.#.{scope_id}"


def completed_table(batch: int) -> str:
    """The table of one batch of completed transactions."""
    return f"_system/completedTransactionsBatch-{batch}"


def completed_key(identity: StreamIdentity, transaction_id: UUID) -> str:
    """Where the end of a transaction is told."""
    return f"{identity}/{transaction_id}"


def epoch_key(epoch: int) -> str:
    """An epoch's record."""
    return f"epochRecord-{epoch}"


def chunk_key(chunk: int) -> str:
    """A chunk of the history."""
    return f"historyTimeSeriesChunk-{chunk}"


def times_key(block: Block) -> str:
    """A block of the index of times."""
    return f"{TIMES_ROOT}-{block.kind.value}-{block.number}"


def sealed_epoch_key(segment_id: int) -> str:
    """Which epoch sealed a segment."""
    return f"segmentSealedEpochPath-{segment_id}"


def shard_key(shard: int) -> str:
    """A shard of sealed sizes."""
    return f"segmentsSealedSizeMapShard-{shard}"


def cut_key(recording_time_ms: int) -> str:
    """A recorded cut."""
    return f"retentionCuts-{recording_time_ms}"


def request_key(workflow_id: UUID) -> str:
    """What a workflow is to do."""
    return f"{REQUESTS_PREFIX}{workflow_id}"


def marker_key(segment_id: int) -> str:
    """Until when a segment has little load."""
    return f"markers-{segment_id}"


def segment_stream_key(segment_id: int) -> str:
    """Which stream of the object layer holds a segment's data."""
    return f"segmentStream-{segment_id}"
