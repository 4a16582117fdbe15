"""Neighbouring bytes are read together, as a loop over the pieces joins them, and nothing is left out."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from loaders.format.index import join_spans

pieces_drawn = st.lists(st.tuples(st.integers(-2, 3), st.integers(1, 9), st.integers(0, 5)), max_size=30)


@given(pieces_drawn, st.booleans(), st.integers(0, 3), st.none() | st.integers(1, 40))
def test_a_piece_joins_the_span_before_it_within_the_bounds(
    drawn: list[tuple[int, int, int]], by_object: bool, gap: int, most: int | None
) -> None:
    starts, ends, objects = [0], [5], [7]
    spans = [(0, 1)]
    for step, size, other in drawn:
        starts.append(max(0, ends[-1] + step))
        ends.append(starts[-1] + size)
        objects.append(objects[-1] + (other == 0))
        first, number = spans[-1][0], len(starts) - 1
        is_joined = 0 <= starts[-1] - ends[-2] <= gap and (most is None or ends[-1] - starts[first] <= most)
        if is_joined and not (by_object and objects[-1] != objects[-2]):
            spans[-1] = (first, number + 1)
        else:
            spans.append((number, number + 1))
    columns = [np.array(column, dtype=np.int64) for column in (starts, ends, objects)]
    found = join_spans(
        columns[0], columns[1], columns[2] if by_object else None, gap_size_bytes_max=gap, span_size_bytes_max=most
    )
    assert found == spans
    nothing = np.empty(0, dtype=np.int64)
    assert join_spans(nothing, nothing, gap_size_bytes_max=gap, span_size_bytes_max=most) == []
