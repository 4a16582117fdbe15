"""What the demo shows: a table a node, what is simulated in it, and whether all answers were the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from accel.cli.demo_catalog import ImageCost
from accel.cli.demo_runs import CONNECTIONS, MODEL, Cost, NodeRun, Row
from accel.cli.output import Rendered
from accel.units import size_text, time_text

DIFFERENCES_SHOWN_MAX = 10


@dataclass(frozen=True, slots=True)
class DemoReport:
    """Everything that the demo measured."""

    runs: list[NodeRun]
    seed: int

    @property
    def same_answers(self) -> bool:
        """Whether every policy gave the answer of the plain walk, cold and warm."""
        return not any(run.differences for run in self.runs)

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "seed": self.seed,
            "simulated": {
                "first_byte_median_seconds": MODEL.first_byte_median_seconds,
                "first_byte_p99_seconds": MODEL.first_byte_p99_seconds,
                "bytes_per_second": MODEL.bytes_per_second,
                "connections": CONNECTIONS,
            },
            "nodes": [
                {"node": run.title, "image": asdict(run.image), "rows": [_row_dict(row) for row in run.rows]}
                for run in self.runs
            ],
            "answers_checked": sum(run.answers for run in self.runs),
            "recorded_answers_checked": sum(run.recorded_answers for run in self.runs),
            "same_answers": self.same_answers,
            "differences": [asdict(each) for run in self.runs for each in run.differences],
        }

    def render(self) -> Iterator[Rendered]:
        """As tables and sentences."""
        for run in self.runs:
            yield ""
            yield Text(run.title, style="bold")
            yield _image_text(run.image)
            yield _table(run.rows)
        yield ""
        yield (
            f"GETs and bytes are counted. Latency is simulated, the mean of many draws: a first byte within "
            f"{time_text(MODEL.first_byte_median_seconds)} (median),"
        )
        yield (
            f"{time_text(MODEL.first_byte_p99_seconds)} (99 %), then {MODEL.bytes_per_second / 1e6:.0f} MB/s a "
            f"connection; {CONNECTIONS} requests at once, rounds one after another."
        )
        yield ""
        yield from self._verdict()

    def _verdict(self) -> Iterator[Rendered]:
        answers = sum(run.answers for run in self.runs)
        recorded = sum(run.recorded_answers for run in self.runs)
        differences = [each for run in self.runs for each in run.differences]
        for each in differences[:DIFFERENCES_SHOWN_MAX]:
            question = f"stream {each.request.stream_id} [{each.request.start}, {each.request.end})"
            yield f"DIFFERENT  {each.policy}, {each.state}, {question}: expected {each.expected}, found {each.found}"
        if differences:
            text = f"{len(differences)} of {answers} answers differ from a plain walk over the objects."
            yield Text(text, style="bold red")
            return
        yield Text("Every policy gave the same answer, cold and warm.", style="bold green")
        also = f", {recorded} of them to those that the production system recorded" if recorded else ""
        yield f"{answers} answers were compared to a plain walk over all objects{also}."


def _image_text(cost: ImageCost) -> str:
    cold, unchanged = size_text(cost.cold_bytes), size_text(cost.unchanged_bytes)
    return (
        f"its image, from the catalog beside it: {cost.cold_requests} requests, {cold}; "
        f"asked again with nothing new: {cost.unchanged_requests} requests, {unchanged}"
    )


def _table(rows: list[Row]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("read")
    table.add_column("policy")
    for name in ("cold GETs", "rounds", "bytes", "latency (simulated)", "warm GETs"):
        table.add_column(name, justify="right", no_wrap=True)
    for read, group in groupby(rows, key=attrgetter("read")):
        same = list(group)
        fewest = min(row.cold.gets for row in same)
        for number, row in enumerate(same):
            cells = (read if not number else "", row.policy, *_cells(row.cold), _number(row.warm.gets))
            style = "bold" if row.cold.gets == fewest else None
            table.add_row(*cells, style=style, end_section=number == len(same) - 1)
    return table


def _cells(cost: Cost) -> tuple[str, str, str, str]:
    size, latency = size_text(round(cost.size_bytes)), time_text(cost.latency_seconds)
    return _number(cost.gets), _number(cost.rounds), size, latency


def _number(value: float) -> str:
    """A count, with one digit after the point where it is a mean."""
    return f"{value:.0f}" if value == int(value) else f"{value:.1f}"


def _row_dict(row: Row) -> dict[str, Any]:
    return {
        "policy": row.policy,
        "read": row.read,
        "cold_gets": row.cold.gets,
        "rounds": row.cold.rounds,
        "bytes": row.cold.size_bytes,
        "simulated_latency_seconds": row.cold.latency_seconds,
        "warm_gets": row.warm.gets,
    }
