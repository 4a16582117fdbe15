"""The bulk scan of verification and collection on Spark: tasks list the bucket and open objects.

    verify(catalog, scan=SparkBulkScan(spark, store))
    plan_collection(catalog, scan=SparkBulkScan(spark, store))

Keys of objects begin with the last hexadecimal digits of their ids, so they are spread evenly over the first digits: a
task lists the keys that begin with "a", another task those with "b". Other keys with such a first character (those of
the catalog begin with an "a") are listed too, and ignored.

The driver evaluates the results, by the same code as without Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice, product
from typing import TYPE_CHECKING

from accel.catalog import ObjectCatalog
from accel.catalog.parts import CatalogParts, open_each
from accel.catalog.whole_catalog import (
    BulkScan,
    Progress,
    ScannedObject,
    StoredObjects,
    joined_objects,
    list_objects,
    scanned,
)
from loaders.object_ref import ObjectRef
from spark_jobs.tasks import StoreSpec, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS_AT_ONCE = 8
OBJECTS_A_TASK = 64
"""The number of objects that a task opens."""

_DIGITS = "0123456789abcdef"

Wanted = tuple[tuple[int, ObjectRef], ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Listing:
    """The result of a task that lists keys."""

    stored: StoredObjects
    keys: int
    requests: int


@dataclass(frozen=True, slots=True, eq=False)
class _Scanned:
    """The result of a task that opens objects, in their order."""

    found: tuple[ScannedObject, ...]
    requests: int
    bytes_read: int


class SparkBulkScan(BulkScan):
    """See `accel.catalog.whole_catalog.BulkScan`.

    Args:
        spark: the session; a classic one, not Spark Connect.
        store: the store of the catalog.
        at_once: tasks that run at the same time.
        prefix_digits: the number of first digits of keys by which a listing is divided: 1 for 16 tasks, 2 for 256.
        objects_a_task: the number of objects that a task opens.

    Threads: one.
    """

    def __init__(
        self,
        spark: SparkSession,
        store: StoreSpec,
        *,
        at_once: int = TASKS_AT_ONCE,
        prefix_digits: int = 1,
        objects_a_task: int = OBJECTS_A_TASK,
    ) -> None:
        self._spark = spark
        self._store = store
        self._at_once = at_once
        self._prefixes = key_prefixes(prefix_digits)
        self._objects_a_task = objects_a_task
        self.requests = 0
        """The number of requests that the tasks have sent so far."""
        self.bytes_read = 0
        """Bytes that the tasks have received, without listings."""

    def list_objects(self, parts: CatalogParts, progress: Progress | None = None) -> StoredObjects:
        """All objects of the bucket; one request for 1,000 keys, and one a task.

        Raises:
            TaskFailed: a part of the bucket could not be listed.
        """
        del parts  # each task opens the catalog itself
        listings, keys = [], 0
        work = partial(_list, self._store)
        for outcome in run_tasks(self._spark, work, self._prefixes, at_once=self._at_once, label=_list_label):
            listing = outcome.required()
            self.requests += listing.requests
            keys += listing.keys
            listings.append(listing.stored)
            if progress is not None:
                progress(keys)
        return joined_objects(listings)

    def open_objects(self, parts: CatalogParts, wanted: Iterable[tuple[int, ObjectRef]]) -> Iterator[ScannedObject]:
        """Open indexes, and yield the results in this order; one ranged GET an object, and one a task.

        If a task fails permanently, its error is the result of each of its objects.
        """
        del parts
        work = partial(_look, self._store)
        chunks = _chunked(wanted, self._objects_a_task)
        for outcome in run_tasks(self._spark, work, chunks, at_once=self._at_once, label=_look_label, in_order=True):
            if outcome.error is not None:
                yield from ((ref, outcome.error) for _, ref in outcome.value)
            if outcome.result is None:
                continue
            self.requests += outcome.result.requests
            self.bytes_read += outcome.result.bytes_read
            yield from outcome.result.found


def key_prefixes(digits: int) -> list[str]:
    """All prefixes of this length that keys of objects may have.

    >>> len(key_prefixes(1)), key_prefixes(2)[16:19]
    (16, ['10', '11', '12'])
    """
    return ["".join(prefix) for prefix in product(_DIGITS, repeat=digits)]


def _chunked(wanted: Iterable[tuple[int, ObjectRef]], size: int) -> Iterator[Wanted]:
    left = iter(wanted)
    while chunk := tuple(islice(left, size)):
        yield chunk


def _list(store: StoreSpec, prefix: str) -> _Listing:
    counted, keys = store.open(), 0

    def note(seen: int) -> None:
        nonlocal keys
        keys = seen

    with ObjectCatalog.open(counted) as catalog:
        stored = list_objects(catalog.parts, note, prefix)
    return _Listing(stored, keys, counted.snapshot().total.requests)


def _look(store: StoreSpec, wanted: Wanted) -> _Scanned:
    counted = store.open()
    with ObjectCatalog.open(counted) as catalog:
        scans = tuple(scanned(ref, index) for ref, index in open_each(catalog.parts, wanted))
    total = counted.snapshot().total
    return _Scanned(scans, total.requests, total.received_bytes)


def _list_label(prefix: str) -> str:
    return f"accel: list keys that begin with {prefix}"


def _look_label(wanted: Wanted) -> str:
    return f"accel: open {len(wanted)} objects from {wanted[0][1].object_id} on"
