"""A sidecar: lookups, records, histories and metrics over HTTP, for brokers in any language.

    accel serve s3://bucket/prefix                      on the command line
    app = sidecar_app(Sidecar(store))                   an ASGI application, for your own server

    sidecar      `Sidecar`: the store, the accelerator and the histories; starting, ready, degraded or stale
    app          `sidecar_app`: the routes behind the guard
    guard        access, and limits of number and time
    operations   the table of routes: parameters, answers and costs; the OpenAPI document is generated from it
    lookups      objects, explain, records and places
    streams      histories: segments, epochs, successors, cuts, lag
    console      the page at /, and its routes
    control      own uploads, refresh, stats, health, metrics
    problems     errors as `application/problem+json`
    settings     limits and access

The extra `server` installs its dependencies. docs/how-to/sidecar.md is the page for users. Threads: one event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from accel.errors import MissingExtra
from accel.server.settings import SidecarSettings

if TYPE_CHECKING:
    from accel.server.app import sidecar_app
    from accel.server.sidecar import Sidecar

__all__ = ["Sidecar", "SidecarSettings", "sidecar_app"]

_PLACES = {"Sidecar": "accel.server.sidecar", "sidecar_app": "accel.server.app"}


def __getattr__(name: str) -> Any:
    # Modules that need Starlette are loaded on first use, so that a missing extra can be reported.
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - likewise

    try:
        return getattr(import_module(_PLACES[name]), name)
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"a sidecar needs the extra `server`: pip install 'accel-streams[server]' ({error})"
        ) from error
