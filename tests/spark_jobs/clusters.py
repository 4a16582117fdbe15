"""Where tests run their jobs: the kinds of sessions, clusters of this machine, and Spark's log of events.

    local            driver and tasks in one JVM: the default
    local-cluster    two executors, each a JVM of one core
    connect          a server of Spark Connect on loopback; the session of the tests has no SparkContext

The tests of one process share a session. `test_kinds.py` runs some of them in a process of its own for each other kind.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyspark
import pytest

from spark_jobs.session import find_java_home
from tests.counting import ROOT

CORES = 2
KIND = os.environ.get("ACCEL_TEST_SPARK", "local")

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""What a JVM of a few minutes on two cores is told: compile quickly rather than well, and collect in one thread."""

START_SECONDS = 120
HOME = Path(pyspark.__file__).parent


def environment_of_spark() -> dict[str, str]:
    """The variables of Spark's programs, which import this checkout in tasks."""
    home = find_java_home(os.environ)
    return {
        **os.environ,
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
        "spark.executor.defaultJavaOptions": SHORT_LIVED,
    }


def free_port() -> int:
    """A port of loopback that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def program(command: list[str], folder: Path, port: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A program of Spark, once it accepts connections at a port; it is ended afterwards."""
    log = folder / "program.log"
    with log.open("ab") as output:
        running = subprocess.Popen(  # noqa: S603 - Spark's own
            [str(HOME / "bin" / command[0]), *command[1:]],
            cwd=folder,
            env=environment_of_spark(),
            stdout=output,
            stderr=output,
        )
    try:
        for _ in range(START_SECONDS * 10):
            with suppress(OSError):
                if port is not None:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                break
            assert running.poll() is None, log.read_text()[-4000:]
            time.sleep(0.1)  # noqa: TID251 - another process is waited for
        yield running
    finally:
        running.terminate()
        running.wait()


@contextmanager
def connect_server(folder: Path, config: Mapping[str, str]) -> Iterator[str]:
    """A server of Spark Connect with two cores; yields its URL."""
    port = free_port()
    settings = {
        **config,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    command = ["spark-submit", "--master", f"local[{CORES},4]"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    with program([*command, "spark-internal"], folder, port):
        yield f"sc://127.0.0.1:{port}"


@contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """A master and two workers of one core, on two addresses, so that Spark takes them for two hosts."""
    port = free_port()
    deploy = ["spark-class", "org.apache.spark.deploy"]
    master = [deploy[0], f"{deploy[1]}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    with program(master, folder, port):
        workers = []
        for number in (1, 2):
            place = ["--host", f"127.0.0.{number}", "--webui-port", "0", "--work-dir", str(folder / f"worker-{number}")]
            size = ["--cores", "1", "--memory", "1g"]
            workers.append([deploy[0], f"{deploy[1]}.worker.Worker", *place, *size, f"spark://127.0.0.1:{port}"])
        with program(workers[0], folder), program(workers[1], folder):
            yield f"spark://127.0.0.1:{port}"


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
