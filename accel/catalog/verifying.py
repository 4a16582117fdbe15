"""Is the catalog true? Everything that can be checked by reading is checked; nothing is written.

    list, bucket      each by itself: what the rules of lists and buckets keep
    counter           each counter is there, and that of object ids is above all ids in use
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
from dataclasses import dataclass
from itertools import count

import numpy as np

from accel.catalog import list_rules, stream_rules
from accel.catalog.catalog import ObjectCatalog
from accel.catalog.cell import Cell, Seen
from accel.catalog.legwork import ExistingObject, Legwork, OwnLegwork
from accel.catalog.lost_lists import lost_lists
from accel.catalog.parts import MILLISECONDS, CatalogParts
from accel.catalog.records import NodeList
from accel.catalog.rows import STREAM_OBJECT, Rows, joined, no_rows, refs_of, some
from accel.catalog.survey import StoredObjects, Survey, T, joined_ids, list_node_ids
from accel.catalog.verification import Kind, Orphan, Problem, Unchecked, Verification
from accel.catalog.verifying_claims import Ends, Spans
from accel.catalog.verifying_counters import counter_problems
from accel.errors import AccelError, FormatError, KeyMissing
from loaders.object_ref import UNKNOWN, ObjectRef

ORPHANS_SHOWN_MAX = 1000


ProgressOfTotal = Callable[[int, int], object]
"""Called with how many are done so far, and how many there are."""


def verify(
    catalog: ObjectCatalog, *, progress: ProgressOfTotal | None = None, legwork: Legwork | None = None
) -> Verification:
    """Check a whole catalog and its bucket. Errors of reading are part of the answer and not raised.

    Args:
        catalog: what to check.
        legwork: who goes through the bucket and opens the objects; this process by default.
        progress: called with the number of objects that were looked at so far, and with that of all live ones.

    Requests: one for 1,000 keys of the bucket, three a list, two a bucket of streams, one an object that is live.
    """
    parts, legwork = catalog.parts, legwork or OwnLegwork()
    found = Verification(counts=dict.fromkeys(_COUNTS, 0))
    stored = _attempt(found, "the bucket's listing", lambda: legwork.list_objects(parts))
    survey, is_whole = _read_all(parts, found)
    _check_records(parts, survey, found)
    _check_checkpoints(parts, survey, found)
    found.problems += _attempt(found, "counters", lambda: list(counter_problems(parts, survey))) or ()
    doubtful = list(_two_places(survey))
    doubtful += _check_objects(_Looker(parts, legwork, found), survey, progress)
    _settle(parts, survey, found, doubtful)
    if stored is not None:
        found.counts["keys"] = len(stored.ids)
        if is_whole:
            _note_orphans(parts, stored.unknown_to(survey.known_ids()), found)
    return found


_COUNTS = ("lists", "buckets", "objects", "bytes", "keys", "orphans", "orphan_bytes")


def _note_orphans(parts: CatalogParts, orphans: StoredObjects, found: Verification) -> None:
    found.are_orphans_known = True
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


def _check_checkpoints(parts: CatalogParts, survey: Survey, found: Verification) -> None:
    for node_id, known, commits in _attempt(found, "checkpoints", lambda: list(lost_lists(parts, survey))) or ():
        expected = f"the {known} commits that its checkpoint knows"
        found.problems.append(Problem(Kind.LIST, f"list of node {node_id}", expected, f"{commits}"))


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


def _check_objects(looker: _Looker, survey: Survey, progress: ProgressOfTotal | None) -> Iterator[Problem]:
    """Open all live objects; gives what may be a problem only because the catalog changed meanwhile."""
    rows = _stream_object_rows(survey)
    spans = Spans(rows)
    total = len(rows) + sum(len(node.value.live) for node in survey.lists.values())
    seen_so_far = count(1)

    def step() -> None:
        if progress is not None:
            progress(next(seen_so_far), total)

    for node_id, node in survey.lists.items():
        ends = Ends(f"list of node {node_id}")
        for ref, existing in looker.look_at(node_id, refs_of(node.value.live), step):
            yield from ends.follow(ref.object_id, existing.ranges)
            spans.add(ref.object_id, existing.ranges)
    for row, (ref, existing) in _with_rows(rows, looker.look_at(-1, refs_of(rows), step)):
        held = existing.ranges.range_of(int(row["stream_id"]))
        wanted = (int(row["start"]), int(row["end"]))
        if len(existing.ranges) != 1 or held is None or (held.start, held.end) != wanted:
            seen = f"{len(existing.ranges)} streams, and {held} of this one"
            expected = f"[{wanted[0]}, {wanted[1]}) of stream {row['stream_id']} and nothing else"
            problem = Problem(Kind.STREAM_OBJECT, f"object {ref.object_id}", expected, seen)
            looker.found.problems.append(problem)
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


Found = tuple[ObjectRef, ExistingObject]


@dataclass(frozen=True, slots=True)
class _Looker:
    """Looks at objects, and notes those that are not as they should be."""

    parts: CatalogParts
    legwork: Legwork
    found: Verification

    def look_at(self, node_id: int, refs: Iterable[ObjectRef], step: Callable[[], object]) -> Iterator[Found]:
        """The objects that could be opened."""
        for ref, existing in self.legwork.look_at(self.parts, ((node_id, ref) for ref in refs)):
            step()
            where = f"object {ref.object_id} at {self.parts.layout.object_key(ref.object_id)!r}"
            if isinstance(existing, AccelError):
                self._note(where, existing)
                continue
            self.found.counts["objects"] += 1
            self.found.counts["bytes"] += ref.size_bytes
            if existing.index_size_bytes >= 0 and ref.index_size_bytes not in (UNKNOWN, existing.index_size_bytes):
                expected, seen = f"an index of {ref.index_size_bytes} bytes", f"{existing.index_size_bytes}"
                self.found.problems.append(Problem(Kind.DAMAGED, where, expected, seen))
            yield ref, existing

    def _note(self, where: str, error: AccelError) -> None:
        if isinstance(error, KeyMissing):
            self.found.problems.append(Problem(Kind.MISSING, where, "an object, for it is live", "none"))
        elif isinstance(error, FormatError):
            self.found.problems.append(Problem(Kind.DAMAGED, where, "a readable index", str(error)))
        else:
            self.found.unchecked.append(Unchecked(where, str(error)))


def _with_rows(rows: Rows, opened: Iterable[Found]) -> Iterator[tuple[np.void, Found]]:
    by_id = dict(zip(rows["object_id"].tolist(), rows, strict=True))
    return ((by_id[each[0].object_id], each) for each in opened)


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
