"""Runs the steps of the stream history's case files on a `World`; the words of the files, and nothing more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any
from uuid import UUID

from accel.errors import AccelError, DataConflict, NotInHistory, ScalePrecondition
from accel.history.rules import cuts, epochs, retention
from accel.history.rules.configuration import StreamConfiguration
from accel.history.rules.epochs import EpochTransition
from accel.history.rules.retention import RetentionEntry, StreamCutRecord
from accel.history.rules.scaling import ScaleRequest
from accel.history.rules.segments import KeyRanges
from accel.history.rules.states import StreamState
from accel.history.rules.values import IdMap, epoch_of, parse_segment, segment_text, transaction_epoch
from tests.accel.history.rules.world import World

Args = Mapping[str, Any]


class Interpreter:
    """One case: a world, and the names that its steps gave to things."""

    def __init__(self, config: Args) -> None:
        self.config = config
        self.world = World(config.get("chunk_size", 1000), config.get("shard_size", 1000))
        self.names: dict[str, UUID] = {}
        self.remembered: dict[str, EpochTransition] = {}
        self.transition: EpochTransition | None = None

    def run(self, step: Args) -> str | None:
        """What is wrong with the outcome of a step, if anything."""
        try:
            found = self.perform(step)
        except AccelError as error:
            code = getattr(error, "code", "")
            return None if code == step.get("error") else f"expected {step.get('error', 'success')}, found {error!r}"
        if "error" in step:
            return f"expected {step['error']}, found {found!r}"
        if "expect" in step and found != step["expect"]:
            return f"expected {step['expect']!r}, found {found!r}"
        return None

    def perform(self, step: Args) -> Any:
        args = step.get("args", {})
        if step["op"] == "query":
            query: Callable[[Args], Any] = getattr(self, f"ask_{step['name']}")
            return query(args)
        operation: Callable[[Args], Any] = getattr(self, f"do_{step['op']}")
        return operation(args)

    # creation, state

    def do_create(self, args: Args) -> None:
        segments = args["segments"]
        self.world.initialize(segments, args["time"], args.get("start_number", 0), args.get("min_segments"))

    def do_config(self, args: Args) -> None:
        self.world.put("one", "configuration", StreamConfiguration(args["min_segments"]))

    def do_set_state(self, args: Args) -> None:
        self.world.set_state(StreamState(args["state"]))

    # scaling

    def do_get_etr(self, args: Args) -> None:
        self.remembered[args["as"]] = self.world.transition

    def do_submit_scale(self, args: Args) -> dict[str, list[float]]:
        remembered = args.get("etr")
        # A store compares versions; in plain dicts the record itself will do.
        if remembered is not None and self.remembered[remembered] is not self.world.transition:
            raise DataConflict("metadata", "epochTransition", "expected the version that was read")
        self.transition = self.world.submit_scale(request_of(args))
        pairs = zip(self.transition.new_ids.tolist(), self.transition.new_ranges, strict=True)
        return {segment_text(each): list(span) for each, span in pairs}

    def do_start_scale(self, args: Args) -> None:
        _, self.transition = self.world.start_scale(is_manual=args.get("manual", True))

    def do_scale_create_new_epoch(self, _: Args) -> None:
        self.world.create_new_epoch(self._transition())

    def do_scale_old_segments_sealed(self, args: Args) -> None:
        self.world.old_segments_sealed(self._transition(), by_id(args.get("sizes", {})))

    def do_complete_scale(self, _: Args) -> None:
        self.world.complete_scale()

    def do_reset_scale(self, _: Args) -> None:
        self.world.complete_scale()

    def do_scale(self, args: Args) -> None:
        self.world.scale(request_of(args), by_id(args.get("sizes", {})), is_manual=args.get("manual", True))

    def _transition(self) -> EpochTransition:
        assert self.transition is not None
        return self.transition

    # transactions

    def do_txn_create(self, args: Args) -> int:
        self.names[args["id"]] = self.world.create_transaction()
        return transaction_epoch(self.names[args["id"]])

    def do_txn_seal(self, args: Args) -> str:
        return self.world.seal_transaction(self.names[args["id"]], commit=args["commit"]).value

    def do_add_order(self, args: Args) -> None:
        self.world.append_order(self.names[args["id"]])

    def do_start_commit(self, args: Args) -> dict[str, Any]:
        found = self.world.start_commit(args.get("limit", 100))
        return {"epoch": found.epoch, "txns": self._aliases(found.transaction_ids)}

    def do_start_rolling(self, args: Args) -> None:
        self.world.start_rolling(args["active_epoch"])

    def do_rolling_create_duplicate_epochs(self, args: Args) -> None:
        self.world.create_duplicates(args["time"], by_id(args.get("txn_sizes", {})))

    def do_complete_rolling(self, args: Args) -> None:
        self.world.complete_rolling(by_id(args.get("active_sizes", {})))

    def do_complete_commit(self, _: Args) -> None:
        self.world.complete_commit(0)

    def do_commit(self, args: Args) -> dict[str, Any]:
        transaction_sizes, active_sizes = by_id(args.get("txn_sizes", {})), by_id(args.get("active_sizes", {}))
        found = self.world.commit(args["time"], transaction_sizes, active_sizes)
        return {"epoch": found.epoch, "txns": self._aliases(found.transaction_ids)}

    def _aliases(self, ids: tuple[UUID, ...]) -> list[str]:
        names = {transaction_id: name for name, transaction_id in self.names.items()}
        return [names[each] for each in ids]

    # truncation, retention

    def do_start_truncation(self, args: Args) -> None:
        self.world.start_truncation(by_id(args["cut"]))

    def do_complete_truncation(self, _: Args) -> None:
        self.world.complete_truncation()

    def do_retention_add(self, args: Args) -> None:
        self.world.add_retention(StreamCutRecord(args["recording_time"], args["size"], IdMap.of(by_id(args["cut"]))))

    def do_retention_delete_before(self, args: Args) -> None:
        self.world.delete_retention(args["recording_time"])

    # crashes

    def do_crash_sweep(self, args: Args) -> str:
        skew = args.get("retry_skew", 0)
        undisturbed = self.world.copy()
        self._work(undisturbed, args, 0)
        for crashed in self.world.crashed(lambda world: self._work(world, args, 0)):
            with suppress(ScalePrecondition):  # it had been carried out before, but for the state
                self._work(crashed, args, skew)
            if seen(crashed, times=not skew) != seen(undisturbed, times=not skew):
                return f"another state after a crash before write {crashed.writes}"
            if not increases(crashed):
                return "epochs whose times do not ascend, or another time in the history"
        self.world = undisturbed
        return "same_final_state"

    def _work(self, world: World, args: Args, skew: int) -> None:
        if args["what"] == "scale":
            sized = by_id(args.get("sizes", {}))
            changed = {**args, "time": args["time"] + skew}
            world.scale(request_of(changed), sized, is_manual=args.get("manual", True))
        else:
            transaction_sizes, active_sizes = by_id(args.get("txn_sizes", {})), by_id(args.get("active_sizes", {}))
            world.commit(args["time"] + skew, transaction_sizes, active_sizes)

    # queries

    def ask_state(self, _: Args) -> str:
        return self.world.state.value

    def ask_current_epoch(self, _: Args) -> dict[str, Any]:
        now = self.world.current
        return {"epoch": now.epoch, "reference": now.reference_epoch, "segments": texts(now.segments.ids)}

    def ask_epoch(self, args: Args) -> dict[str, Any]:
        found = self.world.epoch(args["epoch"])
        return {
            "epoch": found.epoch,
            "reference": found.reference_epoch,
            "time": found.creation_time_ms,
            "segments": texts(found.segments.ids),
        }

    def ask_epoch_counts(self, args: Args) -> dict[str, int]:
        found = self.world.epoch(args["epoch"])
        return {"splits": found.splits, "merges": found.merges}

    def ask_segment(self, args: Args) -> list[float]:
        segment_id = parse_segment(args["id"])
        found = epochs.segment_in(self.world.epoch(epoch_of(segment_id)), segment_id)
        return [found.key_start, found.key_end]

    def ask_successors(self, args: Args) -> dict[str, list[str]]:
        found = self.world.successors(parse_segment(args["id"]))
        return {segment_text(each): texts(related) for each, related in found.items()}

    def ask_sealed_epoch(self, args: Args) -> int:
        found: int = self.world.get("sealed in", parse_segment(args["id"]), -1)
        return found

    def ask_shard(self, args: Args) -> list[str]:
        return texts(self.world.get("shards", args["shard"], {}))

    def ask_shard_size_of(self, args: Args) -> int | None:
        found: int | None = self.world.get("shards", args["shard"], {}).get(parse_segment(args["id"]))
        return found

    def ask_epoch_at_time(self, args: Args) -> int:
        return self.world.epoch_at(args["time"])

    def ask_segments_at_time(self, args: Args) -> dict[str, int]:
        record = self.world.epoch(self.world.epoch_at(args["time"]))
        return by_text(retention.segments_at(record, self.world.truncation))

    def ask_head(self, _: Args) -> dict[str, int]:
        return by_text(retention.head(self.world.truncation, self.world.epoch(0)))

    def ask_fetch_epochs(self, args: Args) -> list[int]:
        return [each.epoch for each in self.world.walk(args["from"], args["to"])]

    def ask_scale_metadata(self, args: Args) -> list[dict[str, Any]]:
        records = self.world.walk(self.world.epoch_at(args["from"]), self.world.epoch_at(args["to"]))
        return [
            {"time": each.time_ms, "segments": texts(each.segments.ids), "splits": each.splits, "merges": each.merges}
            for each in epochs.summaries(records)
        ]

    def ask_truncation(self, _: Args) -> dict[str, Any]:
        now = self.world.truncation
        return {
            "cut": by_text(now.cut),
            "span": by_text(now.span.epochs),
            "to_delete": texts(self.world.being_deleted()),
            "deleted": texts(self.world.deleted()),
            "size_till": now.size_till,
            "updating": now.updating,
        }

    def ask_retention_set(self, _: Args) -> list[list[int]]:
        return [[each.recording_time_ms, each.recorded_size] for each in self.world.retention]

    def ask_retention_find(self, args: Args) -> list[int] | None:
        find = retention.find_by_time if args["by"] == "time" else retention.find_by_size
        return pair(find(self.world.retention, args["value"]))

    def ask_retention_ref_before(self, args: Args) -> int | None:
        found = self.world.retention_before(by_id(args["cut"]))
        return None if found is None else found.recording_time_ms

    def ask_stream_cut_record(self, args: Args) -> dict[str, Any]:
        found: StreamCutRecord | None = self.world.get("cuts", args["recording_time"])
        if found is None:
            raise NotInHistory("expected a recorded cut")
        return {"size": found.recorded_size, "cut": by_text(found.cut)}

    def ask_compare(self, args: Args) -> str:
        one, other = self.world.place(by_id(args["a"])), self.world.place(by_id(args["b"]))
        return cuts.compare(one, other).value

    def ask_is_valid(self, args: Args) -> bool:
        return self.world.is_valid(by_id(args["cut"]))

    def ask_span(self, args: Args) -> dict[str, int]:
        return by_text(self.world.place(by_id(args["cut"])).span.epochs)

    def ask_segments_between(self, args: Args) -> list[str]:
        start, end = (self.world.place_given(by_id(args[side])) for side in ("from", "to"))
        cuts.refuse_unordered(start, end)
        return self.ask_segments_between_unchecked(args)

    def ask_segments_between_unchecked(self, args: Args) -> list[str]:
        start, end = (self.world.place_given(by_id(args[side])) for side in ("from", "to"))
        return texts(sorted(each for part in self.world.between(start, end) for each in part.ids.tolist()))

    def ask_size_between(self, args: Args) -> int:
        return self.world.size_between(by_id(args["from"]), by_id(args["to"]))

    def ask_size_till(self, args: Args) -> int:
        reference = args.get("reference") or {"cut": {}, "size": 0}
        between = self.world.size_between(by_id(reference["cut"]), by_id(args["cut"]))
        recorded: int = reference["size"]
        return between + recorded

    def ask_txn_status(self, args: Args) -> str:
        return self.world.transaction_status(self.names[args["id"]]).value

    def ask_commit_order(self, _: Args) -> dict[str, str]:
        order = self.world.order
        pairs = zip(order.positions, self._aliases(order.transaction_ids), strict=True)
        return {str(position): name for position, name in pairs}

    def ask_ordered_committing(self, _: Args) -> list[str]:
        return self._aliases(self.world.ordered_committing().committing.transaction_ids)


def request_of(args: Args) -> ScaleRequest:
    """What a step asks to be scaled."""
    return ScaleRequest(tuple(parse_segment(each) for each in args["seal"]), KeyRanges.of(args["ranges"]), args["time"])


def by_id(values: Mapping[str, int]) -> dict[int, int]:
    """Numbers by segment id, from those by what people write."""
    return {parse_segment(each): value for each, value in values.items()}


def by_text(values: Mapping[int, int]) -> dict[str, int]:
    """The other way round."""
    return {segment_text(each): value for each, value in values.items()}


def texts(ids: Iterable[int]) -> list[str]:
    """Segment ids as people write them, ascending."""
    return [segment_text(int(each)) for each in sorted(ids)]


def pair(entry: RetentionEntry | None) -> list[int] | None:
    """A recorded cut as the files have it."""
    return None if entry is None else [entry.recording_time_ms, entry.recorded_size]


def seen(world: World, *, times: bool = True) -> dict[str, Any]:
    """All that queries show of a stream; without times, which another clock may have set."""
    shown = {name: dict(table) for name, table in world.tables.items() if name not in ("active", "completed")}
    shown["status"] = {each: world.transaction_status(each) for each in world.tables.get("completed", {})}
    if times:
        return shown
    shown["epochs"] = {each: (now.reference_epoch, now.segments.ids.tolist()) for each, now in shown["epochs"].items()}
    shown["one"] = {**shown["one"], "current": world.current.epoch}
    del shown["chunks"]
    return shown


def increases(world: World) -> bool:
    """Whether the times of epochs ascend, and the history tells the same as the records."""
    records = list(world.walk(0, world.current.epoch))
    times = [each.creation_time_ms for each in records]
    return times == sorted(set(times)) and all(each == world.epoch(each.epoch) for each in records)
