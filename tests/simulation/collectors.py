"""The simplest collectors: one that keeps the rules, and some that break one, to show that it would be seen.

right          takes it out of the list first, then deletes; and waits until no reader can want it any more
DELETES FIRST  deletes what was promised and has expired while the promise still stands
IMPATIENT      deletes retired objects while readers may still have them in their images
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from accel.catalog import ObjectCatalog
from accel.catalog.node_list import without_expired
from accel.catalog.records import NodeList, StreamShard, with_delete_pending, without_collected
from accel.catalog.shard_writes import move_stream_objects
from tests.simulation.world import LAYOUT, NODES, Machine

MILLISECONDS = 1000


@dataclass(frozen=True, slots=True)
class CollectorRules:
    """Which rules a collector keeps; all of them by default."""

    takes_promises_back: bool = True
    waits_for_readers: bool = True


RIGHT = CollectorRules()
DELETES_FIRST = CollectorRules(takes_promises_back=False)
IMPATIENT = CollectorRules(waits_for_readers=False)


@dataclass(frozen=True, slots=True)
class Collector:
    """One round of collecting, as its process makes it."""

    machine: Machine
    catalog: ObjectCatalog
    rules: CollectorRules

    def collect(self) -> None:
        """Go through all lists and all buckets once."""
        for node_id in NODES:
            if self.catalog.parts.keys.node_list(node_id).read() is not None:
                move_stream_objects(self.catalog.parts, node_id)
                self._collect_promises(node_id)
                self._collect_list(node_id)
        for number in range(self.catalog.format.stream_buckets):
            self._collect_bucket(number)

    def _before_ms(self) -> int:
        waits = self.catalog.format.retired_seconds if self.rules.waits_for_readers else 0.0
        return self.catalog.parts.now_ms() - int(waits * MILLISECONDS)

    def _collect_promises(self, node_id: int) -> None:
        expired: list[int] = []

        def change(now: NodeList | None) -> NodeList | None:
            changed, ids = without_expired(now or NodeList(node_id), self.catalog.parts.now_ms())
            expired[:] = sorted({*expired, *ids.tolist()})  # a lost reply: what it took is no longer in the list
            return changed if self.rules.takes_promises_back else None

        listed = self.catalog.parts.keys.node_list(node_id).change(change).value
        kept = {*listed.live["object_id"].tolist(), *listed.prepared["object_id"].tolist()}
        kept |= {*listed.stream_objects["object_id"].tolist()}
        for number in range(self.catalog.format.stream_buckets):  # merged stream objects leave their promise behind
            seen = self.catalog.parts.keys.shard(number).read()
            bucket = StreamShard(number) if seen is None else seen.value
            kept |= {*bucket.stream_objects["object_id"].tolist(), *bucket.retired["object_id"].tolist()}
        self._delete(expired if not self.rules.takes_promises_back else [each for each in expired if each not in kept])
        if expired:
            self.machine.count("expired promises")

    def _collect_list(self, node_id: int) -> None:
        delete_pending: list[int] = []

        def doom(now: NodeList | None) -> NodeList | None:
            changed, ids = with_delete_pending(now or NodeList(node_id), self._before_ms())
            delete_pending[:] = ids.tolist()
            return changed

        key = self.catalog.parts.keys.node_list(node_id)
        seen = key.change(doom)
        self._delete(delete_pending)
        if delete_pending:
            key.change(lambda now: without_collected(now or NodeList(node_id), delete_pending), seen=seen)
            self.machine.count("collected")

    def _collect_bucket(self, number: int) -> None:
        delete_pending: list[int] = []

        def doom(now: StreamShard | None) -> StreamShard | None:
            changed, ids = with_delete_pending(now or StreamShard(number), self._before_ms())
            delete_pending[:] = ids.tolist()
            return changed

        def forget(now: StreamShard | None) -> StreamShard | None:
            return without_collected(now or StreamShard(number), delete_pending)

        key = self.catalog.parts.keys.shard(number)
        seen = key.change(doom)
        self._delete(delete_pending)
        if delete_pending:
            key.change(forget, seen=seen)
            self.machine.count("collected stream objects")

    def _delete(self, object_ids: Iterable[int]) -> None:
        failures = self.catalog.parts.store.delete_many([LAYOUT.object_key(each) for each in object_ids])
        for failure in failures[:1]:
            raise failure.error
