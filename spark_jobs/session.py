"""A SparkSession that just works: in a notebook, under spark-submit, on a laptop without Spark or Java set up.

    with session("local[*]") as spark:      started, and stopped at the end
    with session() as spark:                the session of this notebook or of spark-submit, which goes on

What is set on a machine of one's own, and why:

    master          local[*,4]: all cores; a task that fails is tried three times more, as on a cluster
    addresses       127.0.0.1 only: no name of this machine need resolve, and nothing is open to the network
    Python          tasks run with the Python of this process; otherwise Spark takes the first `python3` it finds
    Java            see `java`
    UI, log         none, and errors only: a command prints its own result
    shuffles        as many partitions as cores, not 200: the rows of one machine

On a cluster nothing is set but what the jobs need there; the rest is the administrator's business.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from accel.errors import MissingExtra
from spark_jobs.java import find_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APPLICATION = "accel"

TASK_ATTEMPTS = 4
"""How often a task is tried in all, as on a cluster by default."""

ANYWHERE: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
}
"""What is set wherever a session is started here."""

_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties").as_uri()

_LOCAL: Mapping[str, str] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG_SETTINGS}",
}


@contextmanager
def session(
    master: str | None = None, *, ui: bool = False, config: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session for the time of a ``with`` block.

    One that is active already (a notebook's, spark-submit's) is used as it is and goes on afterwards. Otherwise one is
    started and stopped in the end.

    Args:
        master: "local[*]", "local[2]" and the like, or a cluster's URL; by default what spark-submit says, else local.
        ui: whether to serve Spark's pages while a local session runs.
        config: further settings of Spark; they win.

    Raises:
        MissingExtra: PySpark or a Java for it is not installed.
    """
    active = active_session()
    if active is not None:
        yield active
        return
    started = start_session(master, ui=ui, config=config)
    try:
        yield started
    finally:
        started.stop()


def active_session() -> SparkSession | None:
    """The session that this thread or process has already; None if there is none.

    Raises:
        MissingExtra: PySpark is not installed.
    """
    spark_session = _spark_session_class()
    found: SparkSession | None = spark_session.getActiveSession()
    return found


def start_session(
    master: str | None = None, *, ui: bool = False, config: Mapping[str, str] | None = None
) -> SparkSession:
    """Start a session; see `session`.

    Raises:
        MissingExtra: PySpark or a Java for it is not installed.
    """
    builder = _spark_session_class().builder.appName(APPLICATION)
    if is_submitted(os.environ):
        settings: dict[str, str] = dict(ANYWHERE)
    else:
        master = with_attempts(master or "local[*]")
        settings = session_config(master, ui=ui)
        if is_local(master):
            _prepare_environment()
        builder = builder.master(master)
    for name, value in {**settings, **(config or {})}.items():
        builder = builder.config(name, value)
    started: SparkSession = builder.getOrCreate()
    return started


def session_config(master: str, *, ui: bool = False) -> dict[str, str]:
    """What is set for a session that is started here: see the table above."""
    if not is_local(master):
        return dict(ANYWHERE)
    return {
        **ANYWHERE,
        **_LOCAL,
        "spark.ui.enabled": str(ui).lower(),
        "spark.sql.shuffle.partitions": str(_cores(master)),
    }


def with_attempts(master: str) -> str:
    """A local master under which a task that fails is tried again; others as they are.

    >>> with_attempts("local[2]")
    'local[2,4]'
    """
    if master == "local":
        return f"local[1,{TASK_ATTEMPTS}]"
    if is_local(master) and "," not in master:
        return master.replace("]", f",{TASK_ATTEMPTS}]")
    return master


def is_local(master: str) -> bool:
    """Whether Spark runs in processes of this machine alone."""
    return master == "local" or master.startswith("local[")


def is_submitted(environment: Mapping[str, str]) -> bool:
    """Whether this process was started by spark-submit, which has said already where to run and how."""
    return "PYSPARK_GATEWAY_PORT" in environment


def _cores(master: str) -> int:
    text = master.partition("[")[2].rstrip("]").partition(",")[0]
    return int(text) if text.isdigit() else len(os.sched_getaffinity(0))


def _prepare_environment() -> None:
    # Spark takes these from the environment alone, when its JVM is started.
    home = find_java_home(os.environ)
    if home is not None:
        os.environ["JAVA_HOME"] = home
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def _spark_session_class() -> type[SparkSession]:
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        what = f"the jobs run on Spark, and {error.name} is missing"
        raise MissingExtra(f"{what}: pip install 'accel-streams[spark]'") from error
    return SparkSession
