"""Many mutants of one decoder's inputs, and what they came to; and of all decoders, in several processes.

Threads: none is shared; each run is a function of its seed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from multiprocessing import get_context
from random import Random

from tests.fuzzing import corpus
from tests.fuzzing.judging import SECONDS_A_KILOBYTE, Decoder, Defect, Verdict, check_memory, judge, plain
from tests.fuzzing.mutations import BLIND, TEXTUAL, damaged
from tests.fuzzing.registry import decoders

MEMORY_EVERY = 50
"""Memory is counted for one input of so many."""

TIME_FACTOR = 20
"""A machine at work may take so many times as long."""

DEFECTS_MAX = 20


@dataclass(slots=True)
class Figures:
    """What inputs came to. Threads: one at a time.

    Args:
        verdicts: inputs by what they came to.
        silent: mutants of which a checksum should have told, and which were read as another value.
        defects: what each says, with its input; the first of each kind.
    """

    verdicts: Counter[Verdict] = field(default_factory=Counter)
    silent: int = 0
    defects: dict[str, tuple[str, bytes]] = field(default_factory=dict)

    @property
    def inputs(self) -> int:
        """All inputs that came to something."""
        return sum(self.verdicts.values())

    def add(self, other: Figures) -> None:
        """Take in those of another run."""
        self.verdicts += other.verdicts
        self.silent += other.silent
        self.defects.update(other.defects)


def mutant(rng: Random, decoder: Decoder, inputs: Sequence[bytes]) -> tuple[bytes, bool]:
    """A changed input, and whether its checksums were repaired, so that inner checks are reached."""
    data = rng.choice(inputs)
    if decoder.change is not None and rng.random() < 0.6:
        return decoder.change(rng, data), True
    changed = damaged(rng, data, inputs, TEXTUAL if decoder.is_text else BLIND)
    if decoder.seal is not None and rng.random() < 0.6:
        return decoder.seal(changed), True
    return changed, False


def expected_values(decoder: Decoder, seeds: Mapping[str, bytes]) -> frozenset[object]:
    """What the seeds are read as; one that is not read is an error of the corpus."""
    return frozenset(plain(decoder.read(data)) for data in seeds.values())


def run(
    decoder: Decoder,
    inputs: Sequence[bytes],
    expected: frozenset[object],
    rng: Random,
    count: int,
    *,
    cpu_seconds: Callable[[], float] | None = None,
) -> Figures:
    """Try mutants.

    Args:
        decoder: what reads them.
        inputs: what they are made of.
        expected: what counts as unchanged.
        rng: the seed of it all.
        count: how many.
        cpu_seconds: a clock of CPU time; None: nothing is said about time.
    """
    figures = Figures()
    for number in range(count):
        data, is_sealed = mutant(rng, decoder, inputs)
        try:
            _try(decoder, data, expected, figures, is_sealed=is_sealed, cpu_seconds=cpu_seconds)
            if number % MEMORY_EVERY == 0:
                check_memory(decoder, data)
        except Defect as defect:
            kind = " ".join(str(defect).split()[:6])
            if kind in figures.defects or len(figures.defects) < DEFECTS_MAX:
                figures.defects.setdefault(kind, (str(defect), data))
    return figures


def _try(
    decoder: Decoder,
    data: bytes,
    expected: frozenset[object],
    figures: Figures,
    *,
    is_sealed: bool,
    cpu_seconds: Callable[[], float] | None,
) -> None:
    began = 0.0 if cpu_seconds is None else cpu_seconds()
    verdict = judge(decoder, data, expected)
    if cpu_seconds is not None:
        allowed = TIME_FACTOR * SECONDS_A_KILOBYTE * max(1.0, len(data) / 1024)
        if (took := cpu_seconds() - began) > allowed:
            raise Defect(f"{decoder.name}: expected at most {allowed:.1f} s for {len(data)} bytes, found {took:.1f}")
    figures.verdicts[verdict] += 1
    if verdict is Verdict.OTHER and decoder.is_checked and not is_sealed:
        figures.silent += 1
        raise Defect(f"{decoder.name}: silently read as another value, though a checksum covers all bytes")


CHUNK = 2000
"""Mutants a task: a task is repeated by its seed."""


def try_mutants(name: str, seed: str, count: int) -> tuple[str, Figures]:
    """One task, in a process of its own."""
    decoder = decoders()[name]
    inputs = list(corpus.inputs(name).values())
    expected = expected_values(decoder, corpus.seeds(name))
    return name, run(decoder, inputs, expected, Random(seed), count, cpu_seconds=time.process_time)


def tasks_of(names: Sequence[str], objects: int, seed: str) -> Iterator[tuple[str, str, int]]:
    """Which decoder gets which seed and how many mutants; together at least as many as wanted."""
    each = -(-objects // len(names))
    for at in range(0, each, CHUNK):
        for name in names:
            yield name, f"{seed}/{name}/{at}", min(CHUNK, each - at)


def try_all(tasks: Iterable[tuple[str, str, int]], jobs: int, until: float | None = None) -> dict[str, Figures]:
    """Figures by decoder.

    Args:
        tasks: what to do.
        jobs: processes.
        until: a moment of the timer after which no further task is begun; None: all are.
    """
    found: dict[str, Figures] = {}
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        waiting: set[Future[tuple[str, Figures]]] = set()
        rest = iter(tasks)
        while True:
            while len(waiting) < 2 * jobs and (until is None or time.perf_counter() < until):
                task = next(rest, None)
                if task is None:
                    break
                waiting.add(pool.submit(try_mutants, *task))
            if not waiting:
                return found
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for name, figures in (each.result() for each in done):
                found.setdefault(name, Figures()).add(figures)
