"""Does an object exist, with the size that is said of it, and can its index be read? Nothing is taken from memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from accel.catalog.parts import CatalogParts
from accel.errors import AccelError
from loaders.object_index import Load, ObjectIndexLoader, OpenedObject
from loaders.object_ref import ObjectRef

Opened = tuple[ObjectRef, OpenedObject | AccelError]
"""What was said of an object, and what was found."""


def open_each(parts: CatalogParts, wanted: Iterable[tuple[int, ObjectRef]]) -> Iterator[Opened]:
    """Open indexes of (node id, object) pairs, a bounded number at once, and give them in this order.

    An object that cannot be opened is given as its error, and the others go on. One ranged GET an object.
    """
    waiting = iter(wanted)
    at_once = parts.settings.parallel_requests
    executor = ThreadPoolExecutor(at_once, thread_name_prefix="accel-existing")
    try:
        # A loader of its own: the catalog's may remember indexes of objects that are deleted by now.
        loader = ObjectIndexLoader(parts.store, parts.layout, executor, cache_bytes_max=0)
        while batch := [loader.open(node_id, ref) for node_id, ref in islice(waiting, at_once)]:
            yield from ((load.ref, _result(load)) for load in batch)
    finally:
        # Not waited for. Who leaves half-way leaves this to the garbage collector, which may come at any moment: even
        # while a thread is being started, under a lock that the threads to wait for want as well.
        executor.shutdown(wait=False, cancel_futures=True)


def _result(load: Load) -> OpenedObject | AccelError:
    try:
        return load.result.result()
    except AccelError as error:
        return error
