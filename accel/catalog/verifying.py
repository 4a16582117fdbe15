"""Is the catalog true? Everything that can be checked by reading is checked; nothing is written.

    list, bucket      each by itself: what the rules of lists and buckets keep
    place             no object is live in two places, or live and retired
    missing, damaged  each live object exists with its size, and its index can be read and has the size that is said
    order             through a node's list the offsets of each stream ascend and do not overlap
    stream object     it holds what its row says, and no other live object of the catalog claims the same offsets
    orphans           objects that stand nowhere in the catalog: no problem, but they take room (the collector's work)

The catalog may change meanwhile. What contradicts itself is therefore a problem only if the lists and buckets still
stand as they were read; else it counts as not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from accel.catalog import list_rules, stream_rules
from accel.catalog.catalog import ObjectCatalog
from accel.catalog.cell import Cell, Seen
from accel.catalog.existing import open_each
from accel.catalog.parts import MILLISECONDS, CatalogParts
from accel.catalog.records import NodeList
from accel.catalog.rows import STREAM_OBJECT, Rows, joined, no_rows, refs_of, some
from accel.catalog.survey import Ids, Progress, StoredObjects, Survey, T, joined_ids, list_node_ids, list_objects
from accel.errors import AccelError, FormatError, KeyMissing
from loaders.object_index import OpenedObject
from loaders.object_ref import UNKNOWN, ObjectRef

ORPHANS_SHOWN_MAX = 1000
PROBLEMS_AN_OBJECT_MAX = 5


class Kind(StrEnum):
    """What a problem is about; see the module."""

    LIST = "list"
    BUCKET = "bucket"
    PLACE = "place"
    MISSING = "missing"
    DAMAGED = "damaged"
    ORDER = "order"
    STREAM_OBJECT = "stream object"


class Outcome(StrEnum):
    """The answer in a word. Problems weigh more than what could not be checked."""

    CLEAN = "clean"
    PROBLEMS = "problems"
    NOT_CHECKED = "could not check"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong: its kind, where it stands, what was expected and what was found there."""

    kind: Kind
    where: str
    expected: str
    found: str


@dataclass(frozen=True, slots=True)
class Unchecked:
    """Something that could not be checked, and why."""

    where: str
    reason: str


@dataclass(frozen=True, slots=True)
class Orphan:
    """An object that stands nowhere in the catalog.

    Args:
        object_id: its id.
        key: where it lies.
        size_bytes: of the object.
        age_seconds: since it was written, by the store's clock.
    """

    object_id: int
    key: str
    size_bytes: int
    age_seconds: float


@dataclass(slots=True, eq=False)
class Verification:
    """What was found. Not changed any more once `verify` has given it.

    Args:
        problems: what is wrong.
        unchecked: what could not be checked.
        orphans: the oldest of them, at most 1,000.
        counts: how many of what were checked: `lists`, `buckets`, `objects` opened, `bytes` of these, `keys` of the
            bucket that are objects, `orphans`, `orphan_bytes`.
    """

    problems: list[Problem] = field(default_factory=list)
    unchecked: list[Unchecked] = field(default_factory=list)
    orphans: list[Orphan] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def outcome(self) -> Outcome:
        """Clean, problems, or could not check."""
        if self.problems:
            return Outcome.PROBLEMS
        return Outcome.NOT_CHECKED if self.unchecked else Outcome.CLEAN


def verify(catalog: ObjectCatalog, *, progress: Progress | None = None) -> Verification:
    """Check a whole catalog and its bucket. Errors of reading are part of the answer and not raised.

    Args:
        catalog: what to check.
        progress: called with the number of objects that were opened so far.

    Requests: one for 1,000 keys of the bucket, two a list and bucket of streams, one an object that is live.
    """
    parts = catalog.parts
    found = Verification(counts=dict.fromkeys(_COUNTS, 0))
    stored = _attempt(found, "the bucket's listing", lambda: list_objects(parts))
    survey, is_whole = _read_all(parts, found)
    _check_records(parts, survey, found)
    doubtful = list(_two_places(survey))
    doubtful += _check_objects(parts, survey, found, progress)
    _settle(parts, survey, found, doubtful)
    if stored is not None:
        found.counts["keys"] = len(stored.ids)
        if is_whole:
            _note_orphans(parts, stored.unknown_to(survey.known_ids()), found)
    return found


_COUNTS = ("lists", "buckets", "objects", "bytes", "keys", "orphans", "orphan_bytes")


def _note_orphans(parts: CatalogParts, orphans: StoredObjects, found: Verification) -> None:
    found.counts |= {"orphans": len(orphans.ids), "orphan_bytes": int(orphans.sizes_bytes.sum())}
    now_ms = parts.now_ms()
    for at in np.argsort(orphans.modified_ms, kind="stable")[:ORPHANS_SHOWN_MAX].tolist():
        object_id, age_ms = int(orphans.ids[at]), now_ms - int(orphans.modified_ms[at])
        key, size_bytes = parts.layout.object_key(object_id), int(orphans.sizes_bytes[at])
        found.orphans.append(Orphan(object_id, key, size_bytes, age_ms / MILLISECONDS))


def _attempt(found: Verification, where: str, read: Callable[[], T]) -> T | None:
    try:
        return read()
    except AccelError as error:
        found.unchecked.append(Unchecked(where, str(error)))
        return None


def _read_all(parts: CatalogParts, found: Verification) -> tuple[Survey, bool]:
    """Lists and buckets, as far as they can be read, and whether they all could."""
    node_ids = _attempt(found, "the directory of nodes", lambda: list_node_ids(parts))
    lists: dict[int, Seen[NodeList]] = {}
    for node_id in node_ids or []:
        node = _read(found, Kind.LIST, parts.cells.node_list(node_id))
        if node is not None:
            lists[node_id] = node
    buckets = [_read(found, Kind.BUCKET, parts.cells.bucket(each)) for each in range(parts.format.stream_buckets)]
    present = tuple(each for each in buckets if each is not None)
    is_whole = node_ids is not None and len(lists) == len(node_ids) and len(present) == len(buckets)
    return Survey(lists, present), is_whole


def _read(found: Verification, kind: Kind, cell: Cell[T]) -> Seen[T] | None:
    try:
        seen = cell.read()
    except FormatError as error:
        found.problems.append(Problem(kind, cell.where, "a record that can be read", str(error)))
        return None
    except AccelError as error:
        found.unchecked.append(Unchecked(cell.where, str(error)))
        return None
    if seen is None:
        found.problems.append(Problem(kind, cell.where, "a record", "none"))
    return seen


def _check_records(parts: CatalogParts, survey: Survey, found: Verification) -> None:
    for node_id, node in survey.lists.items():
        for sentence in list_rules.check_list(node.value):
            found.problems.append(_from_sentence(Kind.LIST, f"list of node {node_id}", sentence))
    for bucket in survey.buckets:
        where = f"bucket {bucket.value.bucket}"
        for sentence in stream_rules.check_bucket(bucket.value, parts.format.stream_buckets):
            found.problems.append(_from_sentence(Kind.BUCKET, where, sentence))
    found.counts |= {"lists": len(survey.lists), "buckets": len(survey.buckets)}


def _from_sentence(kind: Kind, where: str, sentence: str) -> Problem:
    # The rules say "<where>: expected <this>, found <that>".
    said, _, seen = sentence.removeprefix(f"{where}: ").partition(", found ")
    return Problem(kind, where, said.removeprefix("expected "), seen)


def _two_places(survey: Survey) -> Iterator[Problem]:
    lists, buckets = [each.value for each in survey.lists.values()], [each.value for each in survey.buckets]
    live = [each.live["object_id"] for each in lists] + [each.stream_objects["object_id"] for each in buckets]
    ids, counts = np.unique(np.concatenate([np.empty(0, dtype=np.int64), *live]), return_counts=True)
    if (counts > 1).any():
        yield Problem(Kind.PLACE, "catalog", "each live object in one place", f"{some(ids[counts > 1])} in more")
    gone = [each.retired["object_id"] for each in lists] + [each.retired["object_id"] for each in buckets]
    both = np.intersect1d(ids, joined_ids(gone))
    if len(both):
        yield Problem(Kind.PLACE, "catalog", "each object live or retired", f"{some(both)} both")


def _check_objects(
    parts: CatalogParts, survey: Survey, found: Verification, progress: Progress | None
) -> Iterator[Problem]:
    """Open all live objects; gives what may be a problem only because the catalog changed meanwhile."""
    rows = _stream_object_rows(survey)
    spans = _Spans(rows)
    for node_id, node in survey.lists.items():
        ends = _Ends(f"list of node {node_id}")
        for ref, opened in _opened(parts, found, node_id, refs_of(node.value.live), progress):
            yield from ends.follow(ref.object_id, opened)
            spans.add(ref.object_id, opened)
    for row, (ref, opened) in _with_rows(rows, _opened(parts, found, -1, refs_of(rows), progress)):
        held = opened.ranges.range_of(int(row["stream_id"]))
        wanted = (int(row["start"]), int(row["end"]))
        if len(opened.ranges) != 1 or held is None or (held.start, held.end) != wanted:
            seen = f"{len(opened.ranges)} streams, and {held} of this one"
            expected = f"[{wanted[0]}, {wanted[1]}) of stream {row['stream_id']} and nothing else"
            found.problems.append(Problem(Kind.STREAM_OBJECT, f"object {ref.object_id}", expected, seen))
    yield from spans.problems()


def _stream_object_rows(survey: Survey) -> Rows:
    """Live objects of one stream, each once; those of commits that are being undone are left out."""
    found = no_rows(STREAM_OBJECT)
    for rows in [
        *(each.value.stream_objects for each in survey.buckets),
        *(each.value.stream_objects for each in survey.lists.values()),
    ]:
        known = joined_ids([found["object_id"], *(each.value.retired["object_id"] for each in survey.buckets)])
        found = joined(found, rows[~np.isin(rows["object_id"], known)])
    for node_id, node in survey.lists.items():
        commits = np.array(node.value.withdrawn_commits, dtype=np.int64)
        found = found[~((found["node_id"] == node_id) & np.isin(found["added_by"], commits))]
    return found


Found = tuple[ObjectRef, OpenedObject]


def _opened(
    parts: CatalogParts, found: Verification, node_id: int, refs: Iterable[ObjectRef], progress: Progress | None
) -> Iterator[Found]:
    for ref, opened in open_each(parts, ((node_id, ref) for ref in refs)):
        where = f"object {ref.object_id} at {parts.layout.object_key(ref.object_id)!r}"
        if isinstance(opened, KeyMissing):
            found.problems.append(Problem(Kind.MISSING, where, "an object, for it is live", "none"))
        elif isinstance(opened, FormatError):
            found.problems.append(Problem(Kind.DAMAGED, where, "a readable index", str(opened)))
        elif isinstance(opened, AccelError):
            found.unchecked.append(Unchecked(where, str(opened)))
        else:
            found.counts["objects"] += 1
            found.counts["bytes"] += ref.size_bytes
            if opened.composite is None and ref.index_size_bytes not in (UNKNOWN, opened.index.nbytes):
                expected, seen = f"an index of {ref.index_size_bytes} bytes", f"{opened.index.nbytes}"
                found.problems.append(Problem(Kind.DAMAGED, where, expected, seen))
            if progress is not None:
                progress(found.counts["objects"])
            yield ref, opened


def _with_rows(rows: Rows, opened: Iterable[Found]) -> Iterator[tuple[np.void, Found]]:
    by_id = dict(zip(rows["object_id"].tolist(), rows, strict=True))
    return ((by_id[each[0].object_id], each) for each in opened)


class _Ends:
    """Where each stream has come to so far, on the way through a list. Threads: one."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._ids: Ids = np.empty(0, dtype=np.int64)
        self._ends: Ids = np.empty(0, dtype=np.int64)

    def follow(self, object_id: int, opened: OpenedObject) -> Iterator[Problem]:
        """What of an object does not follow the objects before it. O(streams so far)."""
        ranges = opened.ranges
        _, mine, theirs = np.intersect1d(self._ids, ranges.stream_ids, assume_unique=True, return_indices=True)
        wrong = np.flatnonzero(ranges.starts[theirs] < self._ends[mine])
        for at in wrong[:PROBLEMS_AN_OBJECT_MAX].tolist():
            stream_id = int(ranges.stream_ids[theirs[at]])
            expected = f"stream {stream_id} to go on at {int(self._ends[mine[at]])} or above"
            seen = f"{int(ranges.starts[theirs[at]])} in object {object_id}"
            yield Problem(Kind.ORDER, self._where, expected, seen)
        ids = np.union1d(self._ids, ranges.stream_ids)
        ends = np.full(len(ids), -1, dtype=np.int64)
        ends[np.searchsorted(ids, self._ids)] = self._ends
        places = np.searchsorted(ids, ranges.stream_ids)
        ends[places] = np.maximum(ends[places], ranges.ends)
        self._ids, self._ends = ids, ends


class _Spans:
    """What is claimed of streams that have objects of their own. Threads: one.

    Args:
        rows: STREAM_OBJECT rows.
    """

    def __init__(self, rows: Rows) -> None:
        self._streams = np.unique(rows["stream_id"])
        self._columns = [[rows[name]] for name in ("stream_id", "start", "end", "object_id")]

    def add(self, object_id: int, opened: OpenedObject) -> None:
        """Note what an object of many streams claims; where it has a hole inside, its range does not say what."""
        ranges = opened.ranges
        chosen = np.isin(ranges.stream_ids, self._streams)
        chosen[ranges.holed] = False
        claimed = (ranges.stream_ids, ranges.starts, ranges.ends)
        for column, values in zip(self._columns, claimed, strict=False):
            column.append(values[chosen])
        self._columns[3].append(np.full(int(chosen.sum()), object_id, dtype=np.int64))

    def problems(self) -> Iterator[Problem]:
        """Neighbours that overlap, if any do. O(n log n)."""
        streams, starts, ends, objects = (np.concatenate(column) for column in self._columns)
        order = np.lexsort((starts, streams))
        streams, starts, ends, objects = streams[order], starts[order], ends[order], objects[order]
        for at in np.flatnonzero((streams[1:] == streams[:-1]) & (ends[:-1] > starts[1:])).tolist():
            seen = " and ".join(f"[{starts[each]}, {ends[each]}) of object {objects[each]}" for each in (at, at + 1))
            yield Problem(Kind.STREAM_OBJECT, f"stream {streams[at]}", "each offset in one live object", seen)


def _settle(parts: CatalogParts, survey: Survey, found: Verification, doubtful: list[Problem]) -> None:
    if not doubtful:
        return
    try:
        changed = any(
            [
                *(parts.cells.node_list(each).read_newer(seen) is not seen for each, seen in survey.lists.items()),
                *(parts.cells.bucket(seen.value.bucket).read_newer(seen) is not seen for seen in survey.buckets),
            ]
        )
    except AccelError:
        changed = True
    if changed:
        reason = f"the catalog changed meanwhile; {len(doubtful)} contradictions may be due to that"
        found.unchecked.append(Unchecked("what contradicts itself between lists and buckets", reason))
    else:
        found.problems += doubtful
