"""A stand-in for Google Cloud Storage: that part of its XML API which obstore uses, in memory.

Written from Google's reference of the XML API, and no proof of how the service answers: it shows what is sent, and
what is made of answers of this form. Every object has an ETag, the MD5 of its bytes, and a generation, which is new
with each write; conditions are on generations alone.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Lock, Thread
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from accel.system import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PAGE = 1000


@dataclass
class Google:
    """One bucket, `bucket`. Threads: any, one request at a time.

    Attributes:
        clock: its time, seconds since 1970.
        objects: key -> generation and bytes.
        modified: key -> when it was written, as the service writes it.
        metadata: key -> the headers of its metadata.
        requests: method and path of each request that came.
    """

    url: str = ""
    clock: Callable[[], float] = SYSTEM.clock
    objects: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    modified: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, dict[str, str]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    generations: Iterator[int] = field(default_factory=lambda: count(1_700_000_000_000_001))
    uploads: dict[str, tuple[dict[str, str], dict[int, bytes]]] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    def write(self, key: str, body: bytes, metadata: dict[str, str] | None = None) -> dict[str, str]:
        """Make a new generation."""
        self.objects[key] = next(self.generations), body
        self.metadata[key] = metadata or {}
        self.modified[key] = formatdate(self.clock(), usegmt=True)
        return self.headers(key)

    def headers(self, key: str) -> dict[str, str]:
        """What tells the version of an object."""
        generation, body = self.objects[key]
        etag = f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'
        version = {"ETag": etag, "x-goog-generation": str(generation), "Last-Modified": self.modified[key]}
        return version | self.metadata[key]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one segment: two would wait 40 ms for each other
    google: Google

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base
        pass

    def _answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, f"<?xml version='1.0'?><Error><Code>{code}</Code></Error>".encode())

    def _asked(self) -> tuple[str, dict[str, str], bytes]:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.google.requests.append(f"{self.command} {self.path}")
        return (key if bucket == "bucket" else "\0"), query, body

    def _metadata(self) -> dict[str, str]:
        return {name: value for name, value in self.headers.items() if name.startswith("x-goog-meta-")}

    def do_GET(self) -> None:
        key, query, _ = self._asked()
        with self.google.lock:
            if key == "\0":
                self._refuse(404, "NoSuchBucket")
            elif "list-type" in query:
                self._list(query)
            elif key not in self.google.objects:
                self._refuse(404, "NoSuchKey")
            else:
                self._send_object(key)

    do_HEAD = do_GET  # noqa: N815 - the name of the base

    def _send_object(self, key: str) -> None:
        body, headers = self.google.objects[key][1], self.google.headers(key)
        if self.headers.get("If-None-Match") == headers["ETag"]:
            self._answer(304, b"", headers)
            return
        asked = self.headers.get("Range")
        if asked is None:
            self._answer(200, body, headers)
            return
        first, _, last = asked.removeprefix("bytes=").partition("-")
        start = int(first) if first else max(0, len(body) - int(last))
        end = min(len(body), int(last) + 1) if first and last else len(body)
        if start >= end:
            self._refuse(416, "InvalidRange")
            return
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(body)}"
        self._answer(206, body[start:end], headers)

    def _list(self, query: dict[str, str]) -> None:
        after = max(query.get("continuation-token", ""), query.get("start-after", ""), key=str.encode)
        keys = sorted((key for key in self.google.objects if key.startswith(query.get("prefix", ""))), key=str.encode)
        keys = [key for key in keys if key.encode() > after.encode()]
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self.google.objects[key][1])}</Size>"
            f"<LastModified>2026-10-21T07:28:00.000Z</LastModified><ETag>{self.google.headers(key)['ETag']}</ETag>"
            "</Contents>"
            for key in keys[:PAGE]
        )
        more = f"<NextContinuationToken>{escape(keys[PAGE - 1])}</NextContinuationToken>" if len(keys) > PAGE else ""
        self._answer(200, f"<?xml version='1.0'?><ListBucketResult>{rows}{more}</ListBucketResult>".encode())

    def do_PUT(self) -> None:
        key, query, body = self._asked()
        with self.google.lock:
            if key == "\0":
                self._refuse(404, "NoSuchBucket")
                return
            if "uploadId" in query:
                self.google.uploads[query["uploadId"]][1][int(query["partNumber"])] = body
                self._answer(200, b"", {"ETag": f'"{query["partNumber"]}"'})
                return
            wanted = self.headers.get("x-goog-if-generation-match")
            generation = self.google.objects.get(key, (0, b""))[0]
            if wanted is not None and int(wanted) != generation:
                self._refuse(412, "PreconditionFailed")
            else:
                self._answer(200, b"", self.google.write(key, body, self._metadata()))

    def do_POST(self) -> None:
        key, query, _ = self._asked()
        with self.google.lock:
            if "uploads" in query:
                upload = str(next(self.google.generations))
                self.google.uploads[upload] = self._metadata(), {}
                made = f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
                self._answer(200, made.encode())
                return
            metadata, parts = self.google.uploads.pop(query["uploadId"])
            headers = self.google.write(key, b"".join(parts[number] for number in sorted(parts)), metadata)
            etag = f"<CompleteMultipartUploadResult><ETag>{headers['ETag']}</ETag></CompleteMultipartUploadResult>"
            self._answer(200, etag.encode(), headers)

    def do_DELETE(self) -> None:
        key, _, _ = self._asked()
        with self.google.lock:
            if key not in self.google.objects:
                self._refuse(404, "NoSuchKey")
                return
            del self.google.objects[key]
            self._answer(204)


@contextmanager
def google_stand_in() -> Iterator[Google]:
    """A server on a free port of loopback, until the end of the block."""
    google = Google()
    handler = type("Handler", (_Handler,), {"google": google})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    google.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield google
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
