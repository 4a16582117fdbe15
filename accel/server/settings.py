"""The limits of a sidecar, and access to it: frozen, comparable, and printable without its secret."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import Final

from accel.errors import InvalidArgument
from accel.settings import IDLE_SECONDS, LISTENING_CONNECTIONS_MAX, checked_secret
from loaders.settings import check_settings
from loaders.store.bill import Prices

DEFAULT_PORT: Final = 8480

LIST_PRICES: Final = Prices()
WRITES_TO_READS: Final = 12.5
"""The price of a write in that of a read, on S3."""

SLOW_LOOKUP_SECONDS: Final = 0.5
"""Lookups of a sidecar that take at least this long are kept with their traces."""

LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
"""Names of the sidecar in the header Host of a browser or client on the same machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarSettings:
    """Limits and access of one sidecar. Threads: immutable.

    Args:
        host: the address to listen on; by default only this machine can reach it.
        port: the port; 8480.
        token: needed by clients to write, and on any address but loopback to read; at least 16 characters. None = no
            client may write. It is not printed.
        is_open: clients on addresses other than loopback may read without a token.
        allowed_hosts: further names that the header Host may have besides loopback; any name is allowed where clients
            need a token.
        connections_max: connections at one time; fewer if the process may not open that many files. A further one ends
            the connection that has longest had no request.
        requests_max: requests below /v1 under way at one time; further ones get 429.
        request_seconds: how long a request may take; then it gets 504.
        idle_seconds: how long a connection may be without a request; longer than a load balancer keeps idle ones.
        drain_seconds: how long it answers on after SIGTERM, while `/readyz` says 503: longer than a load balancer or an
            orchestrator takes to notice. 0 = not at all.
        currency: of the prices that the console shows.
        per_thousand_reads: price of a thousand GETs; that of S3 Standard in us-east-1. A write costs 12.5 times as much
            as a read, as on S3.

    Raises:
        ValueError: a number of 0 or below.
        InvalidArgument: a short token; or an address besides loopback without a token or `is_open`.
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    token: str | None = field(default=None, repr=False)
    is_open: bool = False
    allowed_hosts: frozenset[str] = frozenset()
    connections_max: int = LISTENING_CONNECTIONS_MAX
    requests_max: int = 256
    request_seconds: float = 30.0
    idle_seconds: float = IDLE_SECONDS
    drain_seconds: float = 1.0
    currency: str = LIST_PRICES.currency
    per_thousand_reads: float = LIST_PRICES.per_thousand_reads

    def __post_init__(self) -> None:
        check_settings(self, least={"port": 0, "drain_seconds": 0})
        if self.token is not None:
            checked_secret(self.token)
        if not self.is_loopback and self.token is None and not self.is_open:
            raise InvalidArgument(
                f"expected a token for clients of {self.host}, as it is not loopback, found none",
                "give one (--token-file, ACCEL_TOKEN), let all clients read (--open), or leave --host out",
            )

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host in LOOPBACK_NAMES:
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def prices(self) -> Prices:
        """The prices of requests."""
        writes = self.per_thousand_reads * WRITES_TO_READS
        return Prices(currency=self.currency, per_thousand_reads=self.per_thousand_reads, per_thousand_writes=writes)

    @property
    def reads_need_token(self) -> bool:
        """Whether clients need the token to read, too."""
        return not self.is_loopback and not self.is_open
