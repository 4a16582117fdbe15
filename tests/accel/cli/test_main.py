"""The command as a whole: help, version, and how errors look."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from rich.text import Text

from accel.cli import main as main_module
from accel.cli.ending import Stopped
from accel.rendering import Folded, Output, Shown, Tell
from tests.accel.cli.worlds import World, run

COMMANDS = (
    *(("get-objects",), ("explain",), ("read",), ("object", "inspect"), ("object", "verify"), ("demo",)),
    *(("catalog", "init"), ("catalog", "status"), ("table",)),
    *(("catalog", job) for job in ("compact", "build-hints", "verify", "gc", "run-all")),
)


def test_the_version_is_that_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    assert run("--version").stdout.startswith("accel ")
    monkeypatch.setattr(metadata, "version", missing)
    assert "not installed" in main_module._version()


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_examples(command: tuple[str, ...]) -> None:
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert "Examples:\n" in result.stdout
    assert f"  accel {' '.join(command)}" in result.stdout


def test_help_names_the_commands_and_the_exit_codes() -> None:
    text = run("--help").stdout
    for name in ("demo", "explain", "get-objects", "object", "read"):
        assert f"\n  {name} " in text
    assert "Exit codes:  0 done   1 failed, or not all could be checked   2 wrong usage   3 verify" in text


def test_it_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "accel.cli", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("accel ")


def test_an_error_is_two_lines_on_stderr(world: World) -> None:
    result = world.run("get-objects", "--stream", "1", "--start", "0")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "error: expected a stream of image version 7, found stream 1\n"
        "advice: use a stream of the image, and offsets from its first kept one on\n"
    )


def test_an_error_as_json_has_these_keys(world: World) -> None:
    result = world.run("get-objects", "--stream", "1", "--start", "0", "--output=json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert json.loads(result.stderr) == {
        "type": "UnknownStream",
        "message": "expected a stream of image version 7, found stream 1",
        "advice": "use a stream of the image, and offsets from its first kept one on",
        "retryable": False,
    }


@pytest.mark.parametrize(
    "args",
    [
        ("get-objects", "--stream", "x", "--output", "json"),
        ("get-objects", "--output=json"),
        ("get-objects", "--output", "json", "--nonsense"),
        ("--nonsense", "--output", "json"),
        ("nonsense", "--output", "json"),
        ("object", "verify", "--output", "json"),
    ],
)
def test_wrong_usage_is_json_too(args: tuple[str, ...]) -> None:
    result = run(*args)
    error = json.loads(result.stderr)
    assert (result.exit_code, result.stdout) == (2, "")
    assert list(error) == ["type", "message", "advice", "retryable"]
    assert error["advice"].startswith("see accel")


def test_an_error_of_the_system_is_told_the_same_way(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(world.image_path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    result = world.run("get-objects", "--stream", "1", "--start", "0")
    assert result.exit_code == 1
    assert result.stderr == f"error: [Errno 13] Permission denied: '{world.image_path}'\n"


def test_what_is_missing_for_a_client_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    for module in ("loaders.store.obstore_s3", "loaders.store.clouds"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    question = ("--image", str(world.image_path), "--stream", "420000", "--start", "0")
    result = run("get-objects", *question, "--store", "s3://bucket", "--client", "obstore")
    assert result.exit_code == 1
    assert "pip install" in result.stderr
    assert "advice: install the extra" in result.stderr


@pytest.mark.parametrize("is_plain", [False, True])
def test_no_color_means_no_styles_at_all(
    is_plain: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1") if is_plain else monkeypatch.delenv("NO_COLOR", raising=False)
    Output().show(Shown({}, [Folded(Text("bold", style="bold")), Folded(Text("red", style="red"))]))
    assert ("\x1b[" in capsys.readouterr().out) is not is_plain


@pytest.mark.parametrize(
    "command", ["catalog status", "catalog verify", "catalog run-all --yes", "stream list --scope a"]
)
def test_a_host_without_threads_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    store = ("--store", f"file://{tmp_path}")
    assert run("catalog", "init", "--namespace", "n", *store).exit_code == 0
    assert run("stream", "create", "--scope", "a", "--stream", "b", *store).exit_code == 0

    def refused(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", refused)
    found = run(*command.split(), *store)
    if found.exit_code:  # else it needed none
        assert found.exit_code == 1
        assert "limit reached" in found.output
        assert "Traceback" not in found.output
        assert not isinstance(found.exception, RuntimeError)


def test_ctrl_c_ends_a_command_with_what_was_done_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ("--store", f"file://{tmp_path}")
    assert run("catalog", "init", "--namespace", "n", *store).exit_code == 0

    def interrupted(_: object, *, progress: Tell, scan: None) -> None:  # noqa: ARG001 - as it is called
        progress(3, 10)
        raise Stopped

    monkeypatch.setattr("accel.cli.catalog.verify.verify_catalog", interrupted)
    found = run("catalog", "verify", *store)
    assert found.exit_code == 130
    assert found.stderr.startswith("error: stopped by SIGINT")
    assert "verifying: 3 of 10 done" in found.stderr
    assert found.stderr.count("\n") == 1
