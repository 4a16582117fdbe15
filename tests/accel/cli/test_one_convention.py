"""Every command takes its store in the same ways, and `--output` in any place."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click
import pytest

import accel.cli.options
from accel.cli.main import main
from accel.rendering import Output
from loaders.errors import StoreUnavailable
from tests.accel.cli.worlds import World, run

STREAM = ("--scope", "shop", "--stream", "orders")
LOOKUP = ("--stream", "1", "--start", "0")
URL = "s3://bucket/some/prefix"

NEEDED = {
    "get-objects": LOOKUP,
    "explain": LOOKUP,
    "read": LOOKUP,
    "object inspect": ("42",),
    "object verify": ("42", "43"),
    "catalog init": ("--namespace", "shop"),
    "adopt import": ("--node", "4"),
    "catalog undo": ("--node", "4"),
    "table": ("tables",),
    "scope delete": ("--scope", "shop"),
    "stream configure": (*STREAM, "--min-segments", "1"),
    "stream read": STREAM,
    "group create": (*STREAM, "--group", "billing"),
    "group reset": (*STREAM, "--group", "billing", "--to", "head"),
    "stream scale": (*STREAM, "--seal", "0@0", "--range", "0:1"),
    "stream truncate": (*STREAM, "--at", "0@0=1"),
}
"""What a command cannot do without, besides a store; for others it is the options that it requires."""

VALUES = {"--stream": "orders", "--id": "00000000-0000-0000-0000-000000000001"}

TAKES_FILES = {"adopt compact", "adopt convert"}
"""They read files before they open a store, or take files for arguments."""

WITHOUT_STORE = {"demo", *TAKES_FILES}
WITHOUT_OUTPUT = TAKES_FILES


def leaves(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Every command of the tree, by its path."""
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from leaves(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


COMMANDS = dict(leaves(main))
WITH_STORE = sorted(set(COMMANDS) - WITHOUT_STORE)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The URLs of stores that commands open, which goes no further."""
    urls: list[str] = []

    def note(url: str, *_: object) -> None:
        urls.append(url)
        raise StoreUnavailable("open", url, "as far as this test goes")

    monkeypatch.setattr(accel.cli.options, "open_store", note)
    return urls


def needed(path: str) -> tuple[str, ...]:
    """What makes a command open its store."""
    if path in NEEDED:
        return NEEDED[path]
    required = [param for param in COMMANDS[path].params if isinstance(param, click.Option) and param.required]
    return tuple(word for param in required for word in (param.opts[0], VALUES.get(param.opts[0], "1")))


@pytest.mark.parametrize("path", WITH_STORE)
def test_every_command_takes_its_store_as_an_argument_an_option_and_a_variable(path: str, opened: list[str]) -> None:
    words, rest = path.split(), needed(path)
    bare = URL.removeprefix("s3://")
    tries: list[tuple[tuple[str, ...], dict[str, str]]] = [
        ((*words, URL, *rest), {}),
        ((*words, *rest, URL), {}),
        ((*words, *rest, "--store", URL), {}),
        ((*words, *rest, "--store", bare), {}),
        ((*words, *rest), {"ACCEL_STORE": URL}),
        ((*words, *rest), {"ACCEL_STORE": bare}),
        ((*words, *rest, URL), {"ACCEL_STORE": "s3://another"}),
        ((*words, *rest, URL, "--store", URL), {}),
    ]
    if not any(isinstance(param, click.Argument) and param.name != "url" for param in COMMANDS[path].params):
        tries.append(((*words, *rest, bare), {}))
    for args, environment in tries:
        opened.clear()
        result = run(*args, environment=environment)
        assert opened == [URL], (args, result.stderr)
        assert result.exit_code == 1


@pytest.mark.parametrize("path", sorted(COMMANDS))
def test_output_stands_in_any_place(path: str, opened: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    forms: list[bool] = []

    def note(*values: bool) -> Output:
        forms.append(values[0])
        raise StoreUnavailable("print", "", "as far as this test goes")

    monkeypatch.setattr(accel.cli.options, "Output", note)
    words = path.split()
    rest = (*needed(path), *(() if path in WITHOUT_STORE else (URL,)))
    for place in range(len(words) + 1):
        run(*words[:place], "--output", "json", *words[place:], *rest)
        run(*words[:place], "--output=json", *words[place:], *rest, environment={"ACCEL_OUTPUT": "text"})
    run(*words, *rest, "--output", "json")
    run("--output", "text", *words, *rest, "--output", "json")
    if path not in WITHOUT_OUTPUT:
        assert forms == [True] * (2 * len(words) + 4)
    assert not opened


def test_a_url_among_names_is_the_store_and_the_names_keep_their_order(world: World) -> None:
    for words in ((world.store_url, "42", "18"), ("42", world.store_url, "18"), ("42", "18", world.store_url)):
        found = run("object", "verify", *words, "--namespace", "cluster", "--output", "json")
        assert found.exit_code == 0, found.stderr
        assert json.loads(found.stdout)["objects_checked"] == 2
    inspected = run("object", "inspect", world.store_url, "42", "--namespace", "cluster")
    assert inspected.stdout == run("object", "inspect", "42", world.store_url, "--namespace", "cluster").stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("object", "inspect", URL), "Missing argument 'ID|KEY|FILE'"),
        (("table", "a", "b", "c"), "Got unexpected extra argument (c)"),
        (("get-objects", *LOOKUP, URL, "--store", "s3://another"), "Expected one store, found s3://bucket/some/prefix"),
        (("table", URL, "s3://another"), "Expected one store, found"),
        (
            ("get-objects", *LOOKUP, "./data"),
            "expected bucket/prefix, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, file:///folder",
        ),
        (("get-objects", *LOOKUP), "name it as s3://bucket/prefix, by '--store' or by ACCEL_STORE"),
        (("catalog", "status", "--output", "csv"), "is not one of 'text', 'json'"),
        (("catalog", "--output", "csv", "status"), "is not one of 'text', 'json'"),
    ],
)
def test_what_names_no_store_or_several_is_refused(args: tuple[str, ...], message: str) -> None:
    result = run(*args)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_password_in_a_store_is_not_printed() -> None:
    result = run("catalog", "status", "http://me:secret@host/bucket", "--store", "http://me:secret@other/bucket")
    assert result.exit_code == 2
    assert "secret" not in result.stderr
