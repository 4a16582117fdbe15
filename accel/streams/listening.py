"""The HTTP server of a process: uvicorn, with bounds for clients that send endless heads, or nothing.

uvicorn limits connections and the idle time between two requests. With httptools as its parser it limits neither the
size of a request's head (its line and headers) nor the time until a head is complete. A client without a token could
fill memory with an endless header, and occupy each connection by sending single bytes. So the protocol here counts:

    | bound                                                           | by default | what happens                  |
    |-----------------------------------------------------------------|------------|-------------------------------|
    | bytes of a request's head, or between two pieces of its body    | 32 KiB     | 400, and the connection ends  |
    | seconds from the connection, or from a head's first byte, until |            |                               |
    | the head is complete                                            | 10 s       | the connection ends           |
    | connections at one time                                         | 1024       | 503                           |

The routes limit bodies, because the limit depends on the route. This module needs the extra `server`.

Source: docs/operations/security.md, "HTTP clients".
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from accel.streams.settings import HEAD_SECONDS, LISTENING_CONNECTIONS_MAX

HEAD_SIZE_BYTES_MAX: Final = 32 << 10
"""Limit of the line and the headers of a request; at most one more read from the network exceeds it."""

KEEP_ALIVE_SECONDS: Final = 30
"""How long a connection may be idle between two requests."""


class BoundedHttp(HttpToolsProtocol):
    """One connection, with bounds for the heads of its requests. Threads: the event loop of its server.

    Attributes:
        head_seconds: the time limit of a head; each server has its own subclass with this value.
    """

    head_seconds = HEAD_SECONDS

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Start the time of the first request's head."""
        self._is_in_head = True
        self._has_gone_on = False
        self._waiting_size_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer when the connection ends."""
        self._forget_head()
        super().connection_lost(exc)

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

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(self.head_seconds, self.transport.close)

    def _forget_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def listening_config(
    app: Any, *, connections_max: int = LISTENING_CONNECTIONS_MAX, head_seconds: float = HEAD_SECONDS, **options: Any
) -> uvicorn.Config:
    """Return the configuration by which uvicorn serves an application here.

    Args:
        app: an ASGI application.
        connections_max: limit of open connections; further ones are answered with 503.
        head_seconds: the time limit of the head of a request.
        options: further options of `uvicorn.Config`.
    """
    return uvicorn.Config(
        app,
        http=type("BoundedHttp", (BoundedHttp,), {"head_seconds": head_seconds}),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=connections_max,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        **options,
    )
