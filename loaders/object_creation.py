"""Objects that are written once: a key is created, and never written over.

Ids are given out once, so nothing should lie where an object is written. If the counter of ids went back, something
does: a live object, perhaps. A plain PUT would replace it without a word. So an object that goes out in one request is
a PUT with If-None-Match:*, and what the store says of it decides:

    | answer                              | what follows                                                          |
    |-------------------------------------|-----------------------------------------------------------------------|
    | 200                                 | written                                                               |
    | 412                                 | the key is read: these very bytes are mine (an earlier copy of this   |
    |                                     | request came through), other bytes are `ObjectExists`                 |
    | 409, 500, 503, none (a lost reply)  | the same; if nothing lies there, the same bytes are sent again        |

A multipart upload cannot be made so: servers in real use ignore conditions on its completion. There the key is looked
at just before it is completed. That narrows the time in which another object may appear, and proves nothing: such
objects rest on the counter of ids, and on the promise of the id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loaders.errors import (
    AccessDenied,
    KeyMissing,
    ObjectExists,
    PreconditionFailed,
    RangeInvalid,
    StoreError,
    StoreUnavailable,
    WriteConflict,
)
from loaders.store.base import CreateOnly

if TYPE_CHECKING:
    from loaders.backoff import Backoff
    from loaders.store.base import Body, ObjectStore

ATTEMPTS_MAX = 4
"""How often the same bytes are sent while the store neither has them nor says no."""


def create_object(store: ObjectStore, key: str, body: Body, backoff: Backoff | None = None) -> None:
    """Write an object where none is; the same bytes there already count as written. One request as a rule.

    Args:
        store: where to.
        key: of an object that is written once.
        body: at least one byte.
        backoff: pauses before it is sent again; None = none.

    Raises:
        ObjectExists: an object with other bytes lies there; it was left alone.
        StoreUnavailable, WriteConflict: it may be there or not; writing the same bytes again is safe.
        StoreError: not written.
    """
    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            store.put(key, body, condition=CreateOnly())
        except (PreconditionFailed, WriteConflict, StoreUnavailable) as error:
            if _is_written(store, key, body, error):
                return
            if attempt == ATTEMPTS_MAX:
                raise
        else:
            return
        if backoff is not None:
            backoff.pause(attempt)


def refuse_existing(store: ObjectStore, key: str) -> None:
    """Look whether a key is free; see the module for what that is worth. One request.

    Raises:
        ObjectExists: it is not.
        StoreError: the store could not say.
    """
    size_bytes = stored_size_bytes(store, key)
    if size_bytes is not None:
        raise ObjectExists("complete", key, f"expected no object, found one of {size_bytes} bytes")


def stored_size_bytes(store: ObjectStore, key: str) -> int | None:
    """The size of an object; None if there is none, or if the store does not say so much. One request, one byte.

    Without the permission to list, S3 answers 403 for a missing key: that counts as missing.
    """
    try:
        return store.get_range(key, 0, 1).object_size_bytes
    except RangeInvalid:
        return 0
    except (KeyMissing, AccessDenied):
        return None


def ends_with(store: ObjectStore, key: str, size_bytes: int, ending: Body) -> bool:
    """Whether an object of this size and with these last bytes lies at a key. One request."""
    try:
        found = store.get_tail(key, len(ending))
    except (KeyMissing, AccessDenied):
        return False
    return found.object_size_bytes == size_bytes and found.body == ending


def _is_written(store: ObjectStore, key: str, body: Body, error: StoreError) -> bool:
    """Whether these bytes lie at the key; False if nothing does."""
    try:
        found = store.get_range(key, 0, len(body))
    except (KeyMissing, AccessDenied):
        return False
    except RangeInvalid:
        size_bytes = 0
    else:
        size_bytes = found.object_size_bytes
        if size_bytes == len(body) and found.body == body:
            return True
    expected = f"no object, or this one of {len(body)} bytes"
    raise ObjectExists("put", key, f"expected {expected}, found another of {size_bytes} bytes") from error
