"""An offset is found with few probes where records are alike, and never with many."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from range_index.segment_times import UINT64_MAX, RecordBounds, TimeRecords, read
from tests.examples import examples


def of_lengths(lengths: list[int]) -> TimeRecords:
    ends = np.cumsum(np.array(lengths, dtype=np.uint64))
    return TimeRecords(np.stack([ends, ends], axis=1).astype(">u8"))


@pytest.mark.parametrize("records", [1, 2, 3, 10, 1000, 65_536])
@pytest.mark.parametrize("length", [1, 100, 4097])
def test_in_records_of_one_length_three_probes_find_any_offset(records: int, length: int) -> None:
    times = of_lengths([length] * records)
    rng = random.Random(records)
    border = {each * length + by for each in rng.sample(range(records), min(records, 200)) for by in (-1, 0, 1)}
    for offset in border - {-1} | {times.end_offset - 1}:
        found = times.locate(offset)
        assert found.record == offset // length
        assert found.probes <= 3


def skewed(records: int) -> dict[str, list[int]]:
    rng = random.Random(1)
    return {
        "a huge tail": [1] * (records - 1) + [10**9],
        "a huge head": [10**9] + [1] * (records - 1),
        "one huge in the middle": [1] * (records // 2) + [10**12] + [1] * (records - records // 2 - 1),
        "half and half": [1] * (records // 2) + [10**6] * (records - records // 2),
        "growing": [1 + int(1.02**each) for each in range(records)],
        "falling": [1 + int(1.02**each) for each in range(records, 0, -1)],
        "doubling": [2 ** (each % 40) for each in range(records)],
        "heavy tailed": [int(rng.paretovariate(0.5)) for _ in range(records)],
    }


@pytest.mark.parametrize("kind", skewed(2))
@pytest.mark.parametrize("records", [1000, 1001, 2000])
def test_however_skewed_22_probes_find_any_offset_in_thousands_of_records(kind: str, records: int) -> None:
    times = of_lengths(skewed(records)[kind])
    worst = max(times.locate(end - 1).probes for end in times.rows[:, 0].tolist())
    assert worst <= 22


@given(st.lists(st.integers(0, 60).map(lambda bits: 2**bits), min_size=2, max_size=200), st.data())
@settings(max_examples=examples(300))
def test_probes_never_exceed_what_is_promised(lengths: list[int], data: st.DataObject) -> None:
    if sum(lengths) > UINT64_MAX:
        lengths = [1 + length // 2**10 for length in lengths]
    times = of_lengths(lengths)
    offset = data.draw(st.integers(0, times.end_offset - 1))
    found = times.locate(offset)
    assert found.start <= offset < found.end
    assert found[1:3] == (times.start_of(found.record), times.end_of(found.record))
    assert found.probes <= 2 * math.log2(len(lengths)) + 4


@dataclass
class Probed:
    """Records whose reading is counted."""

    inner: TimeRecords
    ends_read: list[int] = field(default_factory=list)

    @property
    def records(self) -> int:
        return self.inner.records

    @property
    def end_offset(self) -> int:
        return self.inner.end_offset

    def end_of(self, record: int) -> int:
        self.ends_read.append(record)
        return self.inner.end_of(record)

    def start_of(self, record: int) -> int:
        self.ends_read.append(record - 1)
        return self.inner.start_of(record)

    def values_of(self, first: int, after: int) -> NDArray[np.uint64]:
        return self.inner.values_of(first, after)

    def bracket(self, offset: int) -> RecordBounds:
        return self.inner.bracket(offset)


def test_a_good_token_makes_a_search_needless() -> None:
    probed = Probed(of_lengths(skewed(1000)["heavy tailed"]))
    start = probed.inner.start_of(500)
    assert read(probed, start, 1, 500).token in (500, 501)
    assert sorted(probed.ends_read) == [499, 500]
    probed.ends_read.clear()
    read(probed, 0, 1)
    assert sorted(probed.ends_read) == [-1, 0]
