"""Slots of streams, judged against a dictionary."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.compaction.grouping import StreamSlots


@given(st.integers(0, 2**32), st.integers(1, 40), st.sampled_from([300, 3000, 60_000]))
@settings(max_examples=30)
def test_a_stream_gets_the_next_slot_once_and_keeps_it(seed: int, rounds: int, pool: int) -> None:
    rng = np.random.default_rng(seed)
    slots, expected = StreamSlots(), dict[int, int]()
    for _ in range(rounds):
        ids = np.unique(rng.integers(0, pool, rng.integers(0, 1500)))
        found, new = slots.slots_of(ids)
        assert new.tolist() == [each for each in ids.tolist() if each not in expected]
        expected |= {each: len(expected) + at for at, each in enumerate(new.tolist())}
        assert found.tolist() == [expected[each] for each in ids.tolist()]
        assert len(slots) == len(expected)
