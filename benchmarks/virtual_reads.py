"""Long lookups and reads on a clock that only requests move: how well they overlap, whatever the machine.

The steps of a lookup and of a read are answered by hand. A request takes what `LatencyModel` draws; 64 are under way
at most, the others queue in the order in which they were begun. Nothing else takes time, and none is sent twice. So
what is measured is the order and the overlap of requests, and nothing of the machine or its neighbours.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from accel.image import MetadataImage
from accel.lookup.answer import Answer, Request
from accel.lookup.index_cache import SharedIndexCache
from accel.lookup.reading import BYTES_MAX, Batches, read_range
from accel.lookup.search import search
from accel.lookup.steps import AwaitAny, Begin, Begun, Came, CurrentImage, Inputs, OpenObject, OpenObjects, Reply
from accel.settings import Settings
from accel.testing import LatencyModel
from loaders.layout import ObjectLayout
from loaders.object_index import OpenedObject
from loaders.plan import policy_of
from loaders.store import ObjectStore

DEFAULTS = Settings()
LAYOUT = ObjectLayout()


class Connections:
    """Requests on a virtual clock. One thread.

    Args:
        rng: draws how long each takes.
        most: under way at the same time.
    """

    def __init__(self, rng: random.Random, most: int = DEFAULTS.parallel_loads) -> None:
        self._rng = rng
        self._free = most
        self._model = LatencyModel()
        self._numbers = itertools.count()
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._running: list[tuple[float, int, Callable[[], None]]] = []
        self.now_seconds = 0.0
        self.requests = 0

    def begin(self, size_bytes: int, done: Callable[[], None]) -> None:
        """Send a request; `done` is called when it has come."""
        self.requests += 1
        self._waiting.append((size_bytes, done))
        self._send()

    def wait(self) -> None:
        """Go on to the moment when the next request comes."""
        self.now_seconds, _, done = heapq.heappop(self._running)
        self._free += 1
        self._send()
        done()

    def wait_for_all(self) -> None:
        """Go on until nothing is under way."""
        while self._running:
            self.wait()

    def _send(self) -> None:
        while self._free and self._waiting:
            size_bytes, done = self._waiting.popleft()
            end_seconds = self.now_seconds + self._model.seconds(self._rng, size_bytes)
            heapq.heappush(self._running, (end_seconds, next(self._numbers), done))
            self._free -= 1


class VirtualReader:
    """A cold reader. One thread.

    Args:
        image: one node, whose objects have the positions of ``opened``.
        opened: what opening each object brings.
        store: has the blocks.
        connections: take the requests.
    """

    def __init__(
        self, image: MetadataImage, opened: Sequence[OpenedObject], store: ObjectStore, connections: Connections
    ) -> None:
        self.image = image
        self.opened = opened
        self.store = store
        self.connections = connections
        self.cache = SharedIndexCache(DEFAULTS, lambda: connections.now_seconds, lambda: 0.5)
        [self._node_id] = image.nodes
        self._at_hand: set[int] = set()
        self._asked: dict[int, list[Callable[[], None]]] = {}
        self._replies: dict[int, Reply] = {}
        self._came: dict[int, Begun] = {}
        self._looking: OpenObjects | None = None

    def look_up(self, request: Request) -> Answer:
        """One lookup."""
        steps = search(request, self.image, self.cache, policy_of(DEFAULTS.policy))
        sent: dict[int, Reply] | None = None
        while True:
            try:
                step = steps.send(sent)
            except StopIteration as stop:
                answer: Answer = stop.value
                return answer
            self._ask(step)
            while not self._replies:
                self.connections.wait()
            sent = self._take_replies()

    def read(self, stream_id: int, start: int, end: int) -> list[int]:
        """The base offsets of all batches of a read."""
        inputs = Inputs(self.cache, policy_of(DEFAULTS.policy), LAYOUT.object_key, lambda: False)
        sizes = (DEFAULTS.read_ahead_size_bytes, DEFAULTS.read_window_size_bytes)
        steps = read_range(
            stream_id, start, end, BYTES_MAX, inputs, span_size_bytes_max=sizes[0], window_size_bytes=sizes[1]
        )
        offsets: list[int] = []
        sent: MetadataImage | Begun | Came | None = None
        while True:
            try:
                step = steps.send(sent)
            except StopIteration:
                return offsets
            sent = None
            if isinstance(step, Batches):
                offsets += [batch.base_offset for batch in step.columns]
            elif isinstance(step, CurrentImage):
                sent = self.image
            elif isinstance(step, Begin):
                sent = self._begin(step)
            elif isinstance(step, AwaitAny):
                sent = self._await(step)
            else:
                raise TypeError(f"expected a step of a read from one image, found {step}")

    def _begin(self, step: Begin) -> Begun | None:
        wanted, ticket = step.step, step.ticket
        if isinstance(wanted, OpenObject):
            position = wanted.ref.object_id
            if position in self._at_hand:
                return self.opened[position]
            self._open(position, lambda: self._came.update({ticket: self.opened[position]}))
            return None
        key = LAYOUT.object_key(wanted.object_id)
        body = self.store.get_range(key, wanted.start, wanted.end).body
        self.connections.begin(len(body), lambda: self._came.update({ticket: body}))
        return None

    def _await(self, step: AwaitAny) -> Came:
        if step.lookup is not None and step.lookup is not self._looking:
            self._looking = step.lookup
            self._ask(step.lookup)
        while not self._came and not (step.lookup is not None and self._replies):
            self.connections.wait()
        came, self._came = self._came, {}
        return Came(came, self._take_replies() if step.lookup is not None and self._replies else None)

    def _ask(self, step: OpenObjects) -> None:
        for position in step.positions:
            self._open(position, partial(self._reply, position))

    def _reply(self, position: int) -> None:
        self._replies[position] = self.opened[position].ranges

    def _take_replies(self) -> dict[int, Reply]:
        replies, self._replies = self._replies, {}
        return replies

    def _open(self, position: int, done: Callable[[], None]) -> None:
        """Open an object, or join who is opening it."""
        waiting = self._asked.setdefault(position, [])
        waiting.append(done)
        if len(waiting) == 1:
            self.connections.begin(self.opened[position].bytes_read, lambda: self._has_come(position))

    def _has_come(self, position: int) -> None:
        opened = self.opened[position]
        self._at_hand.add(position)
        self.cache.learn(self._node_id, opened.ref, opened.ranges)
        for done in self._asked.pop(position):
            done()


def read_all_seconds(opened: Sequence[OpenedObject], sizes: Sequence[int], connections: Connections) -> float:
    """How long it takes to open all of these at once, and to fetch bytes of each as soon as it is open (0 = none)."""

    def fetch(size_bytes: int) -> None:
        if size_bytes:
            connections.begin(size_bytes, lambda: None)

    for each, size_bytes in zip(opened, sizes, strict=True):
        connections.begin(each.bytes_read, partial(fetch, size_bytes))
    connections.wait_for_all()
    return connections.now_seconds
