"""What must be true of every node's list, for `verify` and for tests: the rules keep it, foreign hands may not."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from accel.catalog.problems import Kind, Mismatches, Problem
from accel.catalog.records import NodeList
from accel.catalog.rows import CHECKSUM_MAX, Rows, some
from accel.catalog.stream_object_rows import described, overlapping
from loaders.object_ref import UNKNOWN


def check_list(node_list: NodeList) -> list[Problem]:
    """What is wrong with a list; empty if nothing is. Complexity: O(n log n)."""
    where = f"list of node {node_list.node_id}"
    return [Problem(Kind.LIST, where, *mismatch) for rule in _RULES for mismatch in rule(node_list)]


def overlapping_spans(live: Rows) -> NDArray[np.int64]:
    """Positions whose span of order ids reaches into that of the next row, of rows ascending by order id."""
    found: NDArray[np.int64] = np.flatnonzero(live["last_order_id"][:-1] >= live["order_id"][1:])
    return found


def _spans(now: NodeList) -> Mismatches:
    for at in overlapping_spans(now.live):
        pair = [tuple(now.live[place][["object_id", "order_id", "last_order_id"]].tolist()) for place in (at, at + 1)]
        yield "disjoint spans of order ids", f"(object, first, last) {pair[0]} and {pair[1]}"
    inverted = now.live["object_id"][now.live["last_order_id"] < now.live["order_id"]]
    if len(inverted):
        yield "last order ids of at least the order id", f"less for {some(inverted)}"
    if len(now.live) and int(now.live["last_order_id"].max()) >= now.next_order_id:
        yield f"order ids below {now.next_order_id}", str(now.live["last_order_id"].max())


def _one_place_each(now: NodeList) -> Mismatches:
    places = {
        "live": now.live,
        "promised": now.prepared,
        "retired": now.retired,
        "waiting for a bucket": now.stream_objects,
    }
    names = list(places)
    for number, name in enumerate(names):
        ids, counts = np.unique(places[name]["object_id"], return_counts=True)
        if len(ids[counts > 1]):
            yield "each object once", f"{some(ids[counts > 1])} {name} more than once"
        for other in names[number + 1 :]:
            both = np.intersect1d(ids, places[other]["object_id"])
            if len(both):
                yield "each id in one place", f"{some(both)} both {name} and {other}"


def _commits(now: NodeList) -> Mismatches:
    for name, rows, column in (
        ("added", now.live, "added_by"),
        ("added", now.retired, "added_by"),
        ("retired", now.retired, "retired_by"),
        ("added", now.stream_objects, "added_by"),
    ):
        late = rows["object_id"][rows[column] >= now.next_order_id]
        if len(late):
            yield f"commits below {now.next_order_id}", f"later ones that {name} {some(late)}"


def _numbers(now: NodeList) -> Mismatches:
    for name, least in (("object_id", 0), ("size_bytes", 0), ("index_size_bytes", 0), ("data_time_ms", 0)):
        wrong = now.live["object_id"][now.live[name] < least]
        if len(wrong):
            yield f"{name} of at least {least}", f"less for objects {some(wrong)}"
    checksums = now.live["tail_checksum"]
    wrong = now.live["object_id"][(checksums < UNKNOWN) | (checksums > CHECKSUM_MAX)]
    if len(wrong):
        yield "checksums of -1 to 2^32 - 1", f"others for objects {some(wrong)}"


def _stream_objects(now: NodeList) -> Mismatches:
    rows = now.stream_objects
    for at in overlapping(rows):
        pair = f"{described(rows[at])} and {described(rows[at + 1])}"
        yield "objects of a stream that do not overlap", pair
    foreign = rows["object_id"][rows["node_id"] != now.node_id]
    if len(foreign):
        yield "stream objects of this node", f"{some(foreign)} of another one"


_RULES = (_spans, _one_place_each, _commits, _numbers, _stream_objects)
