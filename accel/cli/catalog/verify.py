"""`accel catalog verify`: is the catalog of a bucket true?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

import click

from accel.catalog import ObjectCatalog
from accel.catalog.problems import Severity
from accel.catalog.verify import NOT_LOOKED_AT, Outcome, Verification
from accel.catalog.verify import verify as verify_catalog
from accel.cli.objects.verify import EXIT_PROBLEMS
from accel.cli.options import StoreChoice, examples, output_options, store_options
from accel.lookup.explain import count_text
from accel.rendering import Output, Rendered
from accel.units import age_text, size_text

SHOWN_MAX = 100
"""Problems, and things that could not be checked, that a person is shown."""

ORPHANS_SHOWN_MAX = 10

EXIT_CODES = {Outcome.CLEAN: 0, Outcome.ADVICE: 0, Outcome.PROBLEMS: EXIT_PROBLEMS, Outcome.NOT_CHECKED: 1}
"""What the command ends with."""


@dataclass(frozen=True, slots=True)
class ShownVerification:
    """What a verification found, and what it took."""

    found: Verification
    requests: int
    bytes_read: int
    is_quiet: bool

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        counts = dict(self.found.counts)
        orphans: dict[str, Any] = {"objects": counts.pop("orphans"), "bytes": counts.pop("orphan_bytes")}
        orphans["oldest"] = [asdict(each) for each in self.found.orphans]
        return {
            "outcome": self.found.outcome.value,
            "checked": counts,
            "problems": [{**asdict(each), "severity": each.severity.value} for each in self.found.problems],
            "unchecked": [asdict(each) for each in self.found.unchecked],
            "not_looked_at": list(NOT_LOOKED_AT),
            "orphans": orphans if self.found.are_orphans_known else None,
            "requests": self.requests,
            "bytes": self.bytes_read,
        }

    def render(self) -> Iterator[Rendered]:
        """Two lines a problem, one an orphan, and a sentence; nothing if all is well and nobody wants to hear of it."""
        if self.is_quiet and self.found.outcome is Outcome.CLEAN:
            return
        for problem in self.found.problems[:SHOWN_MAX]:
            is_damage = problem.severity is Severity.DAMAGE
            yield f"{problem.kind.upper() if is_damage else problem.kind:<14}{problem.where}"
            yield f"              expected {problem.expected}, found {problem.found}"
        yield from _left_out(len(self.found.problems), SHOWN_MAX, "problems")
        for each in self.found.unchecked[:SHOWN_MAX]:
            yield f"UNCHECKED     {each.where}"
            yield f"              {each.reason}"
        yield from _left_out(len(self.found.unchecked), SHOWN_MAX, "things that could not be checked")
        yield from self._orphan_lines()
        yield from (f"not looked at {each}" for each in NOT_LOOKED_AT)
        yield self._sentence()

    def _orphan_lines(self) -> Iterator[str]:
        for each in self.found.orphans[:ORPHANS_SHOWN_MAX]:
            what = f"object {each.object_id} at {each.key}"
            yield f"orphan        {what}: {size_text(each.size_bytes)}, {age_text(each.age_seconds)} old"
        yield from _left_out(self.found.counts["orphans"], ORPHANS_SHOWN_MAX, "orphans, not as old")

    def _sentence(self) -> str:
        counts = self.found.counts
        lists = f"{count_text(counts['lists'], 'list')}, {count_text(counts['buckets'], 'bucket')} of streams"
        objects = f"{count_text(counts['objects'], 'object')} of {size_text(counts['bytes'])}"
        cost = f"{count_text(self.requests, 'request')}, {size_text(self.bytes_read)}"
        orphans = f"{count_text(counts['orphans'], 'orphan')} of {size_text(counts['orphan_bytes'])}"
        orphans = orphans if self.found.are_orphans_known else "orphans not counted"
        damage = len(self.found.damage)
        advice = len(self.found.problems) - damage
        said = count_text(damage, "problem") if damage else "no problem"
        if advice:
            said += f", {advice} to look after"
        if self.found.unchecked:
            said += f", {len(self.found.unchecked)} could not be checked"
        return f"{lists}, {objects} checked ({cost}): {said}, {orphans}"


@click.command(
    short_help="Check a catalog against itself and its bucket.",
    epilog=examples(
        "accel catalog verify --store s3://bucket", "accel catalog verify --store s3://bucket --output json"
    ),
)
@store_options
@output_options
@click.pass_context
def verify(ctx: click.Context, *, store: StoreChoice, output: Output) -> None:
    """Check a whole catalog: its lists, its streams, and every object that is live. Nothing is written.

    Each live object exists with its size, its checksum and a readable index; the offsets of each stream ascend through
    a node's list and reach as far as other keys know; no object is live in two places or both live and retired; no key
    is behind what others say of it. Objects that stand nowhere in the catalog are told with their age; they are no
    problem. What it cannot see is named, too. Ends with 3 if there is damage (in capital letters), else with 1 if
    something could not be checked; advice (in small letters) ends with 0.
    """
    opened = store.open(output)
    with ObjectCatalog.open(opened) as catalog, ExitStack() as stack:
        found = verify_catalog(catalog, progress=VerificationBar(output, stack))
    total = opened.snapshot().total
    output.show(ShownVerification(found, total.requests, total.received_bytes, output.is_quiet))
    ctx.exit(EXIT_CODES[found.outcome])


class VerificationBar:
    """A bar that learns from its first step how long it has to be. Threads: one.

    Args:
        output: shows it.
        stack: takes it away.
    """

    def __init__(self, output: Output, stack: ExitStack) -> None:
        self._output = output
        self._stack = stack
        self._advance: Any = None

    def __call__(self, done: int, total: int) -> None:
        """One more object."""
        del done
        if self._advance is None:
            self._advance = self._stack.enter_context(self._output.progress("verifying", total))
        self._advance()


def _left_out(count: int, shown: int, what: str) -> Iterator[str]:
    if count > shown:
        yield f"              … and {count - shown} more {what}"
