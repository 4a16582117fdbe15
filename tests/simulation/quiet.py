"""What must be true once faults have stopped, all processes have ended, and a caretaker has done what is due.

nothing is stuck      an interrupted undo is ended, everything that is due is collected, a new session can write
all tables agree      `verify` finds no damage
each offset           is found by a fresh reader, in exactly one object, and its bytes are those written
nothing grows         no object that nothing lists, nothing retired or prepared, as many kept lists as settings say
"""

from __future__ import annotations

from collections.abc import Callable

from accel import ReadAccelerator, Settings
from accel.catalog import CatalogSettings, ObjectCatalog
from accel.catalog.collect import collect, plan_collection
from accel.catalog.parts import catalog_parts, existing_format
from accel.catalog.shard_writes import kept_lists
from accel.catalog.undo import finish_undo, unfinished_commits
from accel.catalog.verify import Verdict, verify
from accel.compaction import CompactionSettings, Status, compact, plan_compaction
from accel.errors import MaintenanceRefused
from accel.system import Components
from loaders.store import ObjectStore
from tests.simulation.blocking import SimulatedThreads
from tests.simulation.scheduler import Violation
from tests.simulation.world import HOUR_SECONDS, NODES, STREAMS, Machine, World

STEPS_MAX = 20_000
READER = Settings(parallel_loads=1, hedge_percent=0)


def settle(world: World, look: Callable[[], None]) -> None:
    """End all processes, let what is due be done, and look at everything."""
    world.scheduler.halt()
    world.becomes_quiet()
    machine = Machine(world, "caretaker at the end")
    world.scheduler.spawn(machine.name, lambda: _settle(machine))
    world.scheduler.run(STEPS_MAX, look)
    if world.scheduler.has_tasks:
        raise Violation(f"expected everything to be done within {STEPS_MAX} steps, found it going on")


def _settle(machine: Machine) -> None:
    machine.begin()
    catalog = machine.open()
    present = [node_id for node_id in NODES if catalog.parts.keys.node_list(node_id).read() is not None]
    for node_id in present:
        if unfinished_commits(catalog, node_id):
            finish_undo(catalog, node_id)
    for node_id in present:
        catalog.open_node(node_id).close()
    compacted = _compact(machine, catalog)
    for _ in range(3):  # what is undone or moved is retired in one round, and due in the next
        machine.scheduler.sleep(HOUR_SECONDS)
        _collect(machine, catalog)
    _verify(machine, catalog)
    read_all(machine.world, catalog, machine.store, machine.system)
    _check_growth(machine, catalog, present, compacted)


def _compact(machine: Machine, catalog: ObjectCatalog) -> set[int]:
    """Nodes whose list took a compaction; nothing is in its way any more."""
    settings = CompactionSettings(max_objects_per_node=2, min_age_seconds=0, split_holes=True)
    report = compact(catalog, plan_compaction(catalog, settings))
    failed = [result for result in report.groups if result.status is not Status.COMMITTED]
    if failed:
        raise Violation(f"expected that a compaction is taken, found {failed}")
    machine.count("compactions at the end", len(report.groups))
    return {result.group.node_id for result in report.groups}


def _collect(machine: Machine, catalog: ObjectCatalog) -> None:
    try:
        plan = plan_collection(catalog)
    except MaintenanceRefused as error:
        if machine.oracle.live_anywhere:
            raise Violation(f"expected a collection at the end, found it refused: {error}") from error
        return  # nothing was ever committed, or all of it was trimmed: an operator has to say that this is so
    collect(catalog, plan)


def _verify(machine: Machine, catalog: ObjectCatalog) -> None:
    found = verify(catalog)
    if found.outcome not in (Verdict.CLEAN, Verdict.ADVICE):
        raise Violation(f"expected tables that agree, found {found.damage} {found.unchecked}")
    if found.orphans and machine.oracle.live_anywhere:
        raise Violation(f"expected no object that nothing lists, found {found.orphans}")
    machine.count("catalogs verified")


def read_now(world: World) -> None:
    """Read all streams with nothing cached, between two steps, past all faults."""
    record, settings = existing_format(world.memory), CatalogSettings(parallel_requests=1)
    threads = (SimulatedThreads(), SimulatedThreads())
    with ObjectCatalog(
        lambda: catalog_parts(world.memory, record, settings, world.system, threads), world.system
    ) as catalog:
        read_all(world, catalog, world.memory, world.system)
    world.count("full readers")


def read_all(world: World, catalog: ObjectCatalog, store: ObjectStore, system: Components) -> None:
    """Read all streams of a catalog."""
    image = catalog.refresh()
    with ReadAccelerator(catalog.images(), store, settings=READER, system=system) as accelerator:
        for stream_id in STREAMS:
            stream = image.streams.get(stream_id)
            committed = world.oracle.committed[stream_id]
            if stream is None or not committed:
                continue
            at = stream.start_offset
            if at > world.oracle.trimmed[stream_id]:
                raise Violation(f"stream {stream_id} begins at {at}, trimmed to {world.oracle.trimmed[stream_id]}")
            for batch in accelerator.read(stream_id, at):
                expected = b"%d:%d-%d" % (stream_id, batch.base_offset, batch.base_offset + batch.count)
                if batch.base_offset > at or batch.payload != expected:
                    raise Violation(f"stream {stream_id} from {at}: expected {expected!r}, found {batch}")
                at = batch.base_offset + batch.count
                world.count("batches compared")
            if at < max(end for _, end in committed):
                raise Violation(f"stream {stream_id}: acknowledged up to {max(committed)}, a read ended at {at}")


def _check_growth(machine: Machine, catalog: ObjectCatalog, present: list[int], compacted: set[int]) -> None:
    kept_max = machine.world.choices.list_versions_kept
    for node_id in present:
        now = catalog.parts.keys.node_list(node_id).read()
        kept = kept_lists(catalog.parts, node_id)
        if node_id in compacted and len(kept) > kept_max:  # what is too many is erased with the next commit
            raise Violation(f"node {node_id}: expected at most {kept_max} kept versions, found {len(kept)}")
        if now is None or not machine.oracle.live_anywhere:
            continue
        # A deadline of later is that of a machine with a wrong clock, which could not ask the store for its time.
        is_due = (now.value.prepared["deadline_ms"] <= catalog.parts.now_ms()).any()
        if len(now.value.retired) or is_due:
            raise Violation(f"node {node_id}: expected nothing retired or prepared, found {now.value}")
