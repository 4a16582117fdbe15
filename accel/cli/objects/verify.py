"""`accel object verify`: compares the index with the bytes, the bytes with the blocks, and all of it with the image.

It also checks that each stream's offsets ascend through a node's list. Lookups rely on this: from two objects they
infer what is between them, which is valid only if each object's range of a stream starts at or after the end of all
earlier ones. The catalog guarantees it. A foreign image may break the rule for some streams, and names these in its
``unordered_streams``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import click
import numpy as np
from numpy.typing import NDArray

from accel.cli.objects.opening import LookedInto, Readable, Target, Targets, look_into
from accel.cli.options import Place, command, end_with, place_options
from accel.errors import AccelError
from accel.image import MetadataImage, ObjectRef, StreamObject
from accel.rendering import Fields, Output, Shown, finding_lines, left_out
from accel.units import count_text, size_text
from loaders.errors import CorruptObject, KeyMissing, RangeInvalid
from loaders.format import BlockRow, decode_block_bytes
from loaders.format.index import block_spans
from loaders.object_ref import UNKNOWN
from loaders.threads import run_bounded
from range_index import ObjectRanges

Column = NDArray[np.int64]


EXIT_PROBLEMS = 3
AHEAD_PER_THREAD = 4


@dataclass(frozen=True, slots=True)
class Disorder:
    """An object whose range of a stream starts before an earlier object's range ended."""

    stream_id: int
    node_id: int
    object_id: int
    start: int
    earlier_object_id: int
    earlier_end: int


class OrderCheck:
    """Checks one node's list, object by object. One thread at a time.

    It stores 24 bytes a stream, not each range, so that a list may have any length.
    """

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._ids = np.empty(0, dtype=np.int64)
        self._ends = np.empty(0, dtype=np.int64)
        self._holders = np.empty(0, dtype=np.int64)

    def add(self, object_id: int, ranges: ObjectRanges) -> list[Disorder]:
        """Add the next object of the list; returns the streams whose order it breaks.

        Complexity: O(streams seen so far); loops in Python run only over the given ranges.
        """
        ids, starts, ends = ranges.stream_ids, ranges.starts, ranges.ends
        at = np.searchsorted(self._ids, ids)
        known = np.zeros(len(ids), dtype=np.bool_)
        inside = at < len(self._ids)
        known[inside] = self._ids[at[inside]] == ids[inside]
        slots = at[known]
        late = np.flatnonzero(starts[known] < self._ends[slots])
        rows = zip(
            ids[known][late], starts[known][late], self._holders[slots][late], self._ends[slots][late], strict=True
        )
        disorders = [
            Disorder(int(stream_id), self._node_id, object_id, int(start), int(holder), int(end))
            for stream_id, start, holder, end in rows
        ]
        later = ends[known] >= self._ends[slots]
        self._ends[slots[later]] = ends[known][later]
        self._holders[slots[later]] = object_id
        self._insert(at[~known], object_id, ids[~known], ends[~known])
        return disorders

    def _insert(self, at: NDArray[np.intp], object_id: int, ids: Column, ends: Column) -> None:
        if len(ids):
            self._ids = np.insert(self._ids, at, ids)
            self._ends = np.insert(self._ends, at, ends)
            self._holders = np.insert(self._holders, at, object_id)


DISORDERS_SHOWN_MAX = 10


@dataclass(frozen=True, slots=True)
class ObjectProblem:
    """A problem of an object.

    ``check`` is one of: missing, index, size, index-size, stream-range, block.
    """

    object_id: int | None
    key: str
    check: str
    message: str


@dataclass(frozen=True, slots=True)
class UncheckedObject:
    """An object that could not be checked, and why."""

    object_id: int | None
    key: str
    type: str
    message: str


@dataclass(slots=True)
class ObjectVerification:
    """All findings of a verification. One thread at a time."""

    objects_checked: int = 0
    blocks_checked: int = 0
    problems: list[ObjectProblem] = field(default_factory=list)
    unchecked: list[UncheckedObject] = field(default_factory=list)
    disorders: list[Disorder] = field(default_factory=list)


SPAN_SIZE_BYTES = 8 << 20
"""Neighbouring blocks are read together up to this size."""

PROBLEMS_PER_OBJECT_MAX = 5

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Subject:
    """One object to verify, and its data in the image.

    Args:
        target: the object.
        listed: its sizes, if an image lists it.
        node_id: the node that lists it, if there is one.
        holds: the stream and range that the image states for a stream object.
    """

    target: Target
    listed: ObjectRef | None = None
    node_id: int | None = None
    holds: tuple[int, StreamObject] | None = None


@dataclass(slots=True)
class Checked:
    """The result of one subject."""

    subject: Subject
    ranges: ObjectRanges | None = None
    blocks: int = 0
    problems: list[ObjectProblem] = field(default_factory=list)
    unchecked: list[UncheckedObject] = field(default_factory=list)

    def problem(self, check: str, message: str) -> None:
        """Something is wrong."""
        target = self.subject.target
        self.problems.append(ObjectProblem(target.object_id, target.key, check, message))


def subjects_of_image(image: MetadataImage, targets: Targets) -> Iterator[Subject]:
    """Every object of an image: each node's list in order, then the stream objects."""
    for node in image.nodes.values():
        for position in range(len(node)):
            ref = node.ref(position)
            yield Subject(targets.of_id(ref.object_id), ref, node.node_id)
    for stream in image.streams.values():
        for stream_object in stream.stream_objects:
            yield Subject(
                targets.of_id(stream_object.ref.object_id), stream_object.ref, holds=(stream.stream_id, stream_object)
            )


def subjects_of_names(names: Iterable[str], image: MetadataImage | None, targets: Targets) -> list[Subject]:
    """The named objects, each as the image lists it, if it does; those of a node in the order of its list."""
    named = [targets.find(name) for name in dict.fromkeys(names)]
    if image is None:
        return [Subject(target) for target in named]
    wanted = {target.object_id for target in named if not target.is_file}
    of_image = subjects_of_image(image, targets) if wanted else ()
    listed = [subject for subject in of_image if subject.target.object_id in wanted]
    known = {subject.target.object_id for subject in listed}
    return listed + [Subject(target) for target in named if target.is_file or target.object_id not in known]


class Verifier:
    """Verifies objects one by one. Threads: any may check; one adds results.

    Args:
        targets: resolves the linked objects of composites.
        with_data: also read every block.
    """

    def __init__(self, targets: Targets, *, with_data: bool) -> None:
        self._targets = targets
        self._with_data = with_data

    def check(self, subject: Subject) -> Checked:
        """Read one object, and compare it with itself and with the image."""
        checked = Checked(subject)
        target = subject.target
        try:
            opened = look_into(target.source, target.key)
            checked.ranges = opened.index.object_ranges()
            _compare_with_image(checked, opened)
            if self._with_data:
                self._check_blocks(checked, opened)
        except CorruptObject as error:
            checked.problem("index", f"expected {error.expected}, found {error.found}")
        except KeyMissing:
            checked.problem("missing", "there is no such object")
        except (AccelError, OSError) as error:
            row = UncheckedObject(target.object_id, target.key, type(error).__name__, str(error))
            checked.unchecked.append(row)
        return checked

    def _check_blocks(self, checked: Checked, opened: LookedInto) -> None:
        numbers = range(len(opened.index))
        for link_id, rows in block_spans(opened.index, opened.composite, numbers, SPAN_SIZE_BYTES):
            where = self._targets.of_id(link_id) if link_id is not None else checked.subject.target
            try:
                body = _read_span(where.source, where.key, rows)
            except (KeyMissing, RangeInvalid) as error:
                checked.problem("block", f"blocks at {rows[0].position} of {where.key!r} are missing: {error.detail}")
            else:
                _decode_span(checked, body, rows, where.key, opened.size_bytes)
            if len(checked.problems) >= PROBLEMS_PER_OBJECT_MAX:
                return


def add_up(results: Iterable[Checked], image: MetadataImage | None, verification: ObjectVerification) -> None:
    """Add results to the findings; those of a node must be added in the order of its list."""
    orders: dict[int, OrderCheck] = {}
    broken: set[tuple[int, int]] = set()
    known = image.unordered_streams if image is not None else frozenset()
    for checked in results:
        verification.objects_checked += not checked.unchecked
        verification.blocks_checked += checked.blocks
        verification.problems += checked.problems
        verification.unchecked += checked.unchecked
        node_id, object_id = checked.subject.node_id, checked.subject.target.object_id
        if node_id is None or object_id is None or checked.ranges is None:
            continue
        for disorder in orders.setdefault(node_id, OrderCheck(node_id)).add(object_id, checked.ranges):
            if disorder.stream_id not in known and (node_id, disorder.stream_id) not in broken:
                broken.add((node_id, disorder.stream_id))
                verification.disorders.append(disorder)


def _compare_with_image(checked: Checked, opened: LookedInto) -> None:
    listed, holds = checked.subject.listed, checked.subject.holds
    # The image's size of a composite object is the size of the linked objects, not its own.
    if listed is not None and opened.composite is None:
        _compare(checked, "size", "bytes", listed.size_bytes, opened.size_bytes)
        _compare(checked, "index-size", "bytes of index", listed.index_size_bytes, opened.index.nbytes)
    if holds is not None and checked.ranges is not None:
        stream_id, promised = holds
        held = checked.ranges.range_of(stream_id)
        if held is None or held.start > promised.start or held.end < promised.end:
            what = "nothing of it" if held is None else f"[{held.start}, {held.end})"
            text = f"the image states [{promised.start}, {promised.end}) of stream {stream_id}, found {what}"
            checked.problem("stream-range", text)


def _compare(checked: Checked, check: str, noun: str, expected: int, found: int) -> None:
    if expected not in (UNKNOWN, found):
        checked.problem(check, f"the image says {expected} {noun}, found {found}")


def _read_span(source: Readable, key: str, rows: list[BlockRow]) -> memoryview:
    start, end = rows[0].position, rows[-1].position + rows[-1].size_bytes
    return memoryview(source.get_range(key, start, end).body)


def _decode_span(checked: Checked, body: memoryview, rows: list[BlockRow], key: str, size_bytes: int) -> None:
    for row in rows:
        at = row.position - rows[0].position
        try:
            decode_block_bytes(body[at : at + row.size_bytes], row, key=key, object_size_bytes=size_bytes)
        except CorruptObject as error:
            where = f"stream {row.stream_id} [{row.start}, {row.end})"
            checked.problem("block", f"{where}: expected {error.expected}, found {error.found}")
            if len(checked.problems) >= PROBLEMS_PER_OBJECT_MAX:
                return
        else:
            checked.blocks += 1


def _data(verification: ObjectVerification, requests: int, bytes_read: int) -> dict[str, Any]:
    return {
        "ok": not (verification.problems or verification.unchecked or verification.disorders),
        "objects_checked": verification.objects_checked,
        "blocks_checked": verification.blocks_checked,
        "requests": requests,
        "bytes": bytes_read,
        "problems": [asdict(problem) for problem in verification.problems],
        "unchecked": [asdict(unchecked) for unchecked in verification.unchecked],
        "disorders": [asdict(disorder) for disorder in verification.disorders],
        "unordered_streams": sorted({disorder.stream_id for disorder in verification.disorders}),
    }


def _lines(found: Fields, *, with_data: bool) -> Iterator[str]:
    """Two lines for each finding, and a summary line."""
    for row in found["problems"]:
        yield from finding_lines(row["check"].upper(), _name(row), row["message"])
    for row in found["unchecked"]:
        yield from finding_lines("UNCHECKED", _name(row), f"{row['type']}: {row['message']}")
    for row in found["disorders"][:DISORDERS_SHOWN_MAX]:
        where = f"stream {row['stream_id']} in the list of node {row['node_id']}"
        earlier = f"after object {row['earlier_object_id']}, which ends at {row['earlier_end']}"
        yield from finding_lines("ORDER", where, f"object {row['object_id']} starts at {row['start']}, {earlier}")
    yield from left_out(len(found["disorders"]), DISORDERS_SHOWN_MAX, "of the kind")
    if found["disorders"]:
        yield "              add them to the image, so that lookups scan all objects for these streams:"
        yield f'              "unordered_streams": {found["unordered_streams"]}'
    blocks = f", {count_text(found['blocks_checked'], 'row')} of blocks" if with_data else ""
    cost = f"{count_text(found['requests'], 'request')}, {size_text(found['bytes'])}"
    verdict = count_text(len(found["problems"]), "problem") if found["problems"] else "no problem"
    if found["disorders"]:
        verdict += f", {count_text(len(found['unordered_streams']), 'stream')} out of order"
    if found["unchecked"]:
        verdict += f", {len(found['unchecked'])} could not be checked"
    yield f"{count_text(found['objects_checked'], 'object')} checked{blocks} ({cost}): {verdict}"


def _name(row: Fields) -> str:
    return row["key"] if row["object_id"] is None else f"object {row['object_id']} at {row['key']}"


@command(
    "Check objects against the format, themselves, and the image.",
    "accel object verify --all --store s3://bucket --image image.json",
    "accel object verify 42 43 --store s3://bucket --data",
    "accel object verify ./42.bin --data --quiet",
)
@click.argument("names", metavar="[ID|KEY|FILE]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every object of the image, or of the catalog.")
@click.option("--data", is_flag=True, help="Also read every block, not only the indexes.")
@click.option("--parallel", type=click.IntRange(1, 1024), default=32, show_default=True, help="Objects at once.")
@place_options
def verify(
    *,
    names: tuple[str, ...],
    everything: bool,
    data: bool,
    parallel: int,
    place: Place,
    output: Output,
) -> None:
    """Check objects against the format, against themselves, and against the image.

    Reads every index; with --data every block. With --image or --all it also compares sizes, and finds the streams
    whose offsets do not ascend through a node's list. Exits with 3 if there are problems, else with 1 if something
    could not be checked. With --quiet it prints nothing if there is no problem.
    """
    if everything == bool(names):
        raise click.UsageError("Expected either objects to verify or --all.")
    place = place.with_catalog() if everything and place.image is None else place
    targets = Targets(place, output)
    subjects = (
        list(subjects_of_image(place.image, targets))
        if everything and place.image is not None
        else subjects_of_names(names, place.image, targets)
    )
    verification = ObjectVerification()
    verifier = Verifier(targets, with_data=data)
    with (
        ThreadPoolExecutor(parallel) as executor,
        output.progress("verifying", len(subjects), moved=lambda: targets.reads[1]) as tell,
    ):

        def check(subject: Subject) -> Checked:
            checked = verifier.check(subject)
            tell()
            return checked

        looked_at = run_bounded(lambda subject: executor.submit(check, subject), subjects, parallel * AHEAD_PER_THREAD)
        add_up((future.result() for future in looked_at), place.image, verification)
    found = _data(verification, *targets.reads)
    output.show(Shown(found, () if output.is_quiet and found["ok"] else _lines(found, with_data=data)))
    end_with(EXIT_PROBLEMS if found["problems"] or found["disorders"] else int(not found["ok"]))
