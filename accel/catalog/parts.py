"""What one opened catalog consists of: its settings, its components, and how they open objects.

Settings are choices of one process; what readers and writers must agree on stands in the format record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, fields

from accel.catalog.keys import CatalogKeys
from accel.catalog.object_ids import ObjectIds
from accel.errors import AccelError
from accel.system import Components
from loaders.layout import ObjectLayout
from loaders.lifetime import Lifetime
from loaders.object_index import ObjectIndexLoader, OpenedObject
from loaders.object_ref import ObjectRef
from loaders.parallel import run_bounded
from loaders.store import ObjectStore
from loaders.tables import FormatRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogSettings:
    """Bounds and choices of one process that uses a catalog.

    Args:
        parallel_requests: how many requests of one refresh or one start may be under way at once.
        ids_block: object ids that one write of the counter takes.
        ids_ahead: ids that a node's writer keeps prepared beyond those in use, topped up by the write of each commit,
            so that an upload needs no second write for its id; 0 = none.
        checkpoint_commits: a node's writer writes down where its streams end after so many commits. A new session
            opens at most about so many object indexes before it can write.
        stream_objects_in_list_max: objects of one stream that may wait in a node's list until they are moved to the
            buckets of streams.
        list_versions_kept: versions of a list that stay after commits which take objects out, for `undo`.
    """

    parallel_requests: int = 32
    ids_block: int = 1024
    ids_ahead: int = 4
    checkpoint_commits: int = 64
    stream_objects_in_list_max: int = 64
    list_versions_kept: int = 5

    def __post_init__(self) -> None:
        for setting in fields(self):
            least = 0 if setting.name == "ids_ahead" else 1
            if getattr(self, setting.name) < least:
                raise ValueError(f"expected {setting.name} of at least {least}, found {getattr(self, setting.name)}")


MILLISECONDS = 1000


@dataclass(frozen=True, slots=True, eq=False)
class CatalogParts:
    """The parts of one opened catalog. Threads: any.

    Args:
        store: where everything lies.
        layout: keys of objects.
        format: what all users of this catalog agree on.
        keys: its keys.
        ids: gives out object ids.
        executor: sends requests of one step side by side.
        loader: opens object indexes, on threads of its own.
        settings: choices of this process.
        system: clock, sleep and chance.
        lifetime: until the catalog is closed, in the process that these parts were made for.
        threads: all that there are, to be ended.
    """

    store: ObjectStore
    layout: ObjectLayout
    format: FormatRecord
    keys: CatalogKeys
    ids: ObjectIds
    executor: Executor
    loader: ObjectIndexLoader
    settings: CatalogSettings
    system: Components
    lifetime: Lifetime
    threads: tuple[ThreadPoolExecutor, ...]

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return int(self.system.clock() * MILLISECONDS)

    def open_all(self, node_id: int, refs: Iterable[ObjectRef]) -> Iterator[OpenedObject]:
        """Open indexes of many objects, a bounded number at once, and give them in this order.

        Raises:
            What `ObjectIndexLoader.open` raises.
        """
        wanted = ((node_id, ref) for ref in refs)
        return (load.result() for _, load in open_bounded(self.loader, wanted, self.settings.parallel_requests))


def open_bounded(
    loader: ObjectIndexLoader, wanted: Iterable[tuple[int, ObjectRef]], at_once_max: int
) -> Iterator[tuple[ObjectRef, Future[OpenedObject]]]:
    """Open indexes of (node id, object) pairs, a bounded number at once; the loads come in this order, done or not."""
    refs: deque[ObjectRef] = deque()

    def begin(pair: tuple[int, ObjectRef]) -> Future[OpenedObject]:
        node_id, ref = pair
        refs.append(ref)
        return loader.open(node_id, ref).result

    return ((refs.popleft(), load) for load in run_bounded(begin, wanted, at_once_max))


Opened = tuple[ObjectRef, OpenedObject | AccelError]
"""What was said of an object, and what was found."""


def open_each(parts: CatalogParts, wanted: Iterable[tuple[int, ObjectRef]]) -> Iterator[Opened]:
    """Open indexes of (node id, object) pairs, a bounded number at once, and give them in this order.

    An object that cannot be opened is given as its error, and the others go on. One ranged GET an object.
    """
    at_once = parts.settings.parallel_requests
    executor = ThreadPoolExecutor(at_once, thread_name_prefix="accel-existing")
    try:
        # A loader of its own: the catalog's may remember indexes of objects that are deleted by now.
        loader = ObjectIndexLoader(parts.store, parts.layout, executor, cache_bytes_max=0)
        for ref, load in open_bounded(loader, wanted, at_once):
            yield ref, _result(load)
    finally:
        # Not waited for. Who leaves half-way leaves this to the garbage collector, which may come at any moment: even
        # while a thread is being started, under a lock that the threads to wait for want as well.
        executor.shutdown(wait=False, cancel_futures=True)


def _result(load: Future[OpenedObject]) -> OpenedObject | AccelError:
    try:
        return load.result()
    except AccelError as error:
        return error
