"""All actors together, for so many steps."""

from __future__ import annotations

from collections import Counter
from unittest.mock import patch

from accel.catalog import parts
from accel.lookup import engine
from tests.accel.catalog.simulation.actors import Caretaker, CollectorActor, Compactor, Reader, Uploader, processes
from tests.accel.catalog.simulation.bucket import NODES, Bucket, InlineThreads, Violation
from tests.accel.catalog.simulation.collectors import RIGHT, CollectorRules
from tests.accel.catalog.simulation.invariants import Invariants
from tests.accel.catalog.simulation.lookups import Looker
from tests.accel.catalog.simulation.scheduler import Scheduler
from tests.accel.catalog.simulation.undoers import Undoer


def simulate(seed: int, steps: int, collector: CollectorRules = RIGHT, merges: float = 0.35) -> Counter[str]:
    """Run all actors: two uploaders, two compactors, two readers and one of each other kind.

    Returns:
        What happened how often.

    Raises:
        Violation: something that must be true was not, after the step that its text names.
    """
    scheduler = Scheduler(seed)
    bucket = Bucket(seed, scheduler)
    for node_id in NODES:
        scheduler.spawn(f"uploader {node_id}", processes(bucket, Uploader(bucket, node_id).live, dies=0.3))
    for number in range(2):
        scheduler.spawn(f"compactor {number}", processes(bucket, Compactor(bucket, merges).live, dies=0.2))
    scheduler.spawn("collector", processes(bucket, CollectorActor(bucket, collector).live, dies=0.3))
    scheduler.spawn("caretaker", processes(bucket, Caretaker(bucket).live, dies=0.2))
    scheduler.spawn("undoer", processes(bucket, Undoer(bucket).live, dies=0.2))
    scheduler.spawn("walker", processes(bucket, Reader(bucket).live, dies=0))
    scheduler.spawn("looker", processes(bucket, Looker(bucket).live, dies=0))
    try:
        with (  # actors have no threads but their own
            patch.object(engine, "Threads", InlineThreads),
            patch.object(parts, "Threads", InlineThreads),
        ):
            scheduler.run(steps, Invariants(bucket).check)
    except Violation as violation:
        raise Violation(f"seed {seed}, step {scheduler.steps}: {violation}") from violation
    return bucket.oracle.counts
