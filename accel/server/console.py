"""The console: one page, and its routes. It loads no file from elsewhere, and shows only what the routes return.

    /                    the page
    /console.css         its style
    /console.js          sends requests to the routes below /v1
    /drawing.css, .js    draws the answers; notebooks use the same files (`accel.drawing`)
    GET /v1/map          a stream's objects, as far as they are in memory
    GET /v1/prices       the price of a request, for the figures of the page

The files contain no data, so they need no token. If reading needs one, the page prompts for the token, and keeps it in
its own memory. Threads: one event loop; the files are read once.
"""

from __future__ import annotations

from importlib import resources
from typing import Annotated, Final

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from accel import drawing
from accel.drawing import drawing_file
from accel.lookup.stream_map import StreamMap
from accel.server.operations import Asked, Operation, json_response
from accel.server.sidecar import Sidecar

FILES: Final = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/console.css": ("console.css", "text/css; charset=utf-8"),
    "/console.js": ("console.js", "text/javascript; charset=utf-8"),
    "/drawing.css": ("drawing.css", "text/css; charset=utf-8"),
    "/drawing.js": ("drawing.js", "text/javascript; charset=utf-8"),
}
"""Path -> file of this package or of `accel.drawing`, and its type."""


class MapQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The stream; of a list longer than 20,000 objects, those around an offset, or the last ones."""

    stream_id: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    offset: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None


class Prices(Struct, frozen=True):
    """Prices of requests in a currency: of a thousand reads, and of a thousand writes and listings."""

    currency: str
    per_thousand_reads: float
    per_thousand_writes: float


async def stream_map(sidecar: Sidecar, asked: Asked) -> Response:
    """`GET /v1/map`: runs in a thread, as lists may be long; loads nothing."""
    query: MapQuery = asked.query
    return json_response(await sidecar.in_thread(sidecar.accelerator.stream_map, query.stream_id, query.offset))


async def prices(sidecar: Sidecar, asked: Asked) -> Response:  # noqa: ARG001 - the form of operations
    """`GET /v1/prices`."""
    told = sidecar.settings.prices
    return json_response(Prices(told.currency, told.per_thousand_reads, told.per_thousand_writes))


OPERATIONS: Final = (
    Operation(
        "GET",
        "/v1/map",
        "map",
        "A stream's objects, as far as they are in memory.",
        stream_map,
        query=MapQuery,
        reply=StreamMap,
    ),
    Operation("GET", "/v1/prices", "prices", "The prices of requests in the sidecar's settings.", prices, reply=Prices),
)


def page_routes() -> list[Route]:
    """The routes of the page and its files."""
    return [_file_route(path, name, media_type) for path, (name, media_type) in FILES.items()]


def _file_route(path: str, name: str, media_type: str) -> Route:
    own = resources.files("accel.server").joinpath("page", name)
    content = drawing_file(name) if name in drawing.FILES else own.read_bytes()

    async def answer(_: Request) -> Response:
        return Response(content, media_type=media_type, headers={"cache-control": "no-cache"})

    return Route(path, answer, methods=["GET"])
