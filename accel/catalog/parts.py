"""What the writing parts of a catalog share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass

from accel.catalog.cells import CatalogCells
from accel.catalog.object_ids import ObjectIds
from accel.catalog.settings import CatalogSettings
from accel.system import Components
from loaders.layout import ObjectLayout
from loaders.lifetime import Lifetime
from loaders.object_index import ObjectIndexLoader, OpenedObject
from loaders.object_ref import ObjectRef
from loaders.store import ObjectStore
from loaders.tables import FormatRecord

MILLISECONDS = 1000


@dataclass(frozen=True, slots=True, eq=False)
class CatalogParts:
    """The parts of one opened catalog. Threads: any.

    Args:
        store: where everything lies.
        layout: keys of objects.
        format: what all users of this catalog agree on.
        cells: its keys.
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
    cells: CatalogCells
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
        waiting: list[ObjectRef] = []
        for ref in refs:
            waiting.append(ref)
            if len(waiting) == self.settings.parallel_requests:
                yield from self._opened(node_id, waiting)
                waiting = []
        yield from self._opened(node_id, waiting)

    def _opened(self, node_id: int, refs: list[ObjectRef]) -> list[OpenedObject]:
        loads = [self.loader.open(node_id, ref) for ref in refs]
        return [load.result.result() for load in loads]
