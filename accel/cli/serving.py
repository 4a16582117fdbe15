"""`accel serve` and `accel stats`: a sidecar over a bucket, and its statistics."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from signal import Signals
from ssl import SSLCertVerificationError
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

import click
import msgspec

from accel.cli.ending import SIGNALLED
from accel.cli.options import POLICY, StoreChoice, command, log_format_option, option, output_options, store_options
from accel.errors import InvalidArgument, MissingExtra, StoreUnavailable
from accel.image_source import ImageSource, PolledImages, fetched, read_image
from accel.rendering import Column, Output, Shown, table_of
from accel.server import SidecarSettings
from accel.server.settings import DEFAULT_PORT
from accel.settings import DEFAULT_POLICY, IDLE_POLL_SECONDS, Settings
from accel.system import SYSTEM
from accel.units import count_text, size_text, time_text
from loaders.errors import redacted
from loaders.store import CountingStore

_DEFAULTS: Final = SidecarSettings()
TOKEN_VARIABLE: Final = "ACCEL_TOKEN"  # noqa: S105 - the name of a variable
STATS_SECONDS: Final = 10.0
STATS_SIZE_BYTES_MAX: Final = 4 << 20


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
@click.option("--warm", is_flag=True, help="Load hints before the sidecar is ready.")
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
    settings = SidecarSettings(
        host=host,
        port=port,
        token=_token(token_file),
        is_open=is_open,
        allowed_hosts=frozenset(allowed_host),
        currency=others["currency"],
        per_thousand_reads=others["price_per_thousand_reads"],
    )
    with ExitStack() as stack:
        if others["is_demo"]:
            from accel.cli.demo.example import example_store  # noqa: PLC0415 - only the demo needs it

            opened = CountingStore(stack.enter_context(example_store(output)), SYSTEM.timer)
        else:
            opened = CountingStore(store.open(), SYSTEM.timer)
        _serve(opened, settings, _source(others["image"], store), others, output)


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
    lookups = Settings(policy=others["policy"])
    sidecar = Sidecar(store, settings, images=images, lookups=lookups, warm=others["warm"])
    log_to_stderr(others["log_format"])
    server = make_server(sidecar_app(sidecar), settings, tls)
    scheme = "http" if tls is None else "https"
    address = f"{scheme}://{settings.host if ':' not in settings.host else f'[{settings.host}]'}:{settings.port}"
    output.note(
        f"serving on {address}; a browser shows its console; {address}/openapi.json describes the API; Ctrl-C stops it"
    )
    if others["is_demo"]:
        output.note(f"try: curl '{address}/v1/objects?stream_id=420000&start=1000&end=1600'")
    server.run()
    if server.signals:
        requests = count_text(server.server_state.total_requests, "request")
        output.note(f"stopped by {Signals(server.signals[0]).name}: {requests} answered")
        raise click.exceptions.Exit(SIGNALLED + server.signals[0])


def _token(token_file: Path | None) -> str | None:
    if token_file is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    token = token_file.read_text().strip()
    if not token:
        raise InvalidArgument(f"expected a token in {token_file}, found nothing")
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


@command("Show the statistics of a running sidecar.", "accel stats", "accel stats http://127.0.0.1:8480 --output json")
@click.argument("address", default=f"http://127.0.0.1:{DEFAULT_PORT}")
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help=f"The sidecar's token; else {TOKEN_VARIABLE}.",
)
@output_options
def stats(*, address: str, token_file: Path | None, output: Output) -> None:
    """Show the statistics of a running sidecar: lookups, objects opened and skipped, caches, requests to its store."""
    if urlsplit(address).scheme not in {"http", "https"}:
        raise click.BadParameter(f"expected the address of a sidecar, http:// or https://, found {redacted(address)!r}")
    told = _asked(address.rstrip("/") + "/v1/stats", _token(token_file))
    output.show(Shown(told, _lines(told)))


class _Lookups(msgspec.Struct):
    lookups: int
    warm: int
    failed: int
    objects_opened: int
    objects_listed: int
    skipped_by_index: int
    skipped_by_filter: int
    skipped_by_bounds: int


class _Cache(msgspec.Struct):
    entries: int
    size_bytes: int
    size_bytes_max: int
    hits: int
    evicted: int


class _Requests(msgspec.Struct):
    requests: int
    failures: int
    received_bytes: int


class _Told(msgspec.Struct):
    """The stats of a sidecar that `_lines` shows; there are more."""

    state: str
    image_version: int
    image_unconfirmed_seconds: float
    memory_bytes: int
    memory_bytes_max: int
    lookups: _Lookups
    caches: dict[str, _Cache]
    store: dict[str, _Requests]


def _asked(url: str, token: str | None) -> dict[str, Any]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        body = fetched(url, size_bytes_max=STATS_SIZE_BYTES_MAX, timeout_seconds=STATS_SECONDS, headers=headers)
        told: dict[str, Any] = msgspec.json.decode(body, type=dict)
        msgspec.convert(told, _Told)
    except HTTPError as error:
        with error:
            detail = error.read(2000).decode("utf-8", "replace")
        raise StoreUnavailable("get", redacted(url), f"the sidecar answered {error.code}: {detail}") from error
    except (URLError, OSError) as error:
        if isinstance(getattr(error, "reason", None), SSLCertVerificationError):
            reason = f"its certificate is not trusted ({error}); set SSL_CERT_FILE to the certificate of its authority"
            raise StoreUnavailable("get", redacted(url), reason) from error
        raise StoreUnavailable("get", redacted(url), f"no sidecar answers there: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StoreUnavailable("get", redacted(url), f"expected the stats of a sidecar, found {error}") from error
    return told


def _lines(told: Mapping[str, Any]) -> Iterator[Any]:
    lookups = told["lookups"]
    share = lookups["warm"] / lookups["lookups"] if lookups["lookups"] else 0.0
    age = time_text(told["image_unconfirmed_seconds"])
    yield f"{told['state']}; image version {told['image_version']}, known to be the newest {age} ago"
    yield f"{count_text(lookups['lookups'], 'lookup')}, {share:.1%} from memory, {lookups['failed']} failed"
    opened, listed = lookups["objects_opened"], lookups["objects_listed"]
    skipped = ", ".join(f"{lookups[f'skipped_by_{by}']} by {by}" for by in ("index", "filter", "bounds"))
    yield f"{count_text(opened, 'object')} opened of {listed} listed; skipped: {skipped}"
    yield f"memory {size_text(told['memory_bytes'])} of {size_text(told['memory_bytes_max'])}"
    yield ""
    caches: tuple[Column[tuple[str, dict[str, int]]], ...] = (
        Column("cache", lambda row: row[0], "left"),
        Column("entries", lambda row: row[1]["entries"]),
        Column("size", lambda row: size_text(row[1]["size_bytes"])),
        Column("bound", lambda row: size_text(row[1]["size_bytes_max"])),
        Column("hits", lambda row: row[1]["hits"]),
        Column("evicted", lambda row: row[1]["evicted"]),
    )
    yield table_of(list(told["caches"].items()), *caches)
    yield ""
    requests: tuple[Column[tuple[str, dict[str, int]]], ...] = (
        Column("request", lambda row: row[0], "left"),
        Column("count", lambda row: row[1]["requests"]),
        Column("failed", lambda row: row[1]["failures"]),
        Column("received", lambda row: size_text(row[1]["received_bytes"])),
    )
    yield table_of(list(told["store"].items()), *requests)
