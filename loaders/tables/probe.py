"""Finds out how an endpoint treats conditional writes, by trying them on a key of its own.

Everything in tables rests on two conditional verbs. An endpoint that takes the header and ignores it would lose
changes without a word, so a catalog is opened for writing only after the endpoint has shown that it does not. It also
shows whether it wants the ETag of If-Match in quotes: S3 and the standard do, Ceph compares without.

    | step | request                               | must be                            |
    |------|---------------------------------------|------------------------------------|
    | 1    | PUT If-None-Match: *, nothing there   | written                            |
    | 2    | the same again                        | refused                            |
    | 3    | PUT If-Match: "the ETag of 1", quotes | written: quotes are wanted         |
    | 4    | if not: the same without quotes       | written: quotes are not wanted     |
    | 5    | PUT If-Match: the ETag of 1, outdated | refused                            |
    | 6    | DELETE                                | (tidies up)                        |
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from loaders.errors import PreconditionFailed, RequestRefused, StoreError, StoreUnavailable, WriteConflict
from loaders.layout import PROBE_PREFIX
from loaders.store.base import Condition, CreateOnly, IfMatch, ObjectStore

PROBES_MAX = 3
"""A probe that the network spoils is begun again on another key, this many times in all."""


def probe_conditions(store: ObjectStore, nonce: Callable[[], bytes]) -> bool:
    """Whether If-Match wants quotes. Five or six requests.

    Args:
        store: the store to try.
        nonce: draws 16 random bytes.

    Raises:
        RequestRefused: the endpoint ignores one of the verbs, or refuses it whatever is asked.
        StoreError: it does not answer, or may not be written to.
    """
    attempt = 1
    while True:
        key = PROBE_PREFIX + nonce().hex()
        try:
            return _wants_quotes(store, key)
        except (StoreUnavailable, WriteConflict):
            attempt += 1
            if attempt > PROBES_MAX:
                raise
        finally:
            with suppress(StoreError):
                store.delete(key)


def _wants_quotes(store: ObjectStore, key: str) -> bool:
    etag = store.put(key, b"created", condition=CreateOnly())
    if _put(store, key, b"created twice", CreateOnly()):
        raise _refused(key, "ignores If-None-Match: it let an object be created that was there")
    quotes = _put(store, key, b"with quotes", IfMatch(etag, quotes=True))
    if not quotes and not _put(store, key, b"without quotes", IfMatch(etag, quotes=False)):
        raise _refused(key, "refuses If-Match with and without quotes, although the ETag is the object's")
    if _put(store, key, b"outdated", IfMatch(etag, quotes=quotes)):
        raise _refused(key, "ignores If-Match: it let an object be replaced that had changed")
    return quotes


def _put(store: ObjectStore, key: str, body: bytes, condition: Condition) -> bool:
    try:
        store.put(key, body, condition=condition)
    except PreconditionFailed:
        return False
    return True


def _refused(key: str, what: str) -> RequestRefused:
    return RequestRefused("put", key, f"this endpoint {what}; tables would lose writes on it")
