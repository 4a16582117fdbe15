"""A compaction on executors of their own, one of which is killed while it works: run as a program by the test.

    python -m tests.spark_jobs.on_executors URL ENDPOINT

Spark runs two executors, with speculation: a task that takes longer than others is started a second time elsewhere. As
soon as the list shows a commit, one executor gets SIGKILL. Prints what happened as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from threading import Event, Thread

from accel.catalog import ObjectCatalog
from accel.compaction import CompactionSettings
from loaders.store import StoreSettings
from spark_jobs.compact import compact_on_spark, plan_on_spark
from spark_jobs.session import session
from spark_jobs.tasks import StoreSpec

MASTER = "local-cluster[2,1,1024]"
CONFIG = {
    "spark.executor.memory": "512m",
    "spark.executorEnv.PYTHONPATH": str(Path(__file__).parent.parent.parent),
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.05",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "50ms",
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
NODE_ID = 4
LOOK_SECONDS = 0.05


def executors() -> list[int]:
    """The process ids of executors that this process's Spark has started."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if any(b"CoarseGrainedExecutorBackend" in each for each in words) and _is_below(int(folder.name)):
                found.append(int(folder.name))
    return found


def _is_below(process_id: int) -> bool:
    while process_id > 1:
        if process_id == os.getpid():
            return True
        try:
            process_id = int(Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return False
    return False


def kill_one_at_the_first_commit(store: StoreSpec, killed: dict[str, int], may_end: Event) -> None:
    """Watch the list of the node, and kill an executor once it is shorter or has something new."""
    with ObjectCatalog.open(store.open()) as catalog:
        before = catalog.refresh_state().node_lists()[NODE_ID].next_order_id
        while not may_end.wait(LOOK_SECONDS):
            now = catalog.refresh_state().node_lists()[NODE_ID].next_order_id
            if now != before and (found := executors()):
                os.kill(found[0], signal.SIGKILL)
                killed.update(executor=found[0], commits=int(now - before))
                return


def main(url: str, endpoint_url: str) -> None:
    """Compact what lies there."""
    store = StoreSpec(url, StoreSettings(endpoint_url=endpoint_url, region="us-east-1"))
    settings = CompactionSettings(max_objects_per_node=2, min_age_seconds=0, max_sources_per_group=4)
    os.environ["PYSPARK_PYTHON"] = sys.executable  # executors have this environment
    killed: dict[str, int] = {}
    may_end = Event()
    with session(MASTER, config=CONFIG) as spark:
        plan = plan_on_spark(spark, store, settings)
        watcher = Thread(target=kill_one_at_the_first_commit, args=(store, killed, may_end), daemon=True)
        watcher.start()
        report = compact_on_spark(spark, store, plan)
        may_end.set()
        watcher.join()
    told = {
        "killed": killed,
        "groups": len(plan.groups),
        "failed_groups": report.failed_groups,
        "failed_tasks": report.failed_tasks,
        "statuses": sorted({str(each.status) for each in report.groups}),
    }
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
