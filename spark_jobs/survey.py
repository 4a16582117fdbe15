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
from spark_jobs.tasks import StoreSpec, run_items

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OBJECTS_A_TASK = 32
"""The number of objects that a task opens."""

TASKS_A_QUERY = 64
"""The number of tasks whose results the driver keeps: with 9,000 streams an object, 370 MB."""

_DIGITS = "0123456789abcdef"

Wanted = tuple[tuple[int, ObjectRef], ...]


class SparkBulkScan(BulkScan):
    """See `accel.catalog.whole_catalog.BulkScan`.

    Args:
        spark: the session, classic or of Spark Connect.
        store: the store of the catalog.
        prefix_digits: the number of first digits of keys by which a listing is divided: 1 for 16 tasks, 2 for 256.
        objects_a_task: the number of objects that a task opens.

    Threads: one.
    """

    def __init__(
        self,
        spark: SparkSession,
        store: StoreSpec,
        *,
        prefix_digits: int = 1,
        objects_a_task: int = OBJECTS_A_TASK,
    ) -> None:
        self._spark = spark
        self._store = store
        self._prefixes = key_prefixes(prefix_digits)
        self._objects_a_task = objects_a_task

    def list_objects(self, parts: CatalogParts, progress: Progress | None = None) -> StoredObjects:
        """All objects of the bucket; one request for 1,000 keys, and one a task.

        Raises:
            TaskFailed: a part of the bucket could not be listed.
        """
        del parts  # each task opens the catalog itself
        work = partial(_list, self._store)
        outcomes = run_items(self._spark, work, self._prefixes, name="list keys")
        listings = [outcome.required() for outcome in outcomes]
        self.requests += sum(outcome.requests for outcome in outcomes)
        if progress is not None:
            progress(sum(keys for _, keys in listings))
        return joined_objects(stored for stored, _ in listings)

    def open_objects(self, parts: CatalogParts, wanted: Iterable[tuple[int, ObjectRef]]) -> Iterator[ScannedObject]:
        """Open indexes, and yield the results in this order; one ranged GET an object, and one a task.

        Each query of Spark opens the objects of `TASKS_A_QUERY` tasks. The error of a task is the result of each of
        its objects.
        """
        del parts
        work = partial(_look, self._store)
        chunks = _chunked(wanted, self._objects_a_task)
        while query := tuple(islice(chunks, TASKS_A_QUERY)):
            for outcome in run_items(self._spark, work, query, name="open objects"):
                if outcome.error is not None:
                    yield from ((ref, outcome.error) for _, ref in outcome.item)
                self.requests += outcome.requests
                self.bytes_read += outcome.moved_bytes
                yield from outcome.result or ()


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


def _list(store: StoreSpec, prefix: str) -> tuple[StoredObjects, int]:
    """The objects whose keys begin so, and the number of keys."""
    seen = [0]
    with ObjectCatalog.open(store.open()) as catalog:
        return list_objects(catalog.parts, seen.append, prefix), seen[-1]


def _look(store: StoreSpec, wanted: Wanted) -> tuple[ScannedObject, ...]:
    with ObjectCatalog.open(store.open()) as catalog:
        return tuple(scanned(ref, index) for ref, index in open_each(catalog.parts, wanted))
