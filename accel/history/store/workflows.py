"""Everything that can be asked and done with one stream, put together from its parts."""

from __future__ import annotations

from dataclasses import dataclass

from accel.history.store.commit_workflow import CommitWorkflow
from accel.history.store.creating import Creating
from accel.history.store.cut_reading import CutReading
from accel.history.store.ending import Ending
from accel.history.store.epoch_reading import EpochReading
from accel.history.store.epoch_writing import EpochWriting
from accel.history.store.marks import Marks
from accel.history.store.ownership import Ownership
from accel.history.store.parts import StreamParts
from accel.history.store.retention_workflow import RetentionWorkflow
from accel.history.store.scale_workflow import ScaleWorkflow
from accel.history.store.transaction_store import TransactionStore
from accel.history.store.truncation_workflow import TruncationWorkflow
from accel.history.store.updating import Updating


@dataclass(frozen=True, slots=True, eq=False)
class Workflows:
    """Questions and workflows of one stream. Threads: any."""

    ownership: Ownership
    epochs: EpochReading
    cuts: CutReading
    writing: EpochWriting
    creating: Creating
    updating: Updating
    scales: ScaleWorkflow
    transactions: TransactionStore
    commits: CommitWorkflow
    truncations: TruncationWorkflow
    retention: RetentionWorkflow
    ending: Ending
    marks: Marks

    @classmethod
    def of(cls, parts: StreamParts) -> Workflows:
        """Those of a stream."""
        ownership = Ownership(parts)
        epochs, writing = EpochReading(parts), EpochWriting(parts)
        cuts = CutReading(parts, epochs)
        transactions = TransactionStore(parts, epochs)
        commits = CommitWorkflow(parts, epochs, writing, transactions, ownership)
        truncations = TruncationWorkflow(parts, cuts, ownership)
        return cls(
            ownership=ownership,
            epochs=epochs,
            cuts=cuts,
            writing=writing,
            creating=Creating(parts, writing),
            updating=Updating(parts, ownership),
            scales=ScaleWorkflow(parts, epochs, writing, ownership),
            transactions=transactions,
            commits=commits,
            truncations=truncations,
            retention=RetentionWorkflow(parts, epochs, cuts, truncations),
            ending=Ending(parts, epochs, cuts, writing, transactions, commits),
            marks=Marks(parts),
        )
