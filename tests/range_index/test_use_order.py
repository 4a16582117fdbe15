"""The use order gives back the least recently used first, though a use is noted elsewhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from range_index.stream_view import UseOrder

Thing = tuple[int, int]
things = st.tuples(st.integers(0, 2), st.integers(0, 9))


@given(st.lists(st.one_of(things, st.none()), max_size=60))
def test_the_least_recently_used_comes_out_first(steps: list[Thing | None]) -> None:
    order, uses = UseOrder(), dict[Thing, float]()
    for now, thing in enumerate(steps):
        if thing is None:
            if uses:
                assert order.pop(lambda *key: uses[key], examined_max=100) == min(uses, key=lambda key: uses[key])
                del uses[min(uses, key=lambda key: uses[key])]
        else:
            if thing not in uses:
                order.add(now, *thing)
            uses[thing] = now
        assert sorted(order.keys()) == sorted(uses)
        assert len(order) == len(uses)


def test_nothing_comes_out_of_nothing() -> None:
    with pytest.raises(IndexError):
        UseOrder().pop(lambda *_: 0.0, examined_max=1)
