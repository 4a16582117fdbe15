"""What a person is told who asks a history for something that it does not have, or may not do."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from uuid import UUID

import pytest

from accel.errors import HistoryError, IllegalState, NotInHistory, ScaleConflict, ScalePrecondition, Sought
from accel.history.rules.scaling import ScaleRequest
from accel.history.rules.segments import KeyRanges
from tests.accel.history.store.bench import Bench, cut, ids
from tests.conformance.history_world import SCOPE, STREAM
from tests.conformance.steps import begin_scale

Ask = Callable[[Bench], object]

NOBODY = UUID(int=7)
MISSING = ids("7@0")[0]

ASKED: dict[str, tuple[Ask, Sought]] = {
    "a scope": (lambda bench: list(bench.streams().streams("none")), Sought.SCOPE),
    "a scope to list page by page": (lambda bench: bench.streams().list_streams("none"), Sought.SCOPE),
    "a scope to run retention in": (lambda bench: bench.streams().run_retention("none"), Sought.SCOPE),
    "a scope to recover": (lambda bench: bench.streams().recover("none"), Sought.SCOPE),
    "a scope to create in": (lambda bench: bench.streams().create_stream("none", STREAM), Sought.SCOPE),
    "a stream": (lambda bench: bench.streams().stream(SCOPE, "none"), Sought.STREAM),
    "an epoch": (lambda bench: bench.stream().epochs.epoch(9), Sought.EPOCH),
    "epochs": (lambda bench: list(bench.stream().epochs.between(0, 9)), Sought.EPOCH),
    "a segment": (lambda bench: bench.stream().epochs.segment(MISSING), Sought.SEGMENT),
    "a segment of no epoch": (lambda bench: bench.stream().epochs.segment(ids("7@9")[0]), Sought.SEGMENT),
    "successors": (lambda bench: bench.stream().epochs.successors(MISSING), Sought.SEGMENT),
    "predecessors": (lambda bench: bench.stream().epochs.predecessors(MISSING), Sought.SEGMENT),
    "a segment's stream": (lambda bench: bench.stream().segment_stream(MISSING), Sought.SEGMENT),
    "a segment of a cut": (lambda bench: bench.stream().cuts.span({MISSING: 1}), Sought.SEGMENT),
    "a recorded cut": (lambda bench: bench.stream().retention.cut(77), Sought.CUT),
    "a transaction to commit": (
        lambda bench: bench.stream().transactions.seal(NOBODY, commit=True),
        Sought.TRANSACTION,
    ),
    "a transaction to abort": (lambda bench: bench.stream().transactions.abort(NOBODY), Sought.TRANSACTION),
    "a transaction to ping": (lambda bench: bench.stream().transactions.ping(NOBODY, 9), Sought.TRANSACTION),
    "a transaction to end": (lambda bench: bench.stream().workflows.transactions.end(NOBODY), Sought.TRANSACTION),
}


@pytest.mark.parametrize("what", ASKED)
def test_who_asks_for_what_is_not_there_is_told_where_to_find_what_is(bench: Bench, what: str) -> None:
    ask, sought = ASKED[what]
    with pytest.raises(NotInHistory) as caught:
        ask(bench)
    assert (caught.value.sought, caught.value.advice) == (sought, sought.value)


def test_a_cut_of_segments_of_no_epoch_names_a_segment(bench: Bench) -> None:
    with pytest.raises(HistoryError) as caught:
        bench.stream().cuts.compare(cut(s7_9=1), cut(s0_0=1))
    assert caught.value.advice == Sought.SEGMENT.value


def test_advice_goes_with_an_error_to_another_process() -> None:
    error = NotInHistory("expected a cut", Sought.CUT)
    copied = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (str(copied), copied.sought, copied.advice) == (str(error), error.sought, error.advice)
    assert NotInHistory("expected an epoch").advice == NotInHistory.advice == Sought.EPOCH.value


def submitted(bench: Bench) -> object:
    request = ScaleRequest((0,), KeyRanges.of([(0.0, 0.5)]), bench.now_ms)
    begin_scale(bench.stream(), request)
    return bench.stream().scale([1], [(0.5, 1.0)])


@pytest.mark.parametrize(
    ("act", "error", "advice"),
    [
        (lambda bench: bench.streams().delete_scope(SCOPE), IllegalState, "a scope is emptied"),
        (lambda bench: bench.streams().delete_stream(SCOPE, STREAM), IllegalState, "is sealed before it is deleted"),
        (lambda bench: bench.stream().scale([MISSING], [(0.0, 0.5)]), ScalePrecondition, "accel stream segments"),
        (submitted, ScaleConflict, "accel stream recover"),
    ],
)
def test_advice_fits_what_was_refused(bench: Bench, act: Ask, error: type[HistoryError], advice: str) -> None:
    with pytest.raises(error) as caught:
        act(bench)
    assert advice in caught.value.advice
