"""Capacity of a chunk of history: what was let in always fits, and what has the usual size is always let in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.errors import ScalePrecondition
from accel.history.rules.epochs import HistoryChunk
from accel.history.rules.scaling import CHUNK_ROWS_MAX, ScaleRequest, chunk_capacity_left, needs_look, refuse_crowded
from accel.history.rules.segments import NO_SEGMENTS, KeyRanges, Segments
from accel.history.rules.values import make_id
from loaders.tables.columns import ROWS_MAX


def request(sealed: int, created: int) -> ScaleRequest:
    bounds = [each / created for each in range(created)] + [1.0]
    return ScaleRequest(tuple(range(sealed)), KeyRanges(bounds[:-1], bounds[1:]), 1)


def chunk_of(created: int, chunk_size: int) -> HistoryChunk:
    """The first epoch of a stream that is that large; the chunk may have been large enough for it."""
    keys = [each / created for each in range(created)] + [1.0]
    segments = Segments.make([make_id(0, each) for each in range(created)], 1, keys[:-1], keys[1:])
    assert created <= chunk_capacity_left(0, 0, chunk_size)
    return HistoryChunk(0, [0], [1], sealed=NO_SEGMENTS, sealed_stops=[0], created=segments, created_stops=[created])


@given(st.integers(1, 3000), st.data())
def test_whatever_is_let_in_fits_and_an_epochs_share_is_always_let_in(chunk_size: int, data: st.DataObject) -> None:
    share = CHUNK_ROWS_MAX // 4 // chunk_size
    taken = 0
    for epoch in range(chunk_size, chunk_size + min(chunk_size, 12)):
        capacity = chunk_capacity_left(taken, epoch, chunk_size)
        assert capacity >= share
        taken += data.draw(st.sampled_from((capacity, share, capacity // 2)))
    to_come = chunk_size - min(chunk_size, 12)
    assert taken + to_come * share <= CHUNK_ROWS_MAX == ROWS_MAX


def test_only_a_large_scale_needs_a_look_at_its_chunk() -> None:
    assert not needs_look(request(2, 260), 1000)
    assert needs_look(request(2, 261), 1000)
    assert needs_look(request(1, 1), 1_000_000)


def test_a_scale_that_fits_no_more_is_refused_with_what_would_fit() -> None:
    full = chunk_of(750_000, 1000)
    left = CHUNK_ROWS_MAX - 750_000 - 998 * 262
    refuse_crowded(request(1, left - 1), 1, full, 1000)
    with pytest.raises(ScalePrecondition, match=f"at most {left} segments .* before epoch 1000, found {left + 1}"):
        refuse_crowded(request(1, left), 1, full, 1000)


def test_a_new_chunk_is_empty() -> None:
    refuse_crowded(request(1, 700_000), 1000, None, 1000)
