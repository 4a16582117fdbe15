"""The objects of one stream each: added, merged, withdrawn, collected.

They lie in the bucket of their stream. Of one stream no two overlap: an offset is found in at most one of them. An
object that is not needed any more is retired first, then doomed, then deleted, as those of nodes' lists are (see
`list_collection`).

Rules give None where nothing is to be done. All of them are O(n log n) in the rows of the bucket and what is added,
without a loop over rows in Python; times are milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from accel.catalog.dooming import doomed, without_deleted
from accel.catalog.records import StreamBucket
from accel.catalog.rows import (
    NO_COMMIT,
    RETIRED_STREAM_OBJECT,
    STREAM_OBJECT,
    Rows,
    by_stream,
    joined,
    positions_of,
    retyped,
    some,
    starts_of,
)
from accel.catalog.stream_object_rows import check_new_rows, described, refuse_overlaps
from accel.errors import CommitRefused

_IDENTITY = ("stream_id", "start", "end", "size_bytes")


def with_stream_objects(now: StreamBucket, rows: Rows, now_ms: int) -> StreamBucket | None:
    """Add objects; those that lie here already, live or retired, are skipped.

    An object wholly below its stream's first kept offset is retired at once.

    Args:
        now: the bucket of all their streams.
        rows: STREAM_OBJECT rows in any order.
        now_ms: milliseconds since 1970.

    Raises:
        CommitRefused: an unknown stream, an object that overlaps another one, an id that lies here with other facts, an
            id twice, a negative number or an empty range.
        ValueError: rows of another type.
    """
    where = f"bucket {now.bucket}"
    check_new_rows(rows, where)
    _refuse_unknown_streams(now, rows)
    new = rows[~_lie_here(now, rows)]
    if not len(new):
        return None
    trimmed = new["end"] <= starts_of(now.streams, new["stream_id"])
    live = by_stream(joined(now.stream_objects, new[~trimmed]), "start")
    refuse_overlaps(live, where)
    return replace(now, stream_objects=live, retired=_retired_with(now, new[trimmed], now_ms))


def with_replacement(
    now: StreamBucket, stream_id: int, added: Rows, removed: Iterable[int], now_ms: int
) -> StreamBucket | None:
    """Swap neighbouring objects of a stream for one that holds just what they hold.

    Undoing a commit that had made one of them would not take the merged object away; so they are looked at before (see
    `merging`).

    Args:
        now: the bucket of the stream.
        stream_id: the stream.
        added: one STREAM_OBJECT row; `node_id`, `data_time_ms` and `added_by` are filled in here, as those of the first
            source, the oldest of all, and none.
        removed: ids of the objects that were merged.
        now_ms: milliseconds since 1970; they are retired at that time.

    Returns:
        None if the object lies here already.

    Raises:
        CommitRefused: a removed object that is gone, ranges that do not cover the new one exactly, more than one new
            row, or one of another stream.
        ValueError: rows of another type.
    """
    where = f"bucket {now.bucket}"
    check_new_rows(added, where)
    if len(added) != 1 or int(added["stream_id"][0]) != stream_id:
        raise CommitRefused(f"{where}: expected one object of stream {stream_id}, found {added.tolist()[:3]}")
    if _lie_here(now, added).all():
        return None
    ids = np.unique(np.fromiter(removed, dtype=np.int64))
    sources = now.stream_objects[np.isin(now.stream_objects["object_id"], ids)]
    if len(sources) < len(ids) or not len(ids):
        gone = np.setdiff1d(ids, sources["object_id"])
        raise CommitRefused(f"{where}: expected live objects of stream {stream_id} to merge, found {some(gone)} gone")
    _refuse_other_coverage(sources, added[0], where)
    merged = retyped(added, STREAM_OBJECT)
    merged["added_by"], merged["node_id"] = NO_COMMIT, sources["node_id"][0]
    merged["data_time_ms"] = sources["data_time_ms"].min()
    swapped = _retire(now, np.isin(now.stream_objects["object_id"], ids), now_ms)
    return replace(swapped, stream_objects=by_stream(joined(swapped.stream_objects, merged), "start"))


def without_commits(now: StreamBucket, node_id: int, commits: Iterable[int], now_ms: int) -> StreamBucket | None:
    """Retire what undone commits of a node's list had made (see `list_undo`).

    Args:
        now: the bucket.
        node_id: whose list.
        commits: their numbers.
        now_ms: milliseconds since 1970; what goes is retired at that time.

    Returns:
        None if the bucket has nothing of them.
    """
    numbers = np.fromiter(commits, dtype=np.int64)
    made = (now.stream_objects["node_id"] == node_id) & np.isin(now.stream_objects["added_by"], numbers)
    return _retire(now, made, now_ms) if made.any() else None


def with_withdrawn(now: StreamBucket, rows: Rows, now_ms: int) -> StreamBucket | None:
    """Retire objects that undone commits had made and that may not have come here yet.

    Those that come late are known as retired then, and are not listed. See `list_undo`.

    Args:
        now: the bucket of all their streams.
        rows: STREAM_OBJECT rows in any order.
        now_ms: milliseconds since 1970.

    Raises:
        CommitRefused: an unknown stream, or an id that lies here with other facts.
        ValueError: rows of another type.
    """
    check_new_rows(rows, f"bucket {now.bucket}")
    _refuse_unknown_streams(now, rows)
    new = rows[~_lie_here(now, rows)]
    live = np.isin(now.stream_objects["object_id"], rows["object_id"])
    if not len(new) and not live.any():
        return None
    return _retire(replace(now, retired=_retired_with(now, new, now_ms)), live, now_ms)


def with_doomed_stream_objects(
    now: StreamBucket, retired_before_ms: int
) -> tuple[StreamBucket | None, NDArray[np.int64]]:
    """Doom what was retired before a time; see `list_collection.with_doomed`.

    Args:
        now: the bucket.
        retired_before_ms: what was retired at that very time is spared.

    Returns:
        The bucket with the marks (None: all that is old enough has them), and the ids of all doomed objects.
    """
    retired, ids = doomed(now.retired, retired_before_ms)
    return (None if retired is None else replace(now, retired=retired)), ids


def without_collected_stream_objects(
    now: StreamBucket, object_ids: Iterable[int] | NDArray[np.int64]
) -> StreamBucket | None:
    """Forget doomed objects that are deleted. Ids that do not lie here any more count as done; None if all do.

    Raises:
        CommitRefused: an id that is not doomed.
    """
    retired = without_deleted(now.retired, now.stream_objects["object_id"], object_ids, f"bucket {now.bucket}")
    return None if retired is None else replace(now, retired=retired)


def retire_trimmed(now: StreamBucket, now_ms: int) -> StreamBucket:
    """Retire the objects that lie wholly below the first kept offsets of their streams; the same bucket without any."""
    below = now.stream_objects["end"] <= starts_of(now.streams, now.stream_objects["stream_id"])
    return _retire(now, below, now_ms) if below.any() else now


def _retire(now: StreamBucket, going: NDArray[np.bool_], now_ms: int) -> StreamBucket:
    retired = _retired_with(now, now.stream_objects[going], now_ms)
    return replace(now, stream_objects=now.stream_objects[~going], retired=retired)


def _retired_with(now: StreamBucket, going: Rows, now_ms: int) -> Rows:
    rows = retyped(going, RETIRED_STREAM_OBJECT, {"retired_at_ms": now_ms, "doomed": 0})
    return by_stream(joined(now.retired, rows), "object_id")


def _lie_here(now: StreamBucket, rows: Rows) -> NDArray[np.bool_]:
    kept = joined(now.stream_objects, retyped(now.retired, STREAM_OBJECT))
    positions = positions_of(kept["object_id"], rows["object_id"])
    here = positions >= 0
    for name in _IDENTITY:
        differs = kept[name][positions[here]] != rows[name][here]
        if differs.any():
            at = int(differs.argmax())
            found = described(kept[positions[here]][at])
            raise CommitRefused(f"bucket {now.bucket}: expected {described(rows[here][at])}, found {found} of that id")
    return here


def _refuse_unknown_streams(now: StreamBucket, rows: Rows) -> None:
    unknown = ~np.isin(rows["stream_id"], now.streams["stream_id"])
    if unknown.any():
        found = described(rows[int(unknown.argmax())])
        raise CommitRefused(f"bucket {now.bucket}: expected objects of streams that were opened before, found {found}")


def _refuse_other_coverage(sources: Rows, added: np.void, where: str) -> None:
    starts, ends = sources["start"], sources["end"]
    covers = (sources["stream_id"] == added["stream_id"]).all() and (starts[1:] == ends[:-1]).all()
    if not covers or starts[0] != added["start"] or ends[-1] != added["end"]:
        found = ", ".join(described(row) for row in sources[:5])
        raise CommitRefused(f"{where}: expected sources that cover {described(added)} without a gap, found {found}")
