"""Mutants that no test can find, since they do what the code does: each with the reason, written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_MESSAGE: Final = "only the number of examples in the message of an error"

EQUIVALENT: Final[Mapping[str, str]] = {
    "accel/lookup/search.py::Search._take_known: if start != covered and picked: -> if False:": (
        "entries that are ordered do not overlap, so behind a pick the next one starts where that ended"
    ),
    "accel/lookup/known_ranges.py::_counts_between: "
    "counts[positions[1:]] - counts[positions[:-1] + 1] -> counts[positions[1:]] - counts[positions[:-1] + 0]": (
        "the positions are known objects, and the flags of known objects are not set"
    ),
    "accel/lookup/known_ranges.py::join_ranges: if seen: -> if True:": (
        "without anything seen it joins no rows, in a longer way and with the same result"
    ),
    "accel/lookup/known_ranges.py::columns_of: "
    "np.fromiter((object_id in view.holed for object_id in view.object_ids), np.bool_, len(object_ids)) if view.holed "
    "else np.zeros(len(object_ids), dtype=np.bool_) -> "
    "np.fromiter((object_id in view.holed for object_id in view.object_ids), np.bool_, len(object_ids)) if True "
    "else np.zeros(len(object_ids), dtype=np.bool_)": "without holes both make flags that are not set",
    "range_index/segment_times.py::_covering: "
    "LocatedRecord(token, start, end, 2) -> LocatedRecord(token, start, end, 1)": (
        "its caller uses the record and not the number of requests"
    ),
    "accel/catalog/node_list.py::is_led_back: if not len(rows): -> if False:": (
        "without rows the rest finds nothing, in a longer way"
    ),
    "accel/history/rules/scaling.py::_refuse_ranges: "
    "list(request.new_ranges)[:5] -> list(request.new_ranges)[:6]": _MESSAGE,
    "accel/catalog/stream_shards.py::_refuse_unless_closed: '; '.join((f\"[{row['start']}, {row['end']}) of node "
    "{row['node_id']}\" for row in ranges[-5:])) -> '; '.join((f\"[{row['start']}, {row['end']}) of node "
    "{row['node_id']}\" for row in ranges[-4:]))": _MESSAGE,
    "accel/catalog/node_list.py::_refuse_differences: raise CommitRefused(f'{where}: expected objects of disjoint "
    "order ids, found {some(pair)}: an earlier undo was made in between') -> pass": (
        "objects whose spans overlap are not all of the earlier version, which the next check refuses as well"
    ),
    "accel/repair/epochs.py::EpochsRepair._epochs: (yield from zip(numbers, self._parts.each("
    "lambda number: self._keys.epoch(number).inspect(), numbers), strict=True)) -> (yield from zip(numbers, "
    "self._parts.each(lambda number: self._keys.epoch(number).inspect(), numbers), strict=False))": (
        "`each` has an answer for every number"
    ),
}
"""`Mutant.key` -> why. Those that only cost requests are none of these: tests count requests."""
