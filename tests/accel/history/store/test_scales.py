"""Scales, what others leave with a stream meanwhile, and who has to wait."""

from __future__ import annotations

from uuid import UUID

import pytest

from accel.errors import InvalidArgument, ScalePrecondition
from accel.history.rules import scaling
from accel.history.rules.configuration import OffsetUnit, StreamConfiguration
from accel.history.rules.requests import RequestStatus
from accel.history.rules.scaling import ScaleRequest
from accel.history.rules.segments import KeyRanges, split_range
from accel.history.rules.states import StreamState
from tests.accel.history.store.bench import SETTINGS, START_MS, Bench, ids


def request(*names: str, ranges: list[tuple[float, float]], time_ms: int = START_MS + 1) -> ScaleRequest:
    return ScaleRequest(tuple(ids(*names)), KeyRanges.of(ranges), time_ms)


# Scaling


def test_a_scale_without_room_in_its_chunk_is_refused_before_anything_is_written(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling, "CHUNK_ROWS_MAX", 8 * SETTINGS.layout.chunk_size)
    stream, before = bench.stream(), bench.live_keys()
    with pytest.raises(ScalePrecondition, match="at most 14 segments sealed and created before epoch 2, found 21"):
        stream.scale(ids("0@0"), list(split_range(0.0, 0.5, 20)))
    assert bench.live_keys() == before
    assert stream.scale(ids("0@0"), list(split_range(0.0, 0.5, 13))).epoch == 1


def test_a_scale_that_a_commit_overtook_goes_on_if_a_person_asked_for_it(bench: Bench) -> None:
    """Pitfall D7: the transition from before a roll was carried out, and met a conflict over stale segments."""
    done = bench.stream().carry_out_request(overtaken(bench, is_manual=True))
    assert done.status is RequestStatus.DONE
    assert bench.stream().active_segments().ids.tolist() == ids("2@3", "3@4")


def test_a_scale_that_a_commit_overtook_is_dropped_if_nobody_did(bench: Bench) -> None:
    """Pitfall A3: after a roll, a scale by load was applied to the epoch before it (pravega issue 2690)."""
    stream = bench.stream()
    refused = stream.carry_out_request(overtaken(bench, is_manual=False))
    assert refused.status is RequestStatus.REFUSED
    assert (stream.state(), stream.current_epoch().epoch) == (StreamState.ACTIVE, 3)
    with pytest.raises(ScalePrecondition):
        stream.scale(ids("1@0"), [(0.5, 1.0)], bench.tick(), is_manual=False)


def overtaken(bench: Bench, *, is_manual: bool) -> UUID:
    """A scale was asked for in epoch 1, and before it began a commit led to epoch 3."""
    bench.transaction("first")
    bench.scale_once()
    asked = bench.stream().request_scale(ids("1@0"), [(0.5, 1.0)], bench.tick(), is_manual=is_manual)
    bench.stream().commit(bench.tick())
    return asked


# Workflows exclude each other


def test_a_configuration_keeps_its_offset_unit(bench: Bench) -> None:
    with pytest.raises(InvalidArgument, match="offset unit"):
        bench.stream().configure(StreamConfiguration(offset_unit=OffsetUnit.BYTES))
    bench.stream().configure(StreamConfiguration(min_segments=2, tags=("a",)))
    assert bench.stream().configuration() == StreamConfiguration(min_segments=2, tags=("a",))
    assert bench.stream().state() is StreamState.ACTIVE
    with pytest.raises(ScalePrecondition):
        bench.stream().scale(ids("0@0", "1@0"), [(0.0, 1.0)])
