"""An S3 server inside this process, for the demo and the tests: it needs no account and no Docker, and leaves no data.

It is moto's server with one change. moto checks the condition of a write and then writes, and another thread may write
in between. Here one write runs at a time, so that the condition and the write are atomic, as on S3. A read can fail if
a write replaces or deletes the same key; such a read is repeated while no write runs.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager, suppress
from threading import Lock, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

POLL_SECONDS = 0.05  # interval at which the server checks whether to stop

_READS = {"GET", "HEAD"}


@contextmanager
def embedded_s3(around: Callable[[WSGIApplication], WSGIApplication] | None = None) -> Iterator[str]:
    """Run an S3 server on a free port of the loopback interface while the context is open; returns its endpoint URL.

    It accepts any credentials, and keeps its objects in memory until the process ends. All servers of a process share
    their objects.

    Args:
        around: wraps the server's application, for example in one that is slow; None = no wrapper.

    Raises:
        ModuleNotFoundError: moto is not installed; the message says what to install.
    """
    try:
        from moto.moto_server.werkzeug_app import (  # noqa: PLC0415 - an extra, which only the demo and tests need
            MotoRequestHandler,
            create_backend_app,
        )
        from werkzeug.serving import make_server  # noqa: PLC0415 - installed with moto
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the embedded S3 server is not installed: pip install 'accel-streams[demo]' ({error})", name=error.name
        ) from error

    class QuietHandler(MotoRequestHandler):
        def log(self, type: str, message: str, *args: object) -> None:  # noqa: A002 - werkzeug's name
            """Log nothing for a request."""

    # S3 only: to select a service, moto's dispatcher would read its own folder twice a request.
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
