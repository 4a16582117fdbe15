"""What is mutated, and which tests are to find it: fast ones first; a mutant is done with at the first failure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Area:
    """A part of the core.

    Args:
        name: for reports and `--area`.
        modules: patterns below the root of the project.
        tests: files and folders, in the order in which they run.
    """

    name: str
    modules: Sequence[str]
    tests: Sequence[str]

    @property
    def paths(self) -> list[Path]:
        """The modules."""
        return sorted({path for pattern in self.modules for path in ROOT.glob(pattern) if path.name != "__init__.py"})


def _tests(folder: str, names: str) -> list[str]:
    return [f"tests/{folder}/test_{name}.py" for name in names.split()]


AREAS: Final = (
    Area(
        "search",
        (
            "accel/lookup/search.py",
            "accel/lookup/node_visit.py",
            "accel/lookup/known_ranges.py",
            "accel/lookup/steps.py",
            "range_index/s*.py",
        ),
        [
            *_tests("range_index", "runs stream_view range_chunk segment_times time_search stream_index"),
            *_tests("range_index", "stream_index_model use_order change_log object_ranges"),
            *_tests(
                "accel/lookup", "node_visit search seed_example object_lost search_property lookup_begins index_cache"
            ),
            *_tests("accel/lookup", "questions get_objects_many drivers_property unknown_streams hints_property"),
            *_tests("accel/lookup", "explain live_costs"),
            *_tests("accel/lookup", "reading reading_ahead accelerator partial_rounds hints cold_hints"),
            *_tests("accel/streams/times", "orderer segment_index moving clock"),
        ],
    ),
    Area(
        "node list",
        ("accel/catalog/node_list.py", "accel/catalog/stream_shards.py"),
        _tests(
            "accel/catalog",
            "list_collection list_undo stream_ranges stream_objects list_commits compaction_check stream_model "
            "list_model checks discarding undoable image_builder facts catalog verifying undoing take_over collecting "
            "node_writer uploading restoring edges crashes",
        ),
    ),
    Area(
        "history's rules",
        ("accel/history/rules/*.py", "range_index/epoch_times.py"),
        [
            "tests/accel/history/rules",
            "tests/accel/history/records",
            *_tests("range_index", "epoch_times"),
            *_tests(
                "accel/history/store", "scales writes hostless streams retention_runs retention calls stateful model"
            ),
            *_tests("accel/history/store", "ownership transactions pitfalls edges conformance"),
        ],
    ),
    Area(
        "workflows",
        ("accel/history/store/*.py", "accel/repair/*.py"),
        [
            "tests/accel/repair",
            *_tests(
                "accel/history/store",
                "scales advice writes hostless shape streams retention_runs retention calls stateful model ownership "
                "preemptions processor_notes transactions pitfalls records_kept orphaned_tables edges interleavings "
                "conformance faults cut_purging names crashes races",
            ),
        ],
    ),
)
