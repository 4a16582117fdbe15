"""All actors together, for so many steps."""

from __future__ import annotations

from collections import Counter

from tests.catalog.simulation.actors import Caretaker, CollectorActor, Compactor, Reader, Uploader, processes
from tests.catalog.simulation.bucket import NODES, Bucket, Violation
from tests.catalog.simulation.collectors import RIGHT, CollectorRules
from tests.catalog.simulation.invariants import Invariants
from tests.catalog.simulation.scheduler import Scheduler


def simulate(seed: int, steps: int, collector: CollectorRules = RIGHT, merges: float = 0.25) -> Counter[str]:
    """Run two uploaders, two compactors, a collector, a caretaker and two readers; gives what happened how often.

    Raises:
        Violation: something that must be true was not, after the step that its text names.
    """
    scheduler = Scheduler(seed)
    bucket = Bucket(seed, scheduler)
    for node_id in NODES:
        scheduler.spawn(f"uploader {node_id}", processes(bucket, Uploader(bucket, node_id).live, dies=0.3))
    for number in range(2):
        scheduler.spawn(f"compactor {number}", processes(bucket, Compactor(bucket, merges).live, dies=0.2))
        scheduler.spawn(f"reader {number}", processes(bucket, Reader(bucket).live, dies=0))
    scheduler.spawn("collector", processes(bucket, CollectorActor(bucket, collector).live, dies=0.3))
    scheduler.spawn("caretaker", processes(bucket, Caretaker(bucket).live, dies=0.2))
    try:
        scheduler.run(steps, Invariants(bucket).check)
    except Violation as violation:
        raise Violation(f"seed {seed}, step {scheduler.steps}: {violation}") from violation
    return bucket.oracle.counts
