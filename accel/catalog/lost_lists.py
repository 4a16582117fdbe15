"""Was a node's list deleted and made anew? Its checkpoint remembers more commits than it then.

Whoever opens a session of a node without a list makes one. If foreign hands had deleted the list before, all objects of
the node look like orphans from then on; the collector must not take them for that.
"""

from __future__ import annotations

from collections.abc import Iterator

from accel.catalog.parts import CatalogParts
from accel.catalog.survey import Survey


def lost_lists(parts: CatalogParts, survey: Survey) -> Iterator[tuple[int, int, int]]:
    """Lists that have seen fewer commits than their checkpoints know: (node id, commits known, commits seen).

    Checkpoints follow lists, so a list is read again before it is named. One request a node.

    Raises:
        StoreError, TableError, CorruptObject, FormatTooNew: a checkpoint or list could not be read.
    """
    checkpoints = parts.executor.map(lambda node_id: parts.cells.checkpoint(node_id).read(), survey.lists)
    for (node_id, seen), checkpoint in zip(survey.lists.items(), checkpoints, strict=True):
        known = 0 if checkpoint is None else checkpoint.value.order_id + 1
        if known > seen.value.next_order_id:
            now = parts.cells.node_list(node_id).read()
            commits = 0 if now is None else now.value.next_order_id
            if known > commits:
                yield node_id, known, commits
