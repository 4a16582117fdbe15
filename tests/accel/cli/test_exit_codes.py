"""Every command ends with the same exit codes: of signals, of names that do not exist, of numbers, of closed pipes."""

from __future__ import annotations

import io
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import click
import pytest

import accel
import accel.cli.options
from accel.cli.main import main
from accel.cli.standard_streams import ASCII
from loaders.store import StoreSettings, open_store
from loaders.store.decorated import DecoratedStore, StoreCall
from tests.accel.cli.test_one_convention import COMMANDS, NEEDED, VALUES, WITH_STORE, WITHOUT_STORE
from tests.accel.cli.worlds import NO_ENVIRONMENT, make_world, run

TOO_LONG = str(2**63)
OPENED_LATER = {"serve", "object inspect", "object verify"}
"""`serve` runs its own loop, tested in tests/processes/test_sidecar.py; the others may be given a file."""


@pytest.fixture(scope="module")
def url() -> str:
    """A catalog with a node and a stream of 300 events."""
    where = f"memory://{uuid4().hex}"
    with accel.connect(where, create=True) as streams:
        streams.create_scope("shop")
        streams.create_stream("shop", "orders", segments=1)
        with streams.writer("shop", "orders") as writer:
            for number in range(300):
                writer.write(b"order %d" % number, key="anna")
    return where


def words_of(path: str, option: str = "", value: str = "") -> tuple[str, ...]:
    """What a command needs, with one option of this value."""
    required = [each for each in COMMANDS[path].params if isinstance(each, click.Option) and each.required]
    default = tuple(word for each in required for word in (each.opts[0], VALUES.get(each.opts[0], "1")))
    words = [*NEEDED.get(path, default)]
    if option in words:
        words[words.index(option) + 1] = value
    elif option:
        words += [option, value]
    scoped = any(each.opts == ["--scope"] for each in COMMANDS[path].params) and "--scope" not in words
    return (*words, "--scope", "shop") if scoped else tuple(words)


def option_of(path: str, name: str) -> click.Option | None:
    return next((each for each in COMMANDS[path].params if isinstance(each, click.Option) and name in each.opts), None)


def numbers_of(option: click.Option) -> Iterator[str]:
    """Texts of an option that contain a number of 64 bits or more."""
    notation = str(option.metavar)
    if isinstance(option.type, click.types.IntParamType) or option.type.name in ("size", "time"):
        yield from (TOO_LONG, f"-{2**63 + 1}")
    elif notation == "N@E=OFFSET":
        yield from (f"0@0={TOO_LONG}", f"{TOO_LONG}@0=1")
    elif notation == "N@E":
        yield from (f"{TOO_LONG}@0", f"0@{TOO_LONG}")
    elif notation in ("PLACE", "MOMENT"):
        yield TOO_LONG


@pytest.mark.parametrize("path", sorted(COMMANDS))
def test_numbers_beyond_64_bits_are_wrong_usage(path: str, url: str) -> None:
    where = () if path in WITHOUT_STORE else (url,)
    for each in COMMANDS[path].params:
        for number in numbers_of(each) if isinstance(each, click.Option) and not each.is_flag else ():
            found = run(*path.split(), *where, *words_of(path, each.opts[0], number))
            assert (found.exit_code, found.stdout) == (2, ""), (each.opts, number, found.output)


UNKNOWN = [
    (path, option, value)
    for option, value in (("--node", "99"), ("--stream", "nothere"), ("--stream", "999"))
    for path in WITH_STORE
    if (found := option_of(path, option)) is not None
    and value.isdigit() == (isinstance(found.type, click.types.IntParamType) or path == "read")
]
CREATES_OR_COUNTS_AS_DONE = {"stream create", "stream delete", "adopt import"}


@pytest.mark.parametrize(("path", "option", "value"), UNKNOWN)
def test_a_node_or_a_stream_that_does_not_exist_is_a_failure(path: str, option: str, value: str, url: str) -> None:
    if path in CREATES_OR_COUNTS_AS_DONE:
        return
    found = run(*path.split(), url, *words_of(path, option, value))
    assert found.exit_code == 1, found.output


@pytest.mark.parametrize("option", ["--take-ids json:loads --swaps swaps.json", "--dry-run"])
def test_a_node_that_an_image_does_not_list_is_a_failure(option: str, tmp_path: Path) -> None:
    world = make_world(tmp_path)
    found = world.run("adopt", "compact", "--node", "99", *option.replace("swaps.json", str(tmp_path / "s")).split())
    assert (found.exit_code, "expected nodes of this catalog (4), found 99" in found.stderr) == (1, True)


class Signalling(DecoratedStore):
    """Sends this process a signal at the first request."""

    number: signal.Signals | None = None

    def _around(self, _: StoreCall, send: Callable[[], Any]) -> Any:
        number, Signalling.number = Signalling.number, None
        if number is not None:
            os.kill(os.getpid(), number)
        return send()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("path", [path for path in WITH_STORE if path not in OPENED_LATER])
def test_a_signal_gives_the_exit_code(
    path: str, number: signal.Signals, url: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def opened(where: str, settings: StoreSettings) -> Signalling:
        return Signalling(open_store(where, settings))

    monkeypatch.setattr(accel.cli.options, "open_store", opened)
    monkeypatch.setattr(Signalling, "number", number)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    for name, value in NO_ENVIRONMENT.items():
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        main([*path.split(), url, *words_of(path)], prog_name="accel")
    assert ended.value.code == 128 + number, capfd.readouterr()
    assert "Traceback" not in capfd.readouterr().err


def ended(words: list[str], file: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of a command whose stdout is this file, which is closed."""
    stream = os.fdopen(file, "w")
    monkeypatch.setattr(sys, "stdout", stream)
    with pytest.raises(SystemExit) as raised:
        main.main(words, prog_name="accel")
    stream.close()
    return int(raised.value.code or 0)


def without_reader() -> int:
    reading, writing = os.pipe()
    os.close(reading)
    return writing


def full() -> int:
    return os.open("/dev/full", os.O_WRONLY)


READING = {
    "stream read": ["stream", "read", "--scope", "shop", "--stream", "orders"],
    "stream read raw": ["stream", "read", "--scope", "shop", "--stream", "orders", "--payload", "raw"],
    "stream read json": ["stream", "read", "--scope", "shop", "--stream", "orders", "--output", "json"],
    "stream list": ["stream", "list"],
    "status": ["catalog", "status"],
    "status json": ["catalog", "status", "--output", "json"],
    "gc": ["catalog", "gc", "--yes"],
    "doctor": ["doctor"],
}


@pytest.mark.parametrize("name", READING)
def test_results_that_cannot_be_written(
    name: str, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ACCEL_CONFIG", os.devnull)
    assert ended([*READING[name], "--store", url], without_reader(), monkeypatch) == 0
    assert "rror" not in capsys.readouterr().err
    assert ended([*READING[name], "--store", url], full(), monkeypatch) == 1
    assert "No space left on device" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--help"], ["stream", "--help"], ["stream", "read", "--help"]])
def test_help_into_a_closed_pipe_is_no_failure(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert ended(words, without_reader(), monkeypatch) == 0


def test_a_problem_keeps_its_code_whether_or_not_it_could_be_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ACCEL_CONFIG", os.devnull)
    where = f"memory://{uuid4().hex}"
    with accel.connect(where, create=True) as streams:
        streams.create_scope("shop")
        streams.create_stream("shop", "orders", segments=1)
        with streams.writer("shop", "orders") as writer:
            writer.write(b"an order", key="anna")
    store = open_store(where)
    for info in list(store.list("")):
        if not info.key.startswith("accel/"):
            store.delete(info.key)
    assert run("catalog", "verify", "--store", where).exit_code == 3
    assert ended(["catalog", "verify", "--store", where], full(), monkeypatch) == 3
    assert "No space left on device" in capsys.readouterr().err


@pytest.mark.parametrize("variable", ["LC_ALL", "LC_CTYPE", "LANG"])
def test_the_locale_c_is_ascii(variable: str, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ACCEL_CONFIG", os.devnull)
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.delenv(name, raising=False)
    texts = []
    for value in ("C", "C.UTF-8"):
        monkeypatch.setenv(variable, value)
        printed = tmp_path / value
        file = os.open(printed, os.O_WRONLY | os.O_CREAT)
        assert ended(["catalog", "status", "--store", url], file, monkeypatch) == 0
        texts.append(printed.read_text(encoding="utf-8"))
    assert (texts[0].isascii(), texts[1].isascii(), "?" in texts[0]) == (True, False, False)
    assert "-----" in texts[0]


def test_each_character_of_our_own_texts_has_a_similar_one() -> None:
    root = Path(accel.__file__).parent
    texts = "".join(path.read_text() for path in root.rglob("*.py") if path.name != "standard_streams.py")
    assert {letter for letter in texts if not letter.isascii()} - {"ö", "ß"} <= ASCII.keys()
    assert json.dumps("".join(ASCII.values())).isascii()


PROGRAM = """
import json, os, sys
from accel.cli.standard_streams import open_standard_streams
open_standard_streams()
from accel.cli.main import main
codes = {}
for line in json.loads(sys.argv[1]):
    try:
        main([*line.split(), "--store", sys.argv[2]], prog_name="accel")
    except SystemExit as ended:
        codes[line] = ended.code
kept = os.open(sys.argv[3], os.O_WRONLY | os.O_CREAT)
assert kept > 2  # no file gets the number of a stream that was closed
os.write(kept, json.dumps(codes).encode())
"""

LINES = {
    "catalog gc --yes": 0,
    "catalog run-all --yes": 0,
    "catalog verify": 0,
    "doctor": 0,
    "catalog gc --bad": 2,
    "stream write --scope shop --stream orders": 0,
    "stream read --scope shop --stream orders": 0,
    "stream describe --scope shop --stream nothere": 1,
}


@pytest.mark.parametrize("streams", ["2>/dev/full", "<&- >&- 2>&-"])
def test_output_that_cannot_be_written_stops_no_work(streams: str, tmp_path: Path) -> None:
    where, codes = f"file://{tmp_path}/store", tmp_path / "codes.json"
    with accel.connect(where, create=True) as opened:
        opened.create_scope("shop")
        opened.create_stream("shop", "orders", segments=1)
    command = shlex.join([sys.executable, "-c", PROGRAM, json.dumps(list(LINES)), where, str(codes)])
    subprocess.run(["/bin/sh", "-c", f"{command} {streams}"], check=True, timeout=60, stdin=subprocess.DEVNULL)  # noqa: S603 - our own program
    assert json.loads(codes.read_text()) == LINES
