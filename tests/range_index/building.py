"""What the tests of this package are made of."""

from dataclasses import dataclass

import numpy as np

from range_index import ObjectRanges, StreamRangeIndex

Holdings = dict[int, tuple[int, int, bool]]
"""Of one object: stream id -> (start, end, holed)."""

ROOMY_BYTES = 1 << 24


@dataclass
class ManualTimer:
    """A timer that goes on only when told to, or by a fixed step at each look."""

    now: float = 0.0
    step: float = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def ranges_of(holdings: Holdings) -> ObjectRanges:
    ids = sorted(holdings)
    table = np.array([holdings[stream_id][:2] for stream_id in ids], dtype=np.int64).reshape(-1, 2)
    holed = np.array([holdings[stream_id][2] for stream_id in ids], dtype=np.bool_)
    return ObjectRanges.from_columns(np.array(ids, dtype=np.int64), table[:, 0].copy(), table[:, 1].copy(), holed)


def index_of(
    timer: ManualTimer | None = None,
    *,
    ttl_seconds: float = 600.0,
    streams_max: int = 1000,
    array_bytes_max: int = ROOMY_BYTES,
    view_bytes_max: int = ROOMY_BYTES,
) -> StreamRangeIndex:
    """An index whose views live exactly for the time to live: the jitter is in the middle."""
    return StreamRangeIndex(
        timer=timer or ManualTimer(),
        jitter=lambda: 0.5,
        ttl_seconds=ttl_seconds,
        streams_max=streams_max,
        array_bytes_max=array_bytes_max,
        view_bytes_max=view_bytes_max,
    )
