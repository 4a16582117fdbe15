"""What is wrong with the histories of a run: all that is not linearizable, and all that ended as nothing may end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from tests.linearizability.checker import check
from tests.linearizability.histories import History, Operation, Outcome
from tests.linearizability.models import MODELS

SHOWN_MAX = 12


def problems(history: History) -> list[str]:
    """One sentence each, with the operations beside it."""
    found = [f"no operation may end so: {each}" for each in history.operations if each.outcome is Outcome.BROKEN]
    for key, operations in sorted(by_key(history).items()):
        kind = key.partition(":")[0]
        if kind in MODELS:
            checked = check(MODELS[kind], operations)
            if checked.obstacle is not None:
                found.append(f"{key} is not linearizable: {_shown(operations, checked.obstacle, checked.state)}")
    return [*found, *_ambiguous_offsets(history)]


def by_key(history: History) -> dict[str, list[Operation]]:
    """The operations that tell something, by the object that they are of."""
    found = defaultdict(list)
    for each in history.operations:
        if each.outcome not in (Outcome.FAILED, Outcome.BROKEN):
            found[each.key].append(each)
    return found


def counts(history: History) -> Counter[str]:
    """How many operations were checked."""
    checked = {key: each for key, each in by_key(history).items() if key.partition(":")[0] in MODELS}
    return Counter(
        {
            "operations on keys of tables": sum(len(each) for key, each in checked.items() if key.startswith("key:")),
            "operations on streams": sum(len(each) for key, each in checked.items() if not key.startswith("key:")),
            "operations without an end": sum(not each.has_ended for ops in checked.values() for each in ops),
        }
    )


def _shown(operations: Iterable[Operation], obstacle: Operation, state: object) -> str:
    beside = [
        each
        for each in operations
        if each.began_seconds <= obstacle.ended_seconds and each.ended_seconds >= obstacle.began_seconds - 1
    ]
    beside.sort(key=lambda each: each.began_seconds)
    shown = "\n    ".join(map(str, beside[-SHOWN_MAX:]))
    return f"after {state} nothing explains\n    {obstacle}\n  beside\n    {shown}"


def _ambiguous_offsets(history: History) -> Iterable[str]:
    """All reads of an offset return the same."""
    first: dict[tuple[str, int], str] = {}
    for operation in history.operations:
        if operation.key.startswith("end:") and len(operation.found) > 2:
            for label in operation.found[2]:
                offset = int(label.split(":")[1].partition("-")[0])
                known = first.setdefault((operation.key, offset), label)
                if known != label:
                    yield f"{operation.key}: {known} was read, and {label} in its place"
