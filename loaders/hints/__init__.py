"""Hints in the bucket: filter packs and index snapshots, as formats with writers and readers.

A *pack* holds the filters of all objects of a node: after a few requests a reader that has just started can exclude the
objects without a stream. A *snapshot* holds the index of all objects of a node sorted by stream: one request finds the
object that holds an offset, and the bytes in it. No answer needs hints, and no answer changes with them: a hint that is
missing, old, foreign or damaged raises `HintProblem`, and the caller continues without it. The bytes are described in
docs/reference/hints.md.
"""

from __future__ import annotations

from loaders.hints.entry_columns import COLUMN_NAMES, EntryColumns, object_entries
from loaders.hints.generations import DeletedGenerations, delete_old_generations, next_generation
from loaders.hints.packs import (
    DecodedFilters,
    PackLoad,
    PackRoot,
    decode_pack_root,
    decode_pack_span,
    expected_false_positives,
    is_bad,
    is_worn,
    load_pack,
    plan_pack_reads,
    read_pack_root,
    write_pack,
)
from loaders.hints.roots import (
    ByteSpan,
    CoveredObjects,
    HintProblem,
    HintTrouble,
    KnownRoot,
    RootCache,
    checked_body,
    read_span,
    span_problem,
)
from loaders.hints.snapshot_writer import SnapshotFile, SnapshotFileWriter, finish_snapshot
from loaders.hints.snapshots import (
    SnapshotReader,
    SnapshotRoot,
    StreamEntries,
    decode_entries,
    decode_snapshot_root,
    no_entries,
    plan_entries,
    read_snapshot,
)
from loaders.hints.sorted_entries import EntrySorter, merge_sorted

__all__ = [
    "COLUMN_NAMES",
    "ByteSpan",
    "CoveredObjects",
    "DecodedFilters",
    "DeletedGenerations",
    "EntryColumns",
    "EntrySorter",
    "HintProblem",
    "HintTrouble",
    "KnownRoot",
    "PackLoad",
    "PackRoot",
    "RootCache",
    "SnapshotFile",
    "SnapshotFileWriter",
    "SnapshotReader",
    "SnapshotRoot",
    "StreamEntries",
    "checked_body",
    "decode_entries",
    "decode_pack_root",
    "decode_pack_span",
    "decode_snapshot_root",
    "delete_old_generations",
    "expected_false_positives",
    "finish_snapshot",
    "is_bad",
    "is_worn",
    "load_pack",
    "merge_sorted",
    "next_generation",
    "no_entries",
    "object_entries",
    "plan_entries",
    "plan_pack_reads",
    "read_pack_root",
    "read_snapshot",
    "read_span",
    "span_problem",
    "write_pack",
]
