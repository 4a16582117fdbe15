"""The HTTP server of a process: uvicorn, with bounds for clients that send endless heads, or nothing.

uvicorn limits neither the connections that it accepts nor, with httptools as its parser, the size of a request's head
(its line and headers) or the time until a head is complete. A client without a token could take all files that the
process may open, fill memory with an endless header, and occupy each connection by sending single bytes. So the server
and the protocol here count:

    | bound                                                           | by default | what happens                  |
    |-----------------------------------------------------------------|------------|-------------------------------|
    | bytes of a request's head, or between two pieces of its body    | 32 KiB     | 400, and the connection ends  |
    | seconds from the connection, or from a head's first byte, until |            |                               |
    | the head is complete                                            | 10 s       | the connection ends           |
    | connections at one time; fewer if the process may not open that | 1024       | a further one ends that which |
    | many files (`ulimit -n`)                                        |            | has longest had no request    |

While all connections have a request under way, none is accepted: clients wait in the queue of the system.

The routes limit bodies, because the limit depends on the route. This module needs the extra `server`.

Source: docs/operations/security.md, "HTTP clients".
"""

from __future__ import annotations

import asyncio
import logging
import resource
from contextlib import suppress
from functools import partial
from socket import socket
from types import FrameType
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from accel.streams.settings import HEAD_SECONDS
from loaders.settings import CONNECTIONS

logger = logging.getLogger(__name__)

HEAD_SIZE_BYTES_MAX: Final = 32 << 10
"""Limit of the line and the headers of a request; at most one more read from the network exceeds it."""

KEEP_ALIVE_SECONDS: Final = 30
"""How long a connection may be idle between two requests."""

OWN_FILES: Final = 3 * CONNECTIONS
"""Files that are left for the process itself: connections to stores, files of a store, logs; at most half of all."""

IDLE_SECONDS: Final = 1.0
"""A connection is not ended for another one sooner after it began, or was answered: a request may be on the way."""

PAUSE_SECONDS: Final = 0.001
"""The pause before it is checked again whether a connection has ended; longer if none was asked to."""

NOTE_SECONDS: Final = 60.0
"""The least time between two lines of the log that all connections are taken."""


class BoundedHttp(HttpToolsProtocol):
    """One connection, with bounds for the heads of its requests. Threads: the event loop of its server.

    Attributes:
        head_seconds: the time limit of a head; each server has its own subclass with this value.
        lost: set when the connection has ended.
        since: when it began, or its last answer ended, by the loop's clock.
    """

    head_seconds = HEAD_SECONDS

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Start the time of the first request's head."""
        self._is_in_head = True
        self._has_gone_on = False
        self._waiting_size_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self.lost, self.since = asyncio.Event(), self.loop.time()
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer when the connection ends."""
        self._forget_head()
        super().connection_lost(exc)
        self.lost.set()

    def data_received(self, data: bytes) -> None:
        """Process bytes of requests, and count those of heads."""
        if self._is_in_head and self._head_timer is None:
            self._await_head()
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

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(self.head_seconds, self.transport.close)

    def _forget_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class BoundedServer(uvicorn.Server):
    """uvicorn's server, which accepts connections one by one, and no more than its bound.

    Threads: the event loop that it runs in.

    Args:
        config: by `listening_config`.
        connections_max: limit of open connections; lower if the process may not open that many files.

    Attributes:
        signals: those that ended it; they are not raised again.
    """

    def __init__(self, config: uvicorn.Config, connections_max: int) -> None:
        super().__init__(config)
        self.signals: list[int] = []
        self._open_max = connections_for(resource.getrlimit(resource.RLIMIT_NOFILE)[0], connections_max)
        if self._open_max < connections_max:
            logger.warning("at most %d connections, not %d: see ulimit -n", self._open_max, connections_max)
        self._open: set[asyncio.Task[None]] = set()
        self._accepting: list[asyncio.Task[None]] = []
        self._noted_at = -NOTE_SECONDS

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as uvicorn has it
        """End after the requests under way; at a second signal without them."""
        self.signals.append(sig)
        self.should_exit, self.force_exit = True, self.should_exit

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Listen; connections are accepted here, as asyncio accepts all until the process has no file left."""
        await super().startup(sockets)
        loop = asyncio.get_running_loop()
        for listening in [each for server in self.servers for each in server.sockets]:
            loop.remove_reader(listening)
            self._accepting.append(loop.create_task(self._accept(loop, listening.dup())))
        await asyncio.sleep(0)  # they begin: one that is cancelled before would not close its socket

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        """Accept no more connections, and end."""
        for accepting in self._accepting:
            accepting.cancel()
        await super().shutdown(sockets)

    async def _accept(self, loop: asyncio.AbstractEventLoop, listening: socket) -> None:
        with listening:
            while True:
                try:
                    accepted, _ = await loop.sock_accept(listening)
                except OSError as error:
                    logger.warning("no connection can be accepted: %s", error)
                    await asyncio.sleep(1)
                    continue
                while len(self._open) >= self._open_max:  # noqa: ASYNC110 - it also looks who may be ended by now
                    await asyncio.sleep(PAUSE_SECONDS if self._end_one(loop.time()) else 50 * PAUSE_SECONDS)
                held = loop.create_task(self._hold(loop, accepted))
                self._open.add(held)
                held.add_done_callback(self._open.discard)

    def _end_one(self, now: float) -> bool:
        """End the connection that has longest had no request; returns whether there was one."""
        if now - self._noted_at >= NOTE_SECONDS:
            self._noted_at = now
            logger.warning("all connections are taken: those that have longest had no request are ended")
        connections: set[Any] = self.server_state.connections
        oldest = max(connections, key=BoundedHttp.idle_seconds, default=None)
        if oldest is None or oldest.idle_seconds() < IDLE_SECONDS:
            return False
        oldest.transport.close()
        return True

    async def _hold(self, loop: asyncio.AbstractEventLoop, accepted: socket) -> None:
        """Serve a connection until it ends."""
        http: Any = self.config.http_protocol_class
        protocol = partial(http, self.config, self.server_state, self.lifespan.state)
        tls, limit = self.config.ssl, HEAD_SECONDS if self.config.ssl else None
        with suppress(OSError):  # it ended within its handshake
            _, made = await loop.connect_accepted_socket(protocol, accepted, ssl=tls, ssl_handshake_timeout=limit)
            await made.lost.wait()


def connections_for(files_max: int, connections_max: int) -> int:
    """How many connections a process may hold that may open this number of files.

    >>> connections_for(1024, 1024), connections_for(64, 1024), connections_for(65536, 1024)
    (832, 32, 1024)
    """
    if files_max == resource.RLIM_INFINITY:
        return connections_max
    return max(1, min(connections_max, files_max - min(OWN_FILES, files_max // 2)))


def listening_config(app: Any, *, head_seconds: float = HEAD_SECONDS, **options: Any) -> uvicorn.Config:
    """Return the configuration by which uvicorn serves an application here.

    Args:
        app: an ASGI application.
        head_seconds: the time limit of the head of a request.
        options: further options of `uvicorn.Config`.
    """
    return uvicorn.Config(
        app,
        loop="asyncio",
        http=type("BoundedHttp", (BoundedHttp,), {"head_seconds": head_seconds}),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        **options,
    )
