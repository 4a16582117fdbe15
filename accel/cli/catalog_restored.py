"""`accel catalog restored`: say that a bucket was put back from a copy: nothing of the lost time is to be believed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from accel.catalog import ObjectCatalog
from accel.catalog.restore import IDS_PASSED_OVER, RestorePlan, plan_restored, restored
from accel.cli.options import StoreChoice, examples, output_options, store_options
from accel.lookup.explain import count_text
from accel.rendering import Output, Rendered


@dataclass(frozen=True, slots=True)
class ShownRestore:
    """What is changed, or was.

    Args:
        plan: what was found.
        generation: the new one; empty for a dry run.
        counters: of histories: name -> (before, after).
    """

    plan: RestorePlan
    generation: str
    counters: dict[str, tuple[int | None, int]]

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        plan = self.plan
        return {
            "dry_run": not self.generation,
            "generation_before": plan.generation,
            "generation": self.generation,
            "highest_object_id": plan.highest_object_id,
            "next_object_id_before": plan.next_object_id,
            "next_object_id": plan.next_object_id_after,
            "epochs_before": {str(node_id): epoch for node_id, epoch in plan.epochs.items()},
            "unnamed_nodes": list(plan.unnamed_nodes),
            "counters": {name: {"before": before, "after": after} for name, (before, after) in self.counters.items()},
        }

    def render(self) -> Iterator[Rendered]:
        """A line for each thing that changes, and a sentence."""
        plan, verb = self.plan, "is" if self.generation else "would be"
        yield f"highest object id found {plan.highest_object_id}"
        yield f"next object id          {plan.next_object_id} {verb} {plan.next_object_id_after}"
        for name, (before, after) in self.counters.items():
            yield f"{name:<24}{before} {verb} {after}"
        nodes = ", ".join(map(str, plan.unnamed_nodes))
        if nodes:
            yield f"directory of nodes      nodes {nodes} {verb} named again"
        nodes = count_text(len(plan.epochs), "node")
        yield f"sessions                of {nodes} {'are' if self.generation else verb} fenced"
        if self.generation:
            yield f"generation {self.generation}: readers go on with what is there now; open writers anew"
        else:
            yield "dry run: nothing was changed (--yes does it)"


@click.command(
    short_help="After a bucket was put back from a copy; a dry run without --yes.",
    epilog=examples("accel catalog restored --store s3://bucket", "accel catalog restored --store s3://bucket --yes"),
)
@click.option("--yes", is_flag=True, help="Do it; without it nothing is changed.")
@store_options
@output_options
def restored_command(*, yes: bool, store: StoreChoice, output: Output) -> None:
    """Say that the bucket, or keys of its catalog, were put back from a copy. Stop all writers before.

    The catalog gets a new generation: readers drop what they know and go on with what is there now. Counters of ids are
    raised far above every id that is found, and sessions of writers that lived through it are fenced. Nothing is
    deleted. Without --yes it shows what would change.
    """
    with ObjectCatalog.open(store.open(output)) as catalog:
        output.note("going through the bucket")
        plan = plan_restored(catalog)
        if not yes:
            output.show(ShownRestore(plan, "", {}))
            return
        counters = _history_counters(catalog, plan.highest_stream_id + 1)
        report = restored(catalog, plan)
        output.show(ShownRestore(plan, report.generation, counters))


def _history_counters(catalog: ObjectCatalog, least_stream_id: int) -> dict[str, tuple[int | None, int]]:
    """Raise the counters of streams and transactions; what is gone of them, the marker of their table too, is made."""
    from accel.history.store import keys  # noqa: PLC0415 - only for who needs it
    from accel.history.store.id_blocks import pass_over_ids  # noqa: PLC0415 - likewise
    from loaders.backoff import Backoff, RetrySettings  # noqa: PLC0415 - likewise

    tables, system = catalog.parts.cells.tables, catalog.parts.system
    tables.create_table(keys.COUNTERS)
    cells = keys.SystemCells(tables, Backoff(RetrySettings(), system.sleep, system.jitter))
    least = {keys.SEGMENT_STREAMS: least_stream_id, keys.TRANSACTION_IDS: 0}
    return {name: pass_over_ids(cells.counter(name), each, IDS_PASSED_OVER) for name, each in least.items()}
