"""An S3 server inside this process, for the demo and the tests: no account, no Docker, nothing left behind.

It is moto's server, with one thing added. moto looks at the condition of a write and then writes, and nothing keeps
another thread from writing in between; here writes go one at a time, so that a condition and its write are one step,
as on S3. A read stumbles where a write replaces or deletes what it is about to give; then it is made again while
nobody writes.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager, suppress
from threading import Lock, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

POLL_SECONDS = 0.05  # how often the server looks whether it is to end

_READS = {"GET", "HEAD"}


@contextmanager
def embedded_s3(around: Callable[[WSGIApplication], WSGIApplication] | None = None) -> Iterator[str]:
    """Run an S3 server on a free port of the loopback interface while the context lasts; gives its endpoint URL.

    It takes any credentials, and keeps what it holds in memory until the process ends. All servers of a process hold
    the same.

    Args:
        around: gives an application around the server's own, such as one that is slow; None = none.

    Raises:
        ModuleNotFoundError: moto is not installed; the message says what to install.
    """
    try:
        from moto.moto_server.werkzeug_app import (  # noqa: PLC0415 - an extra, needed by nobody else
            MotoRequestHandler,
            create_backend_app,
        )
        from werkzeug.serving import make_server  # noqa: PLC0415 - comes with moto
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the embedded S3 server is not installed: pip install 'accel-streams[demo]' ({error})", name=error.name
        ) from error

    class QuietHandler(MotoRequestHandler):
        def log(self, type: str, message: str, *args: object) -> None:  # noqa: A002 - werkzeug's name
            """Say nothing: a request is no news."""

    # Straight to S3: to choose between services, moto's dispatcher would read its own folder twice a request.
    app: WSGIApplication = _OneWriteAtATime(create_backend_app("s3"))
    if around is not None:
        app = around(app)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=QuietHandler)
    thread = Thread(target=server.serve_forever, args=(POLL_SECONDS,), name="embedded-s3", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _OneWriteAtATime:
    def __init__(self, app: WSGIApplication) -> None:
        self._app = app
        self._lock = Lock()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in _READS:
            with suppress(Exception):
                return self._app(environ, start_response)
        with self._lock:
            return list(self._app(environ, start_response))
