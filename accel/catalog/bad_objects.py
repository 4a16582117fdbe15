"""Bad objects: live objects that cannot be read. Their node's list remembers them, so that later runs leave them alone.

    cause         what was found                                                          found by
    MISSING       no object is at the key                                                 opening it
    INDEX         its index contradicts the format or the list                            opening it
    BLOCK         a block contradicts the index                                           merging it
    DENIED        the store refuses to read it: archived, or its key disabled             either
    UNAVAILABLE   the store does not answer for this object, although it does for others  either

Compaction and the building of hints *set a bad object aside*: its neighbours are merged, and hints are built without
it. Its row has the cause, how many runs failed because of it, and since when. A row leaves the list with its object.

**Later runs** send one request of one byte for each row, and do not open the object until it has changed:

    MISSING, DENIED    until the byte can be read
    INDEX, BLOCK       until the object has another ETag, as after `accel repair --from`
    UNAVAILABLE        for the first `UNAVAILABLE_RUNS` runs they try again; then until the byte can be read

An object that an operator has mended in another way is tried again by `accel catalog compact --retry-set-aside`.

**Bounds.** A list has at most `BAD_OBJECTS_MAX` rows. If more objects of a node than that are denied or unavailable, or
all that a run has opened, the fault is that of the store: then the node fails, and nothing is remembered.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from accel.catalog.keys import require
from accel.catalog.parts import CatalogParts
from accel.catalog.records import SET_ASIDE, NodeList, Rows
from accel.catalog.shard_writes import read_list
from accel.errors import AccelError, FormatError, KeyMissing
from loaders.errors import (
    BucketMissing,
    CredentialsMissing,
    EndpointUnreachable,
    RangeInvalid,
    StoreError,
)
from loaders.object_ref import UNKNOWN, ObjectRef
from loaders.threads import map_bounded

Ids = NDArray[np.int64]
logger = logging.getLogger(__name__)

BAD_OBJECTS_MAX = 100
"""The maximum number of bad objects that a list remembers, and that one run over a node passes over."""

UNAVAILABLE_RUNS = 3
"""The number of runs that try to read an object which the store does not answer for."""

REASON_SIZE_MAX = 500
"""The maximum number of characters of a reason."""

_OF_THE_STORE = (BucketMissing, CredentialsMissing, EndpointUnreachable)


class Cause(IntEnum):
    """Why an object cannot be read; the number is stored."""

    MISSING = 1
    INDEX = 2
    BLOCK = 3
    DENIED = 4
    UNAVAILABLE = 5

    @property
    def text(self) -> str:
        """In words."""
        return _TEXTS[self]


_TEXTS = {
    Cause.MISSING: "no object is at its key",
    Cause.INDEX: "its index is damaged",
    Cause.BLOCK: "a block of it is damaged",
    Cause.DENIED: "the store refuses to read it",
    Cause.UNAVAILABLE: "the store does not answer for it",
}


def cause_of(error: Exception, *, is_merged: bool = False) -> Cause | None:
    """Why an object could not be read; None for an error that is not that of an object.

    Args:
        error: of opening or merging it.
        is_merged: whether its index was read before, so that the data is damaged.
    """
    if isinstance(error, KeyMissing):
        return Cause.MISSING
    if isinstance(error, FormatError | RangeInvalid):
        return Cause.BLOCK if is_merged else Cause.INDEX
    if not isinstance(error, StoreError) or isinstance(error, _OF_THE_STORE):
        return None
    return Cause.UNAVAILABLE if error.retryable else Cause.DENIED


@dataclass(frozen=True, slots=True)
class BadObject:
    """An object that a run could not read. Picklable.

    Args:
        node_id: the node whose list has it.
        object_id: its id.
        size_bytes: in the list.
        cause: why.
        reason: the error.
    """

    node_id: int
    object_id: int
    size_bytes: int
    cause: Cause
    reason: str

    @classmethod
    def of(cls, node_id: int, ref: ObjectRef, cause: Cause, error: Exception) -> BadObject:
        """From the error of a read."""
        reason = f"{type(error).__name__}: {error}"[:REASON_SIZE_MAX]
        return cls(node_id, ref.object_id, ref.size_bytes, cause, reason)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for people and logs."""
        return asdict(self) | {"cause": self.cause.name.lower()}


class BadObjects:
    """The objects that one run over a node could not read. Threads: one."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._read = 0
        self._refused = 0
        self._last: AccelError | None = None
        self.found: list[BadObject] = []

    def note_read(self) -> None:
        """Count an object that could be read."""
        self._read += 1

    def add(self, ref: ObjectRef, error: AccelError) -> None:
        """Add an object.

        Raises:
            AccelError: the given error, if it is that of the store.
        """
        cause = cause_of(error)
        if cause is None:
            raise error
        self._refused += cause in (Cause.DENIED, Cause.UNAVAILABLE)
        if self._refused > BAD_OBJECTS_MAX:
            raise error
        self.found.append(BadObject.of(self._node_id, ref, cause, error))
        self._last = error

    def check(self) -> tuple[BadObject, ...]:
        """All of them, at the end.

        Raises:
            AccelError: the last error, if the store refused all of several objects.
        """
        if self._last is not None and self._refused == len(self.found) > 1 and not self._read:
            raise self._last
        return tuple(self.found)


# Rules of a list


def with_set_aside(now: NodeList, bad: Rows, sound: Iterable[int], now_ms: int) -> NodeList | None:
    """Remember bad objects, and forget those that could be read.

    Args:
        now: the list.
        bad: SET_ASIDE rows in any order; `runs` and `since_ms` are filled in here. Objects that are not live are
            ignored, and so are new ones above `BAD_OBJECTS_MAX`.
        sound: ids of objects that a run could read.
        now_ms: milliseconds since 1970.

    Returns:
        None if nothing changes.
    """
    live = set(now.live["object_id"].tolist())
    known = {row["object_id"]: row for row in _as_dicts(now.set_aside)}
    rows = {object_id: row for object_id, row in known.items() if object_id not in set(sound)}
    for row in _as_dicts(bad):
        object_id = row["object_id"]
        before = rows.get(object_id)
        if object_id in live and (before is not None or len(rows) < BAD_OBJECTS_MAX):
            since_ms, runs = (now_ms, 0) if before is None else (before["since_ms"], before["runs"])
            rows[object_id] = row | {"since_ms": since_ms, "runs": runs + 1}
    if rows == known:
        return None
    columns = [tuple(rows[object_id][name] for name in SET_ASIDE.names or ()) for object_id in sorted(rows)]
    return replace(now, set_aside=np.array(columns, dtype=SET_ASIDE))


def _as_dicts(rows: Rows) -> list[dict[str, int]]:
    return [dict(zip(SET_ASIDE.names or (), row, strict=True)) for row in rows.tolist()]


# Remembering


def objects_left_alone(parts: CatalogParts, node_list: NodeList) -> Ids:
    """Ids of the objects that were set aside and have not changed since. One request of one byte for each."""
    rows = node_list.set_aside[np.isin(node_list.set_aside["object_id"], node_list.live["object_id"])]
    rows = rows[~_may_answer(rows)]
    tags = map_bounded(parts.executor, lambda object_id: _tag_of(parts, object_id), rows["object_id"].tolist())
    now = np.array(tags, dtype=np.int64)
    is_damaged = np.isin(rows["cause"], (Cause.INDEX, Cause.BLOCK))
    is_changed = (now != UNKNOWN) & (~is_damaged | (now != rows["tag"]))
    ids: Ids = rows["object_id"][~is_changed]
    return ids


def damaged_blocks(parts: CatalogParts, node_list: NodeList) -> dict[int, str]:
    """Live objects with a damaged block that a merge has found: id -> why and how often. A request of one byte each."""
    texts = {row["object_id"]: set_aside_text(row) for row in set_aside_of(node_list) if row["cause"] == Cause.BLOCK}
    still = set(objects_left_alone(parts, node_list).tolist()) if texts else set()
    return {object_id: text for object_id, text in texts.items() if object_id in still}


def remember(parts: CatalogParts, node_id: int, bad: Sequence[BadObject], sound: Sequence[int] = ()) -> None:
    """Set objects of a node aside, and forget those that could be read.

    Requests: one of one byte for each bad object, one or two for the list. If they fail, nothing is remembered, and
    later runs find the objects again.
    """
    if not bad and not sound:
        return
    try:
        tags = map_bounded(parts.executor, lambda each: _tag_of(parts, each.object_id), bad[:BAD_OBJECTS_MAX])
        numbered = [(each.object_id, each.cause, 0, 0, tag) for each, tag in zip(bad, tags, strict=False)]
        rows, now_ms = np.array(numbered, dtype=SET_ASIDE), parts.now_ms()
        key = parts.keys.node_list(node_id)
        key.change(
            lambda now: with_set_aside(require(now, key.where), rows, sound, now_ms), seen=read_list(key, node_id)
        )
    except AccelError:
        logger.warning("node %d: %d bad objects are not remembered", node_id, len(bad), exc_info=True)


def set_aside_text(row: dict[str, int]) -> str:
    """Why and how often an object was set aside, as half a sentence; `row` is of `set_aside_of`."""
    runs = "1 run" if row["runs"] == 1 else f"{row['runs']} runs"
    return f"{Cause(row['cause']).text}; set aside by {runs}"


def set_aside_of(node_list: NodeList) -> list[dict[str, int]]:
    """The SET_ASIDE rows of a list, as dictionaries, without those with a cause of a later release."""
    return [row for row in _as_dicts(node_list.set_aside) if row["cause"] in _TEXTS]


def _may_answer(rows: Rows) -> NDArray[np.bool_]:
    tried_again: NDArray[np.bool_] = (rows["cause"] == Cause.UNAVAILABLE) & (rows["runs"] < UNAVAILABLE_RUNS)
    return tried_again


def _tag_of(parts: CatalogParts, object_id: int) -> int:
    """A number for the present ETag of an object; -1 if its first byte cannot be read."""
    try:
        fetched = parts.store.get_range(parts.layout.object_key(object_id), 0, 1)
    except RangeInvalid:
        return 0
    except StoreError:
        return UNKNOWN
    return int(xxh3_64_intdigest(fetched.etag.encode()) >> 1)
