"""Golden files of hints: bytes of each version, which every release reads.

``python -m tests.loaders.hints.golden`` writes those that are missing; what is there is never written again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bloom import StreamFilter
from loaders.hints import write_pack
from loaders.layout import HintKind, hint_file_key, hint_root_key
from loaders.object_ref import ObjectRef
from loaders.store import MemoryStore
from tests.loaders.hints.builders import GENERATION, NAMESPACE, NODE, Node, filter_of, write_snapshot

FOLDER = Path(__file__).parents[2] / "data" / "hints"


FILES = {
    "snapshot-root-1.bin": hint_root_key(HintKind.SNAPSHOTS, NODE),
    "snapshot-entries-1.bin": hint_file_key(HintKind.SNAPSHOTS, NODE, GENERATION, "00000-a"),
    "pack-root-1.bin": hint_root_key(HintKind.PACKS, NODE),
    "pack-filters-1.bin": hint_file_key(HintKind.PACKS, NODE, GENERATION, "filters-0-00000"),
}
"""Which key each file stands for."""


def golden_store(files: Mapping[str, str] = FILES) -> MemoryStore:
    """A store that holds the golden files at their keys."""
    store = MemoryStore()
    for name, key in files.items():
        store.put(key, (FOLDER / name).read_bytes())
    return store


def golden_node() -> Node:
    """What the golden snapshot says: two streams in three objects, one of them scattered and holed."""
    node = Node()
    for number, object_id in enumerate((40, 43, 71)):
        node.refs.append(ObjectRef(object_id, 10_000 + number))
        start, end = number * 100, number * 100 + 100
        node.rows.append((233, start, end, object_id, number + 5, 0, 4_000, 9, False))
        scattered = number == 1
        span = (-1, 0) if scattered else (4_000, 2_500)
        node.rows.append((420_000, start + 7, end, object_id, number + 5, *span, 3, scattered))
    return node


def golden_filters() -> list[tuple[ObjectRef, StreamFilter]]:
    """What the golden pack says."""
    return [(ref, filter_of(233, 420_000, ref.object_id)) for ref in golden_node().refs]


def write_missing() -> None:
    """Write the golden files that are not there."""
    store = MemoryStore()
    write_snapshot(store, golden_node(), group_rows_max=4)
    write_pack(store, namespace=NAMESPACE, node_id=NODE, generation=GENERATION, added=golden_filters())
    for name, key in FILES.items():
        path = FOLDER / name
        if not path.exists():
            path.write_bytes(store.get(key).body)


if __name__ == "__main__":
    write_missing()
