"""What becomes of a stream in a run of retention.

| outcome    | the stream                                                                                |
|------------|-------------------------------------------------------------------------------------------|
| truncated  | begins at a recorded cut now                                                              |
| recorded   | has another recorded cut; there was nothing to truncate                                   |
| no policy  | is kept whole, and nothing was recorded                                                   |
| sealed     | is sealed, or about to be, and left alone                                                 |
| unfinished | is half created, or was deleted meanwhile                                                 |
| busy       | was in the hands of another workflow each time it was tried; the next run finds it again  |
| failed     | is as it was, or halfway; the error says why, and the next run goes on from there         |
"""

from __future__ import annotations

from enum import Enum


class Retained(Enum):
    """What became of a stream; the module explains each."""

    TRUNCATED = "truncated"
    RECORDED = "recorded"
    NO_POLICY = "no policy"
    SEALED = "sealed"
    UNFINISHED = "unfinished"
    BUSY = "busy"
    FAILED = "failed"
