"""What `accel object verify` found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from accel.cli.order_check import Disorder
from accel.lookup.explain import count_text
from accel.units import size_text

DISORDERS_SHOWN_MAX = 10


@dataclass(frozen=True, slots=True)
class Problem:
    """Something is wrong with an object.

    ``check`` is one of: missing, index, size, index-size, stream-range, block.
    """

    object_id: int | None
    key: str
    check: str
    message: str


@dataclass(frozen=True, slots=True)
class Unchecked:
    """An object that could not be looked at, and why."""

    object_id: int | None
    key: str
    type: str
    message: str


@dataclass(slots=True)
class Verification:
    """Everything that a verification found. One thread at a time."""

    with_data: bool
    quiet: bool = False
    objects_checked: int = 0
    blocks_checked: int = 0
    requests: int = 0
    bytes_read: int = 0
    problems: list[Problem] = field(default_factory=list)
    unchecked: list[Unchecked] = field(default_factory=list)
    disorders: list[Disorder] = field(default_factory=list)

    @property
    def found_problems(self) -> bool:
        """Whether anything is wrong."""
        return bool(self.problems or self.disorders)

    @property
    def unordered_streams(self) -> list[int]:
        """The streams that break the order of some node's list, ascending."""
        return sorted({each.stream_id for each in self.disorders})

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "ok": not self.found_problems and not self.unchecked,
            "objects_checked": self.objects_checked,
            "blocks_checked": self.blocks_checked,
            "requests": self.requests,
            "bytes": self.bytes_read,
            "problems": [asdict(each) for each in self.problems],
            "unchecked": [asdict(each) for each in self.unchecked],
            "disorders": [asdict(each) for each in self.disorders],
            "unordered_streams": self.unordered_streams,
        }

    def render(self) -> Iterator[str]:
        """As lines; none if all is well and nobody wants to hear of it."""
        for problem in self.problems:
            yield f"{problem.check.upper():<13} {_name(problem.object_id, problem.key)}"
            yield f"              {problem.message}"
        for each in self.unchecked:
            yield f"UNCHECKED     {_name(each.object_id, each.key)}"
            yield f"              {each.type}: {each.message}"
        yield from self._disorder_lines()
        if self.found_problems or self.unchecked or not self.quiet:
            yield self._sentence()

    def _disorder_lines(self) -> Iterator[str]:
        streams = self.unordered_streams
        for each in self.disorders[:DISORDERS_SHOWN_MAX]:
            yield f"ORDER         stream {each.stream_id} in the list of node {each.node_id}"
            earlier = f"after object {each.earlier_object_id}, which ends at {each.earlier_end}"
            yield f"              object {each.object_id} starts at {each.start}, {earlier}"
        if len(self.disorders) > DISORDERS_SHOWN_MAX:
            yield f"              … and {len(self.disorders) - DISORDERS_SHOWN_MAX} more of the kind"
        if streams:
            yield "              lookups open everything for streams that the image names at its top:"
            yield f'              "unordered_streams": {streams}'

    def _sentence(self) -> str:
        what = f"{count_text(self.objects_checked, 'object')} checked"
        if self.with_data:
            what += f", {count_text(self.blocks_checked, 'row')} of blocks"
        cost = f"{count_text(self.requests, 'request')}, {size_text(self.bytes_read)}"
        found = count_text(len(self.problems), "problem") if self.problems else "no problem"
        if self.disorders:
            found += f", {count_text(len(self.unordered_streams), 'stream')} out of order"
        if self.unchecked:
            found += f", {len(self.unchecked)} could not be checked"
        return f"{what} ({cost}): {found}"


def _name(object_id: int | None, key: str) -> str:
    return key if object_id is None else f"object {object_id} at {key}"
