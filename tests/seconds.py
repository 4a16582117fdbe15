"""How long tests may take: those that `make test` leaves to `make soak-tests`, and what each folder has for the others.

A test that is named in `LONG` takes more than two seconds by itself and gets the marker `soak`, but for the cases that
stay: the cheapest ones that show each kind of thing that the test is about.
"""

from __future__ import annotations

import resource
from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from typing import Final

import pytest

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
    "tests/docs/test_newcomer.py::test_the_path_of_a_newcomer_takes_its_steps": [],
    "tests/accel/compaction/test_attempts.py::"
    "test_whatever_comes_between_two_requests_of_an_attempt_the_group_is_done_once": [
        "other_attempt",
        "late_collection",
    ],
    "tests/accel/compaction/test_interruptions.py::"
    "test_a_compaction_that_died_before_any_of_its_writes_is_finished_by_the_next_one": ["another plan"],
    "tests/accel/compaction/test_dead_data.py::test_a_deleted_stream_among_live_ones_goes_within_the_promised_days": [
        "objects above half a group"
    ],
    "tests/accel/compaction/test_facts.py::test_a_run_may_be_merged_if_it_has_no_hole_and_keeps_to_the_limits": [],
    "tests/accel/compaction/test_interruptions.py::test_what_happens_between_two_writes_does_no_harm": [
        "an_upload",
        "a_late_collection",
        "a_trim_and_a_move",
    ],
    "tests/accel/maintenance/test_thirty_days.py::test_lists_hints_and_garbage_stay_within_their_bounds": ["3 days"],
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
    "tests/accel/history/store/test_records_kept.py::test_the_size_of_a_record_is_what_it_takes": ["chunk"],
    "tests/accel/history/store/test_transactions.py::"
    "test_where_a_transaction_was_merged_is_noted_once_whoever_goes_on_after_a_crash": ["False"],
    "tests/accel/streams/reader/test_streams.py::test_a_stream_end_to_end_on_s3": [],
    "tests/accel/streams/times/test_clocks_at_random.py::"
    "test_with_clocks_that_move_nothing_is_lost_and_nothing_stays_stuck": ["0-True", "1-False"],
    "tests/accel/streams/writer/test_numbers_outlive.py::"
    "test_a_producer_that_dies_before_any_write_goes_on_and_numbers_outlive_what_is_deleted": ["another node-deleted"],
    "tests/docs/test_tables.py::test_the_table_says_what_spread_costs_on_20000_objects": [],
    "tests/docs/test_tables.py::test_the_tables_say_what_spread_costs_on_5000_objects": ["10 %"],
    "tests/processes/test_object_merger_memory.py::test_merging_ten_objects_of_any_size_stays_below_256_mebibytes": [
        "11"
    ],
    "tests/loaders/store/test_contract.py::TestEveryStore::test_a_listing_of_more_than_a_thousand_keys_is_complete": [
        "file",
        "crashing",
        "prefixed",
        "faults",
        "latency",
    ],
    "tests/loaders/store/test_lying_server.py::TestEveryClientOnALyingServer::"
    "test_a_listing_of_more_than_a_thousand_keys_is_complete": [],
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
        "stale-ends",
    ],
    "tests/simulation/test_simulation.py::test_a_run_leaves_no_thread_and_no_open_file": [],
    "tests/simulation/test_simulation.py::test_whatever_happens_nothing_that_was_promised_is_broken": ["1", "3"],
    "tests/spark_jobs/test_data_source.py::test_conditions_give_what_filtering_afterwards_gives": ["stream_ranges"],
    "tests/test_seconds.py::test_a_run_fails_that_took_more_seconds_in_a_folder_than_it_has": ["one process"],
}
"""Node id of a test, without its parameters -> the ids of the cases that stay in `make test`."""


CPU_SECONDS: Final[Mapping[str, float]] = {
    "accel": 20,
    "bloom": 10,
    "loaders": 20,
    "range_index": 10,
    "tests": 25,
    "tests/accel": 75,
    "tests/accel/catalog": 120,
    "tests/accel/cli": 100,
    "tests/accel/compaction": 50,
    "tests/accel/history": 150,
    "tests/accel/lookup": 60,
    "tests/accel/streams": 220,
    "tests/benchmarks": 12,
    "tests/bloom": 10,
    "tests/conformance": 30,
    "tests/docs": 40,
    "tests/fuzzing": 15,
    "tests/interrupts": 35,
    "tests/linearizability": 20,
    "tests/loaders": 120,
    "tests/models": 20,
    "tests/mutants": 5,
    "tests/processes": 100,
    "tests/range_index": 12,
    "tests/servers": 10,
    "tests/simulation": 45,
    "tests/spark_jobs": 300,
    "tests/threads": 20,
    "tests/wheel": 15,
}
"""Folder -> CPU seconds that its tests may take in one run, with room: about twice what they take on a quiet machine.

`pytest --durations` tells what they took. What Java does for Spark is not counted where it ends after the tests; that
of clusters and servers that tests end themselves is.
"""

PROPERTY: Final = "CPU seconds"


def _cpu_seconds() -> float:
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


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


def too_slow(spent: Mapping[str, float]) -> list[str]:
    """A sentence for each folder that took more CPU seconds than it has, or has none.

    >>> too_slow({"tests/bloom": 1.5, "tests/novels": 0.125})
    ['tests/novels: expected tests that take at most 0 s of CPU time, found 0.1 s']
    """
    return [
        f"{folder}: expected tests that take at most {allowed:g} s of CPU time, found {seconds:.1f} s"
        for folder, seconds in sorted(spent.items())
        if seconds > (allowed := CPU_SECONDS.get(folder, 0))
    ]


def folder_of(node_id: str) -> str:
    """The folder of `CPU_SECONDS` that a test belongs to: the longest above its file, or else that of the file."""
    above = node_id.partition("::")[0].split("/")[:-1]
    folders = ["/".join(above[:count]) for count in range(len(above), 0, -1)]
    return next((folder for folder in folders if folder in CPU_SECONDS), "/".join(above))


class FolderSeconds:
    """Lets a run fail whose tests took more CPU time in a folder than they have there.

    Each process of the tests measures itself and its children that have ended, from the end of a test to that of the
    next; the reports carry that to the process that prints them. Wall time would say nothing on a machine at work.
    """

    def __init__(self) -> None:
        self._before = 0.0
        self._spent: defaultdict[str, float] = defaultdict(float)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        """What was imported and collected is nobody's."""
        self._before = _cpu_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Write what a test took into the report of its end."""
        report = yield
        if call.when == "teardown":
            now = _cpu_seconds()
            report.user_properties.append((PROPERTY, now - self._before))
            self._before = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Sum up by folder."""
        for name, seconds in report.user_properties:
            if name == PROPERTY and isinstance(seconds, float):
                self._spent[folder_of(report.nodeid)] += seconds

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Let the run fail."""
        if too_slow(self._spent) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say why, and after the durations of tests those of folders."""
        if terminalreporter.config.option.durations is not None:
            terminalreporter.section("CPU seconds of folders")
            for folder, seconds in sorted(self._spent.items()):
                terminalreporter.write_line(f"{seconds:6.1f} {folder}")
        if found := too_slow(self._spent):
            terminalreporter.section("folders that are too slow", red=True)
            terminalreporter.write_line("\n".join(found))
