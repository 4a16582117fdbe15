"""Processes that send each other's events to their owners, over a network that may lose them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from accel.errors import AccelError
from accel.history.store import Stream, StreamStore
from accel.streams.settings import ForwardingSettings, StreamWriterSettings
from accel.streams.shared.forwarding import (
    CARRY_OUT_PATH,
    PATH,
    AppendRequest,
    CarryOutRequest,
    ForwardingClient,
    SegmentService,
)
from accel.streams.shared.owners import OwnersTable, Registration
from accel.streams.shared.segments import SharedSegments
from accel.streams.writer import StreamWriter
from loaders.store.decorated import DecoratedStore
from tests.accel.streams.writer.world import HISTORY, NAME, Process, World

SECRET = "a secret of the shop"  # noqa: S105 - of tests
NODES = (4, 5)
SMALL = ForwardingSettings(wait_seconds=5.0)
QUICK = StreamWriterSettings(wait_seconds=5.0, pause_seconds=0.2)
Trouble = Callable[[str], object]


class Peer:
    """A process that owns segments, takes events of others, and writes."""

    def __init__(self, world: World, node_id: int, network: Network, store: DecoratedStore | None = None) -> None:
        self.world, self.network = world, network
        self.process: Process = world.start(store, node_id=node_id)
        self.owners = OwnersTable(self.process.catalog)
        self.registration: Registration = self.owners.register(node_id, address=f"http://node-{node_id}")
        token, streams = self.registration.owner.token, self.process.streams
        self.service = SegmentService(self.process.host, token, streams, settings=SMALL)
        network.services[self.registration.owner.address] = self.service

    def shared(self, client: ForwardingClient | None) -> tuple[Stream, SharedSegments]:
        segments = SharedSegments(self.process.host, self.owners, client)
        streams = StreamStore.open(self.world.store, system=self.world.system, settings=HISTORY, host=segments)
        return streams.stream(*NAME), segments

    def stream(self) -> Stream:
        return self.shared(self.network.client())[0]

    def writer(self) -> StreamWriter:
        return StreamWriter(*self.shared(self.network.client()), settings=QUICK)

    def die(self) -> None:
        self.network.services.pop(self.registration.owner.address, None)
        self.process.die()


class Network:
    """Hands requests to services; `before` and `after` may lose them."""

    def __init__(self) -> None:
        self.services: dict[str, SegmentService] = {}
        self.before: Trouble = lambda _: None
        self.after: Trouble = lambda _: None
        self.requests: list[AppendRequest] = []

    def send(self, url: str, body: bytes, headers: dict[str, str], timeout_seconds: float) -> tuple[int, bytes]:
        assert headers["Authorization"] == f"Bearer {SECRET}"
        assert timeout_seconds > 0
        service = self.services.get(url.removesuffix(PATH).removesuffix(CARRY_OUT_PATH))
        if service is None:
            raise ConnectionRefusedError(url)
        self.before(url)
        try:
            if url.endswith(CARRY_OUT_PATH):
                reply = service.carry_out(msgspec.msgpack.decode(body, type=CarryOutRequest))
            else:
                self.requests.append(msgspec.msgpack.decode(body, type=AppendRequest))
                reply = service.take(self.requests[-1])
        except AccelError as error:
            return 500, str(error).encode()
        self.after(url)
        return 200, msgspec.msgpack.encode(reply)

    def client(self, *addresses: str) -> ForwardingClient:
        known = addresses or tuple(f"http://node-{node_id}" for node_id in NODES)
        return ForwardingClient(known, SECRET, settings=SMALL, send=self.send)
