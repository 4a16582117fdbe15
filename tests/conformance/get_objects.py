"""Lookup cases: the same answer under every policy, window, and state of the caches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from accel import Answer, MetadataImage, ReadAccelerator, Settings, StaticImages, StillPending
from accel.errors import InconsistentAnswer, InvalidRequest
from accel.lookup.answer import check_ranges
from loaders.layout import ObjectLayout
from loaders.object_ref import ObjectRef
from loaders.store import MemoryStore
from range_index import StreamRange
from tests.builders import write_set_object
from tests.conformance.report import Report, same

POLICIES = ("load-all", "window:1", "window:2", "window:5", "window+preload", "spread")

Warm = Callable[[ReadAccelerator], None]


def run(path: Path, data: dict[str, Any], report: Report) -> None:
    """All cases of a file."""
    for case in data["cases"]:
        name = f"{path.name}: {case.get('id', '?')}"
        KINDS[case["kind"]](name, case, report)


def _lookups(name: str, case: dict[str, Any], report: Report) -> None:
    metadata = case["metadata"]
    store = _store_of([metadata])
    image = MetadataImage.from_dict(metadata)
    for policy in POLICIES:
        for state, warm in _states(case):
            with _accelerator(image, store, policy) as accelerator:
                warm(accelerator)
                for query in case["queries"]:
                    for again in ("", " again"):
                        with report.check(f"{name}: {query['name']}, {policy}, {state}{again}"):
                            _check_query(accelerator, query)
    for query in case["queries"]:
        for strategy, expected in query.get("loads", {}).items():
            with report.check(f"{name}: {query['name']}, loads of {strategy}"):
                _check_loads(image, store, query, strategy, expected)


def _states(case: dict[str, Any]) -> Iterator[tuple[str, Warm]]:
    """Ways to begin: nothing known, the case's hints, everything loaded, and both."""

    def nothing(_: ReadAccelerator) -> None:
        return

    def hints(accelerator: ReadAccelerator) -> None:
        for node_id, streams in case.get("index_hints", {}).items():
            for stream_id, entries in streams.items():
                accelerator.add_hints(int(node_id), int(stream_id), [tuple(entry) for entry in entries])

    def everything(accelerator: ReadAccelerator) -> None:
        for node in case["metadata"]["nodes"]:
            for each in node["stream_set_objects"]:
                ranges = [(row["stream_id"], row["start"], row["end"]) for row in each["ranges"]]
                accelerator.object_committed(node["node_id"], ObjectRef(each["object_id"]), ranges)

    def both(accelerator: ReadAccelerator) -> None:
        everything(accelerator)
        hints(accelerator)

    yield "cold", nothing
    yield "everything loaded", everything
    if case.get("index_hints"):
        yield "with hints", hints
        yield "everything loaded, with hints", both


def _check_query(accelerator: ReadAccelerator, query: dict[str, Any]) -> None:
    expected = query["expect"]
    status, answer = _ask(accelerator, query)
    same("status", status, expected["status"])
    if answer is None or status != "ok":
        return
    same("objects", [each.object_id for each in answer.objects], expected["object_ids"])
    if "object_types" in expected:
        same("kinds", [each.kind.value for each in answer.objects], expected["object_types"])
    same("span", [answer.start_offset, answer.end_offset], [expected["start_offset"], expected["end_offset"]])


def _ask(accelerator: ReadAccelerator, query: dict[str, Any]) -> tuple[str, Answer | None]:
    try:
        answer = accelerator.get_objects(query["stream_id"], query["start"], query["end"], query["limit"])
    except InvalidRequest:
        return "invalid", None
    except InconsistentAnswer:
        return "error", None
    return "ok", answer


def _check_loads(
    image: MetadataImage, store: MemoryStore, query: dict[str, Any], strategy: str, expected: list[int]
) -> None:
    policy = {"full": "load-all"}.get(strategy) or strategy.replace("batch", "window:")
    with _accelerator(image, store, policy) as accelerator:
        accelerator.get_objects(query["stream_id"], query["start"], query["end"], query["limit"])
        lookups = accelerator.stats().lookups
        same("objects opened and rounds", [lookups.objects_opened, lookups.rounds], expected)


def _result_check(name: str, case: dict[str, Any], report: Report) -> None:
    for each in case["checks"]:
        with report.check(f"{name}: {each['name']}"):
            ranges = [_range_of(found, case["stream_id"]) for found in each["objects"]]
            try:
                check_ranges(case["start_offset"], case["limit"], ranges)
                outcome = "pass"
            except InconsistentAnswer:
                outcome = "fail"
            same("outcome", outcome, each["expect"])


def _range_of(found: dict[str, Any], stream_id: int) -> StreamRange | None:
    held = [StreamRange(row["start"], row["end"]) for row in found["ranges"] if row["stream_id"] == stream_id]
    return held[0] if held else None


def _waiting_fetch(name: str, case: dict[str, Any], report: Report) -> None:
    phases = case["phases"]
    images = [MetadataImage.from_dict(phase["metadata"], version) for version, phase in enumerate(phases)]
    store = _store_of([phase["metadata"] for phase in phases])
    for policy in POLICIES:
        source = StaticImages(images[0])
        with ReadAccelerator(source, store, settings=Settings(policy=policy)) as accelerator:
            for number, (image, phase) in enumerate(zip(images, phases, strict=True)):
                source.push(image)
                with report.check(f"{name}: phase {number}, {policy}"):
                    _check_phase(accelerator, case["query"], phase["expect"])


def _check_phase(accelerator: ReadAccelerator, query: dict[str, Any], expected: dict[str, Any]) -> None:
    try:
        answer = accelerator.fetch(query["stream_id"], query["start"], query["end"], query["limit"], timeout_seconds=0)
    except StillPending:
        same("state", "pending", expected["state"])
        return
    same("state", "complete", expected["state"])
    same("objects", [each.object_id for each in answer.objects], expected["object_ids"])
    same("span", [answer.start_offset, answer.end_offset], [expected["start_offset"], expected["end_offset"]])


@contextmanager
def _accelerator(image: MetadataImage, store: MemoryStore, policy: str) -> Iterator[ReadAccelerator]:
    with ReadAccelerator(StaticImages(image), store, settings=Settings(policy=policy, parallel_loads=4)) as accelerator:
        yield accelerator


def _store_of(images: list[dict[str, Any]]) -> MemoryStore:
    """A store with the set objects of these images, really written in the object format."""
    store, layout = MemoryStore(), ObjectLayout()
    for metadata in images:
        for node in metadata["nodes"]:
            for each in node["stream_set_objects"]:
                ranges = [(row["stream_id"], row["start"], row["end"]) for row in each["ranges"]]
                store.put(layout.object_key(each["object_id"]), write_set_object(ranges))
    return store


KINDS = {"get_objects": _lookups, "sanity_check": _result_check, "fetch_pending": _waiting_fetch}
