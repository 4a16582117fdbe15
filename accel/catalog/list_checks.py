"""What must be true of every node's list, for `verify` and for tests: the rules keep it, foreign hands may not."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from accel.catalog.records import NodeList
from accel.catalog.rows import CHECKSUM_MAX, Rows, some
from accel.catalog.stream_object_rows import described, overlapping
from loaders.object_ref import UNKNOWN


def check_list(node_list: NodeList) -> list[str]:
    """What is wrong with a list, one sentence each; empty if nothing is. Complexity: O(n log n)."""
    where = f"list of node {node_list.node_id}"
    return [f"{where}: {problem}" for rule in _RULES for problem in rule(node_list)]


def overlapping_spans(live: Rows) -> NDArray[np.int64]:
    """Positions whose span of order ids reaches into that of the next row, of rows ascending by order id."""
    found: NDArray[np.int64] = np.flatnonzero(live["last_order_id"][:-1] >= live["order_id"][1:])
    return found


def _spans(now: NodeList) -> Iterator[str]:
    for at in overlapping_spans(now.live):
        pair = [tuple(now.live[place][["object_id", "order_id", "last_order_id"]].tolist()) for place in (at, at + 1)]
        yield f"expected disjoint spans of order ids, found (object, first, last) {pair[0]} and {pair[1]}"
    inverted = now.live["object_id"][now.live["last_order_id"] < now.live["order_id"]]
    if len(inverted):
        yield f"expected last order ids of at least the order id, found less for {some(inverted)}"
    if len(now.live) and int(now.live["last_order_id"].max()) >= now.next_order_id:
        yield f"expected order ids below {now.next_order_id}, found {int(now.live['last_order_id'].max())}"


def _one_place_each(now: NodeList) -> Iterator[str]:
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
            yield f"expected each object once, found {some(ids[counts > 1])} {name} more than once"
        for other in names[number + 1 :]:
            both = np.intersect1d(ids, places[other]["object_id"])
            if len(both):
                yield f"expected each id in one place, found {some(both)} both {name} and {other}"


def _commits(now: NodeList) -> Iterator[str]:
    for name, rows, column in (
        ("added", now.live, "added_by"),
        ("added", now.retired, "added_by"),
        ("retired", now.retired, "retired_by"),
        ("added", now.stream_objects, "added_by"),
    ):
        late = rows["object_id"][rows[column] >= now.next_order_id]
        if len(late):
            yield f"expected commits below {now.next_order_id}, found later ones that {name} {some(late)}"


def _numbers(now: NodeList) -> Iterator[str]:
    for name, least in (("object_id", 0), ("size_bytes", 0), ("index_size_bytes", 0), ("data_time_ms", 0)):
        wrong = now.live["object_id"][now.live[name] < least]
        if len(wrong):
            yield f"expected {name} of at least {least}, found less for objects {some(wrong)}"
    checksums = now.live["tail_checksum"]
    wrong = now.live["object_id"][(checksums < UNKNOWN) | (checksums > CHECKSUM_MAX)]
    if len(wrong):
        yield f"expected checksums of -1 to 2^32 - 1, found others for objects {some(wrong)}"


def _stream_objects(now: NodeList) -> Iterator[str]:
    rows = now.stream_objects
    for at in overlapping(rows):
        pair = f"{described(rows[at])} and {described(rows[at + 1])}"
        yield f"expected objects of a stream that do not overlap, found {pair}"
    foreign = rows["object_id"][rows["node_id"] != now.node_id]
    if len(foreign):
        yield f"expected stream objects of this node, found {some(foreign)} of another one"


_RULES = (_spans, _one_place_each, _commits, _numbers, _stream_objects)
