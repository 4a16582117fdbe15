"""What a visit of one node says of what is under way, and when it goes on without."""

from __future__ import annotations

import pytest

from accel.lookup.answer import Request
from accel.lookup.search import NodeVisit
from tests.accel.lookup.cluster import NODE, STREAM, line_image


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
