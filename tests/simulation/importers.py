"""An import of objects that lie in the bucket before there is a list: it may die at any request, and is repeated.

Some processes give it up instead, and begin anew. Nobody else is there before it has ended: the catalog is empty until
then. What was imported counts as acknowledged, and all others go on from there.
"""

from __future__ import annotations

from accel.adoption.importing import ImportChoice, abandon_import, bucket_objects, commit_import, plan_import
from tests.builders import write_set_object
from tests.simulation.world import LAYOUT, NODES, STREAMS, Machine, Span

OBJECTS_MAX = 8


class Importer:
    """Imports what lies in the bucket, process after process, until it is done.

    Args:
        machine: where it runs.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.is_done = False
        self._nodes: dict[int, int] = {}
        self._spans: list[Span] = []
        self._write()

    def _write(self) -> None:
        """Objects as nodes have written them: each stream is of one node, and goes on without a hole."""
        random, ends = self.machine.random, dict.fromkeys(STREAMS, 0)
        for object_id in range(random.randrange(1, OBJECTS_MAX)):
            node_id = random.choice(NODES)
            own = [each for each in STREAMS if each % len(NODES) == NODES.index(node_id)]
            spans = [(each, ends[each], ends[each] + random.randrange(1, 20)) for each in sorted(random.sample(own, 2))]
            ends |= {stream_id: end for stream_id, _, end in spans}
            self.machine.memory.put(LAYOUT.object_key(object_id), write_set_object(spans))
            self.machine.oracle.give([object_id])
            self._nodes[object_id] = node_id
            self._spans += spans

    def live(self) -> None:
        """A process: an attempt."""
        catalog = self.machine.open()
        if self.machine.random.random() < 0.2 and abandon_import(catalog):
            self.machine.count("imports given up")
        found = bucket_objects(catalog)
        plan = plan_import(catalog, found, ImportChoice(self._nodes), begin=self.machine.random.random() < 0.5)
        commit_import(catalog, plan)
        self.machine.oracle.acknowledge(self._spans, self.machine.scheduler.seconds)
        self.machine.count("imports")
        self.is_done = True
