"""Compactions in which an attempt is slow, dies with its executor, or outlives its driver: run as a program by tests.

    python -m tests.spark_jobs.on_executors MASTER FOLDER EVENTS SCENARIO...

    slow before     the first attempt of one group waits before its commit, so that Spark starts a copy of it elsewhere
    slow after      it waits after its commit
    lost            it kills the executor that it runs on
    waits           it and the groups from `WAITING_FROM` on wait until the scenario may go on, so that this process may
                    be killed while groups are done, under way and to come

Each scenario has a store in the folder, of its name. An attempt that is disturbed has written its process id to the
file SCENARIO.begun; SCENARIO.go lets the last scenario go on. Prints a line of JSON, the statuses of the groups, after
each scenario.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from accel.catalog import ObjectCatalog
from accel.compaction import CompactionSettings, GroupItem, GroupResult
from spark_jobs import compact
from spark_jobs.compact import compact_on_spark, plan_on_spark
from spark_jobs.session import context_of, session
from spark_jobs.tasks import StoreSpec, this_attempt
from tests.counting import ROOT
from tests.spark_jobs.clusters import SHORT_LIVED, logged, wait_for

if TYPE_CHECKING:
    from pyspark import SparkContext

SOURCES = 4
SETTINGS = CompactionSettings(max_objects_per_node=2, min_age_seconds=0, max_sources_per_group=SOURCES)
WAITING_FROM = 5

Work = Callable[[StoreSpec, CompactionSettings, GroupItem], GroupResult]


def config(folder: str) -> dict[str, str]:
    """Settings of the session: two executors of one core, copies of slow tasks, and a log of events.

    Spark considers a copy once all tasks but one have ended, of stages of up to 100 tasks: that one is the slow one,
    whatever the speed of this machine.
    """
    return {
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": str(ROOT),
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.99",
        "spark.speculation.multiplier": "1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        **logged(Path(folder)),
        "spark.executor.defaultJavaOptions": SHORT_LIVED,
    }


def disturbed(
    work: Work, folder: str, scenario: str, store: StoreSpec, settings: CompactionSettings, item: GroupItem
) -> GroupResult:
    """The work on a group; the first attempt at the first one is disturbed, while first attempts at the others wait."""
    begun, go = (Path(folder, f"{scenario}.{what}") for what in ("begun", "go"))
    group, attempt = this_attempt()

    def until(mark: Path) -> None:
        wait_for(mark.exists, lambda: f"expected the file {mark}")

    if (group, attempt) != (0, 0):
        if attempt == 0:  # no other group ends first
            until(go if scenario == "waits" and group >= WAITING_FROM else begun)
        return work(store, settings, item)
    commit = ObjectCatalog.commit_compaction

    def late(*arguments: object, **named: object) -> None:
        if scenario == "slow after":
            commit(*arguments, **named)  # type: ignore[arg-type]  # passed on
        part = begun.with_suffix(".part")
        part.write_text(str(os.getpid()))
        part.rename(begun)
        if scenario == "lost":
            daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
            os.kill(int(daemon.rpartition(")")[2].split()[1]), signal.SIGKILL)
        until(go)  # nothing lets it go on in the other scenarios: Spark kills it
        commit(*arguments, **named)  # type: ignore[arg-type]  # passed on

    with mock.patch.object(ObjectCatalog, "commit_compaction", late):
        return work(store, settings, item)


def wait_for_tasks(context: SparkContext) -> None:
    """Wait until no task runs: the loser of two attempts ends some seconds after the query has returned."""
    executors = context._jsc.sc().statusStore().executorList  # of Java

    def idle() -> bool:
        found = executors(True)  # those that live
        return not sum(found.apply(at).activeTasks() for at in range(found.size()))

    wait_for(idle, lambda: "a task has not ended")


def main(master: str, folder: str, log: str, *scenarios: str) -> None:
    """Compact the store of each scenario."""
    work = compact._work_on
    with session(master, config={} if master.startswith("sc://") else config(log)) as spark:
        for scenario in scenarios:
            store = StoreSpec(f"file://{folder}/{scenario}")
            plan = plan_on_spark(spark, store, SETTINGS)
            with mock.patch.object(compact, "_work_on", partial(disturbed, work, folder, scenario)):
                report = compact_on_spark(spark, store, plan)
            sys.stdout.write(json.dumps([str(each.status) for each in report.groups]) + "\n")
            sys.stdout.flush()
            context = context_of(spark)
            if context is not None:
                wait_for_tasks(context)


if __name__ == "__main__":
    main(*sys.argv[1:])
