"""Is each counter there, is that of object ids above all ids in use, and does no id stand in the lists of two nodes?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from accel.catalog.parts import CatalogParts
from accel.catalog.problems import Kind, Problem
from accel.catalog.records import ids_of
from accel.catalog.rows import some
from accel.catalog.survey import Survey
from loaders.backoff import Backoff
from loaders.errors import FormatError, TableMissing
from loaders.tables import RetrySettings

_NONE = np.empty(0, dtype=np.int64)


def object_id_problems(parts: CatalogParts, survey: Survey) -> Iterator[Problem]:
    """Object ids that were given out twice, or would be: what is wrong with their counter. One request.

    The counter is read after the ids with which it is compared; it only grows.

    Raises:
        StoreError: the counter could not be read.
    """
    cell = parts.cells.object_ids()
    try:
        seen = cell.read()
        highest = int(survey.known_ids().max(initial=-1))
        if seen is None:
            yield Problem(Kind.COUNTER, cell.where, "a counter", "none: deleted?")
        elif seen.value.next_object_id <= highest:
            expected = f"a number above {highest}, the highest id in use"
            yield Problem(Kind.COUNTER, cell.where, expected, f"{seen.value.next_object_id}: deleted, or put back?")
    except (FormatError, TableMissing) as error:
        yield Problem(Kind.COUNTER, cell.where, "a counter that can be read", str(error))
    ids, counts = np.unique(
        np.concatenate([_NONE, *(np.unique(ids_of(each.value)) for each in survey.lists.values())]), return_counts=True
    )
    if (counts > 1).any():
        found = f"{some(ids[counts > 1])} in the lists of more"
        yield Problem(Kind.COUNTER, "catalog", "each object id given to one node", found)


def history_counter_problems(parts: CatalogParts) -> Iterator[Problem]:
    """Counters of transactions and of streams of segments that are not there. One request a counter.

    They are not compared: what they gave out stands in the keys of each stream.

    Raises:
        StoreError: a counter could not be read.
    """
    from accel.history.store.id_blocks import COUNTERS  # noqa: PLC0415 - a lookup needs no history
    from accel.history.store.keys import SystemCells  # noqa: PLC0415 - a lookup needs no history

    system = parts.system
    shared = SystemCells(parts.cells.tables, Backoff(RetrySettings(), system.sleep, system.jitter))
    for what in COUNTERS:
        counter = shared.counter(what)
        try:
            if counter.read() is None:
                yield Problem(Kind.COUNTER, counter.where, "a counter", "none: deleted?")
        except (FormatError, TableMissing) as error:
            yield Problem(Kind.COUNTER, counter.where, "a counter that can be read", str(error))
