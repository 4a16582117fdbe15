"""Stream histories in versioned tables: the rules of `accel.history`, read and written.

    StreamStore        scopes and streams: created, opened, deleted, recovered
    Stream             one of them: questions and workflows
    HistorySettings    choices of a process
    StreamRetention    what a run of retention did to a stream; its `Retained` says in a word what became of it
    SegmentHost        holds the segments; `GivenSizes` and `accel.testing.MemorySegments` stand in

From the bottom: `keys` says where everything lies; `parts` is shared by all; `epoch_store`, `cut_reading` and
`transaction_store` read and write; `ownership` decides which workflow has a stream; each workflow has a module
(`lifecycle`, `scale_workflow`, `commit_workflow`, `truncation_workflow`, `retention_workflow`); `recovering` finishes
workflows, and `repair` mends records. A workflow is a row of small steps, each of which may be done twice, by two
processes at once.
"""

from __future__ import annotations

from accel.history.store.hosts import GivenSizes, SegmentHost
from accel.history.store.parts import HistorySettings
from accel.history.store.retention_workflow import Retained, StreamRetention
from accel.history.store.stream import Stream
from accel.history.store.stream_store import StreamStore

__all__ = [
    "GivenSizes",
    "HistorySettings",
    "Retained",
    "SegmentHost",
    "Stream",
    "StreamRetention",
    "StreamStore",
]
