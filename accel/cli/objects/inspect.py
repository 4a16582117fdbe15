"""`accel object inspect`: footer, index, streams and block sizes of one object."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click
import numpy as np
from rich import box
from rich.table import Table

from accel.cli.objects.opening import LookedInto, Target, Targets, look_into
from accel.cli.options import Place, examples, output_options, place_options
from accel.lookup.explain import count_text
from accel.rendering import Output, Rendered
from accel.units import size_text
from loaders.format import BlockRow


@dataclass(frozen=True, slots=True)
class Inspection:
    """One object, opened.

    Args:
        target: what was pointed at.
        opened: its end.
        stream_id: show this stream only; None for all.
        rows: show each row of the index, rather than each stream.
        limit: show at most so many; 0 for all.
    """

    target: Target
    opened: LookedInto
    stream_id: int | None
    rows: bool
    limit: int

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        opened, index = self.opened, self.opened.index
        ranges = index.object_ranges()
        return {
            "key": opened.key,
            "object_id": self.target.object_id,
            "size_bytes": opened.size_bytes,
            "kind": "normal" if opened.composite is None else "composite",
            "footer": {
                "index_position": opened.footer.index_position,
                "index_size_bytes": opened.footer.index_size_bytes,
            },
            "links": [link._asdict() for link in opened.composite.links] if opened.composite else [],
            "stream_count": len(ranges),
            "holed_stream_count": len(ranges.holed),
            "row_count": len(index),
            "record_count": int(index.rows["record_count"].sum(dtype=np.int64)),
            "block_size_bytes": self._sizes(),
            "opened_with": {"requests": opened.requests, "bytes": opened.bytes_read},
            "streams": [self._stream_dict(each) for each in self._chosen_streams()],
            "rows": [_row_dict(index.row(number), number) for number in self._chosen_rows()] if self.rows else [],
        }

    def render(self) -> Iterator[Rendered]:
        """As a few sentences and a table."""
        yield from self._head()
        numbers = self._chosen_rows() if self.rows else self._chosen_streams()
        if numbers:
            yield self._row_table(numbers) if self.rows else self._stream_table(numbers)
        elif self.stream_id is not None:
            yield f"it does not hold stream {self.stream_id}"
        left = self._total() - len(numbers)
        if left:
            yield f"… and {left} more; --limit 0 shows all of them"

    def _head(self) -> Iterator[str]:
        opened = self.opened
        kind = "normal object" if opened.composite is None else "composite object"
        yield f"object   {opened.key}   {kind} of {opened.size_bytes} bytes"
        index = f"{opened.footer.index_size_bytes} bytes at {opened.footer.index_position}"
        cost = f"{count_text(opened.requests, 'request')}, {size_text(opened.bytes_read)}"
        yield f"index    {count_text(len(opened.index), 'row')}, {index}   (opened with {cost})"
        ranges = opened.index.object_ranges()
        holed = f", {len(ranges.holed)} of them with a hole inside" if len(ranges.holed) else ""
        records = int(opened.index.rows["record_count"].sum(dtype=np.int64))
        batches = "record batch" if records == 1 else "record batches"
        yield f"streams  {count_text(len(ranges), 'stream')}{holed}, {records} {batches}"
        if len(opened.index):
            sizes = {name: size_text(size or 0) for name, size in self._sizes().items()}
            yield f"blocks   {sizes['min']} to {sizes['max']}, median {sizes['median']}, in all {sizes['total']}"
        if opened.composite is not None:
            yield f"links    {', '.join(f'object {link.object_id}' for link in opened.composite.links)}"

    def _sizes(self) -> dict[str, int | None]:
        sizes = self.opened.index.rows["size_bytes"].astype(np.int64)
        if not len(sizes):
            return {"min": None, "median": None, "max": None, "total": 0}
        middle = math.floor(np.median(sizes))
        return {"min": int(sizes.min()), "median": middle, "max": int(sizes.max()), "total": int(sizes.sum())}

    def _total(self) -> int:
        index = self.opened.index
        if self.stream_id is not None:
            rows = len(index.stream_rows(self.stream_id))
            return rows if self.rows else min(rows, 1)
        return len(index) if self.rows else len(index.object_ranges())

    def _chosen_rows(self) -> list[int]:
        index = self.opened.index
        rows = range(len(index)) if self.stream_id is None else index.stream_rows(self.stream_id)
        return list(rows[: self.limit or None])

    def _chosen_streams(self) -> list[int]:
        ids: list[int] = self.opened.index.object_ranges().stream_ids.tolist()
        chosen = ids if self.stream_id is None else [each for each in ids if each == self.stream_id]
        return chosen[: self.limit or None]

    def _stream_dict(self, stream_id: int) -> dict[str, Any]:
        index = self.opened.index
        numbers = index.stream_rows(stream_id)
        rows = index.rows[numbers.start : numbers.stop]
        first, last = index.row(numbers[0]), index.row(numbers[-1])
        starts = rows["start"].astype(np.int64)
        holes = (starts[1:] != (starts + rows["end_delta"])[:-1]).sum()
        return {
            "stream_id": stream_id,
            "start": first.start,
            "end": last.end,
            "holes": int(holes),
            "rows": len(rows),
            "records": int(rows["record_count"].sum(dtype=np.int64)),
            "size_bytes": int(rows["size_bytes"].sum(dtype=np.int64)),
        }

    def _stream_table(self, stream_ids: list[int]) -> Table:
        table = _table("stream", "offsets", "rows", "batches", "size", "holes")
        for row in map(self._stream_dict, stream_ids):
            counts = (str(row[name]) for name in ("rows", "records"))
            offsets = f"[{row['start']}, {row['end']})"
            table.add_row(
                str(row["stream_id"]), offsets, *counts, size_text(row["size_bytes"]), str(row["holes"] or "")
            )
        return table

    def _row_table(self, numbers: list[int]) -> Table:
        table = _table("row", "stream", "offsets", "batches", "position", "size")
        for number in numbers:
            row = self.opened.index.row(number)
            offsets = f"[{row.start}, {row.end})"
            cells = (number, row.stream_id, offsets, row.record_count, row.position, size_text(row.size_bytes))
            table.add_row(*map(str, cells))
        return table


def _row_dict(row: BlockRow, number: int) -> dict[str, Any]:
    return {"row": number, **row._asdict()}


def _table(*names: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    return table


@click.command(
    epilog=examples(
        "accel object inspect 42 --store s3://bucket", "accel object inspect ./42.bin --rows --stream 420000"
    )
)
@click.argument("name", metavar="ID|KEY|FILE")
@click.option("--rows", is_flag=True, help="Show each row of the index, rather than each stream.")
@click.option("--stream", "stream_id", type=int, help="Show this stream only.")
@click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True, help="Lines to show; 0 for all.")
@place_options
@output_options
def inspect(*, name: str, place: Place, output: Output, **choice: Any) -> None:
    """Show an object's footer, index, streams and block sizes."""
    target = Targets(place, output).find(name)
    output.show(Inspection(target, look_into(target.source, target.key), **choice))
