"""Access, and limits of number and time: the checks of every request before a route.

In this order; each refusal is a problem:

    | check                                                                         | refused with |
    |-------------------------------------------------------------------------------|--------------|
    | Host is a name of loopback, or allowed (where clients need no token); probes  |              |
    | of health may have none                                                       | 421          |
    | Origin, which browsers send, is the sidecar itself                            | 403          |
    | the token, where reading needs one, and for all routes that write (`Access`)  | 401, 403     |
    | the number of requests below /v1 under way                                    | 429          |
    | the time for the request                                                      | 504          |

Any page in a browser may send requests to loopback, also by its own name that resolves to loopback (DNS rebinding). It
cannot choose the headers Host and Origin, so these two identify it.

An exception of a route becomes a problem, too. Every answer has headers against type guessing and framing.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from accel.errors import AccelError
from accel.server.problems import Refused, encoded, problem_of
from accel.server.settings import LOOPBACK_NAMES, SidecarSettings
from accel.settings import checked_secret

logger = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

SECURITY_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (
        b"content-security-policy",
        (
            b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
            b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ),
    ),
)
"""A page that the sidecar serves loads its own files only, and no inline script."""

OPEN_PATHS: Final = frozenset(
    {"/healthz", "/readyz", "/", "/console.css", "/console.js", "/drawing.css", "/drawing.js"}
)
"""Requested by orchestrators, and by browsers that open the page, which have no token; they reveal no data."""

PROBED_PATHS: Final = frozenset({"/healthz", "/readyz"})
"""Requested by load balancers, some of which send no Host. A page in a browser cannot leave it out."""

ENDING: Final = ((b"connection", b"close"),)

FORWARDED_PATHS: Final = ("/accel/",)
"""Routes with their own secret."""


class Guard:
    """An ASGI application around another one. Threads: one event loop.

    Args:
        app: the routes.
        settings: limits and access.
        writes: whether a route changes anything, by method and path.
        is_draining: whether connections close after their answer, so that clients connect to another sidecar.
    """

    def __init__(
        self,
        app: App,
        settings: SidecarSettings,
        writes: Callable[[str, str], bool],
        is_draining: Callable[[], bool] = bool,
    ) -> None:
        self._app = app
        self._settings = settings
        self._writes = writes
        self._is_draining = is_draining
        self._token = None if settings.token is None else checked_secret(settings.token)
        self._hosts = LOOPBACK_NAMES | settings.allowed_hosts
        self.under_way = 0

    def replace_token(self, token: str) -> None:
        """Accept this token instead of the present one.

        Raises:
            InvalidArgument: fewer than 16 characters.
        """
        self._token = checked_secret(token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send, ENDING if self._is_draining() else ())
        is_counted = False
        try:
            headers = dict(scope["headers"])
            self._check(scope, headers)
            if scope["path"].startswith("/v1/"):
                self._check_room()
                is_counted = True
                self.under_way += 1
            async with asyncio.timeout(self._settings.request_seconds):
                await self._app(scope, receive, answer.send)
        except Exception as error:  # noqa: BLE001 - the client gets an answer to every error
            await self._refuse(scope, answer, error)
        finally:
            self.under_way -= is_counted

    def _check(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        host = headers.get(b"host", b"").decode("latin-1")
        is_probe = not host and scope["path"] in PROBED_PATHS
        if (
            not is_probe
            and not self._settings.reads_need_token
            and self._settings.is_loopback
            and _name_of(host) not in self._hosts
        ):
            found = f"expected a Host of {', '.join(sorted(self._hosts))}, found {host[:80]!r}"
            raise Refused("ForeignHost", 421, "The request names another host.", found)
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin and origin.partition("://")[2] != host:
            found = f"expected no request of another page, found Origin {origin[:80]!r}"
            raise Refused("ForeignOrigin", 403, "Another page sent the request.", found)
        path = scope["path"]
        if path in OPEN_PATHS or path.startswith(FORWARDED_PATHS):
            return
        writes = self._writes(scope["method"], path)
        if writes or self._settings.reads_need_token:
            self._check_token(headers.get(b"authorization", b""), writes=writes)

    def _check_token(self, given: bytes, *, writes: bool) -> None:
        if self._token is None:
            found = "expected a sidecar with a token (--token-file, ACCEL_TOKEN), found one without"
            raise Refused("Forbidden", 403, "This sidecar accepts no writes.", found)
        if not hmac.compare_digest(given.removeprefix(b"Bearer "), self._token):
            what = "whatever writes" if writes else "every request"
            detail = f"expected 'Authorization: Bearer' and the token of the sidecar with {what}"
            raise Refused("Unauthorized", 401, "The token is missing or wrong.", detail)

    def _check_room(self) -> None:
        most = self._settings.requests_max
        if self.under_way >= most:
            detail = f"expected less than {most} requests at one time; retry in a second"
            raise Refused("TooManyRequests", 429, "Too many requests are under way.", detail, retryable=True)

    async def _refuse(self, scope: Scope, answer: _Answer, error: Exception) -> None:
        problem = problem_of(error)
        if problem.status == 500:
            logger.error("%s %s failed", scope["method"], scope["path"], exc_info=error)
        elif not isinstance(error, Refused | AccelError):
            logger.warning("%s %s: %s", scope["method"], scope["path"], problem.detail)
        if answer.has_begun:
            raise error  # the connection is closed: the client must not take a partial answer for the whole
        body, headers = encoded(problem)
        if problem.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        headers.append((b"content-length", b"%d" % len(body)))
        await answer.send({"type": "http.response.start", "status": problem.status, "headers": headers})
        await answer.send({"type": "http.response.body", "body": body})


class _Answer:
    """Adds headers to an answer, and records whether it has begun."""

    __slots__ = ("_more", "_send", "has_begun")

    def __init__(self, send: Send, more: tuple[tuple[bytes, bytes], ...]) -> None:
        self._send = send
        self._more = more
        self.has_begun = False

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.has_begun = True
            message["headers"] = [*message.get("headers", ()), *SECURITY_HEADERS, *self._more]
        await self._send(message)


def _name_of(host: str) -> str:
    """A host without its port.

    >>> _name_of("[::1]:8480"), _name_of("localhost:8480"), _name_of("localhost")
    ('::1', 'localhost', 'localhost')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] or host
