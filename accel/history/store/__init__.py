"""Stream histories in versioned tables: what `accel.history` says, read and written.

    StreamStore        scopes and streams: created, opened, deleted, recovered
    Stream             one of them: questions and workflows
    HistorySettings    choices of a process
    StreamRetention    what a run of retention did to a stream; its `Retained` says in a word what became of it
    SegmentHost        whoever holds the segments; `GivenSizes` and `MemorySegments` stand in for it

`places` and `cells` say where everything lies, `epoch_reading` and `cut_reading` ask, and each workflow has a module of
its own: `creating`, `scale_workflow`, `commit_workflow`, `truncation_workflow`, `retention_workflow`, `ending`,
`recovering`, `leftovers`. A workflow is a row of small steps, each of which may be done twice, by two processes at
once.
"""

from __future__ import annotations

from accel.history.store.hosts import GivenSizes, MemorySegments, SegmentHost
from accel.history.store.retention_outcomes import Retained
from accel.history.store.retention_runs import StreamRetention
from accel.history.store.settings import HistorySettings
from accel.history.store.stream import Stream
from accel.history.store.stream_store import StreamStore

__all__ = [
    "GivenSizes",
    "HistorySettings",
    "MemorySegments",
    "Retained",
    "SegmentHost",
    "Stream",
    "StreamRetention",
    "StreamStore",
]
