"""`accel serve`: a sidecar over a bucket."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from signal import SIG_IGN, SIGHUP, Signals, getsignal
from signal import signal as set_signal
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any, Final

import click

from accel.cli.ending import SIGNALLED, end_later
from accel.cli.options import POLICY, TIME, StoreChoice, command, log_format_option, option, store_options
from accel.errors import InvalidArgument, MissingExtra
from accel.image_source import ImageSource, PolledImages, read_image
from accel.rendering import Output
from accel.server import SidecarSettings
from accel.server.settings import DEFAULT_PORT, SLOW_LOOKUP_SECONDS
from accel.settings import DEFAULT_POLICY, IDLE_POLL_SECONDS, Settings
from accel.system import SYSTEM
from accel.units import count_text
from loaders.store import CountingStore

if TYPE_CHECKING:
    from accel.listening import Server

_DEFAULTS: Final = SidecarSettings()
TOKEN_VARIABLE: Final = "ACCEL_TOKEN"  # noqa: S105 - the name of a variable
_ALL: Final = {
    "::": "listening on all IPv6 addresses of this machine, and on none of IPv4: that is --host 0.0.0.0",
    "0.0.0.0": "listening on all IPv4 addresses of this machine, and on none of IPv6: that is --host ::",  # noqa: S104 - what the user gave
}


@command(
    "Serve lookups over HTTP, for brokers in any language.",
    "accel serve s3://bucket/prefix",
    "accel serve s3://bucket/prefix --host 0.0.0.0 --token-file /run/secrets/accel --tls-cert a.pem --tls-key a.key",
    "accel serve --demo",
)
@click.option("--host", default=_DEFAULTS.host, show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True, help="The port.")
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help=f"The token that clients need to write, and other machines need to read; else {TOKEN_VARIABLE}.",
)
@click.option("--open", "is_open", is_flag=True, help="Clients of other machines may read without a token.")
@click.option(
    "--allowed-host", multiple=True, metavar="NAME", help="A name of this machine besides localhost; may be repeated."
)
@click.option("--tls-cert", type=click.Path(path_type=Path), metavar="FILE", help="A certificate, for TLS.")
@click.option("--tls-key", type=click.Path(path_type=Path), metavar="FILE", help="The private key of the certificate.")
@click.option("--maintain", is_flag=True, help="Also compact, build hints and collect garbage when it is due.")
@click.option(
    "--drain",
    type=TIME,
    default=f"{_DEFAULTS.drain_seconds:g}s",
    show_default=True,
    metavar="TIME",
    help="How long it answers on after SIGTERM, while /readyz says 503.",
)
@click.option(
    "--idle",
    type=TIME,
    default=f"{_DEFAULTS.idle_seconds:g}s",
    show_default=True,
    metavar="TIME",
    help="How long a connection may be idle; longer than a load balancer keeps it.",
)
@click.option("--warm", is_flag=True, help="Load hints before the sidecar is ready.")
@click.option(
    "--slow-log",
    type=TIME,
    default=f"{SLOW_LOOKUP_SECONDS:g}s",
    show_default=True,
    metavar="TIME",
    help="Keep the traces of lookups that take at least this long; the console and GET /v1/slow show the last 32.",
)
@click.option("--demo", "is_demo", is_flag=True, help="Serve an embedded store with example objects; needs no account.")
@click.option(
    "--price-per-thousand-reads",
    type=click.FloatRange(min=0, min_open=True),
    default=_DEFAULTS.per_thousand_reads,
    show_default=True,
    metavar="PRICE",
    help="Price of a thousand GETs, for the console.",
)
@click.option("--currency", default=_DEFAULTS.currency, show_default=True, help="The currency of that price.")
@option(
    "--policy",
    type=POLICY,
    default=DEFAULT_POLICY,
    show_default=True,
    help="The policy that chooses which objects to open.",
)
@option("--image", metavar="FILE_OR_URL", help="The metadata image, reloaded when it changes; else the catalog's.")
@store_options
@log_format_option
def serve(
    *,
    host: str,
    port: int,
    token_file: Path | None,
    is_open: bool,
    allowed_host: tuple[str, ...],
    store: StoreChoice,
    output: Output,
    **others: Any,
) -> None:
    """Serve lookups, records, histories and metrics of a bucket over HTTP, until it is stopped.

    On loopback, any client may read. Other addresses need a token or --open. Requests that write always need a token.
    """
    if not math.isfinite(others["price_per_thousand_reads"]):
        raise click.UsageError("Expected a finite price as '--price-per-thousand-reads'.")
    if others["maintain"] and others["image"] is not None:
        raise click.UsageError(
            "Expected '--maintain' without '--image', found both: it maintains the catalog of a bucket."
        )
    settings = SidecarSettings(
        host=host,
        port=port,
        token=_token(token_file),
        is_open=is_open,
        allowed_hosts=frozenset(allowed_host),
        drain_seconds=others["drain"],
        idle_seconds=others["idle"],
        currency=others["currency"],
        per_thousand_reads=others["price_per_thousand_reads"],
    )
    with ExitStack() as stack:
        if others["is_demo"]:
            from accel.cli.demo import example_store  # noqa: PLC0415 - only the demo needs it

            opened = CountingStore(stack.enter_context(example_store(output)), SYSTEM.timer)
        else:
            opened = CountingStore(store.open(), SYSTEM.timer)
        _serve(opened, settings, _source(others["image"], store), {**others, "token_file": token_file}, output)


def _serve(
    store: CountingStore,
    settings: SidecarSettings,
    images: Callable[[], ImageSource] | None,
    others: Mapping[str, Any],
    output: Output,
) -> None:
    try:
        from accel.server.app import sidecar_app  # noqa: PLC0415 - the extra `server` brings what it takes
        from accel.server.serving import Tls, log_to_stderr, make_server  # noqa: PLC0415 - likewise
        from accel.server.sidecar import Sidecar  # noqa: PLC0415 - likewise
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"accel serve needs the extra `server`: pip install 'accel-streams[server]' ({error})"
        ) from error
    if (others["tls_cert"] is None) != (others["tls_key"] is None):
        raise click.UsageError("Expected '--tls-cert' and '--tls-key' together.")
    tls = None if others["tls_cert"] is None else Tls(others["tls_cert"], others["tls_key"])
    lookups = Settings(policy=others["policy"], slow_lookup_seconds=others["slow_log"])
    warm, maintain = others["warm"], others["maintain"]
    sidecar = Sidecar(store, settings, images=images, lookups=lookups, warm=warm, maintain=maintain)
    log_to_stderr(others["log_format"])
    app = sidecar_app(sidecar)

    def reload_token() -> None:
        if (token := _token(others["token_file"])) is not None:
            app.replace_token(token)

    server = make_server(app, settings, tls, on_drain=sidecar.drain, reload_token=reload_token)
    scheme = "http" if tls is None else "https"
    host = f"[{settings.host.replace('%', '%25')}]" if ":" in settings.host else settings.host
    address = f"{scheme}://{host}:{settings.port}"
    if settings.host in _ALL:
        output.note(_ALL[settings.host])
    output.note(
        f"serving on {address}; a browser shows its console; {address}/openapi.json describes the API; Ctrl-C stops it"
    )
    if others["is_demo"]:
        output.note(f"try: curl '{address}/v1/objects?stream_id=420000&start=1000&end=1600'")
    end_later(settings.drain_seconds)
    with _reloaded(server):
        server.run()
    if server.signals:
        requests = count_text(server.server_state.total_requests, "request")
        output.note(f"stopped by {Signals(server.signals[0]).name}: {requests} answered")
        raise click.exceptions.Exit(SIGNALLED + server.signals[0])


@contextmanager
def _reloaded(server: Server) -> Iterator[None]:
    """SIGHUP loads certificate and token again; under `nohup`, which ignores it, nothing does."""

    def ask(_: int, __: object) -> None:
        server.is_reload_asked = True

    before = getsignal(SIGHUP)
    is_ours = current_thread() is main_thread() and before is not SIG_IGN
    if is_ours:
        set_signal(SIGHUP, ask)
    try:
        yield
    finally:
        if is_ours:
            set_signal(SIGHUP, before)


def _token(token_file: Path | None) -> str | None:
    if token_file is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    token = token_file.read_text(encoding="utf-8-sig", errors="replace").strip()
    if not token or "\ufffd" in token:
        advice = f"write a token of 16 characters or more into it, in UTF-8, or set {TOKEN_VARIABLE}"
        found = "bytes that are not UTF-8" if token else "nothing"
        raise InvalidArgument(f"expected a token in {token_file}, found {found}", advice)
    return token


def _source(image: str | None, store: StoreChoice) -> Callable[[], ImageSource] | None:
    if image is None:
        return None

    def make() -> ImageSource:
        return PolledImages(
            lambda: read_image(image, store.settings),
            timer=SYSTEM.timer,
            sleep=SYSTEM.sleep,
            wait=SYSTEM.wait,
            poll_seconds=IDLE_POLL_SECONDS,
        )

    return make
