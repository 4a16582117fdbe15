"""The HTTP server of a process: uvicorn, with bounds for clients that send endless heads, or nothing.

uvicorn limits neither the connections that it accepts nor, with httptools as its parser, the size of a request's head
(its line and headers) or the time until a head is complete. A client without a token could take all files that the
process may open, fill memory with an endless header, and occupy each connection by sending single bytes. So the server
and the protocol here count:

    | bound                                                           | by default | what happens                  |
    |-----------------------------------------------------------------|------------|-------------------------------|
    | bytes of a request's head, or between two pieces of its body    | 32 KiB     | 400, and the connection ends  |
    | seconds from a head's first byte until the head is complete     | 10 s       | the connection ends           |
    | seconds without a request, also before the first one; above the |            |                               |
    | idle time of usual load balancers, which then close first       | 120 s      | the connection ends           |
    | connections at one time; at most half of the files that the     | 1024       | a further one ends that which |
    | process may open (`ulimit -n`)                                  |            | has longest had no request    |

If all connections have a request under way, a further one is ended itself.

The routes limit bodies, because the limit depends on the route. This module needs the extra `server`.

Source: docs/operations/security.md, "HTTP clients".
"""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any, ClassVar, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from accel.settings import HEAD_SECONDS, IDLE_SECONDS

logger = logging.getLogger(__name__)

HEAD_SIZE_BYTES_MAX: Final = 32 << 10
"""Limit of the line and the headers of a request; at most one more read from the network exceeds it."""

RELOAD_TICKS: Final = 100
"""Ticks of the server, each 0.1 s, between two looks for a renewed certificate."""

BACKLOG_MAX: Final = 2048
"""Clients that may wait to be accepted; uvicorn's default."""

NOTE_SECONDS: Final = 60.0
"""The least time between two lines of the log that all connections are taken."""


class BoundedHttp(HttpToolsProtocol):
    """One connection, with bounds for the heads of its requests. Threads: the event loop of its server.

    Attributes:
        head_seconds: the time limit of a head.
        connections_max: limit of open connections; each server has its own subclass with this value.
        noted_at: when that was last logged, likewise.
        since: when it began, or its last answer ended, by the loop's clock.
    """

    head_seconds = HEAD_SECONDS
    connections_max: ClassVar[int]
    noted_at = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Start the time of the first request's head."""
        self._is_in_head = True
        self._has_gone_on = False
        self._waiting_size_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self.since = self.loop.time()
        super().connection_made(transport)
        self._await_head(self.timeout_keep_alive)
        self._has_begun = False
        if len(self.connections) > self.connections_max:
            self._end_one()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer when the connection ends."""
        self._forget_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process bytes of requests, and count those of heads."""
        if self._is_in_head and (self._head_timer is None or not self._has_begun):
            self._forget_head()
            self._await_head(self.head_seconds)
        self._has_begun = True
        self._has_gone_on = False
        super().data_received(data)
        self._waiting_size_bytes = 0 if self._has_gone_on else self._waiting_size_bytes + len(data)
        if self._waiting_size_bytes > HEAD_SIZE_BYTES_MAX and not self.transport.is_closing():
            self.send_400_response(f"Expected at most {HEAD_SIZE_BYTES_MAX} bytes of headers, found more.")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Process a header; headers after the body are ignored."""
        if self._is_in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Stop the timer when a head is complete."""
        self._is_in_head, self._has_gone_on = False, True
        self._forget_head()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Process a piece of the body, which the route limits."""
        self._has_gone_on = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note the end of the body: the next bytes are the head of another request."""
        self._is_in_head, self._has_gone_on = True, True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Note when the answer ended."""
        self.since = self.loop.time()
        super().on_response_complete()

    def idle_seconds(self) -> float:
        """How long it has had no request; 0 while it has one, or ends."""
        cycle: RequestResponseCycle | None = self.cycle
        is_idle = (cycle is None or cycle.response_complete) and not self.transport.is_closing()
        return self.loop.time() - self.since if is_idle else 0.0

    def _end_one(self) -> None:
        connections: Any = self.connections
        max(connections, key=BoundedHttp.idle_seconds).transport.close()
        if self.since - self.noted_at >= NOTE_SECONDS or not self.noted_at:
            type(self).noted_at = self.since
            logger.warning("all %d connections are taken: the idle ones are ended for others", self.connections_max)

    def _await_head(self, seconds: float) -> None:
        self._head_timer = self.loop.call_later(seconds, self.transport.close)

    def _forget_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class Server(uvicorn.Server):
    """A server that does not raise the signals again that ended it; they are in `signals`. Threads: its event loop.

    Args:
        config: of `listening_config`.
        drain_seconds: how long it answers on after SIGTERM, so that load balancers see that it is not ready any more.
        on_drain: called when that begins.
        reload: called every 10 s with False, and after SIGHUP with True: loads what changed in files.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        drain_seconds: float = 0.0,
        on_drain: Callable[[], object] = bool,
        reload: Callable[[bool], object] = bool,
    ) -> None:
        super().__init__(config)
        self.signals: list[int] = []
        self.is_reload_asked = False
        self._drain_seconds = drain_seconds
        self._on_drain = on_drain
        self._reload = reload
        self._ends_at: float | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as uvicorn has it
        """End after the requests under way, after SIGTERM when it has drained; at a second signal without them."""
        self.signals.append(sig)
        if sig != signal.SIGTERM or not self._drain_seconds or len(self.signals) > 1:
            self.should_exit, self.force_exit = True, self.should_exit

    async def on_tick(self, counter: int) -> bool:
        """What is due each 0.1 s."""
        if self.signals and not self.should_exit:
            now = asyncio.get_running_loop().time()
            if self._ends_at is None:
                self._ends_at = now + self._drain_seconds
                self._on_drain()
            self.should_exit = now >= self._ends_at
        if self.is_reload_asked or counter % RELOAD_TICKS == RELOAD_TICKS - 1:
            is_asked, self.is_reload_asked = self.is_reload_asked, False
            self._reload(is_asked)
        return await super().on_tick(counter)


def listening_config(
    app: Any, connections_max: int, idle_seconds: float = IDLE_SECONDS, **options: Any
) -> uvicorn.Config:
    """Return the configuration by which uvicorn serves an application here.

    Args:
        app: an ASGI application.
        connections_max: limit of open connections; lower if the process may not open twice as many files.
        idle_seconds: how long a connection may be without a request.
        options: further options of `uvicorn.Config`.
    """
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    files = BACKLOG_MAX * 12 if files == resource.RLIM_INFINITY else files
    bounds = {"connections_max": min(connections_max, files // 2)}
    return uvicorn.Config(
        app,
        http=type("BoundedHttp", (BoundedHttp,), bounds),
        backlog=max(1, min(BACKLOG_MAX, files // 12)),  # so many are accepted at one time, before any can be ended
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=idle_seconds,  # type: ignore[arg-type]  # it is passed to call_later
        **options,
    )
