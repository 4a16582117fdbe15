"""The command: see the package."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.conformance import answers, get_objects, objects, stream_history, time_order
from tests.conformance.report import Report


def main(arguments: list[str]) -> int:
    """Run all files named, or below the folders named; returns the exit code."""
    if not arguments:
        sys.stderr.write("usage: python -m tests.conformance FILE_OR_DIR ...\n")
        return 2
    total = Report()
    for path in _files(arguments):
        report = run_file(path)
        for line in report.failures:
            sys.stdout.write(f"{line}\n")
        total.merge(report)
    sys.stdout.write(f"{total.passed} passed, {len(total.failures)} failed\n")
    return 1 if total.failures or not total.passed else 0


def run_file(path: Path) -> Report:
    """Run one file of a known format."""
    report = Report()
    with report.check(f"{path}: read"):
        data = json.loads(path.read_bytes())
        _runner(data)(path, data, report)
    report.passed -= not report.failures  # being readable is no result of its own
    return report


def _runner(data: Any) -> Callable[[Path, Any, Report], None]:
    if isinstance(data, dict) and {"objects", "corrupt"} <= data.keys():
        return objects.run
    cases = data.get("cases") if isinstance(data, dict) else None
    if isinstance(cases, list) and cases and all("streamId" in case for case in cases):
        return answers.run
    if isinstance(cases, list) and cases and all(case.get("kind") in get_objects.KINDS for case in cases):
        return get_objects.run
    if stream_history.is_history(data):
        return stream_history.run
    if time_order.is_time_order(data):
        return time_order.run
    raise ValueError(
        "expected cases of lookups, histories or time order, or objects with their answers, found another format"
    )


def _files(arguments: list[str]) -> Iterator[Path]:
    for argument in arguments:
        path = Path(argument)
        yield from sorted(path.rglob("*.json")) if path.is_dir() else [path]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
