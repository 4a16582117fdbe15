"""The table of routes: parameters and answer of each, and whether it writes. The OpenAPI document is generated from it.

An operation is a function of the sidecar and the request. Its parameters are a msgspec struct, whose names, types,
defaults and limits are documented and checked in one place. Unknown parameters are refused: a misspelt one would
otherwise be replaced by its default.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import NODEFAULT, Struct
from msgspec.structs import fields
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from accel.server.problems import Problem, Refused
from accel.server.sidecar import Sidecar
from loaders.settings import MIB

JSON: Final = "application/json"
BINARY: Final = "application/octet-stream"

BODY_BYTES_MAX: Final = 4 * MIB
"""Of a request."""

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Asked:
    """One request.

    Args:
        query: its parameters, as the operation's struct; None if the operation has none.
        body: its body; None if the operation has none.
        path: the values of the variable parts of the path.
        headers: of the request.
    """

    query: Any
    body: Any
    path: Mapping[str, str]
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Operation:
    """One route.

    Args:
        method: GET or POST.
        path: in Starlette's notation.
        name: of the operation, in the document and in metrics.
        summary: one sentence for people.
        answer: the function that answers.
        query: struct of its parameters.
        body: struct of its body, which is JSON.
        reply: struct of its answer, if that is JSON with a fixed form; None for other JSON.
        media_type: of its answer.
        writes: whether it needs the token on loopback, too.
        is_conditional: whether it answers 304 to a current ETag.
    """

    method: str
    path: str
    name: str
    summary: str
    answer: Callable[[Sidecar, Asked], Awaitable[Response]]
    query: type[Struct] | None = None
    body: type[Struct] | None = None
    reply: type[Struct] | None = None
    media_type: str = JSON
    writes: bool = False
    is_conditional: bool = False


def json_response(value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer in JSON."""
    return Response(_encode(value), status, headers, JSON)


def routes_of(operations: Iterable[Operation], sidecar: Sidecar) -> list[Route]:
    """A route for each operation."""
    return [Route(each.path, _endpoint(each, sidecar), methods=[each.method], name=each.name) for each in operations]


def _endpoint(operation: Operation, sidecar: Sidecar) -> Callable[[Request], Awaitable[Response]]:
    timer = sidecar.system.timer

    async def endpoint(request: Request) -> Response:
        from accel.server.problems import problem_of  # noqa: PLC0415 - only errors need it

        started_seconds, status = timer(), 499
        try:
            query = _query(operation.query, request)
            body = await _body(operation.body, request, BODY_BYTES_MAX)
            response = await operation.answer(sidecar, Asked(query, body, request.path_params, request.headers))
            status = response.status_code
        except Exception as error:
            status = problem_of(error).status
            raise
        finally:
            sidecar.note(operation.name, status, timer() - started_seconds)
        return response

    return endpoint


def _query(kind: type[Struct] | None, request: Request) -> Struct | None:
    given = request.query_params.multi_items()
    values = dict(given)
    if len(values) < len(given):
        raise _invalid("expected each parameter once, found one of them twice")
    if kind is None:
        if values:
            raise _invalid(f"expected no parameters, found {', '.join(sorted(values))[:200]}")
        return None
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _invalid(f"parameters: {error}") from error


async def _body(kind: type[Struct] | None, request: Request, size_bytes_max: int) -> Struct | None:
    if kind is None:
        return None
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != JSON:
        detail = f"expected a body of {JSON}, found {given[:80] or 'no content-type'}"
        raise Refused("UnsupportedMediaType", 415, "The body is of another type.", detail)
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > size_bytes_max:
            detail = f"expected a body of at most {size_bytes_max} bytes, found more"
            raise Refused("BodyTooLarge", 413, "The body is too large.", detail)
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:  # a ValidationError is a DecodeError
        raise _invalid(f"body: {error}") from error


def _invalid(detail: str) -> Refused:
    return Refused("InvalidRequest", 400, "The request makes no sense.", detail)


# The document

STATUSES: Final = {
    "400": "The request makes no sense.",
    "401": "The token is missing or wrong.",
    "403": "Another page sent the request, or the token is missing.",
    "404": "It does not exist.",
    "409": "The present state does not allow it.",
    "410": "It no longer exists.",
    "413": "The body is too large.",
    "415": "The body is of another type.",
    "421": "The request names another host.",
    "429": "Too many requests are under way; retry after Retry-After.",
    "500": "The sidecar failed; its log says why.",
    "502": "Stored data are damaged or refused.",
    "503": "Not available now; retry after Retry-After.",
    "504": "It took too long.",
}


def openapi(operations: Sequence[Operation], version: str) -> dict[str, Any]:
    """The document of all operations, as OpenAPI 3.1."""
    kinds = [Problem, *(kind for each in operations for kind in (each.body, each.reply) if kind is not None)]
    _, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        paths.setdefault(each.path, {})[each.method.lower()] = _described(each)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Accel",
            "version": version,
            "description": "Finds which objects hold a stream's offsets. docs/how-to/sidecar.md contains the rules.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _described(operation: Operation) -> dict[str, Any]:
    answers: dict[str, Any] = {
        "200": {"description": "The answer.", "content": {operation.media_type: _reply(operation)}}
    }
    if operation.is_conditional:
        answers["304"] = {"description": "Nothing has changed since the answer with this ETag."}
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    answers |= {status: {"description": text, "content": problem} for status, text in STATUSES.items()}
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": _parameters(operation),
        "responses": answers,
    }
    if operation.body is not None:
        schema = {"$ref": f"#/components/schemas/{operation.body.__name__}"}
        described["requestBody"] = {"required": True, "content": {JSON: {"schema": schema}}}
    if operation.writes:
        described["security"] = [{"token": []}]
    return described


def _reply(operation: Operation) -> dict[str, Any]:
    if operation.reply is None:
        return {"schema": {} if operation.media_type == JSON else {"type": "string"}}
    return {"schema": {"$ref": f"#/components/schemas/{operation.reply.__name__}"}}


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    names = [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
    ]
    if operation.query is None:
        return parameters
    schema = msgspec.json.schema(operation.query)["$defs"][operation.query.__name__]["properties"]
    for field in fields(operation.query):
        required = field.default is NODEFAULT and field.default_factory is NODEFAULT
        parameters.append(
            {"name": field.encode_name, "in": "query", "required": required, "schema": schema[field.name]}
        )
    return parameters
