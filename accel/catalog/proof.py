"""Proof that an object is this catalog's own: needed before it is deleted or replaced.

Its key proves nothing: another system may write objects to the same namespace, under the same ids. Two things prove it:

    mark       metadata of the object, set when it was written: the ids of this catalog     one GET of one byte
               and of the object
    checksum   that of the tail, equal to the row that lists the object: for objects that   one GET more, of the tail
               were imported, or written by programs that set no mark

In both cases the size must be that of the row, if there is a row. An object with neither stays where it is: it is
counted, and deleted only by its id, when an operator has looked at it (`accel catalog gc --id`).

Two limits. The proof and the deletion are two requests: what is written in between is deleted. And a mark can be copied
with its object, to the same key of another bucket.

Source: docs/explanation/deletions.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import numpy as np
from numpy.typing import NDArray

from accel.catalog.parts import ObjectAccess
from accel.errors import AccelError, KeyMissing
from loaders.format import FOOTER_SIZE_BYTES, tail_checksum
from loaders.layout import ObjectLayout
from loaders.object_ref import UNKNOWN, ObjectRef
from loaders.object_writer import fetch_mark
from loaders.store import ObjectStore
from loaders.store.base import LIST_PAGE_KEYS_MAX
from loaders.threads import Threads, map_bounded


class Standing(StrEnum):
    """Whose object it is."""

    OURS = "ours"
    MISSING = "missing"
    UNPROVEN = "unproven"
    UNREAD = "unread"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether one object is ours.

    Args:
        standing: ours; there is no object; nothing proves that it is ours; or it could not be read.
        reason: why it is unproven or unread; else empty.
    """

    standing: Standing
    reason: str = ""


STRANGERS_MAX = 32
"""The number of unknown objects that `find_strangers` looks at."""

_OURS = Verdict(Standing.OURS)
_MISSING = Verdict(Standing.MISSING)


def prove(store: ObjectStore, layout: ObjectLayout, ref: ObjectRef) -> Verdict:
    """Find out whether the object at the key of an id is ours. One request; two if it has no mark of ours.

    Args:
        store: the store of the object.
        layout: of the catalog.
        ref: the object as a row lists it; with the id alone, only its mark proves it.
    """
    try:
        return _judged(store, layout, ref)
    except KeyMissing:
        return _MISSING
    except AccelError as error:
        return Verdict(Standing.UNREAD, str(error))


def prove_all(access: ObjectAccess, refs: Iterable[ObjectRef]) -> list[Verdict]:
    """`prove` for many objects, twice as many at once as other requests: half a second for 1,000 objects on S3."""
    at_once = 2 * access.settings.parallel_requests
    with Threads(at_once, "accel-proofs") as threads:
        return map_bounded(threads, partial(prove, access.store, access.layout), refs)


def find_strangers(access: ObjectAccess, known: NDArray[np.int64]) -> list[str]:
    """Keys of objects in the namespace that the catalog does not name, and that nothing proves to be its own.

    It is a sample: of the first 1,000 keys of the bucket, at most 32 such objects are looked at. Requests: at most 33.

    Args:
        access: to the objects.
        known: all ids that the catalog names, read before.

    Raises:
        AccessDenied, StoreError: the bucket could not be listed.
    """
    ids = (access.layout.parse_object_key(info.key) for info in access.store.list("", limit=LIST_PAGE_KEYS_MAX))
    unknown = [object_id for object_id in ids if object_id is not None and object_id not in known][:STRANGERS_MAX]
    verdicts = zip(unknown, prove_all(access, map(ObjectRef, unknown)), strict=True)
    return [access.layout.object_key(each) for each, verdict in verdicts if verdict.standing is Standing.UNPROVEN]


def _judged(store: ObjectStore, layout: ObjectLayout, ref: ObjectRef) -> Verdict:
    key = layout.object_key(ref.object_id)
    found = fetch_mark(store, key)
    size_bytes = found.object_size_bytes
    if not ref.is_composite and ref.size_bytes not in (UNKNOWN, size_bytes):
        return Verdict(Standing.UNPROVEN, f"expected the {ref.size_bytes} bytes of its row, found {size_bytes}")
    if layout.is_ours(ref.object_id, found.mark):
        return _OURS
    who = "no mark" if found.mark is None else f"the mark {found.mark!r}"
    if UNKNOWN in (ref.index_size_bytes, ref.tail_checksum):
        return Verdict(Standing.UNPROVEN, f"expected a mark of this catalog, found {who}")
    start = max(0, size_bytes - ref.index_size_bytes - FOOTER_SIZE_BYTES)
    tail = store.get_range(key, start, size_bytes).body if size_bytes else b""
    checksum = tail_checksum(tail, object_size_bytes=size_bytes, index_size_bytes=ref.index_size_bytes)
    if checksum == ref.tail_checksum:
        return _OURS
    expected = f"a mark of this catalog, or a tail with CRC-32 {ref.tail_checksum:#010x}"
    return Verdict(Standing.UNPROVEN, f"expected {expected}, found {who} and {checksum:#010x}")
