"""What each extra is for, as questions that only an environment with it can answer, and what is said without it.

A question is a command of `accel`, or Python; see `tests.wheel.inside`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.wheel.environments import CommandFailed, Environment

FOLDER = "FOLDER"
"""In a question: the folder of the environment."""

INSIDE = Path(__file__).with_name("inside.py")


@dataclass(frozen=True, slots=True)
class Question:
    """One question.

    Args:
        text: as `tests.wheel.inside` takes it.
        answer: what its answer has to contain, with the extra.
        refusal: what it has to contain without it; empty if the question is not asked then.
    """

    text: str
    answer: str
    refusal: str = ""


_ARROW = """
import numpy
from accel.streams.rules.events import EventBatch
print(EventBatch(1, 2, numpy.array([0, 1]), b"tea", numpy.array([0, 3])).to_arrow().num_rows, "row")
"""
_S3 = """
from accel.cli.embedded_s3 import embedded_s3
with embedded_s3() as url:
    print(url)
"""
_CONNECT = """
from spark_jobs.session import SparkNotStarted, start_session
try:
    start_session("sc://127.0.0.1:9")
except SparkNotStarted as error:
    print(error)
"""
_JAVA = """
from pathlib import Path
from spark_jobs.session import find_java_home, java_version
home = find_java_home({"PATH": ""})
print("Java", java_version(str(Path(home, "bin", "java"))) >= 17)
"""

BASE = (
    Question("accel --version", "accel 0."),
    Question("accel --help", "get-objects"),
    Question("accel catalog compact --help", "--spark"),
    Question("import spark_jobs.submit as s; print(s.__file__)", "submit.py"),
    Question("accel doctor memory://wheel", "If-None-Match and If-Match work"),
    Question("accel demo --store file://FOLDER/store --quiet", "same answer"),
)
"""What needs no extra."""

EXTRAS: dict[str, tuple[Question, ...]] = {
    "server": (
        Question("import accel.server as server; print(server.sidecar_app.__name__)", "sidecar_app", "[server]'"),
        Question("accel serve memory://wheel --tls-cert README.md", "'--tls-key' together", "[server]'"),
    ),
    "metrics": (
        Question("import accel.metrics; print(accel.metrics.AccelCollector.__name__)", "AccelCollector", "[metrics]'"),
    ),
    "obstore": (
        Question(
            "accel doctor s3://bucket --client obstore --endpoint-url http://127.0.0.1:9 --no-sign-request",
            "exit 3",
            "[obstore]'",
        ),
    ),
    "arrow": (Question(_ARROW, "1 row", "[arrow]'"),),
    "demo": (Question(_S3, "http://127.0.0.1:", "[demo]'"),),
    "spark": (
        Question("import spark_jobs.session as s; print(s.active_session())", "None", "[spark]'"),
        Question("accel catalog compact file://FOLDER/none --spark --dry-run", "accel catalog init", "[spark]'"),
        Question(_JAVA, "[spark,jvm]'"),
    ),
    "spark,jvm": (Question(_JAVA, "Java True"),),
    "connect": (Question(_CONNECT, "nothing accepts a connection", "[spark]'"),),
}
"""What needs an extra."""

BROUGHT = {
    "server": {"starlette", "uvicorn"},
    "metrics": {"prometheus_client"},
    "obstore": {"obstore"},
    "arrow": {"pyarrow"},
    "demo": {"moto", "werkzeug"},
    "spark": {"pyspark", "py4j", "pyarrow"},
    "spark,jvm": {"pyspark", "py4j", "pyarrow"},
    "connect": {"pyspark", "py4j", "pyarrow", "grpc"},
}
"""What our modules import of each extra: without it, this is what they miss."""


def faults(environment: Environment, questions: Iterable[Question], *, extra: str | None, imports: bool) -> list[str]:
    """What is wrong in an environment; a line each.

    Args:
        environment: asked.
        questions: what.
        extra: the one that it has, "" for none; None asks for refusals.
        imports: whether every module is to be imported, too.
    """
    asked = {each.text.replace(FOLDER, str(environment.folder)): each for each in questions}
    words = ["--imports"] if imports else []
    done = environment.run("python", INSIDE, *words, *asked)
    if done.returncode:
        raise CommandFailed(f"expected answers, found {done.stderr[-2000:]}")
    found = json.loads(done.stdout)
    said = found["answers"]
    wrong = [
        f"{text!r}: expected {expected!r}, found {said[text]!r}"
        for text, each in asked.items()
        if (expected := each.refusal if extra is None else each.answer) not in said[text]
    ]
    strange = {name: place for name, place in found["places"].items() if place != str(environment.site)}
    return [*wrong, *(f"{name} lies at {place}" for name, place in strange.items()), *_unexpected(found, extra or "")]


def _unexpected(found: dict[str, dict[str, str]], extra: str) -> list[str]:
    elsewhere = set().union(*BROUGHT.values()) - BROUGHT.get(extra, set())
    missing = found.get("missing", {})
    return [f"{module} could not import {name!r}" for module, name in missing.items() if name not in elsewhere]
