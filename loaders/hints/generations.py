"""Generations of a node's hints: their numbers, and the deletion of old ones.

A generation's objects are written once and never changed, then the root is swapped. A pack's root may name objects of
earlier generations too. A reader may use the root before the newest for a while, so objects that the newest few roots
name are kept. No reader can need the other objects of generations up to the newest one: they were replaced, or a task
that failed or ran twice left them. Objects younger than the newest root may belong to an unfinished generation, and are
kept.

An early deletion costs a reader one useless request (its root is then stale), but no answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from loaders.hints.packs import decode_pack_root
from loaders.hints.roots import HintProblem, fetch_root
from loaders.hints.snapshots import decode_snapshot_root
from loaders.layout import (
    HINT_ROOT_NAME,
    HintFile,
    HintKind,
    hint_file_key,
    hint_node_prefix,
    hint_root_key,
    parse_hint_file_key,
)
from loaders.store.base import ObjectStore

KEPT_GENERATIONS = 2


@dataclass(frozen=True, slots=True)
class DeletedGenerations:
    """The result of a deletion.

    Args:
        deleted: the number of deleted objects.
        failed: the number of objects that could not be deleted; the next run tries again.
        kept: the generations whose objects were kept.
    """

    deleted: int
    failed: int
    kept: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _NamedObjects:
    generation: int
    keys: frozenset[str]


def next_generation(previous: int | None, clock_ms: int) -> int:
    """The number of a new generation: the time, or the previous number plus 1 if that is higher."""
    return max(clock_ms, 0 if previous is None else previous + 1)


def delete_old_generations(
    store: ObjectStore, kind: HintKind, node_id: int, *, namespace: str, keep: int = KEPT_GENERATIONS
) -> DeletedGenerations:
    """Delete the objects that neither the node's root nor the roots of the kept earlier generations name.

    Without a readable root nothing is deleted. ``keep + 2`` requests, and one for every 1,000 deleted objects.

    Args:
        store: the store of the hints.
        kind: packs or snapshots.
        node_id: the node of the hints.
        namespace: of the cluster; if the root belongs to another namespace, nothing of the node is deleted.
        keep: the number of generations whose objects are kept, at least 1.

    Raises:
        ValueError: `keep` is below 1.
        StoreError: a request failed.
    """
    if keep < 1:
        raise ValueError(f"expected to keep at least 1 generation, found {keep}")
    current = _named(store, kind, node_id, namespace, hint_root_key(kind, node_id))
    if current is None:
        return DeletedGenerations(0, 0, ())
    files = _files(store, kind, node_id, current.generation)
    rooted = sorted({file.generation for file in files.values() if file.name == HINT_ROOT_NAME}, reverse=True)
    kept, named = [current.generation], set(current.keys)
    for generation in [generation for generation in rooted if generation != current.generation][: keep - 1]:
        older = _named(store, kind, node_id, namespace, hint_file_key(kind, node_id, generation, HINT_ROOT_NAME))
        if older is not None:
            kept.append(generation)
            named |= older.keys
    named |= {hint_file_key(kind, node_id, generation, HINT_ROOT_NAME) for generation in kept}
    old = [key for key in files if key not in named]
    failures = store.delete_many(old)
    return DeletedGenerations(len(old) - len(failures), len(failures), tuple(kept))


def _files(store: ObjectStore, kind: HintKind, node_id: int, newest: int) -> dict[str, HintFile]:
    files = {}
    for info in store.list(hint_node_prefix(kind, node_id)):
        file = parse_hint_file_key(kind, node_id, info.key)
        if file is not None and file.generation <= newest:
            files[info.key] = file
    return files


def _named(store: ObjectStore, kind: HintKind, node_id: int, namespace: str, key: str) -> _NamedObjects | None:
    try:
        fetched = fetch_root(store, key)
        return None if fetched is None else _NAMED_BY[kind](fetched.body, namespace, node_id)
    except HintProblem:
        return None


def _named_by_pack(data: bytes, namespace: str, node_id: int) -> _NamedObjects:
    root = decode_pack_root(data, namespace=namespace, node_id=node_id)
    return _NamedObjects(root.generation, frozenset(map(root.part_key, range(len(root.parts)))))


def _named_by_snapshot(data: bytes, namespace: str, node_id: int) -> _NamedObjects:
    root = decode_snapshot_root(data, namespace=namespace, node_id=node_id)
    names = (hint_file_key(HintKind.SNAPSHOTS, node_id, root.generation, file.name) for file in root.files)
    return _NamedObjects(root.generation, frozenset(names))


_NAMED_BY: dict[HintKind, Callable[[bytes, str, int], _NamedObjects]] = {
    HintKind.PACKS: _named_by_pack,
    HintKind.SNAPSHOTS: _named_by_snapshot,
}
