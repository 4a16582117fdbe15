"""The settings of maintenance, and the thresholds by which it begins a job.

    | job         | begins if                                                 | but not again until                   |
    |-------------|-----------------------------------------------------------|---------------------------------------|
    | compact     | a node lists more than `max_objects_per_node` objects, or | a list has grown by a quarter of that |
    |             | will within an hour; a day after the last run             | limit, or `COMPACT_SECONDS` passed    |
    | build-hints | `HINT_OBJECTS` objects of a node came or went since its   | `HINT_RETRY_SECONDS` passed           |
    |             | hints were built, or fewer did, and `HINT_SECONDS` passed |                                       |
    | gc          | a retired or prepared object may be deleted; a day after  | `GC_SECONDS` passed                   |
    |             | the last run, for what only a listing finds               |                                       |

A run that failed, or was killed, is repeated after `RETRY_SECONDS`; one that was stopped, at the next look.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from accel.compaction.settings import CompactionSettings
from loaders.settings import MIB, check_settings

LOOK_SECONDS: Final = 60.0
"""The pause between two looks. A look without work: 6 requests and those of a refresh; 1 while another one holds."""

LEASE_SECONDS: Final = 180.0
"""A lease that was not renewed for this time may be taken over. It is renewed after a third of it."""

COMPACT_SECONDS: Final = 3600.0
COMPACT_GROWTHS: Final = 4
HINT_OBJECTS: Final = 50
HINT_SECONDS: Final = 3600.0
HINT_RETRY_SECONDS: Final = 600.0
GC_SECONDS: Final = 3600.0
RETRY_SECONDS: Final = 900.0
DAY_SECONDS: Final = 86_400.0

FAILED_LOOK_SECONDS_MAX: Final = 600.0
"""After looks that failed, the pause doubles up to this."""

PARALLEL_REQUESTS: Final = 2
"""Requests of maintenance that are under way at once."""

YIELD_SECONDS_MAX: Final = 0.1
"""A request waits at most this long for the requests of others, so that a busy process is maintained, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceSettings:
    """Budget and limits of maintenance. Threads: immutable.

    Args:
        requests_per_second: of all its requests to the store. After an answer that the store is busy the rate is
            halved, and rises again with each request that succeeds.
        bytes_per_second: of the bodies that it sends and receives.
        compaction: which nodes are compacted, and how.

    Raises:
        ValueError: a number of 0 or below.
    """

    requests_per_second: float = 50.0
    bytes_per_second: float = 32.0 * MIB
    compaction: CompactionSettings = field(default_factory=CompactionSettings)

    def __post_init__(self) -> None:
        check_settings(self)
