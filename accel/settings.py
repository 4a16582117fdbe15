"""The settings of readers and catalogs, as frozen values. Store, clock and random source are not settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from accel.errors import InvalidArgument
from bloom.filter_store import BYTES_MAX as FILTERS_SIZE_BYTES_MAX
from bloom.geometry import HASHED_IDS_MAX
from loaders.settings import CONNECTIONS, MIB, check_settings
from range_index.stream_index import ARRAY_BYTES_MAX, VIEW_BYTES_MAX

DEFAULT_POLICY: Final = "spread"
"""The policy that chooses which objects a lookup opens."""

POLL_SECONDS: Final = 1.0
"""Minimum interval between requests for a newer image."""

IDLE_POLL_SECONDS: Final = 2.5
"""The same if the image has not changed for 10 seconds: below one request a second, as each check sends two."""

PREPARED_SECONDS: Final = 3600.0
"""Lifetime of ids that a writer prepares: the maximum time to write an object and commit it."""


ENDS_SIZE_BYTES_MAX: Final = 64 * MIB
"""The default bound of the memory for the known ends of streams: 4,000,000 streams."""

LISTENING_CONNECTIONS_MAX: Final = 1024
"""Limit of open connections of one server."""

IDLE_SECONDS: Final = 120.0
"""How long a connection may be without a request. Proxies and load balancers use idle connections for 60 to 90 s."""

HEAD_SECONDS: Final = 10.0
"""Time limit for receiving the request line and the headers."""


def checked_secret(secret: str) -> bytes:
    """Check the secret that owners and clients share, and return its bytes.

    Raises:
        InvalidArgument: fewer than 16 characters.
    """
    if len(secret) < 16:
        advice = "make one, for example by: openssl rand -hex 16"
        raise InvalidArgument(f"expected a secret of at least 16 characters, found {len(secret)}", advice)
    return secret.encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Limits and choices of an accelerator. docs/operations/operations.md explains every default.

    Args:
        policy: which objects to open next: "spread", "window", "window+preload" or "load-all".
        parallel_loads: how many requests may be under way at once, for one node and for all. Requests that take
            `max_wait_load_seconds` or longer count for their node only, so that a node that hangs does not take the
            threads of others; so there are up to three times as many threads.
        max_wait_load_seconds: a lookup waits no longer than this for objects that are slow to open, if it can open
            others; 0.5 by default. The slow requests stay under way, and their results are used when they arrive.
        hedge_percent: reads of objects and hints that are slower than 95 of 100 others are sent a second time: at most
            this share of 100 requests; 0 = never.
        view_size_bytes_max: memory of views: what is known of a stream in a node.
        object_index_size_bytes_max: memory of object indexes; 256 MiB is about 2,480 objects of 9,000 streams.
        filter_size_bytes_max: memory of filters. They are kept and evicted in tiles of up to 64 of a node: the first
            filter of 9,000 streams takes 105 kB, 64 of them 826 kB. A bound of a few tiles keeps almost none.
        hashed_ids_max: stream ids whose hash is kept, so that filters are built faster.
        refresh_seconds: a lookup with a short answer requests a newer image, at most once in this many seconds; and at
            most once in 2.5 seconds if the image has not changed for 10 seconds.
        use_hints: read index snapshots from the bucket, and filters where these save requests; if there are none, that
            costs up to two requests a node.
        slow_lookup_seconds: lookups that take at least this long are logged, and the last 32 of them are kept with
            their traces; None = none.
        bypass: answer every lookup by opening all objects, as the original lookup does; for comparison and emergencies.
    """

    policy: str = DEFAULT_POLICY
    parallel_loads: int = CONNECTIONS
    max_wait_load_seconds: float = 0.5
    hedge_percent: int = 5
    view_size_bytes_max: int = VIEW_BYTES_MAX
    object_index_size_bytes_max: int = ARRAY_BYTES_MAX
    filter_size_bytes_max: int = FILTERS_SIZE_BYTES_MAX
    hashed_ids_max: int = HASHED_IDS_MAX
    refresh_seconds: float = POLL_SECONDS
    use_hints: bool = True
    slow_lookup_seconds: float | None = None
    bypass: bool = False

    def __post_init__(self) -> None:
        check_settings(self, least={"refresh_seconds": 0, "hedge_percent": 0}, most={"hedge_percent": 100})


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogSettings:
    """Bounds and choices of one process that uses a catalog.

    Args:
        parallel_requests: the maximum number of simultaneous requests of one refresh or one start.
        ids_block: object ids that one write of the counter takes.
        checkpoint_commits: a node's writer writes a checkpoint, the ends of its streams, each time after this number of
            commits. A new session opens at most about this number of object indexes before it can write.
    """

    parallel_requests: int = 32
    ids_block: int = 1024
    checkpoint_commits: int = 64

    def __post_init__(self) -> None:
        check_settings(self)
