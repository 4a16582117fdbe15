"""Verifies a catalog: checks everything that can be checked by reading; writes nothing.

    list, shard       each by itself follows the rules of lists and shards, and none is behind checkpoints, kept
                      versions of lists, and other keys (`whole_catalog`)
    directory         it contains each node whose list has commits
    counter           each counter exists; the counter of object ids is above all ids in use; no id is of two nodes
    place             no object is live in two places, or live and retired
    missing, damaged  each live object exists with its listed size, and its index can be read and has its listed size
    set aside         no object whose index can be read has a damaged block that a merge has found (`bad_objects`)
    order             through a node's list the offsets of each stream ascend and do not overlap
    stream object     it holds the range of its row, and no other live object of the catalog claims the same offsets
    sketch            no sketch of a list excludes a stream that its object holds
    stream            streams with data in a list are in a shard
    end               streams reach the ends in checkpoints and closed ranges
    hole              advice: within a range of its node, a list skips offsets that no object holds
    choices           advice: the copy of the format record that `init` keeps cannot be read, or differs
    marker, version   advice: a table's marker, or a version of a list for undo, cannot be read
    stranger          advice: objects of the namespace that are not in the catalog, and have no mark of it
    orphans           objects that are not in the catalog: no problem, but they take space until they are collected

Most findings are damage. Advice marks a place that an operator should look at although the contents of the catalog are
true. `NOT_LOOKED_AT` lists the cases that a verification does not detect.

The catalog may change meanwhile. A contradiction between lists and shards is therefore a problem only if none of them
has changed since it was read; else it counts as not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from itertools import count

import numpy as np

from accel.catalog.bad_objects import damaged_blocks
from accel.catalog.catalog import ObjectCatalog
from accel.catalog.keys import TABLES
from accel.catalog.parts import MILLISECONDS, CatalogParts, are_same_choices
from accel.catalog.problems import Problem, ProblemKind, Severity
from accel.catalog.proof import Standing, prove_all
from accel.catalog.records import (
    NO_COMMIT,
    OPEN,
    STREAM_OBJECT,
    Checkpoint,
    NodeList,
    Rows,
    StreamShard,
    highest_of_each,
    join_rows,
    joined_ids,
    no_rows,
    refs_of,
    some,
)
from accel.catalog.shard_writes import kept_places
from accel.catalog.sketches_and_ends import hidden_streams
from accel.catalog.whole_catalog import (
    CHECKS,
    BulkScan,
    ExistingObject,
    Ids,
    StoredObjects,
    Survey,
    T,
    contradictions_of_places,
    contradictions_within,
    list_node_ids,
    listed_node_ids,
    read_checkpoints,
)
from accel.errors import AccelError, CatalogError, FormatError, KeyMissing
from loaders.errors import TableMissing
from loaders.object_ref import UNKNOWN, ObjectRef
from loaders.store.decorated import notices_of
from loaders.tables.typed_key import TypedKey
from loaders.versions import Versioned
from range_index import ObjectRanges


class Verdict(StrEnum):
    """The result in a word. Damage outranks unchecked items, and these outrank advice."""

    CLEAN = "clean"
    ADVICE = "advice"
    PROBLEMS = "problems"
    NOT_CHECKED = "could not check"


NOT_LOOKED_AT = (
    "the payload of objects' blocks (accel object verify --all --data reads it)",
    "objects without a checksum of their tail: whether another object of the same size is under their key",
    "whether another system replaced an object by one with the same index: streams, offsets and sizes of all blocks",
    "a key that was put back from a copy, if no key that was written since refers to the lost contents",
    "all keys put back from one copy at once: each agrees with the others",
    "whether the counters of transactions and of streams of segments are above the ids in use (only if they exist)",
    "whether an object that is not listed was acknowledged before its list was put back",
)
"""The cases that a verification does not detect; shown with its result."""


@dataclass(frozen=True, slots=True)
class Unchecked:
    """A place that could not be checked, and why."""

    where: str
    reason: str


@dataclass(frozen=True, slots=True)
class Orphan:
    """An object that is not in the catalog.

    Args:
        object_id: its id.
        key: its key in the bucket.
        size_bytes: of the object.
        age_seconds: since it was written, by the store's clock.
        is_ours: whether its mark says that this catalog wrote it; None if it could not be read.
    """

    object_id: int
    key: str
    size_bytes: int
    age_seconds: float
    is_ours: bool | None


@dataclass(slots=True, eq=False)
class Verification:
    """The result of a verification. Not changed after `verify` has returned it.

    Args:
        problems: the problems that were found.
        unchecked: the places that could not be checked.
        orphans: the oldest orphans, at most 1,000.
        counts: the numbers of checked items: `lists`, `shards`, `objects` opened, `bytes` of these objects, `keys` of
            the bucket that are objects, `orphans`, `orphan_bytes`.
        are_orphans_known: whether both the bucket and the whole catalog could be read, which finding orphans needs.
        notices: on the folder of the store: what its listings passed over, and what its file system cannot do.
    """

    problems: list[Problem] = field(default_factory=list)
    unchecked: list[Unchecked] = field(default_factory=list)
    orphans: list[Orphan] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    are_orphans_known: bool = False
    notices: list[str] = field(default_factory=list)

    @property
    def damage(self) -> list[Problem]:
        """The problems that are damage; the others are advice."""
        return [problem for problem in self.problems if problem.severity is Severity.DAMAGE]

    @property
    def outcome(self) -> Verdict:
        """Clean, advice, problems (damage), or could not check."""
        if self.damage:
            return Verdict.PROBLEMS
        if self.unchecked:
            return Verdict.NOT_CHECKED
        return Verdict.ADVICE if self.problems else Verdict.CLEAN


ORPHANS_SHOWN_MAX = 1000


ProgressOfTotal = Callable[[int, int], object]
"""Called with the number of items done so far, and the number of all."""


def verify(
    catalog: ObjectCatalog, *, progress: ProgressOfTotal | None = None, scan: BulkScan | None = None
) -> Verification:
    """Check a whole catalog and its bucket. Read errors are part of the result and not raised.

    Args:
        catalog: the catalog to check.
        scan: lists the bucket and opens the objects; this process by default.
        progress: called with the number of objects that were checked so far, and the number of all live objects.

    Requests: one for 1,000 keys of the bucket, three a list, two a stream shard, one a live object, one an orphan that
    is reported.
    """
    parts, scan = catalog.parts, scan or BulkScan()
    report = Verification(counts=dict.fromkeys(_COUNTS, 0))
    stored = _attempt(report, "the bucket's listing", lambda: scan.list_objects(parts))
    survey, is_whole = _read_all(parts, report)
    _check_records(parts, survey, report)
    _check_beside(parts, report)
    report.problems += _attempt(report, "counters of histories", lambda: list(history_counter_problems(parts))) or ()
    doubtful = list(contradictions_of_places(survey))
    doubtful += _check_objects(_CheckingOpener(parts, scan, report), survey, progress, is_whole=is_whole)
    _settle(parts, survey, report, doubtful)
    if stored is not None:
        report.counts["keys"] = len(stored.ids)
        if is_whole:
            _note_orphans(parts, stored.unknown_to(survey.known_ids()), report)
    report.notices = notices_of(parts.store)
    return report


_COUNTS = ("lists", "shards", "objects", "bytes", "keys", "orphans", "orphan_bytes")


def _note_orphans(parts: CatalogParts, orphans: StoredObjects, report: Verification) -> None:
    report.are_orphans_known = True
    report.counts |= {"orphans": len(orphans.ids), "orphan_bytes": int(orphans.sizes_bytes.sum())}
    now_ms = parts.now_ms()
    oldest = np.argsort(orphans.modified_ms, kind="stable")[:ORPHANS_SHOWN_MAX]
    verdicts = prove_all(parts, map(ObjectRef, orphans.ids[oldest].tolist()))
    for at, verdict in zip(oldest.tolist(), verdicts, strict=True):
        object_id, age_ms = int(orphans.ids[at]), now_ms - int(orphans.modified_ms[at])
        key, size_bytes = parts.layout.object_key(object_id), int(orphans.sizes_bytes[at])
        is_ours = {Standing.OURS: True, Standing.UNPROVEN: False}.get(verdict.standing)
        report.orphans.append(Orphan(object_id, key, size_bytes, age_ms / MILLISECONDS, is_ours))
    if strange := [orphan for orphan in report.orphans if orphan.is_ours is False]:
        seen = (
            f"{len(strange)} of {len(report.orphans)} without a mark of it, {strange[0].key!r} among them: another "
            "system writes here, or they are to be imported; gc does not delete them"
        )
        where = f"namespace {parts.layout.namespace!r}"
        expected = "objects that this catalog wrote or lists"
        report.problems.append(Problem(ProblemKind.STRANGER, where, expected, seen))


def _attempt(report: Verification, where: str, read: Callable[[], T]) -> T | None:
    """The result of a read; None, with an entry in the report, if it failed. Errors of the format are raised."""
    try:
        return read()
    except FormatError:
        raise
    except AccelError as error:
        report.unchecked.append(Unchecked(where, str(error)))
        return None


def _read_all(parts: CatalogParts, report: Verification) -> tuple[Survey, bool]:
    """The readable lists and shards, and whether all of them could be read."""
    node_ids = _node_ids(parts, report)
    lists: dict[int, Versioned[NodeList]] = {}
    for node_id in node_ids or []:
        node = _read(report, ProblemKind.LIST, parts.keys.node_list(node_id))
        if node is not None:
            lists[node_id] = node
    shards = [
        _read(report, ProblemKind.SHARD, parts.keys.shard(number)) for number in range(parts.format.stream_buckets)
    ]
    present = tuple(shard for shard in shards if shard is not None)
    is_whole = node_ids is not None and len(lists) == len(node_ids) and len(present) == len(shards)
    return Survey(lists, present), is_whole


def _node_ids(parts: CatalogParts, report: Verification) -> list[int] | None:
    """All nodes; if the directory cannot be read, those that have a list."""
    try:
        return list_node_ids(parts)
    except (CatalogError, FormatError) as error:
        reason = str(error)  # the comparison of directory and lists reports the problem of the directory
    except AccelError as error:
        report.unchecked.append(Unchecked("the directory of nodes", str(error)))
        return None
    try:
        return list(listed_node_ids(parts))
    except AccelError:
        report.unchecked.append(Unchecked("the lists of nodes", reason))
        return None


def _read(report: Verification, kind: ProblemKind, key: TypedKey[T]) -> Versioned[T] | None:
    try:
        seen = key.read()
    except FormatError as error:
        report.problems.append(Problem(kind, key.where, "a record that can be read", str(error)))
        return None
    except AccelError as error:
        report.unchecked.append(Unchecked(key.where, str(error)))
        return None
    if seen is None:
        report.problems.append(Problem(kind, key.where, "a record", "none"))
    return seen


def _check_records(parts: CatalogParts, survey: Survey, report: Verification) -> None:
    report.problems += contradictions_within(parts, survey)
    report.counts |= {"lists": len(survey.lists), "shards": len(survey.shards)}
    known = {problem.found for problem in report.problems}
    for kind, what, check in CHECKS:
        try:
            report.problems += _attempt(report, what, partial(_listed, check, parts, survey)) or ()
        except FormatError as error:
            if str(error) not in known:  # problems of lists and shards are reported already
                report.problems.append(Problem(kind, what, "keys that can be read", str(error)))


def _listed(
    check: Callable[[CatalogParts, Survey, frozenset[int]], Iterable[Problem]], parts: CatalogParts, survey: Survey
) -> list[Problem]:
    return list(check(parts, survey, frozenset()))


def _check_beside(parts: CatalogParts, report: Verification) -> None:
    """Check keys that reads of objects do not need: choices, markers of tables, kept versions of lists."""
    from accel.history.store.keys import SYSTEM_TABLES  # noqa: PLC0415 - a lookup needs no history

    tables = parts.keys.tables
    choices = _read(report, ProblemKind.CHOICES, parts.keys.format_copy())
    if choices is not None and not are_same_choices(choices.value, parts.format):
        where = parts.keys.format_copy().where
        report.problems.append(Problem(ProblemKind.CHOICES, where, f"those of {parts.format}", f"{choices.value}"))
    for name in (*TABLES, *SYSTEM_TABLES):
        try:
            is_there, seen = tables.table_exists(name), "none: nothing can be created or listed there"
        except FormatError as error:
            is_there, seen = False, str(error)
        except AccelError as error:
            report.unchecked.append(Unchecked(f"marker of table {name!r}", str(error)))
            continue
        if not is_there:
            report.problems.append(Problem(ProblemKind.MARKER, f"table {name!r}", "a marker", seen))
    for place in _attempt(report, "kept versions of lists", lambda: list(kept_places(parts))) or ():
        key = parts.keys.list_version(*place)
        try:
            key.read()
        except FormatError as error:
            report.problems.append(Problem(ProblemKind.VERSION, key.where, "a version that undo can use", str(error)))
        except AccelError as error:
            report.unchecked.append(Unchecked(key.where, str(error)))


def _check_objects(
    opener: _CheckingOpener, survey: Survey, progress: ProgressOfTotal | None, *, is_whole: bool
) -> Iterator[Problem]:
    """Open all live objects; yields problems that a change of the catalog meanwhile may have caused."""
    rows = stream_object_rows(survey)
    spans = Spans(rows)
    total = len(rows) + sum(len(node.value.live) for node in survey.lists.values())
    seen_so_far = count(1)

    def step() -> None:
        if progress is not None:
            progress(next(seen_so_far), total)

    all_ends = []
    for node in survey.lists.values():
        opener.report.problems += _set_aside(opener.parts, node.value)
    for node_id, node in survey.lists.items():
        ends = Ends(f"list of node {node_id}", node_id)
        all_ends.append(ends)
        imported = set(node.value.live["object_id"][node.value.live["added_by"] == NO_COMMIT].tolist())
        for ref, existing in opener.open(node_id, refs_of(node.value.live), step):
            yield from ends.follow(ref.object_id, existing.ranges, is_imported=ref.object_id in imported)
            opener.report.problems += wrong_sketch(node.value, ref.object_id, existing.ranges)
            spans.add(ref.object_id, existing.ranges)
    for row, (ref, existing) in _with_rows(rows, opener.open(-1, refs_of(rows), step)):
        held = existing.ranges.range_of(int(row["stream_id"]))
        wanted = (int(row["start"]), int(row["end"]))
        if len(existing.ranges) != 1 or held is None or (held.start, held.end) != wanted:
            seen = f"{len(existing.ranges)} streams, and {held} of this one"
            expected = f"[{wanted[0]}, {wanted[1]}) of stream {row['stream_id']} and nothing else"
            problem = Problem(ProblemKind.STREAM_OBJECT, f"object {ref.object_id}", expected, seen)
            opener.report.problems.append(problem)
    yield from spans.problems()
    if is_whole:
        yield from _compare_claims(opener, survey, all_ends, rows)


def _set_aside(parts: CatalogParts, node_list: NodeList) -> Iterator[Problem]:
    """Objects with a damaged block that a merge has found; the index does not show it. One request for a node's."""
    for object_id, text in damaged_blocks(parts, node_list).items():
        where = f"object {object_id} at {parts.layout.object_key(object_id)!r}"
        yield Problem(ProblemKind.SET_ASIDE, where, "blocks that can be read", text)


def wrong_sketch(node_list: NodeList, object_id: int, ranges: ObjectRanges) -> Iterator[Problem]:
    """Streams of an object that its sketch in the list excludes: lookups do not find their data in it."""
    hidden = hidden_streams(node_list, object_id, ranges.stream_ids)
    if hidden:
        where = f"object {object_id} in the {node_list.where}"
        expected = "a sketch that excludes none of the object's streams"
        remedy = f"`accel repair --sketches {node_list.node_id} --yes` makes a true sketch"
        yield Problem(ProblemKind.SKETCH, where, expected, f"a sketch that excludes {some(hidden)}: {remedy}")


def _compare_claims(opener: _CheckingOpener, survey: Survey, all_ends: list[Ends], rows: Rows) -> Iterator[Problem]:
    """Compare the ranges of objects with the streams in shards and checkpoints."""
    shards = [seen.value for seen in survey.shards]
    read = partial(read_checkpoints, opener.parts, survey)
    try:
        checkpoints = _attempt(opener.report, "ends in checkpoints", read) or {}
    except FormatError:
        checkpoints = {}  # reported already
    yield from unknown_streams(all_ends, shards)
    if not opener.is_short:
        yield from unreached(all_ends, rows, shards, checkpoints.values())
    for ends in all_ends:
        if len(ends.gaps) > GAPS_MAX:
            opener.report.unchecked.append(Unchecked(f"{ends.where}: holes", f"the list has more than {GAPS_MAX} gaps"))
        elif not opener.is_short:
            yield from holes(ends, rows, shards)


def stream_object_rows(survey: Survey) -> Rows:
    """Live objects of one stream, each once; those of commits that are being undone are left out."""
    live = no_rows(STREAM_OBJECT)
    for rows in [
        *(seen.value.stream_objects for seen in survey.shards),
        *(seen.value.stream_objects for seen in survey.lists.values()),
    ]:
        known = joined_ids([live["object_id"], *(seen.value.retired["object_id"] for seen in survey.shards)])
        live = join_rows(live, rows[~np.isin(rows["object_id"], known)])
    for node_id, node in survey.lists.items():
        commits = np.array(node.value.withdrawn_commits, dtype=np.int64)
        live = live[~((live["node_id"] == node_id) & np.isin(live["added_by"], commits))]
    return live


Found = tuple[ObjectRef, ExistingObject]


@dataclass(frozen=True, slots=True)
class _CheckingOpener:
    """Opens objects, and reports those that are missing or damaged."""

    parts: CatalogParts
    scan: BulkScan
    report: Verification

    def open(self, node_id: int, refs: Iterable[ObjectRef], step: Callable[[], object]) -> Iterator[Found]:
        """The objects that could be opened."""
        for ref, existing in self.scan.open_objects(self.parts, ((node_id, ref) for ref in refs)):
            step()
            where = f"object {ref.object_id} at {self.parts.layout.object_key(ref.object_id)!r}"
            if isinstance(existing, AccelError):
                self._note(where, existing)
                continue
            self.report.counts["objects"] += 1
            self.report.counts["bytes"] += ref.size_bytes
            if existing.index_size_bytes >= 0 and ref.index_size_bytes not in (UNKNOWN, existing.index_size_bytes):
                expected, seen = f"an index of {ref.index_size_bytes} bytes", f"{existing.index_size_bytes}"
                self.report.problems.append(Problem(ProblemKind.DAMAGED, where, expected, seen))
            yield ref, existing

    @property
    def is_short(self) -> bool:
        """Whether the ranges of some object are not known: then ends and holes cannot be checked."""
        kinds = (ProblemKind.MISSING, ProblemKind.DAMAGED)
        return bool(self.report.unchecked) or any(problem.kind in kinds for problem in self.report.problems)

    def _note(self, where: str, error: AccelError) -> None:
        if isinstance(error, KeyMissing):
            self.report.problems.append(Problem(ProblemKind.MISSING, where, "an object, because it is live", "none"))
        elif isinstance(error, FormatError):
            self.report.problems.append(Problem(ProblemKind.DAMAGED, where, "a readable index", str(error)))
        else:
            self.report.unchecked.append(Unchecked(where, str(error)))


def _with_rows(rows: Rows, opened: Iterable[Found]) -> Iterator[tuple[np.void, Found]]:
    by_id = dict(zip(rows["object_id"].tolist(), rows, strict=True))
    return ((by_id[pair[0].object_id], pair) for pair in opened)


def _settle(parts: CatalogParts, survey: Survey, report: Verification, doubtful: list[Problem]) -> None:
    if not doubtful:
        return
    try:
        changed = any(
            [
                *(parts.keys.node_list(node_id).read_newer(seen) is not seen for node_id, seen in survey.lists.items()),
                *(parts.keys.shard(seen.value.bucket).read_newer(seen) is not seen for seen in survey.shards),
            ]
        )
    except AccelError:
        changed = True
    if changed:
        reason = f"the catalog changed meanwhile; {len(doubtful)} contradictions may be due to that"
        report.unchecked.append(Unchecked("contradictions between lists and shards", reason))
    else:
        report.problems += doubtful


PROBLEMS_AN_OBJECT_MAX = 5

GAPS_MAX = 100_000
"""The maximum number of gaps in a list that are compared with ranges and stream objects to find holes."""


class Ends:
    """The end of each stream so far, updated along a list. Threads: one.

    Args:
        where: the name of the list.
        node_id: the node of the list.
    """

    def __init__(self, where: str, node_id: int) -> None:
        self.where = where
        self.node_id = node_id
        self.ids: Ids = np.empty(0, dtype=np.int64)
        self.ends: Ids = np.empty(0, dtype=np.int64)
        self.gaps: list[tuple[int, int, int]] = []
        """(stream, from, to) of offsets that the list skips; one more than `GAPS_MAX` at most."""

    def follow(self, object_id: int, ranges: ObjectRanges, *, is_imported: bool) -> Iterator[Problem]:
        """Add the next object; yields its ranges that begin below their stream's end. O(streams so far).

        Args:
            object_id: the object.
            ranges: its ranges.
            is_imported: whether gaps before the object are ignored, because the import has reported them.
        """
        _, mine, theirs = np.intersect1d(self.ids, ranges.stream_ids, assume_unique=True, return_indices=True)
        wrong = np.flatnonzero(ranges.starts[theirs] < self.ends[mine])
        for at in wrong[:PROBLEMS_AN_OBJECT_MAX].tolist():
            stream_id = int(ranges.stream_ids[theirs[at]])
            expected = f"stream {stream_id} to continue at {int(self.ends[mine[at]])} or above"
            seen = f"{int(ranges.starts[theirs[at]])} in object {object_id}"
            yield Problem(ProblemKind.ORDER, self.where, expected, seen)
        after = np.flatnonzero(ranges.starts[theirs] > self.ends[mine])[: GAPS_MAX + 1 - len(self.gaps)]
        after = after[:0] if is_imported else after
        columns = (ranges.stream_ids[theirs[after]], self.ends[mine[after]], ranges.starts[theirs[after]])
        self.gaps += zip(*(column.tolist() for column in columns), strict=True)
        ids = np.union1d(self.ids, ranges.stream_ids)
        ends = np.full(len(ids), -1, dtype=np.int64)
        ends[np.searchsorted(ids, self.ids)] = self.ends
        places = np.searchsorted(ids, ranges.stream_ids)
        ends[places] = np.maximum(ends[places], ranges.ends)
        self.ids, self.ends = ids, ends


class Spans:
    """The claims of all live objects on streams that have stream objects. Threads: one.

    Args:
        rows: STREAM_OBJECT rows.
    """

    def __init__(self, rows: Rows) -> None:
        self._streams = np.unique(rows["stream_id"])
        self._columns = [[rows[name]] for name in ("stream_id", "start", "end", "object_id")]

    def add(self, object_id: int, ranges: ObjectRanges) -> None:
        """Add the claims of an object of many streams; ranges with a hole inside are left out."""
        chosen = np.isin(ranges.stream_ids, self._streams)
        chosen[ranges.holed] = False
        claimed = (ranges.stream_ids, ranges.starts, ranges.ends)
        for column, values in zip(self._columns, claimed, strict=False):
            column.append(values[chosen])
        self._columns[3].append(np.full(int(chosen.sum()), object_id, dtype=np.int64))

    def problems(self) -> Iterator[Problem]:
        """Claims that overlap the next claim of the same stream. O(n log n)."""
        streams, starts, ends, objects = (np.concatenate(column) for column in self._columns)
        order = np.lexsort((starts, streams))
        streams, starts, ends, objects = streams[order], starts[order], ends[order], objects[order]
        for at in np.flatnonzero((streams[1:] == streams[:-1]) & (ends[:-1] > starts[1:])).tolist():
            seen = " and ".join(
                f"[{starts[place]}, {ends[place]}) of object {objects[place]}" for place in (at, at + 1)
            )
            yield Problem(ProblemKind.STREAM_OBJECT, f"stream {streams[at]}", "each offset in one live object", seen)


def unknown_streams(all_ends: Iterable[Ends], shards: Iterable[StreamShard]) -> Iterator[Problem]:
    """Streams with data in a list that are in no shard. O(n log n)."""
    known = joined_ids(shard.streams["stream_id"] for shard in shards)
    for ends in all_ends:
        unknown = np.setdiff1d(ends.ids, known)
        if len(unknown):
            expected = "data of streams that are in a shard"
            yield Problem(ProblemKind.STREAM, ends.where, expected, f"some of {some(unknown)}")


def unreached(
    all_ends: Iterable[Ends], rows: Rows, shards: Iterable[StreamShard], checkpoints: Iterable[Checkpoint]
) -> Iterator[Problem]:
    """Streams whose data ends before the end in a checkpoint or a closed range. O(n log n).

    Args:
        all_ends: of all lists.
        rows: STREAM_OBJECT rows of all live objects of one stream.
        shards: all stream shards.
        checkpoints: of all nodes.
    """
    shards = list(shards)
    have = [(ends.ids, ends.ends) for ends in all_ends] + [(rows["stream_id"], rows["end"])]
    have += [(shard.streams["stream_id"], shard.streams["start_offset"]) for shard in shards]
    have += [(shard.given_up["stream_id"], shard.given_up["end"]) for shard in shards]
    ids, reached = np.array(highest_of_each(have), dtype=np.int64).reshape(-1, 2).T
    claims = [
        (f"checkpoint of node {checkpoint.node_id}", checkpoint.ends["stream_id"], checkpoint.ends["end"])
        for checkpoint in checkpoints
    ]
    for shard in shards:
        closed = shard.ranges[shard.ranges["end"] != OPEN]
        closed = closed[closed["end"] > closed["start"]]
        claims.append((shard.where, closed["stream_id"], closed["end"]))
    for where, streams, ends in claims:
        at = np.minimum(np.searchsorted(ids, streams), max(0, len(ids) - 1))
        is_known = ids[at] == streams if len(ids) else np.zeros(len(streams), dtype=np.bool_)
        short = np.flatnonzero(is_known & (reached[at] < ends)) if len(ids) else np.empty(0, dtype=np.int64)
        for place in short[:PROBLEMS_AN_OBJECT_MAX].tolist():
            expected = f"data of stream {streams[place]} up to its end {ends[place]} there"
            yield Problem(ProblemKind.END, where, expected, f"data up to {reached[at[place]]}")


def holes(ends: Ends, rows: Rows, shards: Iterable[StreamShard]) -> Iterator[Problem]:
    """Offsets within a range of the node that its list skips, that no other object holds, and that were not given up.

    A gap between two ranges is no hole: another node wrote there, or no node did. An import may have holes; writers
    make none.

    Complexity: O(gaps * log n).
    """
    parts = list(shards)
    ranges = np.concatenate([shard.ranges for shard in parts]) if parts else np.empty(0, dtype=rows.dtype)
    ranges = ranges[np.lexsort((ranges["start"], ranges["stream_id"]))] if len(ranges) else ranges
    starts = dict(pair for shard in parts for pair in shard.streams.tolist())
    names = ["stream_id", "start", "end"]
    rows = np.concatenate([rows[names], *(shard.given_up[names] for shard in parts)])
    rows = rows[np.lexsort((rows["start"], rows["stream_id"]))]
    shown = 0
    for stream_id, gap_start, gap_end in ends.gaps[:GAPS_MAX]:
        end = _within(ranges, ends.node_id, stream_id, gap_start, gap_end)
        start = _behind(rows, stream_id, max(gap_start, starts.get(stream_id, 0)))
        if start < end and shown < PROBLEMS_AN_OBJECT_MAX:
            shown += 1
            expected = f"stream {stream_id} without a hole within a range of this node"
            yield Problem(ProblemKind.HOLE, ends.where, expected, f"no object from {start} to {end}")


def _within(ranges: Rows, node_id: int, stream_id: int, start: int, end: int) -> int:
    """The end of the part of a gap within the node's own range; the start of the gap if it is not in such a range."""
    first, stop = np.searchsorted(ranges["stream_id"], [stream_id, stream_id + 1]) if len(ranges) else (0, 0)
    for row in ranges[first:stop][::-1]:
        if int(row["start"]) <= start:
            if int(row["node_id"]) != node_id:
                return start
            return end if int(row["end"]) == OPEN else min(end, max(start, int(row["end"])))
    return start


def _behind(rows: Rows, stream_id: int, start: int) -> int:
    """The first offset from `start` on that no object of this stream alone holds."""
    first, stop = np.searchsorted(rows["stream_id"], [stream_id, stream_id + 1])
    for row in rows[first:stop]:
        if int(row["start"]) <= start:
            start = max(start, int(row["end"]))
    return start


def history_counter_problems(parts: CatalogParts) -> Iterator[Problem]:
    """Missing counters of transactions and of streams of segments. One request a counter.

    The values are not compared with the ids in use, which are in the keys of each stream.

    Raises:
        StoreError: a counter could not be read.
    """
    from accel.history.store.keys import ID_COUNTERS, SystemKeys  # noqa: PLC0415 - a lookup needs no history

    shared = SystemKeys(parts.keys.tables)
    for what in ID_COUNTERS:
        counter = shared.counter(what)
        try:
            if counter.read() is None:
                yield Problem(ProblemKind.COUNTER, counter.where, "a counter", "none: deleted?")
        except (FormatError, TableMissing) as error:
            yield Problem(ProblemKind.COUNTER, counter.where, "a counter that can be read", str(error))
