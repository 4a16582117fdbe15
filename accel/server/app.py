"""The application: the sidecar's routes and further ones behind the guard; it opens the sidecar and drains it.

    app = sidecar_app(Sidecar(store))
    uvicorn.run(app, host="127.0.0.1", port=8480)

A process that owns segments receives events from other processes through the same port:

    app = sidecar_app(sidecar, more=forwarding_app(SegmentService(host, token), secret).routes)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import Receive, Scope, Send

from accel.server import console, control, lookups, streams
from accel.server.guard import App, Guard
from accel.server.operations import Operation, json_response, openapi, routes_of
from accel.server.problems import Refused
from accel.server.sidecar import Sidecar
from accel.system import release_version

OPERATIONS: Final[tuple[Operation, ...]] = (
    *lookups.OPERATIONS,
    *streams.OPERATIONS,
    *control.OPERATIONS,
    *console.OPERATIONS,
)
"""All operations; the OpenAPI document lists them in this order."""

TITLES: Final = {
    404: ("NotFound", "There is no such route."),
    405: ("MethodNotAllowed", "Wrong method for this route."),
}


def sidecar_app(sidecar: Sidecar, more: Iterable[BaseRoute] = ()) -> Guard:
    """The ASGI application of a sidecar. It opens the sidecar when it starts, and closes it when it ends.

    Args:
        sidecar: answers the requests; it belongs to one application.
        more: further routes, such as those of `forwarding_app` or of a page; the guard also checks their requests. A
            path that begins with /accel/ has its own secret.
    """
    document = openapi(OPERATIONS, release_version())

    async def describe(_: Request) -> Response:
        return json_response(document)

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        await sidecar.open()
        try:
            yield
        finally:
            await sidecar.close()

    routes = [*routes_of(OPERATIONS, sidecar), Route("/openapi.json", describe), *console.page_routes(), *more]
    router = Router(routes, redirect_slashes=False, default=_no_route, lifespan=lifespan)
    writes = {(each.method, each.path) for each in OPERATIONS if each.writes}
    is_write = writes.__contains__
    return Guard(_with_problems(router), sidecar.settings, lambda *asked: is_write(asked), lambda: sidecar.is_draining)


async def _no_route(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001 - the form of an application
    raise _refused(404)


def _with_problems(router: Router) -> App:
    """The router; errors of Starlette become problems, too."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = router  # so that a wrong method raises an error instead of a text answer
        try:
            await router(scope, receive, send)
        except HTTPException as error:
            raise _refused(error.status_code) from error

    return app


def _refused(status: int) -> Refused:
    kind, title = TITLES.get(status, ("Refused", "The request was refused."))
    return Refused(kind, status, title, "GET /openapi.json describes all routes")
