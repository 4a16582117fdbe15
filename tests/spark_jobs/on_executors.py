"""Compactions in which an attempt is slow, dies with its executor, or outlives its driver: run as a program by tests.

    python -m tests.spark_jobs.on_executors MASTER FOLDER EVENTS SCENARIO...

    slow before     the first attempt of one group waits before its commit, so that Spark starts a copy of it elsewhere
    slow after      it waits after its commit
    lost            it kills the executor that it runs on
    waits           it waits for some seconds before its commit: time to kill this process

Each scenario has a store in the folder, of its name. Prints the statuses of the groups of each as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Event
from unittest import mock

from accel.catalog import ObjectCatalog
from accel.compaction import CompactionSettings, GroupItem, GroupResult
from spark_jobs import compact
from spark_jobs.compact import compact_on_spark, plan_on_spark
from spark_jobs.session import session
from spark_jobs.tasks import StoreSpec, this_attempt
from tests.counting import ROOT
from tests.spark_jobs.clusters import SHORT_LIVED

SETTINGS = CompactionSettings(max_objects_per_node=2, min_age_seconds=0, max_sources_per_group=4)
SLOW_SECONDS = 120.0
WAIT_SECONDS = 8.0

Work = Callable[[StoreSpec, CompactionSettings, GroupItem], GroupResult]


def config(folder: str) -> dict[str, str]:
    """Settings of the session: two executors of one core, copies of slow tasks, and a log of events."""
    return {
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": str(ROOT),
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.minTaskRuntime": "4s",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": Path(folder).as_uri(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
        "spark.driver.defaultJavaOptions": SHORT_LIVED,
        "spark.executor.defaultJavaOptions": SHORT_LIVED,
    }


def pause(seconds: float) -> None:
    """Wait: for another process, or to be killed."""
    Event().wait(seconds)


def disturbed(
    work: Work, scenario: str, mark: str, store: StoreSpec, settings: CompactionSettings, item: GroupItem
) -> GroupResult:
    """The work on a group; the first attempt at the first one is disturbed, while first attempts at the others wait."""
    group, attempt = this_attempt()
    if (group, attempt) != (0, 0):
        while attempt == 0 and not Path(mark).exists():  # no copy is started before the others have ended
            pause(0.1)
        return work(store, settings, item)
    commit = ObjectCatalog.commit_compaction

    def late(*arguments: object, **named: object) -> None:
        Path(mark).write_text(str(os.getpid()))
        if scenario == "lost":
            daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
            os.kill(int(daemon.rpartition(")")[2].split()[1]), signal.SIGKILL)
        if scenario != "slow after":
            pause(WAIT_SECONDS if scenario == "waits" else SLOW_SECONDS)
        commit(*arguments, **named)  # type: ignore[arg-type]  # passed on

    with mock.patch.object(ObjectCatalog, "commit_compaction", late):
        result = work(store, settings, item)
    if scenario == "slow after":
        pause(SLOW_SECONDS)
    return result


def main(master: str, folder: str, log: str, *scenarios: str) -> None:
    """Compact the store of each scenario."""
    found = {}
    work = compact._work_on
    with session(master, config={} if master.startswith("sc://") else config(log)) as spark:
        for scenario in scenarios:
            store = StoreSpec(f"file://{folder}/{scenario}")
            plan = plan_on_spark(spark, store, SETTINGS)
            mark = f"{folder}/{scenario}.mark"
            with mock.patch.object(compact, "_work_on", partial(disturbed, work, scenario, mark)):
                report = compact_on_spark(spark, store, plan)
            found[scenario] = [str(each.status) for each in report.groups]
            while scenario != "waits" and Path(f"/proc/{Path(mark).read_text()}").exists():
                pause(0.2)  # a loser ends some seconds after the query has returned
        pause(1.0)  # its end is in the log then
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
