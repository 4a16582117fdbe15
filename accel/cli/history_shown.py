"""What commands on streams print: data for machines, and lines for people, made together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.table import Table

from accel.cli.history_texts import moment_ms_text
from accel.cli.output import Rendered

if TYPE_CHECKING:
    from accel.history.segments import SegmentRecord

SHOWN_SEGMENTS_MAX: Final = 8
"""Segments of an epoch in one line of text; JSON has all of them."""


@dataclass(frozen=True, slots=True)
class Shown:
    """Something that was found or done.

    Args:
        data: as machines get it.
        lines: as people read it.
    """

    data: dict[str, Any]
    lines: tuple[Rendered, ...]

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return self.data

    def render(self) -> Iterator[Rendered]:
        """As lines and tables."""
        yield from self.lines


def said(sentence: str, **data: Any) -> Shown:
    """One sentence, and what it says as data."""
    return Shown(data, (sentence,))


def field_lines(fields: Mapping[str, object]) -> tuple[str, ...]:
    """A line for each field that is there."""
    return tuple(f"{name:<20}{value}" for name, value in fields.items() if value is not None)


def table_of(names: Mapping[str, bool], rows: Iterable[Iterable[str]]) -> Table:
    """A table; for each column its name, and whether it holds numbers."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name, is_number in names.items():
        table.add_column(name, justify="right" if is_number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def segment_data(segment: SegmentRecord) -> dict[str, Any]:
    """A segment for machines."""
    return {
        "segment": str(segment),
        "id": segment.id,
        "key_start": segment.key_start,
        "key_end": segment.key_end,
        "creation_time_ms": segment.creation_time_ms,
    }


def keys_text(segment: SegmentRecord) -> str:
    """A segment's keys.

    >>> from accel.history.segments import SegmentRecord
    >>> keys_text(SegmentRecord(3, 0, 0.25, 0.5))
    '[0.25, 0.5)'
    """
    return f"[{segment.key_start}, {segment.key_end})"


def segments_text(segments: Iterable[SegmentRecord], count: int) -> str:
    """The first few of so many segments, and their keys."""
    shown = ", ".join(f"{each} {keys_text(each)}" for each in islice(segments, SHOWN_SEGMENTS_MAX))
    return f"{shown}, and {count - SHOWN_SEGMENTS_MAX} more" if count > SHOWN_SEGMENTS_MAX else shown


def epoch_line(number: int, time_ms: int, notes: str, segments: str) -> str:
    """An epoch in one line."""
    return f"epoch {number:<6}{moment_ms_text(time_ms)}  {notes}{segments}"
