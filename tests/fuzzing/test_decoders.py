"""Every decoder: a right answer or an error of ours, within ten times the memory; and none that nobody registered."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.counting import ROOT, parsed
from tests.examples import examples
from tests.fuzzing import corpus
from tests.fuzzing.judging import Verdict, check_memory, judge
from tests.fuzzing.registry import NO_DECODERS, decoders
from tests.fuzzing.running import expected_values, run

PACKAGES = ("accel", "bloom", "range_index", "loaders", "spark_jobs")
MUTANTS = 800

_LOOKS_LIKE_ONE = re.compile(
    r"(decode|parse|unpack|open)(_\w+)?|from_(bytes|json|dict|arrow|mapping|columns)|read_(cut|automq|file|image)"
    r"|load_(image_file|plugin)|\w+_from_json|entry_of"
)
_DEFINED = re.compile(r"\bdef (\w+)")
_BY_ANOTHER_NAME = {"loaders.layout:Mark.of"}


@pytest.mark.parametrize("name", sorted(decoders()))
def test_the_corpus_is_read_as_ever_and_what_once_failed_is_refused_or_right(name: str) -> None:
    decoder = decoders()[name]
    assert corpus.seeds(name).keys() >= decoder.seeds().keys()
    for seed, data in corpus.inputs(name).items():
        assert len(data) <= corpus.FILE_SIZE_BYTES_MAX
        verdict = judge(decoder, data)
        assert seed.startswith("found-") or verdict is Verdict.OTHER
        check_memory(decoder, data)


@pytest.mark.parametrize("name", sorted(decoders()))
def test_mutants_are_refused_by_errors_of_ours_or_read_rightly(name: str) -> None:
    decoder, seeds = decoders()[name], corpus.seeds(name)
    inputs = list(corpus.inputs(name).values())
    figures = run(decoder, inputs, expected_values(decoder, seeds), Random(name), examples(MUTANTS))
    assert figures.defects == {}
    assert figures.inputs == examples(MUTANTS)


def public_functions(path: Path) -> Iterator[str]:
    """Functions and methods without an underscore, by qualified names."""
    for node in parsed(path).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{node.name}.{inner.name}"


def that_look_like_decoders() -> set[str]:
    """Public functions whose names say that they read bytes or texts, as "module:qualified name"."""
    found = set(_BY_ANOTHER_NAME)
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            if any(map(_LOOKS_LIKE_ONE.fullmatch, _DEFINED.findall(path.read_text()))):
                names = public_functions(path)
                found |= {f"{module}:{each}" for each in names if _LOOKS_LIKE_ONE.fullmatch(each.rpartition(".")[2])}
    return found


def test_every_decoder_is_registered_or_it_is_said_why_it_is_none() -> None:
    registered = {function for decoder in decoders().values() for function in decoder.functions}
    found = that_look_like_decoders()
    assert found - registered - NO_DECODERS.keys() == set()
    assert registered - found == set(), "registered, and not there, or not found by its name"
    assert NO_DECODERS.keys() - found == set(), "an exception for what is not there"
    assert NO_DECODERS.keys() & registered == set()
