"""Mistakes that are planted in the code under test, to show that a run would find them.

Each is one that somebody could make: a check that is left out, a value that is used although it is old. Each has the
seed of a run that finds it. `python -m tests.simulation --planted NAME` tells how many worlds it takes from seed 0 on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from accel.catalog import collect, node_list, session
from loaders.tables import settle
from tests.simulation.collectors import DELETES_FIRST, IMPATIENT
from tests.simulation.runs import NONE, Faulty

STEPS = 2000


def _nothing(*_: object, **__: object) -> None:
    """In the place of a check."""


def _stale_ends(self: session.StreamEnds, *_: object) -> session.StreamEnds:
    return self


def _mine_whatever_it_says(self: Any) -> settle.Settled | None:
    """What stands at a key after a reply was lost is taken for what was written, whoever wrote it."""
    stands = self._writer.read_surely(self._store_key)
    if self._is_unchanged(stands):
        return None
    return self._unknown(stands) if stands is None else self._written(stands.version.etag)  # type: ignore[no-any-return]


def _trusting(survey: object, batch: Iterable[Any]) -> dict[Any, None]:
    """What was to be deleted when it was planned is deleted."""
    del survey
    return dict.fromkeys(batch)


@dataclass(frozen=True, slots=True)
class Planted:
    """A mistake.

    Args:
        what: it is.
        seed: whose run finds it.
        plant: makes it, for so long.
        faulty: mistakes of the actors.
        steps: how many of a run.
    """

    what: str
    seed: int
    plant: Callable[[], AbstractContextManager[Any]] = nullcontext
    faulty: Faulty = NONE
    steps: int = STEPS


DEFECTS: dict[str, Planted] = {
    "collector-deletes-first": Planted(
        "the collector deletes what was prepared while it stands in the list", 1, faulty=Faulty(DELETES_FIRST, 0.1)
    ),
    "collector-is-impatient": Planted(
        "the collector deletes what readers may still have in their images", 0, faulty=Faulty(IMPATIENT, 0.1)
    ),
    "unprepared-ids": Planted(
        "a commit takes ids that are not prepared any more",
        12,
        lambda: patch.object(node_list, "_refuse_unprepared", _nothing),
    ),
    "fenced-sessions": Planted(
        "a commit of a session that is fenced is taken", 1, lambda: patch.object(node_list, "_refuse_fenced", _nothing)
    ),
    "nonce-unchecked": Planted(
        "a value that another process wrote is taken for what was written when a reply was lost",
        0,
        lambda: patch.object(settle._Write, "_look", _mine_whatever_it_says),
    ),
    "collector-trusts-an-old-list": Planted(
        "the collector deletes what it planned to, without a look at the lists of today",
        19,
        lambda: patch.object(collect, "_still_collectable", _trusting),
    ),
    "stale-ends": Planted(
        "an upload need not continue its streams",
        0,
        lambda: patch.object(session.StreamEnds, "with_higher_ends", _stale_ends),
    ),
}
