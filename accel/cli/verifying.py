"""How objects are verified: index against bytes, bytes against blocks, and all of it against the image."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import TypeVar

from accel.cli.opening import LookedInto, Readable, look_into
from accel.cli.order_check import OrderCheck
from accel.cli.targets import Target, Targets
from accel.cli.verification import Problem, Unchecked, Verification
from accel.errors import AccelError
from accel.image import MetadataImage, ObjectRef, StreamObject
from loaders.errors import CorruptObject, KeyMissing, RangeInvalid
from loaders.format import BlockRow, decode_block_bytes
from loaders.object_ref import UNKNOWN
from range_index import ObjectRanges

SPAN_SIZE_BYTES = 8 << 20
"""Neighbouring blocks are read together up to this size."""

PROBLEMS_PER_OBJECT_MAX = 5

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Subject:
    """One object to verify, and what the image says of it.

    Args:
        target: the object.
        listed: its sizes, where an image gives them.
        node_id: the node that lists it, if one does.
        holds: the stream and range that the image promises of a stream object.
    """

    target: Target
    listed: ObjectRef | None = None
    node_id: int | None = None
    holds: tuple[int, StreamObject] | None = None


@dataclass(slots=True)
class Checked:
    """What became of one subject."""

    subject: Subject
    ranges: ObjectRanges | None = None
    blocks: int = 0
    problems: list[Problem] = field(default_factory=list)
    unchecked: list[Unchecked] = field(default_factory=list)

    def problem(self, check: str, message: str) -> None:
        """Something is wrong."""
        target = self.subject.target
        self.problems.append(Problem(target.object_id, target.key, check, message))


def subjects_of_image(image: MetadataImage, targets: Targets) -> Iterator[Subject]:
    """Every object of an image: each node's list in order, then the stream objects."""
    for node in image.nodes.values():
        for position in range(len(node)):
            ref = node.ref(position)
            yield Subject(targets.of_id(ref.object_id), ref, node.node_id)
    for stream in image.streams.values():
        for each in stream.stream_objects:
            yield Subject(targets.of_id(each.ref.object_id), each.ref, holds=(stream.stream_id, each))


def subjects_of_names(names: Iterable[str], image: MetadataImage | None, targets: Targets) -> list[Subject]:
    """The objects that names mean, each as the image lists it, if it does; those of a node in the order of its list."""
    found = [targets.find(name) for name in dict.fromkeys(names)]
    if image is None:
        return [Subject(target) for target in found]
    wanted = {target.object_id for target in found if not target.is_file}
    listed = [each for each in subjects_of_image(image, targets) if each.target.object_id in wanted] if wanted else []
    known = {each.target.object_id for each in listed}
    return listed + [Subject(target) for target in found if target.is_file or target.object_id not in known]


class Verifier:
    """Verifies objects one by one. Threads: any may check; one adds up.

    Args:
        targets: where linked objects of composites lie.
        with_data: read every block, too.
    """

    def __init__(self, targets: Targets, *, with_data: bool) -> None:
        self._targets = targets
        self._with_data = with_data

    def check(self, subject: Subject) -> Checked:
        """Read one object and compare it with itself and with what the image says of it."""
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
            row = Unchecked(target.object_id, target.key, type(error).__name__, str(error))
            checked.unchecked.append(row)
        return checked

    def _check_blocks(self, checked: Checked, opened: LookedInto) -> None:
        for link_id, rows in _spans(opened):
            where = self._targets.of_id(link_id) if link_id is not None else checked.subject.target
            try:
                body = _read_span(where.source, where.key, rows)
            except (KeyMissing, RangeInvalid) as error:
                checked.problem("block", f"blocks at {rows[0].position} of {where.key!r} are gone: {error.detail}")
            else:
                _decode_span(checked, body, rows, where.key, opened.size_bytes)
            if len(checked.problems) >= PROBLEMS_PER_OBJECT_MAX:
                return


def add_up(results: Iterable[Checked], image: MetadataImage | None, found: Verification) -> None:
    """Add results to what was found so far; those of a node have to come in the order of its list."""
    orders: dict[int, OrderCheck] = {}
    broken: set[tuple[int, int]] = set()
    known = image.unordered_streams if image is not None else frozenset()
    for checked in results:
        found.objects_checked += not checked.unchecked
        found.blocks_checked += checked.blocks
        found.problems += checked.problems
        found.unchecked += checked.unchecked
        node_id, object_id = checked.subject.node_id, checked.subject.target.object_id
        if node_id is None or object_id is None or checked.ranges is None:
            continue
        for each in orders.setdefault(node_id, OrderCheck(node_id)).add(object_id, checked.ranges):
            if each.stream_id not in known and (node_id, each.stream_id) not in broken:
                broken.add((node_id, each.stream_id))
                found.disorders.append(each)


def in_order(executor: Executor, work: Callable[[T], R], items: Iterable[T], ahead: int) -> Iterator[R]:
    """Results in the order of the items, worked on by many threads, at most ``ahead`` of them waiting."""
    pending: deque[Future[R]] = deque()
    for item in items:
        pending.append(executor.submit(work, item))
        if len(pending) >= ahead:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


def _compare_with_image(checked: Checked, opened: LookedInto) -> None:
    listed, holds = checked.subject.listed, checked.subject.holds
    # The image's size of a composite object is that of what it links, not its own.
    if listed is not None and opened.composite is None:
        _compare(checked, "size", "bytes", listed.size_bytes, opened.size_bytes)
        _compare(checked, "index-size", "bytes of index", listed.index_size_bytes, opened.index.nbytes)
    if holds is not None and checked.ranges is not None:
        stream_id, promised = holds
        held = checked.ranges.range_of(stream_id)
        if held is None or held.start > promised.start or held.end < promised.end:
            what = "nothing of it" if held is None else f"[{held.start}, {held.end})"
            text = f"the image promises [{promised.start}, {promised.end}) of stream {stream_id}, found {what}"
            checked.problem("stream-range", text)


def _compare(checked: Checked, check: str, noun: str, expected: int, found: int) -> None:
    if expected not in (UNKNOWN, found):
        checked.problem(check, f"the image says {expected} {noun}, found {found}")


def _spans(opened: LookedInto) -> Iterator[tuple[int | None, list[BlockRow]]]:
    """Rows whose blocks lie end to end in one object, with the linked object's id where it is another one."""
    pending: list[BlockRow] = []
    holder: int | None = None
    for number, row in enumerate(opened.index):
        link_id = opened.composite.locate(number).object_id if opened.composite else None
        joins = pending and link_id == holder and pending[-1].position + pending[-1].size_bytes == row.position
        if pending and not (joins and row.position + row.size_bytes - pending[0].position <= SPAN_SIZE_BYTES):
            yield holder, pending
            pending = []
        holder = link_id
        pending.append(row)
    if pending:
        yield holder, pending


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
