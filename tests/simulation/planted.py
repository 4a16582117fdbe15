"""Mistakes that are planted in the code under test, to show that a run would find them.

Each is one that somebody could make: a check that is left out, a value that is used although it is old. Each has the
seed of a run that finds it. `python -m tests.simulation --planted NAME` tells how many worlds it takes from seed 0 on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from unittest.mock import patch
from uuid import UUID

from accel.catalog import collect, compact, node_list, session, writer
from accel.catalog import refresh as catalog_refresh
from accel.catalog.node_list import with_compaction
from accel.catalog.records import NodeList, ObjectFacts
from accel.errors import TransactionDamaged
from accel.hint_building import building
from accel.history.rules import scaling
from accel.history.rules.epochs import EpochRecord, EpochStart, start_after
from accel.history.rules.states import StreamStatus, without_workflow
from accel.history.store import workflows
from accel.history.store.cut_reading import CutReading
from accel.streams.open_segments import OpenSegments
from accel.streams.rules.routing import OpenTransactions
from accel.streams.uploads import TransactionObjects
from accel.system import StoreClock
from bloom import StreamFilter
from loaders.hints import object_entries
from loaders.tables import conditional_write
from tests.simulation.collectors import DELETES_FIRST, IMPATIENT
from tests.simulation.runs import EVENT_ACTORS, MOVER, NONE, Faulty
from tests.simulation.world import CATALOG, EVENTS, HISTORY, Plan

T = TypeVar("T")

STEPS = 2000


def _nothing(*_: object, **__: object) -> None:
    """In the place of a check."""


def _none(*_: object) -> tuple[str, ...]:
    return ()


def _stale_ends(self: session.StreamEnds, *_: object) -> session.StreamEnds:
    return self


def _mine_whatever_it_says(self: Any) -> conditional_write.WriteResult | None:
    """What stands at a key after a reply was lost is taken for what was written, whoever wrote it."""
    stands = self._writer.read_surely(self._store_key)
    if self._is_unchanged(stands):
        return None
    return self._unknown(stands) if stands is None else self._written(stands.version.etag)  # type: ignore[no-any-return]


def _trusting(survey: object, batch: Iterable[Any]) -> dict[Any, None]:
    """What was to be deleted when it was planned is deleted."""
    del survey
    return dict.fromkeys(batch)


def _whoever_has_it(now: StreamStatus, workflow_id: UUID) -> StreamStatus | None:
    """A workflow gives the stream back, whichever has it now."""
    del workflow_id
    return None if now.workflow_id is None else without_workflow(now, now.workflow_id)


def _with_filter_of_a_source(
    now: NodeList, removed: Sequence[tuple[int, int]], added: ObjectFacts | None, *others: Any
) -> NodeList | None:
    """What was compacted keeps the filter of its first source."""
    changed = with_compaction(now, removed, added, *others)
    if changed is None or added is None:
        return changed
    before, sketches = now.sketches[now.sketches["object_id"] == removed[0][0]], changed.sketches.copy()
    if len(before):
        sketches[sketches["object_id"] == added.object_id] = before
        sketches["object_id"] = changed.sketches["object_id"]
    return replace(changed, sketches=sketches)


class _ForgetfulFilter:
    """In the place of `StreamFilter`: the last stream of an object is not in its filter."""

    @staticmethod
    def build(stream_ids: Any) -> StreamFilter:
        return StreamFilter.build(stream_ids[:-1] if len(stream_ids) > 1 else stream_ids)


def _forgetful_entries(*arguments: Any, **words: Any) -> Any:
    """Of an object with several blocks the last one is not in the snapshot."""
    entries = object_entries(*arguments, **words)
    return entries.take(slice(len(entries) - 1)) if len(entries) > 1 else entries


def _still_takes_events(self: OpenTransactions, transaction: UUID) -> bool:
    """A transaction whose end has begun takes events as before."""
    return transaction in self


_read_data = TransactionObjects.read


def _absent_is_empty(self: TransactionObjects, *arguments: Any) -> Any:
    """A transaction whose object is missing has no events."""
    try:
        return _read_data(self, *arguments)
    except TransactionDamaged as error:
        if error.size_bytes < 0:
            return None
        raise


def _start_without_events(before: EpochRecord, time_ms: int, _: object = None) -> EpochStart:
    """An epoch begins when it was asked for, whatever events came since."""
    return start_after(before, time_ms)


def _read_once(_: OpenSegments, read: Callable[[], T]) -> T:
    """Data is read in the image of the reader, and not again in the newest one."""
    return read()


def _catch_up_once(self: Any, before: Any, listed: Any) -> Any:
    """The state of another thread is taken for one's own, whatever it lacks."""
    return self._keep(self._read_joined(before, listed))


def _of_the_host(self: StoreClock) -> float:
    """Now is what the clock of the process says."""
    return self._host()


@dataclass(frozen=True, slots=True)
class Planted:
    """A mistake.

    Args:
        what: it is.
        seed: whose run finds it.
        plant: makes it, for so long.
        faulty: mistakes of the actors.
        steps: how many of a run.
        room: whose actors can show it.
        without: actors that are left out: they take steps from those who can show it.
    """

    what: str
    seed: int
    plant: Callable[[], AbstractContextManager[Any]] = nullcontext
    faulty: Faulty = NONE
    steps: int = STEPS
    room: str = CATALOG
    without: frozenset[str] = frozenset({MOVER})

    @property
    def plan(self) -> Plan:
        """Of worlds that can show it."""
        return Plan(rooms=frozenset({self.room}), without=self.without)


DEFECTS: dict[str, Planted] = {
    "collector-deletes-first": Planted(
        "the collector deletes what was prepared while it stands in the list", 2, faulty=Faulty(DELETES_FIRST, 0.1)
    ),
    "collector-is-impatient": Planted(
        "the collector deletes what readers may still have in their images", 0, faulty=Faulty(IMPATIENT, 0.1)
    ),
    "unprepared-ids": Planted(
        "a commit takes ids that are not prepared any more",
        16,
        lambda: patch.object(node_list, "_refuse_unprepared", _nothing),
    ),
    "fenced-sessions": Planted(
        "a commit of a session that is fenced is taken", 4, lambda: patch.object(node_list, "_refuse_fenced", _nothing)
    ),
    "nonce-unchecked": Planted(
        "a value that another process wrote is taken for what was written when a reply was lost",
        0,
        lambda: patch.object(conditional_write._Write, "_look", _mine_whatever_it_says),
    ),
    "collector-trusts-an-old-list": Planted(
        "the collector deletes what it planned to, without a look at the lists of today",
        5,
        lambda: patch.object(collect, "_still_collectable", _trusting),
    ),
    "merge-across-a-hole": Planted(
        "a compaction says of a stream that it holds all between two ranges",
        1,
        lambda: patch.object(compact, "_invented", _none),
        Faulty(merges=0.1, bridges=True),
    ),
    "filter-kept-after-removal": Planted(
        "the filter of an object that a compaction took out stands for what came of it",
        0,
        lambda: patch.object(compact, "with_compaction", _with_filter_of_a_source),
    ),
    "state-of-others": Planted(
        "a workflow that ends gives the stream back, although another one has it by now",
        34,
        lambda: patch.object(workflows, "without_workflow", _whoever_has_it),
        room=HISTORY,
    ),
    "clones-go-on": Planted(
        "a commit does not look whether another process goes on with its session",
        5,
        lambda: patch.object(writer, "refuse_clones", _nothing),
    ),
    "filter-without-a-stream": Planted(
        "the filter of an object that a job builds has one stream less than the object",
        4,
        lambda: patch.object(building, "StreamFilter", _ForgetfulFilter),
    ),
    "snapshot-without-a-block": Planted(
        "the snapshot that a job builds has one block of an object less than its index",
        0,
        lambda: patch.object(building, "object_entries", _forgetful_entries),
    ),
    "late-writes-to-a-transaction": Planted(
        "a transaction takes events while it is being committed",
        3,
        lambda: patch.object(OpenTransactions, "begin_end", _still_takes_events),
        steps=4000,
        room=EVENTS,
    ),
    "absent-is-empty": Planted(
        "a transaction whose object is missing is committed without events",
        8,
        lambda: patch.object(TransactionObjects, "read", _absent_is_empty),
        steps=4000,
        room=EVENTS,
    ),
    "epoch-before-its-events": Planted(
        "an epoch begins when its scale was asked for, before the last events of what it sealed",
        19,
        lambda: patch.object(scaling, "start_after", _start_without_events),
        steps=4000,
        room=EVENTS,
    ),
    "cut-beyond-the-end": Planted(
        "a cut beyond the end is not refused before the stream is taken",
        5,
        lambda: patch.object(CutReading, "refuse_beyond", _nothing),
        steps=3000,
        room=EVENTS,
    ),
    "clock-of-the-process": Planted(
        "retention goes by the clock of its process",
        2,
        lambda: patch.object(StoreClock, "__call__", _of_the_host),
        room=HISTORY,
    ),
    "opened-by-an-old-image": Planted(
        "a segment that is opened again is restored with the image that its reader happens to have",
        5,
        lambda: patch.object(OpenSegments, "_read_to_end", _read_once),
        steps=1000,
        room=EVENTS,
        without=frozenset(EVENT_ACTORS) - {MOVER},
    ),
    "refreshes-at-once": Planted(
        "of two refreshes at once one may lose what it has read",
        101,
        lambda: patch.object(catalog_refresh.CatalogFollower, "_catch_up", _catch_up_once),
        steps=3000,
        room=EVENTS,
        without=frozenset(EVENT_ACTORS) - {MOVER},
    ),
    "stale-ends": Planted(
        "an upload need not continue its streams",
        0,
        lambda: patch.object(session.StreamEnds, "with_higher_ends", _stale_ends),
    ),
}
