"""Which tests `make test` leaves to `make soak-tests`, since they take more than two seconds by themselves.

A test that is named here gets the marker `soak`, but for the cases that stay: the cheapest ones that show each kind of
thing that the test is about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

LONG: Final[Mapping[str, Sequence[str]]] = {
    "tests/accel/catalog/test_two_systems.py::test_of_two_systems_in_one_namespace_neither_loses_anything_by_ours": [
        "made beside them"
    ],
    "tests/accel/cli/test_shared_folders.py::test_a_folder_of_ours_that_may_not_be_read_stops_what_must_list_it": [
        "accel/hints"
    ],
    "tests/accel/cli/test_shared_folders.py::test_lost_and_found_of_a_volume_is_named_and_stops_no_command": [],
    "tests/accel/cli/test_stream_reads.py::test_who_interrupts_a_read_that_follows_learns_where_to_go_on": ["15"],
    "tests/accel/cli/test_stream_write.py::test_an_interrupted_write_says_how_many_events_are_durable": ["15"],
    "tests/accel/compaction/test_crashes.py::"
    "test_a_compaction_that_died_before_any_of_its_writes_is_finished_by_the_next_one": ["another plan"],
    "tests/accel/compaction/test_dead_data.py::test_a_deleted_stream_among_live_ones_goes_within_the_promised_days": [
        "objects above half a group"
    ],
    "tests/accel/compaction/test_facts.py::test_a_run_may_be_merged_if_it_has_no_hole_and_keeps_to_the_limits": [],
    "tests/accel/compaction/test_interleaved.py::test_what_happens_between_two_writes_does_no_harm": [
        "an_upload",
        "a_late_collection",
        "a_trim_and_a_move",
    ],
    "tests/accel/compaction/test_thirty_days.py::"
    "test_space_requests_and_lists_stay_within_their_bounds_for_thirty_days": [],
    "tests/accel/history/store/test_conformance.py::test_cases_pass_on_s3": [],
    "tests/accel/history/store/test_crashes.py::test_recovery_finishes_what_a_crash_left_behind": [
        "scale",
        "create",
        "delete",
        "configure",
        "truncate",
        "commit",
        "create again",
        "seal",
        "retention",
    ],
    "tests/accel/history/store/test_crashes.py::"
    "test_work_that_is_repeated_after_a_crash_ends_as_if_nothing_had_happened": [
        "scale",
        "create again",
        "delete",
        "truncate",
        "commit",
        "seal with transactions",
        "truncate again",
    ],
    "tests/accel/history/store/test_cut_purging.py::"
    "test_a_purge_between_any_two_calls_of_a_run_does_not_disturb_it": [],
    "tests/accel/history/store/test_cut_purging.py::"
    "test_a_run_between_any_two_calls_of_a_purge_does_not_disturb_it": [],
    "tests/accel/history/store/test_cut_purging.py::"
    "test_a_stale_cut_changes_no_answer_whether_its_record_is_there_or_not": ["gone1-False", "gone3-False"],
    "tests/accel/history/store/test_pitfalls.py::test_a_scale_costs_the_same_however_many_epochs_there_were": [],
    "tests/accel/history/store/test_races.py::test_two_who_do_the_same_at_once_end_as_one": [
        "scale",
        "create again",
        "create",
        "seal",
        "delete",
        "configure",
        "truncate",
        "commit",
    ],
    "tests/accel/history/store/test_records_kept.py::test_the_size_of_a_record_is_what_it_takes": ["chunk"],
    "tests/accel/history/store/test_transactions.py::"
    "test_where_a_transaction_was_merged_is_noted_once_whoever_goes_on_after_a_crash": ["False"],
    "tests/accel/streams/reader/test_streams.py::test_a_stream_end_to_end_on_s3": [],
    "tests/accel/streams/writer/test_crashes.py::"
    "test_nothing_is_lost_and_nothing_comes_twice_wherever_a_process_dies": [],
    "tests/accel/streams/writer/test_numbers_outlive.py::"
    "test_numbers_outlive_a_deletion_that_is_cut_off_before_any_write": ["another node"],
    "tests/benchmarks/test_time_order.py::test_no_record_comes_before_it_arrived": [],
    "tests/docs/test_tables.py::test_the_table_says_what_spread_costs_on_20000_objects": ["tail"],
    "tests/docs/test_tables.py::test_the_tables_say_what_spread_costs_on_5000_objects": ["10 %"],
    "tests/loaders/merge/test_object_merger_memory.py::"
    "test_merging_ten_objects_of_any_size_stays_below_256_mebibytes": ["11"],
    "tests/loaders/store/test_contract.py::TestEveryStore::test_a_listing_of_more_than_a_thousand_keys_is_complete": [
        "file",
        "crashing",
        "prefixed",
        "faults",
        "latency",
    ],
    "tests/loaders/store/test_lying_server.py::TestEveryClientOnALyingServer::"
    "test_a_listing_of_more_than_a_thousand_keys_is_complete": [],
    "tests/loaders/tables/test_contract.py::TestTables::test_any_fault_of_any_write_ends_as_if_it_had_not_been": [
        "prefixed"
    ],
    "tests/mutants/test_mutants.py::test_a_child_runs_the_tests_with_the_mutant_and_no_other_process_does": [],
    "tests/mutants/test_mutants.py::test_equivalent_mutants_exist_and_have_a_reason": [],
    "tests/processes/test_exits.py::test_events_that_were_not_flushed_become_what_the_page_says": [
        "the last line, `sys.exit()`, an exception",
        "a writer and its connection that are dropped without `close`",
        "a forked child of a process that writes; only the parent stores its own events",
    ],
    "tests/processes/test_owners.py::test_two_processes_share_a_stream_and_one_is_killed": [],
    "tests/processes/test_sidecar.py::test_what_writers_of_other_processes_commit_is_found_over_http": [],
    "tests/servers/test_named_server.py::test_a_run_that_selects_nothing_fails": [],
    "tests/servers/test_named_server.py::test_the_marker_finds_the_cases_on_the_named_server_and_no_others": [],
    "tests/simulation/test_simulation.py::"
    "test_a_failure_prints_the_command_that_repeats_it_without_what_it_does_not_need": [],
    "tests/simulation/test_simulation.py::test_a_mistake_that_is_planted_is_found": [
        "merge-across-a-hole",
        "collector-is-impatient",
        "filter-kept-after-removal",
        "snapshot-without-a-block",
        "nonce-unchecked",
        "clock-of-the-process",
        "empty-page-is-the-end",
        "stale-ends",
    ],
    "tests/simulation/test_simulation.py::test_a_run_leaves_no_thread_and_no_open_file": [],
    "tests/simulation/test_simulation.py::test_whatever_happens_nothing_that_was_promised_is_broken": ["0", "1", "7"],
}
"""Node id of a test, without its parameters -> the ids of the cases that stay in `make test`."""


def is_long(node_id: str) -> bool:
    """Whether a test belongs to `make soak-tests` alone.

    >>> is_long("tests/simulation/test_simulation.py::test_a_mistake_that_is_planted_is_found[unprepared-ids]")
    True
    >>> is_long("tests/simulation/test_simulation.py::test_a_mistake_that_is_planted_is_found[stale-ends]")
    False
    """
    name, _, case = node_id.partition("[")
    return name in LONG and case.removesuffix("]") not in LONG[name]


def unknown_of(node_ids: Sequence[str]) -> list[str]:
    """What is named here and is none of these tests, which are all that there are."""
    cases = {f"{name}[{case}]" for name, stay in LONG.items() for case in stay}
    names = {node_id.partition("[")[0] for node_id in node_ids}
    return sorted([*(LONG.keys() - names), *(cases - set(node_ids))])
