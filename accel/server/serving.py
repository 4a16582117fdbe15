"""Runs a sidecar's application in this process: uvicorn with bounds, TLS, a log, and an end that drains.

On SIGTERM it says for a time that it is not ready, and still answers. Then, or on Ctrl-C, it accepts no more
connections, lets requests continue for 2 seconds, and closes the sidecar. On SIGHUP it loads the certificate and the
token again; a certificate whose files changed, every 10 s, too. What cannot be loaded is logged; what was there stays.

On a terminal the log is lines of text, elsewhere one JSON object a line, as collectors of logs expect. Neither contains
a header, a body or a query of a request.
"""

from __future__ import annotations

import logging
import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from accel.errors import InvalidArgument
from accel.listening import Server, listening_config
from accel.rendering import LogForm, log_lines
from accel.server.guard import App
from accel.server.settings import SidecarSettings

logger = logging.getLogger(__name__)

DRAIN_SECONDS: Final = 2
"""How long requests may continue when no more connections are accepted."""


@dataclass(frozen=True, slots=True)
class Tls:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path

    def check(self) -> None:
        """Check that both can be read, and belong together.

        Raises:
            InvalidArgument: they cannot be read, or do not.
        """
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            advice = "name the certificate's chain by --tls-cert, and its own key, without a password, by --tls-key"
            raise InvalidArgument(f"expected a certificate and its key as PEM files, found {error}", advice) from error

    def changed_ns(self) -> tuple[int, int]:
        """When the files last changed."""
        return self.certificate.stat().st_mtime_ns, self.key.stat().st_mtime_ns


def log_to_stderr(form: LogForm | None = None, *, level: int = logging.INFO) -> None:
    """Send the logs of this process to stderr; None = text on a terminal, else JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(log_lines(form, "%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=level, force=True)
    for noisy in ("botocore", "boto3", "urllib3", "uvicorn.access"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def make_server(
    app: App,
    settings: SidecarSettings,
    tls: Tls | None = None,
    *,
    on_drain: Callable[[], object] = bool,
    reload_token: Callable[[], object] = bool,
) -> Server:
    """A server that is not started yet; its `run` blocks until the process is stopped.

    Args:
        app: the application.
        settings: bounds and access.
        tls: certificate and key; None = no TLS.
        on_drain: called when SIGTERM has come: `Sidecar.drain`.
        reload_token: called after SIGHUP.
    """
    if tls is not None:
        tls.check()
    loaded_ns = None if tls is None else tls.changed_ns()

    def reload(is_asked: bool) -> None:
        nonlocal loaded_ns
        try:
            if tls is not None and (is_asked or tls.changed_ns() != loaded_ns) and config.ssl is not None:
                changed_ns = tls.changed_ns()
                tls.check()
                config.ssl.load_cert_chain(tls.certificate, tls.key)
                loaded_ns = changed_ns
                logger.info("the certificate was loaded again")
            if is_asked:
                reload_token()
        except (OSError, InvalidArgument) as error:
            logger.warning("what was loaded before stays in use: %s", error)

    config = listening_config(
        app,
        settings.connections_max,
        settings.idle_seconds,
        host=settings.host,
        port=settings.port,
        lifespan="on",
        timeout_graceful_shutdown=DRAIN_SECONDS,
        ssl_certfile=None if tls is None else tls.certificate,
        ssl_keyfile=None if tls is None else tls.key,
    )
    return Server(config, settings.drain_seconds, on_drain, reload)
