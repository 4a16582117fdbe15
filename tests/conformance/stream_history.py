"""History cases: steps on a stream over a store in memory, each by a client that knows nothing yet."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from accel.errors import AccelError
from accel.history.rules.configuration import StreamConfiguration
from accel.history.rules.epochs import NO_TRANSITION, EpochTransition
from accel.history.rules.scaling import ScaleRequest
from accel.history.rules.segments import KeyRanges
from accel.history.rules.states import StreamState
from accel.history.rules.values import segment_text, transaction_epoch
from accel.testing import Crash, CrashStore
from loaders.store import ObjectStore
from loaders.tables import Versioned
from tests.conformance import steps
from tests.conformance.history_queries import QUERIES, Args, cut_of, everything, ids_of, plain_commit
from tests.conformance.history_world import SCOPE, STREAM, CallCounter, World
from tests.conformance.report import Report, same

Op = Callable[[World, Args, ObjectStore], object]


def run(path: Path, data: dict[str, Any], report: Report) -> None:
    """All cases of a file."""
    for case in data["cases"]:
        run_case(f"{path.name}: {case['name']}", case, World.of(case.get("config", {})), report)


def run_case(name: str, case: dict[str, Any], world: World, report: Report) -> None:
    """All steps of a case, in a bucket that has nothing in it."""
    for number, step in enumerate(case["steps"]):
        with report.check(f"{name}, step {number}, {step['op']} {step.get('name', '')}".rstrip()):
            _check_step(world, step)


def is_history(data: Any) -> bool:
    """Whether a file holds cases of this format."""
    cases = data.get("cases") if isinstance(data, dict) else None
    return isinstance(cases, list) and bool(cases) and all(_is_case(case) for case in cases)


def _is_case(case: Any) -> bool:
    steps = case.get("steps") if isinstance(case, dict) else None
    return isinstance(steps, list) and all(isinstance(step, dict) and "op" in step for step in steps)


def _check_step(world: World, step: dict[str, Any]) -> None:
    counter = CallCounter(world.store)
    args = step.get("args", {})
    expected_error = step.get("error")
    try:
        found = (
            _query(world, step["name"], args, counter)
            if step["op"] == "query"
            else OPS[step["op"]](world, args, counter)
        )
    except AccelError as error:
        if expected_error is None:
            raise
        same("error", getattr(error, "code", None), expected_error)
        return
    if expected_error is not None:
        raise AssertionError(f"expected {expected_error}, found {found!r}")
    if "expect" in step:
        same("answer", found, step["expect"])
    if "calls" in step and counter.calls > step["calls"]:
        raise AssertionError(f"calls: expected at most {step['calls']}, found {counter.calls}")


def _query(world: World, name: str, args: Args, counter: CallCounter) -> object:
    stream = world.stream(around=counter)
    counter.calls = 0
    return QUERIES[name](world, stream, args)


def _create(world: World, args: Args, store: ObjectStore) -> None:
    streams = world.streams(store)
    streams.create_scope(SCOPE)
    least: int = args.get("min_segments") or args["segments"]
    stream = streams.create_stream(
        SCOPE,
        STREAM,
        StreamConfiguration(min_segments=least),
        args["time"],
        segments=args["segments"],
        first_number=args.get("start_number", 0),
    )
    steps.create(stream)


def _config(world: World, args: Args, store: ObjectStore) -> None:
    stream = world.stream(around=store)
    stream.configure(replace(stream.configuration(), min_segments=args["min_segments"]))


def _set_state(world: World, args: Args, store: ObjectStore) -> None:
    steps.set_state(world.stream(around=store), StreamState[args["state"]])


def _request(args: Args) -> ScaleRequest:
    return ScaleRequest(tuple(ids_of(args["seal"])), KeyRanges.of(args["ranges"]), args["time"])


def _submit_scale(world: World, args: Args, store: ObjectStore) -> object:
    seen = world.remembered[args["etr"]] if "etr" in args else None
    world.transition = steps.submit_scale(world.stream(around=store), _request(args), seen)
    transition = world.transition.value
    ids, ranges = transition.new_ids.tolist(), transition.new_ranges
    return {segment_text(each): list(bounds) for each, bounds in zip(ids, ranges, strict=True)}


def _get_etr(world: World, args: Args, store: ObjectStore) -> None:
    world.remembered[args["as"]] = steps.scale_key(world.stream(around=store)).get()


def _kept(world: World) -> Versioned[EpochTransition]:
    if world.transition is None:
        world.transition = steps.scale_key(world.stream()).get()
    return world.transition


def _start_scale(world: World, args: Args, store: ObjectStore) -> None:
    stream = world.stream(around=store)
    stored = steps.scale_key(stream).get()
    seen = _kept(world) if stored.value.is_empty else stored
    world.transition = steps.start_scale(stream, seen, is_manual=args.get("manual", True))


def _create_new_epoch(world: World, args: Args, store: ObjectStore) -> None:
    del args
    steps.create_new_epoch(world.stream(around=store), _kept(world).value)


def _old_segments_sealed(world: World, args: Args, store: ObjectStore) -> None:
    scales = world.stream(around=store).workflows.scales
    scales.old_segments_sealed(_kept(world).value, cut_of(args.get("sizes", {})))


def _complete_scale(world: World, args: Args, store: ObjectStore) -> None:
    del args
    steps.complete_scale(world.stream(around=store), _kept(world).value)


def _reset_scale(world: World, args: Args, store: ObjectStore) -> None:
    del args
    steps.reset_scale(world.stream(around=store))


def _scale(world: World, args: Args, store: ObjectStore) -> None:
    stream = world.stream(cut_of(args.get("sizes", {})), store)
    stream.workflows.scales.run(_request(args), is_manual=args.get("manual", True))
    steps.complete_scale(stream, NO_TRANSITION)  # who read it before the scale finds another version


def _txn_create(world: World, args: Args, store: ObjectStore) -> int:
    transaction_id = world.stream(around=store).transactions.begin()
    world.transactions[args["id"]] = transaction_id
    return transaction_epoch(transaction_id)


def _txn_seal(world: World, args: Args, store: ObjectStore) -> str:
    stream = world.stream(around=store)
    return stream.transactions.seal(world.transaction(args["id"]), commit=args["commit"]).value


def _add_order(world: World, args: Args, store: ObjectStore) -> None:
    world.stream(around=store).workflows.transactions.order.add(world.transaction(args["id"]))


def _start_commit(world: World, args: Args, store: ObjectStore) -> object:
    return plain_commit(world, steps.start_commit(world.stream(around=store), args.get("limit")))


def _start_rolling(world: World, args: Args, store: ObjectStore) -> None:
    steps.start_rolling(world.stream(around=store), args["active_epoch"])


def _create_duplicates(world: World, args: Args, store: ObjectStore) -> None:
    stream = world.stream(around=store)
    committing = steps.commit_key(stream).get().value
    stream.workflows.commits.create_duplicate_epochs(committing, args["time"], cut_of(args.get("txn_sizes", {})))


def _complete_rolling(world: World, args: Args, store: ObjectStore) -> None:
    stream = world.stream(around=store)
    committing = steps.commit_key(stream).get().value
    stream.workflows.commits.complete_rolling(committing, cut_of(args.get("active_sizes", {})))


def _complete_commit(world: World, args: Args, store: ObjectStore) -> None:
    del args
    steps.complete_commit(world.stream(around=store))


def _commit(world: World, args: Args, store: ObjectStore) -> object:
    sizes = cut_of(args.get("txn_sizes", {})) | cut_of(args.get("active_sizes", {}))
    stream = world.stream(sizes, store)
    done = steps.finish_commit(stream, args["time"]) or stream.commit(args["time"], args.get("limit"))
    return plain_commit(world, done)


def _start_truncation(world: World, args: Args, store: ObjectStore) -> None:
    steps.start_truncation(world.stream(around=store), cut_of(args["cut"]))


def _complete_truncation(world: World, args: Args, store: ObjectStore) -> None:
    del args
    steps.complete_truncation(world.stream(around=store))


def _retention_add(world: World, args: Args, store: ObjectStore) -> None:
    retention = world.stream(around=store).workflows.retention
    retention.add(args["recording_time"], args["size"], cut_of(args["cut"]))


def _retention_delete_before(world: World, args: Args, store: ObjectStore) -> None:
    world.stream(around=store).workflows.retention.delete_up_to(args["recording_time"])


def _crash_sweep(world: World, args: Args, store: ObjectStore) -> str:
    del store
    act = SWEPT[args["what"]]
    skew = args.get("retry_skew", 0)
    before = world.copy()
    writes = CrashStore(world.store, None)
    with suppress(AccelError):
        act(world, args, writes)
    expected = everything(world, with_times=not skew)
    for number in range(writes.writes):
        other = before.copy()
        try:
            act(other, args, CrashStore(other.store, number))
        except Crash:
            pass
        except AccelError:
            continue
        with suppress(AccelError):
            act(other, {**args, "time": args["time"] + skew}, other.store)
        same(f"what stands there after a crash before write {number}", everything(other, with_times=not skew), expected)
    return "same_final_state"


SWEPT: dict[str, Op] = {"scale": _scale, "commit": _commit}

OPS: dict[str, Op] = {
    "create": _create,
    "config": _config,
    "set_state": _set_state,
    "submit_scale": _submit_scale,
    "get_etr": _get_etr,
    "start_scale": _start_scale,
    "scale_create_new_epoch": _create_new_epoch,
    "scale_old_segments_sealed": _old_segments_sealed,
    "complete_scale": _complete_scale,
    "reset_scale": _reset_scale,
    "scale": _scale,
    "txn_create": _txn_create,
    "txn_seal": _txn_seal,
    "add_order": _add_order,
    "start_commit": _start_commit,
    "start_rolling": _start_rolling,
    "rolling_create_duplicate_epochs": _create_duplicates,
    "complete_rolling": _complete_rolling,
    "complete_commit": _complete_commit,
    "commit": _commit,
    "start_truncation": _start_truncation,
    "complete_truncation": _complete_truncation,
    "retention_add": _retention_add,
    "retention_delete_before": _retention_delete_before,
    "crash_sweep": _crash_sweep,
}
