"""What a visit of one node says of what is under way, and when it goes on without."""

from __future__ import annotations

import numpy as np
import pytest

from accel.lookup.answer import Request
from accel.lookup.known_ranges import Between, RangeColumns, join_ranges
from accel.lookup.node_visit import NodeVisit
from accel.lookup.search_requests import HintReply, ReadFilters
from loaders.hints.roots import KnownRoot
from range_index import StreamRange
from tests.accel.lookup.cluster import NODE, STREAM, line_image
from tests.accel.lookup.driving import index_cache


def test_a_search_waits_for_filters_also_where_there_is_no_snapshot_until_they_are_slow() -> None:
    visit = visit_of()
    place = Between(np.arange(40), 40)
    visit.without_snapshot = True
    visit.asked(ReadFilters(visit.node, (), np.arange(40), 16), index_cache())
    assert visit.awaits(place)
    visit.give_up_waiting()
    assert not visit.awaits(place)
    visit.take_hint(HintReply(None, None, None, filters=40))
    assert visit.hint_asked is None


def visit_of(objects: int = 40, *, scan: bool = False) -> NodeVisit:
    image = line_image(list(range(objects)))
    return NodeVisit(image.nodes[NODE], image.streams[STREAM], None, scan=scan)


def test_one_object_between_two_positions_is_waited_for_whatever_is_under_way_elsewhere() -> None:
    visit = visit_of()
    assert not visit.awaits_between(0, 40)
    visit.pending |= {2, 30}
    assert visit.awaits_between(0, 5)
    assert not visit.awaits_between(2, 30), "both bounds are known"
    assert not visit.awaits_between(5, 20)


def test_what_is_overdue_is_not_waited_for() -> None:
    visit = visit_of()
    visit.pending |= {2, 30}
    visit.give_up_waiting()
    assert not visit.awaits_between(0, 40)
    assert not visit.without_snapshot, "no snapshot was asked for"
    visit.pending.add(3)
    assert visit.awaits_between(0, 40), "what was asked for since is"


@pytest.mark.parametrize(("picked", "runs"), [(0, True), (1000, False)])
def test_a_run_is_worth_it_while_much_is_wanted_still(picked: int, *, runs: bool) -> None:
    request = Request(STREAM, 0, limit=1000)
    assert visit_of().may_run(request, picked) is runs
    assert not visit_of(scan=True).may_run(request, picked)


def columns(*rows: tuple[int, int, int]) -> RangeColumns:
    """Ranges without holes: (start, end, position)."""
    starts, ends, positions = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return RangeColumns(starts, ends, positions, np.zeros(len(rows), dtype=np.bool_))


def test_a_range_from_several_sources_counts_once() -> None:
    seen = {2: StreamRange(9, 12), 3: None}
    hinted = columns((0, 5, 0), (9, 12, 2))
    known = join_ranges(columns((0, 5, 0)), np.ones(6, dtype=np.bool_), seen, hinted=hinted)
    assert (known.starts.tolist(), known.ends.tolist(), known.positions.tolist()) == ([0, 9], [5, 12], [0, 2])
    assert known.ordered
    assert known.unknown.tolist() == [False, True, False, False, True, True]


def test_a_node_without_a_snapshot_is_asked_for_it_once() -> None:
    visit = visit_of()
    assert visit.may_ask(0)
    assert visit.take_root(KnownRoot(None, None, "", due_seconds=60.0)) is None
    assert not visit.may_ask(0)


def test_objects_that_have_come_narrow_a_place_unless_they_hold_the_offset() -> None:
    visit = visit_of()
    visit.seen |= {5: StreamRange(0, 100), 20: StreamRange(300, 400), 9: None}
    assert visit.narrowed(200, 0, 40, (5, 9, 20)) == (5, 20)
    assert visit.narrowed(200, 6, 12, (5, 20)) == (6, 12)
    assert visit.narrowed(350, 0, 40, (5, 20)) is None
