"""What must be true of a stream once nobody is at work and somebody has recovered it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accel.history.rules.states import StreamState
from accel.history.rules.transactions import TransactionStatus
from tests.accel.history.store.bench import NAME, Bench
from tests.conformance.history_queries import everything

if TYPE_CHECKING:
    from accel.history.store import Stream


def check_sound(bench: Bench) -> None:
    """Everything agrees once the stream is recovered, and it can be scaled."""
    stream = bench.stream()
    stream.recover()
    assert stream.recover() == []
    everything(bench)
    state = stream.state()
    assert state in (StreamState.ACTIVE, StreamState.SEALED)
    _check_host(bench, stream)
    _check_transactions(bench, stream)
    if state is StreamState.ACTIVE:
        epoch = stream.current_epoch().epoch
        bench.scale_once()
        assert stream.current_epoch().epoch == epoch + 1
        assert stream.recover() == []
        assert stream.requests() == []


def _check_host(bench: Bench, stream: Stream) -> None:
    records = stream.epochs.between(0, stream.current_epoch().epoch)
    known = {each for record in records for each in record.segments.ids.tolist()}
    deleted = {each for part in stream.cuts.deleted() for each in part.ids.tolist()}
    assert not stream.truncation().updating
    assert set(bench.host.ids(NAME)) == known - deleted
    active = set() if stream.state() is StreamState.SEALED else set(stream.active_segments().ids.tolist())
    for each in known - deleted - active:
        assert stream.cuts.sealed_size(each) == bench.host._sizes[NAME, each], each
        assert (NAME, each) in bench.host._sealed


def _check_transactions(bench: Bench, stream: Stream) -> None:
    epochs = [set(each.segments.ids.tolist()) for each in stream.epochs.between(0, stream.current_epoch().epoch)]
    for name, transaction in bench.transactions.items():
        merged = bench.host._merged.get((NAME, transaction))
        if stream.transactions.status(transaction) is TransactionStatus.COMMITTED:
            assert merged is not None, name
            assert set(merged) in epochs, name
        else:
            assert merged is None, name
