"""Flags win over variables, these over a file, that over defaults; and a name that no option has is an error."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
import pytest
from click.testing import Result

from accel.cli import doctor
from accel.cli.config_file import COMMON, FILE_SIZE_BYTES_MAX, variable_of
from accel.cli.main import main
from tests.accel.cli.test_one_convention import COMMANDS
from tests.accel.cli.worlds import World, run
from tests.loaders.store.test_files_of_others import as_other


def settings(result: Result, command: str = "") -> dict[str, tuple[str | None, str]]:
    """What the doctor says of settings: value and source by option."""
    assert result.exit_code == 0, result.stderr
    rows = json.loads(result.stdout)["settings"]
    return {row["key"]: (row["value"], row["source"]) for row in rows if row["command"] == command}


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """To ask Java for its version takes longer than all that the doctor says of settings."""
    monkeypatch.setattr(doctor, "java", lambda: doctor.Finding("java", doctor.State.ABSENT, "not looked for"))


DOCTOR = ("doctor", "memory://nothing", "--read-only", "--quiet")


def shown(path: Path, environment: Mapping[str, str] | None = None) -> Result:
    return run("--config", str(path), *DOCTOR, "--output", "json", environment=environment)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "settings.toml"
    path.write_text('region = "from-file"\npolicy = "window"\n[commands.get-objects]\nlimit = 1\npolicy = "load-all"\n')
    return path


def test_a_flag_wins_over_a_variable_over_the_file_over_the_default(world: World, tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    question = ("get-objects", "--stream", "420000", "--start", "1000", "--output", "json")

    def found(*args: str, **environment: str) -> int:
        result = world.run("--config", str(path), *question, *args, environment=environment)
        assert result.exit_code == 0, result.stderr
        return len(json.loads(result.stdout)["objects"])

    path.write_text("")
    everything = found()
    path.write_text("[commands.get-objects]\nlimit = 1\n")
    assert (found(), found(ACCEL_GET_OBJECTS_LIMIT="2")) == (1, 2)
    assert found("--limit", "3", ACCEL_GET_OBJECTS_LIMIT="2") == 3 <= everything


def test_the_source_of_each_value_is_shown(file: Path) -> None:
    found = settings(shown(file, environment={"ACCEL_STORE": "s3://from-variable", "ACCEL_CLIENT": "obstore"}))
    assert found == {
        "client": ("obstore", "ACCEL_CLIENT"),
        "endpoint-url": (None, "default"),
        "image": (None, "default"),
        "no-sign-request": ("false", "default"),
        "output": ("text", "default"),
        "policy": ("window", str(file)),
        "profile": (None, "default"),
        "region": ("from-file", str(file)),
        "store": ("s3://from-variable", "ACCEL_STORE"),
    }
    assert settings(shown(file), "get-objects") == {"limit": ("1", str(file)), "policy": ("load-all", str(file))}


def test_a_table_of_a_group_holds_for_the_commands_below(file: Path) -> None:
    file.write_text('[commands.catalog]\nnode = [4, 5]\n[commands.catalog.gc]\nverbose = true\nstore = "s3://gc"\n')
    below = settings(shown(file), "catalog gc")
    assert below["store"] == ("s3://gc", str(file))
    assert below["verbose"] == ("true", str(file))
    assert settings(shown(file), "catalog build-hints")["node"] == ("4, 5", str(file))


def test_no_secret_is_shown(file: Path) -> None:
    file.write_text('endpoint-url = "http://me:hunter2@host"\n')
    for result in (shown(file), run("--config", str(file), *DOCTOR)):
        assert "hunter2" not in result.output
    by_variable = shown(file, environment={"ACCEL_ENDPOINT_URL": "http://me:hunter3@host"})
    assert "hunter" not in by_variable.output


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("ACCEL_STROE", "; did you mean ACCEL_STORE?"),
        ("ACCEL_GET_OBJECTS_LIMITS", "; did you mean ACCEL_GET_OBJECTS_LIMIT?"),
        ("ACCEL_GETOBJECTS_LIMIT", "; did you mean ACCEL_GET_OBJECTS_LIMIT?"),
        ("ACCEL_CONFIGURATION", ""),
        ("ACCEL_ZZZZZZZZZZZZZZZZZZ", "."),
    ],
)
def test_an_unknown_variable_is_an_error_that_names_the_nearest(name: str, nearest: str) -> None:
    result = run("stream", "list", "memory://nothing", environment={name: "x"})
    assert result.exit_code == 2
    assert f"the variable {name} is unknown{nearest}" in result.stderr
    assert run("stream", "list", "--help", environment={name: "x"}).exit_code == 0
    assert run("--version", environment={name: "x"}).exit_code == 0


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('stroe = "x"', "the key 'stroe' is unknown; did you mean store?"),
        ("[commands.get-objects]\nlimits = 1", "the key 'commands.get-objects.limits' is unknown; did you mean limit?"),
        ("[commands.get-object]\nlimit = 1", "the table [commands.get-object] is unknown; did you mean get-objects?"),
        ("[commands.catalog.gcs]", "the table [commands.catalog.gcs] is unknown; did you mean gc?"),
        ("[get-objects]\nlimit = 1", "tables of commands are named [commands.NAME], found [get-objects]"),
        ("commands = 1", "expected a table [commands.NAME], found 1"),
        ("store = 2026-01-01", "expected a text, a number, true, false or a list for 'store'"),
        ("store", "expected TOML: "),
        (b"\xff", "expected TOML: "),
        ("#" * (FILE_SIZE_BYTES_MAX + 1), f"expected at most {FILE_SIZE_BYTES_MAX} bytes, found more"),
    ],
)
def test_a_wrong_file_is_an_error_that_names_it(body: str | bytes, message: str, file: Path) -> None:
    file.write_bytes(body if isinstance(body, bytes) else body.encode())
    result = run("--config", str(file), "stream", "list", "memory://nothing")
    assert result.exit_code == 2
    assert str(file) in result.stderr
    assert message in result.stderr


@pytest.mark.parametrize(
    ("value", "found"), [("true", "'true'"), ("8.0", "'8.0'"), ("nan", "'nan'"), ("1e3", "'1000.0'")]
)
def test_a_file_gives_a_number_no_other_value_than_the_command_line_does(value: str, found: str, file: Path) -> None:
    file.write_text(f"[commands.get-objects]\nlimit = {value}\n")
    result = run("--config", str(file), "get-objects", "memory://nothing", "--stream", "1", "--start", "0")
    assert result.exit_code == 2
    assert found in result.stderr


def test_a_file_that_is_named_and_missing_is_an_error(tmp_path: Path) -> None:
    result = run("stream", "list", "memory://nothing", environment={"ACCEL_CONFIG": str(tmp_path / "none.toml")})
    assert result.exit_code == 2
    assert "No such file" in result.stderr


def test_a_wrong_value_names_the_place_that_it_comes_from(file: Path) -> None:
    file.write_text('client = "boto4"')
    result = run("--config", str(file), "stream", "list", "memory://nothing")
    assert (result.exit_code, f", from {file}" in result.stderr) == (2, True)
    result = run("stream", "list", "memory://nothing", environment={"ACCEL_CLIENT": "boto4"})
    assert (result.exit_code, ", from ACCEL_CLIENT" in result.stderr) == (2, True)
    assert ", from" not in run("stream", "list", "memory://nothing", "--client", "boto4").stderr


def test_the_file_is_the_named_one_else_that_of_the_folder_else_that_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named, here, users = tmp_path / "named.toml", tmp_path / "accel.toml", tmp_path / "home" / "config.toml"
    users.parent.mkdir()
    for path in (named, here, users):
        path.write_text(f'region = "{path.stem}"')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(click, "get_app_dir", lambda name: str(users.parent) if name == "accel" else "")

    def region(*args: str, **environment: str) -> str | None:
        result = run(*args, *DOCTOR, "--output=json", environment={"ACCEL_CONFIG": "", **environment})
        return settings(result)["region"][0]

    assert region("--config", str(named), ACCEL_CONFIG=str(here)) == "named"
    assert region(ACCEL_CONFIG=str(named)) == "named"
    assert region() == "accel"
    here.unlink()
    assert region() == "config"
    users.unlink()
    assert region() is None


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a file accel.toml and a folder accel, that only root may enter."""
    settings(shown(Path(os.devnull)))  # its modules are imported by the user who may read them
    folder = Path(tempfile.mkdtemp())
    for path in (folder / "accel.toml", folder / "accel" / "config.toml"):
        path.parent.mkdir(exist_ok=True)
        path.write_text('region = "closed"')
    monkeypatch.setenv("HOME", "/")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(folder)
    folder.chmod(0)
    yield folder
    monkeypatch.undo()
    folder.chmod(0o700)
    shutil.rmtree(folder)


@pytest.mark.parametrize("place", ["home", "settings folder", "working directory", "file"])
def test_a_file_that_was_looked_for_and_cannot_be_read_is_passed_over_with_a_note(
    closed: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if place == "file":
        (closed / "accel.toml").chmod(0)
        closed.chmod(0o755)
    elif place != "working directory":
        monkeypatch.chdir("/")
        monkeypatch.setenv("HOME" if place == "home" else "XDG_CONFIG_HOME", str(closed))

    def look() -> None:
        result = run(*DOCTOR, "--output=json", environment={"ACCEL_CONFIG": ""})
        assert settings(result)["region"] == (None, "default")
        (line,) = result.stderr.splitlines()
        assert "note: passed over a settings file, as it cannot be read: [Errno 13] Permission denied: '" in line
        result = run(*DOCTOR, environment={"ACCEL_CONFIG": str(closed / "accel.toml")})
        assert (result.exit_code, result.stderr.count("the settings file cannot be read: [Errno 13]")) == (2, 1)

    as_other(look)


def test_a_home_that_is_unknown_and_a_working_directory_that_is_gone_are_no_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "~" / ".config" / "accel").mkdir(parents=True)
    (tmp_path / "~" / ".config" / "accel" / "config.toml").write_text('region = "of a folder that is named ~"')
    (tmp_path / "gone").mkdir()
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)  # a user without an entry
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    for home in (None, "", "/nowhere"):
        monkeypatch.delenv("HOME", raising=False)
        if home is not None:
            monkeypatch.setenv("HOME", home)
        monkeypatch.chdir(tmp_path)
        assert settings(run(*DOCTOR, "--output=json", environment={"ACCEL_CONFIG": ""}))["region"][0] is None
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert settings(run(*DOCTOR, "--output=json", environment={"ACCEL_CONFIG": ""}))["region"][0] is None
    monkeypatch.chdir("/")


def test_errors_are_json_where_the_file_says_so(file: Path) -> None:
    file.write_text('output = "json"')
    result = run("--config", str(file), "get-objects")
    assert json.loads(result.stderr)["type"] == "MissingParameter"
    assert run("--config", str(file), "get-objects", environment={"ACCEL_OUTPUT": "text"}).stderr[0] != "{"


def test_the_token_of_a_sidecar_is_known_and_not_shown() -> None:
    result = run(*DOCTOR, environment={"ACCEL_TOKEN": "hunter2"})
    assert (result.exit_code, "hunter2" in result.output) == (0, False)


def test_variables_that_kubernetes_sets_for_a_service_are_no_typos() -> None:
    links = {
        "ACCEL_SERVICE_HOST": "10.0.0.7",
        "ACCEL_SERVICE_PORT": "8080",
        "ACCEL_SERVICE_PORT_HTTP": "8080",
        "ACCEL_PORT": "tcp://10.0.0.7:8080",
        "ACCEL_SIDECAR_PORT_8080_TCP": "tcp://10.0.0.7:8080",
        "ACCEL_SIDECAR_PORT_8080_TCP_PROTO": "tcp",
        "ACCEL_SIDECAR_PORT_8080_TCP_ADDR": "fd00::7",
    }
    assert run(*DOCTOR, environment=links).exit_code == 0
    assert run(*DOCTOR, environment={"ACCEL_PORT": "a text"}).exit_code == 2


def test_what_is_known_without_loading_is_known_to_the_commands() -> None:
    variables = {option.envvar for command in COMMANDS.values() for option in command.params}
    assert {variable_of(key) for key in COMMON} <= variables
    assert main.params[0].name == "config"
