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
        but: patterns of modules that are another area's.
    """

    name: str
    modules: Sequence[str]
    tests: Sequence[str]
    but: Sequence[str] = ()

    @property
    def paths(self) -> list[Path]:
        """The modules."""
        others = {path for pattern in self.but for path in ROOT.glob(pattern)}
        found = {path for pattern in self.modules for path in ROOT.glob(pattern)} - others
        return sorted(path for path in found if not path.name.startswith("__"))

    def tests_of(self, path: str) -> tuple[list[str], list[str]]:
        """The tests that name a module, which find its mutants soonest, and the rest."""
        module = path.removesuffix(".py").replace("/", ".")
        near = [each for each in self.tests if each.endswith(".py") and f"{module} import" in (ROOT / each).read_text()]
        return near, [each for each in self.tests if each not in near]


def _tests(folder: str, names: str) -> list[str]:
    return [f"tests/{folder}/test_{name}.py" for name in names.split()]


_SEARCH: Final = tuple(f"accel/lookup/{name}.py" for name in ("search", "node_visit", "known_ranges", "steps"))
_NODE_LIST: Final = ("accel/catalog/node_list.py", "accel/catalog/stream_shards.py")


def _repair(names: str) -> list[str]:
    """Modules of the room of repairs, which belong to the area whose records they mend."""
    return [f"accel/repair/{name}.py" for name in names.split()]


AREAS: Final = (
    Area(
        "search",
        (*_SEARCH, "range_index/*.py"),
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
        but=["range_index/epoch_times.py"],
    ),
    Area(
        "node list",
        _NODE_LIST,
        _tests(
            "accel/catalog",
            "list_undo stream_ranges stream_objects list_commits compaction_check stream_model list_model checks "
            "discarding undoable image_builder sketches_and_ends catalog verifying undoing take_over collecting "
            "node_writer uploading restoring argument_checks crashes",
        ),
    ),
    Area(
        "history's rules",
        ("accel/history/rules/*.py", "accel/history/*.py", "range_index/epoch_times.py"),
        [
            "tests/accel/history/rules",
            "tests/accel/history/records",
            *_tests("range_index", "epoch_times"),
            *_tests("accel/history/store", "scales writes hostless streams retention_runs retention calls stateful"),
            *_tests("accel/history/store", "ownership transactions pitfalls edges conformance"),
        ],
    ),
    Area(
        "workflows",
        ("accel/history/store/*.py", *_repair("streams epochs findings")),
        [
            "tests/accel/repair",
            *_tests(
                "accel/history/store",
                "scales advice writes hostless shape streams retention_runs retention calls stateful ownership "
                "transactions pitfalls records_kept orphaned_tables edges interleavings "
                "conformance cut_purging names crashes races",
            ),
        ],
    ),
    Area(
        "lookups",
        ("accel/lookup/*.py", "loaders/plan.py"),
        [
            *_tests("loaders/plan", "policies expected_place"),
            *_tests("accel/lookup", "accelerator hints questions following async_accelerator async_images wrap"),
            *_tests("accel/lookup", "reading reading_ahead small_reads slow_lookups explain get_objects_many"),
            *_tests("accel/lookup", "beyond_the_end index_cache partial_rounds slow_nodes object_lost unknown_streams"),
            *_tests("accel/lookup", "live_costs filters_that_pay lookup_begins"),
        ],
        but=_SEARCH,
    ),
    Area(
        "catalog",
        ("accel/catalog/*.py", *_repair("catalog objects sketches lost_objects")),
        _tests(
            "accel/catalog",
            "forms checks sketches_and_ends node_writer uploading argument_checks catalog proof collecting verifying "
            "take_over undoing restoring following places columns clones looking_back lost_objects lost_keys "
            "unfinished doubts damage end_to_end existing",
        ),
        but=_NODE_LIST,
    ),
    Area("adoption", ("accel/adoption/*.py",), _tests("accel/adoption", "automq controller import_plan importing")),
    Area(
        "compaction",
        ("accel/compaction/*.py",),
        _tests(
            "accel/compaction",
            "settings facts slices grouping planning stream_slots holes_inside running bad_objects "
            "dead_data interruptions",
        ),
    ),
    Area(
        "streams",
        ("accel/streams/**/*.py",),
        [
            *_tests("accel/streams/groups", "group_state group_form shares later resets reader_group sharing lags"),
            *_tests("accel/streams/times", "orderer clock segment_index moving damage wrong_clocks"),
            *_tests("accel/streams/writer", "routing transaction_data owners reopened writer_numbers resuming"),
            *_tests("accel/streams/scaling", "scaling_rates"),
            *_tests("accel/streams/connection", "names_at_the_door full_stores looking connecting"),
            *_tests("accel/streams/reader", "reader_core event_columns"),
            *_tests(
                "accel/streams/groups", "commits leases group_reader_ends group_reader_failures async_group_reader"
            ),
            *_tests("accel/streams/writer", "group_commit writing leftovers leases restart transactions forwarding"),
            *_tests("accel/streams/reader", "streams beyond slow_segments"),
            *_tests("accel/streams/groups", "async_group_reader group_reader replacements"),
            *_tests("accel/streams/scaling", "auto_scale"),
        ],
    ),
    Area(
        "commands",
        ("accel/cli/*.py", "accel/cli/*/*.py"),
        _tests(
            "accel/cli",
            "groups bad_numbers config lookups inspect reads images_named controller table_commands hints_commands "
            "verify folding run_all catalog_commands catalog_jobs repair_command retention_commands group_commands "
            "history_commands history_hostless history_advice stream_write hostile_text progress logs doctor beyond",
        ),
    ),
    Area(
        "loaders",
        ("loaders/*.py",),
        [
            *_tests("loaders", "settings lifetime threads few_threads host_limits tracing shared_chunks"),
            *_tests("loaders/store", "memory"),
            *_tests("loaders/tables", "settling typed_key"),
            *_tests("accel", "errors"),
        ],
        but=["loaders/object_*.py", "loaders/layout.py", "loaders/plan.py"],
    ),
    Area(
        "tables",
        ("loaders/tables/*.py",),
        _tests(
            "loaders/tables",
            "names records envelope forms settling contract typed_key tables format_record unreadable places counters "
            "probe model",
        ),
    ),
    Area(
        "stores",
        ("loaders/store/*.py",),
        _tests(
            "loaders/store",
            "names memory error_table hedged counting secrets configuration file open contract clouds faults",
        ),
    ),
    Area(
        "format",
        ("loaders/format/*.py", "loaders/object_*.py", "loaders/layout.py"),
        [
            *_tests(
                "loaders/format", "records find footer tail spans block_index composite layout object_encoder damage"
            ),
            *_tests("loaders/format", "production_objects"),
            *_tests("loaders", "object_index object_writer object_creation shared_chunks"),
        ],
    ),
    Area(
        "hints",
        ("loaders/hints/*.py", "accel/hint_building/*.py"),
        [
            *_tests("loaders/hints", "golden sorted_entries snapshots snapshot_files packs roots generations requests"),
            *_tests("loaders/hints", "damage filter_quality"),
            *_tests("accel/hint_building", "building from_image"),
        ],
    ),
    Area(
        "merge", ("loaders/merge/*.py",), _tests("loaders/merge", "merging merging_blocks object_merger merge_buffers")
    ),
    Area(
        "filters",
        ("bloom/*.py",),
        _tests("bloom", "geometry hashing stream_filter filter_matrix filter_store stream_sketch"),
    ),
)
