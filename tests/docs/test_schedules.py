"""The snippets of docs/how-to/jobs.md for schedulers can be read, and name a command with options that it has."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterator

import click
import pytest
import yaml

from accel.cli.main import main
from tests.docs.pages import blocks, page_named

PAGE = page_named("jobs")


def from_cron() -> Iterator[list[str]]:
    for block in blocks(PAGE, "crontab"):
        for line in block.text.splitlines():
            minute, *others = line.split()[:5]
            assert minute.isdigit()
            assert others == ["*"] * 4
            words = shlex.split(line.partition(" >> ")[0])
            yield words[words.index("accel") :]


def from_kubernetes() -> Iterator[list[str]]:
    for block in blocks(PAGE, "yaml"):
        job = yaml.safe_load(block.text)
        assert (job["apiVersion"], job["kind"], job["spec"]["concurrencyPolicy"]) == ("batch/v1", "CronJob", "Forbid")
        [container] = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
        yield container["command"]


def from_python(package: str) -> Iterator[list[str]]:
    for block in blocks(PAGE, "py"):
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
        assert (parsed.params["store"], parsed.params["yes"], parsed.params["output"]) == (
            *("s3://bucket/prefix", True),
            "json",
        )
