"""What a person does to a stream of events: cuts that cannot be, cuts at random offsets, and reads from a time on.

A cut is refused before anything changed, or all events behind it are still read. A read from a time skips no event of
that time or later.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from accel.errors import InvalidArgument
from accel.history.store import Stream
from tests.simulation.scheduler import Violation

if TYPE_CHECKING:
    from tests.simulation.streams import Said, SharedStream

BEYOND = 10**9
"""More events than any world has in a segment."""

Count = Callable[[str], None]
Cutting = Callable[["SharedStream", Stream, Random, Count], None]


def cut_beyond_the_end(_: SharedStream, stream: Stream, random: Random, count: Count) -> None:
    """Truncate at an offset that no event has: refused, whatever the stream does meanwhile."""
    ids = stream.active_segments().ids.tolist()
    cut = dict.fromkeys(ids, 0)
    cut[random.choice(ids)] = BEYOND
    _refused(stream, cut, "beyond the end")
    count("cuts beyond the end that were refused")


def impossible_cut(_: SharedStream, stream: Stream, random: Random, count: Count) -> None:
    """Truncate at a cut that has some keys twice, or not at all: refused."""
    current = stream.current_epoch()
    ids = current.segments.ids.tolist()
    older = stream.epochs.epoch(random.randint(0, current.epoch)).segments.ids.tolist()
    strange = sorted(set(older) - set(ids))
    if strange and random.random() < 0.7:
        cut = dict.fromkeys([*ids, random.choice(strange)], 0)
    elif len(ids) > 1:
        cut = dict.fromkeys(random.sample(ids, len(ids) - 1), 0)
    else:
        return
    _refused(stream, cut, "that is impossible")
    count("impossible cuts that were refused")


def _refused(stream: Stream, cut: dict[int, int], what: str) -> None:
    try:
        stream.truncate(cut)
    except InvalidArgument:
        return
    raise Violation(f"expected that a cut {what} is refused, found it accepted: {cut}")


def cut_anywhere(shared: SharedStream, stream: Stream, random: Random, count: Count) -> None:
    """Truncate at offsets that have events, of the current epoch."""
    ids = stream.active_segments().ids.tolist()
    ends = dict.fromkeys(ids, 0)
    for segment_id, offset in shared.places.values():
        if segment_id in ends:
            ends[segment_id] = max(ends[segment_id], offset + 1)
    cut = {each: random.randint(0, end) for each, end in ends.items()}
    shared.truncated |= {said for said in shared.durable if not _is_behind(shared, said, cut)}
    stream.truncate(cut)
    count("cuts at random offsets")


def _is_behind(shared: SharedStream, said: Said, cut: dict[int, int]) -> bool:
    """Whether an event is known to come after a cut; what is acknowledged later does in any case."""
    place = shared.places.get(said)
    return place is not None and place[0] in cut and place[1] >= cut[place[0]]


CUTS: tuple[Cutting, ...] = (cut_beyond_the_end, impossible_cut, cut_anywhere)
"""What a person types into `truncate`."""
