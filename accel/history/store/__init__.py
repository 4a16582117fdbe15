"""Stream histories in versioned tables: the rules of `accel.history`, read and written.

    StreamStore        scopes and streams: created, opened, deleted, recovered
    Stream             one stream: queries and workflows
    HistorySettings    settings of a process
    StreamRetention    the result of a run of retention in a stream; its `Retained` is the outcome in a word
    SegmentHost        holds the segments; `GivenSizes` and `accel.testing.MemorySegments` are substitutes

From the bottom: `keys` defines all keys; `parts` is shared by all; `epoch_store`, `cut_reading` and
`transaction_store` read and write; `workflows` decides which workflow has a stream, and scales, commits and truncates;
`retention_workflow` and `lifecycle` are the other workflows; `recovering` finishes them. A workflow is a sequence of
small steps. Each step may be done twice, also by two processes at once.
"""

from __future__ import annotations

from accel.history.store.retention_workflow import Retained
from accel.history.store.segment_host import GivenSizes, SegmentHost
from accel.history.store.settings import HistorySettings
from accel.history.store.stream import Stream
from accel.history.store.stream_store import StreamRetention, StreamStore

__all__ = [
    "GivenSizes",
    "HistorySettings",
    "Retained",
    "SegmentHost",
    "Stream",
    "StreamRetention",
    "StreamStore",
]
