"""Where tests run their jobs: the kinds of sessions, clusters of this machine, and Spark's log of events.

    local            driver and tasks in one JVM: the default
    local-cluster    two executors, each a JVM of one core
    connect          a server of Spark Connect on loopback; the session of the tests has no SparkContext

The tests of one process share a session. `test_kinds.py` runs some of them in a process of its own for each other kind.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pyspark
import pytest

from accel.system import SYSTEM
from spark_jobs.session import find_java_home
from tests.counting import ROOT

CORES = 2
KIND = os.environ.get("ACCEL_TEST_SPARK", "local")

SERVER_URL = "ACCEL_TEST_SPARK_URL"
SERVER_LOG = "ACCEL_TEST_SPARK_LOG"
"""Variables with the URL of a server of Spark Connect that runs, and the folder of its log of events."""

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""Options of a JVM of a few minutes on two cores: compile quickly rather than well, collect in one thread, and do not
verify Spark's classes, which took a sixth of the CPU time of a start."""

OF_EACH_JVM = dict.fromkeys(("SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS"), SHORT_LIVED)
"""Variables that give these options to the launcher, to drivers, and to masters and workers; executors have a setting,
`spark.executor.defaultJavaOptions`."""

HANG_SECONDS = 600
"""The time limit of each wait for another process, and of each test: far above what a machine at work needs, so that
only a hang gets there."""

LOOK_SECONDS = 0.2
"""The pause between two looks at a file or a process that is waited for."""

HOME = Path(pyspark.__file__).parent


def wait_for(condition: Callable[[], object], describe: Callable[[], str]) -> None:
    """Wait until a condition holds.

    Raises:
        TimeoutError: it did not within `HANG_SECONDS`; the message is what `describe` returns.
    """
    until = SYSTEM.timer() + HANG_SECONDS
    while not condition():
        if SYSTEM.timer() > until:
            raise TimeoutError(describe())
        SYSTEM.sleep(LOOK_SECONDS)


def environment_of_spark() -> dict[str, str]:
    """The variables of Spark's programs, which import this checkout in tasks."""
    home = find_java_home(os.environ)
    return {
        **os.environ,
        **OF_EACH_JVM,
        **({} if home is None else {"JAVA_HOME": home}),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def executors_of_their_own(environment: pytest.MonkeyPatch, folder: Path) -> dict[str, str]:
    """Settings of `local-cluster`, whose executors work below a folder and not in that of PySpark."""
    home = folder / "home"
    home.mkdir()
    for each in HOME.iterdir():
        (home / each.name).symlink_to(each)
    for name, value in {**environment_of_spark(), "SPARK_HOME": str(home)}.items():
        environment.setenv(name, value)
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": str(CORES),
        "spark.executor.defaultJavaOptions": SHORT_LIVED,
    }


@contextmanager
def program(command: list[str], folder: Path, ready: str) -> Iterator[str]:
    """A program of Spark, once its log has a line that matches; yields the first group. It is ended afterwards."""
    log = folder / f"{uuid.uuid4()}.log"
    with log.open("wb") as output:
        running = subprocess.Popen(  # noqa: S603 - Spark's own
            [str(HOME / "bin" / command[0]), *command[1:]],
            cwd=folder,
            env=environment_of_spark(),
            stdout=output,
            stderr=output,
        )

    def answer() -> re.Match[str] | None:
        assert running.poll() is None, log.read_text()[-4000:]
        return re.search(ready, log.read_text())

    try:
        wait_for(answer, lambda: f"expected a line like {ready}, found {log.read_text()[-4000:]}")
        found = answer()
        assert found is not None
        yield found[1]
    finally:
        running.terminate()
        running.wait()


@contextmanager
def connect_server(folder: Path, config: Mapping[str, str]) -> Iterator[str]:
    """A server of Spark Connect with two cores; yields its URL."""
    settings = {
        **config,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",  # a port that is free when it is taken
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(CORES),
    }
    command = ["spark-submit", "--master", f"local[{CORES},4]"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    ready = r"Connect server started at: \S*?127\.0\.0\.1\S*?:(\d+)"
    with program([*command, "spark-internal"], folder, ready) as port:
        yield f"sc://127.0.0.1:{port}"


@contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """A master and two workers of one core, on two addresses, so that Spark takes them for two hosts."""
    deploy = ["spark-class", "org.apache.spark.deploy"]
    master = [deploy[0], f"{deploy[1]}.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    with program(master, folder, r"Starting Spark master at (spark://127\.0\.0\.1:\d+)") as url, ExitStack() as stack:
        for number in (1, 2):
            place = ["--host", f"127.0.0.{number}", "--webui-port", "0", "--work-dir", str(folder / f"worker-{number}")]
            worker = [deploy[0], f"{deploy[1]}.worker.Worker", *place, "--cores", "1", "--memory", "1g", url]
            stack.enter_context(program(worker, folder, r"(Successfully registered) with master"))
        yield url


def logged(folder: Path) -> dict[str, str]:
    """Settings of a session that writes its log of events to a folder."""
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.as_uri(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
    }


def events(folder: Path) -> list[dict[str, Any]]:
    """What Spark has written to its log of events so far."""
    found = []
    for path in sorted(folder.rglob("*")):
        for line in path.read_text().splitlines() if path.is_file() and not path.name.startswith(".") else ():
            with suppress(ValueError):  # the last line may not be whole yet
                found.append(json.loads(line))
    return found


def named(log: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """The events of a kind: "TaskStart"."""
    return [each for each in log if each["Event"] == f"SparkListener{name}"]
