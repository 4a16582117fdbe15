"""What both accelerators share: the current image, what is known, what loads, and the steps of lookups and reads.

The engine never waits. A driver (`accelerator.py`, `async_accelerator.py`) takes the steps of a lookup from it, lets it
start what a step asks for (`UnderWay`), waits for that in its own way, and sends the replies.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Lock
from typing import Any

from accel.errors import AccelError, CatalogWentBack, ImageRefused, ImageTooOld
from accel.image import ImageVersion, MetadataImage, NodeImage, ObjectRef, is_newer
from accel.image_source import DatedSource, ImageSource, PollingSource
from accel.lookup.answer import Answer, Request
from accel.lookup.explain import Trace
from accel.lookup.hints import HintLoad, HintLoader, HintStore
from accel.lookup.index_cache import EmptyIndexCache, SharedIndexCache
from accel.lookup.lookup import Asking, lookup
from accel.lookup.reading import Ranges, ReadSteps, read_range
from accel.lookup.stats import AcceleratorStats, Counters, LookupStats, count_answer
from accel.lookup.steps import (
    AwaitMore,
    FetchSpan,
    HintReply,
    Inputs,
    OpenObject,
    OpenObjects,
    ReadEntries,
    ReadRoot,
    RefreshFailed,
    Reply,
    SnapshotKnown,
)
from accel.lookup.warming import Warming, WarmReport
from accel.settings import Settings
from accel.system import Components
from loaders.hints import StreamEntries
from loaders.layout import ObjectLayout
from loaders.lifetime import Lifetime, Threads
from loaders.object_index import Load, ObjectIndexLoader, OpenedObject
from loaders.parallel import Arrivals
from loaders.plan import LoadAll, policy_of
from loaders.store import ObjectStore
from loaders.store.hedged import HedgedStore, Hedging
from range_index import ObjectRanges

logger = logging.getLogger(__name__)


HINT = -1
"""Stands for the hint among the positions of objects that have come."""


class UnderWay:
    """What one lookup has asked for in a node's list and was not told of yet.

    What is asked for in another list takes its place; the loads go on, and what they bring is kept by the caches.

    Args:
        engine: starts the loads.

    Threads: one at a time.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._node: NodeImage | None = None
        self._loads: dict[int, Load] = {}
        self._hint: HintLoad | None = None
        self._arrivals: Arrivals[int] = Arrivals()
        self._is_new = False
        self.cost = RoundCost()

    def ask(self, step: OpenObjects) -> None:
        """Start to fetch all that a step asks for."""
        if step.node is not self._node:
            self._node, self._loads, self._hint, self._arrivals = step.node, {}, None, Arrivals()
        if (hint := self._engine.read_hint(step)) is not None:
            self._hint = hint
            self._arrivals.expect(HINT, hint.result)
        for position in [each for each in step.positions if each not in self._loads]:
            load = self._loads[position] = self._engine.loader.open(step.node.node_id, step.node.ref(position))
            self._arrivals.expect(position, load.result)
            self.cost.requests += load.started
        self._is_new |= not isinstance(step, AwaitMore)

    def signal(self) -> Future[None]:
        """Done as soon as `take` has something to give."""
        return self._arrivals.signal()

    def take(self) -> dict[int, Reply] | HintReply | None:
        """What has come since this was asked last; None if nothing has.

        Raises:
            BaseException: an error that is not one of ours, as it was raised.
        """
        came = self._arrivals.take()
        if not came:
            return None
        objects = {position: self._object(self._loads.pop(position)) for position in came if position != HINT}
        if HINT not in came or self._hint is None:
            return objects
        hint, self._hint = self._hint, None
        reply = hint.result.result()
        if hint.started:
            self.cost.hint_requests += reply.requests
            self.cost.hint_bytes += reply.bytes_read
        return reply.beside(objects)

    def is_overdue(self) -> bool:
        """Whether nothing was said of it being slow since something was asked for; says it but once."""
        was_new, self._is_new = self._is_new, False
        return was_new

    def _object(self, load: Load) -> Reply:
        reply = _reply(load)
        if load.started and not load.result.exception():
            opened = load.result.result()
            self.cost.requests += opened.requests - 1
            self.cost.bytes_read += opened.bytes_read
        return reply


@dataclass(slots=True)
class RoundCost:
    """Requests that were started, or came, and what came of them, since it was asked last."""

    requests: int = 0
    bytes_read: int = 0
    hint_requests: int = 0
    hint_bytes: int = 0


def _reply(load: Load) -> Reply:
    error = load.result.exception()
    if error is None:
        return load.result.result().ranges
    if isinstance(error, AccelError):
        return error
    raise error


class Engine:
    """The parts of an accelerator.

    Args:
        source: where images come from.
        store: where objects lie.
        settings: bounds and choices.
        system: clock, sleep and chance.

    Threads: any.
    """

    def __init__(self, source: ImageSource, store: ObjectStore, *, settings: Settings, system: Components) -> None:
        self.source = source
        self.settings = settings
        self.system = system
        self.lifetime = Lifetime("an accelerator", system.process_id)
        self._answered_seconds = system.timer()
        self._image = source.current()
        self._image_seconds = system.timer()
        self._polling = source if isinstance(source, PollingSource) else None
        self._lock = Lock()
        self._refreshed_seconds: float | None = None
        self.layout = ObjectLayout(namespace=self._image.namespace)
        hedging = Hedging(settings.hedge_percent / 100, threads_max=settings.parallel_loads)
        self.store = store = HedgedStore(store, system.timer, self.layout.is_immutable, hedging)
        self.index_cache = SharedIndexCache(settings, system.timer, system.jitter)
        self.executor = Threads(settings.parallel_loads, "accel-load", lifetime=self.lifetime)
        self.loader = ObjectIndexLoader(
            store,
            self.layout,
            self.executor,
            cache_bytes_max=settings.block_index_size_bytes_max,
            on_opened=self._learn,
        )
        self.hints = HintStore(self._image.namespace, system.timer, settings, self.loader.holds)
        self._hint_loader = HintLoader(store, self.hints, self.executor, self._learn_entries)
        self.counters = Counters(LookupStats)
        self._inputs = self._make_inputs()

    @property
    def policy_name(self) -> str:
        """The policy in use."""
        return self._inputs.policy.name

    def image(self) -> MetadataImage:
        """The newest image at hand, installed; what it no longer lists is dropped by a loading thread, later.

        Raises:
            ImageTooOld: nothing may be served from it, and there is no younger one.
        """
        offered = self._ask(self.source.current)
        return self._installed(offered) if isinstance(offered, MetadataImage) else self._image

    def image_at_hand(self) -> MetadataImage | None:
        """As `image`, if nobody has to be asked for it; None if the source would have to ask. Does not block."""
        if self._polling is None:
            return self.image()
        offered = self._polling.at_hand()
        return None if offered is None else self._installed(offered)

    def replace_image(self, image: MetadataImage) -> bool:
        """Install an image if it is newer, and drop what it no longer lists; says whether it was.

        Raises:
            ImageRefused: an image of another namespace, whose ids name other objects; or of another kind of version.
        """
        before = self._install(image)
        if before is not None:
            self.index_cache.follow(before, image)
        return before is not None

    def start_lookup(self, request: Request, image: MetadataImage, trace: Trace | None = None) -> Asking[Answer]:
        """The steps of a lookup that begins with this image."""
        return lookup(request, image, self._inputs, trace)

    def start_read(self, stream_id: int, start: int, end: int, max_bytes: int) -> ReadSteps:
        """The steps of a read."""
        return read_range(
            stream_id,
            start,
            end,
            max_bytes,
            self._inputs,
            span_size_bytes_max=self.settings.read_ahead_size_bytes,
            window_size_bytes=self.settings.read_window_size_bytes,
            blocks=None if self._inputs.hints is None else self.hints,
        )

    def read_hint(self, step: OpenObjects) -> HintLoad | None:
        """Start to read what a step wants of the node's snapshot; None if it wants nothing."""
        if isinstance(step, ReadRoot):
            return self._hint_loader.read_root(step.node.node_id)
        return self._hint_loader.read_entries(step) if isinstance(step, ReadEntries) else None

    def begin(self, step: OpenObject | FetchSpan, ranges: Ranges | None) -> Future[Any]:
        """Start to open one object, or to fetch a span of it: from the store, or from what `fetch` is given."""
        if isinstance(step, OpenObject):
            return self.loader.open(step.group, step.ref).result
        return self.executor.submit(self.fetch, step, ranges)

    def fetch(self, step: FetchSpan, ranges: Ranges | None = None) -> bytes | memoryview:
        """The bytes of a span; blocks.

        Args:
            step: the span.
            ranges: where from; None = from the store.

        Raises:
            StoreError: from the store; also if the object is shorter than that.
        """
        key = self.layout.object_key(step.object_id)
        if ranges is not None:
            return ranges.get_range(key, step.start, step.end)
        return self.store.get_range(key, step.start, step.end).body

    def newer_image(self, version: ImageVersion) -> MetadataImage | RefreshFailed | None:
        """Ask the source for an image newer than this version, and install it; may block for one request.

        Returns:
            None if there is none; `RefreshFailed` if nobody knows.

        Raises:
            ImageTooOld: the source has none, and what is at hand may not be served from any more.
        """
        self.counters.add(refreshes=1)
        self._refreshed_seconds = self.system.timer()
        image = self._ask(lambda: self.source.wait_newer(version, 0))
        if isinstance(image, MetadataImage):
            self.replace_image(image)
        return image

    def commit(self, node_id: int, ref: ObjectRef, ranges: ObjectRanges) -> None:
        """An object that this broker wrote itself: known from now on without being opened."""
        self.index_cache.learn(node_id, ref, ranges)

    def finished(self, answer: Answer) -> Answer:
        """Count an answer."""
        count_answer(self.counters, answer)
        return answer

    def stats(self) -> AcceleratorStats:
        """Counts and sizes now."""
        settings = self.settings
        known, loader, hints = self.index_cache.stats(), self.loader.stats(), self.hints.stats()
        return AcceleratorStats(
            image_version=self._image.version,
            image_age_seconds=self.system.timer() - self._image_seconds,
            image_unconfirmed_seconds=self.image_age_seconds(),
            lookups=self.counters.stats(),
            knowledge=known,
            loader=loader,
            hints=hints,
            hedging=self.store.stats(),
            memory_bytes=known.nbytes + loader.kept_bytes + hints.nbytes,
            memory_bytes_max=settings.object_index_size_bytes_max
            + settings.view_size_bytes_max
            + settings.filter_size_bytes_max
            + known.hashed_ids_bytes
            + settings.block_index_size_bytes_max
            + settings.hint_root_size_bytes_max
            + settings.hint_entry_size_bytes_max,
        )

    def warm(self, node_ids: Iterable[int] | None = None) -> WarmReport:
        """Load roots and packs of these nodes, of all by default; blocks."""
        image = self._image
        chosen = image.nodes if node_ids is None else node_ids
        nodes = [image.node(node_id) for node_id in chosen]
        if self.settings.bypass or not self.settings.use_hints:
            return WarmReport(nodes=len(nodes))
        warming = Warming(self.store, self.hints, self._hint_loader, self.index_cache.add_filters, self.executor)
        return warming.run(nodes, self.system.timer)

    def close(self) -> None:
        """Stop loading; what is under way ends first."""
        self.executor.shutdown(wait=True, cancel_futures=False)
        self.store.close()

    def _make_inputs(self) -> Inputs:
        settings, key_of = self.settings, self.layout.object_key
        if settings.bypass:
            return Inputs(EmptyIndexCache(), LoadAll(), key_of, self._may_refresh)
        hints = self.hints if settings.use_hints else None
        return Inputs(self.index_cache, policy_of(settings.policy), key_of, self._may_refresh, hints)

    def _install(self, image: MetadataImage) -> MetadataImage | None:
        """Make this the current image if it is newer; gives the one before it, None if nothing changed."""
        if image.namespace != self.layout.namespace:
            raise ImageRefused(f"expected an image of namespace {self.layout.namespace!r}, found {image.namespace!r}")
        with self._lock:
            before = self._image
            if not is_newer(image.version, before.version):
                return None
            self._image = image
            self._image_seconds = self.system.timer()
            return before

    def _installed(self, offered: MetadataImage) -> MetadataImage:
        """Install an image if it is newer; gives the one that is installed then."""
        if offered is not self._image:
            before = self._install(offered)
            if before is not None:
                self.executor.submit(self.index_cache.follow, before, offered)
        return self._image

    def _ask(self, question: Callable[[], MetadataImage | None]) -> MetadataImage | RefreshFailed | None:
        """Ask the source; one that fails does not fail lookups while the image at hand can still answer them.

        Raises:
            ImageTooOld: the source says that it cannot any more.
            CatalogWentBack: it says that the image at hand is of a past that is no longer true.
        """
        started_seconds = self.system.timer()
        try:
            image = question()
        except (ImageTooOld, CatalogWentBack):
            raise
        except Exception as error:
            self.counters.add(source_failures=1)
            logger.warning("the image source failed; image version %s stays", self._image.version, exc_info=True)
            return RefreshFailed(self.image_age_seconds(), f"{type(error).__name__}: {error}")
        self._answered_seconds = started_seconds
        return image

    def image_age_seconds(self) -> float:
        """How long ago the image at hand was known to be the newest."""
        source = self.source
        return source.age_seconds() if isinstance(source, DatedSource) else self.system.timer() - self._answered_seconds

    def _may_refresh(self) -> bool:
        last = self._refreshed_seconds
        return last is None or self.system.timer() - last >= self.settings.refresh_seconds

    def _learn(self, node_id: int, opened: OpenedObject) -> None:
        if opened.composite is None and node_id >= 0 and _fits(self._image.node(node_id), opened.ref):
            self.index_cache.learn(node_id, opened.ref, opened.ranges)

    def _learn_entries(self, node_id: int, known: SnapshotKnown, entries: StreamEntries) -> None:
        if known.root is not None:
            self.index_cache.learn_snapshot(self._image.node(node_id), known.root, entries)


def _fits(node: NodeImage, ref: ObjectRef) -> bool:
    """Whether the newest list has this object, and says of it what it says of itself."""
    position = node.position_of.get(ref.object_id)
    if position is None:
        return False  # it left while it was being opened, and will not come back
    listed = node.ref(position)
    return listed.size_bytes in (-1, ref.size_bytes) and listed.attributes == ref.attributes
