"""Is each counter there, and above all ids in use; and does no id stand in the lists of two nodes?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from accel.catalog.object_ids import ids_of
from accel.catalog.parts import CatalogParts
from accel.catalog.rows import some
from accel.catalog.survey import Survey
from accel.catalog.verification import Kind, Problem
from accel.history.store.cells import SystemCells
from accel.history.store.id_blocks import COUNTERS
from loaders.errors import FormatError, TableMissing
from loaders.tables import RetrySettings
from loaders.tables.retry import Patience

_NONE = np.empty(0, dtype=np.int64)


def counter_problems(parts: CatalogParts, survey: Survey) -> Iterator[Problem]:
    """Ids that were given out twice, and what is wrong with the counters that give them. One request a counter.

    The counter of object ids is read after the ids with which it is compared. Those of transactions and of streams of
    segments are only looked for: what they gave out stands in the keys of each stream.

    Raises:
        StoreError: a counter could not be read.
    """
    system = parts.system
    shared = SystemCells(parts.cells.tables, Patience(RetrySettings(), system.sleep, system.jitter))
    cell = parts.cells.object_ids()
    try:
        seen = cell.read()
        highest = int(survey.known_ids().max(initial=-1))
        if seen is None:
            yield Problem(Kind.COUNTER, cell.where, "a counter", "none")
        elif seen.value.next_object_id <= highest:
            expected = f"a number above {highest}, the highest id in use"
            yield Problem(Kind.COUNTER, cell.where, expected, str(seen.value.next_object_id))
    except (FormatError, TableMissing) as error:
        yield Problem(Kind.COUNTER, cell.where, "a counter that can be read", str(error))
    ids, counts = np.unique(
        np.concatenate([_NONE, *(np.unique(ids_of(each.value)) for each in survey.lists.values())]), return_counts=True
    )
    if (counts > 1).any():
        found = f"{some(ids[counts > 1])} in the lists of more"
        yield Problem(Kind.COUNTER, "catalog", "each object id given to one node", found)
    for what in COUNTERS:
        counter = shared.counter(what)
        try:
            if counter.read() is None:
                yield Problem(Kind.COUNTER, counter.where, "a counter", "none")
        except (FormatError, TableMissing) as error:
            yield Problem(Kind.COUNTER, counter.where, "a counter that can be read", str(error))
