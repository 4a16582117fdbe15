"""Own uploads and refreshes; and the sidecar's stats, health and metrics."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct
from prometheus_client.exposition import choose_encoder
from starlette.responses import Response

from accel.image import ObjectRef, version_number
from accel.lookup.slow_lookups import SLOW_LOOKUPS_MAX
from accel.server.operations import Asked, Operation, json_response
from accel.server.problems import Refused
from accel.server.sidecar import Sidecar

Id = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Size = Annotated[int, Meta(ge=-1, le=2**63 - 1)]


class Committed(Struct, frozen=True, forbid_unknown_fields=True):
    """An object that the broker wrote and committed itself, so that the sidecar need not open it.

    `ranges` has a row [stream id, start, end) for each of its ranges, without holes inside. The sidecar does not check
    the rows: they must be true.
    """

    node_id: Id
    object_id: Id
    ranges: list[tuple[Id, Id, Id]]
    size_bytes: Size = -1
    index_size_bytes: Size = -1
    attributes: Size = -1


class Taken(Struct, frozen=True):
    """The number of ranges that were added."""

    ranges: int


class Refreshed(Struct, frozen=True):
    """Whether there was a newer image, and the version of the current one."""

    is_newer: bool
    image_version: int


class Health(Struct, frozen=True):
    """The process answers."""

    status: str


class Ready(Struct, frozen=True):
    """starting, ready, degraded or stale, and the reasons; see `accel.server.sidecar`."""

    state: str
    reasons: list[str]


async def committed(sidecar: Sidecar, asked: Asked) -> Response:
    """`POST /v1/objects:committed`."""
    told: Committed = asked.body
    ref = ObjectRef(told.object_id, told.size_bytes, told.index_size_bytes, told.attributes)
    try:
        await sidecar.in_thread(sidecar.accelerator.object_committed, told.node_id, ref, told.ranges)
    except ValueError as error:
        raise Refused("InvalidRequest", 400, "The request makes no sense.", f"ranges: {error}") from error
    return json_response(Taken(len(told.ranges)))


async def refresh(sidecar: Sidecar, asked: Asked) -> Response:  # noqa: ARG001 - the form of operations
    """`POST /v1/refresh`: queries the source of images now."""
    accelerator = sidecar.accelerator
    is_newer = await accelerator.refresh()
    return json_response(Refreshed(is_newer, version_number(accelerator.image_version)))


class SlowQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The maximum number of lookups, the last ones."""

    limit: Annotated[int, Meta(ge=1, le=SLOW_LOOKUPS_MAX)] = SLOW_LOOKUPS_MAX


async def slow(sidecar: Sidecar, asked: Asked) -> Response:
    """`GET /v1/slow`: the latest one first."""
    query: SlowQuery = asked.query
    accelerator = sidecar.accelerator
    kept = await sidecar.in_thread(lambda: [each.summary() for each in accelerator.slow_lookups()[-query.limit :]])
    return json_response({"seconds": sidecar.lookups.slow_lookup_seconds, "lookups": kept[::-1]})


async def hot(sidecar: Sidecar, asked: Asked) -> Response:  # noqa: ARG001 - the form of operations
    """`GET /v1/hot`."""
    return json_response(sidecar.accelerator.hot().to_dict())


async def stats(sidecar: Sidecar, asked: Asked) -> Response:  # noqa: ARG001 - likewise
    """`GET /v1/stats`: runs in a thread, as hints are summed over lists."""
    accelerator = sidecar.accelerator
    told = (await sidecar.in_thread(accelerator.stats)).to_dict()
    told["store"] = sidecar.store.snapshot().by_operation
    told["bill"] = sidecar.store.bill(sidecar.settings.prices)
    told["state"] = sidecar.readiness().state.value
    return json_response(told)


async def healthy(sidecar: Sidecar, asked: Asked) -> Response:  # noqa: ARG001 - likewise
    """`GET /healthz`."""
    return json_response(Health("ok"))


async def ready(sidecar: Sidecar, asked: Asked) -> Response:  # noqa: ARG001 - likewise
    """`GET /readyz`: 200 if lookups are answered, even if only from memory; else 503."""
    readiness = sidecar.readiness()
    status = 200 if readiness.serves else 503
    reasons = readiness.reasons if sidecar.settings.is_loopback else []
    return json_response(Ready(readiness.state.value, reasons), status=status)


async def metrics(sidecar: Sidecar, asked: Asked) -> Response:
    """`GET /metrics`: runs in a thread; as OpenMetrics for a client that accepts it."""
    encode, content_type = choose_encoder(asked.headers.get("accept", ""))
    return Response(await sidecar.in_thread(encode, sidecar.registry), headers={"content-type": content_type})


OPERATIONS: Final = (
    Operation(
        "POST",
        "/v1/objects:committed",
        "objects_committed",
        "Report an object that the broker wrote itself, so that the sidecar need not open it.",
        committed,
        body=Committed,
        reply=Taken,
        writes=True,
    ),
    Operation("POST", "/v1/refresh", "refresh", "Load the newest image now.", refresh, reply=Refreshed, writes=True),
    Operation("GET", "/v1/stats", "stats", "Statistics; docs/operations/operations.md explains the names.", stats),
    Operation(
        "GET", "/v1/slow", "slow", "The last slow lookups: why each was slow, and its trace.", slow, query=SlowQuery
    ),
    Operation("GET", "/v1/hot", "hot", "The streams and nodes with most lookups, GETs and bytes in 10 minutes.", hot),
    Operation("GET", "/healthz", "healthz", "Whether the process answers.", healthy, reply=Health),
    Operation("GET", "/readyz", "readyz", "Whether lookups are answered, and how well.", ready, reply=Ready),
    Operation("GET", "/metrics", "metrics", "Metrics for Prometheus.", metrics, media_type="text/plain"),
)
