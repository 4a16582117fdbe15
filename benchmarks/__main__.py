"""`python -m benchmarks [NAME ...] [--json]`: run benchmarks and print their results.

Without a name all benchmarks run. Speeds are reported, not judged: the exit code is 1 only if the two sides of a
benchmark returned different answers, and 2 for a name that is not in the table.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from collections.abc import Callable
from typing import Final

import click
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.harness import AnswersDiffer, Comparison, Spread

BENCHMARKS: Final = {
    "parse": "indexes.run_parse",
    "ingest": "indexes.run_ingest",
    "filter_build": "indexes.run_build",
    "filter_probe": "indexes.run_probe",
    "index_memory": "indexes.run_memory",
    "warm_lookup": "lookups.run_warm",
    "warm_many": "lookups.run_many",
    "warm_recorded": "lookups.run_recorded",
    "cold_requests": "lookups.run_requests",
    "cold_hints": "lookups.run_hints",
    "hint_build": "catalog.run_hint_build",
    "spark_nodes": "catalog.run_spark_nodes",
    "catalog_refresh": "catalog.run_catalog_refresh",
    "compaction_copy": "compaction.run",
    "compaction_aging": "compaction.run_aging",
    "compaction_uploads": "compaction.run_uploads",
    "maintenance": "maintenance.run",
    "history_year": "indexes.run_times",
    "time_order": "order.run",
    "order_slow": "order.run_order_slow",
    "stream_read_slow": "streams.run_read_slow",
    "stream_decode": "streams.run_decode",
    "seen_latency": "streams.run_seen",
    "reader_restart": "streams.run_reader_restart",
    "write_durable": "streams.run_durable",
    "ack_latency": "streams.run_ack",
    "writer_resume": "streams.run_resume",
    "read_pipelined": "slow_requests.run",
    "slow_get": "slow_requests.run_slow_get",
    "hanging": "slow_requests.run_hanging",
}
"""name -> module and function, which takes the number of rounds; imported when it is run."""

ROUNDS: Final = 7


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"NAME is one of: {', '.join(BENCHMARKS)}. Without a name all benchmarks run.",
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array and nothing else on stdout.")
@click.option("--rounds", type=click.IntRange(min=1), default=ROUNDS, show_default=True, help="Rounds of each side.")
def main(names: tuple[str, ...], rounds: int, *, as_json: bool) -> None:
    """Compare Accel with a peer, both sides in one run, and print the ratio."""
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        raise click.UsageError(f"no benchmark {', '.join(unknown)}; there are: {', '.join(BENCHMARKS)}")
    comparisons = []
    for name in dict.fromkeys(names or BENCHMARKS):
        comparisons += _run(name, rounds)
    if as_json:
        click.echo(json.dumps([comparison.as_json() for comparison in comparisons], indent=2))
    else:
        Console().print(_table(comparisons))


def find_benchmark(name: str) -> Callable[[int], list[Comparison]]:
    """The function of a benchmark."""
    module, _, function = BENCHMARKS[name].partition(".")
    benchmark: Callable[[int], list[Comparison]] = getattr(importlib.import_module(f"benchmarks.{module}"), function)
    return benchmark


def _run(name: str, rounds: int) -> list[Comparison]:
    # Output of libraries must not be part of the JSON.
    with contextlib.redirect_stdout(sys.stderr):
        click.echo(f"{name} ...", err=True)
        try:
            return find_benchmark(name)(rounds)
        except AnswersDiffer as error:
            raise click.ClickException(f"{name}: {error}") from error


def _table(comparisons: list[Comparison]) -> Table:
    table = Table(box=box.SIMPLE, caption="medians; below them the quickest and the slowest round")
    table.add_column("benchmark, and its peer")
    for heading in ("ours", "peer", "ratio", "reach"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in comparisons:
        table.add_row(
            f"[bold]{one.name}[/]\n[dim]{escape(one.peer)}; {one.runs} runs[/]",
            _measured(one.value, one.unit, one.spread),
            _measured(one.peer_value, one.unit, one.peer_spread),
            f"[bold]{one.ratio:.3g} x[/]",
            _reached(one),
        )
    return table


def _reached(one: Comparison) -> str:
    if one.goal is None:
        return ""
    return f"{one.goal:g} x\n{'[green]reached[/]' if one.ratio >= one.goal else '[red]missed[/]'}"


def _measured(value: float, unit: str, spread: Spread | None) -> str:
    text = f"{_number(value)} {unit}"
    return text if spread is None else f"{text}\n[dim]{_number(spread.low)}..{_number(spread.high)}[/]"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    main()
