"""Queries of history cases: each asks a public method, and gives its answer as the cases write it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from accel.history.rules.cuts import compare
from accel.history.rules.epochs import EpochRecord, HistoryChunk
from accel.history.rules.retention import RetentionEntry
from accel.history.rules.segments import Segments
from accel.history.rules.transactions import CommittingTransactions
from accel.history.rules.values import parse_segment, segment_text
from accel.history.store import Stream
from tests.conformance.history_world import World

Args = dict[str, Any]
Query = Callable[[World, Stream, Args], object]


def ids_of(texts: list[str]) -> list[int]:
    """Segment ids from text."""
    return [parse_segment(each) for each in texts]


def texts_of(ids: Any) -> list[str]:
    """The same as text, ascending."""
    return [segment_text(int(each)) for each in sorted(ids)]


def cut_of(cut: Mapping[str, int]) -> dict[int, int]:
    """A cut, or sizes, from text."""
    return {parse_segment(each): value for each, value in cut.items()}


def plain_cut(cut: Mapping[int, int]) -> dict[str, int]:
    """The same as text."""
    return {segment_text(each): value for each, value in cut.items()}


def plain_epoch(record: EpochRecord) -> dict[str, object]:
    """An epoch without its time."""
    return {
        "epoch": record.epoch,
        "reference": record.reference_epoch,
        "segments": texts_of(record.segments.ids.tolist()),
    }


def plain_commit(world: World, committing: CommittingTransactions) -> dict[str, object]:
    """A commit, with the names of its transactions."""
    return {"epoch": committing.epoch, "txns": [world.name_of(each) for each in committing.transaction_ids]}


def _epoch(_: World, stream: Stream, args: Args) -> object:
    record = stream.epochs.epoch(args["epoch"])
    return {**plain_epoch(record), "time": record.creation_time_ms}


def _epoch_counts(_: World, stream: Stream, args: Args) -> object:
    record = stream.epochs.epoch(args["epoch"])
    return {"splits": record.splits, "merges": record.merges}


def _segment(_: World, stream: Stream, args: Args) -> object:
    found = stream.epochs.segment(parse_segment(args["id"]))
    return [found.key_start, found.key_end]


def _successors(_: World, stream: Stream, args: Args) -> object:
    found = stream.epochs.successors(parse_segment(args["id"]))
    return {segment_text(each): texts_of(before) for each, before in found.items()}


def _sealed_epoch(_: World, stream: Stream, args: Args) -> object:
    found = stream.workflows.epochs.sealed_epoch(parse_segment(args["id"]))
    return -1 if found is None else found


def _shard(_: World, stream: Stream, args: Args) -> object:
    return texts_of(stream.workflows.cuts.shard(args["shard"]))


def _shard_size_of(_: World, stream: Stream, args: Args) -> object:
    return stream.workflows.cuts.shard(args["shard"]).get(parse_segment(args["id"]))


def _fetch_epochs(_: World, stream: Stream, args: Args) -> object:
    return [each.epoch for each in stream.epochs.between(args["from"], args["to"])]


def _scale_metadata(_: World, stream: Stream, args: Args) -> object:
    return [
        {
            "time": each.time_ms,
            "segments": texts_of(each.segments.ids.tolist()),
            "splits": each.splits,
            "merges": each.merges,
        }
        for each in stream.epochs.scales(args["from"], args["to"])
    ]


def _ids_in(parts: Iterable[Segments]) -> list[int]:
    return list(map(int, Segments.join(parts).ids))


def _truncation(_: World, stream: Stream, args: Args) -> object:
    del args
    found = stream.truncation()
    return {
        "cut": plain_cut(found.cut),
        "span": plain_cut(found.span.epochs),
        "to_delete": texts_of(_ids_in(stream.cuts.being_deleted())),
        "deleted": texts_of(_ids_in(stream.cuts.deleted())),
        "size_till": found.size_till,
        "updating": found.updating,
    }


def _entry(found: RetentionEntry | None) -> list[int] | None:
    return None if found is None else [found.recording_time_ms, found.recorded_size]


def _retention_set(_: World, stream: Stream, args: Args) -> object:
    del args
    return [_entry(each) for each in stream.workflows.retention.read()]


def _retention_find(_: World, stream: Stream, args: Args) -> object:
    retention = stream.workflows.retention
    find = {"time": retention.find_by_time, "size": retention.find_by_size}[args["by"]]
    return _entry(find(args["value"]))


def _retention_ref_before(_: World, stream: Stream, args: Args) -> object:
    found = stream.workflows.retention.reference_before(cut_of(args["cut"]))
    return None if found is None else found.recording_time_ms


def _stream_cut_record(_: World, stream: Stream, args: Args) -> object:
    found = stream.workflows.retention.cut(args["recording_time"])
    return {"size": found.recorded_size, "cut": plain_cut(found.cut)}


def _compare(_: World, stream: Stream, args: Args) -> object:
    """Cases also compare cuts that no reader can be at, which `Stream.cuts.compare` refuses first."""
    place = stream.workflows.cuts.place
    return compare(place(cut_of(args["a"])), place(cut_of(args["b"]))).value


def _between(_: World, stream: Stream, args: Args) -> object:
    return texts_of(stream.cuts.segments_between(cut_of(args["from"]), cut_of(args["to"])).tolist())


def _between_unchecked(_: World, stream: Stream, args: Args) -> object:
    cuts, bounds = stream.workflows.cuts, (cut_of(args["from"]), cut_of(args["to"]))
    return texts_of(cuts.segments_between(*bounds, refuse_unordered=False).tolist())


def _size_till(_: World, stream: Stream, args: Args) -> object:
    reference = args.get("reference") or {"cut": {}, "size": 0}
    cuts = stream.workflows.cuts
    return cuts.size_till(cut_of(args["cut"]), cut_of(reference["cut"]), reference["size"])


def _commit_order(world: World, stream: Stream, args: Args) -> object:
    del args
    order = stream.workflows.transactions.order.read()
    return {str(at): world.name_of(each) for at, each in zip(order.positions, order.transaction_ids, strict=True)}


def _ordered_committing(world: World, stream: Stream, args: Args) -> object:
    del args
    transactions = stream.workflows.transactions
    found = transactions.order.next_commit(transactions.read_many)
    return [world.name_of(each) for each in found.transaction_ids]


QUERIES: dict[str, Query] = {
    "state": lambda _, stream, __: stream.state().value,
    "current_epoch": lambda _, stream, __: plain_epoch(stream.current_epoch()),
    "epoch": _epoch,
    "epoch_counts": _epoch_counts,
    "segment": _segment,
    "successors": _successors,
    "sealed_epoch": _sealed_epoch,
    "shard": _shard,
    "shard_size_of": _shard_size_of,
    "epoch_at_time": lambda _, stream, args: stream.epochs.epoch_at(args["time"]),
    "segments_at_time": lambda _, stream, args: plain_cut(stream.segments_at(args["time"])),
    "head": lambda _, stream, __: plain_cut(stream.head()),
    "fetch_epochs": _fetch_epochs,
    "scale_metadata": _scale_metadata,
    "truncation": _truncation,
    "retention_set": _retention_set,
    "retention_find": _retention_find,
    "retention_ref_before": _retention_ref_before,
    "stream_cut_record": _stream_cut_record,
    "compare": _compare,
    "is_valid": lambda _, stream, args: stream.cuts.is_valid(cut_of(args["cut"])),
    "span": lambda _, stream, args: plain_cut(stream.cuts.span(cut_of(args["cut"])).epochs),
    "segments_between": _between,
    "segments_between_unchecked": _between_unchecked,
    "size_between": lambda _, stream, args: stream.cuts.size_between(cut_of(args["from"]), cut_of(args["to"])),
    "size_till": _size_till,
    "txn_status": lambda world, stream, args: stream.transactions.status(world.transaction(args["id"])).value,
    "commit_order": _commit_order,
    "ordered_committing": _ordered_committing,
}


def everything(world: World, *, with_times: bool = True) -> dict[str, object]:
    """All that the queries show of a stream, and that its records agree with each other.

    Args:
        world: the stream.
        with_times: whether times of epochs count.
    """
    stream = world.stream()
    records = list(_all_epochs(stream))
    times = [each.creation_time_ms for each in records]
    chunks = list(stream.workflows.epochs.chunks(-1, records[-1].epoch))
    _check_history(stream, records, chunks)
    found: dict[str, object] = {
        "records": [plain_epoch(each) for each in records],
        "counts": [(each.splits, each.merges) for each in records],
        "times": times if with_times else None,
        "current": plain_epoch(stream.current_epoch()),
        "configuration": stream.configuration(),
        "sealed": {
            each: stream.workflows.epochs.sealed_epoch(each)
            for record in records
            for each in record.segments.ids.tolist()
        },
        "shards": [dict(stream.workflows.cuts.shard(each)) for each in range(len(records))],
        "statuses": {name: stream.transactions.status(each) for name, each in world.transactions.items()},
        "active": set(stream.workflows.transactions.active()),
        "epochs with transactions": stream.workflows.transactions.epochs(),
        "cuts": [
            _stream_cut_record(world, stream, {"recording_time": each.recording_time_ms})
            for each in stream.workflows.retention.read()
        ],
    }
    for name in ("state", "truncation", "retention_set", "commit_order", "head"):
        found[name] = QUERIES[name](world, stream, {})
    return found


def _all_epochs(stream: Stream) -> list[EpochRecord]:
    records = [stream.epochs.epoch(0)]
    while (seen := stream.parts.keys.epoch(len(records)).read()) is not None:
        records.append(seen.value)
    return records


def _check_history(stream: Stream, records: list[EpochRecord], chunks: list[HistoryChunk]) -> None:
    times = [each.creation_time_ms for each in records]
    if times != sorted(set(times)):
        raise AssertionError(f"times of epochs: expected ascending ones, found {times}")
    told = [time for chunk in chunks for time in chunk.times_ms.tolist()]
    if told != times:
        raise AssertionError(f"times of the history: expected {times}, found {told}")
    current = stream.current_epoch().epoch
    for record in records:
        at = stream.epochs.epoch_at(record.creation_time_ms)
        if at != min(record.epoch, current):
            raise AssertionError(f"epoch at {record.creation_time_ms}: expected {record.epoch}, found {at}")
