"""`accel object inspect`: footer, index, streams and block sizes of one object."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import click
import numpy as np

from accel.cli.objects.opening import LookedInto, Target, Targets, look_into
from accel.cli.options import Place, command, limit_option, place_options
from accel.rendering import Column, Fields, Output, Rendered, Shown, table_of
from accel.units import count_text, size_text
from loaders.format import BlockIndex


@command(None, "accel object inspect 42 --store s3://bucket", "accel object inspect ./42.bin --rows --stream 420000")
@click.argument("name", metavar="ID|KEY|FILE")
@click.option("--rows", is_flag=True, help="Show each row of the index, rather than each stream.")
@click.option("--stream", "stream_id", type=int, help="Show this stream only.")
@limit_option(20, "Lines to show; 0 for all.")
@place_options
def inspect(*, name: str, rows: bool, stream_id: int | None, limit: int, place: Place, output: Output) -> None:
    """Show an object's footer, index, streams and block sizes."""
    target = Targets(place, output).find(name)
    opened = look_into(target.source, target.key)
    index, limit_or_none = opened.index, limit or None
    held = index.object_ranges().stream_ids.tolist() if stream_id is None else [stream_id]
    streams = [_stream_data(index, number) for number in held[:limit_or_none] if len(index.stream_rows(number))]
    numbers = range(len(index)) if stream_id is None else index.stream_rows(stream_id)
    shown_rows = [{"row": number, **index.row(number)._asdict()} for number in numbers[:limit_or_none]] if rows else []
    data = {**_object_data(target, opened), "streams": streams, "rows": shown_rows}
    chosen = shown_rows if rows else streams
    total = len(numbers) if rows else len(held) if stream_id is None else len(streams)
    output.show(Shown(data, _lines(data, _TABLES[rows], chosen, stream_id, total - len(chosen))))


def _object_data(target: Target, opened: LookedInto) -> dict[str, Any]:
    ranges = opened.index.object_ranges()
    return {
        "key": opened.key,
        "object_id": target.object_id,
        "size_bytes": opened.size_bytes,
        "kind": "normal" if opened.composite is None else "composite",
        "footer": {
            "index_position": opened.footer.index_position,
            "index_size_bytes": opened.footer.index_size_bytes,
        },
        "links": [link._asdict() for link in opened.composite.links] if opened.composite else [],
        "stream_count": len(ranges),
        "holed_stream_count": len(ranges.holed),
        "row_count": len(opened.index),
        "record_count": int(opened.index.rows["record_count"].sum(dtype=np.int64)),
        "block_size_bytes": _block_sizes(opened.index),
        "opened_with": {"requests": opened.requests, "bytes": opened.bytes_read},
    }


def _block_sizes(index: BlockIndex) -> dict[str, int | None]:
    sizes = index.rows["size_bytes"].astype(np.int64)
    if not len(sizes):
        return {"min": None, "median": None, "max": None, "total": 0}
    middle = math.floor(np.median(sizes))
    return {"min": int(sizes.min()), "median": middle, "max": int(sizes.max()), "total": int(sizes.sum())}


def _stream_data(index: BlockIndex, stream_id: int) -> dict[str, Any]:
    numbers = index.stream_rows(stream_id)
    rows = index.rows[numbers.start : numbers.stop]
    starts = rows["start"].astype(np.int64)
    holes = (starts[1:] != (starts + rows["end_delta"])[:-1]).sum()
    return {
        "stream_id": stream_id,
        "start": index.row(numbers[0]).start,
        "end": index.row(numbers[-1]).end,
        "holes": int(holes),
        "rows": len(rows),
        "records": int(rows["record_count"].sum(dtype=np.int64)),
        "size_bytes": int(rows["size_bytes"].sum(dtype=np.int64)),
    }


def _offsets(row: Fields) -> str:
    return f"[{row['start']}, {row['end']})"


def _size(row: Fields) -> str:
    return size_text(row["size_bytes"])


_TABLES: Final[dict[bool, list[Column[Fields]]]] = {
    False: [
        Column("stream", "stream_id"),
        Column("offsets", _offsets),
        Column("rows", "rows"),
        Column("batches", "records"),
        Column("size", _size),
        Column("holes", lambda row: row["holes"] or ""),
    ],
    True: [
        Column("row", "row"),
        Column("stream", "stream_id"),
        Column("offsets", _offsets),
        Column("batches", "record_count"),
        Column("position", "position"),
        Column("size", _size),
    ],
}
"""The columns; True for rows of the index, False for streams."""


def _lines(
    data: Fields,
    columns: Sequence[Column[Fields]],
    chosen: Sequence[Fields],
    stream_id: int | None,
    left: int,
) -> Iterator[Rendered]:
    """A few lines and a table."""
    yield f"object   {data['key']}   {data['kind']} object of {data['size_bytes']} bytes"
    index = f"{data['footer']['index_size_bytes']} bytes at {data['footer']['index_position']}"
    cost = f"{count_text(data['opened_with']['requests'], 'request')}, {size_text(data['opened_with']['bytes'])}"
    yield f"index    {count_text(data['row_count'], 'row')}, {index}   (opened with {cost})"
    holed = f", {data['holed_stream_count']} of them with a hole inside" if data["holed_stream_count"] else ""
    batches = "record batch" if data["record_count"] == 1 else "record batches"
    yield f"streams  {count_text(data['stream_count'], 'stream')}{holed}, {data['record_count']} {batches}"
    if data["row_count"]:
        sizes = {name: size_text(size or 0) for name, size in data["block_size_bytes"].items()}
        yield f"blocks   {sizes['min']} to {sizes['max']}, median {sizes['median']}, in all {sizes['total']}"
    if data["kind"] == "composite":
        links = ", ".join(f"object {link['object_id']}" for link in data["links"])
        yield f"links    {links}"
    if chosen:
        yield table_of(chosen, *columns)
    elif stream_id is not None:
        yield f"the object does not hold stream {stream_id}"
    if left:
        yield f"… and {left} more; --limit 0 shows all of them"
