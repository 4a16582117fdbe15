"""Oddities of S3 servers that were seen in public reports, in front of the embedded one; drawn from a seed.

They are harmless: a client that takes them as they come keeps the whole contract of stores. What has to be refused is
in `tests/loaders/store/test_lying_server.py`, answer by answer.

    listings      a page without keys, and a token; a few keys at a time; start-after is not known
    deletes       DeleteObjects is refused for lack of Content-MD5, or answered by 200 and nothing else;
                  a key that has just been deleted is answered by 404
    completions   200 with an error for a body
    GETs          a body that breaks off
    all of them   503 with the page of a proxy, with XML that breaks off, or without a body; but not a conditional
                  write, whose outcome would not be known
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

from accel.cli.embedded_s3 import embedded_s3

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from random import Random
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

ODD_BODIES = (b"", b"<html><body>Service Unavailable</body></html>", b"<?xml version='1.0'?><Error><Code>Slow", b"{}")
PAGE_KEYS = 300
APART = 20
"""Requests between two failures: each client gives up after some of them."""

CHANGING_BYTES_MAX = 50

_AFTER, _AFTER_NOTHING = "after/", "went on after/"
Headers = list[tuple[str, str]]


class Lying:
    """Wraps the application of a server. Threads: any.

    Args:
        app: the server.
        random: decides.
        chance: of each oddity in a request in which it can occur.

    Attributes:
        told: how often each oddity occurred.
    """

    def __init__(self, app: WSGIApplication, random: Random, chance: float = 0.4) -> None:
        self._app, self._random, self._chance = app, random, chance
        self._lock = Lock()
        self._sound_requests = APART
        self._failed_uploads: set[str] = set()
        self.told: Counter[str] = Counter()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        query = dict(parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True))
        method, key = environ["REQUEST_METHOD"], environ["PATH_INFO"].lstrip("/").partition("/")[2]
        is_conditional = method == "PUT" and bool({"HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH"} & set(environ))
        if not is_conditional and self._fails("503"):
            return _answer(environ, start_response, "503 Slow Down", self._random.choice(ODD_BODIES))
        if method == "GET":
            return self._get(environ, start_response, query, key)
        if method == "POST" and "delete" in query:
            return self._delete_batch(environ, start_response)
        if method == "POST" and "uploadId" in query and self._fails_once(query["uploadId"]):
            return _answer(environ, start_response, "200 OK", _error("InternalError"))
        if method == "DELETE" and key and not query and self._happens("404 to a DELETE"):
            _called(self._app, environ)
            return _answer(environ, start_response, "404 Not Found", _error("NoSuchKey"))
        return self._app(environ, start_response)

    def _get(
        self, environ: WSGIEnvironment, start_response: StartResponse, query: dict[str, str], key: str
    ) -> Iterable[bytes]:
        if query.get("list-type") == "2":
            return self._list(environ, start_response, query)
        status, headers, body = _called(self._app, environ)
        # Not of what is so short that tests change it meanwhile: nobody could go on with its rest.
        breaks_off = (
            key and len(body) > CHANGING_BYTES_MAX and status.startswith("20") and self._fails("a body that breaks off")
        )
        return _answer(environ, start_response, status, body[:-1] if breaks_off else body, headers, len(body))

    def _list(self, environ: WSGIEnvironment, start_response: StartResponse, query: dict[str, str]) -> Iterable[bytes]:
        token = query.pop("continuation-token", "")
        if query.pop("start-after", ""):
            self.told["start-after is not known"] += 1
        place = token.removeprefix(_AFTER).removeprefix(_AFTER_NOTHING)
        if not token.startswith(_AFTER_NOTHING) and self._happens("a page without keys"):
            going_on = f"<NextContinuationToken>{_AFTER_NOTHING}{place}</NextContinuationToken>"
            body = f"<ListBucketResult><IsTruncated>true</IsTruncated>{going_on}</ListBucketResult>"
            return _answer(environ, start_response, "200 OK", body.encode())
        if place:
            query["start-after"] = unquote(place)
        if self._happens("a short page"):
            query["max-keys"] = str(min(PAGE_KEYS, int(query.get("max-keys", "1000"))))
        environ["QUERY_STRING"] = urlencode(query, quote_via=quote)
        status, headers, page = _called(self._app, environ)
        return _answer(environ, start_response, status, _with_own_token(page), headers)

    def _delete_batch(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if self._happens("a refused batch"):
            return _answer(environ, start_response, "400 Bad Request", _error("MissingContentMD5"))
        if self._happens("a batch without an answer"):
            return _answer(environ, start_response, "200 OK", b"")
        return self._app(environ, start_response)

    def _fails(self, what: str) -> bool:
        with self._lock:
            self._sound_requests += 1
            happens = self._sound_requests >= APART and self._random.random() < self._chance
            self._sound_requests = 0 if happens else self._sound_requests
            self.told[what] += happens
        return happens

    def _fails_once(self, upload_id: str) -> bool:
        happens = upload_id not in self._failed_uploads and self._happens("200 with an error")
        self._failed_uploads.add(upload_id)
        return happens

    def _happens(self, what: str) -> bool:
        with self._lock:
            happens = self._random.random() < self._chance
            self.told[what] += happens
        return happens


@contextmanager
def lying_s3(random: Random) -> Iterator[tuple[str, Lying]]:
    """Run the embedded server behind oddities; gives its URL, and what was told."""
    made: list[Lying] = []

    def around(app: WSGIApplication) -> WSGIApplication:
        made.append(Lying(app, random))
        return made[0]

    with embedded_s3(around) as url:
        yield url, made[0]


def _error(code: str) -> bytes:
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>a lie</Message></Error>".encode()


def _with_own_token(page: bytes) -> bytes:
    """A page of moto whose token is the last key, as the page has it: URL-encoded."""
    begin, end = b"<NextContinuationToken>", b"</NextContinuationToken>"
    if begin not in page:
        return page
    before, _, rest = page.partition(begin)
    last = page.rpartition(b"<Key>")[2].partition(b"</Key>")[0]
    return before + begin + _AFTER.encode() + last + end + rest.partition(end)[2]


def _called(app: WSGIApplication, environ: WSGIEnvironment) -> tuple[str, Headers, bytes]:
    told: list[tuple[str, Headers]] = []

    def start(status: str, headers: Headers, *_: Any) -> Any:
        told.append((status, headers))

    body = b"".join(app(environ, start))
    return *told[0], body


def _answer(
    environ: WSGIEnvironment,
    start_response: StartResponse,
    status: str,
    body: bytes,
    headers: Iterable[tuple[str, str]] = (("Content-Type", "application/xml"),),
    promised_bytes: int | None = None,
) -> Iterable[bytes]:
    environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    if environ["REQUEST_METHOD"] == "HEAD":
        body = b""
    kept = [(name, value) for name, value in headers if name.lower() != "content-length"]
    start_response(status, [*kept, ("Content-Length", str(len(body) if promised_bytes is None else promised_bytes))])
    return [body]
