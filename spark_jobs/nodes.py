"""The nodes that a job is about, and their objects, divided into chunks that tasks open.

A chunk is opened with a request an object, and an object that cannot be opened costs only itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from accel.catalog import ObjectCatalog
from accel.catalog.parts import CatalogParts, Opened, open_each
from accel.catalog.records import Rows, refs_of
from accel.errors import AccelError
from loaders.object_ref import ObjectRef
from spark_jobs.tasks import REASON_SIZE_MAX


def listed_nodes(catalog: ObjectCatalog, nodes: frozenset[int] | None = None) -> dict[int, Rows]:
    """Node id -> LIVE rows of its list, ascending. Requests: a refresh.

    Args:
        catalog: whose nodes.
        nodes: only these; all by default.

    Raises:
        ValueError: a node that the catalog does not have.
        StoreError: the catalog cannot be read now.
    """
    lists = catalog.refresh_state().node_lists()
    unknown = sorted((nodes or frozenset()) - lists.keys())
    if unknown:
        known = ", ".join(map(str, sorted(lists))) or "none"
        raise ValueError(f"expected nodes of this catalog ({known}), found {', '.join(map(str, unknown))}")
    return {node_id: lists[node_id].live for node_id in sorted(lists if nodes is None else nodes)}


OBJECTS_A_TASK = 64
"""What a task opens. Filters of so many objects of 9,000 streams are 0.8 MB, about what Spark sends back at once."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Neighbours in a node's list, for one task. Picklable."""

    node_id: int
    refs: tuple[ObjectRef, ...]

    def __str__(self) -> str:
        return f"{len(self.refs)} objects of node {self.node_id} from {self.refs[0].object_id} on"


@dataclass(frozen=True, slots=True)
class FailedObject:
    """An object that could not be opened, and why."""

    node_id: int
    object_id: int
    reason: str

    @classmethod
    def of(cls, node_id: int, ref: ObjectRef, error: AccelError) -> FailedObject:
        """From what was raised."""
        return cls(node_id, ref.object_id, f"{type(error).__name__}: {error}"[:REASON_SIZE_MAX])


def chunks_of(node_id: int, rows: Rows, objects_a_task: int = OBJECTS_A_TASK) -> Iterator[Chunk]:
    """Listed objects, in order, divided among tasks."""
    for start in range(0, len(rows), objects_a_task):
        yield Chunk(node_id, refs_of(rows[start : start + objects_a_task]))


def chunk_count(rows: Rows, objects_a_task: int = OBJECTS_A_TASK) -> int:
    """How many chunks there are of these objects."""
    return -(-len(rows) // objects_a_task)


def open_patiently(parts: CatalogParts, node_id: int, refs: Iterable[ObjectRef]) -> Iterator[Opened]:
    """Open objects; those that failed for a reason that may pass are opened once more in the end.

    One ranged GET an object; an object that cannot be opened is given as its error. In order but for the repeated ones.
    """
    again = []
    for ref, opened in open_each(parts, ((node_id, ref) for ref in refs)):
        if isinstance(opened, AccelError) and opened.retryable:
            again.append(ref)
        else:
            yield ref, opened
    yield from open_each(parts, ((node_id, ref) for ref in again))
