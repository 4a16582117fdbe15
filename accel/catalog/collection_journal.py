"""The journal of a collection: one object in the bucket a batch, written before anything of the batch is deleted.

    accel/journal/<time of the plan>-<batch>-<nonce>.jsonl      15 and 6 digits, 16 hexadecimal ones

Each line is a JSON object:

    object_id, key, size_bytes      what was to be deleted
    reason, since_ms                why, and since when it held
    time_ms                         when this line was written
    table, number, sequence         where the catalog named it, and in which version of that key; -1 for orphans

A line says that an object was about to be deleted, not that the store did it: what failed is tried again later, and
then stands in a later journal, too. Nothing reads journals but people, and nothing deletes them but the bucket's own
lifecycle rules.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from accel.catalog.collection_plan import Collectable, CollectionPlan
from accel.catalog.parts import CatalogParts
from loaders.layout import JOURNAL_PREFIX


def write_journal(parts: CatalogParts, plan: CollectionPlan, number: int, going: Iterable[Collectable]) -> str:
    """Write down what is about to be deleted; gives the key. One request.

    Args:
        parts: of the catalog.
        plan: whose batch it is.
        number: of the batch.
        going: the objects.

    Raises:
        StoreError: it could not be written.
    """
    nonce = parts.system.nonce().hex()[-16:]
    key = f"{JOURNAL_PREFIX}{plan.planned_at_ms:015d}-{number:06d}-{nonce}.jsonl"
    now_ms = parts.now_ms()
    parts.store.put(key, "".join(_journal_line(each, now_ms) for each in going).encode())
    return key


def _journal_line(each: Collectable, now_ms: int) -> str:
    facts = {
        "object_id": each.object_id,
        "key": each.key,
        "size_bytes": each.size_bytes,
        "reason": each.reason.value,
        "time_ms": now_ms,
        "since_ms": each.since_ms,
        "table": each.table,
        "number": each.number,
        "sequence": each.sequence,
    }
    return json.dumps(facts, separators=(",", ":")) + "\n"
