"""The commands that pages name exist, with the options that they are given, and show what the page says."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

from accel.cli.main import EXIT_FAILURE, EXIT_USAGE, main
from accel.cli.objects.verify import EXIT_PROBLEMS
from accel.cli.options import EXIT_PARTIAL
from accel.lookup.engine import UnderWay
from benchmarks.__main__ import BENCHMARKS
from loaders.store import S3Store, StoreSettings
from tests.docs.commands import PAGE, TABLE, command_table
from tests.docs.example_bucket import BUCKET, fill, take_whole_rounds
from tests.docs.pages import PAGES, ROOT, blocks, inline_code, name, page_named
from tests.servers.fixtures import Endpoint

_TIME = re.compile(r"\b\d+(\.\d+)? (us|ms|s|m)\b")
_MANUALS = [page for page in PAGES if page.name != "CHANGELOG.md" and page.parent.name != "decisions"]
"""The others say what was once there."""
_EXPLAIN_PAGES = [page for page in PAGES if blocks(page, "console")]


def commands(page: Path) -> Iterator[str]:
    """All that a page tells people to type."""
    yield from inline_code(page)
    for block in blocks(page, "sh", "console"):
        joined = block.text.replace("\\\n", " ")
        yield from (line.removeprefix("$ ") for line in joined.splitlines())


def words_after(page: Path, *start: str) -> Iterator[list[str]]:
    """The words after a command's beginning, without the comment at its end."""
    for command in commands(page):
        words = command.split(" #")[0].split()
        for at in range(len(words)):
            if tuple(words[at : at + len(start)]) == start and all("=" in each for each in words[:at]):
                yield words[at + len(start) :]


def parsed(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that words name, and the words that are left."""
    command: click.Command = main
    context = click.Context(main)
    while isinstance(command, click.Group) and words:
        found = command.get_command(context, words[0])
        if found is None:
            break
        command, words = found, words[1:]
    return command, words


def is_wrong(words: list[str]) -> bool:
    """Whether there is no such command, or it does not have these options."""
    command, rest = parsed(words)
    known = {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
    options = {each.partition("=")[0] for each in rest if each.startswith("-") and len(each) > 1}
    is_group = isinstance(command, click.Group) and rest and not rest[0].startswith("-")
    return bool(is_group or options - known - {"--help", "-h", "--version"})


def test_every_accel_command_and_option_exists() -> None:
    starts = (("accel",), (".venv/bin/accel",))
    found = [(name(page), words) for page in _MANUALS for start in starts for words in words_after(page, *start)]
    assert [(page, " ".join(words)) for page, words in found if is_wrong(words)] == []


def test_the_table_of_commands_is_that_of_the_command_line() -> None:
    [found] = TABLE.finditer(PAGE.read_text())
    assert found[0] == command_table(), "python -m tests.docs.commands writes it"


def test_every_make_target_exists() -> None:
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    found = [(name(page), words[0]) for page in PAGES for words in words_after(page, "make") if words]
    assert [each for each in found if "=" not in each[1] and each[1] not in targets] == []


def test_every_benchmark_exists() -> None:
    start = ("python", "-m", "benchmarks")
    found = [(name(page), each) for page in PAGES for words in words_after(page, *start) for each in words]
    assert [each for each in found if re.fullmatch(r"[a-z_]+", each[1]) and each[1] not in BENCHMARKS] == []


@pytest.mark.parametrize("page", _EXPLAIN_PAGES, ids=name)
def test_sessions_show_what_the_commands_print(
    page: Path, moto_endpoint: Endpoint, aws_environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = S3Store(BUCKET, StoreSettings(endpoint_url=moto_endpoint.url))
    store.create_bucket()
    image = tmp_path / "image.json"
    image.write_text(fill(store))
    aws_environment.setenv("ACCEL_STORE", f"s3://{BUCKET}")
    aws_environment.setenv("ACCEL_IMAGE", str(image))
    aws_environment.setenv("ACCEL_ENDPOINT_URL", moto_endpoint.url)
    aws_environment.setenv("COLUMNS", "160")
    aws_environment.setattr(UnderWay, "take", take_whole_rounds)
    for block in blocks(page, "console"):
        for shown in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            line, _, output = shown.partition("\n")
            found = CliRunner().invoke(main, shlex.split(line)[1:])
            assert without_times(found.stdout) == without_times(output), line


def test_the_image_of_its_page_answers_the_command_of_its_page(tmp_path: Path) -> None:
    page = page_named("image")
    image = tmp_path / "image.json"
    image.write_text(blocks(page, "json")[0].text)
    [words] = [shlex.split(each) for each in commands(page) if each.startswith("accel get-objects")]
    filled = [
        {"image.json": str(image), "s3://bucket/prefix": "memory://page-of-images"}.get(each, each) for each in words
    ]
    found = CliRunner().invoke(main, [*filled[1:], "--output", "json"])
    assert found.exit_code == 0, found.output
    assert [each["object_id"] for each in json.loads(found.stdout)["objects"]] == [11]
    assert "0 requests" in CliRunner().invoke(main, filled[1:]).output


def test_the_first_table_of_the_readme_is_what_the_demo_prints(tmp_path: Path) -> None:
    """In a folder, which takes a fifth of the time; the first line says where the objects are.

    The catalog has random ids and times, so its size differs by some bytes, and is close to what is shown as 5.8 KiB.
    """
    shown = next(block.text for block in blocks(ROOT / "README.md", "text") if "issue 2731" in block.text)
    found = CliRunner().invoke(main, ["demo", "--quiet", "--store", f"file://{tmp_path}"])
    assert found.exit_code == 0
    shortened = found.stdout.replace("7 requests, 5.8 KiB;", "7 requests, 5.7 KiB;")
    lines = [" ".join(line.split()) for line in shortened.splitlines() if line.strip()]
    expected = [" ".join(line.split()) for line in shown.splitlines()[1:] if line.strip()]
    assert expected[0] in lines
    first = lines.index(expected[0])
    assert lines[first : first + len(expected)] == expected


def without_times(text: str) -> list[str]:
    """The lines without what differs from run to run: times, and the spaces that make room for them."""
    return [" ".join(_TIME.sub("TIME", line).split()) for line in text.strip().splitlines()]


def test_the_exit_codes_of_the_operations_page_are_those_of_the_command_line() -> None:
    _, _, text = page_named("operations").read_text().partition("\n## Exit codes\n")
    codes = {int(code) for code in re.findall(r"^- (\d): ", text, re.MULTILINE)}
    assert codes == {0, EXIT_FAILURE, EXIT_USAGE, EXIT_PROBLEMS, EXIT_PARTIAL}


JOBS = page_named("schedule")


def from_cron() -> Iterator[list[str]]:
    for block in blocks(JOBS, "crontab"):
        for line in block.text.splitlines():
            minute, *others = line.split()[:5]
            assert minute.isdigit()
            assert others == ["*"] * 4
            words = shlex.split(line.partition(" >> ")[0])
            yield words[words.index("accel") :]


def from_kubernetes() -> Iterator[list[str]]:
    for block in blocks(JOBS, "yaml"):
        job = yaml.safe_load(block.text)
        assert (job["apiVersion"], job["kind"], job["spec"]["concurrencyPolicy"]) == ("batch/v1", "CronJob", "Forbid")
        [container] = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
        yield container["command"]


def from_python(package: str) -> Iterator[list[str]]:
    for block in blocks(JOBS, "py"):
        tree = ast.parse(block.text)
        if not any(isinstance(each, ast.ImportFrom) and (each.module or "").startswith(package) for each in tree.body):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.List) and node.elts and ast.unparse(node.elts[0]) == "'accel'":
                yield ast.literal_eval(node)
            elif isinstance(node, ast.Constant) and str(node.value).startswith("accel "):
                yield shlex.split(str(node.value))


@pytest.mark.parametrize(
    "found",
    [from_cron(), from_kubernetes(), from_python("airflow"), from_python("dagster")],
    ids=["cron", "Kubernetes", "Airflow", "Dagster"],
)
def test_a_snippet_names_a_command_that_takes_its_options(found: Iterator[list[str]]) -> None:
    [words] = list(found)
    assert words[:3] == ["accel", "catalog", "run-all"]
    context = click.Context(main)
    group = main.get_command(context, words[1])
    assert isinstance(group, click.Group)
    command = group.get_command(context, words[2])
    assert command is not None
    with command.make_context("run-all", words[3:], parent=context) as parsed:
        assert [parsed.params[each] for each in ("store", "yes", "output")] == ["s3://bucket/prefix", True, "json"]
