"""A server that answers from a script: what no real server can be made to do on demand."""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from email.message import Message

POLL_SECONDS = 0.02  # how often a server looks whether it is to end


@dataclass(frozen=True)
class Reply:
    """One answer. Without a status the server hangs up instead; `is_silent` lets it hold the line and say nothing."""

    status: int = 0
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    promised_bytes: int | None = None
    is_silent: bool = False


def refusal(status: int, code: str) -> Reply:
    """An answer as S3 words it."""
    xml = f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code><Message>scripted</Message></Error>"
    return Reply(status, xml.encode(), {"Content-Type": "application/xml"})


def found(body: bytes, *, status: int = 200, content_range: str = "", promised_bytes: int | None = None) -> Reply:
    """An object, or a part of one."""
    headers = {"ETag": '"e1"', "Last-Modified": "Wed, 21 Oct 2026 07:28:00 GMT", "Content-Type": "binary/octet-stream"}
    if content_range:
        headers["Content-Range"] = content_range
    return Reply(status, body, headers, promised_bytes)


WRITTEN = Reply(200, b"", {"ETag": '"e1"'})
HANG_UP = Reply()
SILENCE = Reply(is_silent=True)


@dataclass(frozen=True)
class Request:
    """What a client asked; the names of headers may be spelled any way."""

    method: str
    path: str
    headers: Message


class ScriptedServer:
    """Gives the next reply of `script` to each request, and an error 418 once it has none; remembers the requests."""

    def __init__(self, url: str, end: Event) -> None:
        self.url = url
        self.script: deque[Reply] = deque()
        self.requests: list[Request] = []
        self.end = end

    def expect(self, *replies: Reply) -> None:
        """Begin anew with this script."""
        self.script = deque(replies)
        self.requests.clear()


@contextmanager
def scripted_server() -> Iterator[ScriptedServer]:
    """Run a scripted server on a free loopback port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one segment: two would wait 40 ms for each other

        def handle_expect_100(self) -> bool:
            going_on = super().handle_expect_100()
            self.wfile.flush()
            return going_on

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Say nothing."""

        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            scripted.requests.append(Request(self.command, self.path, self.headers))
            reply = scripted.script.popleft() if scripted.script else Reply(418)
            if reply.is_silent:
                scripted.end.wait()
            if reply.status:
                self._send(reply)
            if not reply.status or reply.promised_bytes is not None:
                self.close_connection = True

        def _send(self, reply: Reply) -> None:
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            promised = len(reply.body) if reply.promised_bytes is None else reply.promised_bytes
            if not {"Content-Length", "Transfer-Encoding"} & set(reply.headers):
                self.send_header("Content-Length", str(promised))
            self.end_headers()
            self.wfile.write(reply.body)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _answer  # noqa: N815 - the base class's names

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    scripted = ScriptedServer(f"http://127.0.0.1:{server.server_port}", Event())
    thread = Thread(target=server.serve_forever, args=(POLL_SECONDS,), name="scripted-server", daemon=True)
    thread.start()
    try:
        yield scripted
    finally:
        scripted.end.set()
        server.shutdown()
        thread.join()
        server.server_close()
